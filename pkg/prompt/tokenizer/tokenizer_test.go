package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

func TestEncodeDoesNotAllocate(t *testing.T) {
	for _, text := range benchTexts(t) {
		// The end is rewritten on the way.
		text := text.text[:20_000] + "cafe\u0301 \xff\u1112\u1161\u11ab <|im_end|><｜User｜>\n\n<bos>"
		for _, name := range testmodels.Names() {
			if n := tokenizer.EncodeAllocs(model(t, name), text); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

func TestAppendConcurrently(t *testing.T) {
	tok := model(t, "qwen3")
	g := readGolden(t, "qwen3")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				for _, s := range g.Strings {
					if got := tok.Append(nil, s.Text, false); !slices.Equal(got, s.IDs) {
						t.Errorf("%q: %v, want %v", s.Text, got, s.IDs)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// A vocabulary of 150,000 tokens is to take less than 60 MB; all five take less.
func TestMemory(t *testing.T) {
	for _, name := range testmodels.Names() {
		m := load(t, name)
		t.Logf("%s: %d tokens, %.1f MB", name, m.VocabSize(), float64(m.held)/1e6)
		if m.held > 40e6 {
			t.Errorf("%s: %d bytes are held", name, m.held)
		}
	}
}

// The ids of segments end where a caller needs to know that they do.
func TestSegmentEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"qwen3":       {"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>", []string{"<|im_start|>", "user\nhi<|im_end|>", "\n<|im_start|>", "assistant\n<think>"}},
		"llama3_1":    {"<|begin_of_text|>a<|eot_id|>b", []string{"<|begin_of_text|>", "a<|eot_id|>", "b"}},
		"deepseek_v3": {"<｜begin▁of▁sentence｜>a<｜User｜>hi<｜Assistant｜>x", []string{"<｜begin▁of▁sentence｜>", "a<｜User｜>", "hi<｜Assistant｜>", "x"}},
		"gptoss":      {"<|start|>user<|message|>hi<|end|>", []string{"<|start|>", "user<|message|>", "hi<|end|>"}},
		"gemma3":      {"<bos><start_of_turn>user\nhi<end_of_turn>\n\n\nx", []string{"<bos>", "<start_of_turn>", "user\nhi<end_of_turn>", "\n\n\nx"}},
	} {
		tok := model(t, name)
		var got []string
		for at := 0; at < len(tc.text); {
			_, end := tok.AppendSegment(nil, tc.text, at)
			got = append(got, tc.text[at:end])
			at = end
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	ids := []uint32{7}
	for _, from := range []int{-1, 2, 3} {
		if got, end := model(t, "qwen3").AppendSegment(ids, "ab", from); len(got) != 1 || end != 2 {
			t.Errorf("from %d: %v, %d", from, got, end)
		}
	}
}

// Finding the end of a segment does not look at all that follows: with so many
// of them this test would not end in its time.
func TestSegmentsOfManyTokens(t *testing.T) {
	for name, unit := range map[string]string{"deepseek_v3": "<｜User｜>", "qwen3": "<|im_end|>", "gemma3": "<unused7>", "llama3_1": "<|eot_id|>", "gptoss": "<|end|>"} {
		tok := model(t, name)
		text := strings.Repeat(unit, 50_000)
		ids, n := []uint32(nil), 0
		for at := 0; at < len(text); n++ {
			ids, at = tok.AppendSegment(ids, text, at)
		}
		if n != 50_000 || len(ids) != n {
			t.Errorf("%s: %d segments, %d ids", name, n, len(ids))
		}
	}
}

// Chunked text is cut at 25,000 characters of one kind in a row, where nothing
// else would cut it.
func TestChunked(t *testing.T) {
	file := allBytes() + "YWFhYQ== 256\nYWE= 257\n" // aaaa, aa
	cfg := tokenizer.TiktokenConfig{Pattern: o200k, Special: map[uint32]string{300: "<s>"}}
	count := func(text string) (counts [4]int) {
		tok, err := tokenizer.LoadTiktoken([]byte(file), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range tok.Append(nil, text, false) {
			switch id {
			case 'a':
				counts[0]++
			case 257:
				counts[1]++
			case 256:
				counts[2]++
			default:
				counts[3]++
			}
		}
		return counts
	}
	text := strings.Repeat("a", 25_002) + "<s>" + strings.Repeat("a", 25_001)
	if got := fmt.Sprint(count(text)); got != "[1 1 12500 1]" {
		t.Errorf("whole: %s", got)
	}
	cfg.Chunked = true
	if got := fmt.Sprint(count(text)); got != "[1 1 12500 1]" {
		t.Errorf("in chunks: %s", got)
	}
	text = strings.Repeat("a", 25_001) + strings.Repeat("a", 3)
	if got := fmt.Sprint(count(text)); got != "[0 0 6251 0]" {
		t.Errorf("in chunks: %s", got)
	}
}

// What the reference does with ids: those of the vocabulary stay, others follow
// it, whatever the file says.
func TestAddedIDs(t *testing.T) {
	type token = map[string]any
	added := func(id int, content string) token {
		return token{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
	}
	made := func(vocab map[string]int, tokens ...token) (*tokenizer.Tokenizer, error) {
		file, err := json.Marshal(token{"added_tokens": tokens, "model": token{"type": "BPE", "vocab": vocab, "merges": []string{}}})
		if err != nil {
			t.Fatal(err)
		}
		return tokenizer.Load(file)
	}
	tok, err := made(map[string]int{"a": 0, "b": 1, "<s>": 2}, added(9, "<x>"), added(0, "<s>"), added(5, "<y>"), added(5, "<y>"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(tok.Append(nil, "a<x>b<s><y>", false), tok.VocabSize()); got != "[0 3 1 2 4] 5" {
		t.Error(got)
	}
	_, err = made(map[string]int{"a": 0, "<s>": 2}, added(2, "<s>"), added(3, "<x>"))
	checkRefusal(t, "holes", err, "two tokens get the id 2, because the vocabulary has holes")
}
