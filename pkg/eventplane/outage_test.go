package eventplane

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestServerComesLater: without a server the plane waits for it, and says so.
func TestServerComesLater(t *testing.T) {
	port := freePort(t)
	r := newRig(t, fmt.Sprintf("nats://127.0.0.1:%d", port), "dynamo")
	r.run()
	waitFor(t, "no word about the missing server", func() bool { return r.logs.count("level=WARN", "not reachable yet") == 1 })
	if s := r.plane.Stats(); s.Connected || s.EverListened || r.plane.Connected() {
		t.Fatalf("connected to nothing: %+v", s)
	}
	address, _ := startNATS(t, port)
	conn := connect(t, address)
	r.listening(conn)
	if s := r.plane.Stats(); !s.Connected || !s.EverListened || !r.plane.Connected() || s.Disconnects != 0 {
		t.Errorf("%+v", s)
	}
	k := fleet.Key{ID: 1}
	publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(k, 41, 1)))
	r.barrier(conn)
	r.wantWorker(k, WorkerStats{LastID: 41, Events: 1}) // what was before us is no gap
	r.wantHeld(k, 1)
}

// TestServerNeverComes: the plane stops all the same.
func TestServerNeverComes(t *testing.T) {
	r := newRig(t, fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)), "dynamo")
	stop := r.run()
	waitFor(t, "no word about the missing server", func() bool { return r.logs.count("not reachable yet") == 1 })
	stop()
}

func TestBadAddress(t *testing.T) {
	r := newRig(t, "nats://[", "dynamo")
	if err := r.plane.Run(t.Context()); err == nil {
		t.Error("Run with an address that is none: no error")
	}
}

// TestServerRestarts: what is published while the server is away is lost, and is
// seen as a gap of exactly the workers that published.
func TestServerRestarts(t *testing.T) {
	address, kill := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo")
	stop := r.run()
	conn := connect(t, address)
	r.listening(conn)
	busy, rank, quiet := fleet.Key{ID: 1}, fleet.Key{ID: 1, Rank: 1}, fleet.Key{ID: 2}
	send := func(ev kvevent.Event) { publish(t, conn, endpointSubject, encode(t, dynamo.Gen14, ev)) }
	for id := range uint64(3) {
		send(stored(busy, id+1, 10+id))
		send(stored(rank, id+1, 10+id))
		send(stored(quiet, id+1, 10+id))
	}
	r.barrier(conn)

	kill()
	waitFor(t, "the loss of the server is not seen", func() bool { return !r.plane.Connected() && r.plane.Stats().Disconnects == 1 })
	address, _ = startNATS(t, portOf(t, address))
	conn = connect(t, address)
	r.listening(conn)

	// Events 4 to 8 of the busy rank and 4 of the other one were lost.
	send(stored(busy, 9, 20))
	send(stored(rank, 5, 20))
	send(stored(quiet, 4, 20))
	send(stored(busy, 10, 21))
	r.barrier(conn)
	r.wantWorker(busy, WorkerStats{LastID: 10, Events: 5, Gaps: 1, Missed: 5, GivenUp: 1})
	r.wantWorker(rank, WorkerStats{LastID: 5, Events: 4, Gaps: 1, Missed: 1, GivenUp: 1})
	r.wantWorker(quiet, WorkerStats{LastID: 4, Events: 4})
	r.wantHeld(busy, 2) // what was stored since
	r.wantHeld(rank, 1)
	r.wantHeld(quiet, 4)
	s := r.plane.Stats()
	if !s.Connected || s.Disconnects != 1 || s.Messages != 13 || s.BadMessages != 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	for _, want := range []struct {
		n     int
		words []string
	}{
		{1, []string{"level=INFO", `"connected to the event plane"`}},
		{1, []string{"level=WARN", "lost the connection to the event plane"}},
		{1, []string{"level=INFO", "connected to the event plane again"}},
		{2, []string{"level=WARN", "events of a worker are missing"}},
	} {
		if n := r.logs.count(want.words...); n != want.n {
			t.Errorf("%d lines with %q, want %d", n, want.words, want.n)
		}
	}
	r.wantLost(map[fleet.Key]int{busy: 1, rank: 1})

	stop()
	if s := r.plane.Stats(); s.Connected || r.plane.Connected() || s.Disconnects != 1 {
		t.Errorf("after the end: %+v", s)
	}
}

