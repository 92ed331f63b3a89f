package load

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// maxWaiting bounds the requests that wait at an engine, against nonsense.
const maxWaiting = 1 << 32

// Feed lets a table know all that is known here, and will be. Several may feed a
// table: the last word on a worker counts.
func (e *Engines) Feed(t *Table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.table != nil {
		return
	}
	e.table = t
	t.feed(e)
	e.tellAll()
}

// Unfeed takes out of the table all that it was told from here. Where another one
// feeds it, that one's word counts again.
func (e *Engines) Unfeed() {
	e.mu.Lock()
	t := e.table
	e.table = nil
	e.mu.Unlock()
	if t == nil {
		return
	}
	for _, other := range t.unfeed(e) {
		other.mu.Lock()
		other.tellAll()
		other.mu.Unlock()
	}
}

// retell tells what is known of a worker, which the table did not know before.
func (e *Engines) retell(k fleet.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tell(k, statement{}, e.now(k))
}

// tellAll tells of every worker. Its caller holds the lock.
func (e *Engines) tellAll() {
	for k := range e.workers {
		e.tell(k, statement{}, e.now(k))
	}
	for k := range e.ledger.placed {
		if e.workers[k] == nil {
			e.tell(k, statement{}, e.now(k))
		}
	}
	e.ledger.changed = e.ledger.changed[:0]
}

// now is the latest time that is known here, as far as a worker is concerned.
func (e *Engines) now(k fleet.Key) time.Time {
	if w := e.workers[k]; w != nil {
		return latest(w.heard, e.ledger.now)
	}
	return e.ledger.now
}

// tell tells what is known of a worker. Its caller holds the lock.
func (e *Engines) tell(k fleet.Key, stated statement, now time.Time) {
	if e.table == nil {
		return
	}
	w := e.workers[k]
	if w == nil && e.ledger.placed[k] == (Foreign{}) && !e.table.hears(e, k) {
		return // nothing is known, and nothing was told
	}
	e.table.hear(e, k, &word{foreign: e.ledger.placed[k], prompts: e.ledger.prompts[k], engine: w, stated: stated}, now)
}

// tellPlaced tells of the workers on which what others placed changed.
func (e *Engines) tellPlaced(now time.Time) {
	for _, k := range e.ledger.changed {
		e.tell(k, statement{}, now)
	}
	e.ledger.changed = e.ledger.changed[:0]
}

// tellExpired forgets the requests of others that are too old.
func (e *Engines) tellExpired(now time.Time) {
	e.ledger.expire(now, &e.stats)
	e.tellPlaced(now)
}

// prefilled says whether a worker said already that it computed a prompt.
func (e *Engines) prefilled(k fleet.Key, id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := e.ledger.byRequest[requestKey{k, id}]; p != nil; p = p.sibling {
		if p.router == k.ID && p.done {
			return true
		}
	}
	return false
}

// Scraped takes in what an engine's metrics say. The latest of each figure stays.
func (e *Engines) Scraped(k fleet.Key, s Scraped) {
	if s.At.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellExpired(s.At)
	w := e.worker(k, s.At)
	if w == nil {
		return
	}
	if s.KVUse >= 0 && s.KVUse <= maxKVUse && !s.At.Before(w.said.use.at) { // not so for NaN
		w.said.use = share{of: min(1, s.KVUse), at: s.At}
	}
	if s.KVBlocks > 0 {
		w.said.kvBlocks = s.KVBlocks
	}
	if s.Waiting >= 0 {
		merge(&w.said.waiting, Reading{N: min(uint64(s.Waiting), maxWaiting), At: s.At})
	}
	if !s.At.Before(w.said.scraped) {
		w.said.scraped = s.At
		w.said.adapters = w.said.adapters.next(&s)
	}
	e.tell(k, statement{}, s.At)
}

// maxKVUse is from which share on a figure is no share.
const maxKVUse = 1.5
