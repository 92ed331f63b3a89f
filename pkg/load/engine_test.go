package load_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/load"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// forever is an age that no figure of a test reaches.
var forever = load.MaxAge{Occupancy: 1000 * time.Hour, Step: 1000 * time.Hour}

func stated(n uint64, t time.Time) load.Reading { return load.Reading{N: n, At: t} }

func TestOccupancyMergesPerField(t *testing.T) {
	e := load.NewEngines()
	k := key(1)
	for _, tc := range []struct {
		name  string
		state load.Occupancy
		want  load.Occupancy
	}{
		{"nothing stated", load.Occupancy{}, load.Occupancy{}},
		{"the worker states its blocks", load.Occupancy{UsedBlocks: stated(7, at(1))}, load.Occupancy{UsedBlocks: stated(7, at(1))}},
		{
			"a router states the rest",
			load.Occupancy{DecodeBlocks: stated(3, at(2)), PrefillTokens: stated(100, at(2))},
			load.Occupancy{UsedBlocks: stated(7, at(1)), DecodeBlocks: stated(3, at(2)), PrefillTokens: stated(100, at(2))},
		},
		{
			"zero is stated",
			load.Occupancy{UsedBlocks: stated(0, at(3))},
			load.Occupancy{UsedBlocks: stated(0, at(3)), DecodeBlocks: stated(3, at(2)), PrefillTokens: stated(100, at(2))},
		},
		{
			"an older statement",
			load.Occupancy{UsedBlocks: stated(9, at(2.5)), DecodeBlocks: stated(4, at(2.5))},
			load.Occupancy{UsedBlocks: stated(0, at(3)), DecodeBlocks: stated(4, at(2.5)), PrefillTokens: stated(100, at(2))},
		},
		{
			"two at once: the later call",
			load.Occupancy{UsedBlocks: stated(1, at(3))},
			load.Occupancy{UsedBlocks: stated(1, at(3)), DecodeBlocks: stated(4, at(2.5)), PrefillTokens: stated(100, at(2))},
		},
	} {
		e.State(k, tc.state)
		if got := e.Get(k, at(3), forever).Occupancy; got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if got := e.Get(key(2), at(3), forever); got != (load.EngineFigures{}) {
		t.Errorf("a worker that nobody spoke of: %+v", got)
	}
}

func step(counter uint64, tokens uint64, t time.Time) load.Step {
	return load.Step{
		Counter:   counter,
		Scheduled: load.Batch{Prefills: 1, PrefillTokens: tokens, PrefillKVTokens: 2, Decodes: 3, DecodeKVTokens: 4, At: t},
		Queued:    load.Batch{Prefills: 5, PrefillTokens: tokens + 1, Decodes: 6, DecodeKVTokens: 7, At: t},
	}
}

func TestSteps(t *testing.T) {
	e := load.NewEngines()
	k := key(1)
	queued := func() uint64 { return e.Get(k, at(100), forever).Queued.PrefillTokens }
	for _, tc := range []struct {
		name string
		step load.Step
		want uint64 // queued prefill tokens
	}{
		{"first", step(10, 100, at(0)), 101},
		{"next", step(11, 200, at(1)), 201},
		{"a late one", step(9, 300, at(1.1)), 201},
		{"the same again", step(11, 400, at(1.2)), 201},
		{"counters may skip", step(20, 500, at(2)), 501},
		{"late, just before the window ends", step(1, 600, at(6.999)), 501},
		{"the process started over", step(2, 700, at(7)), 701},
		{"and goes on", step(3, 800, at(7.1)), 801},
		{"without batches", load.Step{Counter: 99}, 801},
		{"which do not count", step(4, 900, at(7.2)), 901},
	} {
		e.Step(k, tc.step)
		if got := queued(); got != tc.want {
			t.Fatalf("%s: %d tokens queued, want %d", tc.name, got, tc.want)
		}
	}
	if got := e.Stats(); got != (load.EngineStats{Reordered: 3}) {
		t.Errorf("stats %+v, want 3 reordered", got)
	}
	half := step(5, 1000, at(8))
	half.Queued = load.Batch{}
	e.Step(k, half)
	got := e.Get(k, at(8), forever)
	if want := step(5, 1000, at(8)).Scheduled; got.Scheduled != want {
		t.Errorf("scheduled %+v, want %+v", got.Scheduled, want)
	}
	if want := step(4, 900, at(7.2)).Queued; got.Queued != want {
		t.Errorf("queued %+v, want the older %+v", got.Queued, want)
	}
}

func TestStaleFiguresAreUnknown(t *testing.T) {
	e := load.NewEngines()
	k := key(1)
	e.State(k, load.Occupancy{UsedBlocks: stated(7, at(0)), DecodeBlocks: stated(8, at(10))})
	e.Step(k, load.Step{Scheduled: load.Batch{Decodes: 1, At: at(0)}})
	e.Step(k, load.Step{Counter: 1, Queued: load.Batch{Decodes: 2, At: at(10)}})
	age := load.MaxAge{Occupancy: 15 * time.Second, Step: 5 * time.Second}
	for _, tc := range []struct {
		now  float64
		want [4]bool // used blocks, decode blocks, scheduled, queued
	}{
		{0, [4]bool{true, true, true, true}},
		{5, [4]bool{true, true, true, true}},
		{5.1, [4]bool{true, true, false, true}},
		{15, [4]bool{true, true, false, true}},
		{15.1, [4]bool{false, true, false, false}},
		{25, [4]bool{false, true, false, false}},
		{25.1, [4]bool{}},
	} {
		f := e.Get(k, at(tc.now), age)
		if got := [4]bool{f.UsedBlocks.Known(), f.DecodeBlocks.Known(), f.Scheduled.Known(), f.Queued.Known()}; got != tc.want {
			t.Errorf("at %v: %v, want %v", tc.now, got, tc.want)
		}
		if !f.UsedBlocks.Known() && f.UsedBlocks.N != 0 {
			t.Errorf("at %v: an unknown figure is %d", tc.now, f.UsedBlocks.N)
		}
	}
}

func TestEnginesDropAndRetain(t *testing.T) {
	e := load.NewEngines()
	use := func(id uint64, t time.Time) { e.State(key(id), load.Occupancy{UsedBlocks: stated(id, t)}) }
	has := func(id uint64) bool { return e.Get(key(id), at(0), forever).UsedBlocks.Known() }
	e.Retain(snapshot(t, 1, 2))
	for id := uint64(1); id <= 3; id++ {
		use(id, at(0))
	}
	e.Drop(key(2))
	e.Drop(key(2))
	e.Drop(key(99))
	if !has(1) || has(2) || !has(3) {
		t.Errorf("after Drop: %v %v %v, want all but worker 2", has(1), has(2), has(3))
	}
	e.Retain(snapshot(t, 2))
	if !has(1) || !has(3) {
		t.Error("a worker that blinks lost its figures")
	}
	// 1 and 3 are strangers now: 1022 more fit.
	for id := uint64(1000); id < 2022; id++ {
		use(id, at(1))
	}
	use(5000, at(1))
	if has(5000) || e.Stats().Strangers != 1 {
		t.Errorf("the 1025th stranger is kept: %+v", e.Stats())
	}
	use(2, at(1)) // members always have room
	use(3, at(2)) // known already
	if !has(2) || e.Stats().Strangers != 1 {
		t.Errorf("a member found no room: %+v", e.Stats())
	}
	use(5000, at(600)) // 1 was last heard of ten minutes ago
	if !has(5000) || has(1) || !has(3) {
		t.Error("a stranger that fell silent keeps its place")
	}
	e.Drop(key(5000)) // and makes room
	use(5001, at(600))
	if !has(5001) {
		t.Error("a dropped stranger keeps its place")
	}
	// Without room, the quietest of those that leave the pool go.
	e.Retain(snapshot(t))
	if !has(2) && !has(3) || !has(5001) {
		t.Error("the latest are gone")
	}
}

// routed builds a word about a request.
func routed(kind load.RoutedKind, request string, router uint64, tokens uint64) load.Routed {
	return load.Routed{Kind: kind, Request: []byte(request), Router: router, PrefillTokens: tokens}
}

func TestForeign(t *testing.T) {
	const worker, r1, r2 = 1, 100, 200
	type word struct {
		at     float64
		kind   load.RoutedKind
		router uint64
	}
	none, both := load.Foreign{}, load.Foreign{Requests: 1, PrefillTokens: 50}
	decoding := load.Foreign{Requests: 1}
	for _, tc := range []struct {
		name  string
		words []word
		at    float64
		want  load.Foreign
	}{
		{"placed", []word{{0, load.Placed, r1}}, 0, both},
		{"placed twice", []word{{0, load.Placed, r1}, {1, load.Placed, r1}}, 1, both},
		{"through two routers", []word{{0, load.Placed, r1}, {0, load.Placed, r2}}, 0, load.Foreign{Requests: 2, PrefillTokens: 100}},
		{"prefill done", []word{{0, load.Placed, r1}, {1, load.PrefillDone, r1}}, 1, decoding},
		{"prefill done before", []word{{0, load.PrefillDone, r1}, {1, load.Placed, r1}}, 1, decoding},
		{"prefill done, by another router", []word{{0, load.Placed, r1}, {1, load.PrefillDone, r2}}, 1, both},
		{"prefill done, by the worker", []word{{0, load.Placed, r1}, {0, load.Placed, r2}, {1, load.PrefillDone, worker}}, 1, load.Foreign{Requests: 2}},
		{"by the worker, before", []word{{0, load.PrefillDone, worker}, {1, load.Placed, r1}, {2, load.Placed, r2}}, 2, load.Foreign{Requests: 2}},
		{"by the worker, of one that ended", []word{{0, load.Placed, r1}, {1, load.Finished, r1}, {2, load.PrefillDone, worker}}, 2, none},
		{"finished", []word{{0, load.Placed, r1}, {1, load.PrefillDone, r1}, {2, load.Finished, r1}}, 2, none},
		{"finished, by another router", []word{{0, load.Placed, r1}, {2, load.Finished, r2}}, 2, both},
		{"finished while its prompt is computed", []word{{0, load.Placed, r1}, {2, load.Finished, r1}}, 2, none},
		{"finished first: no phantom", []word{{0, load.Finished, r1}, {1, load.Placed, r1}}, 1, none},
		{"finished first, all mixed", []word{{0, load.Finished, r1}, {0, load.PrefillDone, r1}, {0, load.Finished, r1}, {1, load.Placed, r1}}, 1, none},
		{"prefill done after finished", []word{{0, load.Placed, r1}, {0, load.Finished, r1}, {1, load.PrefillDone, r1}}, 1, none},
		{"the end is remembered", []word{{0, load.Finished, r1}, {59.9, load.Placed, r1}}, 59.9, none},
		{"for a minute", []word{{0, load.Finished, r1}, {60, load.Placed, r1}}, 60, both},
		{"likewise the prompt", []word{{0, load.PrefillDone, r1}, {59.9, load.Placed, r1}}, 59.9, decoding},
		{"for a minute as well", []word{{0, load.PrefillDone, r1}, {60, load.Placed, r1}}, 60, both},
		{"placed long ago", []word{{0, load.Placed, r1}}, 299.9, both},
		{"too long ago", []word{{0, load.Placed, r1}}, 300, none},
		{"told again, which is no news", []word{{0, load.Placed, r1}, {200, load.Placed, r1}}, 300, none},
		{"counted from when it was placed", []word{{0, load.PrefillDone, r1}, {50, load.Placed, r1}}, 349, decoding},
		{"a word of no kind", []word{{0, 0, r1}, {0, 77, r1}}, 0, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := load.NewEngines()
			for _, w := range tc.words {
				e.Route(key(worker), routed(w.kind, "r", w.router, 50), at(w.at))
			}
			if got := e.Get(key(worker), at(tc.at), forever).Foreign; got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if got := e.Get(key(2), at(tc.at), forever).Foreign; got != none {
				t.Errorf("another worker: %+v", got)
			}
		})
	}
}

