package index_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmpath/warmpath/pkg/index"
)

// sweepStep is how many runs a write looks at for workers that left.
const sweepStep = 64

// What a drop does does not depend on what the worker held: one of 16,000 blocks
// in many runs among a million entries costs the look at a few runs, and so does
// every later write until all of it is swept.
func TestDropLooksAtFewRuns(t *testing.T) {
	w := benchCase{64, 1, false}.workload()
	x := index.New()
	w.fill(x)
	for id := range uint64(8) {
		before := x.Memory()
		if n := x.Held(key(id))[0]; n < 15_000 {
			t.Fatalf("worker %d holds only %d blocks", id, n)
		}
		x.Drop(key(id))
		if after := x.Memory(); after.Swept-before.Swept > sweepStep {
			t.Fatalf("a drop looked at %d runs", after.Swept-before.Swept)
		}
	}
	swept, writes := x.Memory().Swept, 0
	for x.Memory().Columns > 56 {
		writes++
		ev := &w.events[w.perWorker[63][writes%len(w.perWorker[63])]]
		if err := x.Apply(ev); err != nil {
			t.Fatal(err)
		}
		now := x.Memory().Swept
		if now-swept > sweepStep {
			t.Fatalf("a write looked at %d runs", now-swept)
		}
		swept = now
	}
	if writes < 50 {
		t.Errorf("all was swept after %d writes: the index is too small for this test", writes)
	}
}

// Lookups go on, and stay right, while half of the workers, 16,000 blocks each of
// a million, are dropped and swept: of the others each is credited what it was
// before, of those all of it or nothing.
func TestMatchBesideDrops(t *testing.T) {
	const workers, dropped = 64, 32
	w := benchCase{workers, 1, false}.workload()
	x := index.New()
	w.fill(x)
	prompts := w.short[:300]
	want := make([][workers]int, len(prompts))
	var m index.Match
	for i, chains := range prompts {
		x.Match(chains, &m)
		for s := range index.Slot(workers) {
			want[i][s] = m.Depth(s).Device
		}
	}
	slot := func(id int) index.Slot { return mustRegister(t, x, uint64(id)) }
	var leaves [workers]bool
	for id := range dropped {
		leaves[slot(id)] = true
	}

	var readers sync.WaitGroup
	var stop atomic.Bool
	var answered atomic.Int64
	for reader := range 2 {
		readers.Go(func() {
			var m index.Match
			for i := reader; !stop.Load(); i++ {
				p := i * 7 % len(prompts)
				x.Match(prompts[p], &m)
				for s, n := range want[p] {
					if got := m.Depth(index.Slot(s)).Device; got != n && (!leaves[s] || got != 0) {
						t.Errorf("slot %d holds %d blocks, want %d", s, got, n)
					}
				}
				answered.Add(1)
			}
		})
	}
	// Every drop and every write waits for lookups that were answered meanwhile.
	for id := range dropped {
		for since := answered.Load(); answered.Load() < since+2 && !t.Failed(); {
			x.Drop(key(uint64(id)))
			runtime.Gosched() // on few cores the readers would wait for a whole slice
		}
		for _, e := range w.perWorker[dropped][:20] {
			if err := x.Apply(&w.events[e]); err != nil {
				t.Error(err)
			}
		}
	}
	for x.Memory().Columns > workers-dropped {
		for _, e := range w.perWorker[dropped][:20] {
			if err := x.Apply(&w.events[e]); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	readers.Wait()
	for i, chains := range prompts {
		x.Match(chains, &m)
		for s, n := range want[i] {
			if leaves[s] {
				n = 0
			}
			if got := m.Depth(index.Slot(s)).Device; got != n {
				t.Fatalf("at the end slot %d holds %d blocks, want %d", s, got, n)
			}
		}
	}
}
