package bpe_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// twin is BPE the obvious way: a list of symbols that is searched from the left
// for the best merge, again and again.
type twin struct {
	spec   bpe.Spec
	ids    map[string]uint32
	merges map[[2]uint32]merged
}

type merged struct{ rank, id uint32 }

func newTwin(spec bpe.Spec) *twin {
	t := &twin{spec: spec, ids: map[string]uint32{}, merges: map[[2]uint32]merged{}}
	for id, token := range spec.Tokens {
		if token != nil {
			t.ids[string(token)] = uint32(id)
		}
	}
	for rank, pair := range spec.Merges {
		id := t.ids[string(spec.Tokens[pair[0]])+string(spec.Tokens[pair[1]])]
		t.merges[pair] = merged{uint32(rank), id}
	}
	return t
}

// merge returns what two symbols merge into.
func (t *twin) merge(left, right uint32) (merged, bool) {
	if t.spec.Ranked {
		id, ok := t.ids[string(t.spec.Tokens[left])+string(t.spec.Tokens[right])]
		return merged{id, id}, ok
	}
	m, ok := t.merges[[2]uint32{left, right}]
	return m, ok
}

func (t *twin) encode(word string) []uint32 {
	if id, ok := t.ids[word]; ok && t.spec.IgnoreMerges {
		return []uint32{id}
	}
	symbols := t.symbols(word)
	for {
		best, at := merged{rank: ^uint32(0)}, -1
		for i := 0; i+1 < len(symbols); i++ {
			if m, ok := t.merge(symbols[i], symbols[i+1]); ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols[at] = best.id
		symbols = slices.Delete(symbols, at+1, at+2)
	}
}

func (t *twin) symbols(word string) []uint32 {
	var symbols []uint32
	waiting := 0
	flush := func() {
		for range waiting {
			symbols = append(symbols, uint32(t.spec.Unk))
		}
		waiting = 0
	}
	for _, char := range t.chars(word) {
		if id, ok := t.ids[char]; ok {
			flush()
			symbols = append(symbols, id)
			continue
		}
		if t.spec.Chars && t.spec.ByteFallback && t.allBytes(char) {
			for _, b := range []byte(char) {
				symbols = append(symbols, uint32(t.spec.ByteTokens[b]))
			}
			continue
		}
		if t.spec.Unk < 0 {
			continue
		}
		if waiting == 1 && !t.spec.FuseUnk {
			flush()
		}
		waiting = 1
	}
	flush()
	return symbols
}

func (t *twin) chars(word string) []string {
	var chars []string
	for len(word) > 0 {
		size := 1
		if t.spec.Chars {
			_, size = utf8.DecodeRuneInString(word)
		}
		chars = append(chars, word[:size])
		word = word[size:]
	}
	return chars
}

func (t *twin) allBytes(char string) bool {
	for _, b := range []byte(char) {
		if t.spec.ByteTokens[b] < 0 {
			return false
		}
	}
	return true
}

// draw is a source of choices.
type draw interface {
	// upTo returns a number below n, which is at least 1.
	upTo(n int, label string) int
}

type rapidDraw struct{ t *rapid.T }

func (d rapidDraw) upTo(n int, label string) int { return rapid.IntRange(0, n-1).Draw(d.t, label) }

// alphabets that words are made of. Characters of the last two share bytes.
var alphabets = []string{"a", "ab", "abc", "abcdef", "a é", "語誤a"}

// drawSpec makes up a vocabulary over an alphabet. Tokens are joined from earlier
// ones at random, so many cannot be reached; the order of merges is anything from
// that of training to none at all.
func drawSpec(d draw, alphabet string, chars bool) bpe.Spec {
	spec := bpe.Spec{Unk: -1, Chars: chars}
	for b := range spec.ByteTokens {
		spec.ByteTokens[b] = -1
	}
	ids := map[string]uint32{}
	add := func(token string) uint32 {
		id, ok := ids[token]
		if !ok {
			id = uint32(len(spec.Tokens))
			ids[token] = id
			spec.Tokens = append(spec.Tokens, []byte(token))
		}
		return id
	}
	for _, symbol := range symbolsOf(alphabet, chars) {
		if d.upTo(12, "missing symbol") != 0 {
			add(symbol)
		}
	}
	drawUnknown(d, &spec, add)
	if len(spec.Tokens) == 0 {
		return spec
	}
	if d.upTo(6, "gap") == 0 {
		spec.Tokens = append(spec.Tokens, nil)
	}
	token := func(label string) uint32 {
		for {
			if id := d.upTo(len(spec.Tokens), label); spec.Tokens[id] != nil {
				return uint32(id)
			}
		}
	}
	for range d.upTo(24, "merges") {
		left, right := token("left"), token("right")
		joined := string(spec.Tokens[left]) + string(spec.Tokens[right])
		if len(joined) > 24 {
			continue
		}
		add(joined)
		spec.Merges = append(spec.Merges, [2]uint32{left, right})
	}
	arrange(d, &spec, ids)
	spec.IgnoreMerges = d.upTo(4, "ignore merges") == 0
	return spec
}

// drawUnknown chooses what becomes of symbols without a token.
func drawUnknown(d draw, spec *bpe.Spec, add func(string) uint32) {
	if d.upTo(2, "unk") == 0 {
		spec.Unk = int32(add("<u>"))
		spec.FuseUnk = d.upTo(2, "fuse") == 0
	}
	if !spec.Chars || d.upTo(2, "byte fallback") == 0 {
		return
	}
	spec.ByteFallback = true
	all := d.upTo(2, "all bytes") == 0
	for b := range spec.ByteTokens {
		// Bytes of other characters are never met: leave them out to keep the
		// vocabulary small, except where all are asked for.
		if all || b >= 0x80 && d.upTo(4, "byte") != 0 {
			spec.ByteTokens[b] = int32(add("<" + string(rune('A'+b/16)) + string(rune('A'+b%16)) + ">"))
		}
	}
}

// arrange puts the merges into the order that is to be tested.
func arrange(d draw, spec *bpe.Spec, ids map[string]uint32) {
	switch d.upTo(5, "style") {
	case 0: // as trained, one merge per token
		seen := map[string]bool{}
		spec.Merges = slices.DeleteFunc(spec.Merges, func(m [2]uint32) bool {
			joined := string(spec.Tokens[m[0]]) + string(spec.Tokens[m[1]])
			was := seen[joined]
			seen[joined] = true
			return was
		})
	case 1: // all ways to cut each token, as made from tiktoken files
		spec.Merges = nil
		for _, token := range spec.Tokens {
			for i := 1; i < len(token); i++ {
				left, ok := ids[string(token[:i])]
				right, ok2 := ids[string(token[i:])]
				if ok && ok2 {
					spec.Merges = append(spec.Merges, [2]uint32{left, right})
				}
			}
		}
	case 2:
		spec.Merges, spec.Ranked = nil, true
	case 3: // any order
		for i := len(spec.Merges) - 1; i > 0; i-- {
			j := d.upTo(i+1, "swap")
			spec.Merges[i], spec.Merges[j] = spec.Merges[j], spec.Merges[i]
		}
	}
}

func symbolsOf(alphabet string, chars bool) []string {
	var symbols []string
	for _, r := range alphabet {
		if chars {
			symbols = append(symbols, string(r))
			continue
		}
		for _, b := range []byte(string(r)) {
			if s := string([]byte{b}); !slices.Contains(symbols, s) {
				symbols = append(symbols, s)
			}
		}
	}
	return symbols
}

// drawWord makes up a word: single characters, tokens and runs.
func drawWord(d draw, spec *bpe.Spec, alphabet string) string {
	chars := []rune(alphabet)
	var word []byte
	for range d.upTo(12, "pieces") {
		switch d.upTo(4, "piece") {
		case 0:
			if id := d.upTo(len(spec.Tokens)+1, "token"); id < len(spec.Tokens) {
				word = append(word, spec.Tokens[id]...)
			}
		case 1:
			c := string(chars[d.upTo(len(chars), "run of")])
			for range d.upTo(20, "run") {
				word = append(word, c...)
			}
		default:
			word = append(word, string(chars[d.upTo(len(chars), "char")])...)
		}
	}
	return string(word)
}

// compare makes up a vocabulary and some words, and compares.
func compare(tb rapid.TB, d draw) {
	alphabet := alphabets[d.upTo(len(alphabets), "alphabet")]
	spec := drawSpec(d, alphabet, d.upTo(2, "chars") == 0)
	m, err := bpe.New(spec)
	if err != nil {
		tb.Fatal(err)
	}
	slow := newTwin(spec)
	var scratch bpe.Scratch
	for range 8 {
		word := drawWord(d, &spec, alphabet)
		got := m.Append([]uint32{7}, word, &scratch)
		if want := append([]uint32{7}, slow.encode(word)...); !slices.Equal(got, want) {
			tb.Fatalf("%q of %q: %v, want %v; merges %v", word, spec.Tokens, got, want, spec.Merges)
		} else if got = m.CarefulAppend([]uint32{7}, word, &scratch); !spec.IgnoreMerges && !slices.Equal(got, want) {
			tb.Fatalf("%q of %q with care: %v, want %v; merges %v", word, spec.Tokens, got, want, spec.Merges)
		}
	}
}

func TestAppendEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { compare(t, rapidDraw{t}) })
}

// byteDraw takes its choices from fuzzed bytes, then always the first.
type byteDraw struct{ data []byte }

func (d *byteDraw) upTo(n int, _ string) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

func FuzzAppendEqualsTwin(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x01\x01\x01\x01\x01\x01\x07\x00\x01\x02\x00\x03\x01\x04\x02"))
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, &byteDraw{data}) })
}

type randDraw struct{ *rand.Rand }

func (d randDraw) upTo(n int, _ string) int { return d.IntN(n) }

// Uniform choices reach vocabularies that rapid, which prefers small values,
// seldom makes.
func TestAppendEqualsTwinUniform(t *testing.T) {
	rounds := uint64(5_000)
	for seed := range rounds {
		compare(t, randDraw{rand.New(rand.NewPCG(seed, 5))})
	}
}
