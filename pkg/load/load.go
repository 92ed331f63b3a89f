package load

import (
	"sync"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Figures are the work outstanding on one worker.
type Figures struct {
	PrefillTokens int // prompt tokens booked and not yet known to be computed
	DecodeBlocks  int // KV blocks of the requests that decode there
	Requests      int // requests that decode there
}

// Worker is the load of one worker. Read and written only under its table's lock.
type Worker struct {
	Figures
	holds int // reservations that point here
	gone  bool
}

// Table is the load of a pool. All methods may be called at once.
type Table struct {
	mu      sync.Mutex
	workers map[fleet.Key]*Worker
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{workers: map[fleet.Key]*Worker{}} }

// Lock opens the critical section of a decision: read the figures of the
// candidates, choose, Reserve, Unlock. Nothing in it may block.
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
		w = &Worker{}
		t.workers[k] = w
	}
	w.gone = false
	return w
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
			delete(t.workers, k)
		}
	}
}

// Booking is what one decision places on its workers. Prefill and Decode are the
// same worker for an aggregated decision.
type Booking struct {
	PrefillTokens int // on Prefill, until PrefillDone
	DecodeBlocks  int // on Decode, until Release

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

// Reserve books a decision. The caller holds the lock.
func (t *Table) Reserve(b Booking) *Reservation {
	b.Prefill.PrefillTokens += b.PrefillTokens
	b.Prefill.holds++
	b.Decode.DecodeBlocks += b.DecodeBlocks
	b.Decode.Requests++
	b.Decode.holds++
	return &Reservation{table: t, b: b}
}

// PrefillDone takes the prompt off the prefill worker: the first output was seen.
// Only the first call has an effect, and none after Release.
func (r *Reservation) PrefillDone() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.prefillDone()
}

func (r *Reservation) prefillDone() {
	if r.state != prefilling {
		return
	}
	r.state = decoding
	r.b.Prefill.PrefillTokens -= r.b.PrefillTokens
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
	r.b.Decode.DecodeBlocks -= r.b.DecodeBlocks
	r.b.Decode.Requests--
	r.table.unhold(r.b.DecodeKey, r.b.Decode)
}

func (t *Table) unhold(k fleet.Key, w *Worker) {
	w.holds--
	if w.holds == 0 && w.gone && t.workers[k] == w {
		delete(t.workers, k)
	}
}

// Read calls f with the figures of every worker, under the lock.
func (t *Table) Read(f func(fleet.Key, Figures)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, w := range t.workers {
		f(k, w.Figures)
	}
}
