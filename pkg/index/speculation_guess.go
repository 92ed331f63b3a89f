package index

import (
	"math"
	"time"
)

// Guess is what one decision left in a Speculation beside events: that a worker is
// about to hold a prompt. Whoever follows the request ends it, by Computed or GivenUp;
// what comes after the first of them has no effect. Its methods must not be called at
// once. The zero value is a guess at nothing.
//
// One that is never ended counts as long as SpeculationWait says.
type Guess struct {
	of   *Speculation
	last *guessedRun // the end of the prompt
	id   uint32      // of the decision
	slot Slot
}

// computed stands in the place of how many requests a mark waits for.
const computed = math.MaxUint16

// guess is the guess of the prompt that was recorded last.
func (g *Speculation) guess(w *guessedWorker) Guess {
	path := g.trie.path
	if g.renew || len(path) == 0 {
		return Guess{}
	}
	return Guess{of: g, last: path[len(path)-1], id: g.trie.count, slot: w.slot}
}

// Computed says that the worker has computed the prompt. Its events follow: what they
// do not confirm within the TTL is forgotten, whoever else waits for it.
func (g *Guess) Computed(now time.Time) { g.end(now, true) }

// GivenUp says that the request ended, and nothing tells that the prompt was computed.
// Where no other request waits for the same, the guess counts for the TTL yet: the
// worker may have been done just before.
func (g *Guess) GivenUp(now time.Time) { g.end(now, false) }

func (g *Guess) end(now time.Time, done bool) {
	s := g.of
	if s == nil {
		return
	}
	s.lock.Lock()
	at := s.tick(now)
	// Runs that were split meanwhile have their heads as parents. One that was dropped
	// meanwhile has no marks, but its parents may have.
	for run := g.last; run != nil; run = run.parent {
		s.trie.settle(run, g, at+s.ttl, done)
	}
	s.lock.Unlock()
	*g = Guess{}
}

// live says whether a worker has a mark at a run that is not over.
func (t *trie) live(run *guessedRun, w *guessedWorker, now time.Duration) bool {
	i, found := run.find(w.slot)
	return found && run.marks[i].until > now && run.marks[i].turn.of == w
}

// expect says that one more request is about to bring a run to a worker, which without
// others would count until then. A mark whose prompt was computed goes on to its end:
// if requests made it longer, a worker whose events never confirm anything would keep
// a popular prompt.
func (t *trie) expect(run *guessedRun, w *guessedWorker, now, until time.Duration) {
	waits := t.live(run, w, now)
	if i, _ := run.find(w.slot); waits {
		m := &run.marks[i]
		switch {
		case m.waits == computed:
			return
		case m.waits > 0: // many requests more than any worker has are not counted
			m.waits = min(m.waits+1, computed-1)
			return
		}
	}
	t.mark(run, w, until)
	i, _ := run.find(w.slot)
	run.marks[i].since, run.marks[i].waits = t.count, 1
}

// settle ends what a guess expects of a run. The mark goes at the given time, or when
// it would have gone anyway.
func (t *trie) settle(run *guessedRun, g *Guess, until time.Duration, done bool) {
	i, found := run.find(g.slot)
	if !found {
		return
	}
	m := &run.marks[i]
	// A mark that is younger than the guess does not count it.
	if int32(g.id-m.since) < 0 || m.waits == 0 || m.waits == computed {
		return
	}
	m.waits--
	if done {
		m.waits = computed
	}
	if m.waits > 0 && !done || m.until <= until {
		return
	}
	m.until = until
	m.turn.unlink()
	m.turn.link(&m.turn.of.settled)
}
