package eventplane

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// takeInAll sends events and waits until they are taken in, or wait.
func (r *rig) takeInAll(gen dynamo.Generation, events ...kvevent.Event) {
	r.t.Helper()
	for _, ev := range events {
		r.send(encode(r.t, gen, ev))
	}
	waitFor(r.t, "messages are left", func() bool { return len(r.plane.queue) == 0 })
	r.plane.settle()
}

// gate holds answers up until it is opened.
func (f *simFleet) gate(t *testing.T) (asked chan uint64, open func()) {
	asked, release := make(chan uint64, 1024), make(chan struct{})
	f.onAsk = func(_ fleet.Key, from uint64) {
		asked <- from
		<-release
	}
	var opened bool
	open = func() {
		if !opened {
			opened = true
			close(release)
		}
	}
	t.Cleanup(open)
	return asked, open
}

// TestDeafWorkerKeepsItsCredit: a worker that can never be asked is asked again and
// again, and what it stored since it was given up stays known.
func TestDeafWorkerKeepsItsCredit(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	f.workers[k].failures = 1 << 30
	var asked atomic.Uint64
	f.onAsk = func(fleet.Key, uint64) { asked.Add(1) }
	r := newSimRig(t, f)
	r.plane.look()
	waitFor(t, "it is not given up", func() bool { return r.state(k) == Partial })
	id := uint64(0)
	for range 3 {
		id++
		r.takeInAll(dynamo.Gen15, stored(k, id, id))
		r.advance(askAgain)
		before := asked.Load()
		r.plane.look()
		waitFor(t, "it is not asked again", func() bool { return asked.Load() > before })
		waitFor(t, "the question has no end", func() bool { return r.state(k) != Resyncing })
		if r.state(k) != Partial {
			t.Errorf("%v", r.state(k))
		}
		r.wantHeld(k, int(id))
	}
}

// TestDeafWorkerHeardLate: of a worker that was asked in vain, the first event that
// is heard is no reason to ask at once again.
func TestDeafWorkerHeardLate(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	f.workers[k].failures = 1 << 30
	r := newSimRig(t, f)
	r.plane.look()
	waitFor(t, "it is not given up", func() bool { return r.state(k) == Partial })
	r.takeInAll(dynamo.Gen15, stored(k, 700, 1), stored(k, 701, 2))
	if r.state(k) != Partial {
		t.Errorf("%v", r.state(k))
	}
	r.wantHeld(k, 2)
}

// TestUnansweredSuspectKeepsItsBlocks: where nothing is known to be missing, nothing
// is forgotten, however often the worker does not answer.
func TestUnansweredSuspectKeepsItsBlocks(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	r := newSimRig(t, f)
	r.takeInAll(dynamo.Gen15, stored(k, 1, 1, 2), stored(k, 2, 3))
	f.workers[k].failures = 1 << 30
	r.suspectAll()
	for range 3 {
		waitFor(t, "the question has no end", func() bool { return r.state(k) != Resyncing })
		r.wantHeld(k, 3)
		r.advance(askAgain)
		r.plane.look()
	}
	waitFor(t, "the question has no end", func() bool { return r.state(k) != Resyncing })
	r.wantHeld(k, 3)
	if w := r.plane.Workers()[k]; w.GivenUp != 0 || w.State != Suspect {
		t.Errorf("%+v", w)
	}
}

// TestAskedOnceItCanBe: a worker that was heard before it could be asked is asked as
// soon as it can be.
func TestAskedOnceItCanBe(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	f.mute[k] = true
	r := newSimRig(t, f)
	for range 3 {
		f.workers[k].step()
	}
	r.send(f.workers[k].step())
	waitFor(t, "the message is not taken in", func() bool { return r.state(k) == Partial })
	r.plane.settle()
	f.mute[k] = false // its pod is listed
	r.plane.look()
	waitFor(t, "it is not asked", func() bool { return r.state(k) == Synced })
	r.wantTruth(f)
}

// TestGapWhileMakingSure: events that are seen to be missing cost a worker its credit
// also while it is being asked just to make sure.
func TestGapWhileMakingSure(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	r := newSimRig(t, f)
	for range 3 {
		r.send(f.workers[k].step())
	}
	r.settled(f)
	asked, open := f.gate(t)
	r.suspectAll()
	<-asked
	r.send(f.workers[k].step()) // in order
	waitFor(t, "the message is left", func() bool { return len(r.plane.queue) == 0 })
	r.plane.settle()
	if r.index.Hidden(k) {
		t.Error("hidden without a reason")
	}
	f.workers[k].step() // lost
	r.send(f.workers[k].step())
	waitFor(t, "it is credited all the same", func() bool { return r.index.Hidden(k) })
	open()
	r.settled(f)
	r.wantTruth(f)
}

