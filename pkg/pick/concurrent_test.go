package pick_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Equal costs break evenly: every one of n equal choices gets its share of 8000
// seeded draws within a fifth (over five standard deviations).
func TestEqualCostsBreakEvenly(t *testing.T) {
	const draws = 8000
	for _, tc := range []struct {
		name      string
		pool      []fleet.Worker
		decodes   int // how many workers share the decodes, each equally
		prefills  int
		aggregate float64 // share of decisions on aggregated workers
	}{
		{"aggregated", workers(1, 8, fleet.Aggregated), 8, 8, 1},
		{"pairs", append(workers(1, 4, fleet.Prefill), workers(11, 8, fleet.Decode)...), 8, 4, 0},
		{"decode alone", workers(1, 5, fleet.Decode), 5, 5, 0},
		{"one pair against one aggregated", []fleet.Worker{worker(1, fleet.Prefill), worker(2, fleet.Decode), worker(3, fleet.Aggregated)}, 2, 2, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 0, tc.pool...)
			prefill, decode, aggregated := map[uint64]int{}, map[uint64]int{}, 0
			for range draws {
				d := r.mustPick(t, pick.Request{Tokens: 160})
				prefill[d.Prefill.ID]++
				decode[d.Decode.ID]++
				if d.Mode == pick.OnAggregated {
					aggregated++
				}
				d.Reservation.Release()
			}
			even := func(what string, counts map[uint64]int, n int) {
				share := draws / n
				if len(counts) != n {
					t.Errorf("%s on %d workers, want %d", what, len(counts), n)
				}
				for id, got := range counts {
					if got < share*4/5 || got > share*6/5 {
						t.Errorf("%s on worker %d: %d of %d, want about %d", what, id, got, draws, share)
					}
				}
			}
			even("prefill", prefill, tc.prefills)
			even("decode", decode, tc.decodes)
			if got := float64(aggregated) / draws; got < tc.aggregate-0.05 || got > tc.aggregate+0.05 {
				t.Errorf("share on aggregated workers %v, want about %v", got, tc.aggregate)
			}
		})
	}
}

// Cold requests that come at the same moment spread: each sees what the ones
// before it booked, because choice and booking are one step.
func TestColdRequestsSpread(t *testing.T) {
	const requests = 256
	for _, tc := range []struct {
		name              string
		pool              []fleet.Worker
		prefills, decodes int
	}{
		{"8 aggregated", workers(1, 8, fleet.Aggregated), 8, 8},
		{"4 prefill and 4 decode", append(workers(1, 4, fleet.Prefill), workers(11, 4, fleet.Decode)...), 4, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, ttl, tc.pool...)
			decisions := make([]pick.Decision, requests)
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					var s pick.Scratch
					random := rand.New(rand.NewPCG(uint64(i), 7)).IntN
					var err error
					if decisions[i], err = r.picker.Pick(&pick.Request{Tokens: 1000}, start, random, &s); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			prefill, decode := map[uint64]int{}, map[uint64]int{}
			for _, d := range decisions {
				prefill[d.Prefill.ID]++
				decode[d.Decode.ID]++
			}
			check := func(what string, counts map[uint64]int, n int) {
				if len(counts) != n {
					t.Errorf("%s on %d workers, want %d", what, len(counts), n)
				}
				for id, got := range counts {
					if share := requests / n; got < share-1 || got > share+1 {
						t.Errorf("%s on worker %d: %d requests, want %d ± 1", what, id, got, share)
					}
				}
			}
			check("prefill", prefill, tc.prefills)
			check("decode", decode, tc.decodes)
			for _, d := range decisions {
				d.Reservation.Release()
			}
			for id, f := range r.figures() {
				if f != (load.Figures{}) {
					t.Errorf("all released, yet worker %d has %+v", id, f)
				}
			}
		})
	}
}

