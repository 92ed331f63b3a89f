package index_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
)

const (
	approximateTTL = 120 * time.Second
	guessWorkers   = 64
)

// promptMix is prompts as a chat service has them: all begin with one of a few
// system prompts; a conversation of a few turns follows.
func promptMix(n, blocks int) [][]block.Chain {
	r := rand.New(rand.NewPCG(1, 2))
	systems := make([][]block.Hash, 4)
	for i := range systems {
		systems[i] = randomBlocks(r, blocks/8)
	}
	const turns = 4
	prompts := make([][]block.Chain, 0, n)
	for len(prompts) < n {
		talk := append([]block.Hash{}, systems[r.IntN(len(systems))]...)
		for range turns {
			talk = append(talk, randomBlocks(r, (blocks-len(systems[0]))/turns)...)
			prompts = append(prompts, block.AppendChains(nil, talk))
		}
	}
	return prompts
}

func randomBlocks(r *rand.Rand, n int) []block.Hash {
	out := make([]block.Hash, n)
	for i := range out {
		out[i] = block.Hash(r.Uint64())
	}
	return out
}

// workersOnly is a lookup of workers that hold nothing.
func workersOnly(tb testing.TB, n uint64) *index.Index {
	tb.Helper()
	x := index.New()
	for id := range n {
		mustRegister(tb, x, id)
	}
	return x
}

// One decision's share: a lookup of what is remembered, and the record of where the
// prompt went. "new" are prompts that nobody sent before, in conversations of four
// turns; "again" are a thousand conversations that come round and round.
func BenchmarkApproximation(b *testing.B) {
	for _, tc := range []struct {
		name   string
		rounds int // different prompts
		blocks int
		step   time.Duration
	}{
		{"again", 4000, 128, 100 * time.Microsecond},
		{"new", 1 << 17, 128, 2 * time.Millisecond},
		{"new", 1 << 14, 1000, 10 * time.Millisecond},
	} {
		prompts := promptMix(tc.rounds, tc.blocks)
		x := workersOnly(b, guessWorkers)
		g := index.NewApproximation(approximateTTL, index.ApproximationBytes)
		start := time.Unix(1000, 0)
		var turn atomic.Int64
		decide := func(m *index.Match, empty *index.Match) {
			i := int(turn.Add(1))
			chains, now := prompts[i%len(prompts)], start.Add(time.Duration(i)*tc.step)
			*m = *empty
			g.Merge(now, chains, m)
			g.Record(now, index.Slot(i/4*31%guessWorkers), chains, 0)
		}
		var empty index.Match
		x.Match(nil, &empty)
		for range prompts {
			m := empty
			decide(&m, &empty)
		}
		b.Run(fmt.Sprintf("%s/blocks=%d", tc.name, tc.blocks), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				var m, empty index.Match
				x.Match(nil, &empty)
				for pb.Next() {
					x.Match(nil, &m)
					decide(&m, &empty)
				}
			})
		})
	}
}

// A guess from the decision to the first output, 64 requests later: prompts that nobody
// sent before but for their heads, and prompts that others wait for, too.
func BenchmarkGuess(b *testing.B) {
	for name, distinct := range map[string]int{"new": 1 << 15, "again": 16} {
		b.Run(name, func(b *testing.B) {
			prompts := promptMix(distinct, 128)
			g := index.NewSpeculation(5 * time.Second)
			open := make([]index.Guess, 64)
			now := time.Unix(1000, 0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now = now.Add(time.Millisecond)
				guess := &open[i%len(open)]
				guess.Computed(now)
				*guess = g.Record(now, index.Slot(i/4*31%guessWorkers), prompts[i%len(prompts)], 0)
			}
		})
	}
}

// A lookup where nothing is remembered, or nothing of this prompt.
func BenchmarkMergeNothing(b *testing.B) {
	prompts := promptMix(4000, 128)
	stranger := promptMix(4004, 120)[4000]
	stranger[0]++
	now := time.Unix(1000, 0)
	x := workersOnly(b, guessWorkers)
	for _, held := range []int{0, len(prompts)} {
		g := index.NewApproximation(approximateTTL, index.ApproximationBytes)
		for i, chains := range prompts[:held] {
			g.Record(now, index.Slot(i%guessWorkers), chains, 0)
		}
		b.Run(fmt.Sprintf("prompts=%d", held), func(b *testing.B) {
			var m index.Match
			x.Match(nil, &m)
			for b.Loop() {
				g.Merge(now, stranger, &m)
			}
		})
	}
}

// Memory of what is remembered, as counted and as it is.
func BenchmarkApproximationMemory(b *testing.B) {
	prompts := promptMix(1<<15, 128)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		g := index.NewApproximation(approximateTTL, 1<<40)
		for i, chains := range prompts {
			g.Record(time.Unix(1000, 0), index.Slot(i/4%guessWorkers), chains, 0)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		b.ReportMetric(float64(g.Remembered().Bytes)/(1<<20), "counted-MiB")
		runtime.KeepAlive(g)
	}
	runtime.KeepAlive(prompts)
}
