package parity

import (
	"sync/atomic"
	"time"
)

// Sampler says which requests are compared: one in so many, and no more than so
// often. It may be used from many goroutines at once.
type Sampler struct {
	every uint64
	pause time.Duration
	seen  atomic.Uint64
	next  atomic.Int64 // Unix nanoseconds before which none is taken
}

// NewSampler takes one request in every, at most one each pause. every = 0 takes
// none.
func NewSampler(every int, pause time.Duration) *Sampler {
	return &Sampler{every: uint64(max(0, every)), pause: pause}
}

// Take says whether to compare the request of this moment. Requests of which
// nothing is known yet are eager: they all count as the one in so many.
func (s *Sampler) Take(now time.Time, eager bool) bool {
	if s.every == 0 {
		return false
	}
	if n := s.seen.Add(1); !eager && n%s.every != 0 {
		return false
	}
	at, next := now.UnixNano(), s.next.Load()
	return at >= next && s.next.CompareAndSwap(next, at+int64(s.pause))
}
