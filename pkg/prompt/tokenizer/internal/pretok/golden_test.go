package pretok

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"unicode/utf8"
)

// golden is testdata/golden.json: what the real engines do. oracle_test.go
// writes it.
type golden struct {
	Texts []string           `json:"texts"`
	Ends  map[string][][]int `json:"ends"` // by scanner and text: the ends of pieces, in characters
}

const goldenFile = "testdata/golden.json"

// named are the scanners in the golden file.
func named(t testing.TB) map[string]Scanner {
	t.Helper()
	all := map[string]Scanner{"byteLevel": ByteLevel(), "eachDigit": Digits(true), "digits": Digits(false)}
	for _, k := range known {
		var ok bool
		if all[k.name], ok = ByRegex(k.pattern); !ok {
			t.Fatalf("%s: not known", k.name)
		}
		if k.tiktoken {
			if all[k.name+" in tiktoken"], ok = ByTiktoken(k.pattern); !ok {
				t.Fatalf("%s: not known for tiktoken", k.name)
			}
		}
	}
	var ok bool
	if all["deepseek sequence"], ok = BySequence(deepseekSequence[:]); !ok {
		t.Fatal("DeepSeek's sequence is not known")
	}
	return all
}

func TestGolden(t *testing.T) {
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err = json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Texts) < 30 {
		t.Errorf("only %d texts", len(g.Texts))
	}
	for name, s := range named(t) {
		if len(g.Ends[name]) != len(g.Texts) {
			t.Errorf("%s: %d answers for %d texts", name, len(g.Ends[name]), len(g.Texts))
			continue
		}
		for i, text := range g.Texts {
			if got := ends(t, s, text); !slices.Equal(got, g.Ends[name][i]) {
				t.Errorf("%s: ends in %q are %v, want %v", name, text, got, g.Ends[name][i])
			}
		}
	}
}

// ends returns the ends of pieces, in characters.
func ends(t fataler, s Scanner, text string) []int {
	t.Helper()
	all, at := []int{}, 0
	for _, p := range pieces(t, s, text) {
		at += utf8.RuneCountInString(p)
		all = append(all, at)
	}
	return all
}