// TestLossBeforeOpening: events that may have been lost before any was taken in
// matter once the plane knows workers.
func TestLossBeforeOpening(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.plane.mu.Lock()
	r.plane.unsure = true
	r.plane.mu.Unlock()
	r.plane.look()
	r.takeIn(endpointSubject, stored(k, 1, 1))
	r.plane.open()
	r.plane.look()
	if r.state(k) != Suspect {
		t.Errorf("%v, want suspect", r.state(k))
	}
}

// TestAllRanksClearedInVain: when a rank does not answer, what it said before all
// ranks were cleared does not come back. It counts all the same.
func TestAllRanksClearedInVain(t *testing.T) {
	f := newSimFleet(2, 1)
	a, b := fleet.Key{ID: 1}, fleet.Key{ID: 1, Rank: 1}
	r := newSimRig(t, f)
	r.takeInAll(dynamo.Gen15, stored(a, 1, 1), stored(b, 1, 1))
	asked, open := f.gate(t)
	f.workers[b].failures = 1 << 30
	f.mute[a] = true
	r.suspectAll()
	<-asked
	r.takeInAll(dynamo.Gen15, stored(b, 2, 2)) // waits
	r.plane.queue <- &nats.Msg{Subject: componentSubject, Data: encode(t, dynamo.Gen15, cleared(a, 2))}
	waitFor(t, "the message is left", func() bool { return r.plane.Workers()[a].LastID == 2 })
	r.plane.settle()
	open()
	waitFor(t, "the question has no end", func() bool { return r.state(b) != Resyncing })
	r.plane.settle()
	r.wantHeld(a, 0)
	r.wantHeld(b, 0)
	r.wantWorker(b, WorkerStats{LastID: 1, Events: 1, Stale: 1})
}

// TestStrayClearedWaits: also what another rank's publisher cleared is cleared when
// the worker has answered, or has not.
func TestStrayClearedWaits(t *testing.T) {
	for _, answers := range []bool{true, false} {
		f := newSimFleet(2, 1)
		a, b := fleet.Key{ID: 1}, fleet.Key{ID: 1, Rank: 1}
		r := newSimRig(t, f)
		r.takeInAll(dynamo.Gen15, stored(a, 1, 1), stored(b, 1, 1))
		asked, open := f.gate(t)
		f.workers[b].mu.Lock()
		f.workers[b].id, f.workers[b].ring = 1, []kvevent.Event{stored(b, 1, 1)}
		if !answers {
			f.workers[b].failures = 1 << 30
		}
		f.workers[b].mu.Unlock()
		f.mute[a] = true
		r.suspectAll()
		<-asked
		r.send(encodeFrom(t, publisherOf(dynamo.Gen15, a), dynamo.Gen15, cleared(b, 2)))
		waitFor(t, "the message is left", func() bool { return len(r.plane.queue) == 0 })
		r.plane.settle()
		open()
		waitFor(t, "the question has no end", func() bool { return r.state(b) != Resyncing })
		waitFor(t, "it is not cleared", func() bool { return r.index.Held(b)[kvevent.Device] == 0 }) // without an answer only after the end
	}
}

// TestOldClearedDoesNotOvertake: a cleared event that was taken in before, and comes
// again, does not end a question. It counts when the question has no answer, too.
func TestOldClearedDoesNotOvertake(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	f.workers[k].failures = 1 << 30
	r := newSimRig(t, f)
	again := encode(t, dynamo.Gen15, cleared(k, 1))
	r.send(again)
	r.takeInAll(dynamo.Gen15, stored(k, 2, 1))
	asked, open := f.gate(t)
	r.suspectAll()
	<-asked
	r.send(again)
	waitFor(t, "the message is left", func() bool { return len(r.plane.queue) == 0 })
	r.plane.settle()
	r.wantHeld(k, 1)
	if w := r.plane.Workers()[k]; w.State != Resyncing || w.LastID != 2 {
		t.Errorf("%+v", w)
	}
	open()
	waitFor(t, "what waited is not counted", func() bool {
		return counted(r.plane.Workers()[k]) == WorkerStats{LastID: 2, Events: 2, Stale: 1}
	})
	r.wantHeld(k, 1)
}

