package eventplane

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// said is an event of worker 5, rank 2.
type said struct {
	publisher, id uint64
	after         time.Duration // since the event before
}

// TestSources goes through what a publisher can mean. Each event stores one block
// of its own.
func TestSources(t *testing.T) {
	k := fleet.Key{ID: 5, Rank: 2}
	for name, c := range map[string]struct {
		said []said
		want WorkerStats
		held int
	}{
		"one process": {[]said{{9, 1, 0}, {9, 2, 0}, {9, 3, time.Hour}}, WorkerStats{LastID: 3, Events: 3}, 3},
		// All but the source says that nothing happened.
		"restart in an outage, next id":  {[]said{{9, 1, 0}, {9, 2, 0}, {8, 3, 0}, {8, 4, 0}}, WorkerStats{LastID: 4, Events: 4, Restarts: 1, Gaps: 1, Missed: 2}, 2},
		"restart in an outage, later id": {[]said{{9, 1, 0}, {9, 2, 0}, {8, 9, 0}}, WorkerStats{LastID: 9, Events: 3, Restarts: 1, Gaps: 1, Missed: 8}, 1},
		"restart in an outage, same id":  {[]said{{9, 1, 0}, {9, 2, 0}, {8, 2, 0}}, WorkerStats{LastID: 2, Events: 3, Restarts: 1, Gaps: 1, Missed: 1}, 1},
		"plain restart":                  {[]said{{9, 7, 0}, {8, 1, 0}, {8, 2, 0}}, WorkerStats{LastID: 2, Events: 3, Restarts: 1}, 2},
		"upgrade from 1.2":               {[]said{{5, 1, 0}, {5, 2, 0}, {9, 3, 0}, {9, 4, 0}}, WorkerStats{LastID: 4, Events: 4, Restarts: 1, Gaps: 1, Missed: 2}, 2},
		"none and 1.2 are one":           {[]said{{0, 1, 0}, {5, 2, 0}, {0, 3, 0}}, WorkerStats{LastID: 3, Events: 3}, 3},
		"late words":                     {[]said{{9, 1, 0}, {8, 1, 0}, {9, 2, 0}, {8, 2, 0}, {9, 3, 59 * time.Second}, {8, 3, 0}}, WorkerStats{LastID: 3, Events: 4, Restarts: 1, Stale: 2}, 3},
		"late words of 1.2":              {[]said{{5, 1, 0}, {8, 1, 0}, {5, 2, 0}, {8, 2, 0}}, WorkerStats{LastID: 2, Events: 3, Restarts: 1, Stale: 1}, 2},
		"upgrade and back":               {[]said{{5, 1, 0}, {9, 1, 0}, {5, 1, time.Minute}, {5, 2, 0}, {9, 2, 0}}, WorkerStats{LastID: 2, Events: 4, Restarts: 2, Stale: 1}, 2},
		"a second change":                {[]said{{9, 1, 0}, {8, 1, 0}, {7, 1, 0}, {8, 2, 0}}, WorkerStats{LastID: 1, Events: 3, Restarts: 2, Stale: 1}, 1},
		"twice":                          {[]said{{9, 1, 0}, {9, 2, 0}, {9, 2, 0}}, WorkerStats{LastID: 2, Events: 2, Duplicates: 1}, 2},
		"1 again":                        {[]said{{9, 1, 0}, {9, 1, 0}}, WorkerStats{LastID: 1, Events: 1, Duplicates: 1}, 1},
		"gap":                            {[]said{{9, 1, 0}, {9, 4, 0}}, WorkerStats{LastID: 4, Events: 2, Gaps: 1, Missed: 2, GivenUp: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, gen := range []dynamo.Generation{dynamo.Gen12, dynamo.Gen15} { // scope and form say nothing about it
				r := newRig(t, "", "dynamo")
				for i, s := range c.said {
					r.advance(s.after)
					r.give(dynamo.EventSubject(gen, "dynamo", "backend", "generate"), encodeFrom(t, s.publisher, gen, stored(k, s.id, uint64(i))))
				}
				r.wantWorker(k, c.want)
				r.wantHeld(k, c.held)
				want := map[fleet.Key]int{}
				if n := int(c.want.Restarts + c.want.GivenUp); n > 0 {
					want[k] = n
				}
				r.wantLost(want)
				if n := r.logs.count("level=INFO", "started over", "worker_id=5", "rank=2"); n != int(c.want.Restarts) {
					t.Errorf("%d lines about restarts", n)
				}
			}
		})
	}
}

