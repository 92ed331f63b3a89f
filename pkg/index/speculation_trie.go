package index

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
)

// trie holds prompts as paths of runs: blocks in a row that the same decisions
// led to. Since a chain stands for the whole prompt up to it, a run is found by its
// first chain, and where two prompts part, a search in one run tells. A prompt
// takes a step per run, not per block.
//
// The part of a prompt that a worker holds, as events say, has runs without marks:
// they are there for those that follow.
type trie struct {
	runs    map[block.Chain]*guessedRun // by first chain
	workers []*guessedWorker            // by slot; nil: nothing is known
	sweep   int                         // whose turn it is to be swept

	bytes   int64
	marks   int
	blocks  int // marked
	evicted uint64

	grows bool   // runs grow with a conversation; else each decision has its own
	count uint32 // decisions

	path  []*guessedRun // the runs of the prompt that is recorded
	fresh int           // how many of them the worker holds, so that they need no marks
}

// guessedRun is blocks in a row that the same decisions led to. It goes when nobody
// is remembered to hold it and nothing follows it.
type guessedRun struct {
	chains []block.Chain // at least one
	parent *guessedRun   // what comes before; nil at the start of a prompt
	kids   int           // runs that follow
	marks  []guess       // who is to hold it, by slot

	// Room for one mark and its turn. Most runs have no more.
	mark [1]guess
	turn turn
}

// guess says that a worker is to hold a run.
type guess struct {
	slot  Slot
	waits uint16 // requests that are to bring it, beside events; computed: one did
	since uint32 // the decision that made it; with others in between, 2^31 at most, it wraps
	until time.Duration
	turn  *turn
}

// Bytes of what a trie is made of: a chain; a run and its place in the map, without
// the room for a mark; a mark and its turn.
const (
	chainBytes      = 8
	guessedRunBytes = 104
	guessBytes      = 56
)

// promptBytes is the least that a prompt of n blocks takes.
func promptBytes(n int) int64 { return int64(n)*chainBytes + guessedRunBytes + guessBytes }

// walk makes the path of a prompt whose first from blocks need no marks, and leaves its
// runs in t.path. Runs are split so that each is on one side of from, and all in the
// prompt or not at all. Of a prompt that needs no marks, only what is there is of use.
func (t *trie) walk(w *guessedWorker, chains []block.Chain, from int) {
	t.path, t.fresh = t.path[:0], 0
	var last *guessedRun
	for at := 0; at < len(chains); {
		end := len(chains)
		if at < from {
			end = min(from, end)
		}
		run := t.runs[chains[at]]
		switch {
		case run != nil:
			end = at + block.Agree(run.chains, chains[at:end])
			if end-at < len(run.chains) {
				run = t.split(run, end-at)
			}
		case from >= len(chains):
			return
		case t.extend(last, w, chains[at:end]):
			return
		default:
			run = t.add(last, chains[at:end])
		}
		if t.path = append(t.path, run); at < from {
			t.fresh++
		}
		last, at = run, end
	}
}

// add makes a run that follows another, or begins a prompt.
func (t *trie) add(parent *guessedRun, chains []block.Chain) *guessedRun {
	run := &guessedRun{chains: slices.Clone(chains), parent: parent}
	run.marks = run.mark[:0]
	if parent != nil {
		parent.kids++
	}
	t.runs[chains[0]] = run
	t.bytes += guessedRunBytes + int64(cap(run.chains))*chainBytes
	return run
}

// extend makes the last run of a path longer, when it is only w's and is about to
// be marked as what follows it: a conversation that grows, turn by turn, is one run.
func (t *trie) extend(run *guessedRun, w *guessedWorker, chains []block.Chain) bool {
	if !t.grows || run == nil || run.kids > 0 || len(run.marks) != 1 || run.marks[0].turn.of != w {
		return false
	}
	before := cap(run.chains)
	run.chains = append(run.chains, chains...)
	w.chains += len(chains)
	t.blocks += len(chains)
	t.bytes += int64(cap(run.chains)-before) * chainBytes
	return true
}

// split cuts a run in two and returns the first, of n blocks. The old one becomes
// the second, so that runs that follow it need not be told.
func (t *trie) split(run *guessedRun, n int) *guessedRun {
	head := &guessedRun{chains: slices.Clone(run.chains[:n]), parent: run.parent, kids: 1}
	head.marks = slices.Grow(head.mark[:0], len(run.marks))
	t.bytes -= int64(cap(run.chains)) * chainBytes
	run.chains = slices.Clone(run.chains[n:]) // else the head's memory would stay
	run.parent = head
	t.bytes += int64(cap(run.chains)+cap(head.chains))*chainBytes + guessedRunBytes
	t.runs[head.chains[0]], t.runs[run.chains[0]] = head, run
	for _, m := range run.marks {
		// After the other in the order of expiry: the head goes last.
		m.turn = head.newTurn(m.turn.of, m.turn.next)
		head.marks = append(head.marks, m)
	}
	t.bytes += int64(len(run.marks)) * guessBytes
	t.marks += len(run.marks)
	return head
}

// mark says that a worker is to hold a run until then.
func (t *trie) mark(run *guessedRun, w *guessedWorker, until time.Duration) {
	i, found := run.find(w.slot)
	if found {
		m := &run.marks[i]
		m.until = until
		e := m.turn
		e.unlink()
		if e.of != w { // which was being forgotten
			e.of.chains -= len(run.chains)
			w.chains += len(run.chains)
			e.of = w
		}
		e.link(&w.order)
		return
	}
	w.chains += len(run.chains)
	t.blocks += len(run.chains)
	t.bytes += guessBytes
	t.marks++
	run.marks = slices.Insert(run.marks, i, guess{slot: w.slot, until: until, turn: run.newTurn(w, &w.order)})
}

// find returns the place of a worker's mark.
func (r *guessedRun) find(s Slot) (int, bool) {
	return slices.BinarySearchFunc(r.marks, s, func(m guess, s Slot) int { return int(m.slot) - int(s) })
}

// drop takes out the mark at a turn, and the runs that nobody needs any more.
func (t *trie) drop(e *turn) {
	run := e.run
	e.unlink()
	e.of.chains -= len(run.chains)
	if i, found := run.find(e.of.slot); found {
		run.marks = slices.Delete(run.marks, i, i+1)
	}
	*e = turn{}
	t.bytes -= guessBytes
	t.blocks -= len(run.chains)
	t.marks--
	for run != nil && len(run.marks) == 0 && run.kids == 0 {
		delete(t.runs, run.chains[0])
		t.bytes -= guessedRunBytes + int64(cap(run.chains))*chainBytes
		run.chains = nil // a guess may still know the run
		if run = run.parent; run != nil {
			run.kids--
		}
	}
}
