package chaos

import (
	"slices"
	"testing"
	"time"
)

// promptly runs a scenario: what was lost must be known within a second after the
// worker's next event was taken in. Only that may be tried again, for a machine that
// stands still now and then. Where workers are asked, soon must do: how fast their
// answers are taken in is the machine's affair.
func promptly(t *testing.T, scenario func(*testing.T) time.Duration) {
	t.Helper()
	const limit, attempts = time.Second, 3
	var late time.Duration
	for range attempts {
		t.Run("run", func(t *testing.T) { late = scenario(t) })
		if t.Failed() {
			return
		}
		t.Logf("what was lost was known at most %s after the next event was taken in", late)
		if late <= limit {
			return
		}
	}
	t.Errorf("what was lost was not known for %s after the next event was taken in", late)
}

// overTransports runs a scenario with a plane that hears NATS itself, and with one
// that reads a stream.
func overTransports(t *testing.T, o serverOptions, scenario func(*rig)) {
	t.Parallel()
	for name, streams := range map[string]bool{"core": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := o
			o.jetStream, o.streams = streams, streams
			promptly(t, func(t *testing.T) time.Duration {
				r := newRig(t, o)
				scenario(r)
				return r.late
			})
		})
	}
}

// wantLoss checks that something was lost, of some workers and not of the quiet ones.
func (r *rig) wantLoss(s step) {
	r.t.Helper()
	if s.lost+s.dropped == 0 || len(s.tainted) == 0 && !r.picker.recovers {
		r.t.Errorf("nothing was lost: %+v", s)
	}
	for _, w := range s.tainted {
		if slices.Contains(r.crew.quiet, w) {
			r.t.Errorf("worker %v was quiet and something of it was lost", w.ranks[0].key)
		}
	}
}

// wantLossOfCore checks that something was lost, if nobody keeps what the plane does
// not hear, and else that nothing was.
func (r *rig) wantLossOfCore(s step) {
	r.t.Helper()
	if !r.picker.streams {
		r.wantLoss(s)
		return
	}
	if s.lost+s.dropped != 0 {
		r.t.Errorf("a stream was read, and %d events were lost, %d messages dropped", s.lost, s.dropped)
	}
}

// TestServerKilled kills the server while workers publish, twice, and starts it
// again. Some workers start over meanwhile. With a stream only that is lost which is
// published while the server is away.
func TestServerKilled(t *testing.T) {
	overTransports(t, serverOptions{}, func(r *rig) {
		for range 2 {
			r.mend(r.killServer())
		}
	})
}

// TestServerKilledJetStream is TestServerKilled where the server has a stream that
// the plane does not read.
func TestServerKilledJetStream(t *testing.T) {
	t.Parallel()
	promptly(t, func(t *testing.T) time.Duration {
		r := newRig(t, serverOptions{jetStream: true})
		bindStream(t, r.server.url())
		r.mend(r.killServer())
		return r.late
	})
}

// killServer returns the workers that something was lost of.
func (r *rig) killServer() []*worker {
	r.t.Helper()
	if r.picker.streams {
		r.audit() // what is published from here on is published to nobody
	}
	before, refused, from := r.picker.plane.Stats().Disconnects, r.crew.refused(), r.crew.sent()
	r.server.kill()
	r.crew.speak()
	eventually(r.t, "the plane sees that the server is gone", func() bool {
		s := r.picker.plane.Stats()
		return !s.Connected && s.Disconnects == before+1
	})
	eventually(r.t, "the workers see it", func() bool { return r.crew.refused() >= refused+50 })
	// Only where publishers have names can a restart be told that nobody heard of.
	each(r.crew.named(), (*worker).restart)
	r.crew.goOn(200)
	if r.picker.streams {
		r.crew.rest()
	}
	until := r.crew.sent()
	r.server.start()
	if r.picker.streams {
		r.crew.reconnect()
	}
	s := r.settle()
	r.wantLoss(s)
	if r.picker.streams && (slices.Min(s.gone) <= from || slices.Max(s.gone) > until) {
		r.t.Errorf("messages %v were lost, and the server was away from %d to %d", s.gone, from, until)
	}
	return s.tainted
}

// named returns some workers whose publishers have names.
func (c *crew) named() []*worker {
	return slices.DeleteFunc(slices.Clone(c.workers[:6]), func(w *worker) bool { return !w.release.publisher })
}

// TestServerFrozen stops the server's process for a while. Nothing is lost.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	r := newRig(t, serverOptions{})
	for range 2 {
		r.freezeServer()
	}
}

func (r *rig) freezeServer() []*worker {
	r.t.Helper()
	return r.harmless(func() {
		r.server.freeze()
		r.crew.goOn(500)
		r.server.thaw()
	})
}

// harmless makes trouble that must lose nothing.
func (r *rig) harmless(trouble func()) []*worker {
	r.t.Helper()
	before := r.picker.plane.Stats().Disconnects
	trouble()
	s := r.settle()
	if n := r.picker.plane.Stats().Disconnects; s.lost+s.dropped != 0 || n != before {
		r.t.Errorf("lost %d events, dropped %d messages, %d disconnects", s.lost, s.dropped, n-before)
	}
	return s.tainted
}