// TestStrays: an engine that names another rank than the publisher's makes no
// restarts and no gaps, neither there nor at home.
func TestStrays(t *testing.T) {
	r := newRig(t, "", "dynamo")
	home, other, apart := fleet.Key{ID: 5}, fleet.Key{ID: 5, Rank: 3}, fleet.Key{ID: 6, Rank: 3}
	send := func(publisher uint64, ev kvevent.Event) {
		r.give(endpointSubject, encodeFrom(t, publisher, dynamo.Gen15, ev))
	}
	send(90, stored(home, 1, 1))
	send(93, stored(other, 1, 1))
	send(90, stored(other, 2, 2)) // of the publisher of rank 0
	send(90, stored(home, 3, 3))
	send(93, stored(other, 2, 4))
	send(90, stored(other, 6, 5)) // 4 and 5 are missing
	send(90, stored(home, 7, 6))
	send(90, stored(apart, 8, 1)) // another worker's events are never strays
	r.wantWorker(home, WorkerStats{LastID: 7, Events: 3, Gaps: 1, Missed: 2, GivenUp: 1})
	r.wantWorker(other, WorkerStats{LastID: 2, Events: 4, Strays: 2})
	r.wantWorker(apart, WorkerStats{LastID: 8, Events: 1})
	r.wantHeld(home, 1) // what was stored since
	r.wantHeld(other, 4)
	r.wantLost(map[fleet.Key]int{home: 1})
	if n := r.logs.count("are missing", "worker_id=5", "rank=0", "missed=2"); n != 1 {
		t.Errorf("%d lines about the gap, want 1", n)
	}

	// When its process is replaced, what it said for others is gone too.
	send(91, stored(home, 1, 1))
	r.wantHeld(home, 1)
	r.wantHeld(other, 0)
	r.wantHeld(apart, 1)
	r.wantLost(map[fleet.Key]int{home: 1, other: 1})
	send(93, stored(other, 3, 1))
	r.wantHeld(other, 1)
	r.wantWorker(other, WorkerStats{LastID: 3, Events: 5, Strays: 2})
}

// TestLostStart: in component scope the first events of a process may have cleared
// all ranks. Such a word, when it comes, leaves no doubt about any.
func TestLostStart(t *testing.T) {
	r := newRig(t, "", "dynamo")
	first, second := fleet.Key{ID: 5}, fleet.Key{ID: 5, Rank: 1}
	send := func(publisher uint64, ev kvevent.Event) {
		r.give(componentSubject, encodeFrom(t, publisher, dynamo.Gen12, ev))
	}
	state := func(want State) {
		t.Helper()
		if s := r.plane.Workers()[second].State; s != want {
			t.Errorf("the other rank is %s, want %s", s, want)
		}
	}
	send(90, stored(first, 1, 1))
	send(91, stored(second, 1, 1, 2))
	state(Synced)
	send(92, stored(first, 2, 2)) // its event 1 is missing
	r.wantWorker(first, WorkerStats{LastID: 2, Events: 2, Gaps: 1, Missed: 1, Restarts: 1})
	r.wantWorker(second, WorkerStats{LastID: 1, Events: 1, GivenUp: 1})
	r.wantHeld(second, 0)
	state(Partial)
	send(91, stored(second, 2, 3))
	r.wantHeld(second, 1)
	state(Partial)
	send(92, cleared(first, 3))
	r.wantHeld(second, 0)
	state(Synced)
}

