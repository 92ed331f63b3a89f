package load_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// quiet is a pool of one pair whose prompts differ less in what is cached than in
// length. Its prefill worker computes one after the other.
type quiet struct {
	pace, serial, perToken float64
	cached                 float64 // at most, as a share of a prompt
	noise                  float64 // at most, as a share of the time
	load                   float64 // share of the time in which it computes; 0: nothing ever waits
}

// samples plays so many requests.
func (q *quiet) samples(table *load.Table, n int) {
	random := rand.New(rand.NewPCG(3, 4))
	type under struct {
		r    *load.Reservation
		seen time.Time
	}
	var open []under
	now, free := moment, moment
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for range n {
		prompt := 500 + random.IntN(8000)
		tokens := prompt - int(float64(prompt)*q.cached*random.Float64())
		gap := 100.0
		if q.load > 0 {
			gap = random.ExpFloat64() * 4500 * (1 - q.cached/2) * q.pace / q.load
		}
		now = now.Add(seconds(gap))
		for len(open) > 0 && !open[0].seen.After(now) {
			open[0].r.PrefillDone(open[0].seen)
			open[0].r.Release()
			open = open[1:]
		}
		if free.Before(now) {
			free = now
		}
		noise := 1 + q.noise*(2*random.Float64()-1)
		free = free.Add(seconds(q.pace * float64(tokens) * noise))
		b := bookingAt(table, 1, 2, tokens, now)
		b.Prompt = prompt
		r := reserveBooking(table, b)
		open = append(open, under{r, free.Add(seconds((q.serial + q.perToken*float64(prompt)) * noise))})
	}
	for _, o := range open {
		o.r.PrefillDone(o.seen)
		o.r.Release()
	}
}

// TestPaceOfQuietPairs: where hardly anything is cached, the time to the first output
// goes with the prompt as well as with the work. The pace stays what it is, and the
// transfer gets none of it.
func TestPaceOfQuietPairs(t *testing.T) {
	for _, cached := range []float64{0, 0.1, 0.9} {
		for _, noise := range []float64{0, 0.02, 0.1, 0.3} {
			for _, busy := range []float64{0, 0.5, 0.8} {
				for _, n := range []int{300, 3000} {
					q := quiet{pace: 1e-4, serial: 0.02, perToken: 2e-6, cached: cached, noise: noise, load: busy}
					t.Run(fmt.Sprintf("cached %v, noise %v, load %v, %d pairs", cached, noise, busy, n), func(t *testing.T) {
						table := load.NewTable()
						q.samples(table, n)
						if got := table.Worker(key(1)).Figures().SecondsPerToken; got < q.pace/2 || got > q.pace*2 {
							t.Errorf("%v seconds per token, want about %v", got, q.pace)
						}
						serial, perToken, _ := table.TransferEstimate()
						const prompt = 4500
						got, want := serial+perToken*prompt, q.serial+q.perToken*prompt
						if most := want + q.pace*prompt/3; got > most {
							t.Errorf("a transfer of %d tokens takes %v s (%v and %v a token), want about %v, at most %v", prompt, got, serial, perToken, want, most)
						}
					})
				}
			}
		}
	}
}

// TestTransferOfExactSamples: samples that follow the rule give the rule, whatever
// the workers' paces are.
func TestTransferOfExactSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := truth{
			pace:   rapid.SliceOfN(rapid.Float64Range(2e-5, 1e-3), 1, 4).Draw(t, "paces"),
			serial: rapid.Float64Range(0.01, 0.5).Draw(t, "serial"), perToken: rapid.Float64Range(1e-6, 1e-4).Draw(t, "per token"),
		}
		table, random := load.NewTable(), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		for i := range 600 {
			w.request(table, random, i, true)
		}
		e := w.errors(table)
		for what, square := range map[string]float64{"serial": e.serial, "per token": e.perToken, "pace": e.pace} {
			if !(math.Sqrt(square) < 0.02) {
				t.Errorf("%s is off by %.4f of the truth %+v", what, math.Sqrt(square), w)
			}
		}
	})
}

// TestQueueThatIsNotThere: an engine that says nonsense of its queue, or a router of
// its own requests, teaches no pace.
func TestQueueThatIsNotThere(t *testing.T) {
	const nonsense = 1 << 63
	for name, say := range map[string]func(*load.Engines, time.Time){
		"an engine's": func(e *load.Engines, now time.Time) { e.Step(key(1), queue(1, nonsense, now)) },
		"a worker's": func(e *load.Engines, now time.Time) {
			e.State(key(1), load.Occupancy{PrefillTokens: stated(nonsense, now)})
		},
		"a router's": func(e *load.Engines, now time.Time) {
			e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: nonsense}, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, table, w := fed()
			one := func(now float64) {
				r := book(table, w, 4000, at(now))
				r.PrefillDone(at(now + 0.4))
				r.Release()
			}
			for i := range 50 {
				one(float64(i))
			}
			say(e, at(50))
			one(50)
			if got := w.Figures().SecondsPerToken; got < 5e-5 || got > 2e-4 {
				t.Errorf("%v seconds per token, want about 1e-4", got)
			}
		})
	}
}
