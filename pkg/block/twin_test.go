package block_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
)

// slowHashes cuts and hashes a prompt the obvious way: it writes every block out
// with encoding/binary.
func slowHashes(t *rapid.T, l block.Layout, tokens []uint32, seed block.Seed) []block.Hash {
	extra := 0
	if l.Eagle {
		extra = 1
	}
	var hashes []block.Hash
	for start := 0; start+l.Size+extra <= len(tokens); start += l.Size {
		var buf bytes.Buffer
		if err := binary.Write(&buf, binary.LittleEndian, tokens[start:start+l.Size+extra]); err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, block.Hash(xxh3.HashSeed(buf.Bytes(), uint64(seed))))
	}
	return hashes
}

func slowChains(t *rapid.T, hashes []block.Hash) []block.Chain {
	var chains []block.Chain
	for i, h := range hashes {
		if i == 0 {
			chains = append(chains, block.Chain(h))
			continue
		}
		var buf bytes.Buffer
		for _, v := range []uint64{uint64(chains[i-1]), uint64(h)} {
			if err := binary.Write(&buf, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
		chains = append(chains, block.Chain(xxh3.HashSeed(buf.Bytes(), 1337)))
	}
	return chains
}

func TestHashesEqualTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := block.Layout{Size: rapid.IntRange(1, 70).Draw(t, "block size"), Eagle: rapid.Bool().Draw(t, "eagle")}
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 300).Draw(t, "tokens")
		seed := block.NewSeed(rapid.String().Draw(t, "adapter"), rapid.String().Draw(t, "salt"))
		before := slices.Clone(tokens)

		hashes := layout.AppendHashes([]block.Hash{1}, tokens, seed)
		if want := append([]block.Hash{1}, slowHashes(t, layout, tokens, seed)...); !slices.Equal(hashes, want) {
			t.Fatalf("hashes %v, want %v", hashes, want)
		}
		if got := layout.Blocks(len(tokens)); got != len(hashes)-1 {
			t.Fatalf("Blocks(%d) = %d, but there are %d hashes", len(tokens), got, len(hashes)-1)
		}
		if !slices.Equal(tokens, before) {
			t.Fatal("the tokens were changed")
		}
		chains := block.AppendChains([]block.Chain{1}, hashes[1:])
		if want := append([]block.Chain{1}, slowChains(t, hashes[1:])...); !slices.Equal(chains, want) {
			t.Fatalf("chains %v, want %v", chains, want)
		}
	})
}

func TestSeedEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		adapter, salt := rapid.String().Draw(t, "adapter"), rapid.String().Draw(t, "salt")
		want := uint64(1337)
		if adapter != "" {
			want += xxh3.Hash([]byte(adapter))
		}
		if salt != "" {
			want += xxh3.HashSeed([]byte(salt), 1)
		}
		if got := block.NewSeed(adapter, salt); got != block.Seed(want) {
			t.Fatalf("NewSeed(%q, %q) = %d, want %d", adapter, salt, got, want)
		}
	})
}

func TestHashWithMediaEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 40).Draw(t, "tokens")
		media := rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(t, "media")
		seed := block.Seed(rapid.Uint64().Draw(t, "seed"))
		before := slices.Clone(media)
		got := block.HashWithMedia(tokens, seed, media)
		if !slices.Equal(media, before) {
			t.Fatal("the list of objects was reordered")
		}
		var buf bytes.Buffer
		for _, part := range []any{tokens, slices.Sorted(slices.Values(media))} {
			if err := binary.Write(&buf, binary.LittleEndian, part); err != nil {
				t.Fatal(err)
			}
		}
		if want := block.Hash(xxh3.HashSeed(buf.Bytes(), uint64(seed))); got != want {
			t.Fatalf("hash %d, want %d", got, want)
		}
	})
}

// No layout makes blocks out of nothing, nor panics.
func TestBlocksAtTheEdges(t *testing.T) {
	for _, tc := range []struct {
		layout block.Layout
		tokens int
		want   int
	}{
		{block.Layout{}, 10, 0},
		{block.Layout{Size: -1}, 10, 0},
		{block.Layout{Size: 4}, 0, 0},
		{block.Layout{Size: 4}, -1, 0},
		{block.Layout{Size: 4}, 3, 0},
		{block.Layout{Size: 4}, 4, 1},
		{block.Layout{Size: 4}, 8, 2},
		{block.Layout{Size: 4, Eagle: true}, 0, 0},
		{block.Layout{Size: 4, Eagle: true}, 4, 0},
		{block.Layout{Size: 4, Eagle: true}, 5, 1},
		{block.Layout{Size: 4, Eagle: true}, 8, 1},
		{block.Layout{Size: 4, Eagle: true}, 9, 2},
	} {
		if got := tc.layout.Blocks(tc.tokens); got != tc.want {
			t.Errorf("%+v of %d tokens: %d blocks, want %d", tc.layout, tc.tokens, got, tc.want)
		}
		if tc.tokens >= 0 {
			if got := tc.layout.AppendHashes(nil, make([]uint32, tc.tokens), 0); len(got) != tc.want {
				t.Errorf("%+v of %d tokens: %d hashes, want %d", tc.layout, tc.tokens, len(got), tc.want)
			}
		}
	}
}
