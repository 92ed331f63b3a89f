package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// twin encodes slowly and plainly: every step makes a list of pieces out of a
// list of pieces, tokens are found by trying all of them everywhere, and merges
// are done one by one. It reads its tokens' flags, its normalizers and its
// scanners from the tokenizer; how these are put together is its own.
type twin struct {
	*Tokenizer
	vocab  map[string]uint32
	merges [][2]string
	model  twinModel
	bytes  bool
}

type twinModel struct {
	Unk          string `json:"unk_token"`
	FuseUnk      bool   `json:"fuse_unk"`
	ByteFallback bool   `json:"byte_fallback"`
	IgnoreMerges bool   `json:"ignore_merges"`
}

// twinPiece is text, or an id once it is known. first says that it starts the
// whole text.
type twinPiece struct {
	text  string
	id    int64 // -1 for text
	first bool
}

func (w *twin) encode(text string) []uint32 {
	pieces := w.cutTokens([]twinPiece{{twinMend(text, startsCharacter), -1, true}}, false)
	for i := range pieces {
		if pieces[i].id < 0 {
			for _, step := range w.normalizer.steps {
				pieces[i].text = twinNormalize(step, pieces[i].text)
			}
		}
	}
	pieces = w.cutTokens(pieces, true)
	for i := range w.pretokenizer.cuts {
		pieces = twinCut(&w.pretokenizer.cuts[i], pieces)
	}
	var ids []uint32
	for _, p := range pieces {
		if p.id >= 0 {
			ids = append(ids, uint32(p.id))
		} else if p.text != "" {
			ids = append(ids, w.word(p.text)...)
		}
	}
	return ids
}

// cutTokens cuts out added tokens of one kind.
func (w *twin) cutTokens(pieces []twinPiece, late bool) []twinPiece {
	var out []twinPiece
	for _, p := range pieces {
		if p.id >= 0 {
			out = append(out, p)
			continue
		}
		done := 0
		text := func(from, to int) {
			if from < to {
				out = append(out, twinPiece{p.text[from:to], -1, p.first && from == 0})
			}
		}
		for at := 0; at < len(p.text); {
			token := w.longest(p.text[at:], late)
			if token == nil {
				at++
				continue
			}
			start, end := at, at+len(w.content(token))
			at = end
			if token.singleWord && (endsWithWord(p.text[:start]) || startsWithWord(p.text[end:])) {
				continue
			}
			if token.lstrip {
				start = max(done, len(strings.TrimRightFunc(p.text[:start], unicode.IsSpace)))
			}
			if token.rstrip {
				end = len(p.text) - len(strings.TrimLeftFunc(p.text[end:], unicode.IsSpace))
			}
			text(done, start)
			if start < end {
				out = append(out, twinPiece{"", int64(token.id), false})
			}
			done = end
		}
		text(done, len(p.text))
	}
	return out
}

// content is the text of a token where it is looked for.
func (w *twin) content(t *addedToken) string {
	text := t.content
	if t.late {
		for _, step := range w.normalizer.steps {
			text = twinNormalize(step, text)
		}
	}
	return text
}

func (w *twin) longest(text string, late bool) *addedToken {
	var best *addedToken
	size := 0
	for _, special := range []bool{true, false} {
		for i := range w.added.tokens {
			t := &w.added.tokens[i]
			if content := w.content(t); t.late == late && t.special == special && strings.HasPrefix(text, content) && len(content) > size {
				best, size = t, len(content)
			}
		}
	}
	return best
}

func twinCut(c *cut, pieces []twinPiece) []twinPiece {
	var out []twinPiece
	for _, p := range pieces {
		if p.id >= 0 {
			out = append(out, p)
			continue
		}
		w := c.rewrite
		if w.space && !strings.HasPrefix(p.text, " ") {
			p.text = " " + p.text
		}
		if w.meta != "" {
			p.text = strings.ReplaceAll(p.text, " ", w.meta)
			if (w.always || w.first && p.first) && !strings.HasPrefix(p.text, w.meta) {
				p.text = w.meta + p.text
			}
		}
		if c.scanner == nil {
			out = append(out, p)
			continue
		}
		for at := 0; at < len(p.text); {
			end := c.scanner.Next(p.text, at)
			if c.literal == nil || !c.literal.Drops(p.text[at:end]) {
				out = append(out, twinPiece{p.text[at:end], -1, p.first && at == 0})
			}
			at = end
		}
	}
	return out
}

