package block_test

import (
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
)

func ids(from, to uint32) []uint32 {
	var s []uint32
	for i := from; i <= to; i++ {
		s = append(s, i)
	}
	return s
}

// Known answers: dynamo.md 2.6, and the hash oracle of the recorded captures.
func TestHashKnownAnswers(t *testing.T) {
	plain := block.NewSeed("", "")
	for _, tc := range []struct {
		name   string
		tokens []uint32
		layout block.Layout
		seed   block.Seed
		want   []block.Hash
	}{
		{"1..12", ids(1, 12), block.Layout{Size: 4}, plain, []block.Hash{14643705804678351452, 16777012769546811212, 483935686894639516}},
		{"tail ignored", ids(1, 7), block.Layout{Size: 4}, plain, []block.Hash{14643705804678351452}},
		{"shorter than a block", ids(1, 3), block.Layout{Size: 4}, plain, nil},
		{"n=1", ids(0, 0), block.Layout{Size: 1}, plain, []block.Hash{16451421758532862321}},
		{"n=4", ids(0, 3), block.Layout{Size: 4}, plain, []block.Hash{9143094415614847814}},
		{"n=16", ids(0, 15), block.Layout{Size: 16}, plain, []block.Hash{15310707395893867146}},
		{"n=32", ids(0, 31), block.Layout{Size: 32}, plain, []block.Hash{5756925433886871916}},
		{"n=64", ids(0, 63), block.Layout{Size: 64}, plain, []block.Hash{3480597578098033343}},
		{"n=128", ids(0, 127), block.Layout{Size: 128}, plain, []block.Hash{9509643624113304476}},
		{"n=256", ids(0, 255), block.Layout{Size: 256}, plain, []block.Hash{13509048708924160886}},
		{"lora", ids(1, 4), block.Layout{Size: 4}, block.NewSeed("my-adapter", ""), []block.Hash{15633847640104431966}},
		{"salt", ids(1, 4), block.Layout{Size: 4}, block.NewSeed("", "tenant-a"), []block.Hash{5738685477468498325}},
		{"salt and lora", ids(1, 4), block.Layout{Size: 4}, block.NewSeed("my-adapter", "tenant-a"), []block.Hash{15344109623294177393}},
		{"eagle", ids(1, 9), block.Layout{Size: 4, Eagle: true}, plain, []block.Hash{1914873892905420881, 1929047464662796003}},
	} {
		if got := tc.layout.AppendHashes(nil, tc.tokens, tc.seed); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if n := tc.layout.Blocks(len(tc.tokens)); n != len(tc.want) {
			t.Errorf("%s: Blocks = %d, want %d", tc.name, n, len(tc.want))
		}
	}
	if block.NewSeed("my-adapter", "") != 2360313164392603308 || block.NewSeed("", "tenant-a") != 1948188790972764086 {
		t.Error("seeds differ from the known ones")
	}
	if got := xxh3.HashSeed([]byte("test data"), 1337); got != 13226331709069118873 {
		t.Errorf("xxh3 of the test string: %d", got)
	}
}

func TestHashWithMedia(t *testing.T) {
	plain := block.NewSeed("", "")
	if got := block.HashWithMedia(ids(1, 4), plain, []uint64{42}); got != 14000361058806882387 {
		t.Errorf("one object: %d", got)
	}
	if got := block.HashWithMedia(ids(1, 4), plain, []uint64{42, 7}); got != 6295130183325757331 {
		t.Errorf("two objects: %d", got)
	}
	if got := block.HashWithMedia(ids(1, 4), plain, []uint64{7, 42}); got != 6295130183325757331 {
		t.Errorf("two objects, other order: %d", got)
	}
	if got := block.HashWithMedia(ids(1, 4), plain, nil); got != 14643705804678351452 {
		t.Errorf("no object: %d", got)
	}
}

func TestChainKnownAnswers(t *testing.T) {
	hashes := block.Layout{Size: 4}.AppendHashes(nil, ids(1, 12), block.NewSeed("", ""))
	want := []block.Chain{14643705804678351452, 4945711292740353085, 12583592247330656132}
	if got := block.AppendChains(nil, hashes); !slices.Equal(got, want) {
		t.Errorf("chains %v, want %v", got, want)
	}
	if got := block.AppendChains(nil, nil); got != nil {
		t.Errorf("chains of nothing: %v", got)
	}
}

func TestNoAllocations(t *testing.T) {
	tokens := ids(0, 2047)
	layout, seed := block.Layout{Size: 16}, block.NewSeed("", "")
	hashes, chains := layout.AppendHashes(nil, tokens, seed), make([]block.Chain, 0, 128)
	if n := testing.AllocsPerRun(100, func() {
		hashes = layout.AppendHashes(hashes[:0], tokens, seed)
		chains = block.AppendChains(chains[:0], hashes)
	}); n != 0 {
		t.Errorf("%v allocations per prompt, want 0", n)
	}
}

func BenchmarkHash10kTokens(b *testing.B) {
	tokens := ids(0, 9_999)
	layout, seed := block.Layout{Size: 16}, block.NewSeed("", "")
	var hashes []block.Hash
	var chains []block.Chain
	b.Run("hashes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hashes = layout.AppendHashes(hashes[:0], tokens, seed)
		}
	})
	b.Run("chains", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			chains = block.AppendChains(chains[:0], hashes)
		}
	})
}