func TestForeignStats(t *testing.T) {
	e := load.NewEngines()
	k := key(1)
	e.Route(k, routed(load.Placed, strings.Repeat("x", 257), 5, 1), at(0))
	e.Route(k, routed(load.Finished, "late", 5, 1), at(0))
	e.Route(k, routed(load.Placed, "late", 5, 1), at(0))
	if got := e.Get(k, at(0), forever).Foreign; got != (load.Foreign{}) {
		t.Errorf("%+v, want nothing", got)
	}
	e.Route(k, routed(load.Placed, strings.Repeat("x", 256), 5, 1<<64-1), at(0))
	e.Route(k, routed(load.Placed, "y", 5, 1<<64-1), at(0))
	if got := e.Get(k, at(0), forever).Foreign; got != (load.Foreign{Requests: 2, PrefillTokens: 2 << 32}) {
		t.Errorf("%+v, want the largest figures", got)
	}
	for router := range uint64(20) {
		e.Route(k, routed(load.Placed, "many", router, 0), at(0))
	}
	if got := e.Get(k, at(0), forever).Foreign.Requests; got != 18 {
		t.Errorf("%d requests, want 2 and one through 16 routers", got)
	}
	e.Get(k, at(300), forever)
	if got := e.Stats(); got != (load.EngineStats{LongIDs: 1, LateAdds: 1, Overflowed: 4, Expired: 18}) {
		t.Errorf("stats %+v", got)
	}
}

