package eventplane

import (
	"bytes"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// takeIn gives events to the plane, one message each.
func (r *rig) takeIn(subject string, events ...kvevent.Event) {
	r.t.Helper()
	for _, ev := range events {
		r.give(subject, encode(r.t, dynamo.Gen12, ev))
	}
}

func TestNewWantsAll(t *testing.T) {
	full := newRig(t, "", "").plane.cfg
	if _, err := New(full); err != nil {
		t.Fatal(err)
	}
	for name, breakIt := range map[string]func(*Config){
		"url":   func(c *Config) { c.URL = "" },
		"index": func(c *Config) { c.Index = nil },
		"known": func(c *Config) { c.Known = nil },
		"lost":  func(c *Config) { c.Lost = nil },
		"drop":  func(c *Config) { c.Drop = nil },
		"log":   func(c *Config) { c.Log = nil },
	} {
		cfg := full
		breakIt(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("no error without %s", name)
		}
	}
}

// TestEventIDs goes through all that an event id can be.
func TestEventIDs(t *testing.T) {
	k := fleet.Key{ID: 5, Rank: 2}
	for name, c := range map[string]struct {
		ids  []uint64
		want WorkerStats
		held int // each event stores one block of its own
		lost int
	}{
		"in order":                  {[]uint64{1, 2, 3}, WorkerStats{LastID: 3, Events: 3}, 3, 0},
		"heard late":                {[]uint64{900, 901}, WorkerStats{LastID: 901, Events: 2}, 2, 0},
		"jump":                      {[]uint64{1, 2, 5, 6, 9}, WorkerStats{LastID: 9, Events: 5, Gaps: 2, Missed: 4, GivenUp: 2}, 1, 2},
		"twice":                     {[]uint64{7, 8, 8, 8, 9}, WorkerStats{LastID: 9, Events: 3, Duplicates: 2}, 3, 0},
		"starts over":               {[]uint64{1, 2, 3, 1, 2}, WorkerStats{LastID: 2, Events: 5, Restarts: 1}, 2, 1},
		"starts over, 1 is lost":    {[]uint64{4, 5, 2, 3}, WorkerStats{LastID: 3, Events: 4, Restarts: 1, Gaps: 1, Missed: 1}, 2, 1},
		"starts over after 1 event": {[]uint64{1, 1, 2}, WorkerStats{LastID: 2, Events: 3, Restarts: 1}, 2, 1},
		"starts over twice":         {[]uint64{3, 1, 1}, WorkerStats{LastID: 1, Events: 3, Restarts: 2}, 1, 2},
		"large":                     {[]uint64{1 << 63, 1<<63 + 1, 1<<64 - 1}, WorkerStats{LastID: 1<<64 - 1, Events: 3, Gaps: 1, Missed: 1<<63 - 3, GivenUp: 1}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "", "dynamo")
			other := fleet.Key{ID: 5}
			r.takeIn(endpointSubject, stored(other, 1, 500))
			for i, id := range c.ids {
				r.takeIn(endpointSubject, stored(k, id, uint64(i)))
			}
			r.wantWorker(k, c.want)
			r.wantHeld(k, c.held)
			r.wantHeld(other, 1)
			r.wantWorker(other, WorkerStats{LastID: 1, Events: 1})
			want := map[fleet.Key]int{}
			if c.lost > 0 {
				want[k] = c.lost
			}
			r.wantLost(want)
			if n := r.logs.count("level=INFO", "started over", "worker_id=5", "rank=2"); n != int(c.want.Restarts) {
				t.Errorf("%d lines about restarts, want %d", n, c.want.Restarts)
			}
			if n := r.logs.count("level=WARN", "are missing"); n != int(min(c.want.Gaps, 1)) {
				t.Errorf("%d lines about gaps", n)
			}
		})
	}
}

