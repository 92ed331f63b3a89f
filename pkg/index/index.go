package index

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// ErrFull is returned by Register when the index holds MaxWorkers workers.
var ErrFull = errors.New("the prefix index is full: 4096 workers")

// ErrTier is returned by Apply for an event about a tier that does not exist.
var ErrTier = errors.New("an event about an unknown storage tier")

// quarantine is how many other slots are freed before a freed slot is used
// again, so that a decision under way never credits a worker with the cache of
// another that took over its slot.
const quarantine = 64

// slotBytes is what the registry takes per worker: its rank, and its share of the
// map and the lists. Room for MaxWorkers of them is set aside.
const slotBytes = 328

// Index is the prefix index. All methods may be called at once; events of one
// worker must be applied in order.
//
// Three locks, taken in this order: reg, a worker's own, and that of the tree.
// Lookups take the last only, for reading; no writer holds it for more than
// pieceBlocks blocks at a time.
type Index struct {
	room *budget

	reg   sync.RWMutex
	ranks map[fleet.Key]*rank
	slots []*rank // by Slot; nil while free
	free  []Slot  // oldest first

	lock lock
	tree *tree

	counters counters
	relief   sync.Mutex    // held by the one goroutine that evicts
	reliefs  atomic.Uint64 // how often it was
	work     sync.Pool     // *work
}

// rank is the index's side of one worker.
type rank struct {
	slot   Slot
	total  atomic.Int64 // entries on all tiers
	hidden atomic.Bool  // written with mu held

	mu     sync.Mutex
	gone   bool  // dropped
	lossy  bool  // blocks were refused or evicted: others may follow ones not known here
	blocks table // engine hash to its held
	// again counts, per cell and tier, the engine hashes beyond the first that
	// stand for the same prefix. Nearly always empty.
	again  table
	copies table                 // engine hash to its copies, of those that have several; nearly always empty
	count  [kvevent.NumTiers]int // chains held, per tier
	column column
	opened bool // column is given out
}

// Stats counts what the index has seen. All but the first two only grow.
type Stats struct {
	Workers int // registered now
	Entries int // (worker, tier, chain) held now

	Stored          uint64 // blocks stored
	Duplicates      uint64 // blocks stored that were held already: copies, too
	Replaced        uint64 // engine hashes stored again with other content
	UnknownParents  uint64 // stored events skipped: they follow a block the worker does not hold
	Removed         uint64 // blocks removed, and copies of blocks of which others are left
	UnknownRemovals uint64 // removals of blocks the worker does not hold
	Cleared         uint64 // cleared events
}

// counters is the running form of Stats and of parts of Memory.
type counters struct {
	entries                                            atomic.Int64
	stored, duplicates, replaced, unknownParents       atomic.Uint64
	removed, unknownRemovals, cleared, evicted, noRoom atomic.Uint64
	forgotten                                          atomic.Uint64
}

// New returns an empty index bounded by DefaultBytes.
func New() *Index { return newIndex(DefaultBytes) }

// NewBounded returns an empty index with a bound of its own.
func NewBounded(c Config) (*Index, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return newIndex(c.MaxBytes), nil
}

func newIndex(bytes int64) *Index {
	return newWithin(&budget{hard: bytes - MaxWorkers*slotBytes})
}

// newWithin returns an empty index that shares a budget.
func newWithin(room *budget) *Index {
	x := &Index{room: room, ranks: map[fleet.Key]*rank{}, tree: newTree(room)}
	x.work.New = func() any { return new(work) }
	return x
}

// Register gives a worker a slot, or returns the one it has. It fails with
// ErrFull only.
func (x *Index) Register(k fleet.Key) (Slot, error) {
	r, err := x.register(k)
	if err != nil {
		return 0, err
	}
	return r.slot, nil
}

func (x *Index) register(k fleet.Key) (*rank, error) {
	if r := x.rank(k); r != nil {
		return r, nil
	}
	x.reg.Lock()
	defer x.reg.Unlock()
	return x.registerLocked(k)
}

// registerLocked is register with reg held.
func (x *Index) registerLocked(k fleet.Key) (*rank, error) {
	if r := x.ranks[k]; r != nil {
		return r, nil
	}
	r := &rank{}
	switch {
	case len(x.free) > quarantine || len(x.slots) == MaxWorkers && len(x.free) > 0:
		r.slot, x.free = x.free[0], x.free[1:]
		x.slots[r.slot] = r
	case len(x.slots) < MaxWorkers:
		r.slot = Slot(len(x.slots))
		x.slots = append(x.slots, r)
		x.lock.Lock()
		x.tree.slots = len(x.slots)
		x.lock.Unlock()
	default:
		return nil, ErrFull
	}
	x.ranks[k] = r
	return r, nil
}

func (x *Index) rank(k fleet.Key) *rank {
	x.reg.RLock()
	defer x.reg.RUnlock()
	return x.ranks[k]
}

// enter registers a worker and locks it.
func (x *Index) enter(k fleet.Key) (*rank, error) {
	for {
		r, err := x.register(k)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		if !r.gone {
			return r, nil
		}
		r.mu.Unlock() // dropped in between: it is a new worker now
	}
}