// TestForeignBounds: of too many requests and words the oldest are forgotten.
func TestForeignBounds(t *testing.T) {
	const bound = 1 << 16
	e := load.NewEngines()
	for i := range bound + 10 {
		e.Route(key(1), routed(load.Placed, fmt.Sprint("p", i), 5, 2), at(0))
		e.Route(key(2), routed(load.Finished, fmt.Sprint("f", i), 5, 0), at(0))
	}
	if got := e.Get(key(1), at(0), forever).Foreign; got != (load.Foreign{Requests: bound, PrefillTokens: 2 * bound}) {
		t.Errorf("%+v, want %d requests", got, bound)
	}
	for i := range bound + 10 {
		e.Route(key(2), routed(load.Placed, fmt.Sprint("f", i), 5, 0), at(0))
	}
	if got := e.Get(key(2), at(0), forever).Foreign.Requests; got != 10 {
		t.Errorf("%d phantoms, want the 10 whose end is forgotten", got)
	}
	if got := e.Stats(); got.Overflowed != 30 || got.LateAdds != bound {
		t.Errorf("%+v, want 10 ends and 20 requests overflowed", got)
	}
}

// TestDropForgetsPlacedRequests: but not the ends that were told early.
func TestDropForgetsPlacedRequests(t *testing.T) {
	e := load.NewEngines()
	for _, id := range []uint64{1, 2} {
		e.Route(key(id), routed(load.Placed, "a", 5, 10), at(0))
		e.Route(key(id), routed(load.Placed, "b", 5, 10), at(0))
		e.Route(key(id), routed(load.Finished, "early", 5, 0), at(0))
	}
	e.Drop(key(1))
	if got := e.Get(key(1), at(0), forever).Foreign; got != (load.Foreign{}) {
		t.Errorf("after Drop: %+v", got)
	}
	if got := e.Get(key(2), at(0), forever).Foreign.Requests; got != 2 {
		t.Errorf("the other worker has %d requests, want 2", got)
	}
	e.Route(key(1), routed(load.Placed, "early", 5, 10), at(1))
	e.Route(key(1), routed(load.Placed, "a", 5, 10), at(1)) // the new process got it again
	if got := e.Get(key(1), at(1), forever).Foreign.Requests; got != 1 {
		t.Errorf("%d requests, want the one that was placed again", got)
	}
}

