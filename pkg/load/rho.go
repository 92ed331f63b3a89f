package load

import (
	"math"
	"sync/atomic"
	"time"
)

// Of the running mean of how busy workers are (policy.md).
const (
	rhoMemory = 120 * time.Second
	maxRho    = 0.95
)

// utilisation is the share of time that workers are busy, as a running mean over
// what arrivals see.
type utilisation struct {
	bits atomic.Uint64
	last time.Time // of the last arrival
}

func (u *utilisation) read() float64 { return min(maxRho, math.Float64frombits(u.bits.Load())) }

// arrived weighs what an arrival sees by the time since the one before.
func (u *utilisation) arrived(now time.Time, busy, workers int) {
	dt := now.Sub(u.last)
	if u.last.IsZero() || workers == 0 {
		u.last = latest(u.last, now)
		return
	}
	if dt <= 0 {
		return
	}
	u.last = now
	share := min(1, max(0, float64(busy)/float64(workers)))
	mean := math.Float64frombits(u.bits.Load())
	mean += (1 - math.Exp(-dt.Seconds()/rhoMemory.Seconds())) * (share - mean)
	u.bits.Store(math.Float64bits(mean))
}