// Decisions go on while the pool changes and events come in. A decision names
// workers of some pool that was set, and nothing stays booked.
func TestPicksRaceWithFleetAndEvents(t *testing.T) {
	contents, chains := promptOf(1, 8)
	full := append(workers(1, 4, fleet.Aggregated), append(workers(11, 3, fleet.Prefill), workers(21, 3, fleet.Decode)...)...)
	pools := []*fleet.Snapshot{snapshot(t, full...), snapshot(t, full[:2]...), snapshot(t, full[2:]...), snapshot(t, full[4:]...)}
	r := newRig(t, ttl, full...)
	known := map[fleet.Worker]bool{}
	for _, w := range full {
		known[w] = true
	}

	var stop atomic.Bool
	var background, pickers sync.WaitGroup
	background.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if err := r.picker.SetFleet(pools[i%len(pools)]); err != nil {
				t.Error(err)
			}
		}
	})
	background.Go(func() {
		for i := 0; !stop.Load(); i++ {
			ev := kvevent.Event{WorkerID: full[i%len(full)].ID, Kind: kvevent.Stored, Tier: kvevent.Tier(i % kvevent.NumTiers)}
			for _, h := range contents[:i%len(contents)] {
				ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(h), Hash: h})
			}
			if i%3 == 0 {
				ev.Kind, ev.Blocks = kvevent.Cleared, nil
			}
			if err := r.index.Apply(&ev); err != nil {
				t.Error(err)
			}
		}
	})
	for g := range 4 {
		pickers.Go(func() {
			var s pick.Scratch
			random := rand.New(rand.NewPCG(uint64(g), 3)).IntN
			for i := range 200 {
				now := start.Add(time.Duration(i) * 50 * time.Millisecond)
				d, err := r.picker.Pick(&pick.Request{Tokens: 130, Chains: chains}, now, random, &s)
				if err != nil {
					t.Error(err)
					continue
				}
				if !known[d.Decode] || !known[d.Prefill] || d.Matched > len(chains) || d.Matched > d.Best {
					t.Errorf("decision %+v", d)
				}
				if i%2 == 0 {
					d.PrefillDone(now)
				}
				d.Release(now)
			}
		})
	}
	pickers.Wait()
	stop.Store(true)
	background.Wait()

	if err := r.picker.SetFleet(snapshot(t)); err != nil {
		t.Fatal(err)
	}
	if f := r.figures(); len(f) != 0 {
		t.Errorf("load left after all requests ended and all workers left: %v", f)
	}
	if _, err := r.pick(pick.Request{Tokens: 1}); !errors.Is(err, pick.ErrNoWorkers) {
		t.Errorf("empty pool: %v", err)
	}
}

// A decision allocates its reservation, and the copy of the prompt's chains that
// a guess keeps; without guesses or chains the reservation only.
func TestPickAllocations(t *testing.T) {
	contents, chains := promptOf(1, 128)
	for _, tc := range []struct {
		name string
		ttl  time.Duration
		req  pick.Request
		want float64
	}{
		{"no guesses", 0, pick.Request{Tokens: 2048, Chains: chains, Subset: in("10.0.0.1", "10.0.0.2", "10.0.0.3:8000")}, 1},
		{"no chains", ttl, pick.Request{Tokens: 2048}, 1},
		{"guess", ttl, pick.Request{Tokens: 2048, Chains: chains}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.ttl, append(workers(1, 2, fleet.Aggregated), worker(3, fleet.Prefill), worker(4, fleet.Decode))...)
			r.hold(t, 1, contents, index.Depth{Device: 100, Host: 20})
			now := start
			if n := testing.AllocsPerRun(500, func() {
				now = now.Add(time.Millisecond)
				d, err := r.picker.Pick(&tc.req, now, r.random, &r.scratch)
				if err != nil {
					t.Fatal(err)
				}
				d.Release(now)
			}); n > tc.want {
				t.Errorf("%v allocations per decision, want at most %v", n, tc.want)
			}
		})
	}
}