// TestRestartInOutage: a worker of Dynamo 1.2 that started over while nobody heard,
// and has told as much as before by now, is not credited with what it held before.
func TestRestartInOutage(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		f := newSimFleet(1, 1)
		k := fleet.Key{ID: 1}
		w := f.workers[k]
		w.publisher = k.ID
		r := newSimRig(t, f)
		for range 3 {
			r.send(w.step())
		}
		r.settled(f)
		w.restart()
		for range 5 {
			w.step()
		}
		r.plane.mu.Lock()
		r.plane.unsure = true
		r.plane.mu.Unlock()
		if !quiet {
			r.send(w.step()) // before anybody looks
			waitFor(t, "the message is left", func() bool { return len(r.plane.queue) == 0 })
			r.plane.settle()
		}
		r.plane.look()
		r.settled(f)
		r.wantTruth(f)
	}
}

// TestTheHiddenAreAskedFirst: workers that do not answer hold up those that lost
// their credit no longer than until one of them is through.
func TestTheHiddenAreAskedFirst(t *testing.T) {
	f := newSimFleet(4*askAtOnce, 1)
	k := fleet.Key{ID: 1}
	r := newSimRig(t, f)
	for _, w := range f.workers {
		r.send(w.step())
	}
	r.settled(f)
	release, asked := make(chan struct{}), make(chan fleet.Key, 100)
	f.onAsk = func(k fleet.Key, _ uint64) {
		asked <- k
		<-release
	}
	r.plane.mu.Lock()
	now := r.plane.cfg.Now()
	for other, c := range r.plane.workers {
		if other != k {
			r.plane.ask(other, c, 2, false, now)
		}
	}
	r.plane.mu.Unlock()
	for range askAtOnce {
		<-asked
	}
	f.workers[k].step()
	r.send(f.workers[k].step())
	waitFor(t, "it is not hidden", func() bool { return r.index.Hidden(k) })
	release <- struct{}{}
	release <- struct{}{}
	// One more may have been picked before.
	if first, second := <-asked, <-asked; first != k && second != k {
		t.Errorf("asked %v and %v", first, second)
	}
	close(release)
	r.settled(f)
	r.wantTruth(f)
}

