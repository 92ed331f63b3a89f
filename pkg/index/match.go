package index

import (
	"math/bits"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Depth is what one worker holds of one prompt, in blocks. Device counts from
// the prompt's first block; each lower tier continues where the tier above it
// ends, and a hole ends the count (dynamo.md 2.4).
type Depth struct {
	Device, Host, Disk, External int
}

// Total is the number of blocks held on any tier.
func (d Depth) Total() int { return d.Device + d.Host + d.Disk + d.External }

// Match is the answer to one lookup. Its owner reuses it from lookup to lookup;
// the zero value is ready.
type Match struct {
	tiers [kvevent.NumTiers][]uint32 // blocks per slot; empty when the tier holds nothing at all
	alive []uint64                   // scratch of walk
}

// Depth returns what the worker in a slot holds. A slot that the lookup did not
// know holds nothing.
func (m *Match) Depth(s Slot) Depth {
	at := func(t kvevent.Tier) int {
		if int(s) < len(m.tiers[t]) {
			return int(m.tiers[t][s])
		}
		return 0
	}
	return Depth{Device: at(kvevent.Device), Host: at(kvevent.Host), Disk: at(kvevent.Disk), External: at(kvevent.External)}
}

// reset makes the result of tier t zero for n slots.
func (m *Match) reset(t kvevent.Tier, n int) []uint32 {
	if cap(m.tiers[t]) < n {
		m.tiers[t] = make([]uint32, n, max(n, 2*cap(m.tiers[t])))
	}
	m.tiers[t] = m.tiers[t][:n]
	clear(m.tiers[t])
	return m.tiers[t]
}

// raise sets a slot's device depth to at least n blocks. Blocks that lower tiers
// counted below n are on the device now, and count once.
func (m *Match) raise(s Slot, n uint32) {
	d := m.tiers[kvevent.Device]
	if int(s) >= len(d) || d[s] >= n {
		return
	}
	over := n - d[s]
	d[s] = n
	for t := kvevent.Host; t < kvevent.NumTiers; t++ {
		if int(s) < len(m.tiers[t]) {
			cut := min(over, m.tiers[t][s])
			m.tiers[t][s] -= cut
			over -= cut
		}
	}
}

// walk calls report once for every slot that holds at least the first block,
// with the number of blocks it holds consecutively from there. It stops at the
// first block that nobody left in the race holds.
func walk(table map[block.Chain]set, chains []block.Chain, slots int, alive []uint64, report func(Slot, uint32)) []uint64 {
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
					report(Slot(w*wordBits+bits.TrailingZeros64(gone)), uint32(i))
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
			eachBit(w, word, func(s Slot) { report(s, uint32(len(chains))) })
		}
	}
	return alive
}

// Match finds how many blocks of a prompt every worker holds. chains are the
// prompt's prefix chains in order; the result is written to m.
func (x *Index) Match(chains []block.Chain, m *Match) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	slots := len(x.slots)
	device := m.reset(kvevent.Device, slots)
	if len(x.tiers[kvevent.Device]) > 0 {
		m.alive = walk(x.tiers[kvevent.Device], chains, slots, m.alive, func(s Slot, n uint32) { device[s] = n })
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
func (x *Index) extend(t kvevent.Tier, chains []block.Chain, m *Match) {
	out := m.reset(t, len(x.slots))
	for s, r := range x.slots {
		if r == nil || r.count[t] == 0 {
			continue
		}
		start := m.Depth(Slot(s)).Total()
		for _, c := range chains[start:] {
			holders := x.tiers[t][c]
			if !holders.has(Slot(s)) {
				break
			}
			out[s]++
		}
	}
}
