package block_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
)

// Equal texts have equal hashes, however they are cut into pieces.
func TestTextHashesDoNotDependOnPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 5*block.TextBytes).Draw(t, "text")
		seed := block.Seed(rapid.Uint64().Draw(t, "seed"))
		want := block.AppendTextHashes(nil, seed, [][]byte{text})
		if n := len(text) / block.TextBytes; len(want) != n {
			t.Fatalf("%d hashes of %d full runs", len(want), n)
		}
		var pieces [][]byte
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "piece")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := block.AppendTextHashes([]block.Hash{7}, seed, pieces); got[0] != 7 || !slices.Equal(got[1:], want) {
			t.Fatalf("%v of %d pieces, want %v", got, len(pieces), want)
		}
	})
}

// What makes prompts unequal makes all their runs unequal.
func TestTextSeeds(t *testing.T) {
	text := [][]byte{bytes.Repeat([]byte("text"), block.TextBytes/4)}
	seen := map[block.Hash]string{}
	for name, seed := range map[string]block.Seed{
		"plain":           block.NewTextSeed("m", block.NewSeed("", "")),
		"another model":   block.NewTextSeed("n", block.NewSeed("", "")),
		"adapter":         block.NewTextSeed("m", block.NewSeed("lora", "")),
		"salt":            block.NewTextSeed("m", block.NewSeed("", "s")),
		"no model":        block.NewTextSeed("", block.NewSeed("", "")),
		"blocks of token": block.NewSeed("", ""),
	} {
		h := block.AppendTextHashes(nil, seed, text)[0]
		if other, dup := seen[h]; dup {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
	// The same bytes as a block of token ids.
	ids := slices.Repeat([]uint32{0x74786574}, block.TextBytes/4)
	if h := (block.Layout{Size: len(ids)}).AppendHashes(nil, ids, block.NewSeed("", "")); seen[h[0]] != "blocks of token" {
		t.Errorf("the block hashes to that of %q", seen[h[0]])
	}
}

func TestTextHashesDoNotAllocate(t *testing.T) {
	pieces := [][]byte{bytes.Repeat([]byte("ab"), 400), bytes.Repeat([]byte("c"), 1000)}
	dst := make([]block.Hash, 0, 16)
	if n := testing.AllocsPerRun(100, func() { dst = block.AppendTextHashes(dst[:0], 1, pieces) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
