package load_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// moment is when all happens, where the time does not matter.
var moment = time.Unix(1000, 0)

func key(id uint64) fleet.Key { return fleet.Key{ID: id} }

// snapshot is a pool of aggregated workers with these ids.
func snapshot(t testing.TB, ids ...uint64) *fleet.Snapshot {
	t.Helper()
	s, err := newSnapshot(ids)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSnapshot(ids []uint64) (*fleet.Snapshot, error) {
	var workers []fleet.Worker
	for _, id := range ids {
		workers = append(workers, fleet.Worker{Key: key(id), Name: fmt.Sprint("w", id), Endpoint: netip.MustParseAddrPort("10.0.0.1:8000")})
	}
	return fleet.NewSnapshot(workers)
}

// figures reads the whole table.
func figures(table *load.Table) map[fleet.Key]load.Figures {
	all := map[fleet.Key]load.Figures{}
	table.Read(func(k fleet.Key, f load.Figures) { all[k] = f })
	return all
}

// reserve books tokens on one worker and blocks on another, as a decision does.
func reserve(table *load.Table, prefill, decode uint64, tokens, blocks int) *load.Reservation {
	b := load.Booking{
		PrefillTokens: tokens, Blocks: blocks,
		PrefillKey: key(prefill), DecodeKey: key(decode),
		Prefill: table.Worker(key(prefill)), Decode: table.Worker(key(decode)),
	}
	table.Lock()
	defer table.Unlock()
	return table.Reserve(b)
}

func TestReservationSteps(t *testing.T) {
	done, release := func(r *load.Reservation) { r.PrefillDone(moment) }, (*load.Reservation).Release
	prefillEnded := (*load.Reservation).PrefillEnded
	type calls = []func(*load.Reservation)
	both := load.Figures{PrefillTokens: 100, DecodeBlocks: 7, Requests: 1}
	decoding := load.Figures{DecodeBlocks: 7, Requests: 1}
	for _, tc := range []struct {
		name  string
		calls calls
		want  load.Figures // prefill and decode worker together
	}{
		{"reserved", nil, both},
		{"prefill done", calls{done}, decoding},
		{"prefill done twice", calls{done, done}, decoding},
		{"prefill ended", calls{prefillEnded}, decoding},
		{"prefill ended twice, and done", calls{prefillEnded, prefillEnded, done}, decoding},
		{"prefill ended after release", calls{release, prefillEnded}, load.Figures{}},
		{"released", calls{release}, load.Figures{}},
		{"released twice", calls{release, release}, load.Figures{}},
		{"in order", calls{done, release}, load.Figures{}},
		{"prefill done after release", calls{release, done}, load.Figures{}},
		{"all mixed", calls{done, release, done, release, release}, load.Figures{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			split, aggregated := load.NewTable(), load.NewTable()
			pair, single := reserve(split, 1, 2, 100, 7), reserve(aggregated, 1, 1, 100, 7)
			for _, call := range tc.calls {
				call(pair)
				call(single)
			}
			if got := figures(aggregated)[key(1)]; got != tc.want {
				t.Errorf("aggregated: %+v, want %+v", got, tc.want)
			}
			if got, want := figures(split)[key(1)], (load.Figures{PrefillTokens: tc.want.PrefillTokens}); got != want {
				t.Errorf("prefill worker: %+v, want %+v", got, want)
			}
			if got, want := figures(split)[key(2)], (load.Figures{DecodeBlocks: tc.want.DecodeBlocks, Requests: tc.want.Requests}); got != want {
				t.Errorf("decode worker: %+v, want %+v", got, want)
			}
		})
	}
}

func TestRetain(t *testing.T) {
	empty := snapshot(t)
	t.Run("idle workers that left are forgotten", func(t *testing.T) {
		table := load.NewTable()
		table.Worker(key(1))
		table.Worker(key(2))
		table.Retain(snapshot(t, 2))
		if got := figures(table); len(got) != 1 {
			t.Errorf("table holds %v, want worker 2 only", got)
		}
	})
	t.Run("busy ones stay until their last request ends", func(t *testing.T) {
		table := load.NewTable()
		first, second := reserve(table, 1, 2, 100, 7), reserve(table, 1, 2, 50, 3)
		table.Retain(empty)
		if got := figures(table); got[key(1)].PrefillTokens != 150 || got[key(2)].DecodeBlocks != 10 {
			t.Errorf("after Retain: %v", got)
		}
		first.PrefillDone(moment)
		second.PrefillDone(moment)
		if got := figures(table); len(got) != 1 || got[key(2)].Requests != 2 {
			t.Errorf("prefills done: %v, want the decode worker only", got)
		}
		first.Release()
		second.Release()
		if got := figures(table); len(got) != 0 {
			t.Errorf("all released: %v, want nothing", got)
		}
	})
	t.Run("a worker that blinks keeps its load", func(t *testing.T) {
		table := load.NewTable()
		before := table.Worker(key(1))
		r := reserve(table, 1, 1, 100, 7)
		table.Retain(empty)
		if table.Worker(key(1)) != before {
			t.Error("the worker came back with another entry")
		}
		table.Retain(snapshot(t, 1))
		r.Release()
		if got, ok := figures(table)[key(1)]; !ok || got != (load.Figures{}) {
			t.Errorf("after its release: %v, present %v; want an idle worker", got, ok)
		}
	})
	t.Run("a worker that was away idle starts at zero", func(t *testing.T) {
		table := load.NewTable()
		before := table.Worker(key(1))
		table.Retain(empty)
		if table.Worker(key(1)) == before {
			t.Error("the forgotten entry came back")
		}
	})
	// A decision that began before the pool changed books on the old entry.
	// Its release must not take away the new one.
	t.Run("a late booking on a forgotten entry", func(t *testing.T) {
		table := load.NewTable()
		old := table.Worker(key(1))
		table.Retain(empty)
		table.Lock()
		late := table.Reserve(load.Booking{PrefillTokens: 5, Blocks: 1, PrefillKey: key(1), DecodeKey: key(1), Prefill: old, Decode: old})
		table.Unlock()
		current := reserve(table, 1, 1, 100, 7)
		late.Release()
		if got, want := figures(table)[key(1)], (load.Figures{PrefillTokens: 100, DecodeBlocks: 7, Requests: 1}); got != want {
			t.Errorf("new entry: %+v, want %+v", got, want)
		}
		current.Release()
		table.Retain(empty)
		if got := figures(table); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	})
}

// booking is a live reservation as the test knows it.
type booking struct {
	prefill, decode uint64
	tokens, blocks  int
	prefilled       bool
	r               *load.Reservation
}

// At every moment the figures are the sums over live bookings.
func TestFiguresEqualSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := load.NewTable()
		var live, ended []*booking
		known := map[uint64]bool{} // in the pool now
		id := rapid.Uint64Range(1, 4)
		draw := func(t *rapid.T, list []*booking) *booking {
			if len(list) == 0 {
				t.Skip("none")
			}
			return list[rapid.IntRange(0, len(list)-1).Draw(t, "booking")]
		}
		end := func(b *booking) {
			b.r.Release()
			live = slices.DeleteFunc(live, func(o *booking) bool { return o == b })
			ended = append(ended, b)
		}
		check := func(t *rapid.T) {
			want := map[fleet.Key]load.Figures{}
			for id := range known {
				want[key(id)] = load.Figures{}
			}
			for _, b := range live {
				if !b.prefilled {
					f := want[key(b.prefill)]
					f.PrefillTokens += b.tokens
					want[key(b.prefill)] = f
				}
				f := want[key(b.decode)]
				f.DecodeBlocks += b.blocks
				f.Requests++
				want[key(b.decode)] = f
			}
			got := figures(table)
			if len(got) != len(want) {
				t.Fatalf("table %v, want %v", got, want)
			}
			for k, f := range want {
				if g, ok := got[k]; !ok || g != f {
					t.Fatalf("table %v, want %v", got, want)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"reserve": func(t *rapid.T) {
				b := &booking{prefill: id.Draw(t, "prefill"), decode: id.Draw(t, "decode"), tokens: rapid.IntRange(0, 100).Draw(t, "tokens"), blocks: rapid.IntRange(0, 9).Draw(t, "blocks")}
				known[b.prefill], known[b.decode] = true, true
				b.r = reserve(table, b.prefill, b.decode, b.tokens, b.blocks)
				live = append(live, b)
			},
			"prefill done": func(t *rapid.T) {
				b := draw(t, live)
				b.r.PrefillDone(moment)
				b.prefilled = true
			},
			"release": func(t *rapid.T) { end(draw(t, live)) },
			"late calls": func(t *rapid.T) {
				b := draw(t, ended)
				b.r.PrefillDone(moment)
				b.r.Release()
			},
			"retain": func(t *rapid.T) {
				ids := rapid.SliceOfNDistinct(id, 0, 4, func(id uint64) uint64 { return id }).Draw(t, "pool")
				s, err := newSnapshot(ids)
				if err != nil {
					t.Fatal(err)
				}
				table.Retain(s)
				for id := range known {
					if !slices.Contains(ids, id) {
						delete(known, id)
					}
				}
			},
		})
		for len(live) > 0 {
			end(live[0])
		}
		check(t)
		for k, f := range figures(table) {
			if f != (load.Figures{}) {
				t.Fatalf("all released, yet %v has %+v", k, f)
			}
		}
		table.Retain(&fleet.Snapshot{})
		if got := figures(table); len(got) != 0 {
			t.Fatalf("left behind: %v", got)
		}
	})
}

