package eventplane

import (
	"github.com/warmpath/warmpath/pkg/fleet"
)

// speaker is a publisher as the source of one of a worker's ranks.
type speaker struct{ worker, source uint64 }

// follow says what an event means by its id and by who sent it. Its caller holds
// the lock.
//
// A rank number inside the engine's batch overrides the publisher's while ids
// count per publisher (dynamo-live.md section 3): such an event takes its id from
// the row of the publisher's own rank, and is no sign of a restart.
func (p *Plane) follow(key fleet.Key, c *cursor, id uint64, o origin) step {
	if c.heard && o.source == c.source {
		st := c.follow(id, o)
		if st == restart {
			p.reclaim(key, c, o.source)
		}
		return st
	}
	if at, home := p.home(key, o.source); home != nil {
		home.lent = true
		if from := home.stats.LastID + 1; id >= from && home.asking == nil && home.follow(id, o) == gap {
			p.sayGap(at, home)
			p.lose(at, home, from, nil, p.cfg.Now())
		}
		c.guest = o.source
		c.stats.Strays++
		return stray
	}
	old, heard := c.source, c.heard
	st := c.advance(id, o)
	if st == stale {
		return st
	}
	if heard {
		p.unhome(key, old)
		p.reclaim(key, c, old)
	}
	p.settleIn(key, o.source)
	return st
}

// settleIn notes that a publisher is the source of a rank.
func (p *Plane) settleIn(key fleet.Key, source uint64) {
	if source != 0 {
		p.homes[speaker{key.ID, source}] = key.Rank
	}
}

// strayed says whether an event is of another rank's publisher.
func (p *Plane) strayed(key fleet.Key, c *cursor, source uint64) bool {
	if c.heard && source == c.source {
		return false
	}
	_, home := p.home(key, source)
	return home != nil
}

// home returns the other rank of a worker that a publisher is the source of, nil
// when there is none.
func (p *Plane) home(key fleet.Key, source uint64) (fleet.Key, *cursor) {
	if source == 0 {
		return key, nil
	}
	rank, ok := p.homes[speaker{key.ID, source}]
	if !ok || rank == key.Rank {
		return key, nil
	}
	at := fleet.Key{ID: key.ID, Rank: rank}
	return at, p.workers[at]
}

// unhome forgets that a rank's source is its own.
func (p *Plane) unhome(key fleet.Key, source uint64) {
	s := speaker{key.ID, source}
	if rank, ok := p.homes[s]; ok && rank == key.Rank {
		delete(p.homes, s)
	}
}

// reclaim forgets what a rank's source said for other ranks: its process is gone,
// and their own publishers will not take it back.
func (p *Plane) reclaim(key fleet.Key, c *cursor, source uint64) {
	if !c.lent {
		return
	}
	c.lent = false
	for other, o := range p.workers {
		if other.ID == key.ID && other != key && o.guest == source {
			o.guest = 0
			p.cfg.Index.Clear(other)
			p.cfg.Lost(other)
		}
	}
}
