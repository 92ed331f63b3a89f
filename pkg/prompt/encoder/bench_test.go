package encoder_test

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// BenchmarkKnownText is the memo alone: a text of 41 messages and 90 KB of which
// everything is known.
func BenchmarkKnownText(b *testing.B) {
	e := newEncoder(b, newFake(), 64<<20)
	text := ""
	for turn := range 41 {
		text += message("user", turn, 200)
	}
	p := chat.Prompt{Text: text, Usable: len(text)}
	var r encoder.Result
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.EncodeText(&r, p, block.NewSeed("", "")); err != nil {
			b.Fatal(err)
		}
	}
	if r.ReusedBytes != len(text) {
		b.Fatalf("%d bytes reused of %d", r.ReusedBytes, len(text))
	}
}
