package encoder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// BenchmarkKnownText is the memo alone: a text of 41 messages and 90 KB of which
// everything is known.
func BenchmarkKnownText(b *testing.B) {
	e := newEncoder(b, newFake(), 64<<20)
	text := ""
	for turn := range 41 {
		text += message("user", turn, 190+turn%20)
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

// request is a body on its way.
type request struct {
	body    []byte
	scanned prompt.Body
}

func (q *request) encode(b *testing.B, e *encoder.Encoder, r *encoder.Result) {
	q.scanned.Decode = true
	if err := q.scanned.Scan(prompt.Chat, q.body); err != nil {
		b.Fatal(err)
	}
	if err := e.Encode(r, prompt.Chat, q.body, &q.scanned, block.NewSeed("", q.scanned.Salt), time.Time{}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkConversation is a chat of 20 turns of about 200 tokens each upon a
// history of about 20,000, from the bytes of the body to block hashes. One
// operation is one turn. Every conversation is new but for its first turn, which
// is not timed.
func BenchmarkConversation(b *testing.B) {
	const turns, history, size = 20, 80_000, 2000
	m := loadModel(b, "qwen3")
	e := m.encoder(b, 64<<20)
	var bodies [][]byte
	for i := range 8 {
		c := newConversation(history, size, uint64(i))
		bodies = append(bodies, c.body(b))
		for range turns {
			c.turn(800)
			bodies = append(bodies, c.body(b))
		}
	}
	var q request
	var r encoder.Result
	b.ReportAllocs()
	at, tokens, bytes, best := 0, 0, 0, time.Hour
	for b.Loop() {
		if at%(turns+1) == 0 {
			b.StopTimer()
			if at %= len(bodies); at == 0 {
				e = m.encoder(b, 64<<20)
			}
			q.body = bodies[at]
			q.encode(b, e, &r)
			at++
			b.StartTimer()
		}
		q.body = bodies[at]
		start := time.Now()
		q.encode(b, e, &r)
		best = min(best, time.Since(start))
		if r.ReusedBytes < r.TextBytes*9/10 {
			b.Fatalf("%d bytes reused of %d", r.ReusedBytes, r.TextBytes)
		}
		at++
		tokens, bytes = r.Tokens, len(q.body)
	}
	b.ReportMetric(float64(tokens), "tokens")
	b.ReportMetric(float64(bytes), "body-bytes")
	b.ReportMetric(float64(best.Nanoseconds()), "ns-best")
}

// BenchmarkBody is a chat body of 128 KB, from its bytes to block hashes: cold,
// with a memo that knows nothing, and warm, when it was seen before.
func BenchmarkBody(b *testing.B) {
	m := loadModel(b, "qwen3")
	for _, size := range []int{2200, 20_000} {
		c := newConversation(108_000, size, 1)
		q := request{body: c.body(b)}
		var r encoder.Result
		name := fmt.Sprintf("messages=%d/", len(c.Messages))
		b.Run(name+"cold", func(b *testing.B) {
			b.SetBytes(int64(len(q.body)))
			b.ReportAllocs()
			best := time.Hour
			for b.Loop() {
				b.StopTimer()
				e := m.encoder(b, 8<<20)
				b.StartTimer()
				start := time.Now()
				q.encode(b, e, &r)
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(r.Tokens), "tokens")
			b.ReportMetric(float64(best.Nanoseconds()), "ns-best")
		})
		b.Run(name+"warm", func(b *testing.B) {
			e := m.encoder(b, 8<<20)
			b.SetBytes(int64(len(q.body)))
			b.ReportAllocs()
			best := time.Hour
			for b.Loop() {
				start := time.Now()
				q.encode(b, e, &r)
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(r.TextBytes-r.ReusedBytes), "new-bytes")
			b.ReportMetric(float64(best.Nanoseconds()), "ns-best")
		})
	}
}
