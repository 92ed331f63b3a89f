package load_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// fed is a table that is fed, with one worker in it.
func fed() (*load.Engines, *load.Table, *load.Worker) {
	e, table := load.NewEngines(), load.NewTable()
	e.Feed(table)
	return e, table, table.Worker(key(1))
}

// queue is a step of an engine that states so many outstanding prompt tokens.
func queue(counter, tokens uint64, t time.Time) load.Step {
	return load.Step{Counter: counter, Scheduled: load.Batch{PrefillTokens: tokens / 2, At: t}, Queued: load.Batch{PrefillTokens: tokens - tokens/2, At: t}}
}

func TestRequestsOfOthersCount(t *testing.T) {
	e, table, w := fed()
	r := reserve(table, 1, 1, 50, 3)
	for _, tc := range []struct {
		name  string
		word  load.Routed
		want  load.Figures
		grows bool
	}{
		{"placed", load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: 100, Blocks: 7}, load.Figures{PrefillTokens: 150, DecodeBlocks: 10, Requests: 2}, true},
		{"again", load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: 100, Blocks: 7}, load.Figures{PrefillTokens: 150, DecodeBlocks: 10, Requests: 2}, false},
		{"another", load.Routed{Kind: load.Placed, Request: []byte("b"), Router: 7}, load.Figures{PrefillTokens: 150, DecodeBlocks: 10, Requests: 3}, true},
		{"computed", load.Routed{Kind: load.PrefillDone, Request: []byte("a"), Router: 7}, load.Figures{PrefillTokens: 50, DecodeBlocks: 10, Requests: 3}, false},
		{"finished", load.Routed{Kind: load.Finished, Request: []byte("a"), Router: 7}, load.Figures{PrefillTokens: 50, DecodeBlocks: 3, Requests: 2}, false},
	} {
		before := w.Version()
		e.Route(key(1), tc.word, at(0))
		if got := w.Figures(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if grew := w.Version() != before; grew != tc.grows {
			t.Errorf("%s: version changed: %v, want %v", tc.name, grew, tc.grows)
		}
	}
	table.Booked(func(k fleet.Key, f load.Figures) {
		if want := (load.Figures{PrefillTokens: 50, DecodeBlocks: 3, Requests: 1}); f != want {
			t.Errorf("booked here: %+v, want %+v", f, want)
		}
	})
	e.State(key(1), load.Occupancy{UsedBlocks: stated(1, at(301))}) // b has expired
	if got, want := w.Figures(), (load.Figures{PrefillTokens: 50, DecodeBlocks: 3, Requests: 1}); got != want {
		t.Errorf("nobody told its end: %+v, want %+v", got, want)
	}
	e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte("c"), Router: 7, PrefillTokens: 100, Blocks: 7}, at(302))
	e.Drop(key(1))
	r.Release()
	if got := w.Figures(); got != (load.Figures{}) {
		t.Errorf("the process is gone, and the request over: %+v", got)
	}
}

