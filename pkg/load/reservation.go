package load

import (
	"math"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Booking is what one decision places on its workers. Prefill and Decode are the
// same worker for an aggregated decision.
type Booking struct {
	At            time.Time
	PrefillTokens int           // on Prefill, until PrefillDone
	Prompt        int           // all tokens of the prompt, which a pair transfers; 0: not known
	Blocks        int           // on Decode, until Release: all KV blocks of the prompt
	Chains        []block.Chain // of the full ones, to count those once that requests share; none: nothing is shared

	// Whole is a request whose output comes all at once. When that comes says nothing
	// of the prompt, so the prompt comes off when it should be computed.
	Whole bool

	PrefillKey, DecodeKey fleet.Key
	Prefill, Decode       *Worker
}

// Reservation is a booking under way. It must be released. All methods may be called
// at once, and more than once.
type Reservation struct {
	table           *Table
	prefill, decode *Worker
	last            *run // of the blocks that may be shared, nil when there are none
	tokens          int  // on prefill
	alone           int  // blocks on decode that nobody shares: those of the output, too, as far as they count

	due    time.Time // of a whole response: when the prompt should be computed; zero: nobody knows
	duePos int       // among those that are due some day, from 1; 0: not there
	at     time.Time // of the decision, zero when there is nothing to learn
	queued float64   // tokens on prefill that were to be computed before, by all bookings
	prompt int
	output int // blocks of the output
	counts int // of them, so many count: the weight is less than 1 for one that is soon over

	name  string // the id that workers know, empty when it does not matter (any more)
	state state
}

type state uint8

const (
	prefilling state = iota
	decoding
	released
)

// Reserve books a decision, and keeps nothing of it. The caller holds the lock.
func (t *Table) Reserve(b Booking) *Reservation {
	t.rho.advance(b.At)
	p, d := b.Prefill, b.Decode
	r := &Reservation{
		table: t, prefill: p, decode: d, tokens: b.PrefillTokens, alone: b.Blocks - len(b.Chains),
		at: b.At, queued: p.left(float64(p.booked()), b.At.UnixNano()), prompt: b.Prompt,
	}
	if b.Whole && !b.At.IsZero() {
		r.at, r.due = time.Time{}, b.At.Add(p.takes(r.queued+float64(r.tokens)))
		t.await(r)
	}
	fresh, left := 0, len(b.Chains)
	if !d.forgotten {
		r.last, fresh, left = t.prefixes.add(b.Chains, d.row)
	}
	r.alone += left
	if p.prefill.Load() == 0 {
		p.begun(b.At)
	}
	p.own.prefill += int64(b.PrefillTokens)
	if b.PrefillTokens > 0 {
		p.own.prompts++
	}
	p.holds++
	p.putPrefill()
	p.version.Add(1)
	d.own.blocks += int64(fresh + r.alone)
	d.own.requests++
	d.holds++
	d.putBlocks()
	d.putRequests()
	if d != p {
		d.version.Add(1)
	}
	return r
}

// PrefillDone takes the prompt off the prefill worker: the first output was seen.
// Only the first call has an effect, and none after Release.
func (r *Reservation) PrefillDone(now time.Time) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.state == released {
		return
	}
	t.rho.advance(now)
	t.learn(r, now)
	if r.state == prefilling {
		r.prefill.begun(now)
	}
	r.prefillDone()
}

// PrefillEnded takes the prompt off the prefill worker as PrefillDone does, when that
// the output came now says nothing of how long the prompt took: of an error, or of a
// response that comes as a whole.
func (r *Reservation) PrefillEnded() {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r.at = time.Time{}
	if r.state == prefilling && !t.rho.last.IsZero() {
		r.prefill.begun(t.rho.last)
	}
	r.prefillDone()
}

func (r *Reservation) prefillDone() {
	if r.state != prefilling {
		return
	}
	r.state = decoding
	r.unname()
	r.table.awaitNoMore(r)
	r.prefill.own.prefill -= int64(r.tokens)
	if r.tokens > 0 {
		r.prefill.own.prompts--
	}
	r.prefill.putPrefill()
	r.table.unhold(r.prefill)
}

// Output says how many KV blocks the output uses so far, and which share of the
// output is still to come, 0 to 1: they are weighed with it, since they will be free
// the sooner the less is left (dynamo.md 4.2, track-output-blocks). It is 1 where
// nobody knows how long the output will be. A word of no more blocks than before has
// no effect, and neither has one after Release.
func (r *Reservation) Output(blocks int, left float64) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.state == released || blocks <= r.output {
		return
	}
	r.output = blocks
	more := weighed(blocks, left) - r.counts
	r.counts += more
	r.alone += more
	r.decode.own.blocks += int64(more)
	r.decode.putBlocks()
	if more > 0 {
		r.decode.version.Add(1)
	}
}

// weighed is how many blocks count, at most all.
func weighed(blocks int, left float64) int {
	if !(left > 0) { // NaN is no share
		return 0
	}
	return int(math.Round(float64(blocks) * min(1, left)))
}

// Release takes the whole booking off. Only the first call has an effect.
func (r *Reservation) Release() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.release()
}

func (r *Reservation) release() {
	t := r.table
	if r.state == released {
		return
	}
	r.prefillDone()
	r.state = released
	d, freed := r.decode, r.alone
	if r.last != nil {
		freed += t.prefixes.remove(r.last, d.row)
		r.last = nil
	}
	d.own.blocks -= int64(freed)
	d.own.requests--
	d.putBlocks()
	d.putRequests()
	t.unhold(d)
}

// Name says by which id the workers know the request, so that what they say of it
// counts: a worker's word that the prompt is computed takes it off as PrefillDone
// does. The word may have come before.
func (r *Reservation) Name(id string) {
	t := r.table
	t.mu.Lock()
	if r.state != prefilling || id == "" || len(id) > MaxRequestID {
		t.mu.Unlock()
		return
	}
	r.unname()
	r.name = id
	t.named[id] = r
	feeders := t.feeders
	t.mu.Unlock()
	for _, e := range feeders {
		if e.prefilled(r.prefill.key, id) || e.prefilled(r.decode.key, id) {
			t.mu.Lock()
			r.prefillDone()
			t.mu.Unlock()
			return
		}
	}
}

func (r *Reservation) unname() {
	if r.name == "" {
		return
	}
	if r.table.named[r.name] == r {
		delete(r.table.named, r.name)
	}
	r.name = ""
}
