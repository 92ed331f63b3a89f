package load

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// routerSilence is how long a router that tells its state may say nothing before it
// counts as dead: three of its heartbeats, which come once a second.
const routerSilence = 3 * time.Second

const (
	maxKnownRouters = 256 // that tell their state
	// MaxStateParts bounds the parts of a state: more than all requests that count
	// would fill.
	MaxStateParts = 1 << 12
)

// OpenRequest is a request that a router says is under way on a worker.
type OpenRequest struct {
	Worker        fleet.Key
	Request       []byte // its id, which is not kept beyond the call
	PrefillTokens uint64 // prompt tokens that the worker was given to compute
	Blocks        uint64 // KV blocks of the prompt
	Prefilled     bool   // the prompt is computed
}

// RouterState is one part of all that a router has under way at one moment. A
// router numbers its words by its own time (Routed.At): all that it said up to the
// state are at or before it, all that it says later are after it. So states and
// words may come in any order.
type RouterState struct {
	Router uint64
	At     uint64 // the moment, by the router's time; later for every state
	Part   int    // of Parts, from 0
	Parts  int
	Open   []OpenRequest
}

// router is one that tells its state.
type router struct {
	heard time.Time // of any kind
	whole time.Time // when the latest state was complete; when it was first heard before that
	last  uint64    // the latest time of its own that it gave
	cut   uint64    // time of the latest complete state: what was placed up to then is in it or over
	dead  bool      // for having been silent, or
	ended bool      // for good
	parts stateParts
}

// stateParts is a state that is coming in.
type stateParts struct {
	at   uint64
	got  []bool // by part
	left int
}

// hear takes in a sign of life.
func (r *router) hear(at uint64, now time.Time) {
	if !r.dead {
		r.heard = now
	}
	r.last = max(r.last, at)
}

// covers says whether all that is placed at a time, and still open, is known from
// the router's state.
func (r *router) covers(at uint64) bool { return r != nil && at > 0 && at <= r.cut }

// RouterAlive takes in a heartbeat, at by the router's time, and says whether the
// router was not known to be alive: it may not know of us either.
func (e *Engines) RouterAlive(id, at uint64, now time.Time) (fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellPlaced(now)
	e.ledger.expire(now, &e.stats)
	_, fresh = e.ledger.alive(id, at, &e.stats)
	return fresh
}

// RouterState takes in a part of a router's state, which is a heartbeat as well.
// When all parts of a state have come, the requests that it does not name are
// over, unless they were placed after it. A state older than one of which a part
// has come is ignored.
func (e *Engines) RouterState(s RouterState, now time.Time) (fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellPlaced(now)
	e.ledger.expire(now, &e.stats)
	r, fresh := e.ledger.alive(s.Router, s.At, &e.stats)
	if r != nil {
		e.ledger.merge(r, &s, &e.stats)
	}
	return fresh
}

// RouterGone forgets the requests of a router that says it has ended. Words of it
// that are still under way count no more.
func (e *Engines) RouterGone(id, at uint64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellPlaced(now)
	l := &e.ledger
	l.expire(now, &e.stats)
	r, _ := l.alive(id, at, &e.stats)
	if r == nil {
		return
	}
	r.ended = true
	l.bury(id, r, 1<<64-1)
}

// RoutersSilent forgets the requests of routers that have fallen silent, and
// returns how many these are and the id of one. Silence counts from listening on:
// who does not listen hears nobody.
func (e *Engines) RoutersSilent(now, listening time.Time) (n int, one uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.tellPlaced(now)
	l := &e.ledger
	l.expire(now, &e.stats)
	for id, r := range l.routers {
		switch silent := l.now.Sub(latest(r.heard, listening)); {
		case r.dead && silent >= rememberedTTL:
			delete(l.routers, id)
		case !r.dead && silent >= routerSilence:
			n, one = n+1, id
			// What it said before it died may still be under way.
			l.bury(id, r, max(r.last, r.last+uint64(routerSilence.Milliseconds())))
		}
	}
	return n, one
}

// Routers returns how many routers that tell their state are alive, and the age of
// the oldest of their states.
func (e *Engines) Routers(now time.Time) (n int, oldest time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.ledger.routers {
		if !r.dead {
			n++
			oldest = max(oldest, now.Sub(r.whole))
		}
	}
	return n, oldest
}

// alive notes a sign of life, and returns the router, nil when there is none to be
// kept.
func (l *ledger) alive(id, at uint64, stats *EngineStats) (r *router, fresh bool) {
	r = l.routers[id]
	switch {
	case r == nil && len(l.routers) >= maxKnownRouters:
		stats.Overflowed++
		return nil, false
	case r == nil:
		r = &router{whole: l.now}
		l.routers[id] = r
		fresh = true
	case r.ended, r.dead && at <= r.last: // said before it died
		return nil, false
	case r.dead:
		r.dead, r.whole, fresh = false, l.now, true
	}
	r.hear(at, l.now)
	return r, fresh
}

// bury forgets the requests of a router, and all that it placed up to a time.
func (l *ledger) bury(id uint64, r *router, until uint64) {
	r.dead = true
	r.cut = max(r.cut, until)
	r.parts = stateParts{}
	l.sweep(id, func(*placement) bool { return true })
}

// sweep forgets open requests of a router.
func (l *ledger) sweep(id uint64, gone func(*placement) bool) {
	for p := l.open.first; p != nil; {
		next := p.next
		if p.router == id && gone(p) {
			l.delete(p)
		}
		p = next
	}
}

// merge takes in a part of a state.
func (l *ledger) merge(r *router, s *RouterState, stats *EngineStats) {
	if s.At < r.parts.at || s.Parts > MaxStateParts || s.Part < 0 || s.Part >= s.Parts {
		return
	}
	if s.At > r.parts.at {
		r.parts = stateParts{at: s.At, got: make([]bool, s.Parts), left: s.Parts}
	}
	if s.Parts != len(r.parts.got) || r.parts.got[s.Part] {
		return
	}
	for i := range s.Open {
		l.name(s, &s.Open[i], stats)
	}
	r.parts.got[s.Part] = true
	if r.parts.left--; r.parts.left > 0 {
		return
	}
	r.cut, r.whole = max(r.cut, s.At), l.now
	l.sweep(s.Router, func(p *placement) bool { return p.state != s.At && p.at <= s.At })
}

// name takes in a request that a state names. It may have ended since.
func (l *ledger) name(s *RouterState, o *OpenRequest, stats *EngineStats) {
	if len(o.Request) > MaxRequestID {
		stats.LongIDs++
		return
	}
	r := Routed{Kind: Placed, Request: o.Request, Router: s.Router, PrefillTokens: o.PrefillTokens, Blocks: o.Blocks, At: s.At}
	if o.Prefilled {
		r.PrefillTokens = 0
	}
	p, routers := l.find(o.Worker, r)
	switch {
	case p == nil && routers >= maxRouters:
		stats.Overflowed++
		return
	case p != nil && p.finished:
		return
	case p != nil && p.open: // it counts from now on, however long it takes
		l.open.remove(p)
		p.since = l.now
		l.open.push(p)
	default:
		l.place(p, o.Worker, r, stats)
		p, _ = l.find(o.Worker, r)
	}
	p.state = s.At
	if o.Prefilled {
		l.prefillDone(p)
	}
}
