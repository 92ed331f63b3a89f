package index_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

func key(id uint64) fleet.Key { return fleet.Key{ID: id} }

func mustRegister(t testing.TB, x *index.Index, id uint64) index.Slot {
	t.Helper()
	slot, err := x.Register(fleet.Key{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

func mustApply(t testing.TB, x *index.Index, ev kvevent.Event) {
	t.Helper()
	if err := x.Apply(&ev); err != nil {
		t.Fatal(err)
	}
}

func TestSlotsAreDenseAndStable(t *testing.T) {
	x := index.New()
	for id := range uint64(200) {
		if got := mustRegister(t, x, id); got != index.Slot(id) {
			t.Fatalf("worker %d got slot %d", id, got)
		}
	}
	if got := mustRegister(t, x, 70); got != 70 {
		t.Errorf("registered again: slot %d, want 70", got)
	}
	if _, ok := x.Lookup(fleet.Key{ID: 70, Rank: 1}); ok {
		t.Error("Lookup found a rank that was never registered")
	}
	if n := len(x.Workers()); n != 200 || x.Stats().Workers != 200 {
		t.Errorf("Workers lists %d, Stats %d, want 200", n, x.Stats().Workers)
	}
}

// A freed slot comes back only after 64 others were freed, oldest first.
func TestFreedSlotRestsBeforeReuse(t *testing.T) {
	x := index.New()
	const workers = 100
	for id := range uint64(workers) {
		mustRegister(t, x, id)
	}
	next := uint64(1000)
	for freed := range uint64(64) {
		x.Drop(fleet.Key{ID: freed})
		if got := mustRegister(t, x, next); got != index.Slot(workers+freed) {
			t.Fatalf("with %d slots resting a new worker got slot %d, want a fresh one", freed+1, got)
		}
		next++
	}
	for freed := uint64(64); freed < 80; freed++ {
		x.Drop(fleet.Key{ID: freed})
		if got := mustRegister(t, x, next); got != index.Slot(freed-64) {
			t.Fatalf("new worker got slot %d, want the one that rested longest, %d", got, freed-64)
		}
		next++
	}
}

// The next owner of a slot starts with nothing, and the last owner's engine
// hashes mean nothing to it.
func TestReusedSlotStartsEmpty(t *testing.T) {
	x := index.New()
	for id := range uint64(65) {
		mustRegister(t, x, id)
		for tier := range kvevent.Tier(kvevent.NumTiers) {
			ev := at{tier: tier}.root(1, 12, 2, 22)
			ev.WorkerID = id
			mustApply(t, x, ev)
		}
	}
	for id := range uint64(65) {
		x.Drop(fleet.Key{ID: id})
	}
	slot := mustRegister(t, x, 1000)
	if slot != 0 {
		t.Fatalf("slot %d, want the reused slot 0", slot)
	}
	ev := at{}.after(1, 3, 32)
	ev.WorkerID = 1000
	mustApply(t, x, ev)
	var m index.Match
	x.Match(prompt(12, 22), &m)
	if got := m.Depth(slot); got != (index.Depth{}) {
		t.Errorf("new owner holds %+v", got)
	}
	if s := x.Stats(); s.UnknownParents != 1 || s.Entries != 0 {
		t.Errorf("Stats = %+v, want one unknown parent and no entries", s)
	}
}

func TestFull(t *testing.T) {
	x := index.New()
	for id := range uint64(index.MaxWorkers) {
		mustRegister(t, x, id)
	}
	if _, err := x.Register(fleet.Key{ID: 1 << 40}); !errors.Is(err, index.ErrFull) {
		t.Fatalf("worker %d: %v, want ErrFull", index.MaxWorkers+1, err)
	}
	ev := at{}.root(1, 12)
	ev.WorkerID = 1 << 40
	before := x.Stats()
	if err := x.Apply(&ev); !errors.Is(err, index.ErrFull) || x.Stats() != before {
		t.Fatalf("event of an unknown worker: %v, Stats %+v", err, x.Stats())
	}
	ev.WorkerID = index.MaxWorkers - 1
	mustApply(t, x, ev)
	var m index.Match
	x.Match(prompt(12), &m)
	if got := m.Depth(index.MaxWorkers - 1); got != device(1) {
		t.Errorf("the last slot holds %+v, want one block", got)
	}
	if got := m.Depth(index.MaxWorkers - 2); got != device(0) {
		t.Errorf("the slot before it holds %+v, want nothing", got)
	}

	// Full, a freed slot is given out at once rather than refused.
	x.Drop(fleet.Key{ID: 77})
	if got := mustRegister(t, x, 1<<40); got != 77 {
		t.Errorf("slot %d, want the only free one, 77", got)
	}
	if _, err := x.Register(fleet.Key{ID: 1 << 41}); !errors.Is(err, index.ErrFull) {
		t.Errorf("full again: %v", err)
	}
}

// As many workers as there may be hold one prompt, each its own part of it, on two
// tiers; then some lose a block, some all, and some leave.
func TestEveryWorkerHoldsAPrompt(t *testing.T) {
	const length = 60
	contents, chains := counted(length)
	x := index.New()
	var want [index.MaxWorkers]index.Depth
	for id := range uint64(index.MaxWorkers) {
		d, h := 1+int(id%50), int(id%7)
		mustApply(t, x, storedAll(id, kvevent.Device, contents[:d]))
		mustApply(t, x, storedAll(id, kvevent.Host, contents[:d+h]))
		want[id] = index.Depth{Device: d, Host: h}
	}
	var m index.Match
	expect := func(step string) {
		t.Helper()
		if err := x.Check(); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		x.Match(chains, &m)
		for id, w := range want {
			if got := m.Depth(index.Slot(id)); got != w {
				t.Fatalf("%s: worker %d holds %+v, want %+v", step, id, got, w)
			}
		}
	}
	expect("all stored")
	for id := uint64(0); id < index.MaxWorkers; id += 3 {
		gone := kvevent.Event{WorkerID: id, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{kvevent.EngineHash(want[id].Device)}}
		mustApply(t, x, gone)
		want[id].Device--
		want[id].Host++ // it has a copy there
	}
	expect("last blocks removed")
	for id := uint64(1); id < index.MaxWorkers; id += 4 {
		x.Clear(key(id))
		want[id] = index.Depth{}
	}
	for id := uint64(2); id < index.MaxWorkers; id += 4 {
		x.Drop(key(id))
		want[id] = index.Depth{}
	}
	expect("some cleared, some dropped")
	if n := testing.AllocsPerRun(20, func() { x.Match(chains, &m) }); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}

func TestUnknownWorkersAreNoOps(t *testing.T) {
	x := index.New()
	k := fleet.Key{ID: 1}
	x.Drop(k)
	x.Clear(k)
	if x.Chains(k, kvevent.Device) != nil || x.Held(k) != [kvevent.NumTiers]int{} || len(x.Workers()) != 0 {
		t.Error("an unknown worker holds something")
	}
	mustApply(t, x, at{}.root(1, 12))
	if x.Chains(k, kvevent.NumTiers) != nil {
		t.Error("Chains of a tier that does not exist")
	}
	if got := x.Chains(k, kvevent.Device); !slices.Equal(got, prompt(12)) {
		t.Errorf("Chains = %v", got)
	}
}
