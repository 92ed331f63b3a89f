package load

import (
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Reading is a figure that somebody stated. Without a time it is not known, which
// is not the same as zero.
type Reading struct {
	N  uint64
	At time.Time // when it was stated
}

// Known says whether anybody stated the figure.
func (r Reading) Known() bool { return !r.At.IsZero() }

// Occupancy is what a worker or a router states about a worker's load (kv_metrics,
// dynamo.md 1.5). Each sender states only what it knows.
type Occupancy struct {
	DecodeBlocks  Reading // KV blocks of the requests that run
	PrefillTokens Reading // prompt tokens placed and not yet computed
	UsedBlocks    Reading // KV blocks in use, by the worker's own count
}

// Batch sums up the requests in a step of an engine's scheduler, or in its queue.
// Without a time it is not known.
type Batch struct {
	Prefills        uint64 // requests whose prompt is computed, or waits for it
	PrefillTokens   uint64 // their prompt tokens to compute
	PrefillKVTokens uint64 // tokens they have in the KV cache; never stated of the queue
	Decodes         uint64 // requests that generate, or wait for it
	DecodeKVTokens  uint64 // tokens they have in the KV cache

	At time.Time // when it was stated
}

// Known says whether the engine stated the batch.
func (b Batch) Known() bool { return !b.At.IsZero() }

// Step is what an engine says after a step of its scheduler
// (forward-pass-metrics, dynamo.md 1.7).
type Step struct {
	Counter   uint64 // counts the steps of one process
	Scheduled Batch  // in the step
	Queued    Batch  // the engine's own queue
}

// EngineFigures are what is known of one worker from others than this picker.
type EngineFigures struct {
	Occupancy
	Scheduled, Queued Batch
	Foreign           Foreign
}

// MaxAge says from which age on figures count as unknown.
type MaxAge struct {
	Occupancy time.Duration // stated on change only: silence is not death
	Step      time.Duration // stated once a second, even when idle
}

// EngineStats counts what was odd about statements.
type EngineStats struct {
	Reordered  uint64 // steps that came after a later one: ignored
	Strangers  uint64 // statements about workers in no pool, when too many of those were known already: ignored
	LateAdds   uint64 // requests that were told to be finished before they were told to be placed
	LongIDs    uint64 // requests with an id that is too long to keep: ignored
	Expired    uint64 // requests whose end nobody told
	Overflowed uint64 // requests forgotten early because there were too many
}

// maxStrangers bounds the workers that are in no pool and whose figures are kept:
// a worker may speak before it is listed.
const maxStrangers = 1024

// strangerTTL is how long a stranger that says nothing keeps its place when
// another one wants it.
const strangerTTL = 10 * time.Minute

// reorderWindow is how long after a step one with a lower counter is taken for a
// late one. After that it is a process that started over: engines speak once a
// second.
const reorderWindow = 5 * time.Second

// Engines is what engines and other routers say about workers. Nothing in it
// comes from this picker's own bookings, which are in [Table]. All methods may be
// called at once.
type Engines struct {
	mu        sync.Mutex
	pool      *fleet.Snapshot
	workers   map[fleet.Key]*engine
	strangers int // of workers, those that are not in the pool
	ledger    ledger
	stats     EngineStats
	table     *Table // that is told, nil: none
}

// engine is what is known of one worker.
type engine struct {
	Occupancy
	scheduled, queued Batch
	counter           uint64
	stepped           time.Time // when the step of counter was stated
	heard             time.Time // latest time of all
	said              said      // but for used, which is in Occupancy
}

// NewEngines returns an empty set.
func NewEngines() *Engines {
	return &Engines{workers: map[fleet.Key]*engine{}, ledger: newLedger()}
}

// State merges a statement into what is known of a worker, field by field: the
// latest reading of each stays, and an unknown one changes nothing.
func (e *Engines) State(k fleet.Key, o Occupancy) {
	at := latest(o.DecodeBlocks.At, o.PrefillTokens.At, o.UsedBlocks.At)
	if at.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellExpired(at)
	w := e.worker(k, at)
	if w == nil {
		return
	}
	merge(&w.DecodeBlocks, o.DecodeBlocks)
	merge(&w.UsedBlocks, o.UsedBlocks)
	stated := statement{}
	if merge(&w.PrefillTokens, o.PrefillTokens) && (w.queued.At.IsZero() || at.Sub(w.queued.At) >= fadeTime) {
		stated = statement{tokens: clampTokens(o.PrefillTokens.N), known: true}
	}
	e.tell(k, stated, at)
}

// merge takes a reading that is known and no older than the one there is.
func merge(to *Reading, r Reading) bool {
	if !r.Known() || r.At.Before(to.At) {
		return false
	}
	*to = r
	return true
}

// Step takes in what an engine says of its scheduler, unless a later step has
// been told already. A batch that is not stated leaves the older one.
func (e *Engines) Step(k fleet.Key, s Step) {
	at := latest(s.Scheduled.At, s.Queued.At)
	if at.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellExpired(at)
	w := e.worker(k, at)
	if w == nil {
		return
	}
	if !w.stepped.IsZero() && s.Counter <= w.counter && at.Sub(w.stepped) < reorderWindow {
		e.stats.Reordered++
		return
	}
	w.counter, w.stepped = s.Counter, at
	if s.Scheduled.Known() {
		w.scheduled = s.Scheduled
	}
	if s.Queued.Known() {
		w.queued = s.Queued
		merge(&w.said.waiting, Reading{N: min(s.Queued.Prefills, maxWaiting) + min(s.Queued.Decodes, maxWaiting), At: s.Queued.At})
	}
	stated := statement{engine: true, known: s.Scheduled.Known() && s.Queued.Known()}
	if stated.known {
		stated.tokens = min(maxStated, clampTokens(s.Scheduled.PrefillTokens)+clampTokens(s.Queued.PrefillTokens))
	}
	e.tell(k, stated, at)
}

// Route takes in what became of a request that another router placed, or what a
// worker says of one of ours: see [Reservation.Name].
func (e *Engines) Route(k fleet.Key, r Routed, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ledger.expire(now, &e.stats)
	before := e.ledger.placed[k].PrefillTokens
	e.ledger.take(k, r, now, &e.stats)
	if e.table != nil {
		e.table.learnNews(k, &r, int64(e.ledger.placed[k].PrefillTokens)-int64(before), now)
	}
	e.tellPlaced(now)
	if e.table != nil && r.Kind == PrefillDone && r.Router == k.ID {
		e.table.prefilled(r.Request, k)
	}
}

// Get returns what is known of a worker now, and nothing older than the given
// ages.
func (e *Engines) Get(k fleet.Key, now time.Time, age MaxAge) EngineFigures {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tellExpired(now)
	f := EngineFigures{Foreign: e.ledger.placed[k]}
	w := e.workers[k]
	if w == nil {
		return f
	}
	for _, r := range []struct{ to, from *Reading }{
		{&f.DecodeBlocks, &w.DecodeBlocks}, {&f.PrefillTokens, &w.PrefillTokens}, {&f.UsedBlocks, &w.UsedBlocks},
	} {
		if r.from.Known() && now.Sub(r.from.At) <= age.Occupancy {
			*r.to = *r.from
		}
	}
	for _, b := range []struct{ to, from *Batch }{{&f.Scheduled, &w.scheduled}, {&f.Queued, &w.queued}} {
		if b.from.Known() && now.Sub(b.from.At) <= age.Step {
			*b.to = *b.from
		}
	}
	return f
}

// Drop forgets a worker: its process is gone, and with it the requests that were
// placed on it. What is known to have ended stays known, since the word that it
// began may still be under way.
func (e *Engines) Drop(k fleet.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(k)
	e.ledger.drop(k)
	e.tellPlaced(e.ledger.now)
	e.tell(k, statement{}, e.ledger.now)
}

// Retain says which workers are in the pool. The figures of others are kept while
// there is room, so that a worker that only blinked does not come back unknown.
func (e *Engines) Retain(s *fleet.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool, e.strangers = s, 0
	for k := range e.workers {
		if !e.member(k) {
			e.strangers++
		}
	}
	for e.strangers > maxStrangers {
		k, _ := e.quietest()
		e.forget(k)
	}
}

// Stats returns the counts so far.
func (e *Engines) Stats() EngineStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// worker returns the entry of a worker that something is said about, nil when
// there is no room for it. Its caller holds the lock.
func (e *Engines) worker(k fleet.Key, at time.Time) *engine {
	w := e.workers[k]
	if w == nil {
		if !e.member(k) && !e.room(at) {
			e.stats.Strangers++
			return nil
		}
		w = &engine{}
		e.workers[k] = w
		if !e.member(k) {
			e.strangers++
		}
	}
	w.heard = latest(w.heard, at)
	return w
}

// room says whether another stranger can be kept, and makes room if one fell
// silent.
func (e *Engines) room(at time.Time) bool {
	if e.strangers < maxStrangers {
		return true
	}
	k, w := e.quietest()
	if at.Sub(w.heard) < strangerTTL {
		return false
	}
	e.forget(k)
	return true
}

// quietest returns the stranger that was heard of least recently. There must be
// one.
func (e *Engines) quietest() (key fleet.Key, quietest *engine) {
	for k, w := range e.workers {
		if !e.member(k) && (quietest == nil || w.heard.Before(quietest.heard)) {
			key, quietest = k, w
		}
	}
	return key, quietest
}

func (e *Engines) forget(k fleet.Key) {
	if e.workers[k] == nil {
		return
	}
	delete(e.workers, k)
	if !e.member(k) {
		e.strangers--
	}
}

func (e *Engines) member(k fleet.Key) bool {
	if e.pool == nil {
		return false
	}
	_, ok := e.pool.Index(k)
	return ok
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
