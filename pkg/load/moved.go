package load

import "github.com/warmpath/warmpath/pkg/fleet"

// Moved books the request on another worker instead of the one that decodes, as when
// the gateway sent it there. A worker that was to do both gives up both. The old
// reservation is released; of one that was released already nothing is booked. The
// worker must be in the pool.
func (r *Reservation) Moved(to fleet.Key) *Reservation {
	w := r.table.Worker(to)
	r.table.Lock()
	b, was := r.b, r.state
	r.table.Unlock()
	if was == released {
		return r
	}
	r.Release()
	if b.Prefill == b.Decode {
		b.PrefillKey, b.Prefill = to, w
	}
	b.DecodeKey, b.Decode = to, w
	if was == decoding {
		b.PrefillTokens = 0
	}
	r.table.Lock()
	defer r.table.Unlock()
	next := r.table.Reserve(b)
	if was == decoding {
		next.prefillDone()
	}
	return next
}