// TestManySources: publishers that come and go are not remembered for ever.
func TestManySources(t *testing.T) {
	r := newRig(t, "", "dynamo")
	const changes, ranks = 500, 4
	for i := range uint64(changes) {
		for rank := range uint32(ranks) {
			k := fleet.Key{ID: 5, Rank: rank}
			r.give(endpointSubject, encodeFrom(t, 1000+i*ranks+uint64(rank), dynamo.Gen15, stored(k, 1, 1)))
		}
	}
	if n := len(r.plane.homes); n != ranks {
		t.Errorf("%d publishers are remembered, want %d", n, ranks)
	}
	r.wantWorker(fleet.Key{ID: 5}, WorkerStats{LastID: 1, Events: changes, Restarts: changes - 1})
}

// TestRestartDuringOutage: a worker starts over while the server is away, and goes
// on with the very id that the plane waits for.
func TestRestartDuringOutage(t *testing.T) {
	address, kill := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo")
	r.run()
	conn := connect(t, address)
	r.listening(conn)
	k, same := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	for id := range uint64(3) {
		publish(t, conn, endpointSubject, encodeFrom(t, 70, dynamo.Gen14, stored(k, id+1, 10+id)))
		publish(t, conn, endpointSubject, encodeFrom(t, 80, dynamo.Gen14, stored(same, id+1, 10+id)))
	}
	r.barrier(conn)
	kill()
	waitFor(t, "the loss of the server is not seen", func() bool { return !r.plane.Connected() })
	address, _ = startNATS(t, portOf(t, address))
	conn = connect(t, address)
	r.listening(conn)
	publish(t, conn, endpointSubject, encodeFrom(t, 71, dynamo.Gen14, stored(k, 4, 1)))
	publish(t, conn, endpointSubject, encodeFrom(t, 80, dynamo.Gen14, stored(same, 4, 1)))
	r.barrier(conn)
	r.wantWorker(k, WorkerStats{LastID: 4, Events: 4, Restarts: 1, Gaps: 1, Missed: 3})
	r.wantHeld(k, 1)
	r.wantWorker(same, WorkerStats{LastID: 4, Events: 4})
	r.wantHeld(same, 4)
	r.wantLost(map[fleet.Key]int{k: 1})
}

// TestScopesInOrder: events of a worker that change from subject to subject are
// taken in as they were sent.
func TestScopesInOrder(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	const events = 3000
	k := fleet.Key{ID: 1}
	for id := range uint64(events) {
		subject := []string{componentSubject, endpointSubject}[id%2]
		publish(t, conn, subject, encode(t, dynamo.Gen12, stored(k, id+1, id)))
	}
	r.barrier(conn)
	r.wantWorker(k, WorkerStats{LastID: events, Events: events})
	r.wantHeld(k, events)
}

// TestUnknownTier: an event about a tier that nobody knows is followed, and leaves
// the rest alone.
func TestUnknownTier(t *testing.T) {
	r := newRig(t, "", "dynamo")
	m := &mixer{tt: t}
	k := fleet.Key{ID: 1}
	send := func(id uint64, tier string) {
		f := fact{publisher: 7, worker: k, id: id, tier: tier, kind: "stored", blocks: []factBlock{{id, id}}}
		r.give(endpointSubject, m.encode(dynamo.Gen15, f))
	}
	for id, tier := range []string{"tape", "device", "tape", "tape", "disk"} {
		send(uint64(id+1), tier)
	}
	r.wantWorker(k, WorkerStats{LastID: 5, Events: 2, Ignored: 3})
	if held := r.index.Held(k); held != [kvevent.NumTiers]int{kvevent.Device: 1, kvevent.Disk: 1} {
		t.Errorf("held %v", held)
	}
	s := r.plane.Stats()
	if s.Decode.UnknownTiers != 3 || s.BadMessages != 0 || s.ByComponent["backend"] != 5 {
		t.Errorf("%+v", s)
	}
	if n := r.logs.count("level=WARN", "unknown storage tier", "tier=tape"); n != 1 || r.logs.count("level=ERROR") != 0 {
		t.Errorf("%d warnings, want 1", n)
	}
}
