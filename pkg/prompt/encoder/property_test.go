package encoder_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// pieces are what the texts of the tests are made of.
var pieces = []string{
	"<start>", "<end>", "!", "<end>!", "<tool>", "<|>", "a", "bcd ", "some words of a message ", "\n",
	strings.Repeat("long ", 60), strings.Repeat("x", 250), strings.Repeat("y", 700), "<en", "d>",
	strings.Repeat("cut ", 70) + "<end>", strings.Repeat("not cut", 90) + "x<|>", strings.Repeat("cut ", 70) + "<|>",
}

func drawText(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "text"), "")
}

// grow returns a text that begins as one of texts, and how much of it does.
func grow(t *rapid.T, texts []string) (text string, same int) {
	base := rapid.SampledFrom(texts).Draw(t, "base")
	if rapid.IntRange(0, 3).Draw(t, "how") == 0 {
		base = base[:rapid.IntRange(0, len(base)).Draw(t, "cut")]
	}
	return base + drawText(t), len(base)
}

func drawLayout(t *rapid.T) block.Layout {
	return block.Layout{Size: rapid.SampledFrom([]int{1, 2, 3, 16, 64, 200}).Draw(t, "size"), Eagle: rapid.Bool().Draw(t, "eagle")}
}

func drawBudget(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 2000, 6000, 20000, 1 << 20, 4 << 20}).Draw(t, "budget")
}

// usableIDs is the slow way to what is known before media: the ids that the
// whole text and the usable part of it have in common.
func usableIDs(f *fakeTokenizer, p chat.Prompt) []uint32 {
	all := f.whole(p.Text, p.AddSpecial)
	if p.Usable == len(p.Text) {
		return all
	}
	part := f.whole(p.Text[:p.Usable], p.AddSpecial)
	part = part[:len(part)-len(f.Suffix(p.AddSpecial))]
	n := 0
	for n < len(part) && part[n] == all[n] {
		n++
	}
	return all[:n]
}

func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *encoder.Result, p chat.Prompt, ids []uint32, layout block.Layout, seed block.Seed,
) {
	t.Helper()
	hashes, chains := twin(ids, layout, seed)
	if r.Tokens != len(ids) || !slices.Equal(r.Chains, chains) {
		t.Fatalf("%q: %d tokens, chains %x; want %d, %x", p.Text, r.Tokens, r.Chains, len(ids), chains)
	}
	if r.Whole != (p.Usable == len(p.Text)) || r.TextBytes != len(p.Text) || r.UsableBytes != p.Usable {
		t.Fatalf("%q: whole %v, %d of %d bytes usable", p.Text, r.Whole, r.UsableBytes, r.TextBytes)
	}
	if !r.WantIDs {
		ids, hashes = nil, nil
	}
	if !slices.Equal(r.IDs, ids) || !slices.Equal(r.Hashes, hashes) {
		t.Fatalf("%q: ids %d, hashes %x; want %d, %x", p.Text, r.IDs, r.Hashes, ids, hashes)
	}
}

func TestMemoChangesNothing(t *testing.T) {
	f := newFake()
	rapid.Check(t, func(t *rapid.T) {
		layout, budget := drawLayout(t), drawBudget(t)
		e, err := encoder.New(encoder.Config{
			Tokenizer: f, Template: &fakeTemplate{}, Layout: layout, MemoBytes: budget,
			Random: rapid.Uint64().Draw(t, "random"),
		})
		if err != nil {
			t.Fatal(err)
		}
		var r encoder.Result
		texts := []string{"", drawText(t)}
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			text, same := grow(t, texts)
			texts = append(texts, text)
			p := chat.Prompt{Text: text, Usable: len(text), AddSpecial: rapid.IntRange(0, 4).Draw(t, "special") == 0}
			switch rapid.IntRange(0, 7).Draw(t, "media") {
			case 0:
				p.Usable = rapid.IntRange(0, len(text)).Draw(t, "usable")
			case 1:
				p.Usable = same
			}
			seed := block.NewSeed("", rapid.SampledFrom([]string{"", "", "", "s"}).Draw(t, "salt"))
			r.WantIDs = rapid.IntRange(0, 3).Draw(t, "ids") == 0
			if err := e.EncodeText(&r, p, seed); err != nil {
				t.Fatal(err)
			}
			check(t, &r, p, usableIDs(f, p), layout, seed)
		}
		if s := e.Stats(); s.Bytes > budget {
			t.Fatalf("%d bytes taken of %d", s.Bytes, budget)
		}
	})
}
