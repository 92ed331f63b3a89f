package scrape

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

const ms = time.Millisecond

// TestNext: when an endpoint is scraped again.
func TestNext(t *testing.T) {
	usual := pace{least: 100 * ms, retry: retryPace, duty: dutyInverse}
	quick := 2 * ms // the page of an engine at ease
	for _, tc := range []struct {
		name string
		last time.Duration
		o    outcome
		want time.Duration
	}{
		{"first, moving", 0, outcome{took: quick, moved: true}, 100 * ms},
		{"first, still", 0, outcome{took: quick}, 100 * ms},
		{"still", 100 * ms, outcome{took: quick}, 200 * ms},
		{"still for long", 1600 * ms, outcome{took: quick}, 2 * time.Second},
		{"still for longer", 2 * time.Second, outcome{took: quick}, 2 * time.Second},
		{"moves again", 2 * time.Second, outcome{took: quick, moved: true}, 100 * ms},
		{"moving, slow", 100 * ms, outcome{took: 10 * ms, moved: true}, 500 * ms},
		{"still, slow", 500 * ms, outcome{took: 10 * ms}, time.Second},
		{"very slow", 100 * ms, outcome{took: 900 * ms, moved: true}, 45 * time.Second},
		{"failed", 100 * ms, outcome{took: quick, failed: true}, 10 * time.Second},
		{"failed twice", 10 * time.Second, outcome{took: quick, failed: true}, 20 * time.Second},
		{"failed thrice", 20 * time.Second, outcome{took: quick, failed: true}, 40 * time.Second},
		{"fails", 40 * time.Second, outcome{took: time.Second, failed: true}, time.Minute},
		{"fails on", time.Minute, outcome{took: time.Second, failed: true}, time.Minute},
		{"back, moving", time.Minute, outcome{took: quick, moved: true}, 100 * ms},
		{"back, still", time.Minute, outcome{took: quick}, 2 * time.Second},
		{"no figures", 100 * ms, outcome{took: quick, empty: true}, 10 * time.Second},
		{"no figures yet", time.Minute, outcome{took: quick, empty: true}, 10 * time.Second},
	} {
		if got := usual.next(tc.last, tc.o); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := (pace{least: 5 * time.Second, retry: retryPace, duty: dutyInverse}).next(0, outcome{}); got != 5*time.Second {
		t.Errorf("with 5 s as the least: %v", got)
	}
}

// TestNextIsBounded: whatever happens to an endpoint, it is never asked more often
// than allowed, never more than 2 % of the time, and never given up.
func TestNextIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(10*ms), int64(10*time.Second)).Draw(t, "least"))
		var wait time.Duration
		for range rapid.IntRange(1, 30).Draw(t, "scrapes") {
			before := wait
			o := outcome{
				took:   time.Duration(rapid.Int64Range(0, int64(1100*ms)).Draw(t, "took")),
				failed: rapid.Bool().Draw(t, "failed"),
				empty:  rapid.Bool().Draw(t, "empty"),
				moved:  rapid.Bool().Draw(t, "moved"),
			}
			wait = pace{least: least, retry: retryPace, duty: dutyInverse}.next(before, o)
			u := rapid.Float64Range(0, 1).Draw(t, "chance")
			switch j := jittered(wait, u); {
			case wait < least || j < wait || j > wait+wait/5:
				t.Fatalf("%v, then %v, at least %v", wait, j, least)
			case wait > slowest:
				t.Fatalf("%v is too long", wait)
			case !o.failed && wait < dutyInverse*o.took && wait < slowest:
				t.Fatalf("%v after a scrape that took %v", wait, o.took)
			case o.failed && wait < retryPace, o.failed && wait < min(before, slowest):
				t.Fatalf("%v after %v and a failure", wait, before)
			case !o.failed && !o.empty && wait > max(least, idlePace, dutyInverse*o.took):
				t.Fatalf("%v after a good scrape that took %v", wait, o.took)
			case !o.failed && !o.empty && o.moved && wait > max(least, dutyInverse*o.took):
				t.Fatalf("%v while figures move", wait)
			}
		}
	})
}

// TestMoves: when figures are worth another look soon.
func TestMoves(t *testing.T) {
	said := func(waiting, running int, use float64, adapters ...string) load.Scraped {
		return load.Scraped{At: time.Unix(1, 0), Waiting: waiting, Running: running, KVUse: use, Adapters: adapters}
	}
	for _, tc := range []struct {
		name     string
		old, now load.Scraped
		want     bool
	}{
		{"idle at first", load.Scraped{}, said(0, 0, 0), false},
		{"busy at first", load.Scraped{}, said(0, 3, 0.1), true},
		{"still busy, and nothing else", said(1, 3, 0.1), said(1, 3, 0.1), false},
		{"a cache that fills", said(1, 3, 0.1), said(1, 3, 0.2), true},
		{"the first request", said(0, 0, 0), said(0, 1, 0), true},
		{"the last request", said(0, 1, 0.1), said(0, 0, 0.1), true},
		{"an idle engine's cache", said(0, 0, 0.1), said(0, 0, 0.2), false},
		{"an idle engine that says only what waits", said(0, -1, 0.1), said(0, -1, 0.2), false},
		{"a request that waits, where it does not say what runs", said(0, -1, 0.1), said(1, -1, 0.1), true},
		{"an engine that says only how full it is", said(-1, -1, 0.1), said(-1, -1, 0.2), true},
		{"another adapter", said(0, 1, 0.1, "a"), said(0, 1, 0.1, "b"), true},
	} {
		if got := moves(&tc.old, &tc.now); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestIdleEndpointIsLeftAlone: an engine whose figures stay is asked less and less.
func TestIdleEndpointIsLeftAlone(t *testing.T) {
	s := New(Config{Sink: newSink()})
	s.limit = patience
	defer s.transport.CloseIdleConnections()
	s.interval.Store(int64(100 * ms))
	at := serve(t, pageOf("vllm:num_requests_waiting 0\nvllm:num_requests_running 4\n"))
	e := &endpoint{scraper: s, at: at, request: newRequest("http", at, "/metrics")}
	e.serve([]fleet.Key{{ID: 1}})
	f := <-s.slots
	for i := range 8 {
		before := e.wait
		if !e.scrape(t.Context(), f) || e.failures.Load() > 0 {
			t.Fatal("the scrape failed")
		}
		if e.wait < min(2*before, idlePace) || e.wait < 100*ms {
			t.Errorf("scrape %d: %v after %v", i, e.wait, before)
		}
	}
	if e.wait < idlePace {
		t.Errorf("an idle endpoint is asked every %v", e.wait)
	}
}
