package eventplane

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// WorkerStats is what came from one worker. All but the ids only grow.
type WorkerStats struct {
	LastID     uint64 // of the newest event
	Events     uint64 // applied
	Gaps       uint64 // times that event ids jumped ahead
	Missed     uint64 // events that the jumps skipped
	Restarts   uint64 // times that event ids started over
	Duplicates uint64 // events that came again and were skipped
	Refused    uint64 // events not kept: the worker is in no pool, or the index is full
}

// cursor follows the event ids of one worker (dynamo.md 1.4).
type cursor struct {
	stats   WorkerStats
	unknown time.Time // since when its events come while no pool has it; zero when one has
	member  bool      // a pool had it at some time
	muted   bool      // unknown for so long that its events are not kept
}

// step is what an event id means.
type step uint8

const (
	next      step = iota // in order, or the first that is heard of the worker
	gap                   // events before it were lost
	restart               // the worker started over: its cache is empty
	duplicate             // it was applied already
)

// advance classifies an event id and moves on. Ids start at 1 and grow by 1 per
// event; the first one heard may be any, since events flow before we listen.
func (c *cursor) advance(id uint64) step {
	s := &c.stats
	last := s.LastID
	first := s.Events == 0 && last == 0
	switch {
	case first || id == last+1:
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

// unknownGrace is how long the events of a worker that no pool has are kept: its
// pod may be listed later than it speaks.
const unknownGrace = 10 * time.Minute

// admit says whether to keep an event of a worker, known to a pool or not.
// stranger is true once, for a worker that no pool ever had; one that just left
// its pool may well finish its requests.
func (c *cursor) admit(known bool, now time.Time) (keep, stranger, givenUp bool) {
	if known {
		c.unknown, c.muted, c.member = time.Time{}, false, true
		return true, false, false
	}
	if c.unknown.IsZero() {
		c.unknown = now
		return true, !c.member, false
	}
	if now.Sub(c.unknown) < unknownGrace {
		return true, false, false
	}
	givenUp = !c.muted
	c.muted = true
	return false, false, givenUp
}

func keyOf(ev *kvevent.Event) fleet.Key { return fleet.Key{ID: ev.WorkerID, Rank: ev.Rank} }
