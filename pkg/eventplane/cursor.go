package eventplane

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// State says how far the index can be trusted about a worker.
type State uint8

// States of a worker.
const (
	// Synced: the index knows all that the worker holds.
	Synced State = iota
	// Suspect: events may have been lost. The worker's next event, or its answer,
	// tells. It is credited meanwhile.
	Suspect
	// Resyncing: it is asked what it holds. When events are known to be lost, it is
	// credited with nothing meanwhile.
	Resyncing
	// Partial: what it held before some moment is unknown, and nobody can tell. It
	// is credited with what it stored since, until its cache has turned over.
	Partial
	// NumStates is the number of states.
	NumStates = 4
)

// String returns the state as metrics and logs name it.
func (s State) String() string {
	if s < NumStates {
		return [NumStates]string{"synced", "suspect", "resyncing", "partial"}[s]
	}
	return "unknown"
}

// WorkerStats is what came from one worker. Counts only grow. Every event that
// came over NATS counts once among Events, Duplicates, Stale, Refused and Ignored;
// those that wait for an answer of the worker count when they are taken in.
type WorkerStats struct {
	LastID     uint64 // of the newest event
	State      State
	Since      time.Time // start of the state; zero for one that never changed
	Events     uint64    // applied
	Gaps       uint64    // times that event ids jumped ahead
	Missed     uint64    // events that the jumps skipped
	Recovered  uint64    // events of those that the worker told again
	Restarts   uint64    // times that event ids started over, or another process spoke for the worker
	Resyncs    uint64    // times that the worker told all that it holds
	GivenUp    uint64    // times that what it held was forgotten because nobody could tell what was lost
	Duplicates uint64    // events that came again and were skipped
	Stale      uint64    // events of a process that was replaced, or from before all was cleared: skipped
	Strays     uint64    // events from another rank's publisher: taken without looking at their ids
	Refused    uint64    // events not kept: the worker is in no pool, or the index is full
	Ignored    uint64    // events about a storage tier that is not known: nothing to keep
}

// cursor follows the events of one worker (dynamo.md 1.4).
type cursor struct {
	stats WorkerStats

	known     bool      // LastID is set
	heard     bool      // source is set
	source    uint64    // who speaks for the worker, see sourceOf
	born      uint64    // when source spoke first, Unix ms of its clock
	published uint64    // when the event of id live was sent, Unix ms of its clock
	replaced  uint64    // who spoke for the worker before
	changed   time.Time // when source replaced it; zero when it never did
	guest     uint64    // publisher of another rank that spoke for this one; 0 is none
	lent      bool      // source spoke for another rank

	live    uint64 // newest id that came over NATS; an answer of the worker may run ahead of it
	counted uint64 // ids up to this one are in Missed if they did not come

	skipped   bool      // events of it were refused: what it holds is not all known
	replaying bool      // events that waited are taken in
	asking    *asking   // the question to the worker under way; nil when there is none
	retry     time.Time // when a partial worker is asked again; zero: never
	// It is said that the worker is partial, that it does not answer, that it did.
	toldPartial, toldUnanswered, toldAgain bool
	turning                                int // of a partial worker: blocks to store until its cache has turned over; 0 when that is unknown
	familiar                               int // of a partial worker: blocks that it removed since the last one that was not known

	unknown  time.Time // since when no pool has the worker while its events are kept; zero when one has
	member   bool      // a pool had it at some time
	stranger bool      // it is one of the strangers whose events are kept
	told     bool      // that it is a stranger is said, or will be
	muted    bool      // unknown for so long that its events are not kept
}

// enter changes the state.
func (c *cursor) enter(s State, now time.Time) {
	if c.stats.State != s {
		c.stats.State, c.stats.Since = s, now
	}
}

// staleFor is how long events of a replaced process may be under way. Whoever
// speaks later than that has come back: a downgrade under the same pod name.
const staleFor = time.Minute

