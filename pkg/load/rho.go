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

// utilisation is the share of time that workers are busy, as a running mean. It is
// integrated exactly, at every change: what arrivals see is not what lies between
// them when they come in bursts. Its owner holds a lock, but to read it.
type utilisation struct {
	bits    atomic.Uint64
	last    time.Time // up to which it is integrated
	busy    int       // workers with prompts to compute
	workers int       // that compute prompts; 0: not known yet
}

func (u *utilisation) read() float64 { return min(maxRho, math.Float64frombits(u.bits.Load())) }

// advance integrates up to now. It comes before every change of busy and workers.
func (u *utilisation) advance(now time.Time) {
	dt := now.Sub(u.last)
	if dt <= 0 && !u.last.IsZero() {
		return
	}
	first := u.last.IsZero()
	u.last = now
	if first || u.workers == 0 {
		return
	}
	share := min(1, float64(u.busy)/float64(u.workers))
	mean := math.Float64frombits(u.bits.Load())
	mean += (1 - math.Exp(-dt.Seconds()/rhoMemory.Seconds())) * (share - mean)
	u.bits.Store(math.Float64bits(mean))
}

// change notes that the work of a worker went from some figure to another.
func (u *utilisation) change(from, to int64) {
	switch {
	case from <= 0 && to > 0:
		u.busy++
	case from > 0 && to <= 0:
		u.busy--
	}
}
