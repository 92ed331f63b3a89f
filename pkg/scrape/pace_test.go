package scrape

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// TestNext: when an endpoint is scraped again.
func TestNext(t *testing.T) {
	usual := pace{least: 100 * ms, retry: retryPace}
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
	if got := (pace{least: 5 * time.Second, retry: retryPace}).next(0, outcome{}); got != 5*time.Second {
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
			wait = pace{least: least, retry: retryPace}.next(before, o)
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
