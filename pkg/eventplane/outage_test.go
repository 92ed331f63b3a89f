package eventplane

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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
	r.wantWorker(busy, WorkerStats{LastID: 10, Events: 5, Gaps: 1, Missed: 5})
	r.wantWorker(rank, WorkerStats{LastID: 5, Events: 4, Gaps: 1, Missed: 1})
	r.wantWorker(quiet, WorkerStats{LastID: 4, Events: 4})
	r.wantHeld(busy, 5)
	r.wantHeld(rank, 4)
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
	r.wantLost(map[fleet.Key]int{})

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
		var inside atomic.Bool
		entered, release := make(chan struct{}), make(chan struct{})
		r.onKnown = func() {
			inside.Store(true)
			close(entered)
			<-release
			inside.Store(false)
		}
		stop := r.run()
		conn := connect(t, address)
		r.listening(conn)
		publish(t, conn, subject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, 1, 1)))
		<-entered // the plane is in the middle of an event
		timer := time.AfterFunc(100*time.Millisecond, func() { close(release) })
		stop()
		if inside.Load() {
			t.Errorf("%s: Run returned in the middle of an event", subject)
		}
		if timer.Stop() {
			close(release)
		}
		waitFor(t, "the event is never done", func() bool { return !inside.Load() })
	}
}

// TestTooSlow: what NATS drops because the plane cannot follow is counted to the
// last message, over both subscriptions, and the holes show as gaps.
func TestTooSlow(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo")
	r.plane.maxPending = 64 << 10
	release := make(chan struct{})
	r.onKnown = func() { <-release }
	r.run()
	conn := connect(t, address)
	r.listening(conn)
	r.plane.mu.Lock()
	listener := r.plane.conn
	r.plane.mu.Unlock()

	const each = 1000
	a, b := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	for id := range uint64(each) {
		publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(a, id+1, id)))
		publish(t, conn, endpointSubject, encode(t, dynamo.Gen12, stored(b, id+1, id)))
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := listener.Flush(); err != nil { // all has come as far as our own door
		t.Fatal(err)
	}
	close(release)
	r.listening(conn)
	publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(a, each+1, each)))
	publish(t, conn, endpointSubject, encode(t, dynamo.Gen12, stored(b, each+1, each)))
	r.barrier(conn)

	s := r.plane.Stats()
	if s.Messages+s.Dropped != 2*each+2 || s.Dropped < each {
		t.Errorf("%d messages and %d dropped, of %d", s.Messages, s.Dropped, 2*each+2)
	}
	var missed uint64
	for k, w := range r.plane.Workers() {
		missed += w.Missed
		if w.Gaps != 1 || w.Events+w.Missed != each+1 {
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
