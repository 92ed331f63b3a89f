package load

import (
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Moved books the request on another worker instead of the one that decodes, as when
// the gateway sent it there. A worker that was to do both gives up both. The old
// reservation is released; of one that was released already nothing is booked. The
// worker must be in the pool.
func (r *Reservation) Moved(to fleet.Key) *Reservation {
	t := r.table
	w := t.Worker(to)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.state == released {
		return r
	}
	chains := r.last.upTo()
	b := Booking{PrefillTokens: r.tokens, Prompt: r.prompt, Blocks: r.alone + len(chains), Chains: chains, Prefill: r.prefill, Decode: w}
	if r.prefill == r.decode {
		b.Prefill = w
	}
	computed, name, due := r.state == decoding, r.name, r.due
	if computed {
		b.PrefillTokens = 0
	}
	r.release()
	next := t.Reserve(b)
	next.output, next.counts = r.output, r.counts
	if !due.IsZero() {
		next.due = due
		t.await(next)
	}
	switch {
	case computed:
		next.prefillDone()
	case name != "":
		next.name, t.named[name] = name, next
	}
	return next
}

// upTo returns the chains of a prompt that ends with a run; of none they are none.
func (r *run) upTo() []block.Chain {
	var parts [][]block.Chain
	for ; r != nil; r = r.parent {
		parts = append(parts, r.chains)
	}
	slices.Reverse(parts)
	return slices.Concat(parts...)
}
