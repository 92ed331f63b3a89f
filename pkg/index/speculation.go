package index

import (
	"math/bits"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// maxGuessedChains bounds the memory of a Speculation: the chains of all
// remembered decisions together, 8 bytes each.
const maxGuessedChains = 1 << 20

// Speculation remembers, for a short time, which worker is about to hold which
// prompt because a decision just sent it there. It bridges the time until the
// worker's own events arrive: without it, equal prompts that come together
// would be spread over workers that all compute the same prefix.
//
// A guess is the part of a prompt that its worker did not hold yet. It counts
// for other prompts as far as they agree, for a worker that holds all before it.
//
// A guess belongs to the worker that prefills, never to one that only decodes.
// All methods may be called at once.
type Speculation struct {
	mu     sync.Mutex
	ttl    time.Duration
	start  time.Time // of the first call; times are kept relative to it
	queue  []*guess  // oldest first; all live for ttl, so also in order of expiry
	chains int       // in queue

	// Guesses by their first chain, which stands for the whole prompt up to
	// there, and how many begin at each block position.
	byFirst map[block.Chain][]*guess
	begins  counts
}

// guess is what one decision expects.
type guess struct {
	slot   Slot
	from   int           // position in the prompt of the first chain
	chains []block.Chain // empty once forgotten
	until  time.Duration
}

// NewSpeculation returns an empty Speculation whose guesses live for ttl. With a
// ttl of 0 it never remembers anything.
func NewSpeculation(ttl time.Duration) *Speculation {
	return &Speculation{ttl: ttl, byFirst: map[block.Chain][]*guess{}}
}

// Record remembers that the worker in a slot, which holds the first from blocks
// of a prompt on device, is about to hold the rest too.
func (g *Speculation) Record(now time.Time, s Slot, chains []block.Chain, from int) {
	chains = chains[min(from, len(chains)):]
	if g.ttl <= 0 || len(chains) == 0 || len(chains) > maxGuessedChains {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.expire(now)
	for g.chains+len(chains) > maxGuessedChains {
		g.pop()
	}
	e := &guess{slot: s, from: from, chains: slices.Clone(chains), until: at + g.ttl}
	g.byFirst[e.chains[0]] = append(g.byFirst[e.chains[0]], e)
	g.begins.add(from)
	g.queue = append(g.queue, e)
	g.chains += len(chains)
}

// Merge raises the device depths of m by the blocks that are guessed to follow
// what a worker holds. m must come from a lookup of the same chains.
func (g *Speculation) Merge(now time.Time, chains []block.Chain, m *Match) {
	if g.ttl <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	device := m.tiers[kvevent.Device]
	deepest := uint32(0)
	if len(g.queue) > 0 && len(device) > 0 {
		deepest = slices.Max(device)
	}
	// In order of position, since one guess may begin where another ends.
	for from := g.begins.next(0); from >= 0 && from < len(chains) && uint32(from) <= deepest; from = g.begins.next(from + 1) {
		for _, e := range g.byFirst[chains[from]] {
			if int(e.slot) >= len(device) || device[e.slot] < uint32(from) {
				continue // it does not hold, or will not, what comes before
			}
			end := uint32(from + agree(e.chains, chains[from:]))
			m.raise(e.slot, end)
			deepest = max(deepest, end)
		}
	}
}

// agree returns how many chains two prompts share. A chain stands for all before
// it, so they agree up to some point and never after it.
func agree(a, b []block.Chain) int {
	n := min(len(a), len(b))
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}

// Forget drops every guess about a worker, as when it restarts or leaves.
func (g *Speculation) Forget(s Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.queue {
		if e.slot == s {
			g.drop(e)
		}
	}
}

// expire drops the guesses whose time is over and returns now as used here.
func (g *Speculation) expire(now time.Time) time.Duration {
	if g.start.IsZero() {
		g.start = now
	}
	at := now.Sub(g.start)
	for len(g.queue) > 0 && g.queue[0].until <= at {
		g.pop()
	}
	return at
}

func (g *Speculation) pop() {
	g.drop(g.queue[0])
	g.queue[0] = nil
	g.queue = g.queue[1:]
}

// drop takes a guess out of everything but the queue.
func (g *Speculation) drop(e *guess) {
	if len(e.chains) == 0 {
		return // forgotten before
	}
	first := e.chains[0]
	same := slices.DeleteFunc(g.byFirst[first], func(o *guess) bool { return o == e })
	if len(same) == 0 {
		delete(g.byFirst, first)
	} else {
		g.byFirst[first] = same
	}
	g.begins.remove(e.from)
	g.chains -= len(e.chains)
	e.chains = nil
}

// counts is a multiset of small numbers that can be walked in order.
type counts struct {
	n    []int32
	bits []uint64 // bit i: n[i] > 0
}

func (c *counts) add(i int) {
	if i >= len(c.n) {
		c.n = append(c.n, make([]int32, i+1-len(c.n))...)
		c.bits = append(c.bits, make([]uint64, i/wordBits+1-len(c.bits))...)
	}
	c.n[i]++
	c.bits[i/wordBits] |= 1 << (i % wordBits)
}

func (c *counts) remove(i int) {
	if c.n[i]--; c.n[i] == 0 {
		c.bits[i/wordBits] &^= 1 << (i % wordBits)
	}
}

// next returns the smallest number from i on that is in the set, or -1.
func (c *counts) next(i int) int {
	for w := i / wordBits; w < len(c.bits); w++ {
		word := c.bits[w]
		if w == i/wordBits {
			word &= ^uint64(0) << (i % wordBits)
		}
		if word != 0 {
			return w*wordBits + bits.TrailingZeros64(word)
		}
	}
	return -1
}
