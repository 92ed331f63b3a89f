package load_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// whole books a request whose output comes all at once.
func whole(table *load.Table, tokens int, now time.Time) *load.Reservation {
	b := bookingAt(table, 1, 1, tokens, now)
	b.Whole = true
	return reserveBooking(table, b)
}

// TestWholeResponses: prompts whose end nobody tells come off when they should be
// computed, one after the other, and a worker that computes them all does not look
// busy for as long as it generates.
func TestWholeResponses(t *testing.T) {
	_, table, w := paced(t)
	prefill := func(s float64, want int) {
		t.Helper()
		table.Age(at(s))
		if got := w.Figures().PrefillTokens; got != want {
			t.Errorf("at %v s: %d tokens, want %d", s, got, want)
		}
	}
	first, second := whole(table, 2000, at(10)), whole(table, 1000, at(10))
	streamed := book(table, w, 500, at(10))
	prefill(11.9, 3500)
	prefill(12.05, 1500)
	if got := w.Ahead(at(12.5).UnixNano()); !near(got, 1000) {
		t.Errorf("%v tokens ahead, want 1000: the second was begun at 12 s", got)
	}
	third := whole(table, 700, at(12.5)) // after the rest of the second, and the streamed one
	prefill(13.05, 1200)
	prefill(14.15, 1200)
	prefill(14.25, 500)
	prefill(500, 500) // a stream would have told
	streamed.PrefillEnded()
	for _, r := range []*load.Reservation{first, second, third, streamed} {
		if got := w.Figures().Requests; got == 0 {
			t.Error("requests that generate count no more")
		}
		r.PrefillDone(at(501))
		r.Release()
	}
	if got := w.Figures(); got.PrefillTokens != 0 || got.Requests != 0 {
		t.Errorf("all released: %+v", got)
	}
	if got := w.Figures().SecondsPerToken; !near(got, perToken) {
		t.Errorf("%v seconds per token, want %v: nothing tells when a prompt was done", got, perToken)
	}
}

// TestWholeResponsesWithoutPace: where no pace is known they come off all the same.
func TestWholeResponsesWithoutPace(t *testing.T) {
	_, table, w := fed()
	defer whole(table, 2000, at(10)).Release()
	defer whole(table, 30_000, at(10)).Release()
	for _, tc := range []struct {
		at   float64
		want int
	}{{19.9, 32_000}, {20.1, 30_000}, {41.9, 30_000}, {42.1, 0}} {
		table.Age(at(tc.at))
		if got := w.Figures().PrefillTokens; got != tc.want {
			t.Errorf("at %v s: %d tokens, want %d", tc.at, got, tc.want)
		}
	}
}

// TestDuesEqualTwin: whatever happens to requests, what counts are the prompts that
// are neither due, done, nor released.
func TestDuesEqualTwin(t *testing.T) {
	type request struct {
		r      *load.Reservation
		tokens int
		due    float64
	}
	rapid.Check(t, func(t *rapid.T) {
		_, table, w := paced(t)
		var live []*request
		now, booked := 10.0, 0
		expire := func() {
			booked = 0
			for _, r := range live {
				if r.due <= now+1e-6 {
					r.tokens = 0
				}
				booked += r.tokens
			}
		}
		draw := func(t *rapid.T) *request {
			if len(live) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(live).Draw(t, "request")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				expire()
				table.Age(at(now))
				if got := w.Figures().PrefillTokens; got != booked {
					t.Fatalf("%d tokens, want %d", got, booked)
				}
			},
			"book": func(t *rapid.T) {
				n := rapid.IntRange(1, 9).Draw(t, "hundreds of tokens") * 100
				due := now + (w.Ahead(at(now).UnixNano())+float64(n))*perToken
				live = append(live, &request{whole(table, n, at(now)), n, due})
				booked += n
			},
			"done":  func(t *rapid.T) { r := draw(t); r.r.PrefillDone(at(now)); r.tokens = 0 },
			"ended": func(t *rapid.T) { r := draw(t); r.r.PrefillEnded(); r.tokens = 0 },
			"moved": func(t *rapid.T) { r := draw(t); r.r = r.r.Moved(key(1)) },
			"release": func(t *rapid.T) {
				r := draw(t)
				r.r.Release()
				r.tokens = 0
				r.r.PrefillDone(at(now))
			},
			"time": func(t *rapid.T) {
				now += float64(rapid.IntRange(1, 9).Draw(t, "steps")) * 0.101
			},
		})
		for _, r := range live {
			r.r.Release()
		}
		if got := table.Due(); got != 0 {
			t.Fatalf("%d are still to come off", got)
		}
	})
}
