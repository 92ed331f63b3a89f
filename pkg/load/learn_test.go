package load_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/load"
)

// truth is a pool as it really is.
type truth struct {
	pace             []float64 // seconds per token, by prefill worker
	serial, perToken float64   // of a transfer, in seconds
	noise            float64   // standard deviation, as a share
}

// request plays one request: a prompt of which a part is cached, some tokens waiting
// before it, and the first output when it really comes.
func (w *truth) request(table *load.Table, random *rand.Rand, i int, pair bool) {
	k := key(uint64(i % len(w.pace)))
	decode := k
	if pair {
		decode = key(100)
	}
	prompt := 100 + random.IntN(8000)
	own := prompt - int(float64(prompt)*random.Float64()*0.9)
	var ahead *load.Reservation
	queued := 0
	if random.IntN(2) == 0 {
		queued = random.IntN(5000)
		ahead = reserve(table, k.ID, k.ID, queued, 0)
	}
	seconds := w.pace[i%len(w.pace)] * float64(queued+own)
	if pair {
		seconds += w.serial + w.perToken*float64(prompt)
	}
	seconds *= math.Exp(random.NormFloat64()*w.noise - w.noise*w.noise/2)
	b := load.Booking{
		At: moment, PrefillTokens: own, Prompt: prompt, PrefillKey: k, DecodeKey: decode,
		Prefill: table.Worker(k), Decode: table.Worker(decode),
	}
	table.Lock()
	r := table.Reserve(b)
	table.Unlock()
	r.PrefillDone(moment.Add(time.Duration(seconds * float64(time.Second))))
	r.PrefillDone(moment.Add(time.Hour)) // no sample
	r.Release()
	if ahead != nil {
		ahead.Release()
	}
}

// errors are the mean squares of what an estimate is off, as shares of the truth.
type errors struct{ serial, perToken, pace float64 }

func (w *truth) errors(table *load.Table) (e errors) {
	off := func(got, want float64) float64 { return (got - want) * (got - want) / (want * want) }
	serial, perToken, _ := table.TransferEstimate()
	if w.serial == 0 { // as a share of what computing takes
		e.serial = off(w.pace[0]*4000+serial+perToken*4000, w.pace[0]*4000)
	} else {
		e.serial, e.perToken = off(serial, w.serial), off(perToken, w.perToken)
	}
	all := figures(table)
	for i, want := range w.pace {
		e.pace = max(e.pace, off(all[key(uint64(i))].SecondsPerToken, want))
	}
	return e
}

// TestLearning: what is true comes out of noisy samples within a tenth, and once
// more when the truth changes.
func TestLearning(t *testing.T) {
	const warm, rounds, noise = 1000, 2000, 0.1
	for _, tc := range []struct {
		name  string
		pairs bool
		truth []truth
	}{
		{"aggregated workers", false, []truth{{pace: []float64{1e-4, 2e-4, 1e-3}, noise: noise}, {pace: []float64{2e-4, 2e-4, 1e-4}, noise: noise}}},
		{"pairs", true, []truth{
			{pace: []float64{1e-4, 1.2e-4}, serial: 0.05, perToken: 2e-5, noise: noise},
			{pace: []float64{1e-4, 1.2e-4}, serial: 0.1, perToken: 1e-4, noise: noise},
		}},
		{"pairs of unequal workers", true, []truth{{pace: []float64{5e-5, 1e-4, 3e-4}, serial: 0.1, perToken: 3e-5, noise: noise}}},
		{"pairs that never wait for a transfer", true, []truth{{pace: []float64{1e-4, 2e-4}, noise: noise}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, random := load.NewTable(), rand.New(rand.NewPCG(1, 2))
			for _, now := range tc.truth {
				for i := range warm {
					now.request(table, random, i, tc.pairs)
				}
				var sum errors
				for i := range rounds {
					now.request(table, random, i, tc.pairs)
					e := now.errors(table)
					sum.serial, sum.perToken, sum.pace = sum.serial+e.serial/rounds, sum.perToken+e.perToken/rounds, sum.pace+e.pace/rounds
				}
				for what, square := range map[string]float64{"serial": sum.serial, "per token": sum.perToken, "pace": sum.pace} {
					if !(math.Sqrt(square) < 0.1) {
						t.Errorf("%s is off by %.3f of the truth", what, math.Sqrt(square))
					}
				}
			}
			if _, _, n := table.TransferEstimate(); (n > 0) != tc.pairs {
				t.Errorf("%d samples of transfers", n)
			}
		})
	}
}

// first plays a request without a queue: booked at one time, first output at another.
func first(table *load.Table, prefill, decode uint64, tokens, prompt int, from, to time.Time) *load.Reservation {
	b := bookingAt(table, prefill, decode, tokens, from)
	b.Prompt = prompt
	r := reserveBooking(table, b)
	r.PrefillDone(to)
	r.Release()
	return r
}

