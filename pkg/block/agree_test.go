package block_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
)

// TestAgree compares with a look at every chain.
func TestAgree(t *testing.T) {
	prompts := rapid.SliceOfN(rapid.Uint64Range(0, 1), 0, 12)
	chains := func(prompt []uint64) (chains []block.Chain) {
		last := block.Chain(1)
		for _, b := range prompt {
			last = last*2 + block.Chain(b)
			chains = append(chains, last)
		}
		return chains
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := chains(prompts.Draw(t, "a")), chains(prompts.Draw(t, "b"))
		want := 0
		for want < min(len(a), len(b)) && a[want] == b[want] {
			want++
		}
		if got := block.Agree(a, b); got != want {
			t.Fatalf("%d chains, want %d", got, want)
		}
	})
}