// TestClearedScopes: in component scope a cleared event is about all ranks of the
// worker, in endpoint scope about its own.
func TestClearedScopes(t *testing.T) {
	one, two, other := fleet.Key{ID: 9}, fleet.Key{ID: 9, Rank: 1}, fleet.Key{ID: 10}
	for subject, wantTwo := range map[string]int{componentSubject: 0, endpointSubject: 2} {
		for _, gen := range []dynamo.Generation{dynamo.Gen12, dynamo.Gen15} { // the payload's form says nothing about it
			r := newRig(t, "", "dynamo")
			for _, k := range []fleet.Key{one, two, other} {
				r.give(subject, encode(t, gen, stored(k, 1, 1, 2)))
			}
			r.wantLost(map[fleet.Key]int{})
			r.give(subject, encode(t, gen, cleared(one, 2)))
			r.wantHeld(one, 0)
			r.wantHeld(two, wantTwo)
			r.wantHeld(other, 2)
			want := map[fleet.Key]int{one: 1}
			if wantTwo == 0 {
				want[two] = 1
			}
			r.wantLost(want)
			// It is an event like others: the next one is in order.
			r.give(subject, encode(t, gen, stored(one, 3, 7)))
			r.wantHeld(one, 1)
			r.wantWorker(one, WorkerStats{LastID: 3, Events: 3})
		}
	}
}

// badMessages are bodies that no event can be read from.
func badMessages(t testing.TB) map[string][]byte {
	good := encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, 2, 2))
	otherTopic := bytes.Replace(good, []byte("kv-events"), []byte("kv_metric"), 1)
	if bytes.Equal(good, otherTopic) {
		t.Fatal("the topic is not where it was")
	}
	noPayload := msgp.AppendMapHeader(nil, 1)
	noPayload = msgp.AppendString(noPayload, "topic")
	noPayload = msgp.AppendString(noPayload, "kv-events")
	return map[string][]byte{
		"empty":           {},
		"one byte":        {0xc1},
		"nil":             {0xc0},
		"text":            []byte("hello"),
		"json":            []byte(`{"event_id":1,"data":"cleared"}`),
		"wrong topic":     otherTopic,
		"no payload":      noPayload,
		"empty payload":   wrap(nil),
		"payload of text": wrap(msgp.AppendString(nil, "cleared")),
		"claims too much": {0xdd, 0xff, 0xff, 0xff, 0xff},
		"huge map":        {0xdf, 0xff, 0xff, 0xff, 0xff, 0xa1},
		"deep":            bytes.Repeat([]byte{0x91}, 1<<20),
		"deep payload":    wrap(bytes.Repeat([]byte{0x91}, 1<<20)),
		"huge":            bytes.Repeat([]byte{0xa5, 'h', 'e', 'l', 'l', 'o'}, 1<<20),
		"half":            good[:len(good)/2],
		"all but a byte":  good[:len(good)-1],
	}
}

// wrap puts a payload into an envelope, byte by byte as it is.
func wrap(payload []byte) []byte { return wrapFrom(1, payload) }

func wrapFrom(publisher uint64, payload []byte) []byte {
	b := msgp.AppendMapHeader(nil, 5)
	b = msgp.AppendString(b, "publisher_id")
	b = msgp.AppendUint64(b, publisher)
	b = msgp.AppendString(b, "sequence")
	b = msgp.AppendUint64(b, 2)
	b = msgp.AppendString(b, "published_at")
	b = msgp.AppendUint64(b, clock.Add(1))
	b = msgp.AppendString(b, "topic")
	b = msgp.AppendString(b, "kv-events")
	b = msgp.AppendString(b, "payload")
	return msgp.AppendBytes(b, payload)
}

// TestBadMessages sends each of them between good ones, over a real server.
func TestBadMessages(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	k := fleet.Key{ID: 1}
	id := uint64(0)
	send := func(subject string, bad []byte) {
		publish(t, conn, subject, bad)
		id++
		publish(t, conn, subject, encode(t, dynamo.Gen12, stored(k, id, id)))
		r.barrier(conn)
		r.wantHeld(k, int(id))
	}
	bad := badMessages(t)
	for name, data := range bad {
		for _, subject := range []string{componentSubject, endpointSubject} {
			before := r.plane.Stats().BadMessages
			send(subject, data)
			if got := r.plane.Stats().BadMessages; got != before+1 {
				t.Errorf("%s: %d bad messages counted, want 1", name, got-before)
			}
		}
	}
	r.wantWorker(k, WorkerStats{LastID: id, Events: id})
	s := r.plane.Stats()
	if n := uint64(2 * len(bad)); s.BadMessages != n || s.Messages != 2*n || s.Disconnects != 0 {
		t.Errorf("%+v, want %d bad of %d messages", s, n, 2*n)
	}
	if n := r.logs.count("could not be read"); n != 1 {
		t.Errorf("%d warnings within a minute, want 1", n)
	}
	r.advance(time.Minute)
	text := func() int {
		return r.logs.count("level=WARN", "could not be read", "subject="+componentSubject, "bytes=5 ")
	}
	before := text() // the first one may have been this one
	send(componentSubject, bad["text"])
	send(componentSubject, bad["text"])
	if n := text() - before; n != 1 || r.logs.count("could not be read") != 2 {
		t.Errorf("%d warnings a minute later, want 1", n)
	}
}

