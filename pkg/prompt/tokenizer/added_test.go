package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
)

// Which tokens end at a safe split point.
func TestSafe(t *testing.T) {
	type token map[string]any
	with := func(content string, flags ...string) token {
		tok := token{"id": 0, "content": content}
		for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
			tok[flag] = slices.Contains(flags, flag)
		}
		return tok
	}
	lower := token{"type": "Lowercase"}
	for name, tc := range map[string]struct {
		tokens     []token
		normalizer any
		safe       string
	}{
		"alone":                      {[]token{with("<a>")}, nil, "<a>"},
		"late":                       {[]token{with("<a>", "normalized")}, nil, "<a>"},
		"late, normalized":           {[]token{with("<a>", "normalized"), with("<b>")}, lower, "<b>"},
		"flags":                      {[]token{with("<a>", "single_word"), with("<b>", "rstrip"), with("<c>", "lstrip")}, nil, "<c>"},
		"flags of others":            {[]token{with("<a>", "single_word"), with("<b>")}, nil, "<b>"},
		"starts another":             {[]token{with("<a"), with("<a>")}, nil, "<a>"},
		"inside another":             {[]token{with("a"), with("<a>"), with("<b")}, nil, "<a> <b"},
		"ends another":               {[]token{with("a>"), with("<a>")}, nil, "a> <a>"},
		"ends and inside":            {[]token{with("a"), with("bab"), with("ca")}, nil, "bab ca"},
		"blank":                      {[]token{with("\t"), with("<a>")}, nil, "\t <a>"},
		"blank, blanks are taken":    {[]token{with("\t"), with("<a>"), with(" ", "rstrip")}, nil, "<a>"},
		"overlaps":                   {[]token{with("ab"), with("bc")}, nil, "ab bc"},
		"late, early starts in it":   {[]token{with("ab", "normalized"), with("bc")}, nil, "bc"},
		"late, late starts in it":    {[]token{with("ab", "normalized"), with("bc", "normalized")}, nil, "ab bc"},
		"early, late goes on":        {[]token{with("ab"), with("abc", "normalized")}, nil, "ab abc"},
		"late, early goes on":        {[]token{with("ab", "normalized"), with("abc")}, nil, "abc"},
		"late, early ends inside it": {[]token{with("abc", "normalized"), with("b")}, nil, "abc b"},
	} {
		file, err := json.Marshal(map[string]any{
			"added_tokens": tc.tokens, "normalizer": tc.normalizer,
			"model": map[string]any{"type": "BPE", "vocab": map[string]int{"x": 0}, "merges": []string{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		var safe []string
		for _, a := range tok.added.tokens {
			if a.safe {
				safe = append(safe, a.content)
			}
		}
		if got := strings.Join(safe, " "); got != tc.safe {
			t.Errorf("%s: %q are safe, want %q", name, got, tc.safe)
		}
	}
}

// Tokens are looked for at the places where one may start, and only there.
func TestTokenSetCandidate(t *testing.T) {
	for _, keys := range [][]string{{"<a>", "<b>"}, {"<a>", "\n\n", "x"}, {"中"}} {
		var patterns []pattern
		for i, key := range keys {
			patterns = append(patterns, pattern{key, uint32(i), false})
		}
		set := newTokenSet(patterns)
		text := strings.Repeat("abcdefghij", 7) + "<" + strings.Repeat("y", 9) + "<a><c>\n\n\nz中x<b>x\n"
		for from := range len(text) + 1 {
			want := len(text)
			for at := len(text) - 1; at >= from; at-- {
				for _, key := range keys {
					// A last byte alone may be the start of a token.
					if n := min(2, len(key)); strings.HasPrefix(text[at:], key[:n]) || at+1 == len(text) && text[at] == key[0] {
						want = at
					}
				}
			}
			if got := set.candidate(text, from); got != want {
				t.Fatalf("%q from %d: %d, want %d", keys, from, got, want)
			}
		}
	}
}

// Text without any token is to be passed over at more than 1 GB/s.
func BenchmarkFindNone(b *testing.B) {
	text := strings.Repeat("How many tokens are there in a line of text like this one? \u201cNone\u201d, he said. ", 5000) // Gemma has tokens for line ends
	for _, name := range testmodels.Names() {
		data, err := os.ReadFile(filepath.Join(testmodels.Dir(b, name), "tokenizer.json"))
		if err != nil {
			b.Fatal(err)
		}
		tok, err := Load(data)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if f, ok := tok.added.find(text, 0, 0, 0); ok {
					b.Fatal(f)
				}
			}
		})
	}
}
