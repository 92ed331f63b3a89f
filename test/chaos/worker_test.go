package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// release is how a worker publishes.
type release struct {
	name       string
	generation dynamo.Generation
	namespace  string
	publisher  bool // it names its publishers, other ones for each process and rank, instead of the worker
}

// All clear every rank of a worker that is in component scope.
var releases = []release{
	{"1.2", dynamo.Gen12, namespace, false},
	{"1.3", dynamo.Gen12, namespace + "-0badcafe", true},
	{"1.4", dynamo.Gen14, namespace, true},
	{"1.6", dynamo.Gen15, namespace + "-0badcafe", true},
}

const namespace = "chaos"

// pace is the time between two messages of a worker.
const pace = 10 * time.Millisecond

// floodAhead is how many messages of a flood a worker may be ahead of the plane's
// connection: the plane is to be too slow, not the server.
const floodAhead = 512

// worker is an engine that publishes what its ranks' caches do. It has a
// connection of its own to the server, which it keeps when its process starts
// over: then what it says stays in order.
type worker struct {
	t       *testing.T
	release release
	subject string
	witness *witness
	conn    *nats.Conn
	serials *atomic.Uint64 // of all workers

	mu       sync.Mutex // guards all below
	rng      *rand.Rand
	ranks    []*rank
	resting  bool // it publishes only what it is told to
	flooding bool // it publishes as fast as it can, one event a message
	ledger   []*message
	sent     uint64 // messages so far
	refused  uint64 // of those, that the connection did not take
	clears   uint64 // events so far that say that no rank holds anything
}

// rank is one rank of a worker. What it has published is in the worker's ledger.
type rank struct {
	key       fleet.Key
	publisher uint64
	process   int
	last      uint64 // event id
	cache     *cache
	history   []kvevent.Event // the newest ones of its process
	cleared   uint64          // another rank's word cleared it when this event was next: history says nothing of that
	books     books
}

// message is a message that was published. delivered is the witness's.
type message struct {
	serial  uint64
	rank    *rank
	process int
	first   uint64 // event id
	events  []saying

	delivered bool
}

// saying is what counts of an event: whether, and for how many, it says that
// nothing is held any more.
type saying struct{ clears, clearsAll bool }

// run publishes until ctx ends.
func (w *worker) run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var m *message
	for n := 0; ; n++ {
		w.mu.Lock()
		flooding := w.flooding
		if !w.resting {
			m = w.speak(w.ranks[w.rng.IntN(len(w.ranks))])
		}
		w.mu.Unlock()
		if flooding && n%floodAhead != 0 {
			continue
		}
		for wait := true; wait; wait = flooding && w.ahead(m) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// ahead says whether a flood is to wait for its last message to go through.
func (w *worker) ahead(m *message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flooding && !w.witness.sees(m)
}

// speak publishes one message of a rank. Its caller holds the lock.
func (w *worker) speak(r *rank) *message {
	if w.flooding {
		return w.publish(r, []kvevent.Event{r.cache.changeOne()})
	}
	n := 1
	if w.release.generation != dynamo.Gen12 {
		n += w.rng.IntN(4)
	}
	events := make([]kvevent.Event, n)
	for i := range events {
		events[i] = r.cache.change()
		w.spread(r, &events[i])
	}
	return w.publish(r, events)
}

// clear publishes that a rank holds nothing any more. Its caller holds the lock.
func (w *worker) clear(r *rank) *message {
	r.cache.clear()
	events := []kvevent.Event{{Kind: kvevent.Cleared}}
	w.spread(r, &events[0])
	return w.publish(r, events)
}

// spread does what a cleared event means for the other ranks: releases in
// component scope mean all (dynamo.md 1.4).
func (w *worker) spread(r *rank, ev *kvevent.Event) {
	if ev.Kind != kvevent.Cleared || w.release.generation != dynamo.Gen12 {
		return
	}
	ev.AllRanks = true
	w.clears++
	for _, other := range w.ranks {
		if other != r {
			other.cache.clear()
			other.cleared = other.last + 1
		}
	}
}

// publish gives events their ids and sends them, if there is a connection. They
// count as published all the same: an engine does not wait for its listeners.
func (w *worker) publish(r *rank, events []kvevent.Event) *message {
	m := &message{serial: w.serials.Add(1), rank: r, process: r.process, first: r.last + 1}
	for i := range events {
		ev := &events[i]
		r.last++
		ev.WorkerID, ev.Rank, ev.ID = r.key.ID, r.key.Rank, r.last
		r.remember(*ev)
		m.events = append(m.events, saying{ev.Kind == kvevent.Cleared, ev.AllRanks})
	}
	// The serial number makes every body another one.
	envelope := dynamo.Envelope{PublisherID: r.publisher, Sequence: r.last, PublishedAt: m.serial}
	body, err := dynamo.AppendMessage(nil, w.release.generation, envelope, events)
	if err != nil {
		w.t.Errorf("worker %v: %v", r.key, err)
		return m
	}
	w.witness.expect(body, m)
	w.ledger = append(w.ledger, m)
	w.sent++
	broken := (*net.OpError)(nil)
	switch err := w.conn.Publish(w.subject, body); {
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.As(err, &broken): // it knows, or finds out now
		w.refused++
	case err != nil:
		w.t.Errorf("worker %v: %v", r.key, err)
	}
	return m
}

// restart starts the worker's process over, under the same id and with nothing in
// its caches. Its caller holds the lock.
func (w *worker) restart() {
	for _, r := range w.ranks {
		r.process++
		r.last, r.history, r.cleared = 0, nil, 0
		r.cache.clear()
		w.name(r)
	}
}

// name gives a rank a publisher.
func (w *worker) name(r *rank) {
	r.publisher = r.key.ID
	if w.release.publisher {
		r.publisher = w.rng.Uint64()>>11 | 1 // 53 bits, as Dynamo's
	}
}
