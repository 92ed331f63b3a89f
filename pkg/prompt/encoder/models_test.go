package encoder_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// marked are texts with the added tokens of the models, and what stands around
// them: white space that some take in, and characters that join others.
var marked = []string{
	"<|im_start|>user\n", "<|im_end|>\n", "<|im_end|>", "<think>", "</think>\n\n", "<tool_call>", "<|eot_id|>",
	"<|start_header_id|>assistant<|end_header_id|>\n\n", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜fim▁hole｜>",
	"<start_of_turn>user\n", "<end_of_turn>\n", "\n\n\n", "\n\n\n\n\n\n", "▁▁▁", "      ", "<table>", "</td>", "<|start|>system<|message|>", "<|end|>", "<|channel|>",
	"<|im_", "end|>", " <", "'s", "e\u0301", "\u0301", "가", "ᄀ", "\u1161", "👩‍💻", "東京の天気", "hello world", " x", "  ", "\n", "\r\n", "123", "\xff", "Ⅷ",
	strings.Repeat("A sentence of some length. ", 12), strings.Repeat("0123456789", 40), strings.Repeat(" ", 90),
}

func growMarked(t *rapid.T, texts []string) string {
	base := rapid.SampledFrom(texts).Draw(t, "base")
	if rapid.IntRange(0, 3).Draw(t, "how") == 0 {
		base = base[:rapid.IntRange(0, len(base)).Draw(t, "cut")]
	}
	return base + strings.Join(rapid.SliceOfN(rapid.SampledFrom(marked), 0, 12).Draw(t, "text"), "")
}

// TestRealModels compares prompts that share beginnings with what the tokenizer
// gives for the whole text.
func TestRealModels(t *testing.T) {
	for _, name := range testmodels.Names() {
		t.Run(name, func(t *testing.T) {
			tok, err := tokenizer.Load(testmodels.Read(t, name, "tokenizer.json"))
			if err != nil {
				t.Fatal(err)
			}
			hits := uint64(0)
			rapid.Check(t, func(t *rapid.T) {
				layout := drawLayout(t)
				e, err := encoder.New(encoder.Config{Tokenizer: tok, Layout: layout, MemoBytes: drawBudget(t), Random: 1})
				if err != nil {
					t.Fatal(err)
				}
				var r encoder.Result
				texts := []string{"", growMarked(t, []string{""})}
				for range rapid.IntRange(1, 25).Draw(t, "prompts") {
					text, special := growMarked(t, texts), rapid.Bool().Draw(t, "special")
					texts = append(texts, text)
					p := chat.Prompt{Text: text, AddSpecial: special, Usable: len(text)}
					if err := e.EncodeText(&r, p, 1); err != nil {
						t.Fatal(err)
					}
					check(t, &r, p, tok.Append(nil, text, special), layout, 1)
					p.Usable = rapid.IntRange(0, len(text)).Draw(t, "usable")
					if err := e.EncodeText(&r, p, 1); err != nil {
						t.Fatal(err)
					}
					check(t, &r, p, usablePrefix(tok, p), layout, 1)
				}
				hits += e.Stats().Hits
			})
			if hits == 0 {
				t.Error("the memo knew nothing")
			}
		})
	}
}

// usablePrefix is the slow way to what is known before media.
func usablePrefix(tok *tokenizer.Tokenizer, p chat.Prompt) []uint32 {
	all := tok.Append(nil, p.Text, p.AddSpecial)
	if p.Usable == len(p.Text) {
		return all
	}
	part := tok.Append(nil, p.Text[:p.Usable], p.AddSpecial)
	part = part[:len(part)-len(tok.Suffix(p.AddSpecial))]
	n := 0
	for n < len(part) && part[n] == all[n] {
		n++
	}
	return all[:n]
}
