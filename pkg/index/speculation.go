package index

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// maxGuessedChains bounds the memory of a Speculation: the chains of all
// remembered decisions together, about 60 bytes each.
const maxGuessedChains = 1 << 19

// Speculation remembers, for a short time, which worker is about to hold which
// prompt because a decision just sent it there. It bridges the time until the
// worker's own events arrive: without it, equal prompts that come together
// would be spread over workers that all compute the same prefix.
//
// A guess belongs to the worker that prefills, never to one that only decodes.
// All methods may be called at once.
type Speculation struct {
	mu      sync.Mutex
	ttl     time.Duration
	start   time.Time // of the first call; times are kept relative to it
	table   map[block.Chain]guess
	more    map[block.Chain][]guess // where several workers are about to hold a chain: all but one
	queue   []guessed               // oldest first; all live for ttl, so also in order of expiry
	entries uint64                  // recorded so far
	chains  int                     // in queue
	depths  []uint64                // scratch of Merge: bit i is set when some worker holds i blocks
}

// guess is one worker that is about to hold a chain.
type guess struct {
	number uint64 // of the newest entry that says so
	slot   Slot
}

type guessed struct {
	number uint64
	slot   Slot
	until  time.Duration
	chains []block.Chain
}

// NewSpeculation returns an empty Speculation whose guesses live for ttl. With a
// ttl of 0 it never remembers anything.
func NewSpeculation(ttl time.Duration) *Speculation {
	return &Speculation{ttl: ttl, table: map[block.Chain]guess{}, more: map[block.Chain][]guess{}}
}

// Record remembers that the worker in a slot is about to hold the blocks of
// chains: those of a prompt, in order, that it does not hold on device yet.
func (g *Speculation) Record(now time.Time, s Slot, chains []block.Chain) {
	if g.ttl <= 0 || len(chains) == 0 || len(chains) > maxGuessedChains {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.expire(now)
	for g.chains+len(chains) > maxGuessedChains {
		g.pop()
	}
	g.entries++
	e := guessed{number: g.entries, slot: s, until: at + g.ttl, chains: slices.Clone(chains)}
	for _, c := range e.chains {
		g.put(c, guess{e.number, s})
	}
	g.queue = append(g.queue, e)
	g.chains += len(e.chains)
}

// put notes a guess, in place of an older one about the same worker.
func (g *Speculation) put(c block.Chain, n guess) {
	first, ok := g.table[c]
	if !ok || first.slot == n.slot {
		g.table[c] = n
		return
	}
	others := g.more[c]
	for i := range others {
		if others[i].slot == n.slot {
			others[i] = n
			return
		}
	}
	g.more[c] = append(others, n)
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
	if len(g.table) == 0 {
		return
	}
	device := m.tiers[kvevent.Device]
	g.markDepths(device, len(chains))
	for w := range g.depths {
		// A raised worker sets a later bit, so the word is read anew each time.
		for done := uint64(0); ; {
			left := g.depths[w] &^ done
			if left == 0 {
				break
			}
			bit := bits.TrailingZeros64(left)
			done |= 1 << bit
			if depth := w*wordBits + bit; depth < len(chains) {
				g.raiseAll(chains[depth], uint32(depth), device, m)
			}
		}
	}
}

// markDepths sets the bits of the depths at which some worker ends: only there
// can a guess go on.
func (g *Speculation) markDepths(device []uint32, blocks int) {
	words := blocks/wordBits + 1
	if cap(g.depths) < words {
		g.depths = make([]uint64, words)
	}
	g.depths = g.depths[:words]
	clear(g.depths)
	for _, d := range device {
		g.depths[d/wordBits] |= 1 << (d % wordBits)
	}
}

// raiseAll gives one more block to every worker that ends at depth and is about
// to hold the chain there.
func (g *Speculation) raiseAll(c block.Chain, depth uint32, device []uint32, m *Match) {
	first, ok := g.table[c]
	if !ok {
		return
	}
	raise := func(s Slot) {
		if int(s) < len(device) && device[s] == depth {
			m.raise(s, depth+1)
			g.depths[(depth+1)/wordBits] |= 1 << ((depth + 1) % wordBits)
		}
	}
	raise(first.slot)
	if len(g.more) > 0 {
		for _, other := range g.more[c] {
			raise(other.slot)
		}
	}
}

// Forget drops every guess about a worker, as when it restarts or leaves.
func (g *Speculation) Forget(s Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.queue {
		if e := &g.queue[i]; e.slot == s {
			g.take(e, true)
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
	g.take(&g.queue[0], false)
	g.queue = g.queue[1:]
}

// take takes back the chains of an entry, except those that a later entry of
// the same worker renewed (unless all are to go).
func (g *Speculation) take(e *guessed, all bool) {
	for _, c := range e.chains {
		g.remove(c, e, all)
	}
	g.chains -= len(e.chains)
	e.chains = nil
}

func (g *Speculation) remove(c block.Chain, e *guessed, all bool) {
	stale := func(n guess) bool { return n.slot == e.slot && (all || n.number == e.number) }
	others := g.more[c]
	if first, ok := g.table[c]; ok && stale(first) {
		if len(others) == 0 {
			delete(g.table, c)
			return
		}
		g.table[c], others = others[0], others[1:]
	} else {
		others = slices.DeleteFunc(others, stale)
	}
	if len(others) == 0 {
		delete(g.more, c)
	} else {
		g.more[c] = others
	}
}