// TestHugeMessage: a message far beyond the usual limit is an event like others.
func TestHugeMessage(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	k := fleet.Key{ID: 1}
	hashes := make([]uint64, 100_000)
	for i := range hashes {
		hashes[i] = uint64(i + 1)
	}
	msg := encode(t, dynamo.Gen15, stored(k, 1, hashes...))
	if len(msg) < 4<<20 {
		t.Fatalf("%d bytes are not huge", len(msg))
	}
	publish(t, conn, endpointSubject, msg)
	r.barrier(conn)
	r.wantHeld(k, len(hashes))
}

// TestBadSubject: a subject of ours that cannot be read is no message of another
// namespace: events are being lost, and that is said.
func TestBadSubject(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	before := r.plane.Stats()
	const bad = "namespace.dynamo.component.back%zzend.endpoint.generate.kv-events"
	publish(t, conn, bad, encode(t, dynamo.Gen15, stored(fleet.Key{ID: 1}, 1, 1)))
	r.barrier(conn)
	s := r.plane.Stats()
	if s.BadMessages != before.BadMessages+1 || s.OtherSpace != before.OtherSpace+2 {
		t.Errorf("%+v, want one bad message and the barrier's two of another namespace", s)
	}
	if n := r.logs.count("level=WARN", "could not be read", bad); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	if len(s.ByComponent) != 0 || s.Decode.Messages != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUnknownWorker: a worker that no pool has is believed for a while.
func TestUnknownWorker(t *testing.T) {
	r := newRig(t, "", "dynamo")
	stranger, friend := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	r.setKnown(false, stranger)
	const warning = "in no pool"
	r.takeIn(endpointSubject, stored(stranger, 1, 1), stored(friend, 1, 1))
	r.advance(unknownGrace - time.Second)
	r.takeIn(endpointSubject, stored(stranger, 2, 2))
	r.plane.sweep()
	r.wantHeld(stranger, 2)
	if n := r.logs.count("level=WARN", warning); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}

	r.advance(2 * time.Second)
	r.takeIn(endpointSubject, stored(stranger, 3, 3), stored(stranger, 4, 4), stored(friend, 2, 2))
	r.plane.sweep()
	r.wantWorker(stranger, WorkerStats{LastID: 4, Events: 2, Refused: 2})
	if _, there := r.index.Lookup(stranger); there {
		t.Error("given up, and still in the index")
	}
	r.wantHeld(friend, 2)
	r.wantDropped(map[fleet.Key]int{stranger: 1})
	if n := r.logs.count(warning); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}

	// Once a pool has it, its events count again, and are no gap.
	r.setKnown(true, stranger)
	r.takeIn(endpointSubject, stored(stranger, 5, 5))
	r.wantHeld(stranger, 1)
	r.wantWorker(stranger, WorkerStats{LastID: 5, Events: 3, Refused: 2})
	r.wantWorker(friend, WorkerStats{LastID: 2, Events: 2})
}

// TestKnownInTime: a worker that is listed within the grace loses nothing, and
// its next absence starts a grace of its own.
func TestKnownInTime(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.setKnown(false, k)
	r.takeIn(endpointSubject, stored(k, 1, 1))
	r.advance(unknownGrace - time.Second)
	r.setKnown(true, k)
	r.plane.sweep()
	r.advance(time.Hour)
	r.takeIn(endpointSubject, stored(k, 2, 2))
	r.plane.sweep()
	r.wantHeld(k, 2)
	r.wantWorker(k, WorkerStats{LastID: 2, Events: 2})

	// It leaves: its next words are no surprise, and are kept for a while too.
	r.setKnown(false, k)
	r.takeIn(endpointSubject, stored(k, 3, 3))
	r.plane.sweep()
	r.advance(time.Minute)
	r.takeIn(endpointSubject, stored(k, 4, 4))
	r.wantHeld(k, 4)
	if n := r.logs.count("level=WARN", "in no pool"); n != 1 {
		t.Errorf("%d warnings, want one, from before a pool had it", n)
	}
	r.advance(unknownGrace - time.Minute)
	r.plane.sweep()
	if _, there := r.index.Lookup(k); there {
		t.Error("gone for long, and still in the index")
	}
	r.wantDropped(map[fleet.Key]int{k: 1})
}

