package load

import "time"

const (
	// clockMemory is for how long at least it counts how soon a router's word was heard.
	clockMemory = time.Minute
	// maxClocks bounds the routers whose clocks are followed.
	maxClocks = 256
	// maxSkew is from which difference on a time is none.
	maxSkew = 24 * time.Hour
)

// clocks are how far the clocks of other routers are from this one, by their ids: the
// least time that a word took lately. Where that is below 0, or longer than any word
// is on its way, clocks differ, and a word is late by what it takes longer than that.
// So a clock that is slow by an hour makes no word late. One that is slow by some
// seconds cannot be told from words that are.
type clocks map[uint64]*clock

// clock is the least time that words took, by two turns of clockMemory.
type clock struct {
	least, before time.Duration
	since         time.Time // when the turn began
}

// late returns how late a word is that was said at a time by its router's clock, in
// Unix milliseconds, 0 when not known. It is at most maxLate.
func (c clocks) late(router, at uint64, now time.Time) time.Duration {
	if at == 0 || at > 1<<53 {
		return 0
	}
	took := now.Sub(time.UnixMilli(int64(at)))
	if took < -maxSkew || took > maxSkew {
		return 0
	}
	k := c[router]
	if k == nil {
		if !c.room(now) {
			return 0
		}
		k = &clock{}
		c[router] = k
	}
	least := k.note(took, now)
	if least >= 0 && least <= maxLate {
		least = 0
	}
	return min(maxLate, took-least)
}

// note takes in what a word took, and returns the least of late.
func (k *clock) note(took time.Duration, now time.Time) time.Duration {
	switch age := now.Sub(k.since); {
	case age < 0 || age >= 2*clockMemory:
		*k = clock{least: took, before: took, since: now}
	case age >= clockMemory:
		*k = clock{least: took, before: k.least, since: now}
	}
	k.least = min(k.least, took)
	return min(k.least, k.before)
}

// room says whether another router can be followed, and makes room if some fell
// silent.
func (c clocks) room(now time.Time) bool {
	if len(c) < maxClocks {
		return true
	}
	for id, k := range c {
		if age := now.Sub(k.since); age < 0 || age >= 2*clockMemory {
			delete(c, id)
		}
	}
	return len(c) < maxClocks
}
