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
	alive []uint64                   // columns that hold all up to the block looked at
	path  []stop                     // what lower tiers are counted on
}

// stop is a run, or the first part of one, that a prompt leads through.
type stop struct {
	at, n int // number of its first block in the prompt, and blocks
	sets  [kvevent.NumTiers]setID
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

// Found says whether any worker that the lookup knew holds a block of the prompt, on
// whatever tier.
func (m *Match) Found() bool {
	for _, slots := range m.tiers {
		for _, n := range slots {
			if n > 0 {
				return true
			}
		}
	}
	return false
}

// SharedFrom is how many blocks of the prompt follow the first n in a store outside
// the workers, whoever put them there, without a hole.
func (m *Match) SharedFrom(n int) int {
	end := n
	for i := range m.path {
		if p := &m.path[i]; p.at+p.n > end {
			if p.at > end || p.sets[kvevent.External] == 0 {
				break
			}
			end = p.at + p.n
		}
	}
	return end - n
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

// Rescale turns device depths that were counted in runs of from tokens into blocks
// of to tokens, which must be at least 1. A block that is not full does not count.
// It is for what a Speculation remembers of texts.
func (m *Match) Rescale(from, to int) {
	device := m.tiers[kvevent.Device]
	for i, n := range device {
		if n > 0 {
			device[i] = uint32(uint64(n) * uint64(max(0, from)) / uint64(to))
		}
	}
}

// Match finds how many blocks of a prompt every worker holds. chains are the
// prompt's prefix chains in order; the result is written to m.
func (x *Index) Match(chains []block.Chain, m *Match) {
	x.lock.RLock()
	defer x.lock.RUnlock()
	t := x.tree
	m.reset(kvevent.Device, t.slots)
	lower := false
	for tier := kvevent.Host; tier < kvevent.NumTiers; tier++ {
		m.tiers[tier] = m.tiers[tier][:0]
		lower = lower || t.entries[tier] > 0
	}
	m.path = m.path[:0]
	if len(chains) == 0 {
		return
	}
	t.walk(chains, m, lower)
	for tier := kvevent.Host; tier < kvevent.NumTiers; tier++ {
		if t.entries[tier] > 0 {
			t.continued(tier, m)
		}
	}
}

// walk counts on the device, run by run. It stops where nobody left in the race
// holds what follows; with lower tiers to count, where nobody holds it at all.
func (x *tree) walk(chains []block.Chain, m *Match, lower bool) {
	race := race{tree: x, out: m.tiers[kvevent.Device]}
	if need := len(x.columns.live); cap(m.alive) < need {
		m.alive = make([]uint64, need)
	}
	race.alive = m.alive[:cap(m.alive)]
	at := 0
	for id := x.find(chains[0]); id != 0; {
		r := x.run(id)
		n := common(x.arena.view(r.start, int(r.length)), chains[at:])
		if lower {
			m.path = append(m.path, stop{at, n, r.sets})
		}
		if set := r.sets[kvevent.Device]; at == 0 {
			race.begin(set)
		} else if set != race.set {
			race.narrow(set, uint32(at))
		}
		if race.low == race.high && !lower {
			return
		}
		if at += n; at == len(chains) {
			break
		}
		next := uint32(0)
		if n == int(r.length) && r.next != 0 {
			if f := x.run(r.next); f.start != 0 && x.first(f) == chains[at] {
				next = r.next
			}
		}
		if next == 0 {
			next = x.find(chains[at])
		}
		id = next
		race.reached = uint32(at)
	}
	race.reached = uint32(at)
	race.end()
}

// race is the set of columns that hold all blocks so far: words low up to high
// of alive, all others being zero.
type race struct {
	tree      *tree
	out       []uint32
	alive     []uint64
	low, high int
	set       setID // alive is exactly its live columns, or fewer
	reached   uint32
}

// begin lets all holders of the first block into the race.
func (r *race) begin(set setID) {
	r.set = set
	live := r.tree.columns.live
	switch {
	case set == 0:
	case set&manyBit == 0:
		c := column(set - 1)
		if hasBit(live, c) {
			r.low = int(c / wordBits)
			r.high = r.low + 1
			r.alive[r.low] = 1 << (c % wordBits)
		}
	default:
		words := r.tree.sets.words(set)
		r.high = min(len(words), len(live))
		left := uint64(0)
		for i := range r.high {
			r.alive[i] = words[i] & live[i]
			left |= r.alive[i]
		}
		if left == 0 {
			r.high = 0
		}
	}
}

// narrow takes those out of the race that do not hold the run at block n.
func (r *race) narrow(set setID, n uint32) {
	r.set = set
	var words []uint64
	if set&manyBit != 0 {
		words = r.tree.sets.words(set)
	}
	left := uint64(0)
	for w := r.low; w < r.high; w++ {
		var holders uint64
		if w < len(words) {
			holders = words[w]
		} else if set != 0 && set&manyBit == 0 && int(set-1)/wordBits == w {
			holders = 1 << ((set - 1) % wordBits)
		}
		r.report(w, r.alive[w]&^holders, n)
		r.alive[w] &= holders
		left |= r.alive[w]
	}
	if left == 0 {
		r.low, r.high = 0, 0
	}
}

// end reports those that are left.
func (r *race) end() {
	for w := r.low; w < r.high; w++ {
		r.report(w, r.alive[w], r.reached)
	}
}

func (r *race) report(w int, word uint64, n uint32) {
	slots := r.tree.columns.slots[w*wordBits:]
	for ; word != 0; word &= word - 1 {
		r.out[slots[bits.TrailingZeros64(word)]] = n
	}
}

// continued counts, per worker, the blocks on lower tier t that continue what
// the tiers above it hold. What those hold ends where a run ends, since all that
// hold a run hold all of it.
func (x *tree) continued(t kvevent.Tier, m *Match) {
	out := m.reset(t, x.slots)
	for i := range m.path {
		p := &m.path[i]
		set := p.sets[t]
		switch {
		case set == 0:
		case set&manyBit == 0:
			x.prolong(column(set-1), p, out, m)
		default:
			for w, word := range x.sets.words(set) {
				for ; word != 0; word &= word - 1 {
					x.prolong(column(w*wordBits+bits.TrailingZeros64(word)), p, out, m)
				}
			}
		}
	}
}

// prolong counts a stop for a column that holds all before it.
func (x *tree) prolong(c column, p *stop, out []uint32, m *Match) {
	if !hasBit(x.columns.live, c) {
		return
	}
	if s := x.columns.slots[c]; m.Depth(s).Total() == p.at {
		out[s] += uint32(p.n)
	}
}
