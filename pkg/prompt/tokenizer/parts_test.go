package tokenizer_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// partsFile is testdata/golden-parts.json: made-up tokenizers of random parts
// (testdata/parts.py).
type partsFile struct {
	Vocabularies map[string]struct {
		Tokens []string
		Merges [][2]string
	}
	Cases []partsCase
}

type partsCase struct {
	Vocabulary string
	Lines      bool // merges are lines
	Model      map[string]any
	Parts      map[string]json.RawMessage
	Strings    []struct {
		Text    string
		IDs     []uint32
		Special []uint32 `json:"ids_special"`
	}
}

func readParts(tb testing.TB) partsFile {
	tb.Helper()
	data, err := os.ReadFile("testdata/golden-parts.json")
	if err != nil {
		tb.Fatal(err)
	}
	var f partsFile
	if err := json.Unmarshal(data, &f); err != nil {
		tb.Fatal(err)
	}
	if len(f.Cases) != 80 {
		tb.Fatalf("%d cases, want 80", len(f.Cases))
	}
	return f
}

// file returns the tokenizer.json of a case.
func (f *partsFile) file(tb testing.TB, c *partsCase) []byte {
	tb.Helper()
	v := f.Vocabularies[c.Vocabulary]
	vocab := map[string]int{}
	for id, token := range v.Tokens {
		vocab[token] = id
	}
	c.Model["vocab"], c.Model["merges"] = vocab, v.Merges
	if c.Lines {
		var lines []string
		for _, m := range v.Merges {
			lines = append(lines, m[0]+" "+m[1])
		}
		c.Model["merges"] = lines
	}
	whole := map[string]any{"model": c.Model}
	for key, part := range c.Parts {
		whole[key] = part
	}
	data, err := json.Marshal(whole)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// refusable are the reasons for which a part that the reference takes may be
// refused.
var refusable = []string{
	"prepend_scheme first is not supported",
	"is empty once it is normalized",
	"two tokens get the id",
}

func TestGoldenParts(t *testing.T) {
	f := readParts(t)
	refused := 0
	for i := range f.Cases {
		c := &f.Cases[i]
		tok, err := tokenizer.Load(f.file(t, c))
		if err != nil {
			refused++
			if !slices.ContainsFunc(refusable, func(why string) bool { return strings.Contains(err.Error(), why) }) {
				t.Errorf("case %d: %v", i, err)
			}
			continue
		}
		for _, s := range c.Strings {
			if got := tok.Append(nil, s.Text, false); !slices.Equal(got, s.IDs) {
				t.Errorf("case %d, %q: %v, want %v", i, s.Text, got, s.IDs)
			}
			if got := tok.Append(nil, s.Text, true); !slices.Equal(got, s.Special) {
				t.Errorf("case %d, %q with special tokens: %v, want %v", i, s.Text, got, s.Special)
			}
			if got := segments(t, tok, s.Text); !slices.Equal(got, s.IDs) {
				t.Errorf("case %d, %q in segments: %v, want %v", i, s.Text, got, s.IDs)
			}
		}
	}
	if refused > len(f.Cases)/10 {
		t.Errorf("%d of %d cases are refused", refused, len(f.Cases))
	}
}
