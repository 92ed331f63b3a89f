package load_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// teller is a router that tells words and states, and knows the truth.
type teller struct {
	id    uint64
	clock uint64
	open  map[string]load.OpenRequest // by request and worker
}

func (r *teller) word(kind load.RoutedKind, o load.OpenRequest) load.Routed {
	return load.Routed{Kind: kind, Request: o.Request, Router: r.id, PrefillTokens: o.PrefillTokens, At: r.clock}
}

// state is all that is open, in some parts.
func (r *teller) state(parts int) (all []load.RouterState) {
	for i := range parts {
		all = append(all, load.RouterState{Router: r.id, At: r.clock, Part: i, Parts: parts})
	}
	i := 0
	for _, o := range r.open {
		all[i%parts].Open = append(all[i%parts].Open, o)
		i++
	}
	r.clock++ // what is said later is later
	return all
}

// truth is what is open on a worker.
func (r *teller) truth(k fleet.Key) (f load.Foreign) {
	for _, o := range r.open {
		if o.Worker == k {
			f.Requests++
			if !o.Prefilled {
				f.PrefillTokens += o.PrefillTokens
			}
		}
	}
	return f
}

// said is one message of a teller.
type said func(*load.Engines)

// act lets something happen, and returns what is said of it.
func (r *teller) act(t *rapid.T, n int) (messages []said) {
	tell := func(k fleet.Key, w load.Routed) {
		messages = append(messages, func(e *load.Engines) { e.Route(k, w, start) })
	}
	r.clock += rapid.Uint64Range(0, 2).Draw(t, "later")
	var names []string
	for name := range r.open {
		names = append(names, name)
	}
	slices.Sort(names)
	what := rapid.IntRange(0, 3).Draw(t, "what")
	switch {
	case what == 0:
		for _, part := range r.state(rapid.IntRange(1, 3).Draw(t, "parts")) {
			messages = append(messages, func(e *load.Engines) { e.RouterState(part, start) })
		}
		return messages
	case what == 1 || len(names) == 0:
		o := load.OpenRequest{
			Worker: key(rapid.Uint64Range(1, 2).Draw(t, "worker")), Request: []byte(fmt.Sprint(n)),
			PrefillTokens: rapid.Uint64Range(0, 99).Draw(t, "tokens"),
		}
		r.open[fmt.Sprint(n)] = o
		tell(o.Worker, r.word(load.Placed, o))
	case what == 2:
		name := rapid.SampledFrom(names).Draw(t, "prefilled")
		o := r.open[name]
		o.Prefilled = true
		r.open[name] = o
		tell(o.Worker, r.word(load.PrefillDone, o))
	default:
		name := rapid.SampledFrom(names).Draw(t, "finished")
		tell(r.open[name].Worker, r.word(load.Finished, r.open[name]))
		delete(r.open, name)
	}
	return messages
}

// TestStatesHeal: whatever was lost, came twice or in another order, a state leads
// to the truth as of then, and together with the later words to that of now.
func TestStatesHeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &teller{id: 7, clock: 1000, open: map[string]load.OpenRequest{}}
		var before, sure []said
		n := rapid.IntRange(0, 25).Draw(t, "before")
		for i := range n {
			before = append(before, r.act(t, i)...)
		}
		for _, part := range r.state(rapid.IntRange(1, 3).Draw(t, "parts")) {
			sure = append(sure, func(e *load.Engines) { e.RouterState(part, start) })
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "after") {
			sure = append(sure, r.act(t, n+i)...)
		}
		some := slices.DeleteFunc(slices.Clone(before), func(said) bool { return rapid.Bool().Draw(t, "lost") })
		all := slices.Concat(some, sure)
		for _, m := range slices.Concat(before, sure) {
			if rapid.IntRange(0, 4).Draw(t, "twice") == 0 && len(some) > 0 {
				all = append(all, m)
			}
		}
		e := load.NewEngines()
		e.RouterAlive(r.id, 1, start)
		for _, m := range rapid.Permutation(all).Draw(t, "order") {
			m(e)
		}
		for id := range uint64(3) {
			if got, want := e.Get(key(id), start, forever).Foreign, r.truth(key(id)); got != want {
				t.Fatalf("worker %d: %+v, want %+v", id, got, want)
			}
		}
	})
}

// openOn builds a line of a state.
func openOn(worker uint64, request string, tokens uint64) load.OpenRequest {
	return load.OpenRequest{Worker: key(worker), Request: []byte(request), PrefillTokens: tokens}
}

// timed is a word with its router's time.
func timed(kind load.RoutedKind, request string, router, at uint64) load.Routed {
	return load.Routed{Kind: kind, Request: []byte(request), Router: router, PrefillTokens: 10, At: at}
}

func requestsOn(e *load.Engines, worker uint64, s float64) uint64 {
	return e.Get(key(worker), at(s), forever).Foreign.Requests
}