// TestRunWaits: Run returns only when nothing of it runs any more, so that who
// stops it may take the rest apart.
func TestRunWaits(t *testing.T) {
	for _, subject := range []string{componentSubject, endpointSubject} {
		address, _ := startNATS(t, anyPort)
		r := newRig(t, address, "dynamo")
		var inside, over, late atomic.Bool
		const events = 4 // so that some wait while the plane is being stopped
		entered, leave, left := make(chan struct{}, events), make(chan struct{}), make(chan struct{})
		r.onKnown = func() {
			inside.Store(true)
			entered <- struct{}{}
			<-leave
			if over.Load() {
				late.Store(true)
			}
			inside.Store(false)
		}
		stop := r.run()
		conn := connect(t, address)
		r.listening(conn)
		for id := range uint64(events) {
			publish(t, conn, subject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, id+1, id)))
		}
		<-entered // the plane is in the middle of an event, and others wait
		go func() {
			defer close(left)
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for range events {
				<-tick.C
				select {
				case leave <- struct{}{}:
				default:
				}
			}
			close(leave)
		}()
		stop()
		over.Store(true)
		<-left
		waitFor(t, "the events are never done", func() bool { return !inside.Load() })
		if late.Load() {
			t.Errorf("%s: Run returned in the middle of an event", subject)
		}
	}
}

// TestTooSlow: what NATS drops because the plane cannot follow is counted to the
// last message, over both subscriptions, and the holes show as gaps. The count is
// there while the plane runs and after.
func TestTooSlow(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		r, stop, sent := dropMany(t)
		if stopped {
			stop()
		}
		s := r.plane.Stats()
		if s.Messages < 100+2 || s.Dropped == 0 || s.Messages+s.Dropped != sent {
			t.Errorf("%d messages and %d dropped, of %d", s.Messages, s.Dropped, sent)
		}
		var missed uint64
		for k, w := range r.plane.Workers() {
			missed += w.Missed
			if w.Gaps == 0 || w.Events+w.Missed != sent/2 {
				t.Errorf("worker %v: %+v", k, w)
			}
		}
		if missed != s.Dropped {
			t.Errorf("%d events missed, %d messages dropped", missed, s.Dropped)
		}
		if n := r.logs.count("level=WARN", "reports an error", "slow consumer"); n == 0 {
			t.Error("no warning")
		}
	}
}

// dropMany floods a plane that stands still, with the same number of messages on
// each of its subscriptions, and lets it go on.
func dropMany(t *testing.T) (r *rig, stop func(), sent uint64) {
	t.Helper()
	address, _ := startNATS(t, anyPort)
	r = newRig(t, address, "dynamo")
	r.plane.queue = make(chan *nats.Msg, 100)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	r.onKnown = func() {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	}
	stop = r.run()
	conn := connect(t, address)
	r.listening(conn)
	r.plane.mu.Lock()
	listener := r.plane.conn
	r.plane.mu.Unlock()

	const each = 1000
	send := func(id uint64) {
		publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, id, id)))
		publish(t, conn, endpointSubject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 2}, id, id)))
	}
	send(1)
	<-entered // the first message is out of the queue
	for id := uint64(2); id <= each; id++ {
		send(id)
	}
	flush(t, conn)
	flush(t, listener) // all has come as far as the plane's own door
	close(release)
	waitFor(t, "the queue is never empty", func() bool {
		s := r.plane.Stats()
		return s.Messages+s.Dropped == 2*each
	})
	send(each + 1)
	r.barrier(conn)
	return r, stop, 2 * (each + 1)
}

// TestBackPressureShows: what waits is counted while the lanes stand still, and
// nothing is left when they go on.
func TestBackPressureShows(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	for _, l := range r.plane.lanes {
		l.mu.Lock()
	}
	const sent = 400
	for id := range uint64(sent) {
		publish(t, conn, endpointSubject, encode(t, dynamo.Gen15, stored(fleet.Key{ID: 1}, id+1, id)))
	}
	waitFor(t, "the queue does not show", func() bool { return r.plane.Stats().Waiting >= sent-10 })
	if s := r.plane.Stats(); s.Capacity != queueSize || s.Dropped != 0 || s.Messages != 0 {
		t.Errorf("%+v", s)
	}
	for _, l := range r.plane.lanes {
		l.mu.Unlock()
	}
	r.barrier(conn)
	if s := r.plane.Stats(); s.Waiting != 0 || s.Messages != sent {
		t.Errorf("%+v", s)
	}
}

// TestListeningMeansSubscribed: once the plane says that it listens, the very next
// event is heard.
func TestListeningMeansSubscribed(t *testing.T) {
	for range 20 {
		address, _ := startNATS(t, anyPort)
		r := newRig(t, address, "dynamo")
		conn := connect(t, address)
		stop := r.run()
		waitFor(t, "the plane does not listen", func() bool { return r.plane.Stats().EverListened })
		publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, 1, 1)))
		waitFor(t, "the first event was missed", func() bool { return r.plane.Stats().Messages == 1 })
		stop()
	}
}
