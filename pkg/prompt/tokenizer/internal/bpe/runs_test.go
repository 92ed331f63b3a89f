package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// compareRun compares all ways to encode a word.
func compareRun(t *testing.T, m *bpe.Model, name, word string, s *bpe.Scratch) {
	t.Helper()
	want := m.Merge(nil, word, s)
	if got := m.Append(nil, word, s); !slices.Equal(got, want) {
		t.Errorf("%s, %.20q and so on (%d): %d tokens, the queue has %d", name, word, len(word), len(got), len(want))
	}
	if got := m.CarefulAppend(nil, word, s); !slices.Equal(got, want) {
		t.Errorf("%s, %.20q and so on (%d), with care: %d tokens, the queue has %d", name, word, len(word), len(got), len(want))
	}
}

// Long tokens of one byte make the search step back most.
func TestRuns(t *testing.T) {
	for _, name := range testmodels.Names() {
		m := realModel(t, name)
		var s bpe.Scratch
		r := rand.New(rand.NewPCG(5, 6))
		for b := range 128 {
			compareRun(t, m, name, strings.Repeat(string(rune(b)), 2000+r.IntN(200)), &s)
			mix := strings.Builder{}
			for other := string(rune(r.IntN(128))); mix.Len() < 2000; {
				mix.WriteString(strings.Repeat(string(rune(b)), r.IntN(250)))
				mix.WriteString(strings.Repeat(other, r.IntN(20)))
			}
			compareRun(t, m, name, mix.String(), &s)
		}
	}
}

// The careful search is for such runs, not for texts.
func TestCareIsForRuns(t *testing.T) {
	m := realModel(t, "qwen3")
	var s bpe.Scratch
	for kind, words := range texts(t) {
		for _, word := range words {
			m.Append(nil, word, &s)
		}
		if s.Careful() {
			t.Fatalf("%s needed care", kind)
		}
	}
	for _, run := range []string{"/", "-", "=", "#", "*"} {
		var s bpe.Scratch
		if m.Append(nil, strings.Repeat(run, 10_000), &s); !s.Careful() {
			t.Errorf("a run of %s was taken without care", run)
		}
	}
}
