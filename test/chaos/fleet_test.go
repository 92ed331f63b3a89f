package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const (
	fleetSize = 16
	// The first workers, one of each scope, have two ranks; the last keep quiet
	// while there is trouble.
	quietWorkers = 3
)

// crew is all workers.
type crew struct {
	t         *testing.T
	witness   *witness
	documents []document
	workers   []*worker
	loud      []*worker // those of them that publish in times of trouble
	quiet     []*worker // the others
}

// startCrew runs workers that rest, until the test ends.
func startCrew(t *testing.T, url string, w *witness, seed uint64) *crew {
	t.Helper()
	c := &crew{t: t, witness: w, documents: newDocuments(rand.New(rand.NewPCG(seed, 0)))}
	serials := &atomic.Uint64{}
	for i := range fleetSize {
		// Every second one loses what it says without a connection; the others
		// keep it for later, as Dynamo's do for a while.
		c.workers = append(c.workers, c.newWorker(url, i, seed, serials))
	}
	c.loud, c.quiet = c.workers[:fleetSize-quietWorkers], c.workers[fleetSize-quietWorkers:]
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, w := range c.workers {
		running.Go(func() { w.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

func (c *crew) newWorker(url string, i int, seed uint64, serials *atomic.Uint64) *worker {
	c.t.Helper()
	w := &worker{
		t: c.t, release: releases[i%len(releases)], witness: c.witness, serials: serials,
		rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), resting: true,
	}
	w.subject = dynamo.EventSubject(w.release.generation, w.release.namespace, "backend", "generate")
	ranks := 1
	if i == 0 || i == 3 {
		ranks = 2
	}
	id := fleet.WorkerID(fmt.Sprintf("worker-%d", i))
	for n := range ranks {
		key := fleet.Key{ID: id, Rank: uint32(n)}
		r := &rank{key: key, cache: newCache(key, w.rng, c.documents)}
		w.name(r)
		w.ranks = append(w.ranks, r)
	}
	buffer := nats.DefaultReconnectBufSize
	if i%2 == 1 {
		buffer = -1
	}
	w.conn = connect(c.t, url, nats.Name(fmt.Sprintf("worker-%d", i)), nats.ReconnectBufSize(buffer))
	return w
}

// connect opens a connection that lasts until the test ends.
func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // a server that is gone is no news
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	var conn *nats.Conn
	// The library takes a PING of the server in the middle of its greeting for an
	// error.
	eventually(t, "a connection to the server", func() bool {
		var err error
		conn, err = nats.Connect(url, options...)
		return err == nil
	})
	t.Cleanup(func() {
		conn.Close()
		<-closed
	})
	return conn
}

// each does something to workers, one after the other.
func each(workers []*worker, do func(*worker)) {
	for _, w := range workers {
		w.mu.Lock()
		do(w)
		w.mu.Unlock()
	}
}

// speak lets all workers but the quiet ones publish; rest stops them.
func (c *crew) speak() {
	each(c.loud, func(w *worker) { w.resting = false })
}

func (c *crew) rest() { each(c.workers, func(w *worker) { w.resting, w.flooding = true, false }) }

// flood lets all workers but the quiet ones publish as fast as they can, one event
// a message.
func (c *crew) flood() {
	each(c.loud, func(w *worker) { w.resting, w.flooding = false, true })
}

// sent returns how many messages were published, refused those that no
// connection took.
func (c *crew) sent() (n uint64) {
	each(c.workers, func(w *worker) { n += w.sent })
	return n
}

func (c *crew) refused() (n uint64) {
	each(c.workers, func(w *worker) { n += w.refused })
	return n
}

// goOn waits until many more messages were published.
func (c *crew) goOn(messages uint64) {
	c.t.Helper()
	from := c.sent()
	eventually(c.t, "workers publish", func() bool { return c.sent() >= from+messages })
}

// say lets workers publish and returns when the last message of each rank has
// gone through. One that does not is followed by another: until the plane is
// subscribed again, all is lost.
func (c *crew) say(workers []*worker, speak func(*worker, *rank) *message) {
	c.t.Helper()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			for _, r := range w.ranks {
				if !w.getThrough(r, speak) {
					c.t.Errorf("worker %v publishes and nothing goes through", r.key)
				}
			}
		})
	}
	all.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (w *worker) getThrough(r *rank, speak func(*worker, *rank) *message) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		w.mu.Lock()
		m := speak(w, r)
		w.mu.Unlock()
		if within(time.Second, func() bool { return w.witness.sees(m) }) {
			return true
		}
	}
	return false
}

// restart starts workers over and waits until the first word of each rank has
// gone through.
func (c *crew) restart(workers ...*worker) {
	c.t.Helper()
	each(workers, (*worker).restart)
	c.say(workers, (*worker).speak)
}