// TestCorrection: 100 tokens are booked here and 50 by others.
func TestCorrection(t *testing.T) {
	const booked = 150
	type say struct {
		after  float64 // seconds from the start
		tokens uint64
		router bool // it says so, not the engine
		want   int  // tokens right after
	}
	for _, tc := range []struct {
		name  string
		says  []say
		later map[float64]int // tokens by seconds from the start
	}{
		{"as booked", []say{{0, booked, false, booked}}, map[float64]int{2: booked}},
		{"more, which fades", []say{{0, 250, false, 250}}, map[float64]int{1: 230, 2.5: 200, 4: 170, 5: booked, 100: booked}},
		{"more, then as booked", []say{{0, 250, false, 250}, {0.1, booked, false, booked}}, nil},
		{"less, once", []say{{0, 50, false, booked}}, map[float64]int{1: booked}},
		{"more, then less", []say{{0, 250, false, 250}, {0.1, 50, false, booked}}, nil},
		{"less twice, too soon", []say{{0, 50, false, booked}, {0.04, 50, false, booked}}, map[float64]int{1: booked}},
		{"less for a while", []say{{0, 50, false, booked}, {0.05, 50, false, 50}}, map[float64]int{2.55: 100, 5.05: booked}},
		{"the one nearest to what is booked", []say{{0, 0, false, booked}, {0.02, 120, false, booked}, {0.04, 0, false, booked}, {0.06, 20, false, 120}}, nil},
		{"nearer at once, once believed", []say{{0, 0, false, booked}, {0.06, 0, false, 0}, {0.07, 140, false, 140}}, nil},
		{"less, as booked, less", []say{{0, 50, false, booked}, {0.1, booked, false, booked}, {0.2, 50, false, booked}}, nil},
		{"less, with too long a silence", []say{{0, 50, false, booked}, {6, 50, false, booked}, {6.1, 60, false, 60}}, nil},
		{"a router knows more", []say{{0, 400, true, 400}}, map[float64]int{2.5: 275}},
		{"a router knows less", []say{{0, 50, true, booked}, {1, 50, true, booked}}, nil},
		{"the engine knows better than a router", []say{{0, 200, false, 200}, {0.1, 400, true, 199}}, nil},
		{"far too much", []say{{0, math.MaxUint64, false, 1 << 26}}, map[float64]int{5: booked}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, table, w := fed()
			reserve(table, 1, 1, 100, 0)
			e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: 50}, at(0))
			for i, s := range tc.says {
				if s.router {
					e.State(key(1), load.Occupancy{PrefillTokens: stated(s.tokens, at(s.after))})
				} else {
					e.Step(key(1), queue(uint64(i+1), s.tokens, at(s.after)))
				}
				table.Age(at(s.after))
				if got := w.Figures().PrefillTokens; got < s.want-2 || got > s.want+2 {
					t.Errorf("statement %d: %d tokens, want %d", i, got, s.want)
				}
			}
			for _, s := range []float64{1, 2, 2.5, 2.55, 4, 5, 5.05, 100} {
				want, ok := tc.later[s]
				if !ok {
					continue
				}
				before, was := w.Version(), w.Figures().PrefillTokens
				table.Lock()
				table.Arrived(at(s), 1)
				table.Unlock()
				if got := w.Figures().PrefillTokens; got < want-1 || got > want+1 {
					t.Errorf("after %v s: %d tokens, want %d", s, got, want)
				}
				if grew := w.Figures().PrefillTokens > was; grew != (w.Version() != before) {
					t.Errorf("after %v s: grew %v, version %d, was %d", s, grew, w.Version(), before)
				}
			}
		})
	}
}

// TestCorrectionStaysInBounds: what is booked is corrected by no more than some
// statement of the last 5 seconds differed, and not at all once there was none.
func TestCorrectionStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, table, w := fed()
		type fact struct {
			at float64
			by int // what was stated without what was booked
		}
		type request struct {
			r *load.Reservation
			n int
		}
		var facts []fact
		var live []request
		now, counter, booked := 0.0, uint64(0), 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				least, most := 0, 0
				for _, f := range facts {
					if now-f.at < 5 {
						least, most = min(least, f.by), max(most, f.by)
					}
				}
				table.Age(at(now))
				if got := w.Figures().PrefillTokens; got < max(0, booked+least) || got > max(0, booked+most) {
					t.Fatalf("%d tokens, want %d to %d", got, booked+least, booked+most)
				}
			},
			"book": func(t *rapid.T) {
				n := rapid.IntRange(0, 100).Draw(t, "tokens")
				live, booked = append(live, request{reserve(table, 1, 1, n, 0), n}), booked+n
			},
			"end": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("none")
				}
				live[0].r.Release()
				booked -= live[0].n
				live = live[1:]
			},
			"state": func(t *rapid.T) {
				n := rapid.IntRange(0, 300).Draw(t, "tokens")
				counter++
				e.Step(key(1), queue(counter, uint64(n), at(now)))
				facts = append(facts, fact{now, n - booked})
			},
			"time": func(t *rapid.T) { now += rapid.SampledFrom([]float64{0.1, 0.2, 1, 5}).Draw(t, "seconds") },
		})
		table.Age(at(now + 5.1))
		if got := w.Figures().PrefillTokens; got != booked {
			t.Fatalf("%d tokens in the end, want %d", got, booked)
		}
	})
}