// word encodes one word by the rule.
func (w *twin) word(text string) []uint32 {
	var symbols []string
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if !w.bytes {
			symbols = append(symbols, text[i:i+size])
			continue
		}
		_ = r
		for _, b := range []byte(text[i : i+size]) {
			symbols = append(symbols, string(alphabet[b]))
		}
	}
	if id, ok := w.vocab[strings.Join(symbols, "")]; ok && w.model.IgnoreMerges {
		return []uint32{id}
	}
	symbols = w.known(symbols)
	for {
		best, at := len(w.merges), -1
		for i := range max(len(symbols)-1, 0) {
			if rank := slices.Index(w.merges, [2]string{symbols[i], symbols[i+1]}); rank >= 0 && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		symbols[at] += symbols[at+1]
		symbols = slices.Delete(symbols, at+1, at+2)
	}
	var ids []uint32
	for _, s := range symbols {
		ids = append(ids, w.vocab[s])
	}
	return ids
}

// known replaces symbols that the vocabulary does not have.
func (w *twin) known(symbols []string) []string {
	var out []string
	pending := false // an unknown token is due; one that falls back to bytes passes it
	for _, s := range symbols {
		if _, ok := w.vocab[s]; ok {
			if pending {
				out, pending = append(out, w.model.Unk), false
			}
			out = append(out, s)
			continue
		}
		if w.model.ByteFallback {
			var names []string
			for _, b := range []byte(s) {
				if _, ok := w.vocab[byteName(int(b))]; ok {
					names = append(names, byteName(int(b)))
				}
			}
			if len(names) == len(s) {
				out = append(out, names...)
				continue
			}
		}
		if w.model.Unk == "" {
			continue
		}
		if pending && !w.model.FuseUnk {
			out = append(out, w.model.Unk)
		}
		pending = true
	}
	if pending {
		out = append(out, w.model.Unk)
	}
	return out
}

// twins returns the made-up tokenizers of the golden file, each with its twin.
func twins(tb testing.TB) []twin {
	tb.Helper()
	data, err := os.ReadFile("testdata/golden-parts.json")
	if err != nil {
		tb.Fatal(err)
	}
	var f struct {
		Vocabularies map[string]struct {
			Tokens []string
			Merges [][2]string
		}
		Cases []struct {
			Vocabulary string
			Model      json.RawMessage
			Parts      map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		tb.Fatal(err)
	}
	var list []twin
	for _, c := range f.Cases {
		v := f.Vocabularies[c.Vocabulary]
		w := twin{vocab: map[string]uint32{}, merges: v.Merges, bytes: c.Vocabulary == "bytes"}
		for id, token := range v.Tokens {
			w.vocab[token] = uint32(id)
		}
		model := map[string]any{}
		for _, into := range []any{&model, &w.model} {
			if err := json.Unmarshal(c.Model, into); err != nil {
				tb.Fatal(err)
			}
		}
		model["vocab"], model["merges"] = w.vocab, w.merges
		file := map[string]any{"model": model}
		for key, part := range c.Parts {
			file[key] = part
		}
		whole, err := json.Marshal(file)
		if err != nil {
			tb.Fatal(err)
		}
		if w.Tokenizer, err = Load(whole); err == nil {
			list = append(list, w)
		}
	}
	if len(list) < 60 {
		tb.Fatalf("only %d tokenizers", len(list))
	}
	return list
}

var oddTexts = []string{
	"a", "b", "A", "ab", " ", "  ", "\t", "\n", "<a>", "<a", "a>", "<ab>", "▁", "1", "12", "²", "é", "e\u0301", "\u0301",
	"İ", "Σ", "x", "_", "-", "\u00a0", "\u3000", "<s>", "\u0315", "\u1100\u1161", "\u200d", "中", "😀", "\u0085",
	"\xff", "\xe4\xb8", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc3", "\uFFFD", "\u09fe", "\u1d15e", "\u0344",
}

// drawText draws a text that is likely to hold the tokenizer's added tokens.
func drawText(t *rapid.T, tok *Tokenizer, label string) string {
	parts := slices.Clone(oddTexts)
	for _, a := range tok.added.tokens {
		for range 8 {
			parts = append(parts, a.content)
			if n := len(a.content); n > 1 && a.content[n/2] < utf8.RuneSelf {
				parts = append(parts, a.content[:n/2], a.content[n/2:])
			}
		}
	}
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 14).Draw(t, label), "")
}