// sourceOf is the publisher that tells the processes of a worker apart, or 0
// where event ids alone can: in Dynamo 1.2 the publisher id is the worker id. From
// 1.3 it is random per publisher (dynamo-live.md section 1).
func sourceOf(worker, publisher uint64) uint64 {
	if publisher == worker {
		return 0
	}
	return publisher
}

// step is what an event id and its source mean.
type step uint8

const (
	next      step = iota // in order, or the first that is heard of the worker
	midway                // the first that is heard of the worker, and not its first one
	gap                   // events before it were lost
	restart               // the worker started over: its cache is empty
	duplicate             // it was applied already
	stale                 // it is of a process that was replaced
	stray                 // another rank's publisher says it: its id is of another row
)

// origin is who sent an event, and when.
type origin struct {
	source    uint64    // see sourceOf
	published uint64    // Unix ms of the sender's clock; 0 is unknown
	at        time.Time // when NATS brought it, or its stream took it in
}

// advance classifies an event and moves on. Another source is another process,
// whatever the id: a restart may have fallen into an outage.
func (c *cursor) advance(id uint64, o origin) step {
	switch {
	case !c.heard:
		c.heard, c.source, c.born = true, o.source, o.published
		if !c.known && id > 1 {
			c.known, c.stats.LastID = true, id
			c.hear(id, o)
			return midway
		}
		return c.follow(id, o)
	case o.source == c.source:
		return c.follow(id, o)
	case c.outlived(o):
		c.stats.Stale++
		return stale
	}
	c.replaced, c.changed = c.source, o.at
	c.source, c.born = o.source, o.published
	c.restart(id, o)
	return restart
}

// outlived says whether an event is of a process that was replaced.
func (c *cursor) outlived(o origin) bool {
	return o.source == c.replaced && !c.changed.IsZero() && o.at.Sub(c.changed) < staleFor ||
		o.published != 0 && o.published < c.born
}

func (c *cursor) restart(id uint64, o origin) {
	c.stats.Restarts++
	c.known, c.stats.LastID = true, 0
	c.counted, c.turning = 0, 0
	c.miss(id) // its first events, if this is not the first
	c.stats.LastID = id
	c.live, c.published = id, o.published
}

// hear notes an event that came over NATS.
func (c *cursor) hear(id uint64, o origin) {
	if id > c.live {
		c.live, c.published = id, o.published
	}
}

// follow classifies the next id of the same source. Ids start at 1 and grow by 1
// per event; the first one heard may be any, since events flow before we listen.
func (c *cursor) follow(id uint64, o origin) step {
	s := &c.stats
	if c.startsOver(id, o) {
		c.restart(id, o)
		return restart
	}
	c.hear(id, o)
	switch last := s.LastID; {
	case !c.known, id == last+1:
		c.known, s.LastID = true, id
		return next
	case id > last:
		c.miss(id)
		s.LastID = id
		return gap
	}
	s.Duplicates++
	return duplicate
}

// miss counts the events between the newest and one that came: each once, however
// often the worker is asked for them.
func (c *cursor) miss(id uint64) {
	if from := max(c.stats.LastID, c.counted); id-1 > from {
		c.stats.Gaps++
		c.stats.Missed += id - 1 - from
		c.counted = id - 1
	}
}

// startsOver says whether an event is of a new process though its source is the
// same, as in Dynamo 1.2. Then its id goes back behind what came over NATS before,
// and it was sent later: what is delivered again was not. While a worker is asked,
// events come twice: as they arrive, and when the answer is there.
func (c *cursor) startsOver(id uint64, o origin) bool {
	switch {
	case o.source != 0 || c.replaying:
		return false
	case c.live == 0:
		// It may be under way, and covered by an answer; to begin with 1 costs nothing.
		return c.known && c.stats.LastID > 0 && id == 1
	case id > c.live || id == c.live && id > 1:
		return false
	}
	return o.published > c.published || o.published == 0
}

func keyOf(ev *kvevent.Event) fleet.Key { return fleet.Key{ID: ev.WorkerID, Rank: ev.Rank} }
