package load_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// TestRhoEqualsIntegral: the running mean is the integral over the past of the share
// of workers with prompts to compute, weighted by how long ago that was (policy.md: a
// time constant of 120 s).
func TestRhoEqualsIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		table := load.NewTable()
		now := 0.0
		at := func() time.Time { return moment.Add(time.Duration(now * float64(time.Second))) }
		arrive := func() {
			table.Lock()
			table.Arrived(at(), workers)
			table.Unlock()
		}
		arrive()
		type piece struct{ from, to, share float64 }
		var past []piece
		var open []*load.Reservation
		on := map[*load.Reservation]uint64{} // that compute their prompt
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			busy := map[uint64]bool{}
			for _, id := range on {
				busy[id] = true
			}
			length := float64(rapid.IntRange(0, 600).Draw(t, "tenths of a second")) / 10
			past = append(past, piece{now, now + length, float64(len(busy)) / float64(workers)})
			now += length
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				id := uint64(rapid.IntRange(1, workers).Draw(t, "worker"))
				w := table.Worker(key(id))
				table.Lock()
				r := table.Reserve(load.Booking{At: at(), PrefillTokens: 10, PrefillKey: key(id), DecodeKey: key(id), Prefill: w, Decode: w})
				table.Unlock()
				open = append(open, r)
				on[r] = id
			case 1:
				if len(open) > 0 {
					r := open[rapid.IntRange(0, len(open)-1).Draw(t, "request")]
					r.PrefillDone(at())
					delete(on, r)
				}
			default:
				arrive()
			}
		}
		arrive()
		mean := 0.0
		for _, p := range past {
			mean += p.share * (math.Exp(-(now-p.to)/120) - math.Exp(-(now-p.from)/120))
		}
		if got := table.Rho(); math.Abs(got-min(0.95, mean)) > 1e-9 {
			t.Fatalf("%v, want %v", got, mean)
		}
	})
}

func TestRhoBounds(t *testing.T) {
	at := func(s float64) time.Time { return moment.Add(time.Duration(s * float64(time.Second))) }
	arrive := func(table *load.Table, s float64, workers int) {
		table.Lock()
		defer table.Unlock()
		table.Arrived(at(s), workers)
	}
	busy := func(table *load.Table, id uint64) *load.Reservation {
		w := table.Worker(key(id))
		table.Lock()
		defer table.Unlock()
		return table.Reserve(load.Booking{PrefillTokens: 1, PrefillKey: key(id), DecodeKey: key(id), Prefill: w, Decode: w})
	}
	near := func(t *testing.T, table *load.Table, want float64) {
		t.Helper()
		if got := table.Rho(); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v, want %v", got, want)
		}
	}
	t.Run("nobody arrived", func(t *testing.T) { near(t, load.NewTable(), 0) })
	t.Run("the cap, and half of it later", func(t *testing.T) {
		table := load.NewTable()
		r := busy(table, 1)
		arrive(table, 0, 1)
		arrive(table, 1e6, 1)
		near(t, table, 0.95)
		r.PrefillDone(at(1e6))
		arrive(table, 1e6+120*math.Ln2, 1) // half is forgotten, of what it was without a cap
		near(t, table, 0.5)
	})
	t.Run("time that goes backwards", func(t *testing.T) {
		table := load.NewTable()
		busy(table, 1)
		arrive(table, 0, 2)
		arrive(table, 120, 2)
		want := 0.5 * (1 - math.Exp(-1))
		near(t, table, want)
		for _, s := range []float64{120, 119, -1e9} {
			arrive(table, s, 2)
		}
		near(t, table, want)
		arrive(table, 240, 2)
		near(t, table, 0.5*(1-math.Exp(-2)))
	})
	t.Run("no workers, then more busy than counted", func(t *testing.T) {
		table := load.NewTable()
		busy(table, 1)
		busy(table, 2)
		arrive(table, 0, 0)
		arrive(table, 120, 0)
		near(t, table, 0)
		arrive(table, 120, 1)
		arrive(table, 240, 1)
		near(t, table, 1-math.Exp(-1))
	})
	t.Run("a worker that is forgotten is busy no more", func(t *testing.T) {
		table := load.NewTable()
		r := busy(table, 1)
		arrive(table, 0, 1)
		table.Retain(snapshot(t)) // it left the pool, its request goes on
		r.Release()
		arrive(table, 1, 1)
		was := table.Rho()
		arrive(table, 121, 1)
		near(t, table, was*math.Exp(-1))
	})
}
