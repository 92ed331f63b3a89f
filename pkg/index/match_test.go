package index_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// counted returns the contents and chains of a prompt of n blocks.
func counted(n int) ([]block.Hash, []block.Chain) {
	contents := make([]block.Hash, n)
	for i := range contents {
		contents[i] = block.Hash(i + 1)
	}
	return contents, prompt(contents...)
}

// storedAll is the event by which a worker stores a prompt from its start, with
// engine hashes that count from 1.
func storedAll(id uint64, t kvevent.Tier, contents []block.Hash) kvevent.Event {
	ev := kvevent.Event{WorkerID: id, Tier: t, Kind: kvevent.Stored}
	for i, h := range contents {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(i + 1), Hash: h})
	}
	return ev
}

func TestMatchDoesNotAllocate(t *testing.T) {
	contents, chains := counted(128)
	for _, workers := range []uint64{8, 200} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			x, guesses := index.New(), index.NewSpeculation(time.Minute)
			for id := range workers {
				for tier := range kvevent.Tier(kvevent.NumTiers) {
					mustApply(t, x, storedAll(id, tier, contents[:uint64(tier)*20+id%20]))
				}
			}
			slot := mustRegister(t, x, workers-1)
			now := time.Unix(1000, 0)
			guesses.Record(now, slot, chains, 0)
			var m index.Match
			if n := testing.AllocsPerRun(100, func() {
				x.Match(chains, &m)
				guesses.Merge(now, chains, &m)
			}); n != 0 {
				t.Errorf("%v allocations per lookup, want 0", n)
			}
			if got := m.Depth(slot); got != device(128) {
				t.Errorf("the lookup found %+v, want the guess of 128 blocks", got)
			}
		})
	}
}

// Readers run while writers change the index. What the stable worker holds must
// show in every answer, and no answer may claim more than the prompt has.
func TestConcurrentReadersAndWriters(t *testing.T) {
	const writers, readers, rounds = 4, 4, 60
	contents, chains := counted(32)
	x, guesses := index.New(), index.NewSpeculation(time.Second)
	mustApply(t, x, storedAll(500, kvevent.Device, contents[:20]))
	mustApply(t, x, storedAll(500, kvevent.Host, contents))
	stable, _ := x.Lookup(fleet.Key{ID: 500})
	start := time.Unix(1000, 0)

	var wg sync.WaitGroup
	for id := range uint64(writers) {
		wg.Go(func() {
			for round := range rounds {
				tier := kvevent.Tier(round % kvevent.NumTiers)
				ev := storedAll(id, tier, contents)
				gone := kvevent.Event{WorkerID: id, Tier: tier, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{1, 7, 99}}
				for _, ev := range []*kvevent.Event{&ev, &gone} {
					if err := x.Apply(ev); err != nil {
						t.Error(err)
					}
				}
				switch round % 5 {
				case 0:
					x.Drop(fleet.Key{ID: id})
				case 1:
					x.Clear(fleet.Key{ID: id})
				case 2:
					if err := x.Apply(&kvevent.Event{WorkerID: id, Kind: kvevent.Cleared, AllRanks: true}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for reader := range readers {
		wg.Go(func() {
			var m index.Match
			for round := range rounds {
				now := start.Add(time.Duration(round) * 50 * time.Millisecond)
				x.Match(chains, &m)
				if got, want := m.Depth(stable), (index.Depth{Device: 20, Host: 12}); got != want {
					t.Errorf("the stable worker holds %+v, want %+v", got, want)
				}
				// Guesses only about slots of writers.
				guessedSlot := stable + 1 + index.Slot(reader)
				guesses.Record(now, guessedSlot, chains[:round%32], 0)
				guesses.Merge(now, chains, &m)
				for slot := range index.Slot(300) {
					if n := m.Depth(slot).Total(); n > len(chains) {
						t.Errorf("slot %d holds %d blocks of %d", slot, n, len(chains))
					}
				}
				guesses.Forget(guessedSlot)
				x.Stats()
				x.Held(fleet.Key{ID: 1})
				x.Chains(fleet.Key{ID: 1}, kvevent.Device)
				x.Lookup(fleet.Key{ID: 2})
				x.Workers()
			}
		})
	}
	wg.Wait()

	for _, k := range x.Workers() {
		x.Drop(k)
	}
	if s := x.Stats(); s.Entries != 0 || s.Workers != 0 {
		t.Errorf("after dropping all workers: %+v", s)
	}
}

func BenchmarkMatch(b *testing.B) {
	contents, chains := counted(1000)
	for _, workers := range []uint64{8, 64, 1000} {
		x := index.New()
		for id := range workers {
			mustApply(b, x, storedAll(id, kvevent.Device, contents))
		}
		b.Run(fmt.Sprintf("workers=%d/blocks=1000/held=all", workers), func(b *testing.B) {
			var m index.Match
			b.ReportAllocs()
			for b.Loop() {
				x.Match(chains, &m)
			}
		})
	}
}