// TestSilentLeaver: a worker that leaves its pool and never speaks again is
// forgotten by the sweep, once.
func TestSilentLeaver(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k, other := fleet.Key{ID: 1}, fleet.Key{ID: 1, Rank: 1}
	r.takeIn(endpointSubject, stored(k, 1, 1), stored(other, 1, 1))
	r.setKnown(false, k)
	r.plane.sweep()
	r.wantHeld(k, 1)
	r.advance(unknownGrace)
	r.plane.sweep()
	r.plane.sweep()
	if keys := r.index.Workers(); len(keys) != 1 || keys[0] != other {
		t.Errorf("the index has %v, want %v", keys, other)
	}
	r.wantDropped(map[fleet.Key]int{k: 1})
	r.takeIn(endpointSubject, stored(k, 2, 2), stored(k, 3, 3))
	r.wantWorker(k, WorkerStats{LastID: 3, Events: 1, Refused: 2})
	if _, there := r.index.Lookup(k); there {
		t.Error("given up, and back in the index")
	}
}

// TestIndexFull: the events of workers that find no room are refused and said
// once; they come in when there is room.
func TestIndexFull(t *testing.T) {
	r := newRig(t, "", "dynamo")
	for i := range index.MaxWorkers {
		if _, err := r.index.Register(fleet.Key{ID: uint64(100 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	in, out := fleet.Key{ID: 100}, fleet.Key{ID: 1}
	r.takeIn(endpointSubject, stored(out, 1, 1), stored(in, 1, 1), stored(out, 2, 2), cleared(out, 3))
	r.wantHeld(in, 1)
	r.wantWorker(in, WorkerStats{LastID: 1, Events: 1})
	r.wantWorker(out, WorkerStats{LastID: 3, Refused: 3})
	if n := r.logs.count("level=ERROR", "cannot be kept", "worker_id=1 ", "full"); n != 1 {
		t.Errorf("%d errors logged, want 1", n)
	}
	r.index.Drop(fleet.Key{ID: 101})
	r.takeIn(endpointSubject, stored(out, 4, 4))
	r.wantHeld(out, 1)
	r.wantWorker(out, WorkerStats{LastID: 4, Events: 1, Refused: 3})
}

// TestManyStrangers: ids of processes that come and go are not followed for ever,
// and leave nothing in the index.
func TestManyStrangers(t *testing.T) {
	r := newRig(t, "", "dynamo")
	friend := fleet.Key{ID: 1 << 40}
	r.takeIn(endpointSubject, stored(friend, 1, 1))
	var last fleet.Key
	for i := range maxCursors {
		last = fleet.Key{ID: uint64(i + 1)}
		r.setKnown(false, last)
		r.takeIn(endpointSubject, stored(last, 1, 1))
	}
	if n := len(r.plane.Workers()); n > maxCursors {
		t.Errorf("%d workers are followed, want at most %d", n, maxCursors)
	}
	r.wantHeld(friend, 1)
	r.wantWorker(friend, WorkerStats{LastID: 1, Events: 1})
	r.advance(unknownGrace)
	r.plane.sweep()
	if keys := r.index.Workers(); len(keys) != 1 || keys[0] != friend {
		t.Errorf("%d workers are in the index for ever, want %v alone", len(keys), friend)
	}
}

// TestManySubjects: the cache of subjects is bounded.
func TestManySubjects(t *testing.T) {
	r := newRig(t, "", "dynamo")
	for i := range uint64(maxSubjects + 10) {
		subject := dynamo.EventSubject(dynamo.Gen15, "dynamo", "backend", string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)))
		r.takeIn(subject, stored(fleet.Key{ID: 1}, i+1, i))
	}
	if n := len(r.plane.lanes[0].subjects); n > maxSubjects {
		t.Errorf("%d subjects in the cache", n)
	}
	r.wantHeld(fleet.Key{ID: 1}, maxSubjects+10)
}
