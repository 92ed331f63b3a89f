package eventplane

import (
	"log/slog"
	"maps"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// unknownGrace is how long the events of a worker that no pool has are kept: its
// pod may be listed later than it speaks, or be away from its pool for a moment.
const unknownGrace = 10 * time.Minute

// maxStrangers bounds the workers that no pool ever had and whose events are kept:
// they take room in the index. Workers that left their pool are not among them.
const maxStrangers = 512

// sweepEvery is how often workers that no pool has are looked for.
const sweepEvery = time.Minute

// strangers are the workers that no pool ever had.
type strangers struct {
	kept   int       // workers whose events are kept: cursors with stranger set
	news   int       // workers that nothing was said about yet
	one    fleet.Key // of those
	silent time.Time // end of the current period of silence about them
}

// admit says whether to keep an event of a worker. Its caller holds the lock.
func (p *Plane) admit(key fleet.Key, c *cursor, now time.Time) bool {
	known := p.cfg.Known(key)
	if !known && !c.member {
		p.stats.Strangers++
		p.greet(key, c, now)
	}
	if p.away(c, known, now) {
		p.cfg.Drop(key)
	}
	return !c.muted && (known || c.member || c.stranger)
}

// greet notes a stranger, and gives it a place if there is one.
func (p *Plane) greet(key fleet.Key, c *cursor, now time.Time) {
	if !c.stranger && !c.muted && p.strangers.kept < maxStrangers {
		c.stranger = true
		p.strangers.kept++
	}
	if !c.told {
		c.told = true
		p.strangers.news++
		p.strangers.one = key
		p.sayStrangers(now)
	}
}

// sayStrangers says at most once a minute that there are new ones.
func (p *Plane) sayStrangers(now time.Time) {
	s := &p.strangers
	if s.news == 0 || now.Before(s.silent) {
		return
	}
	p.say(slog.LevelWarn, "events come from workers that are in no pool; those of some are kept for a while",
		"new_workers", s.news, "kept_workers", s.kept, "kept_for", unknownGrace, "worker_id", s.one.ID, "rank", s.one.Rank)
	s.news, s.silent = 0, now.Add(time.Minute)
}

// away follows whether a pool has a worker. It is true once, when none has had it
// for so long that what is known of it is to be dropped.
func (p *Plane) away(c *cursor, known bool, now time.Time) (givenUp bool) {
	switch {
	case known:
		c.unknown, c.muted, c.member = time.Time{}, false, true
		p.noStranger(c)
	case c.muted || !c.member && !c.stranger: // nothing of it is kept
	case c.unknown.IsZero():
		c.unknown = now
	case now.Sub(c.unknown) >= unknownGrace:
		c.muted = true
		p.noStranger(c)
		return true
	}
	return false
}

// noStranger makes room for another one.
func (p *Plane) noStranger(c *cursor) {
	if c.stranger {
		c.stranger = false
		p.strangers.kept--
	}
}

// sweep drops workers that no pool has had for long, whether they ever spoke or
// not, and whether or not they still do.
func (p *Plane) sweep() {
	p.mu.Lock()
	now := p.cfg.Now()
	gone := p.sweepIndex(now)
	for key, c := range p.workers {
		if p.away(c, p.cfg.Known(key), now) {
			gone = append(gone, key)
		}
	}
	p.sayStrangers(now)
	said := p.takeSayings()
	p.mu.Unlock()
	for _, key := range gone {
		p.cfg.Drop(key)
	}
	p.log(said)
}

// sweepIndex returns the workers that are in the index, never spoke, and have been
// in no pool for long. It comes before the workers that did speak are given up.
func (p *Plane) sweepIndex(now time.Time) (gone []fleet.Key) {
	since := map[fleet.Key]time.Time{}
	for _, key := range p.cfg.Index.Workers() {
		if p.cfg.Known(key) {
			continue
		}
		if c := p.workers[key]; c != nil {
			if c.muted {
				// Dropped, and back: a pool had it between two sweeps.
				c.muted, c.member, c.unknown = false, true, now
			}
			continue
		}
		start, ok := p.silent[key]
		if !ok {
			start = now
		}
		if now.Sub(start) >= unknownGrace {
			gone = append(gone, key)
		}
		since[key] = start
	}
	p.silent = since
	return gone
}

// maxCursors bounds the workers that are followed and in no pool. Ids of
// processes that come and go would add up over the months.
const maxCursors = 4 * index.MaxWorkers

func (p *Plane) cursor(key fleet.Key) *cursor {
	if c := p.workers[key]; c != nil {
		return c
	}
	if len(p.workers) >= maxCursors {
		p.evict(func(c *cursor) bool { return !c.member })
	}
	if len(p.workers) >= maxCursors {
		p.evict(func(*cursor) bool { return true })
	}
	// What is in the index without a cursor was put there by a pool.
	_, member := p.cfg.Index.Lookup(key)
	c := &cursor{member: member, unknown: p.silent[key]}
	p.workers[key] = c
	return c
}

// evict forgets workers that no pool has.
func (p *Plane) evict(which func(*cursor) bool) {
	maps.DeleteFunc(p.workers, func(k fleet.Key, c *cursor) bool {
		if !which(c) || p.cfg.Known(k) {
			return false
		}
		p.noStranger(c)
		p.unhome(k, c.source)
		p.cfg.Drop(k)
		return true
	})
}