// TestConnectionCut closes the plane's connection for less than the plane takes to
// try again.
func TestConnectionCut(t *testing.T) {
	overTransports(t, serverOptions{}, func(r *rig) {
		for range 2 {
			r.mend(r.cutConnection(0))
		}
	})
}

// TestPartition closes the plane's connection and refuses new ones for a while.
func TestPartition(t *testing.T) {
	overTransports(t, serverOptions{}, func(r *rig) { r.mend(r.cutConnection(2)) })
}

// cutConnection lasts for some messages of the workers and for a number of refused
// connections.
func (r *rig) cutConnection(refusals int) []*worker {
	r.t.Helper()
	before, refused := r.picker.plane.Stats().Disconnects, r.proxy.refusals()
	r.proxy.cut()
	r.crew.goOn(200)
	eventually(r.t, "the plane sees the cut", func() bool { return r.picker.plane.Stats().Disconnects > before })
	eventually(r.t, "the plane tries to connect", func() bool { return r.proxy.refusals() >= refused+refusals })
	r.proxy.heal()
	s := r.settle()
	r.wantLossOfCore(s)
	return s.tainted
}

// TestSilence stops all traffic of the plane without a close. Nothing is lost as
// long as the server does not give up.
func TestSilence(t *testing.T) {
	t.Parallel()
	r := newRig(t, serverOptions{})
	for range 2 {
		r.shortSilence()
	}
}

func (r *rig) shortSilence() []*worker {
	r.t.Helper()
	return r.harmless(func() {
		r.proxy.hold()
		r.crew.goOn(500)
		r.proxy.resume()
	})
}

// TestLongSilence lasts until the server has closed the connection.
func TestLongSilence(t *testing.T) {
	overTransports(t, serverOptions{pings: true}, func(r *rig) { r.mend(r.silence()) })
}

func (r *rig) silence() []*worker {
	r.t.Helper()
	r.proxy.hold()
	eventually(r.t, "the server gives the plane up", func() bool { return !r.server.serves(planeName) })
	r.crew.goOn(200)
	r.proxy.resume()
	s := r.settle()
	r.wantLossOfCore(s)
	return s.tainted
}

// TestSlowConsumer makes the plane too slow for what comes, until NATS drops
// messages in front of it. A stream keeps them.
func TestSlowConsumer(t *testing.T) {
	overTransports(t, serverOptions{}, func(r *rig) { r.mend(r.slowDown()) })
}

// slowDown returns the workers of which messages were dropped.
func (r *rig) slowDown() []*worker {
	r.t.Helper()
	r.audit() // from here on a message is one event
	r.picker.slow.Store(true)
	r.crew.flood()
	if taken := func() uint64 { return r.picker.plane.Stats().Messages }; r.picker.streams {
		progress(r.t, "the plane is behind", r.crew.sent, func() bool { return r.crew.sent() >= taken()+streamBacklog })
	} else {
		progress(r.t, "NATS drops messages", r.witness.count, func() bool { return r.picker.plane.Stats().Dropped >= r.dropped+500 })
	}
	r.crew.rest()
	r.picker.slow.Store(false)
	s := r.settle()
	if s.lost != 0 || s.dropped == 0 && !r.picker.streams {
		r.t.Errorf("the transport lost %d events, NATS dropped %d messages", s.lost, s.dropped)
	}
	r.wantLossOfCore(s)
	return s.tainted
}

// streamBacklog is a few times more messages than wait in the plane's own queues.
const streamBacklog = 4000

// TestLostClear loses the word of one rank that no rank of its worker holds
// anything: releases in component scope mean all (dynamo.md 1.4). The other rank
// has no gap. The second time it is the first word of a new process.
func TestLostClear(t *testing.T) {
	for name, recovers := range map[string]bool{"silent workers": false, "workers that answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, serverOptions{recovers: recovers})
			r.loseClear(func(*worker) {})
			r.loseClear((*worker).restart)
		})
	}
}

func (r *rig) loseClear(before func(*worker)) {
	r.t.Helper()
	two := r.crew.workers[0]
	first, second := two.ranks[0], two.ranks[1]
	r.crew.rest()
	each([]*worker{two}, before)
	if !two.getThrough(second, (*worker).speak) {
		r.t.Fatal("nothing goes through")
	}
	was := r.picker.accounts()
	r.proxy.cut()
	var clears uint64
	each([]*worker{two}, func(w *worker) {
		w.clear(first)
		clears = w.clears
	})
	r.proxy.heal()
	r.crew.say(r.crew.loud[1:], (*worker).speak) // only the word of the first rank is lost
	s := r.settle()
	r.wantLoss(s)
	if !r.picker.recovers {
		is := r.picker.accounts()
		each([]*worker{two}, func(w *worker) { clears = w.clears - clears }) // what it says later may end the doubt
		if a, b := is[first.key].Missed-was[first.key].Missed, is[second.key].Missed-was[second.key].Missed; a != 1 || b != 0 || clears == 0 && !slices.Contains(s.tainted, two) {
			r.t.Errorf("of the ranks %d and %d events are known to be lost, of %d workers in doubt", a, b, len(s.tainted))
		}
	}
	r.crew.rest()
	if !two.getThrough(first, (*worker).clear) { // again
		r.t.Fatal("nothing goes through")
	}
	if slices.Contains(r.audit().tainted, two) {
		r.t.Error("the word of one rank that none holds anything leaves doubt")
	}
}
