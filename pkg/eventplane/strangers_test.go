package eventplane

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

const strangersWarning = "in no pool"

// TestStrangersAreFew: strangers beyond a number are refused until there is room,
// and all are said in a line a minute.
func TestStrangersAreFew(t *testing.T) {
	r := newRig(t, "", "dynamo")
	const all = maxStrangers + 10
	key := func(i int) fleet.Key { return fleet.Key{ID: uint64(i + 1)} }
	for i := range all {
		r.setKnown(false, key(i))
		r.takeIn(endpointSubject, stored(key(i), 1, 1))
	}
	if n := len(r.index.Workers()); n != maxStrangers {
		t.Errorf("%d strangers are in the index, want %d", n, maxStrangers)
	}
	late := key(maxStrangers)
	r.wantWorker(late, WorkerStats{LastID: 1, Refused: 1})
	if n := r.logs.count(strangersWarning); n != 1 || r.logs.count("level=WARN", strangersWarning, "new_workers=1 ", "kept_workers=1 ", "worker_id=1 ") != 1 {
		t.Errorf("%d warnings at once, want one about the first", n)
	}
	r.advance(time.Minute)
	r.plane.sweep()
	r.plane.sweep()
	if n := r.logs.count(strangersWarning); n != 2 || r.logs.count(strangersWarning, "new_workers=521 ", "kept_workers=512 ") != 1 {
		t.Errorf("%d warnings a minute later, want one about all others", n)
	}

	// A worker that just left its pool needs no room of theirs.
	member := fleet.Key{ID: 1 << 40}
	r.takeIn(endpointSubject, stored(member, 1, 1))
	r.setKnown(false, member)
	r.takeIn(endpointSubject, stored(member, 2, 2))
	r.wantHeld(member, 2)

	// One that a pool takes makes room.
	r.setKnown(true, key(0))
	r.takeIn(endpointSubject, stored(key(0), 2, 2), stored(late, 2, 2), stored(key(maxStrangers+1), 2, 2))
	r.wantHeld(key(0), 2)
	r.wantHeld(late, 1)
	r.wantWorker(late, WorkerStats{LastID: 2, Events: 1, Refused: 1})
	r.wantWorker(key(maxStrangers+1), WorkerStats{LastID: 2, Refused: 2})

	// So do those whose time is over. The late one came a minute later.
	r.advance(unknownGrace - time.Minute)
	r.plane.sweep()
	r.takeIn(endpointSubject, stored(key(maxStrangers+1), 3, 3), stored(late, 3, 3))
	r.wantHeld(key(maxStrangers+1), 1)
	r.wantHeld(late, 2)
	if n := len(r.index.Workers()); n != 4 {
		t.Errorf("%d workers are in the index, want 4", n)
	}
	if r.plane.strangers.kept != 2 {
		t.Errorf("%d strangers have a place, want 2", r.plane.strangers.kept)
	}
}

// TestBlink: a worker that leaves its pool for less than the grace keeps its
// blocks and its slot, and what follows them is understood.
func TestBlink(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.takeIn(endpointSubject, stored(k, 1, 1, 2))
	slot, _ := r.index.Lookup(k)
	for range 3 {
		r.setKnown(false, k)
		r.plane.sweep()
		r.advance(unknownGrace - time.Second)
		r.plane.sweep()
		r.setKnown(true, k)
		r.plane.sweep()
	}
	ev := stored(k, 2, 3)
	ev.Parent, ev.HasParent = kvevent.EngineHash(1002), true
	r.takeIn(endpointSubject, ev)
	r.wantHeld(k, 3)
	if again, ok := r.index.Lookup(k); !ok || again != slot {
		t.Errorf("slot %d, was %d", again, slot)
	}
	if s := r.index.Stats(); s.UnknownParents != 0 {
		t.Errorf("%+v", s)
	}
	r.wantWorker(k, WorkerStats{LastID: 2, Events: 2})
	r.wantDropped(map[fleet.Key]int{})
	r.wantLost(map[fleet.Key]int{})
}

// TestNeverSpoke: a worker that a pool put into the index is dropped when it has
// left for long, though no event ever came from it. One that speaks in time is no
// stranger, and its time goes on.
func TestNeverSpoke(t *testing.T) {
	r := newRig(t, "", "dynamo")
	mute, blinks, speaks, stays := fleet.Key{ID: 1}, fleet.Key{ID: 2}, fleet.Key{ID: 3}, fleet.Key{ID: 4}
	for _, k := range []fleet.Key{mute, blinks, speaks, stays} {
		if _, err := r.index.Register(k); err != nil {
			t.Fatal(err)
		}
	}
	r.setKnown(false, mute, blinks, speaks)
	r.plane.sweep()
	r.advance(unknownGrace - time.Second)
	r.plane.sweep()
	r.setKnown(true, blinks)
	r.takeIn(endpointSubject, stored(speaks, 1, 1))
	r.plane.sweep()
	r.setKnown(false, blinks)
	if n := len(r.index.Workers()); n != 4 || r.logs.count(strangersWarning) != 0 {
		t.Errorf("%d workers are in the index, want 4", n)
	}
	r.advance(time.Second)
	r.plane.sweep()
	r.plane.sweep()
	r.wantDropped(map[fleet.Key]int{mute: 1, speaks: 1})
	if len(r.index.Workers()) != 2 || len(r.plane.silent) != 1 {
		t.Errorf("the index has %v, want %v and %v", r.index.Workers(), blinks, stays)
	}
	r.advance(unknownGrace)
	r.plane.sweep()
	r.wantDropped(map[fleet.Key]int{mute: 1, speaks: 1, blinks: 1})
	r.plane.sweep()
	if len(r.index.Workers()) != 1 || len(r.plane.silent) != 0 {
		t.Errorf("the index has %v, want %v", r.index.Workers(), stays)
	}
}

// TestBackBetweenSweeps: a worker that was given up, came back to a pool and left
// again without a word, all between two sweeps, is given up again.
func TestBackBetweenSweeps(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.takeIn(endpointSubject, stored(k, 1, 1))
	r.setKnown(false, k)
	r.plane.sweep()
	r.advance(unknownGrace + time.Second)
	r.plane.sweep()
	r.plane.sweep()
	r.wantDropped(map[fleet.Key]int{k: 1})
	if _, err := r.index.Register(k); err != nil {
		t.Fatal(err)
	}
	r.plane.sweep()
	r.takeIn(endpointSubject, stored(k, 2, 2))
	r.wantHeld(k, 1)
	r.advance(unknownGrace)
	r.plane.sweep()
	r.plane.sweep()
	r.wantDropped(map[fleet.Key]int{k: 2})
	if n := len(r.index.Workers()); n != 0 {
		t.Errorf("%d workers are in the index for ever", n)
	}
}

// TestBackWhenDropped: a worker that a pool takes at the moment it is given up
// goes on.
func TestBackWhenDropped(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.setKnown(false, k)
	r.takeIn(endpointSubject, stored(k, 1, 1))
	r.advance(unknownGrace)
	r.plane.cfg.Drop = func(k fleet.Key) {
		r.setKnown(true, k)
		r.drop(k)
	}
	r.plane.sweep()
	r.wantDropped(map[fleet.Key]int{k: 1})
	r.wantHeld(k, 1)
	r.takeIn(endpointSubject, stored(k, 2, 2))
	r.plane.sweep()
	r.wantHeld(k, 2)
	r.wantDropped(map[fleet.Key]int{k: 1})
	r.wantWorker(k, WorkerStats{LastID: 2, Events: 2})
}