// TestEnginesConcurrently is for the race detector; what is added up must come
// out whole.
func TestEnginesConcurrently(t *testing.T) {
	const writers, requests = 4, 200
	e := load.NewEngines()
	pool := snapshot(t, 1, 2)
	var wg sync.WaitGroup
	for w := range uint64(writers) {
		wg.Go(func() {
			for i := range uint64(requests) {
				id := fmt.Sprint(w, "-", i)
				k := key(1 + i%2)
				e.Route(k, routed(load.Placed, id, w, 10), at(0))
				e.State(k, load.Occupancy{UsedBlocks: stated(i, at(0))})
				e.Step(k, step(i, i, at(0)))
				e.Route(k, routed(load.PrefillDone, id, w, 0), at(0))
				if i%4 < 2 {
					e.Route(k, routed(load.Finished, id, w, 0), at(0))
				}
			}
		})
	}
	wg.Go(func() {
		for range requests {
			e.Retain(pool)
			e.Drop(key(3))
			e.Get(key(1), at(0), forever)
			e.Stats()
		}
	})
	wg.Wait()
	for id := uint64(1); id <= 2; id++ {
		if got := e.Get(key(id), at(0), forever); got.Foreign != (load.Foreign{Requests: writers * requests / 4}) || !got.UsedBlocks.Known() || got.Queued.PrefillTokens != requests-2+id {
			t.Errorf("worker %d: %+v", id, got)
		}
	}
}

// TestFiguresCostNoAllocations: load messages come by the thousand, and decisions
// read figures of every worker.
func TestFiguresCostNoAllocations(t *testing.T) {
	e := load.NewEngines()
	k, placed := key(1), routed(load.Placed, strings.Repeat("r", 36), 5, 7)
	e.Route(k, placed, at(0))
	now, n := at(0), uint64(0)
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		e.State(k, load.Occupancy{UsedBlocks: stated(n, now)})
		e.Step(k, step(n, n, now))
		e.Route(k, placed, now)
		if e.Get(k, now, forever).UsedBlocks.N != n {
			t.Error("the figure is not there")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
