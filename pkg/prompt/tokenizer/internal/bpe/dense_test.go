package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// Small vocabularies with merges in any order, and every short word over their
// alphabet: here ties and merges that unlock earlier ones are frequent.
func TestAppendEqualsTwinDense(t *testing.T) {
	for seed := range uint64(denseRounds) {
		d := randDraw{rand.New(rand.NewPCG(seed, 6))}
		alphabet := []string{"a", "ab", "ab", "abc"}[d.upTo(4, "")]
		spec := denseSpec(d, alphabet)
		m, err := bpe.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		slow := newTwin(spec)
		var s bpe.Scratch
		for _, word := range words(alphabet, []int{0, 20, 8, 5}[len(alphabet)]) {
			if got, want := m.Append(nil, word, &s), slow.encode(word); !slices.Equal(got, want) {
				t.Fatalf("%q: %v, want %v; tokens %q, merges %v", word, got, want, spec.Tokens, spec.Merges)
			} else if got = m.CarefulAppend(nil, word, &s); !slices.Equal(got, want) {
				t.Fatalf("%q with care: %v, want %v; tokens %q, merges %v", word, got, want, spec.Tokens, spec.Merges)
			}
		}
		if s.Followed() {
			t.Fatalf("the search found no way; tokens %q, merges %v", spec.Tokens, spec.Merges)
		}
	}
}

const denseRounds = 1000

func denseSpec(d draw, alphabet string) bpe.Spec {
	spec := bpe.Spec{Unk: -1}
	ids := map[string]uint32{}
	for _, c := range alphabet {
		ids[string(c)] = uint32(len(spec.Tokens))
		spec.Tokens = append(spec.Tokens, []byte(string(c)))
	}
	for range 2 + d.upTo(10, "") {
		left, right := d.upTo(len(spec.Tokens), ""), d.upTo(len(spec.Tokens), "")
		joined := string(spec.Tokens[left]) + string(spec.Tokens[right])
		if utf8.RuneCountInString(joined) > 8 {
			continue
		}
		if _, ok := ids[joined]; !ok {
			ids[joined] = uint32(len(spec.Tokens))
			spec.Tokens = append(spec.Tokens, []byte(joined))
		}
		at := d.upTo(len(spec.Merges)+1, "")
		spec.Merges = slices.Insert(spec.Merges, at, [2]uint32{uint32(left), uint32(right)})
	}
	if d.upTo(4, "") == 0 {
		spec.Merges, spec.Ranked = nil, true
		for i := len(spec.Tokens) - 1; i > 0; i-- {
			j := d.upTo(i+1, "")
			spec.Tokens[i], spec.Tokens[j] = spec.Tokens[j], spec.Tokens[i]
		}
	}
	return spec
}

// words returns all words of up to n letters.
func words(alphabet string, n int) []string {
	all := []string{""}
	for from := 0; n > 0; n-- {
		to := len(all)
		for _, w := range all[from:to] {
			for _, c := range alphabet {
				all = append(all, w+string(c))
			}
		}
		from = to
	}
	return all
}

// What the search rests on, by itself.
func TestValidEqualsTwin(t *testing.T) {
	for seed := range uint64(denseRounds) {
		d := randDraw{rand.New(rand.NewPCG(seed, 7))}
		spec := denseSpec(d, []string{"a", "ab", "abc"}[d.upTo(3, "")])
		m, err := bpe.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		slow := newTwin(spec)
		var closed []uint32
		for id, token := range spec.Tokens {
			is := slices.Equal(slow.encode(string(token)), []uint32{uint32(id)})
			if m.Closed(string(token)) != is {
				t.Fatalf("%q closed: want %v; tokens %q, merges %v", token, is, spec.Tokens, spec.Merges)
			}
			if is {
				closed = append(closed, uint32(id))
			}
		}
		for _, x := range closed {
			for _, y := range closed {
				word := string(spec.Tokens[x]) + string(spec.Tokens[y])
				if want := slices.Equal(slow.encode(word), []uint32{x, y}); m.Valid(x, y) != want {
					t.Fatalf("%q %q valid: want %v; tokens %q, merges %v", spec.Tokens[x], spec.Tokens[y], want, spec.Tokens, spec.Merges)
				}
			}
		}
	}
}

// The tokens that characters fall back to may also be spelled by text; what they
// stand for is another thing. The missing character has the same class, when it
// comes to what touches, as one of those that are there.
func TestByteTokensThatTextSpells(t *testing.T) {
	for seed := range uint64(denseRounds) {
		d := randDraw{rand.New(rand.NewPCG(seed, 8))}
		spec := denseSpec(d, "a語")
		spec.Chars, spec.ByteFallback = true, true
		names := slices.Clone(spec.Tokens)
		part := make([]bool, len(names)+1)
		onlyWhole := d.upTo(4, "") != 0
		for _, m := range spec.Merges {
			part[m[0]], part[m[1]] = onlyWhole, onlyWhole
		}
		for b := range spec.ByteTokens {
			if id := d.upTo(len(names)+1, ""); b >= 0x80 && id < len(names) && !part[id] {
				spec.ByteTokens[b] = int32(id)
				continue
			}
			spec.ByteTokens[b] = int32(len(spec.Tokens))
			spec.Tokens = append(spec.Tokens, fmt.Appendf(nil, "<%d>", b))
		}
		m, err := bpe.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		slow := newTwin(spec)
		var s bpe.Scratch
		for range 40 {
			word := ""
			for range 1 + d.upTo(12, "") {
				word += []string{"a", "語", "骞"}[d.upTo(3, "")]
			}
			if got, want := m.Append(nil, word, &s), slow.encode(word); !slices.Equal(got, want) {
				t.Fatalf("%q: %v, want %v; tokens %q, merges %v", word, got, want, names, spec.Merges)
			} else if got = m.CarefulAppend(nil, word, &s); !slices.Equal(got, want) {
				t.Fatalf("%q with care: %v, want %v; tokens %q, merges %v", word, got, want, names, spec.Merges)
			}
		}
	}
}
