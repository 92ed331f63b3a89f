package eventplane

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Limits of what waits to be announced. Only a NATS server that takes nothing for
// long makes anything wait; what does not fit is not announced.
const (
	maxAnnounced     = 1 << 16 // requests whose end is still to be told
	maxWaitingBlocks = 1 << 22 // hashes of prompts, 8 bytes each
	maxRoom          = 1 << 14 // hashes in memory that is kept for reuse
)

// Placement is one request as a decision places it.
type Placement struct {
	RequestID string // a UUID, the one that the workers know where they know it
	Adapter   string // the LoRA adapter, empty when there is none

	// Prefill computes the prompt, Decode goes on: the same worker, or a pair.
	Prefill, Decode fleet.Key

	PrefillTokens int           // to compute on Prefill
	Blocks        int           // full blocks of the prompt
	Chains        []block.Chain // of those blocks, empty when not known
}

func (p *Placement) pair() bool { return p.Prefill != p.Decode }

// AnnounceStats counts what was told to other routers, in messages unless said
// otherwise.
type AnnounceStats struct {
	Added, Prefilled, Freed uint64 // published: AddRequest, MarkPrefillCompleted, Free

	UnknownPlace uint64 // AddRequest of a worker that was never heard: nobody knows on which subject
	QueueFull    uint64 // requests that did not fit into what waits
	NotConnected uint64 // NATS was away. The end of a request is told when it is back
	TooLarge     uint64 // no message that the server takes could be made of it
	Denied       uint64 // the server does not let us publish there; counted as published as well
}

// announcer takes in what becomes of requests and keeps it for the one goroutine
// that publishes: nobody who takes part in a request waits for NATS.
type announcer struct {
	router uint64 // who we are to other routers: random, at most 53 bits, not 0
	places places
	wake   chan struct{} // holds one: there are words, or the connection is back

	hurried chan struct{} // holds one: somebody waits for our state
	states  atomic.Uint64 // parts of our state that were published

	mu     sync.Mutex // guards all below
	words  []word
	open   int  // announcements that were taken in and are not over
	blocks int  // hashes that wait
	back   bool // connected (again) since the last look
	closed bool // nobody publishes any more
	stats  AnnounceStats

	// Ends of the current periods of silence about unknown places and denials.
	placeSilent, deniedSilent time.Time
}

// wordKind is what becomes of a request. It only grows.
type wordKind uint8

const (
	wordPlaced wordKind = iota + 1
	wordPrefilled
	wordFinished
)

// word is one thing to be told.
type word struct {
	of   *Announcement
	kind wordKind
}

// Announcement is a request that other routers are told about. All methods may be
// called at once, and on nil, which is a request that nobody is told about.
type Announcement struct {
	from *announcer
	last wordKind // guarded by its lock

	// The publisher's own from here on.
	what Placement
	room *[]block.Chain // what the chains lie in, nil when there are none
	told [2]string      // subjects of the workers that it is told to be on, empty: none; see sides

	prefilled, over bool
}

// sides of a placement: a worker that does both is the decode side.
const (
	prefillSide = iota
	decodeSide
)

func newAnnouncer(cfg *Config) *announcer {
	if !cfg.ReplicaSync {
		return nil
	}
	a := &announcer{router: random53(), places: newPlaces(cfg.Known), wake: make(chan struct{}, 1), hurried: make(chan struct{}, 1)}
	cfg.Siblings.join(a.router)
	return a
}

// random53 is an id as Dynamo 1.4 draws them (dynamo.md 1.3).
func random53() uint64 { return rand.Uint64N(1<<53-1) + 1 }

// Announce tells other routers that a request was placed. It never waits, and keeps
// nothing of p. Finished must be called on what it returns: nil when replica sync
// is off, or there is no room.
func (p *Plane) Announce(placement *Placement) *Announcement {
	if p.announce == nil {
		return nil
	}
	return p.announce.take(placement)
}

// AnnounceStats returns the counts of announcements.
func (p *Plane) AnnounceStats() AnnounceStats {
	a := p.announce
	if a == nil {
		return AnnounceStats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// rooms is memory for hashes that wait.
var rooms = sync.Pool{New: func() any { return new([]block.Chain) }}

// take takes in a placement.
func (a *announcer) take(p *Placement) *Announcement {
	an := &Announcement{from: a, last: wordPlaced, what: *p}
	an.what.Chains = nil
	if !p.pair() && len(p.Chains) > 0 { // of a pair no worker is told of them
		an.room = rooms.Get().(*[]block.Chain)
		*an.room = append((*an.room)[:0], p.Chains...)
		an.what.Chains = *an.room
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		a.stats.NotConnected++
	case a.open >= maxAnnounced || a.blocks+len(an.what.Chains) > maxWaitingBlocks:
		a.stats.QueueFull++
	default:
		a.open++
		a.blocks += len(an.what.Chains)
		a.push(word{an, wordPlaced})
		return an
	}
	an.freeRoom()
	return nil
}

// PrefillDone tells that the prompt is computed. Only the first call has an
// effect, and none after Finished.
func (an *Announcement) PrefillDone() { an.become(wordPrefilled) }

// Finished tells that the request has ended. Only the first call has an effect.
func (an *Announcement) Finished() { an.become(wordFinished) }

func (an *Announcement) become(kind wordKind) {
	if an == nil {
		return
	}
	a := an.from
	a.mu.Lock()
	defer a.mu.Unlock()
	if an.last < kind {
		an.last = kind
		a.push(word{an, kind})
	}
}

// push adds a word. There is always room: a request has three at most, and the
// requests are counted. Its caller holds the lock.
func (a *announcer) push(w word) {
	if a.closed {
		return
	}
	a.words = append(a.words, w)
	a.nudge()
}

// nudge lets the publisher have a look.
func (a *announcer) nudge() {
	select {
	case a.wake <- struct{}{}:
	default: // it will have one anyway
	}
}

// complain counts a failure, and says whether to say so: once a minute.
func (a *announcer) complain(count *uint64, silent *time.Time, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	*count++
	if now.Before(*silent) {
		return false
	}
	*silent = now.Add(time.Minute)
	return true
}

// freeRoom gives the memory of the hashes back.
func (an *Announcement) freeRoom() {
	an.what.Chains = nil
	if an.room != nil && cap(*an.room) <= maxRoom {
		rooms.Put(an.room)
	}
	an.room = nil
}