func TestEncodeEqualsTwin(t *testing.T) {
	list := twins(t)
	rapid.Check(t, func(t *rapid.T) {
		w := drawTwin(t, list)
		for range 20 {
			text := drawText(t, w.Tokenizer, "text")
			want := w.encode(text)
			if got := w.Append(nil, text, false); !slices.Equal(got, want) {
				t.Fatalf("%q: %v, want %v", text, got, want)
			}
			if got, _ := bySegments(t, w.Tokenizer, text); !slices.Equal(got, want) {
				t.Fatalf("%q in segments: %v, want %v", text, got, want)
			}
		}
	})
}

// bySegments encodes a text segment by segment. It returns where each segment
// and its ids end.
func bySegments(t *rapid.T, tok *Tokenizer, text string) (ids []uint32, ends [][2]int) {
	for at := 0; at < len(text); {
		var end int
		if ids, end = tok.AppendSegment(ids, text, at); end <= at {
			t.Fatalf("%q: a segment from %d ends at %d", text, at, end)
		}
		at = end
		ends = append(ends, [2]int{at, len(ids)})
	}
	return ids, ends
}

// What follows a safe split point has no say in what is before it.
func TestSegmentsStay(t *testing.T) {
	list := twins(t)
	points := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawTwin(t, list)
		for range 20 {
			points += checkStays(t, w.Tokenizer, drawText(t, w.Tokenizer, "text"))
		}
	})
	if points == 0 {
		t.Error("no text had a split point")
	}
}

// checkStays puts other text after each split point of a text. It returns how
// many there are.
func checkStays(t *rapid.T, tok *Tokenizer, text string) (points int) {
	ids, ends := bySegments(t, tok, text)
	for i, end := range ends {
		if end[0] == len(text) && i == len(ends)-1 {
			break // the end of the text is none
		}
		points++
		other := text[:end[0]] + drawText(t, tok, "other")
		if tok.added.mends && !utf8.ValidString(other) {
			continue // has no split points
		}
		otherIDs, otherEnds := bySegments(t, tok, other)
		if !slices.Equal(otherEnds[:i+1], ends[:i+1]) || !slices.Equal(otherIDs[:end[1]], ids[:end[1]]) {
			t.Fatalf("%q and %q differ before byte %d: %v and %v", text, other, end[0], ids, otherIDs)
		}
	}
	return points
}

// drawTwin draws a tokenizer: one of the made-up ones, or one with added tokens
// that overlap in every way.
func drawTwin(t *rapid.T, list []twin) *twin {
	if rapid.Bool().Draw(t, "golden") {
		return &list[rapid.IntRange(0, len(list)-1).Draw(t, "tokenizer")]
	}
	type tok = map[string]any
	contents := rapid.SliceOfNDistinct(rapid.StringMatching("[a<]{1,3}|[ab <]{1,4}|a?\uFFFDb?"), 1, 5, rapid.ID).Draw(t, "added")
	odd := rapid.IntRange(0, 2).Draw(t, "odd flags") == 0
	var added []tok
	for _, content := range contents {
		flag := func(name string) bool { return odd && rapid.IntRange(0, 2).Draw(t, name) == 0 }
		added = append(added, tok{
			"id": 0, "content": content, "special": rapid.Bool().Draw(t, "special"), "normalized": rapid.Bool().Draw(t, "normalized"),
			"single_word": flag("single_word"), "lstrip": flag("lstrip"), "rstrip": flag("rstrip"),
		})
	}
	w := &twin{vocab: map[string]uint32{"a": 0, "b": 1, " ": 2, "<": 3, "ab": 4, "\uFFFD": 5}, merges: [][2]string{{"a", "b"}}}
	file, err := json.Marshal(tok{
		"added_tokens": added,
		"normalizer":   rapid.SampledFrom([]any{nil, nil, nil, tok{"type": "Replace", "pattern": tok{"String": "aa"}, "content": "b"}}).Draw(t, "normalizer"),
		"model":        tok{"type": "BPE", "vocab": w.vocab, "merges": w.merges},
	})
	if err == nil {
		w.Tokenizer, err = Load(file)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return w
}

func FuzzEncode(f *testing.F) {
	list := twins(f)
	for i, text := range oddTexts {
		f.Add(i, text+" <a>ab")
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		w := &list[uint(i)%uint(len(list))]
		text = text[:min(len(text), 64)]
		if got, want := w.Append(nil, text, false), w.encode(text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