// bookingAt is a booking of a prompt of which nothing is cached.
func bookingAt(table *load.Table, prefill, decode uint64, tokens int, now time.Time) load.Booking {
	return load.Booking{
		At: now, PrefillTokens: tokens, Prompt: tokens, PrefillKey: key(prefill), DecodeKey: key(decode),
		Prefill: table.Worker(key(prefill)), Decode: table.Worker(key(decode)),
	}
}

func reserveBooking(table *load.Table, b load.Booking) *load.Reservation {
	table.Lock()
	defer table.Unlock()
	return table.Reserve(b)
}

func reserveAt(table *load.Table, prefill, decode uint64, tokens int, now time.Time) *load.Reservation {
	return reserveBooking(table, bookingAt(table, prefill, decode, tokens, now))
}

func TestWhatIsNoSample(t *testing.T) {
	later := moment.Add(time.Second)
	for _, tc := range []struct {
		name     string
		first    func(*load.Table)
		pace     float64
		transfer int
	}{
		{"one is, of each kind", func(t *load.Table) { first(t, 1, 2, 100, 100, moment, later) }, 0.01, 1},
		{"a short prompt", func(t *load.Table) { first(t, 1, 1, 63, 63, moment, later) }, 0, 0},
		{"a time that goes backwards", func(t *load.Table) { first(t, 1, 2, 100, 100, later, moment) }, 0, 0},
		{"no time", func(t *load.Table) { first(t, 1, 2, 100, 100, moment, moment) }, 0, 0},
		{"a booking without a time", func(t *load.Table) { first(t, 1, 2, 100, 100, time.Time{}, later) }, 0, 0},
		{"a pair whose prompt is not known", func(t *load.Table) { first(t, 1, 2, 100, 0, moment, later) }, 0, 0},
		{"an output that tells nothing", func(t *load.Table) {
			r := reserveAt(t, 1, 2, 100, moment)
			r.PrefillEnded()
			r.PrefillDone(later)
			r.Release()
		}, 0, 0},
		{"a response that comes as a whole", func(t *load.Table) {
			b := bookingAt(t, 1, 2, 100, moment)
			b.Whole = true
			r := reserveBooking(t, b)
			r.PrefillDone(later)
			r.Release()
		}, 0, 0},
		{"an aggregated worker, of transfers", func(t *load.Table) { first(t, 1, 1, 100, 100, moment, later) }, 0.01, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := load.NewTable()
			w := table.Worker(key(1))
			for i := range 4 {
				if got := w.Figures().SecondsPerToken; got != 0 {
					t.Errorf("%v seconds per token after %d samples, want to wait for more", got, i)
				}
				tc.first(table)
			}
			if got := w.Figures().SecondsPerToken; math.Abs(got-tc.pace) > 0.2*tc.pace {
				t.Errorf("%v seconds per token, want %v", got, tc.pace)
			}
			if _, _, n := table.TransferEstimate(); n != 4*tc.transfer {
				t.Errorf("%d samples of transfers, want %d", n, 4*tc.transfer)
			}
		})
	}
	t.Run("a worker's word, but the output that follows", func(t *testing.T) {
		e, table, w := fed()
		for range 4 {
			b := load.Booking{At: moment, PrefillTokens: 100, PrefillKey: key(1), DecodeKey: key(1), Prefill: w, Decode: w}
			table.Lock()
			r := table.Reserve(b)
			table.Unlock()
			r.Name("r")
			e.Route(key(1), routed(load.PrefillDone, "r", 1, 0), moment.Add(time.Millisecond))
			if got := w.Figures().PrefillTokens; got != 0 {
				t.Fatalf("%d tokens left", got)
			}
			r.PrefillDone(later)
			r.Release()
			e.Route(key(1), routed(load.Finished, "r", 1, 0), later)
			e = load.NewEngines()
			e.Feed(table)
		}
		if got := w.Figures().SecondsPerToken; got != 0.01 {
			t.Errorf("%v seconds per token, want 0.01", got)
		}
	})
}

// TestOutliers: an engine that hangs now and then, and clocks that jump, spoil no
// estimate.
func TestOutliers(t *testing.T) {
	table := load.NewTable()
	for i := range 2000 {
		seconds := 0.1 + 1e-4*float64(100+i%7*1000)
		if i > 100 && i%100 == 0 {
			seconds = 1e9
		}
		first(table, 1, 2, 100+i%7*1000, 100+i%5*2000, moment, moment.Add(time.Duration(seconds*float64(time.Second))))
	}
	serial, perToken, _ := table.TransferEstimate()
	if got := table.Worker(key(1)).Figures().SecondsPerToken; !(got > 5e-5 && got < 5e-4) {
		t.Errorf("%v seconds per token, want about 1e-4", got)
	}
	if !(serial >= 0 && serial < 0.5 && perToken >= 0 && perToken < 1e-4) {
		t.Errorf("transfer %v s and %v s per token, want about 0.1 and 0", serial, perToken)
	}
}
