package index

import (
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// maxGuessedChains bounds the memory of a Speculation: the chains of all
// remembered decisions together, about 100 bytes each.
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
	table   map[block.Chain]set
	latest  map[guess]uint64 // number of the newest entry that made this guess
	queue   []guessed        // oldest first; all live for ttl, so also in order of expiry
	entries uint64           // recorded so far
	chains  int              // in queue
	scratch []uint64
}

type guess struct {
	chain block.Chain
	slot  Slot
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
	return &Speculation{ttl: ttl, table: map[block.Chain]set{}, latest: map[guess]uint64{}}
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
		holders := g.table[c]
		if !holders.has(s) {
			holders.add(s)
			g.table[c] = holders
		}
		g.latest[guess{c, s}] = e.number
	}
	g.queue = append(g.queue, e)
	g.chains += len(e.chains)
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
	deepest := uint32(0)
	for _, d := range device {
		deepest = max(deepest, d)
	}
	for i, c := range chains {
		depth := uint32(i)
		holders, guessed := g.table[c]
		if !guessed && depth >= deepest {
			return // nobody can go on from here
		}
		for w := range len(holders.rest) + 1 {
			eachBit(w, holders.word(w), func(s Slot) {
				if int(s) < len(device) && device[s] == depth {
					m.raise(s, depth+1)
					deepest = max(deepest, depth+1)
				}
			})
		}
	}
}

// Forget drops every guess about a worker, as when it restarts or leaves.
func (g *Speculation) Forget(s Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.queue {
		if g.queue[i].slot == s {
			g.drop(&g.queue[i], true)
			g.chains -= len(g.queue[i].chains)
			g.queue[i].chains = nil
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
	e := &g.queue[0]
	g.drop(e, false)
	g.chains -= len(e.chains)
	e.chains = nil
	g.queue = g.queue[1:]
}

// drop takes back the chains of an entry, except those that a later entry of
// the same worker renewed (unless all are to go).
func (g *Speculation) drop(e *guessed, all bool) {
	for _, c := range e.chains {
		k := guess{c, e.slot}
		number, ok := g.latest[k]
		if !ok || number != e.number && !all {
			continue
		}
		delete(g.latest, k)
		holders := g.table[c]
		holders.remove(e.slot)
		if holders.empty() {
			delete(g.table, c)
		} else {
			g.table[c] = holders
		}
	}
}
