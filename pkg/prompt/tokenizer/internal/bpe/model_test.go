package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

func tokens(all ...string) [][]byte {
	list := make([][]byte, len(all))
	for i, token := range all {
		list[i] = []byte(token)
	}
	return list
}

func TestNewRefuses(t *testing.T) {
	noBytes := [256]int32{}
	for b := range noBytes {
		noBytes[b] = -1
	}
	badByte := noBytes
	badByte['a'] = 9
	gap := [][]byte{[]byte("a"), nil, []byte("b"), {}, []byte("ab")}
	for _, tc := range []struct {
		name string
		spec bpe.Spec
		want string
	}{
		{"merge beyond the vocabulary", bpe.Spec{Tokens: gap, Merges: [][2]uint32{{0, 2}, {0, 5}}, Unk: -1}, "merge 1 names id 5"},
		{"merge of a gap", bpe.Spec{Tokens: gap, Merges: [][2]uint32{{1, 0}}, Unk: -1}, "merge 0 names id 1"},
		{"merge of an empty token", bpe.Spec{Tokens: gap, Merges: [][2]uint32{{3, 0}}, Unk: -1}, "merge 0 names id 3"},
		{"merge without a result", bpe.Spec{Tokens: gap, Merges: [][2]uint32{{0, 2}, {2, 0}}, Unk: -1}, "merge 1 makes a token"},
		{"merge with half a result", bpe.Spec{Tokens: tokens("a", "b", "abb"), Merges: [][2]uint32{{0, 1}}, Unk: -1}, "merge 0 makes a token"},
		{"same token twice", bpe.Spec{Tokens: tokens("a", "b", "a"), Unk: -1}, "ids 0 and 2 are the same token"},
		{"merges of a ranked one", bpe.Spec{Tokens: gap, Ranked: true, Merges: [][2]uint32{{0, 2}}, Unk: -1}, "ranked"},
		{"unknown token beyond", bpe.Spec{Tokens: gap, Unk: 5}, "unknown token has id 5"},
		{"unknown token in a gap", bpe.Spec{Tokens: gap, Unk: 1}, "unknown token has id 1"},
		{"byte beyond", bpe.Spec{Tokens: gap, Unk: -1, Chars: true, ByteFallback: true, ByteTokens: badByte}, "byte 0x61 has id 9"},
		{"too many tokens", bpe.Spec{Tokens: make([][]byte, 1<<21+1), Unk: -1}, "the limit is"},
		{"too many merges", bpe.Spec{Tokens: gap, Merges: make([][2]uint32, 1<<22), Unk: -1}, "the limit is"},
	} {
		if _, err := bpe.New(tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", tc.name, err, tc.want)
		}
	}
}

// The highest ids and ranks that are let in must work.
func TestLimits(t *testing.T) {
	spec := bpe.Spec{Tokens: make([][]byte, 1<<21), Merges: make([][2]uint32, 1<<22-1), Unk: -1}
	last := uint32(len(spec.Tokens) - 1)
	spec.Tokens[last], spec.Tokens[last-1], spec.Tokens[7], spec.Tokens[8] = []byte("a"), []byte("b"), []byte("ab"), []byte("aba")
	for i := range spec.Merges {
		spec.Merges[i] = [2]uint32{last, last - 1}
	}
	spec.Merges[len(spec.Merges)-2] = [2]uint32{7, last}
	m, err := bpe.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	var s bpe.Scratch
	for word, want := range map[string][]uint32{
		"ababab": {8, last - 1, 7},
		"bba":    {last - 1, last - 1, last},
	} {
		if got, slow := m.Append(nil, word, &s), m.Merge(nil, word, &s); !slices.Equal(got, want) || !slices.Equal(slow, want) {
			t.Errorf("%q: %v and %v, want %v", word, got, slow, want)
		}
	}
}

func TestEmpty(t *testing.T) {
	m, err := bpe.New(bpe.Spec{Unk: -1})
	if err != nil {
		t.Fatal(err)
	}
	var s bpe.Scratch
	if got := m.Append([]uint32{3}, "", &s); !slices.Equal(got, []uint32{3}) {
		t.Errorf("no word: %v", got)
	}
	if got := m.Append([]uint32{3}, "what", &s); !slices.Equal(got, []uint32{3}) {
		t.Errorf("no vocabulary: %v", got)
	}
}

// Text that is not UTF-8 never comes here with Chars; should it, nothing breaks.
func TestCharsOfBrokenText(t *testing.T) {
	m := realModel(t, "gemma3")
	r := rand.New(rand.NewPCG(3, 3))
	var s bpe.Scratch
	var ids []uint32
	for range 20_000 {
		word := make([]byte, 1+r.IntN(12))
		for i := range word {
			word[i] = []byte{'a', 0xE2, 0x96, 0x81, 0xF0, 0x9F, 0xC3, 0xFF}[r.IntN(8)]
		}
		if ids = m.Append(ids[:0], string(word), &s); len(ids) == 0 {
			t.Fatalf("%q has no tokens", word)
		}
	}
}

// longWords are words that merging step by step takes quadratic time for, when
// done the obvious way.
func longWords(n int) map[string]string {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(letters string) string {
		word := make([]byte, n)
		for i := range word {
			word[i] = letters[r.IntN(len(letters))]
		}
		return string(word)
	}
	return map[string]string{
		"one letter":  random("a"),
		"spaces":      random(" "),
		"new lines":   random("\n"),
		"two letters": random("ab"),
		"white space": random(" \t\n"),
		"letters":     random("abcdefghijklmnopqrstuvwxyz"),
		"base64":      random("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
		"text":        strings.Repeat("it▁is▁what▁it▁is,▁and▁"+chinese, n/len(chinese)+1)[:n/3*3],
	}
}

func TestLongWords(t *testing.T) {
	for _, name := range testmodels.Names() {
		m, slow := realModel(t, name), newTwin(realSpec(t, name))
		var s bpe.Scratch
		for kind, word := range longWords(700) {
			word = strings.ToValidUTF8(word, "")
			want := slow.encode(word)
			if got := m.Append(nil, word, &s); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %d tokens, the twin has %d", name, kind, len(got), len(want))
			}
			if got := m.Merge(nil, word, &s); !slices.Equal(got, want) {
				t.Errorf("%s, %s by the queue: %d tokens, the twin has %d", name, kind, len(got), len(want))
			}
		}
		// Too long for the twin, not for the queue that it has just vouched for.
		for kind, word := range longWords(100_000) {
			word = strings.ToValidUTF8(word, "")
			if got, want := m.Append(nil, word, &s), m.Merge(nil, word, &s); !slices.Equal(got, want) {
				t.Errorf("%s, long %s: %d tokens, the queue has %d", name, kind, len(got), len(want))
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	m := realModel(t, "qwen3")
	words := texts(t)["english"][:2000]
	words = append(words, longWords(1500)["letters"])
	var s bpe.Scratch
	ids := make([]uint32, 0, 1500)
	if n := testing.AllocsPerRun(10, func() {
		for _, word := range words {
			ids = m.Append(ids[:0], word, &s)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	word := longWords(1500)["two letters"]
	m.Merge(ids[:0], word, &s)
	if n := testing.AllocsPerRun(10, func() { ids = m.Merge(ids[:0], word, &s) }); n != 0 {
		t.Errorf("%v allocations by the queue, want 0", n)
	}
}
