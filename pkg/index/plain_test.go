package index_test

import (
	"math/bits"
	"sync"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// plain is the index as it was first: one map per tier from chain to a bitset of
// slots. It is the model of large random runs, and what the benchmarks compare with.
type plain struct {
	mu    sync.RWMutex
	tiers [kvevent.NumTiers]map[block.Chain]plainSet
	ranks map[fleet.Key]*plainRank
	slots []*plainRank // by Slot; nil while free
	free  []index.Slot // oldest first
	stats index.Stats
}

// plainRank is the index's side of one worker.
type plainRank struct {
	slot   index.Slot
	blocks map[kvevent.EngineHash]plainHeld
	count  [kvevent.NumTiers]int // chains held, per tier
	// again counts, per chain and tier, the engine hashes beyond the first that
	// stand for the same prefix. Nearly always empty.
	again map[plainPlace]int
}

// plainHeld is what an engine hash stands for.
type plainHeld struct {
	chain  block.Chain
	tiers  uint8                 // bit t: held on tier t
	copies [kvevent.NumTiers]int // beyond the first
}

type plainPlace struct {
	chain block.Chain
	tier  kvevent.Tier
}

func newPlain() *plain {
	x := &plain{ranks: map[fleet.Key]*plainRank{}}
	for t := range x.tiers {
		x.tiers[t] = map[block.Chain]plainSet{}
	}
	return x
}

// Register gives a worker a slot, or returns the one it has. It fails with
// index.ErrFull only.
func (x *plain) Register(k fleet.Key) (index.Slot, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, err := x.register(k)
	if err != nil {
		return 0, err
	}
	return r.slot, nil
}

func (x *plain) register(k fleet.Key) (*plainRank, error) {
	if r := x.ranks[k]; r != nil {
		return r, nil
	}
	r := &plainRank{blocks: map[kvevent.EngineHash]plainHeld{}}
	switch {
	case len(x.free) > 64 || len(x.slots) == index.MaxWorkers && len(x.free) > 0:
		r.slot, x.free = x.free[0], x.free[1:]
		x.slots[r.slot] = r
	case len(x.slots) < index.MaxWorkers:
		r.slot = index.Slot(len(x.slots))
		x.slots = append(x.slots, r)
	default:
		return nil, index.ErrFull
	}
	x.ranks[k] = r
	return r, nil
}

// Lookup returns a registered worker's slot.
func (x *plain) Lookup(k fleet.Key) (index.Slot, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.ranks[k]; r != nil {
		return r.slot, true
	}
	return 0, false
}

// Drop forgets a worker and all it holds. It is a no-op for an unknown one.
func (x *plain) Drop(k fleet.Key) {
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
func (x *plain) Clear(k fleet.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.ranks[k]; r != nil {
		x.clear(r)
	}
}

func (x *plain) clear(r *plainRank) {
	for _, h := range r.blocks {
		for t := range kvevent.Tier(kvevent.NumTiers) {
			if h.tiers>>t&1 == 1 {
				x.unhold(r, plainPlace{h.chain, t})
			}
		}
	}
	clear(r.blocks)
	clear(r.again)
}

// Apply applies one event. It registers a worker it has not seen before, and
// returns ErrFull when there is no room for it, or index.ErrTier, having done nothing.
//
// A stored event whose parent the worker does not hold is skipped and counted:
// its place in the prompt is unknown. A removal of an unknown block is counted
// and the rest of the event applied.
func (x *plain) Apply(ev *kvevent.Event) error {
	if ev.Tier >= kvevent.NumTiers {
		return index.ErrTier
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

func (x *plain) store(r *plainRank, ev *kvevent.Event) {
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
		x.storeBlock(r, ev, b.Engine, chain)
	}
}

func (x *plain) storeBlock(r *plainRank, ev *kvevent.Event, engine kvevent.EngineHash, chain block.Chain) {
	t := ev.Tier
	x.stats.Stored++
	h, known := r.blocks[engine]
	if known && h.chain != chain {
		// The engine gave the same id to other content: what it stood for
		// before is gone, on every tier.
		x.stats.Replaced++
		for old := range kvevent.Tier(kvevent.NumTiers) {
			if h.tiers>>old&1 == 1 {
				x.unhold(r, plainPlace{h.chain, old})
			}
		}
		h = plainHeld{}
	}
	if h.tiers>>t&1 == 1 {
		x.stats.Duplicates++
		if ev.Copies {
			h.copies[t]++
			r.blocks[engine] = h
		}
		return
	}
	h.chain, h.tiers = chain, h.tiers|1<<t
	r.blocks[engine] = h
	x.hold(r, plainPlace{chain, t})
}

func (x *plain) remove(r *plainRank, ev *kvevent.Event) {
	for _, engine := range ev.Gone {
		h, ok := r.blocks[engine]
		if !ok || h.tiers>>ev.Tier&1 == 0 {
			x.stats.UnknownRemovals++
			continue
		}
		x.stats.Removed++
		if ev.Copies && h.copies[ev.Tier] > 0 {
			h.copies[ev.Tier]--
			r.blocks[engine] = h
			continue
		}
		h.copies[ev.Tier] = 0
		x.unhold(r, plainPlace{h.chain, ev.Tier})
		h.tiers &^= 1 << ev.Tier
		if h.tiers == 0 {
			delete(r.blocks, engine)
		} else {
			r.blocks[engine] = h
		}
	}
}

// hold notes that one more engine hash of r stands for a place.
func (x *plain) hold(r *plainRank, p plainPlace) {
	holders := x.tiers[p.tier][p.chain]
	if holders.has(r.slot) {
		if r.again == nil {
			r.again = map[plainPlace]int{}
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
func (x *plain) unhold(r *plainRank, p plainPlace) {
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
func (x *plain) Stats() index.Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.stats
	s.Workers = len(x.ranks)
	return s
}

// Held returns how many chains a worker holds on each tier.
func (x *plain) Held(k fleet.Key) [kvevent.NumTiers]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.ranks[k]; r != nil {
		return r.count
	}
	return [kvevent.NumTiers]int{}
}

// Copies returns the copies that a worker has of blocks beyond the first, on each
// tier.
func (x *plain) Copies(k fleet.Key) map[kvevent.EngineHash][kvevent.NumTiers]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := map[kvevent.EngineHash][kvevent.NumTiers]int{}
	if r := x.ranks[k]; r != nil {
		for engine, h := range r.blocks {
			if h.copies != [kvevent.NumTiers]int{} {
				all[engine] = h.copies
			}
		}
	}
	return all
}

// Workers returns every registered worker, in no order.
func (x *plain) Workers() []fleet.Key {
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
func (x *plain) Chains(k fleet.Key, t kvevent.Tier) []block.Chain {
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

// plainMatch is a Match of plain.
type plainMatch struct {
	tiers [kvevent.NumTiers][]uint32
	alive []uint64
}

func (m *plainMatch) at(t kvevent.Tier, s int) int {
	if s < len(m.tiers[t]) {
		return int(m.tiers[t][s])
	}
	return 0
}

func (m *plainMatch) total(s int) int {
	return m.at(kvevent.Device, s) + m.at(kvevent.Host, s) + m.at(kvevent.Disk, s) + m.at(kvevent.External, s)
}

func (m *plainMatch) reset(t kvevent.Tier, n int) []uint32 {
	if cap(m.tiers[t]) < n {
		m.tiers[t] = make([]uint32, n)
	}
	m.tiers[t] = m.tiers[t][:n]
	clear(m.tiers[t])
	return m.tiers[t]
}

// walk calls report once for every slot that holds at least the first block,
// with the number of blocks it holds consecutively from there. It stops at the
// first block that nobody left in the race holds.
func walk(table map[block.Chain]plainSet, chains []block.Chain, slots int, alive []uint64, report func(index.Slot, uint32)) []uint64 {
	words := (slots + wordBits - 1) / wordBits
	if cap(alive) < words {
		alive = make([]uint64, words)
	}
	alive = alive[:words]
	for w := range alive {
		alive[w] = ^uint64(0)
	}
	for i, c := range chains {
		holders := table[c]
		left := uint64(0)
		for w := range alive {
			still := alive[w] & holders.word(w)
			// Before the first block everybody is in the race; dropping out
			// there means holding nothing, which needs no report.
			if i > 0 {
				for gone := alive[w] &^ still; gone != 0; gone &= gone - 1 {
					report(index.Slot(w*wordBits+bits.TrailingZeros64(gone)), uint32(i))
				}
			}
			alive[w] = still
			left |= still
		}
		if left == 0 {
			return alive
		}
	}
	if len(chains) > 0 {
		for w, word := range alive {
			eachBit(w, word, func(s index.Slot) { report(s, uint32(len(chains))) })
		}
	}
	return alive
}

// Match finds how many blocks of a prompt every worker holds. chains are the
// prompt's prefix chains in order; the result is written to m.
func (x *plain) Match(chains []block.Chain, m *plainMatch) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	slots := len(x.slots)
	device := m.reset(kvevent.Device, slots)
	if len(x.tiers[kvevent.Device]) > 0 {
		m.alive = walk(x.tiers[kvevent.Device], chains, slots, m.alive, func(s index.Slot, n uint32) { device[s] = n })
	}
	// All lower tiers are emptied before the first is counted: a count starts
	// after all tiers above, and must not see the last lookup's.
	for t := kvevent.Host; t < kvevent.NumTiers; t++ {
		m.tiers[t] = m.tiers[t][:0]
	}
	for t := kvevent.Host; t < kvevent.NumTiers; t++ {
		if len(x.tiers[t]) > 0 {
			x.extend(t, chains, m)
		}
	}
}

// extend counts, per worker, the blocks on lower tier t that continue what the
// tiers above it hold.
func (x *plain) extend(t kvevent.Tier, chains []block.Chain, m *plainMatch) {
	out := m.reset(t, len(x.slots))
	for s, r := range x.slots {
		if r == nil || r.count[t] == 0 {
			continue
		}
		start := m.total(s)
		for _, c := range chains[start:] {
			holders := x.tiers[t][c]
			if !holders.has(index.Slot(s)) {
				break
			}
			out[s]++
		}
	}
}

const wordBits = 64

// plainSet is a set of slots. The first 64 need no allocation of their own.
type plainSet struct {
	first uint64
	rest  []uint64
}

func (s *plainSet) word(i int) uint64 {
	if i == 0 {
		return s.first
	}
	if i > len(s.rest) {
		return 0
	}
	return s.rest[i-1]
}

func (s *plainSet) has(slot index.Slot) bool {
	return s.word(int(slot/wordBits))>>(slot%wordBits)&1 == 1
}

func (s *plainSet) add(slot index.Slot) {
	w, bit := int(slot/wordBits), uint64(1)<<(slot%wordBits)
	if w == 0 {
		s.first |= bit
		return
	}
	for len(s.rest) < w {
		s.rest = append(s.rest, 0)
	}
	s.rest[w-1] |= bit
}

func (s *plainSet) remove(slot index.Slot) {
	w, bit := int(slot/wordBits), uint64(1)<<(slot%wordBits)
	switch {
	case w == 0:
		s.first &^= bit
	case w <= len(s.rest):
		s.rest[w-1] &^= bit
	}
}

func (s *plainSet) empty() bool {
	if s.first != 0 {
		return false
	}
	for _, w := range s.rest {
		if w != 0 {
			return false
		}
	}
	return true
}

// eachBit calls f with the slot of every bit of word number w.
func eachBit(w int, word uint64, f func(index.Slot)) {
	for ; word != 0; word &= word - 1 {
		f(index.Slot(w*wordBits + bits.TrailingZeros64(word)))
	}
}