// silent are metrics that say nothing.
func silent(t time.Time) load.Scraped {
	return load.Scraped{At: t, Waiting: -1, Running: -1, KVUse: -1, KVBlocks: -1, Block: -1, MaxAdapters: -1}
}

func TestScraped(t *testing.T) {
	e, table, w := fed()
	full := load.Scraped{At: at(0), Waiting: 3, KVUse: 0.5, KVBlocks: 1000}
	for _, tc := range []struct {
		name string
		say  func()
		now  float64
		want load.Figures
	}{
		{"nothing said", func() {}, 0, load.Figures{}},
		{"scraped", func() { e.Scraped(key(1), full) }, 0, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"an older one", func() { e.Scraped(key(1), load.Scraped{At: at(-1), Waiting: 9, KVUse: 0.9}) }, 1, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"not a time", func() { e.Scraped(key(1), load.Scraped{Waiting: 9, KVUse: 0.9}) }, 1, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"silence is no zero", func() { e.Scraped(key(1), silent(at(1))) }, 1, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"no share", func() { s := silent(at(1)); s.KVUse = math.NaN(); e.Scraped(key(1), s) }, 1, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"a share that is none", func() { s := silent(at(1)); s.KVUse = 50; e.Scraped(key(1), s) }, 1, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"just before they are old", func() {}, 4.9, load.Figures{KVUse: 0.5, KVBlocks: 1000, Waiting: 3}},
		{"old: how much it can hold stays", func() {}, 5, load.Figures{KVBlocks: 1000}},
		{"the worker states its blocks", func() { e.State(key(1), load.Occupancy{UsedBlocks: stated(250, at(6))}) }, 6, load.Figures{KVUse: 0.25, KVBlocks: 1000}},
		{"which it does on change only", func() {}, 65.9, load.Figures{KVUse: 0.25, KVBlocks: 1000}},
		{"and not for ever", func() {}, 66, load.Figures{KVBlocks: 1000}},
		{"more than there are", func() { e.State(key(1), load.Occupancy{UsedBlocks: stated(1001, at(67))}) }, 67, load.Figures{KVUse: 1, KVBlocks: 1000}},
		{"the latest counts", func() { s := silent(at(68)); s.KVUse = 0.75; e.Scraped(key(1), s) }, 68, load.Figures{KVUse: 0.75, KVBlocks: 1000}},
		{"and nothing older after it", func() {}, 73, load.Figures{KVBlocks: 1000}},
		{"its queue", func() { e.Step(key(1), load.Step{Queued: load.Batch{Prefills: 2, Decodes: 3, At: at(74)}}) }, 74, load.Figures{KVBlocks: 1000, Waiting: 5}},
		{"which is old", func() {}, 79, load.Figures{KVBlocks: 1000}},
		{"its process is gone", func() { e.Drop(key(1)) }, 79, load.Figures{}},
	} {
		tc.say()
		table.Age(at(tc.now))
		if got := w.Figures(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestAdapters(t *testing.T) {
	e, table, w := fed()
	loaded := []string{"a", "b"}
	metrics := silent(at(0))
	metrics.Adapters, metrics.WaitingAdapters, metrics.MaxAdapters = loaded, []string{"c"}, 3
	states := func() string {
		return fmt.Sprint(w.Adapter("a"), w.Adapter("b"), w.Adapter("c"), w.Adapter("d"))
	}
	const u, a, q, l, f = load.AdapterUnknown, load.AdapterAbsent, load.AdapterWaiting, load.AdapterLoaded, load.AdapterFull
	check := func(name string, now float64, want ...any) {
		t.Helper()
		table.Age(at(now))
		if got := states(); got != fmt.Sprint(want...) {
			t.Errorf("%s: %s, want %s", name, got, fmt.Sprint(want...))
		}
	}
	check("nothing said", 0, u, u, u, u)
	e.Scraped(key(1), metrics)
	loaded[0] = "reused"
	check("scraped", 0, l, l, q, a)
	metrics.At, metrics.Adapters, metrics.MaxAdapters = at(1), []string{"a", "d"}, 2
	e.Scraped(key(1), metrics)
	check("full", 1, l, f, q, l)
	check("just before it is old", 60.9, l, f, q, l)
	check("old", 61, u, u, u, u)
	metrics.At = at(62)
	e.Scraped(key(1), metrics)
	check("the same as before", 62, l, f, q, l)
	e.Scraped(key(1), silent(at(63)))
	check("it does not say", 63, u, u, u, u)
	metrics.At, metrics.Adapters, metrics.WaitingAdapters = at(64), []string{}, nil
	e.Scraped(key(1), metrics)
	check("none loaded", 64, a, a, a, a)
}

func TestFeeding(t *testing.T) {
	word := func(request string, tokens uint64) load.Routed { return routed(load.Placed, request, 7, tokens) }
	prefill := func(w *load.Worker) int { return w.Figures().PrefillTokens }
	t.Run("what was said before", func(t *testing.T) {
		e, table := load.NewEngines(), load.NewTable()
		w := table.Worker(key(1))
		e.Route(key(1), word("a", 10), at(0))
		e.Route(key(2), word("b", 20), at(0))
		e.Scraped(key(2), load.Scraped{At: at(0), Waiting: 3, KVUse: -1})
		e.Feed(table)
		if got := prefill(w); got != 10 {
			t.Errorf("%d tokens, want those said before", got)
		}
		if got, want := table.Worker(key(2)).Figures(), (load.Figures{PrefillTokens: 20, Requests: 1, Waiting: 3}); got != want {
			t.Errorf("a worker that joins: %+v, want %+v", got, want)
		}
	})
	t.Run("the last word counts", func(t *testing.T) {
		old, table, w := fed()
		next := load.NewEngines()
		old.Route(key(1), word("a", 10), at(0))
		next.Route(key(1), word("b", 1), at(0))
		next.Feed(table)
		next.Feed(table) // twice is once
		if got := prefill(w); got != 1 {
			t.Errorf("%d tokens, want what the second says", got)
		}
		old.Route(key(1), word("c", 20), at(1))
		if got := prefill(w); got != 30 {
			t.Errorf("%d tokens, want what the first says by now", got)
		}
		old.Unfeed()
		old.Route(key(1), word("d", 100), at(2))
		if got := prefill(w); got != 1 {
			t.Errorf("%d tokens, want what the second says", got)
		}
		next.Unfeed()
		next.Unfeed()
		if got := w.Figures(); got != (load.Figures{}) {
			t.Errorf("nobody is left: %+v", got)
		}
		if got := table.Worker(key(2)).Figures(); got != (load.Figures{}) {
			t.Errorf("a new worker: %+v", got)
		}
	})
	t.Run("a worker that left and came back", func(t *testing.T) {
		e, table, _ := fed()
		e.Route(key(1), word("a", 10), at(0))
		table.Retain(snapshot(t))
		if got := figures(table); len(got) != 0 {
			t.Errorf("others keep a worker that left: %v", got)
		}
		e.Route(key(1), word("b", 10), at(0))
		if got := prefill(table.Worker(key(1))); got != 20 {
			t.Errorf("%d tokens, want 20", got)
		}
	})
}

func TestWorkersWordOnOurRequests(t *testing.T) {
	done := func(worker uint64, request string) func(e *load.Engines) {
		return func(e *load.Engines) { e.Route(key(worker), routed(load.PrefillDone, request, worker, 0), at(0)) }
	}
	for _, tc := range []struct {
		name string
		word func(*load.Engines)
		want int // tokens left of 100
	}{
		{"of the prefill worker", done(1, "r"), 0},
		{"of the decode worker, which has the blocks", done(2, "r"), 0},
		{"of another worker", done(3, "r"), 100},
		{"of another request", done(1, "s"), 100},
		{"of a router", func(e *load.Engines) { e.Route(key(1), routed(load.PrefillDone, "r", 7, 0), at(0)) }, 100},
		{"that is another one", func(e *load.Engines) { e.Route(key(1), routed(load.Finished, "r", 1, 0), at(0)) }, 100},
	} {
		for _, order := range []string{"after", "before"} {
			t.Run(tc.name+" "+order+" its name", func(t *testing.T) {
				e, table, w := fed()
				r := reserve(table, 1, 2, 100, 7)
				if order == "before" {
					tc.word(e)
				}
				r.Name("r")
				if order == "after" {
					tc.word(e)
				}
				if got := w.Figures().PrefillTokens; got != tc.want {
					t.Errorf("%d tokens, want %d", got, tc.want)
				}
				if got := figures(table)[key(2)]; got.Requests != 1 || got.DecodeBlocks != 7 {
					t.Errorf("decode worker: %+v", got)
				}
				r.PrefillDone(moment)
				r.Release()
				if got := w.Figures(); got != (load.Figures{}) {
					t.Errorf("released: %+v", got)
				}
				if _, names := table.Left(); names != 0 {
					t.Errorf("%d names left", names)
				}
			})
		}
	}
	t.Run("names", func(t *testing.T) {
		e, table, w := fed()
		first, second, over := reserve(table, 1, 1, 100, 0), reserve(table, 1, 1, 10, 0), reserve(table, 1, 1, 1, 0)
		first.Name("a")
		first.Name("b")
		second.Name("b") // tried again, with the same id
		over.Release()
		over.Name("c")
		second.Name("")
		for _, id := range []string{"a", "b", "c"} {
			done(1, id)(e)
		}
		if got := w.Figures().PrefillTokens; got != 100 {
			t.Errorf("%d tokens, want those of the first: the id is the second's", got)
		}
		first.Release()
		second.Release()
		if _, names := table.Left(); names != 0 {
			t.Errorf("%d names left", names)
		}
	})
}

// TestFeedingConcurrently is for the race detector; what ended must be gone.
func TestFeedingConcurrently(t *testing.T) {
	const writers, requests = 3, 100
	table := load.NewTable()
	pool := snapshot(t, 1, 2)
	engines := []*load.Engines{load.NewEngines(), load.NewEngines()}
	var wg sync.WaitGroup
	for g := range uint64(writers) {
		wg.Go(func() {
			e := engines[g%2]
			for i := range uint64(requests) {
				k, id := key(1+i%2), fmt.Sprint(g, "-", i)
				e.Route(k, load.Routed{Kind: load.Placed, Request: []byte(id), Router: 7, PrefillTokens: 10, Blocks: 2}, at(0))
				e.Step(k, queue(i, i, at(float64(i))))
				e.State(k, load.Occupancy{UsedBlocks: stated(i, at(float64(i)))})
				e.Scraped(k, load.Scraped{At: at(float64(i)), KVUse: 0.5, KVBlocks: 10, Adapters: []string{id}})
				e.Route(k, routed(load.Finished, id, 7, 0), at(0))
			}
		})
		wg.Go(func() {
			for i := range uint64(requests) {
				id := fmt.Sprint("own-", g, "-", i)
				r := reserve(table, 1+i%2, 1+g%2, 10, 1)
				wg.Go(func() { r.Name(id) })
				wg.Go(func() { engines[0].Route(key(1+i%2), routed(load.PrefillDone, id, 1+i%2, 0), at(0)) })
				table.Age(at(float64(i)))
				table.Worker(key(1)).Adapter("a")
				wg.Go(r.Release)
			}
		})
	}
	wg.Go(func() {
		for range requests {
			for _, e := range engines {
				e.Feed(table)
			}
			table.Retain(pool)
			engines[0].Unfeed()
			engines[1].Drop(key(2))
		}
	})
	wg.Wait()
	for _, e := range engines {
		e.Feed(table)
	}
	for id := uint64(1); id <= 2; id++ {
		f := table.Worker(key(id)).Figures()
		if f.PrefillTokens > 2*requests || f.DecodeBlocks != 0 || f.Requests != 0 {
			t.Errorf("worker %d: %+v", id, f)
		}
	}
	for _, e := range engines {
		e.Unfeed()
	}
	for k, f := range figures(table) {
		if f != (load.Figures{}) {
			t.Errorf("nobody says anything any more, yet %v has %+v", k, f)
		}
	}
	if _, names := table.Left(); names != 0 {
		t.Errorf("%d names left", names)
	}
}

// TestFeedingCostsNoAllocations: nor does it to hear of one's own requests.
func TestFeedingCostsNoAllocations(t *testing.T) {
	e, table, w := fed()
	metrics := load.Scraped{KVUse: 0.5, KVBlocks: 10, Adapters: []string{"a"}}
	placed := routed(load.Placed, "of another router", 5, 7)
	own := routed(load.PrefillDone, "of this one", 1, 0)
	e.Route(key(1), placed, at(0))
	e.Route(key(1), own, at(0))
	n := uint64(0)
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		now := at(float64(n) / 10)
		metrics.At = now
		e.State(key(1), load.Occupancy{UsedBlocks: stated(n, now)})
		e.Step(key(1), queue(n, n, now))
		e.Scraped(key(1), metrics)
		e.Route(key(1), placed, at(0))
		e.Route(key(1), own, at(0))
		table.Age(now)
		if w.Figures().PrefillTokens == 0 || w.Adapter("a") != load.AdapterLoaded {
			t.Error("it was not told")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestAging: figures age by themselves in no other way than by Age, Arrived and
// what is said of any worker; a clock that is put back keeps nothing from it.
func TestAging(t *testing.T) {
	for name, age := range map[string]func(*load.Engines, *load.Table, time.Time){
		"Age": func(_ *load.Engines, table *load.Table, now time.Time) { table.Age(now) },
		"Arrived": func(_ *load.Engines, table *load.Table, now time.Time) {
			table.Lock()
			table.Arrived(now, 1)
			table.Unlock()
		},
		"a word": func(e *load.Engines, _ *load.Table, now time.Time) { e.Scraped(key(2), load.Scraped{At: now}) },
	} {
		t.Run(name, func(t *testing.T) {
			e, table, w := fed()
			table.Worker(key(2))
			waits := func(want int) {
				t.Helper()
				if got := w.Figures().Waiting; got != want {
					t.Errorf("%d requests wait, want %d", got, want)
				}
			}
			e.Scraped(key(1), load.Scraped{At: at(3600), Waiting: 3})
			age(e, table, at(3604))
			waits(3)
			age(e, table, at(3604.95))
			e.Scraped(key(1), load.Scraped{At: at(3600), Waiting: 3})
			age(e, table, at(3605.01)) // too soon after the last time
			waits(3)
			age(e, table, at(3605.06))
			waits(0)
			table.Age(at(0)) // the clock is put back
			e.Drop(key(1))
			e.Scraped(key(1), load.Scraped{At: at(1), Waiting: 4})
			waits(4)
			age(e, table, at(5.9))
			waits(4)
			age(e, table, at(6))
			waits(0)
		})
	}
}

// TestAgingInTurns: many workers are aged in turns, all of them within a tenth of a
// second, and all at once when nobody asked for longer than that.
func TestAgingInTurns(t *testing.T) {
	const workers = 1000
	e, table := load.NewEngines(), load.NewTable()
	e.Feed(table)
	say := func(now float64) {
		for i := range uint64(workers) {
			table.Worker(key(i))
			e.Scraped(key(i), load.Scraped{At: at(now), Waiting: 1})
		}
	}
	waiting := func() (n int) {
		for _, f := range figures(table) {
			n += f.Waiting
		}
		return n
	}
	say(0)
	table.Age(at(4.99))
	last := waiting()
	if last != workers {
		t.Fatalf("%d requests wait, want all", last)
	}
	for ms := 5000.0; ms < 5110; ms++ {
		table.Age(at(ms / 1000))
		now := waiting()
		if aged := last - now; aged > workers/8 {
			t.Errorf("%d workers aged at once, want a few", aged)
		}
		last = now
	}
	if last != 0 {
		t.Errorf("%d requests still wait", last)
	}
	say(10)
	table.Age(at(15.1))
	if n := waiting(); n != 0 {
		t.Errorf("%d requests still wait after a silence", n)
	}
}
