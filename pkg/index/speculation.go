package index

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Bounds of what is remembered of decisions, in bytes.
const (
	// SpeculationBytes bounds a Speculation beside events. It lives for seconds.
	SpeculationBytes = 64 << 20
	// ApproximationBytes is the usual bound where decisions are all that is known:
	// about 20 million blocks, if prompts are long.
	ApproximationBytes = 256 << 20
)

// SpeculationWait bounds how long a guess beside events waits for its prompt to be
// computed. It is for requests that nobody ends; under overload prompts wait for
// minutes.
const SpeculationWait = 10 * time.Minute

// Speculation remembers for a time which worker is about to hold which prompt
// because a decision just sent it there. There are two uses of it.
//
// Beside events it bridges the time until the worker's own events arrive: without
// it, equal prompts that come together would be spread over workers that all
// compute the same prefix. What events confirm counts as held, and what they do
// not confirm in time, once the prompt is computed, is forgotten. See
// [NewSpeculation] and [Guess].
//
// Without events it is all that is known of the workers' caches: approximate mode
// (dynamo.md 4.3). See [NewApproximation].
//
// What is remembered belongs to the worker that prefills, never to one that only
// decodes. All methods may be called at once.
type Speculation struct {
	ttl      time.Duration
	wait     time.Duration // how long what is remembered lives if nobody ends it
	renew    bool          // a later decision refreshes all of its prompt
	maxBytes int64         // of the trie

	marks atomic.Int64 // (worker, run) remembered; 0: there is nothing to say
	lock  lock
	start time.Time     // of the first record; times are kept relative to it
	now   time.Duration // of the last one, or end of a guess; it never steps back
	trie  trie
}

// NewSpeculation returns an empty Speculation for use beside events. A guess counts
// until its prompt is computed or given up, and for ttl after that: by then the
// worker's events have come. It counts for SpeculationWait at most, or for ttl if that
// is more. With a ttl of 0 nothing is remembered.
func NewSpeculation(ttl time.Duration) *Speculation {
	return newSpeculation(ttl, SpeculationBytes)
}

// NewApproximation returns an empty Speculation for use without events. What a
// decision sent to a worker is remembered for ttl, and a later decision for the
// same worker refreshes as much of it as it reuses. About maxBytes of memory hold
// what is remembered; when that is full, those who have most lose what would
// expire first.
func NewApproximation(ttl time.Duration, maxBytes int64) *Speculation {
	g := newSpeculation(ttl, maxBytes)
	g.wait, g.renew, g.trie.grows = ttl, true, true
	return g
}

func newSpeculation(ttl time.Duration, maxBytes int64) *Speculation {
	return &Speculation{ttl: ttl, wait: max(ttl, SpeculationWait), maxBytes: maxBytes, trie: trie{runs: map[block.Chain]*guessedRun{}}}
}

// Alone says whether it is all that is known of what workers hold, as
// [NewApproximation] makes it: nothing confirms what it remembers.
func (g *Speculation) Alone() bool { return g.renew }

// Record remembers that the worker in a slot, which holds the first from blocks
// of a prompt on device, is about to hold the rest too. Where from relies on guesses,
// they wait for this request as well. An approximation does not care about from: that
// part is reused, and refreshed.
//
// The caller ends the guess that is returned. One of an approximation needs no end.
//
// A prompt that alone is larger than the bound is not remembered.
func (g *Speculation) Record(now time.Time, s Slot, chains []block.Chain, from int) Guess {
	if g.renew {
		from = 0
	}
	if g.ttl <= 0 || s >= MaxWorkers || len(chains) == 0 || promptBytes(len(chains)) > g.maxBytes ||
		from >= len(chains) && g.marks.Load() == 0 {
		return Guess{}
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	at := g.tick(now)
	t := &g.trie
	w := t.worker(s)
	t.expire(w, at)
	t.expire(t.nextWorker(), at)
	t.walk(w, chains, from)
	t.count++
	// From the end of the prompt to its head, so that the head expires last.
	for i, run := range slices.Backward(t.path) {
		switch {
		case g.renew:
			t.mark(run, w, at+g.wait)
		case i >= t.fresh || t.live(run, w, at):
			t.expect(run, w, at, at+g.wait)
		}
	}
	guess := g.guess(w)
	t.relieve(g.maxBytes)
	g.marks.Store(int64(t.marks))
	return guess
}

// tick is the time since the first record.
func (g *Speculation) tick(now time.Time) time.Duration {
	if g.start.IsZero() {
		g.start = now
	}
	g.now = max(g.now, now.Sub(g.start))
	return g.now
}

// Merge raises the device depths of m by the blocks that are remembered to follow
// what a worker holds. m must come from a lookup of the same chains.
func (g *Speculation) Merge(now time.Time, chains []block.Chain, m *Match) {
	if g.marks.Load() == 0 {
		return
	}
	device := m.tiers[kvevent.Device]
	g.lock.RLock()
	defer g.lock.RUnlock()
	at := now.Sub(g.start)
	for from := 0; from < len(chains); {
		run := g.trie.runs[chains[from]]
		if run == nil {
			return
		}
		n := block.Agree(run.chains, chains[from:])
		end := from + n
		for i := range run.marks {
			guess := &run.marks[i]
			if guess.until <= at || int(guess.slot) >= len(device) {
				continue
			}
			// A worker that does not hold what comes before gains nothing.
			if held := int(device[guess.slot]); held >= from && held < end {
				m.raise(guess.slot, uint32(end))
			}
		}
		if n < len(run.chains) {
			return
		}
		from = end
	}
}

// forgetPiece is how many runs are forgotten before others get their turn.
const forgetPiece = 128

// Forget drops all that is remembered of a worker, as when it restarts or leaves.
// What is recorded of it meanwhile stays.
func (g *Speculation) Forget(s Slot) {
	g.lock.Lock()
	old := g.trie.detach(s)
	g.lock.Unlock()
	for more := old != nil; more; {
		g.lock.Lock()
		for range forgetPiece {
			if more = !old.empty(); !more {
				break
			}
			g.trie.drop(old.oldest())
		}
		g.marks.Store(int64(g.trie.marks))
		g.lock.Unlock()
	}
}

// Remembered is how much a Speculation holds.
type Remembered struct {
	Bytes, MaxBytes int64  // of memory, about; and its bound
	Blocks          int    // each counts once per worker
	Evicted         uint64 // blocks that had to go before their time, since the start
}

// Remembered returns how much is remembered now. What has expired counts until it
// is swept out.
func (g *Speculation) Remembered() Remembered {
	g.lock.RLock()
	defer g.lock.RUnlock()
	return Remembered{Bytes: g.trie.bytes, MaxBytes: g.maxBytes, Blocks: g.trie.blocks, Evicted: g.trie.evicted}
}
