package eventplane

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// WorkerStats is what came from one worker. All but the ids only grow. Every
// event counts once among Events, Duplicates, Stale, Refused and Ignored.
type WorkerStats struct {
	LastID     uint64 // of the newest event
	Events     uint64 // applied
	Gaps       uint64 // times that event ids jumped ahead
	Missed     uint64 // events that the jumps skipped
	Restarts   uint64 // times that event ids started over, or another process spoke for the worker
	Duplicates uint64 // events that came again and were skipped
	Stale      uint64 // events of a process that was replaced: skipped
	Strays     uint64 // events from another rank's publisher: taken without looking at their ids
	Refused    uint64 // events not kept: the worker is in no pool, or the index is full
	Ignored    uint64 // events about a storage tier that is not known: nothing to keep
}

// cursor follows the events of one worker (dynamo.md 1.4).
type cursor struct {
	stats WorkerStats

	heard    bool      // LastID and source are set
	source   uint64    // who speaks for the worker, see sourceOf
	replaced uint64    // who did before
	changed  time.Time // when source replaced it; zero when it never did
	guest    uint64    // publisher of another rank that spoke for this one; 0 is none
	lent     bool      // source spoke for another rank

	unknown  time.Time // since when no pool has the worker while its events are kept; zero when one has
	member   bool      // a pool had it at some time
	stranger bool      // it is one of the strangers whose events are kept
	told     bool      // that it is a stranger is said, or will be
	muted    bool      // unknown for so long that its events are not kept
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
	gap                   // events before it were lost
	restart               // the worker started over: its cache is empty
	duplicate             // it was applied already
	stale                 // it is of a process that was replaced
	stray                 // another rank's publisher says it: its id is of another row
)

// advance classifies an event and moves on. Another source is another process,
// whatever the id: a restart may have fallen into an outage.
func (c *cursor) advance(id, source uint64, now time.Time) step {
	s := &c.stats
	switch {
	case !c.heard:
		c.heard, c.source, s.LastID = true, source, id
		return next
	case source == c.source:
		return c.follow(id)
	case source == c.replaced && now.Sub(c.changed) < staleFor:
		s.Stale++
		return stale
	}
	c.replaced, c.source, c.changed = c.source, source, now
	s.Restarts++
	s.LastID = id
	return restart
}

// follow classifies the next id of the same source. Ids start at 1 and grow by 1
// per event; the first one heard may be any, since events flow before we listen.
func (c *cursor) follow(id uint64) step {
	s := &c.stats
	last := s.LastID
	switch {
	case id == last+1:
		s.LastID = id
		return next
	case id == last && id > 1:
		s.Duplicates++
		return duplicate
	case id <= last:
		s.Restarts++
		s.LastID = id
		return restart
	default:
		s.Gaps++
		s.Missed += id - last - 1
		s.LastID = id
		return gap
	}
}

func keyOf(ev *kvevent.Event) fleet.Key { return fleet.Key{ID: ev.WorkerID, Rank: ev.Rank} }
