package index_test

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Workers' events applied at the same time, beside lookups, snapshots and
// counters, lead to what they lead to one after another.
func TestConcurrentEqualsPlain(t *testing.T) {
	const workers, rounds = 8, 120
	p := newPair(42, workers)
	perWorker := make([][]*kvevent.Event, workers)
	for range workers * rounds {
		ev := p.stored(kvevent.Tier(p.random.IntN(2)))
		switch n := p.random.IntN(20); {
		case n < 8:
			ev = p.gone(kvevent.Tier(p.random.IntN(2)))
		case n < 9:
			ev = &kvevent.Event{WorkerID: p.random.Uint64N(workers), Kind: kvevent.Cleared}
		}
		perWorker[ev.WorkerID] = append(perWorker[ev.WorkerID], ev)
	}
	var chains [][]block.Chain
	for _, contents := range p.prompts {
		chains = append(chains, block.AppendChains(nil, contents))
	}

	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for _, events := range perWorker {
		writers.Go(func() {
			for _, ev := range events {
				if err := p.index.Apply(ev); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for reader := range 3 {
		readers.Go(func() {
			var m index.Match
			for i := reader; !stop.Load(); i++ {
				prompt := chains[i%len(chains)]
				p.index.Match(prompt, &m)
				for slot := range index.Slot(workers) {
					if n := m.Depth(slot).Total(); n > len(prompt) {
						t.Errorf("slot %d holds %d blocks of %d", slot, n, len(prompt))
					}
				}
			}
		})
	}
	readers.Go(func() {
		for !stop.Load() {
			if err := p.index.Snapshot(io.Discard); err != nil {
				t.Error(err)
			}
			p.index.Memory()
			p.index.Stats()
			p.index.Chains(fleet.Key{ID: 1}, kvevent.Device)
			if err := p.index.Check(); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	stop.Store(true)
	readers.Wait()

	for _, events := range perWorker {
		for _, ev := range events {
			if err := p.plain.Apply(ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.index.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.index.Stats(), p.plain.Stats(); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
	for id := range uint64(workers) {
		for tier := range kvevent.Tier(2) {
			got, want := p.index.Chains(fleet.Key{ID: id}, tier), p.plain.Chains(fleet.Key{ID: id}, tier)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("worker %d, tier %v: %d chains, want %d, or others", id, tier, len(got), len(want))
			}
		}
	}
	for _, prompt := range chains {
		p.index.Match(prompt, &p.match)
		p.plain.Match(prompt, &p.want)
		for id := range uint64(workers) {
			slot, _ := p.index.Lookup(fleet.Key{ID: id})
			other, _ := p.plain.Lookup(fleet.Key{ID: id})
			got, s := p.match.Depth(slot), int(other)
			if want := (index.Depth{Device: p.want.at(0, s), Host: p.want.at(1, s)}); got != want {
				t.Fatalf("worker %d holds %+v, want %+v", id, got, want)
			}
		}
	}
}
