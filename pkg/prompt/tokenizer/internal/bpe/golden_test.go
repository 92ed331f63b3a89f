package bpe_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// golden is what testdata/golden.py writes.
type golden struct {
	Real  map[string][]wordIDs `json:"real"`
	Small []smallCase          `json:"small"`
}

// wordIDs is [word, [id, ...]].
type wordIDs struct {
	word string
	ids  []uint32
}

func (w *wordIDs) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&w.word, &w.ids})
}

type smallCase struct {
	Tokens       []string    `json:"tokens"`
	Merges       [][2]string `json:"merges"`
	Unk          string      `json:"unk_token"`
	FuseUnk      bool        `json:"fuse_unk"`
	ByteFallback bool        `json:"byte_fallback"`
	IgnoreMerges bool        `json:"ignore_merges"`
	Words        []wordIDs   `json:"words"`
}

func (c *smallCase) spec() bpe.Spec {
	spec := bpe.Spec{Chars: true, Unk: -1, FuseUnk: c.FuseUnk, ByteFallback: c.ByteFallback, IgnoreMerges: c.IgnoreMerges}
	ids := map[string]uint32{}
	for id, token := range c.Tokens {
		spec.Tokens = append(spec.Tokens, []byte(token))
		ids[token] = uint32(id)
	}
	for _, m := range c.Merges {
		spec.Merges = append(spec.Merges, [2]uint32{ids[m[0]], ids[m[1]]})
	}
	for b := range spec.ByteTokens {
		spec.ByteTokens[b] = -1
		if id, ok := ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			spec.ByteTokens[b] = int32(id)
		}
	}
	if c.Unk != "" {
		spec.Unk = int32(ids[c.Unk])
	}
	return spec
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Real) != 5 || len(g.Small) < 100 {
		t.Fatalf("golden file has %d models and %d small cases", len(g.Real), len(g.Small))
	}
	return g
}

func TestAppendEqualsHuggingFace(t *testing.T) {
	for name, words := range readGolden(t).Real {
		t.Run(name, func(t *testing.T) {
			m, slow := realModel(t, name), newTwin(realSpec(t, name))
			var s bpe.Scratch
			for _, w := range words {
				word, err := hex.DecodeString(w.word)
				if err != nil {
					t.Fatal(err)
				}
				for how, got := range map[string][]uint32{
					"search": m.Append(nil, string(word), &s),
					"twin":   slow.encode(string(word)),
				} {
					if !slices.Equal(got, w.ids) {
						t.Errorf("%s of %q: %v, want %v", how, word, got, w.ids)
					}
				}
			}
		})
	}
}

// Small vocabularies meet what real ones do not: symbols without a token, merges
// of these, merges listed twice, merges in any order.
func TestSmallEqualsHuggingFace(t *testing.T) {
	for i, c := range readGolden(t).Small {
		spec := c.spec()
		m, err := bpe.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		slow := newTwin(spec)
		var s bpe.Scratch
		for _, w := range c.Words {
			for how, got := range map[string][]uint32{
				"search": m.Append(nil, w.word, &s),
				"twin":   slow.encode(w.word),
			} {
				if !slices.Equal(got, w.ids) {
					t.Errorf("case %d, %s of %q: %v, want %v", i, how, w.word, got, w.ids)
				}
			}
		}
	}
}