// Lookup returns a registered worker's slot.
func (x *Index) Lookup(k fleet.Key) (Slot, bool) {
	if r := x.rank(k); r != nil {
		return r.slot, true
	}
	return 0, false
}

// Drop forgets a worker and all it holds. It is a no-op for an unknown one. Its
// cost does not depend on what the worker holds: that is swept by later writes.
func (x *Index) Drop(k fleet.Key) {
	x.reg.Lock()
	defer x.reg.Unlock()
	r := x.ranks[k]
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	x.clear(r)
	delete(x.ranks, k)
	x.slots[r.slot] = nil
	x.free = append(x.free, r.slot)
}

// Clear forgets all that a worker holds, as after a restart. The worker stays
// registered. Its cost is that of Drop.
func (x *Index) Clear(k fleet.Key) {
	if r := x.rank(k); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		x.clear(r)
	}
}

// clear forgets what a worker, whose lock is held, holds.
func (x *Index) clear(r *rank) {
	if r.total.Load() > 0 || r.gone && r.opened {
		x.lock.Lock()
		x.leave(r)
		x.tree.sweep()
		x.lock.Unlock()
	}
	x.empty(r)
}

// leave masks all that a worker holds, which takes no memory. The tree's lock is
// held.
func (x *Index) leave(r *rank) {
	x.tree.leave(r.column)
	for t, n := range r.count {
		x.tree.entries[t] -= n
	}
	r.opened = false
}

// empty forgets what the worker itself keeps.
func (x *Index) empty(r *rank) {
	x.counters.entries.Add(-r.total.Load())
	r.total.Store(0)
	r.lossy = false
	r.count = [kvevent.NumTiers]int{}
	r.blocks.release(x.room)
	r.again.release(x.room)
	r.copies.release(x.room)
}

// abandon clears a worker where there is no memory to take a single block from
// it. The tree's lock is held.
func (x *Index) abandon(r *rank) {
	x.counters.evicted.Add(uint64(r.total.Load()))
	x.counters.forgotten.Add(1)
	x.leave(r)
	x.empty(r)
	r.lossy = true
}

// Stats returns the counters. While writes go on, they need not be of one moment.
func (x *Index) Stats() Stats {
	x.reg.RLock()
	workers := len(x.ranks)
	x.reg.RUnlock()
	c := &x.counters
	return Stats{
		Workers: workers, Entries: int(c.entries.Load()),
		Stored: c.stored.Load(), Duplicates: c.duplicates.Load(), Replaced: c.replaced.Load(),
		UnknownParents: c.unknownParents.Load(), Removed: c.removed.Load(),
		UnknownRemovals: c.unknownRemovals.Load(), Cleared: c.cleared.Load(),
	}
}

// Memory says what the index keeps beyond what it counts as seen.
type Memory struct {
	Bytes   int64  // allocated by the index for what it holds, never more than Config.MaxBytes
	Max     int64  // Config.MaxBytes
	Columns int    // workers, and generations of workers that are not swept yet
	Swept   uint64 // runs looked at for generations that left
	Evicted uint64 // entries given up to keep the bound
	// Forgotten are workers of which all was evicted at once, since there was no
	// memory even to take single blocks from them. It is 0 unless most of the bound
	// is taken by holder sets.
	Forgotten uint64
	// NoRoom are blocks not stored, since there was no memory left nor anything to
	// evict, and copies not counted.
	NoRoom uint64
}

// Memory returns what the index keeps. Bytes does not have the buffers of calls
// under way, nor those of a Match.
func (x *Index) Memory() Memory {
	m := Memory{Max: x.room.hard + MaxWorkers*slotBytes, Evicted: x.counters.evicted.Load(), NoRoom: x.counters.noRoom.Load(), Forgotten: x.counters.forgotten.Load()}
	x.reg.RLock()
	m.Bytes = x.room.used.Load() + int64(len(x.slots))*slotBytes
	x.reg.RUnlock()
	x.lock.RLock()
	defer x.lock.RUnlock()
	m.Columns = x.tree.columns.count()
	m.Swept = x.tree.columns.swept
	return m
}

// Held returns how many chains a worker holds on each tier.
func (x *Index) Held(k fleet.Key) [kvevent.NumTiers]int {
	r := x.rank(k)
	if r == nil {
		return [kvevent.NumTiers]int{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Workers returns every registered worker, in no order.
func (x *Index) Workers() []fleet.Key {
	x.reg.RLock()
	defer x.reg.RUnlock()
	keys := make([]fleet.Key, 0, len(x.ranks))
	for k := range x.ranks {
		keys = append(keys, k)
	}
	return keys
}

// Chains returns every chain a worker holds on a tier, in no order. It is meant
// for people and tests: events of the worker wait until it is done.
func (x *Index) Chains(k fleet.Key, t kvevent.Tier) []block.Chain {
	r := x.rank(k)
	if r == nil || int(t) >= kvevent.NumTiers {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[block.Chain]struct{}, r.count[t])
	chains := make([]block.Chain, 0, r.count[t])
	r.blocks.each(func(_ uint64, value uint32) bool {
		c := x.tree.arena.chain(held(value).cell())
		if _, dup := seen[c]; !dup && held(value).on(t) {
			seen[c] = struct{}{}
			chains = append(chains, c)
		}
		return true
	})
	return chains
}