// Every reservation is ended by several goroutines at once, while the pool
// changes and figures are read.
func TestConcurrentReservations(t *testing.T) {
	const goroutines, each, workers = 8, 100, 5
	table := load.NewTable()
	all, some := snapshot(t, 0, 1, 2, 3, 4), snapshot(t, 0, 3)
	for id := range uint64(workers) {
		table.Worker(key(id))
	}
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(g, 0))
			var ends sync.WaitGroup
			for range each {
				r := reserve(table, random.Uint64N(workers), random.Uint64N(workers), random.IntN(1000), random.IntN(100))
				ends.Go(func() { r.PrefillDone(moment) })
				ends.Go(r.Release)
				ends.Go(r.Release)
			}
			ends.Wait()
		})
	}
	wg.Go(func() {
		for range each {
			table.Retain(some)
			table.Retain(all)
			table.Read(func(k fleet.Key, f load.Figures) {
				if f.PrefillTokens < 0 || f.DecodeBlocks < 0 || f.Requests < 0 {
					t.Errorf("worker %v: %+v", k, f)
				}
			})
		}
	})
	wg.Wait()
	for k, f := range figures(table) {
		if f != (load.Figures{}) {
			t.Errorf("all released, yet %v has %+v", k, f)
		}
	}
	table.Retain(snapshot(t))
	if got := figures(table); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestReserveAllocatesTheReservationOnly(t *testing.T) {
	table := load.NewTable()
	prefill, decode := table.Worker(key(1)), table.Worker(key(2))
	if n := testing.AllocsPerRun(100, func() {
		table.Lock()
		r := table.Reserve(load.Booking{PrefillTokens: 1, Blocks: 1, PrefillKey: key(1), DecodeKey: key(2), Prefill: prefill, Decode: decode})
		table.Unlock()
		r.PrefillDone(moment)
		r.Release()
	}); n > 1 {
		t.Errorf("%v allocations per reservation, want at most 1", n)
	}
}