// TestEndIsNoError: parts of the plane that end because ctx has are no failure.
func TestEndIsNoError(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	conn := connect(t, address)
	r := newRig(t, address, "dynamo")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 {
		failed := make(chan error, 1)
		failed <- ctx.Err()
		if err := r.plane.watch(ctx, conn, failed); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("broken")
	failed := make(chan error, 1)
	failed <- broken
	if err := r.plane.watch(t.Context(), conn, failed); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestStateOfPartial: what a replica does not know of a worker, others that warm up
// from it do not know either.
func TestStateOfPartial(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	f.workers[k].failures = 1 << 30
	from := newSimRig(t, f)
	from.plane.look()
	waitFor(t, "it is not given up", func() bool { return from.state(k) == Partial })
	from.takeInAll(dynamo.Gen15, stored(k, 7, 1))
	from.advance(askAgain)
	asked, _ := f.gate(t)
	from.plane.look()
	<-asked
	to := newRig(t, "", "dynamo")
	var b bytes.Buffer
	if err := from.plane.writeState(&b, stateHeader{}); err != nil {
		t.Fatal(err)
	}
	if err := to.plane.restore(&b, nil); err != nil {
		t.Fatal(err)
	}
	to.wantHeld(k, 1)
	if to.state(k) != Partial {
		t.Errorf("%v", to.state(k))
	}
}

// TestStateOfSkipped: where events were refused, what a worker holds is not known.
func TestStateOfSkipped(t *testing.T) {
	k := fleet.Key{ID: 1}
	from := newRig(t, "", "dynamo")
	from.takeIn(endpointSubject, stored(k, 1, 1))
	from.plane.mu.Lock()
	from.plane.workers[k].skipped = true
	from.plane.mu.Unlock()
	to := newRig(t, "", "dynamo")
	var b bytes.Buffer
	if err := from.plane.writeState(&b, stateHeader{}); err != nil {
		t.Fatal(err)
	}
	if err := to.plane.restore(&b, nil); err != nil {
		t.Fatal(err)
	}
	if to.state(k) != Partial {
		t.Errorf("%v", to.state(k))
	}
}

// TestStreamGoneWhileWarming: a stream that goes away is replaced at once, however
// long the workers take to answer.
func TestStreamGoneWhileWarming(t *testing.T) {
	d := startDurable(t, 2, true)
	_, open := d.fleet.gate(t)
	r := d.replica(func(c *Config) { c.Recover, c.WarmUp = d.fleet, WarmUp{Timeout: time.Hour} })
	t.Cleanup(r.run())
	t.Cleanup(open)
	waitFor(t, "the stream is not read", func() bool { return r.plane.Stats().Stream.Name != "" })
	js, err := jetstream.New(d.conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "kv"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "NATS itself is not listened to", func() bool { return r.plane.Stats().Stream.Fallbacks == 1 })
	if r.plane.Warming() == "" {
		t.Error("it is warm")
	}
}

// TestDueTwice: a worker whose question was overtaken before it was asked, and that
// has another one by now, is asked by one goroutine all the same: two would take
// each other's answers apart.
func TestDueTwice(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	r := newRig(t, "", "dynamo")
	r.plane.cfg.Recover = f
	r.takeIn(endpointSubject, stored(k, 1, 1), stored(k, 3, 3), cleared(k, 4), stored(k, 6, 6))
	taken := 0
	for {
		key, ok := r.plane.takeDue()
		if !ok {
			break
		}
		if _, a, _ := r.plane.question(key); a != nil {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("%d ask, want 1", taken)
	}
}

// TestRestartWhileFirstAsked: a worker of Dynamo 1.2 that starts over while it is
// asked for the first time is not credited with what its old process said meanwhile.
func TestRestartWhileFirstAsked(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	w := f.workers[k]
	w.publisher = k.ID
	r := newSimRig(t, f)
	asked, open := f.gate(t)
	r.plane.look()
	<-asked
	for id := range uint64(5) {
		r.send(encodeFrom(t, k.ID, dynamo.Gen15, stored(k, id+1, 100+id)))
	}
	w.clock = 1 << 40 // it starts over later than that
	for range 3 {
		r.send(w.step())
	}
	waitFor(t, "messages are left", func() bool { return len(r.plane.queue) == 0 })
	r.plane.settle()
	open()
	r.settled(f)
	r.wantTruth(f)
}

// TestAskedMidMessage: a worker may come to be asked between two events of a message.
// Each of them counts once all the same, and those of no other worker with it.
func TestAskedMidMessage(t *testing.T) {
	for _, failures := range []int{0, 100} { // with an answer and without
		f := newSimFleet(1, 1)
		k := fleet.Key{ID: 1}
		f.workers[k].failures = failures
		r := newRig(t, "", "dynamo")
		r.plane.cfg.Recover, r.plane.askBackoff = f, time.Millisecond
		r.plane.open()
		calls := 0
		r.onKnown = func() { // once for each event, with the lock
			if calls++; calls == 3 {
				r.plane.suspectAll(false)
			}
		}
		var events []kvevent.Event
		for id := uint64(1); id <= 4; id++ {
			events = append(events, stored(k, id, id))
		}
		r.give(endpointSubject, encode(t, dynamo.Gen15, events...))
		if w := r.plane.Workers()[k]; w.State != Resyncing || w.Events != 2 {
			t.Fatalf("two events are in and the worker is asked, not: %+v", w)
		}
		r.onKnown = nil
		key, ok := r.plane.takeDue()
		if !ok {
			t.Fatal("nobody is due")
		}
		f.workers[k].ring, f.workers[k].id = events, 2
		r.plane.resyncWorker(t.Context(), key)
		r.wantWorker(k, WorkerStats{LastID: 4, Events: 4})
		r.wantHeld(k, 4)
	}
}

// TestAnsweredMidMessage: a worker may also answer, or be given up, between two events
// of a message, of which one waited. Those after it count once, as they come.
func TestAnsweredMidMessage(t *testing.T) {
	for _, failures := range []int{0, 100} { // with an answer and without
		f := newSimFleet(1, 1)
		k := fleet.Key{ID: 1}
		r := newRig(t, "", "dynamo")
		r.plane.cfg.Recover, r.plane.askBackoff = f, time.Millisecond
		r.plane.open()
		r.give(endpointSubject, encode(t, dynamo.Gen15, stored(k, 1, 1)))
		f.workers[k].failures, f.workers[k].id = failures, 1
		r.suspectAll()
		l := r.plane.laneOf(k.ID)
		data := encode(t, dynamo.Gen15, stored(k, 2, 2), cleared(k, 3), stored(k, 4, 4))
		l.now = message{subject: endpointSubject, data: data, scope: dynamo.EndpointScope, at: r.now()}
		if _, err := l.decoder.Decode(data, l.now.scope, func(ev *kvevent.Event) {
			l.take(ev)
			if ev.ID == 2 {
				key, ok := r.plane.takeDue()
				if !ok {
					t.Fatal("nobody is due")
				}
				r.plane.resyncWorker(t.Context(), key)
			}
		}); err != nil {
			t.Fatal(err)
		}
		r.wantWorker(k, WorkerStats{LastID: 4, Events: 4})
		r.wantHeld(k, 1)
	}
}
