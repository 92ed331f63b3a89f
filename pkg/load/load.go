package load

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Figures are the work outstanding on one worker, as far as anybody told: this
// picker's own bookings, those of other routers, and what the engine says.
type Figures struct {
	PrefillTokens int // prompt tokens placed there and not yet known to be computed; of an engine's queue, those beyond them
	DecodeBlocks  int // KV blocks of the requests that decode there; those that requests share count once. More while the engine has more in use
	Requests      int // requests that decode there; of others' all that are there

	// SecondsPerToken is what a prompt token takes there, learned; 0: not known.
	SecondsPerToken float64

	// What the engine says of itself; 0: not known, or too long ago.
	KVUse    float64 // share of its KV blocks that are in use, 0 to 1
	KVBlocks int     // KV blocks that it has
	Waiting  int     // requests in its own queue
}

// Worker is the load of one worker. Figures, Ahead, Version, Row and Adapter may be read
// at any time, all else belongs to the table.
type Worker struct {
	// What every decision reads comes first, in one line of the processor's cache.
	prefill  atomic.Int64
	blocks   atomic.Int64
	requests atomic.Int64
	kvBlocks atomic.Int64
	speed    atomic.Uint64 // bits of SecondsPerToken
	since    atomic.Int64  // when the prompt under way was begun at the earliest, in Unix nanoseconds
	coming   atomic.Uint64 // bits of what is left of news
	prompts  atomic.Int32  // that are not known to be computed
	version  atomic.Uint32

	kvUse    atomic.Uint64 // bits of KVUse
	waiting  atomic.Int64
	adapters atomic.Pointer[adapters]

	key    fleet.Key
	rho    *utilisation
	row    int32
	own    own
	others others
	pace   pace
	news   news

	holds     int // reservations that point here
	gone      bool
	forgotten bool // the row may be another worker's
}

// own is what this picker has booked on a worker.
type own struct {
	prefill, blocks, requests, prompts int64
}

// Row is the worker's place in the answers of [Table.Active]. It is taken by another
// worker once this one is forgotten.
func (w *Worker) Row() int { return int(w.row) }

// Work returns the figures of what is placed on the worker, and how many KV blocks it
// has: those that every decision needs. The others are 0.
func (w *Worker) Work() Figures {
	return Figures{
		PrefillTokens: int(w.prefill.Load()),
		DecodeBlocks:  int(w.blocks.Load()),
		Requests:      int(w.requests.Load()),
		KVBlocks:      int(w.kvBlocks.Load()),
	}
}

// Figures returns the figures as of now. They are read one by one: a booking that
// is made meanwhile may be in some of them only.
func (w *Worker) Figures() Figures {
	return Figures{
		PrefillTokens:   int(w.prefill.Load()),
		DecodeBlocks:    int(w.blocks.Load()),
		Requests:        int(w.requests.Load()),
		SecondsPerToken: math.Float64frombits(w.speed.Load()),
		KVUse:           math.Float64frombits(w.kvUse.Load()),
		KVBlocks:        int(w.kvBlocks.Load()),
		Waiting:         int(w.waiting.Load()),
	}
}

// Version changes with every booking on the worker, and when others make it dearer.
// A decision that was made without the lock holds if the versions of its workers
// are still the same under it: what was booked elsewhere makes others dearer, never
// these.
func (w *Worker) Version() uint32 { return w.version.Load() }

// Table is the load of a pool. All methods may be called at once.
type Table struct {
	mu       sync.Mutex
	workers  map[fleet.Key]*Worker
	rows     []*Worker // by Row; nil: free
	free     []int32   // rows that are
	prefixes prefixes
	named    map[string]*Reservation // that compute their prompt, by the id that workers know
	feeders  []*Engines              // replaced, never changed
	dues     dues
	prompt   promptMean
	clocks   clocks
	transfer transfer
	rho      utilisation

	aged atomic.Int64 // when the last turn of ageing was, in Unix nanoseconds
	turn atomic.Int64 // time between two, in nanoseconds
	last int          // row that was aged last
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{workers: map[fleet.Key]*Worker{}, prefixes: newPrefixes(), named: map[string]*Reservation{}, clocks: clocks{}}
	t.turn.Store(int64(agePeriod))
	return t
}

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
	w, known := t.workers[k]
	if !known {
		w = t.add(k)
	}
	w.gone = false
	feeders := t.feeders
	t.mu.Unlock()
	if !known {
		for _, e := range feeders { // they may have heard of it before
			e.retell(k)
		}
	}
	return w
}

func (t *Table) add(k fleet.Key) *Worker {
	w := &Worker{key: k, row: int32(len(t.rows)), rho: &t.rho}
	if n := len(t.free); n > 0 {
		w.row, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.rows = append(t.rows, nil)
		t.turn.Store(int64(agePeriod) * ageTurn / max(ageTurn, int64(len(t.rows))))
	}
	t.workers[k], t.rows[w.row] = w, w
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
			t.forget(w)
		}
	}
}

func (t *Table) forget(w *Worker) {
	w.forgotten = true
	t.rho.change(w.prefill.Load(), 0)
	delete(t.workers, w.key)
	t.rows[w.row] = nil
	t.free = append(t.free, w.row)
}

func (t *Table) unhold(w *Worker) {
	w.holds--
	if w.holds == 0 && w.gone && !w.forgotten {
		t.forget(w)
	}
}

// Active says, by Row, how many blocks from the start of a prompt the requests on a
// worker use already. It appends to out[:0].
func (t *Table) Active(chains []block.Chain, out []int32) []int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out = slices.Grow(out[:0], len(t.rows))[:len(t.rows)]
	clear(out)
	t.prefixes.depths(chains, out)
	return out
}

// Rho is the share of time that workers which compute prompts are busy with it: a
// running mean over some two minutes, at most 0.95 (policy.md).
func (t *Table) Rho() float64 { return t.rho.read() }

// Arrived tells of an arrival, and how many workers compute prompts now. The caller
// holds the lock.
func (t *Table) Arrived(now time.Time, workers int) {
	t.rho.advance(now)
	t.rho.workers = workers
	if t.old(now) {
		t.age(now)
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

// Booked calls f with what this picker booked on every worker, under the lock:
// what others say is not in it.
func (t *Table) Booked(f func(fleet.Key, Figures)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, w := range t.workers {
		f(k, Figures{PrefillTokens: int(w.own.prefill), DecodeBlocks: int(w.own.blocks), Requests: int(w.own.requests)})
	}
}
