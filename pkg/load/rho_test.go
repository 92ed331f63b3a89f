package load

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRhoEqualsIntegral: the running mean is the integral over the past of what
// arrivals saw, each for the time since the one before, weighted by how long ago
// that is (policy.md: a time constant of 120 s).
func TestRhoEqualsIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type arrival struct{ at, share float64 }
		var u utilisation
		var seen []arrival
		start, now := time.Unix(1000, 0), 0.0
		for range rapid.IntRange(1, 30).Draw(t, "arrivals") {
			workers := rapid.IntRange(1, 8).Draw(t, "workers")
			busy := rapid.IntRange(0, workers).Draw(t, "busy")
			u.arrived(start.Add(time.Duration(now*float64(time.Second))), busy, workers)
			seen = append(seen, arrival{now, float64(busy) / float64(workers)})
			now += float64(rapid.IntRange(1, 600).Draw(t, "tenths of a second")) / 10
		}
		end, mean := seen[len(seen)-1].at, 0.0
		const step = 0.01
		for i, a := range seen[1:] {
			for s := seen[i].at + step/2; s < a.at; s += step {
				mean += a.share * math.Exp(-(end-s)/120) * step / 120
			}
		}
		if got := u.read(); math.Abs(got-min(0.95, mean)) > 1e-4 {
			t.Fatalf("%v, want %v", got, mean)
		}
	})
}

func TestRhoBounds(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	t.Run("nobody arrived", func(t *testing.T) {
		var u utilisation
		if u.read() != 0 {
			t.Errorf("%v, want 0", u.read())
		}
	})
	t.Run("all busy for an hour", func(t *testing.T) {
		var u utilisation
		for s := range 3600 {
			u.arrived(at(float64(s)), 4, 4)
		}
		if u.read() != 0.95 {
			t.Errorf("%v, want the cap", u.read())
		}
		u.arrived(at(3600+83.2), 0, 4) // 120 s times ln 2: half of it is forgotten, from what it was without a cap
		if got := u.read(); math.Abs(got-0.5) > 0.01 {
			t.Errorf("%v, want half", got)
		}
	})
	t.Run("time that goes backwards", func(t *testing.T) {
		var u utilisation
		u.arrived(at(0), 1, 2)
		u.arrived(at(120), 1, 2)
		before := u.read()
		for _, s := range []float64{120, 119, -1e9} {
			u.arrived(at(s), 2, 2)
		}
		if u.read() != before {
			t.Errorf("%v, want %v still", u.read(), before)
		}
		u.arrived(at(240), 1, 2)
		if want := 0.5 * (1 - math.Exp(-2)); math.Abs(u.read()-want) > 1e-9 {
			t.Errorf("%v, want %v: what was late is as if it had not been", u.read(), want)
		}
	})
	t.Run("no workers", func(t *testing.T) {
		var u utilisation
		u.arrived(at(0), 0, 0)
		u.arrived(at(60), 0, 0)
		if u.read() != 0 {
			t.Errorf("%v, want 0", u.read())
		}
	})
	t.Run("figures that cannot be", func(t *testing.T) {
		var u utilisation
		u.arrived(at(0), 0, 1)
		u.arrived(at(1e6), 9, 1)
		if u.read() != 0.95 {
			t.Errorf("%v, want the cap", u.read())
		}
		u.arrived(at(2e6), -9, 1)
		if u.read() != 0 {
			t.Errorf("%v, want 0", u.read())
		}
	})
}
