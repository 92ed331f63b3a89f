package index

import (
	"errors"
	"sync"

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

// Index is the prefix index. All methods may be called at once; events of one
// worker must be applied in order.
type Index struct {
	mu    sync.RWMutex
	tiers [kvevent.NumTiers]map[block.Chain]set
	ranks map[fleet.Key]*rank
	slots []*rank // by Slot; nil while free
	free  []Slot  // oldest first
	stats Stats
}

// rank is the index's side of one worker.
type rank struct {
	slot   Slot
	blocks map[kvevent.EngineHash]held
	count  [kvevent.NumTiers]int // chains held, per tier
	// again counts, per chain and tier, the engine hashes beyond the first that
	// stand for the same prefix. Nearly always empty.
	again map[place]int
}

// held is what an engine hash stands for.
type held struct {
	chain block.Chain
	tiers uint8 // bit t: held on tier t
}

type place struct {
	chain block.Chain
	tier  kvevent.Tier
}

// Stats counts what the index has seen. All but the first two only grow.
type Stats struct {
	Workers int // registered now
	Entries int // (worker, tier, chain) held now

	Stored          uint64 // blocks stored
	Duplicates      uint64 // blocks stored that were held already
	Replaced        uint64 // engine hashes stored again with other content
	UnknownParents  uint64 // stored events skipped: they follow a block the worker does not hold
	Removed         uint64 // blocks removed
	UnknownRemovals uint64 // removals of blocks the worker does not hold
	Cleared         uint64 // cleared events
}

// New returns an empty index.
func New() *Index {
	x := &Index{ranks: map[fleet.Key]*rank{}}
	for t := range x.tiers {
		x.tiers[t] = map[block.Chain]set{}
	}
	return x
}

// Register gives a worker a slot, or returns the one it has. It fails with
// ErrFull only.
func (x *Index) Register(k fleet.Key) (Slot, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, err := x.register(k)
	if err != nil {
		return 0, err
	}
	return r.slot, nil
}

func (x *Index) register(k fleet.Key) (*rank, error) {
	if r := x.ranks[k]; r != nil {
		return r, nil
	}
	r := &rank{blocks: map[kvevent.EngineHash]held{}}
	switch {
	case len(x.free) > quarantine || len(x.slots) == MaxWorkers && len(x.free) > 0:
		r.slot, x.free = x.free[0], x.free[1:]
		x.slots[r.slot] = r
	case len(x.slots) < MaxWorkers:
		r.slot = Slot(len(x.slots))
		x.slots = append(x.slots, r)
	default:
		return nil, ErrFull
	}
	x.ranks[k] = r
	return r, nil
}

// Lookup returns a registered worker's slot.
func (x *Index) Lookup(k fleet.Key) (Slot, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.ranks[k]; r != nil {
		return r.slot, true
	}
	return 0, false
}

// Drop forgets a worker and all it holds. It is a no-op for an unknown one.
func (x *Index) Drop(k fleet.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.ranks[k]
	if r == nil {
		return
	}
	x.clear(r)
	delete(x.ranks, k)
	x.slots[r.slot] = nil
	x.free = append(x.free, r.slot)
}

// Clear forgets all that a worker holds, as after a restart. The worker stays
// registered.
func (x *Index) Clear(k fleet.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.ranks[k]; r != nil {
		x.clear(r)
	}
}

func (x *Index) clear(r *rank) {
	for _, h := range r.blocks {
		for t := range kvevent.Tier(kvevent.NumTiers) {
			if h.tiers>>t&1 == 1 {
				x.unhold(r, place{h.chain, t})
			}
		}
	}
	clear(r.blocks)
	clear(r.again)
}

// Apply applies one event. It registers a worker it has not seen before, and
// returns ErrFull when there is no room for it, or ErrTier, having done nothing.
//
// A stored event whose parent the worker does not hold is skipped and counted:
// its place in the prompt is unknown. A removal of an unknown block is counted
// and the rest of the event applied.
func (x *Index) Apply(ev *kvevent.Event) error {
	if ev.Tier >= kvevent.NumTiers {
		return ErrTier
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r, err := x.register(fleet.Key{ID: ev.WorkerID, Rank: ev.Rank})
	if err != nil {
		return err
	}
	switch ev.Kind {
	case kvevent.Stored:
		x.store(r, ev)
	case kvevent.Removed:
		x.remove(r, ev)
	case kvevent.Cleared:
		x.stats.Cleared++
		x.clear(r)
		if ev.AllRanks {
			for k, other := range x.ranks {
				if k.ID == ev.WorkerID {
					x.clear(other)
				}
			}
		}
	}
	return nil
}

func (x *Index) store(r *rank, ev *kvevent.Event) {
	blocks := ev.Blocks
	if len(blocks) == 0 {
		return
	}
	chain := block.Root(blocks[0].Hash)
	if ev.HasParent {
		parent, ok := r.blocks[ev.Parent]
		if !ok {
			x.stats.UnknownParents++
			return
		}
		chain = parent.chain.Next(blocks[0].Hash)
	}
	for i, b := range blocks {
		if i > 0 {
			chain = chain.Next(b.Hash)
		}
		x.storeBlock(r, ev.Tier, b.Engine, chain)
	}
}

func (x *Index) storeBlock(r *rank, t kvevent.Tier, engine kvevent.EngineHash, chain block.Chain) {
	x.stats.Stored++
	h, known := r.blocks[engine]
	if known && h.chain != chain {
		// The engine gave the same id to other content: what it stood for
		// before is gone, on every tier.
		x.stats.Replaced++
		for old := range kvevent.Tier(kvevent.NumTiers) {
			if h.tiers>>old&1 == 1 {
				x.unhold(r, place{h.chain, old})
			}
		}
		h = held{}
	}
	if h.tiers>>t&1 == 1 {
		x.stats.Duplicates++
		return
	}
	r.blocks[engine] = held{chain, h.tiers | 1<<t}
	x.hold(r, place{chain, t})
}

func (x *Index) remove(r *rank, ev *kvevent.Event) {
	for _, engine := range ev.Gone {
		h, ok := r.blocks[engine]
		if !ok || h.tiers>>ev.Tier&1 == 0 {
			x.stats.UnknownRemovals++
			continue
		}
		x.stats.Removed++
		x.unhold(r, place{h.chain, ev.Tier})
		h.tiers &^= 1 << ev.Tier
		if h.tiers == 0 {
			delete(r.blocks, engine)
		} else {
			r.blocks[engine] = h
		}
	}
}

// hold notes that one more engine hash of r stands for a place.
func (x *Index) hold(r *rank, p place) {
	holders := x.tiers[p.tier][p.chain]
	if holders.has(r.slot) {
		if r.again == nil {
			r.again = map[place]int{}
		}
		r.again[p]++
		return
	}
	holders.add(r.slot)
	x.tiers[p.tier][p.chain] = holders
	r.count[p.tier]++
	x.stats.Entries++
}

// unhold takes one engine hash of r away from a place.
func (x *Index) unhold(r *rank, p place) {
	if n := r.again[p]; n > 0 {
		if n == 1 {
			delete(r.again, p)
		} else {
			r.again[p] = n - 1
		}
		return
	}
	holders := x.tiers[p.tier][p.chain]
	holders.remove(r.slot)
	if holders.empty() {
		delete(x.tiers[p.tier], p.chain)
	} else {
		x.tiers[p.tier][p.chain] = holders
	}
	r.count[p.tier]--
	x.stats.Entries--
}

// Stats returns the counters.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.stats
	s.Workers = len(x.ranks)
	return s
}

// Held returns how many chains a worker holds on each tier.
func (x *Index) Held(k fleet.Key) [kvevent.NumTiers]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.ranks[k]; r != nil {
		return r.count
	}
	return [kvevent.NumTiers]int{}
}

// Workers returns every registered worker, in no order.
func (x *Index) Workers() []fleet.Key {
	x.mu.RLock()
	defer x.mu.RUnlock()
	keys := make([]fleet.Key, 0, len(x.ranks))
	for k := range x.ranks {
		keys = append(keys, k)
	}
	return keys
}

// Chains returns every chain a worker holds on a tier, in no order. It is meant
// for people and tests: it reads all that the worker holds under the lock.
func (x *Index) Chains(k fleet.Key, t kvevent.Tier) []block.Chain {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.ranks[k]
	if r == nil || int(t) >= kvevent.NumTiers {
		return nil
	}
	seen := make(map[block.Chain]struct{}, r.count[t])
	chains := make([]block.Chain, 0, r.count[t])
	for _, h := range r.blocks {
		if _, dup := seen[h.chain]; !dup && h.tiers>>t&1 == 1 {
			seen[h.chain] = struct{}{}
			chains = append(chains, h.chain)
		}
	}
	return chains
}
