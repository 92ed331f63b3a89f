package eventplane

import (
	"maps"
	"strings"
	"sync"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// maxPlaces bounds the workers whose place is known.
const maxPlaces = maxCursors

// places knows where in a deployment workers are: all that is about a worker, by
// itself or by its routers, is published under one and the same part of subjects,
// of component scope up to Dynamo 1.3 and of endpoint scope since (dynamo.md 1.2).
// That part is learnt from what is heard, so no name is ever guessed or encoded
// here. The ranks of a worker share its place.
type places struct {
	known func(fleet.Key) bool // whether a pool has a worker

	mu sync.RWMutex // guards all below
	of map[uint64]whereabouts
}

// whereabouts is where a worker is.
type whereabouts struct {
	scope   string // its subjects up to the topic, without the dot
	subject string // of active_sequences_events there
	own     bool   // the worker said so itself, not a router about it
}

func newPlaces(known func(fleet.Key) bool) places {
	return places{known: known, of: map[uint64]whereabouts{}}
}

// heard notes that a worker published on a subject of our namespace. It is cheap,
// and allocates nothing, unless the worker has moved.
func (p *places) heard(k fleet.Key, subject string) { p.note(k, subject, true) }

// mentioned notes that a router published on a subject about a worker. A decode
// worker of Dynamo 1.2 may never say itself where it is. Where a worker did, its
// own word counts.
func (p *places) mentioned(k fleet.Key, subject string) { p.note(k, subject, false) }

func (p *places) note(k fleet.Key, subject string, own bool) {
	scope := subject[:max(0, strings.LastIndexByte(subject, '.'))]
	p.mu.RLock()
	at := p.of[k.ID]
	p.mu.RUnlock()
	if at.own && !own || at.own == own && at.scope == scope {
		return
	}
	// kv_metrics of Dynamo 1.2 and 1.3 name no component, and KV events that go
	// through a stream of Dynamo's no place at all.
	s, err := dynamo.ParseSubject(subject)
	if err != nil || s.Scope != dynamo.ComponentScope && s.Scope != dynamo.EndpointScope {
		return
	}
	at = whereabouts{scope: scope, subject: scope + "." + dynamo.TopicActiveSequences, own: own}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.of[k.ID]; !again && !p.room() {
		return
	}
	p.of[k.ID] = at
}

// room makes room for another worker, if there is none, at the cost of those that
// are in no pool. Its caller holds the lock.
func (p *places) room() bool {
	if len(p.of) >= maxPlaces {
		maps.DeleteFunc(p.of, func(worker uint64, _ whereabouts) bool { return !p.known(fleet.Key{ID: worker}) })
	}
	return len(p.of) < maxPlaces
}

// subject returns where to publish about a worker; empty when its place is not
// known.
func (p *places) subject(k fleet.Key) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.of[k.ID].subject
}