// TestSilentRouters: who is silent for three heartbeats is dead, all its requests
// with it, until it is heard again. Those who tell no state are no such routers.
func TestSilentRouters(t *testing.T) {
	const one, other, dynamos = 7, 8, 9
	e := load.NewEngines()
	never := at(-1000)
	if !e.RouterAlive(one, 1000, at(0)) || e.RouterAlive(one, 1000, at(0)) || !e.RouterAlive(other, 5, at(0)) {
		t.Error("a router is new the first time, and not after")
	}
	for _, id := range []uint64{one, other, dynamos} {
		e.Route(key(1), timed(load.Placed, "a", id, 1001), at(0))
	}
	if n, oldest := e.Routers(at(1)); n != 2 || oldest != time.Second {
		t.Errorf("%d routers, %v; want 2 and a second", n, oldest)
	}
	e.RouterState(load.RouterState{Router: one, At: 1002, Parts: 1, Open: []load.OpenRequest{openOn(1, "a", 10)}}, at(2))
	if n, _ := e.RoutersSilent(at(2.9), never); n != 0 || requestsOn(e, 1, 2.9) != 3 {
		t.Errorf("%d died too early", n)
	}
	if n, id := e.RoutersSilent(at(3), never); n != 1 || id != other || requestsOn(e, 1, 3) != 2 {
		t.Errorf("%d died (%d), %d requests; want %d and 2", n, id, requestsOn(e, 1, 3), other)
	}
	if n, oldest := e.Routers(at(3)); n != 1 || oldest != time.Second {
		t.Errorf("%d routers, %v; want 1 and a second", n, oldest)
	}
	e.Route(key(1), timed(load.Placed, "b", one, 1003), at(4.5)) // any word is a sign of life
	if n, _ := e.RoutersSilent(at(7.4), never); n != 0 {
		t.Error("a router died that spoke")
	}
	if n, _ := e.RoutersSilent(at(9), at(7)); n != 0 { // nobody listened
		t.Error("a router died that was not listened to")
	}
	if n, _ := e.RoutersSilent(at(10), at(7)); n != 1 || requestsOn(e, 1, 10) != 1 {
		t.Error("a router lives that is silent")
	}
	if n, _ := e.RoutersSilent(at(20), at(7)); n != 0 {
		t.Error("a router died twice")
	}
	e.Route(key(1), timed(load.Placed, "late", one, 1004), at(20)) // it said so before it died
	if requestsOn(e, 1, 20) != 1 {
		t.Error("a late word of a dead router counts")
	}
	if e.RouterAlive(one, 1003, at(20)) {
		t.Error("a late heartbeat is a sign of life")
	}
	if !e.RouterAlive(one, 9000, at(20)) {
		t.Error("a router that comes back is not new")
	}
	e.Route(key(1), timed(load.Placed, "c", one, 9001), at(20))
	e.RouterState(load.RouterState{Router: one, At: 9002, Parts: 1, Open: []load.OpenRequest{openOn(1, "b", 3), openOn(1, "c", 3)}}, at(20))
	if got := requestsOn(e, 1, 20); got != 3 {
		t.Errorf("%d requests after it came back, want 3", got)
	}
	if n, _ := e.RoutersSilent(at(301), at(300)); n != 0 || requestsOn(e, 1, 301) != 2 {
		t.Errorf("%d requests, want 2: that of a router without a state expires", requestsOn(e, 1, 301))
	}
}

// TestRouterEnds: the last word of a router is the last, whatever comes after it.
func TestRouterEnds(t *testing.T) {
	e := load.NewEngines()
	e.RouterAlive(7, 1, at(0))
	e.Route(key(1), timed(load.Placed, "a", 7, 2), at(0))
	e.Route(key(1), timed(load.Placed, "a", 8, 2), at(0))
	e.RouterGone(7, 3, at(1))
	e.Route(key(1), timed(load.Placed, "b", 7, 2), at(1))
	e.RouterState(load.RouterState{Router: 7, At: 2, Parts: 1, Open: []load.OpenRequest{openOn(1, "c", 1)}}, at(1))
	fresh := e.RouterAlive(7, 99, at(1))
	if n, _ := e.Routers(at(1)); n != 0 || fresh || requestsOn(e, 1, 1) != 1 {
		t.Errorf("%d routers, %d requests; want none and the other's", n, requestsOn(e, 1, 1))
	}
	if n, _ := e.RoutersSilent(at(30), at(0)); n != 0 {
		t.Error("who has ended is silent, not dead")
	}
	e.RoutersSilent(at(61), at(0))
	if !e.RouterAlive(7, 99, at(61)) {
		t.Error("it is not forgotten after a minute")
	}
}

// TestLongRequests: a request that states name counts for as long as it takes; in
// words alone it would not.
func TestLongRequests(t *testing.T) {
	e := load.NewEngines()
	for i := range 200 {
		s := float64(5 * i)
		e.RouterState(load.RouterState{Router: 7, At: 1000 + uint64(i), Parts: 1, Open: []load.OpenRequest{openOn(1, "long", 1)}}, at(s))
		if got := requestsOn(e, 1, s+4); got != 1 {
			t.Fatalf("%d requests after %v s", got, s)
		}
	}
	if e.Stats().Expired != 0 {
		t.Errorf("%+v", e.Stats())
	}
}

