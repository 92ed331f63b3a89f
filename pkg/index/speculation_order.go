package index

import "time"

// guessedWorker is what a trie knows of a worker: its marks in the order in which
// they expire. Those that were settled expire sooner than others, so they have an
// order of their own.
type guessedWorker struct {
	slot    Slot
	chains  int  // remembered of it
	order   turn // a ring: after it the oldest, before it the youngest
	settled turn // the same of marks whose prompts were computed, or given up
}

// turn is when a mark goes, in the order of its worker. Of one prompt, the
// deeper runs come first.
type turn struct {
	run        *guessedRun
	of         *guessedWorker // nil while it is not in use
	prev, next *turn
}

// newTurn returns a turn of a run that is in the order before another.
func (r *guessedRun) newTurn(w *guessedWorker, before *turn) *turn {
	e := &r.turn
	if e.of != nil { // in use
		e = &turn{}
	}
	e.run, e.of = r, w
	e.link(before)
	return e
}

func (e *turn) link(before *turn) {
	e.prev, e.next = before.prev, before
	e.prev.next, before.prev = e, e
}

func (e *turn) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

func (w *guessedWorker) empty() bool {
	return w.order.next == &w.order && w.settled.next == &w.settled
}

// oldest is the turn of the mark that expires first. There must be one.
func (w *guessedWorker) oldest() *turn {
	a, b := w.order.next, w.settled.next
	if b == &w.settled || a != &w.order && a.until() <= b.until() {
		return a
	}
	return b
}

// until is when the mark of a turn expires.
func (e *turn) until() time.Duration {
	i, _ := e.run.find(e.of.slot)
	return e.run.marks[i].until
}

// worker returns the worker in a slot.
func (t *trie) worker(s Slot) *guessedWorker {
	for int(s) >= len(t.workers) {
		t.workers = append(t.workers, nil)
	}
	if t.workers[s] == nil {
		w := &guessedWorker{slot: s}
		w.order.prev, w.order.next = &w.order, &w.order
		w.settled.prev, w.settled.next = &w.settled, &w.settled
		t.workers[s] = w
	}
	return t.workers[s]
}

// detach takes a worker out and returns it with all its marks, nil if it has none.
func (t *trie) detach(s Slot) *guessedWorker {
	if int(s) >= len(t.workers) {
		return nil
	}
	w := t.workers[s]
	t.workers[s] = nil
	return w
}

// nextWorker returns one worker after the other. One that gets no requests would
// else keep what has expired.
func (t *trie) nextWorker() *guessedWorker {
	t.sweep++
	if t.sweep >= len(t.workers) {
		t.sweep = 0
	}
	return t.workers[t.sweep]
}

// expiredAtOnce bounds how many expired marks one decision sweeps out. It is more
// than a decision adds.
const expiredAtOnce = 32

// expire drops marks of a worker, which may be nil, whose time is over.
func (t *trie) expire(w *guessedWorker, now time.Duration) {
	if w == nil {
		return
	}
	for range expiredAtOnce {
		if w.empty() {
			return
		}
		e := w.oldest()
		if e.until() > now {
			return
		}
		t.drop(e)
	}
}

// What has to go when a trie is full: a little more than needed, so that not every
// decision has to look for the worker that has most.
const (
	reliefShare = 8192 // of all memory
	workerShare = 8    // of the worker that has most, before another look
)

// relieve makes room when more than maxBytes are in use. The workers that have most
// lose what expires first, the ends of prompts before their heads.
func (t *trie) relieve(maxBytes int64) {
	if t.bytes <= maxBytes {
		return
	}
	target := maxBytes - maxBytes/reliefShare
	for t.bytes > target {
		w := t.largest()
		if w == nil {
			return // only what is being forgotten is left
		}
		keep := w.chains - w.chains/workerShare - 1
		for t.bytes > target && w.chains > keep && !w.empty() {
			t.evicted += uint64(len(w.oldest().run.chains))
			t.drop(w.oldest())
		}
	}
}

// largest returns the worker that has most, nil if nobody has anything.
func (t *trie) largest() (most *guessedWorker) {
	for _, w := range t.workers {
		if w != nil && !w.empty() && (most == nil || w.chains > most.chains) {
			most = w
		}
	}
	return most
}
