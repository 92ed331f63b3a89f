package index

import "time"

// guessedWorker is what a trie knows of a worker: its marks in the order in which
// they expire.
type guessedWorker struct {
	slot   Slot
	chains int  // remembered of it
	order  turn // a ring: after it the oldest, before it the youngest
}

// turn is when a mark goes, in the order of its worker. Of one prompt, the
// deeper runs come first.
type turn struct {
	run        *guessedRun
	of         *guessedWorker
	prev, next *turn
}

// newTurn returns a turn that is in the order before another.
func (t *trie) newTurn(run *guessedRun, w *guessedWorker, before *turn) *turn {
	e := &turn{run: run, of: w}
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

func (w *guessedWorker) empty() bool   { return w.order.next == &w.order }
func (w *guessedWorker) oldest() *turn { return w.order.next }

// worker returns the worker in a slot.
func (t *trie) worker(s Slot) *guessedWorker {
	for int(s) >= len(t.workers) {
		t.workers = append(t.workers, nil)
	}
	if t.workers[s] == nil {
		w := &guessedWorker{slot: s}
		w.order.prev, w.order.next = &w.order, &w.order
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
		if i, _ := e.run.find(w.slot); e.run.marks[i].until > now {
			return
		}
		t.drop(e)
	}
}

// What has to go when a trie is full: a little more than needed, so that not every
// decision has to look for the worker that has most.
const (
	reliefShare = 1024 // of all memory
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