// TestPartsOfStates: what is said of parts that cannot be changes nothing, and a
// state counts as complete only with all of them.
func TestPartsOfStates(t *testing.T) {
	e := load.NewEngines()
	e.Route(key(1), timed(load.Placed, "lost its end", 7, 10), at(0))
	part := func(when uint64, i, n int, open ...load.OpenRequest) {
		e.RouterState(load.RouterState{Router: 7, At: when, Part: i, Parts: n, Open: open}, at(0))
	}
	part(20, 0, 0, openOn(1, "x", 1))
	part(20, 1, 1, openOn(1, "x", 1))
	part(20, -1, 1, openOn(1, "x", 1))
	part(20, 0, 1<<20, openOn(1, "x", 1))
	part(0, 0, 1, openOn(1, "x", 1))
	if got := requestsOn(e, 1, 0); got != 1 {
		t.Errorf("%d requests, want that of the word", got)
	}
	part(21, 0, 2, openOn(1, "a", 1))
	part(21, 0, 2, openOn(1, "twice", 1))
	part(21, 2, 3, openOn(1, "of another number", 1))
	if got := requestsOn(e, 1, 0); got != 2 {
		t.Errorf("%d requests, want 2 while a part is missing", got)
	}
	part(21, 1, 2, openOn(1, strings.Repeat("x", 257), 1))
	if got := e.Get(key(1), at(0), forever).Foreign; got != (load.Foreign{Requests: 1, PrefillTokens: 1}) || e.Stats().LongIDs != 1 {
		t.Errorf("%+v, want the one that the state names", got)
	}
}

// TestStatesThatComeLate: a request may end before the state comes that names it,
// which is nothing odd.
func TestStatesThatComeLate(t *testing.T) {
	e := load.NewEngines()
	e.Route(key(1), timed(load.Placed, "a", 7, 10), at(0))
	e.Route(key(1), timed(load.Finished, "a", 7, 12), at(0))
	e.RouterState(load.RouterState{Router: 7, At: 11, Parts: 1, Open: []load.OpenRequest{openOn(1, "a", 1)}}, at(0))
	if got := requestsOn(e, 1, 0); got != 0 || e.Stats() != (load.EngineStats{}) {
		t.Errorf("%d requests, %+v; want none and nothing odd", got, e.Stats())
	}
}

// TestRoutersAreBounded: too many are not followed, which is counted; their
// requests count as those of routers that tell no state.
func TestRoutersAreBounded(t *testing.T) {
	e := load.NewEngines()
	for id := range uint64(300) {
		e.RouterState(load.RouterState{Router: id, At: 10, Parts: 1, Open: []load.OpenRequest{openOn(1, fmt.Sprint(id), 1)}}, at(0))
	}
	if n, _ := e.Routers(at(0)); n != 256 || requestsOn(e, 1, 0) != 256 || e.Stats().Overflowed != 44 {
		t.Errorf("%d routers, %d requests, %+v; want 256", n, requestsOn(e, 1, 0), e.Stats())
	}
	if n, _ := e.RoutersSilent(at(3), at(0)); n != 256 || requestsOn(e, 1, 3) != 0 {
		t.Errorf("%d died, %d requests are left", n, requestsOn(e, 1, 3))
	}
	e.RoutersSilent(at(61), at(0))
	if !e.RouterAlive(1000, 1, at(61)) {
		t.Error("the dead take the place of the living")
	}
}

// TestRoutersAtOnce: for the race detector; what is added up comes out whole.
func TestRoutersAtOnce(t *testing.T) {
	e := load.NewEngines()
	var wg sync.WaitGroup
	for id := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(100) {
				request := fmt.Sprint("r", i)
				e.Route(key(1), timed(load.Placed, request, id, 2*i+1), at(0))
				e.RouterState(load.RouterState{Router: id, At: 2*i + 1, Parts: 1, Open: []load.OpenRequest{openOn(1, request, 5)}}, at(0))
				e.RoutersSilent(at(0), at(0))
				e.Routers(at(0))
			}
			if id == 3 {
				e.RouterGone(id, 1000, at(0))
			}
		})
	}
	wg.Wait()
	if got := e.Get(key(1), at(0), forever).Foreign; got.Requests != 3 {
		t.Errorf("%+v, want the last request of each of the three that go on", got)
	}
}

// BenchmarkRouterState is a state of 1,000 requests among 4,000 of others.
func BenchmarkRouterState(b *testing.B) {
	e := load.NewEngines()
	open := make([]load.OpenRequest, 1000)
	for i := range open {
		open[i] = openOn(uint64(i%64), fmt.Sprintf("%036d", i), 100)
		for router := range uint64(4) {
			e.Route(key(uint64(i%64)), timed(load.Placed, fmt.Sprintf("%036d", i), 10+router, 1), at(0))
		}
	}
	when := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		when++
		e.RouterState(load.RouterState{Router: 7, At: when, Parts: 1, Open: open}, at(0))
	}
}
