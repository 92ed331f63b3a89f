package load

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Figures are the work outstanding on one worker, as far as anybody told.
type Figures struct {
	PrefillTokens int // prompt tokens placed there and not yet known to be computed
	DecodeBlocks  int // KV blocks of the requests that decode there; those that requests share count once
	Requests      int // requests that decode there

	// SecondsPerToken is what a prompt token takes there, learned; 0: not known.
	SecondsPerToken float64
}

// Worker is the load of one worker. Figures and Version may be read at any time,
// all else belongs to the table.
type Worker struct {
	row      int
	prefill  atomic.Int64
	blocks   atomic.Int64
	requests atomic.Int64
	speed    atomic.Uint64 // bits of SecondsPerToken
	version  atomic.Uint32

	active map[block.Chain]int // blocks in use, and by how many requests
	holds  int                 // reservations that point here
	gone   bool
}

// Row is the worker's place in the answers of [Table.Active]. It is taken by another
// worker once this one is forgotten.
func (w *Worker) Row() int { return w.row }

// Figures returns the figures as of now. They are read one by one: a booking that
// is made meanwhile may be in some of them only.
func (w *Worker) Figures() Figures {
	return Figures{
		PrefillTokens:   int(w.prefill.Load()),
		DecodeBlocks:    int(w.blocks.Load()),
		Requests:        int(w.requests.Load()),
		SecondsPerToken: math.Float64frombits(w.speed.Load()),
	}
}

// Version changes with every booking on the worker. A decision that was made
// without the lock holds if the versions of its workers are still the same under
// it: what was booked elsewhere makes others dearer, never these.
func (w *Worker) Version() uint32 { return w.version.Load() }

// Table is the load of a pool. All methods may be called at once.
type Table struct {
	mu      sync.Mutex
	workers map[fleet.Key]*Worker
	rows    []*Worker // by Row; nil: free
	rho     utilisation
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{workers: map[fleet.Key]*Worker{}} }

// Lock opens the critical section that makes a decision final: see that nothing
// was booked meanwhile on the chosen workers, or choose again; Reserve; Unlock.
// Nothing in it may block.
func (t *Table) Lock() { t.mu.Lock() }

// Unlock closes the critical section.
func (t *Table) Unlock() { t.mu.Unlock() }

// Worker returns the load entry of a worker, which stays the same until the
// worker is retained no more.
func (t *Table) Worker(k fleet.Key) *Worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[k]
	if w == nil {
		w = &Worker{row: t.row(), active: map[block.Chain]int{}}
		t.workers[k], t.rows[w.row] = w, w
	}
	w.gone = false
	return w
}

// row returns a free row.
func (t *Table) row() int {
	for i, w := range t.rows {
		if w == nil {
			return i
		}
	}
	t.rows = append(t.rows, nil)
	return len(t.rows) - 1
}

// Retain forgets the workers that are not in s. The load of one that still has
// requests is kept until they end, so that a worker which only blinked does not
// come back looking idle.
func (t *Table) Retain(s *fleet.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, w := range t.workers {
		if _, ok := s.Index(k); ok {
			continue
		}
		w.gone = true
		if w.holds == 0 {
			t.forget(k, w)
		}
	}
}

func (t *Table) forget(k fleet.Key, w *Worker) {
	delete(t.workers, k)
	t.rows[w.row] = nil
}

// Active says, by Row, how many blocks from the start of a prompt the requests on a
// worker use already. It appends to out[:0].
func (t *Table) Active(chains []block.Chain, out []int32) []int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out = out[:0]
	for _, w := range t.rows {
		n := int32(0)
		if w != nil {
			for int(n) < len(chains) && w.active[chains[n]] > 0 {
				n++
			}
		}
		out = append(out, n)
	}
	return out
}

// Rho is the share of time that workers which compute prompts are busy with it: a
// running mean over some two minutes, at most 0.95 (policy.md).
func (t *Table) Rho() float64 { return t.rho.read() }

// Arrived tells of an arrival, and how many of the workers that compute prompts are
// busy then. The caller holds the lock.
func (t *Table) Arrived(now time.Time, busy, workers int) { t.rho.arrived(now, busy, workers) }

// Booking is what one decision places on its workers. Prefill and Decode are the
// same worker for an aggregated decision.
type Booking struct {
	At            time.Time
	PrefillTokens int           // on Prefill, until PrefillDone
	Blocks        int           // on Decode, until Release: all KV blocks of the prompt
	Chains        []block.Chain // of the full ones, to count those once that requests share; none: nothing is shared

	PrefillKey, DecodeKey fleet.Key
	Prefill, Decode       *Worker
}

// Reservation is a booking under way. It must be released.
type Reservation struct {
	table *Table
	b     Booking
	state state
}

type state uint8

const (
	prefilling state = iota
	decoding
	released
)

// Reserve books a decision. It keeps a copy of the chains. The caller holds the
// lock.
func (t *Table) Reserve(b Booking) *Reservation {
	b.Chains = append([]block.Chain(nil), b.Chains...)
	b.Prefill.prefill.Add(int64(b.PrefillTokens))
	b.Prefill.version.Add(1)
	b.Prefill.holds++
	unique := b.Blocks - len(b.Chains)
	for _, c := range b.Chains {
		if b.Decode.active[c]++; b.Decode.active[c] == 1 {
			unique++
		}
	}
	b.Decode.blocks.Add(int64(unique))
	b.Decode.requests.Add(1)
	if b.Decode != b.Prefill {
		b.Decode.version.Add(1)
	}
	b.Decode.holds++
	return &Reservation{table: t, b: b}
}

// PrefillDone takes the prompt off the prefill worker: the first output was seen.
// Only the first call has an effect, and none after Release.
func (r *Reservation) PrefillDone(now time.Time) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	_ = now
	r.prefillDone()
}

func (r *Reservation) prefillDone() {
	if r.state != prefilling {
		return
	}
	r.state = decoding
	r.b.Prefill.prefill.Add(-int64(r.b.PrefillTokens))
	r.table.unhold(r.b.PrefillKey, r.b.Prefill)
}

// Release takes the whole booking off. Only the first call has an effect.
func (r *Reservation) Release() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.prefillDone()
	if r.state == released {
		return
	}
	r.state = released
	w := r.b.Decode
	unique := r.b.Blocks - len(r.b.Chains)
	for _, c := range r.b.Chains {
		if w.active[c]--; w.active[c] == 0 {
			delete(w.active, c)
			unique++
		}
	}
	w.blocks.Add(-int64(unique))
	w.requests.Add(-1)
	r.table.unhold(r.b.DecodeKey, w)
}

func (t *Table) unhold(k fleet.Key, w *Worker) {
	w.holds--
	if w.holds == 0 && w.gone && t.workers[k] == w {
		t.forget(k, w)
	}
}

// Read calls f with the figures of every worker, under the lock.
func (t *Table) Read(f func(fleet.Key, Figures)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, w := range t.workers {
		f(k, w.Figures())
	}
}
