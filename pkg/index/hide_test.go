package index_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// depthOf looks a prompt up and returns what a worker is credited with.
func depthOf(t testing.TB, x *index.Index, id uint64, chains []block.Chain) index.Depth {
	t.Helper()
	var m index.Match
	x.Match(chains, &m)
	slot, ok := x.Lookup(key(id))
	if !ok {
		t.Fatalf("worker %d is not registered", id)
	}
	return m.Depth(slot)
}

// The life of a hidden worker: events go on, Clear and Load leave it hidden, Drop
// ends it, and nobody else notices.
func TestHide(t *testing.T) {
	contents, chains := counted(40)
	x := index.New()
	mustApply(t, x, storedAll(1, kvevent.Device, contents[:10]))
	mustApply(t, x, storedAll(1, kvevent.Host, contents[:20]))
	mustApply(t, x, storedAll(2, kvevent.Device, contents[:5]))
	both := index.Depth{Device: 10, Host: 10}
	expect := func(step string, one, two index.Depth, hidden bool) {
		t.Helper()
		if got := depthOf(t, x, 1, chains); got != one {
			t.Errorf("%s: worker 1 is credited %+v, want %+v", step, got, one)
		}
		if got := depthOf(t, x, 2, chains); got != two {
			t.Errorf("%s: worker 2 is credited %+v, want %+v", step, got, two)
		}
		if x.Hidden(key(1)) != hidden || x.Hidden(key(2)) {
			t.Errorf("%s: Hidden = %v, %v", step, x.Hidden(key(1)), x.Hidden(key(2)))
		}
	}
	hide := func(id uint64) {
		t.Helper()
		if err := x.Hide(key(id)); err != nil {
			t.Fatal(err)
		}
	}
	expect("before", both, device(5), false)
	hide(1)
	hide(1)
	expect("hidden", device(0), device(5), true)
	mustApply(t, x, storedAll(1, kvevent.Device, contents[:30]))
	expect("an event", device(0), device(5), true)
	if got := x.Held(key(1)); got != [kvevent.NumTiers]int{30, 20} || len(x.Chains(key(1), kvevent.Host)) != 20 {
		t.Errorf("it holds %v", got)
	}
	x.Show(key(1))
	x.Show(key(1))
	expect("shown", device(30), device(5), false)
	hide(1)
	x.Clear(key(1))
	mustApply(t, x, storedAll(1, kvevent.Device, contents[:7]))
	expect("cleared", device(0), device(5), true)
	x.Show(key(1))
	expect("shown after a clear", device(7), device(5), false)
	hide(1)
	x.Drop(key(1))
	mustApply(t, x, storedAll(1, kvevent.Device, contents[:8]))
	expect("dropped and back", device(8), device(5), false)
	if x.Hidden(key(77)) {
		t.Error("an unknown worker is hidden")
	}
	x.Show(key(77))
	if _, ok := x.Lookup(key(77)); ok {
		t.Error("Show registered a worker")
	}
	hide(3)
	mustApply(t, x, storedAll(3, kvevent.Device, contents))
	if got := depthOf(t, x, 3, chains); got != device(0) {
		t.Errorf("hidden before its first event: %+v", got)
	}
}

// A snapshot holds what hidden workers hold, and loading one hides and shows
// nobody.
func TestLoadLeavesVisibilityAlone(t *testing.T) {
	contents, chains := counted(12)
	from := index.New()
	for id := range uint64(3) {
		mustApply(t, from, storedAll(id, kvevent.Device, contents))
	}
	if err := from.Hide(key(1)); err != nil {
		t.Fatal(err)
	}
	x := index.New()
	if err := x.Hide(key(2)); err != nil {
		t.Fatal(err)
	}
	if err := x.Load(bytes.NewReader(snapshot(t, from))); err != nil {
		t.Fatal(err)
	}
	for id, want := range []index.Depth{device(12), device(12), device(0)} {
		if got := depthOf(t, x, uint64(id), chains); got != want {
			t.Errorf("worker %d: %+v, want %+v", id, got, want)
		}
	}
	x.Show(key(2))
	if got := depthOf(t, x, 2, chains); got != device(12) {
		t.Errorf("shown: %+v", got)
	}
}

func TestHideRegisters(t *testing.T) {
	x := index.New()
	for id := range uint64(index.MaxWorkers) {
		if err := x.Hide(key(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Hide(key(1 << 40)); !errors.Is(err, index.ErrFull) || x.Hidden(key(1<<40)) {
		t.Errorf("one more worker: %v", err)
	}
	contents, chains := counted(3)
	mustApply(t, x, storedAll(9, kvevent.Device, contents))
	var m index.Match
	if n := testing.AllocsPerRun(10, func() { x.Match(chains, &m) }); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
	if got := m.Depth(9); got != device(0) {
		t.Errorf("%+v", got)
	}
}

// Hidden workers are credited nothing, and all others exactly what they hold.
func TestHiddenEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newMachine(t)
		h.hidden = map[fleet.Key]bool{}
		hide := func(t *rapid.T) {
			k := drawHot(t)
			if err := h.index.Hide(k); err != nil {
				t.Fatal(err)
			}
			h.twin.register(k)
			h.hidden[k] = true
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        h.check,
			"stored":  h.stored,
			"stored2": h.stored,
			"again":   h.again,
			"removed": h.removed,
			"cleared": h.cleared,
			"hide":    hide,
			"show": func(t *rapid.T) {
				k := drawHot(t)
				h.index.Show(k)
				delete(h.hidden, k)
			},
			"drop": func(t *rapid.T) {
				k := drawHot(t)
				h.index.Drop(k)
				delete(h.twin.workers, k)
				delete(h.hidden, k)
			},
			"clear": func(t *rapid.T) {
				k := drawHot(t)
				h.index.Clear(k)
				h.twin.clear(k)
			},
		})
	})
}

// Workers are hidden and shown beside events and lookups: who is always hidden
// is never credited, who never is always, and nobody else more than there is.
func TestHideBesideReadersAndWriters(t *testing.T) {
	const rounds = 40
	contents, chains := counted(64)
	x := index.New()
	for id := range uint64(4) {
		mustApply(t, x, storedAll(id, kvevent.Device, contents[:32]))
		mustApply(t, x, storedAll(id, kvevent.Host, contents))
	}
	if err := x.Hide(key(1)); err != nil {
		t.Fatal(err)
	}
	var slots [4]index.Slot
	for id := range slots {
		slots[id] = mustRegister(t, x, uint64(id))
	}
	var wg sync.WaitGroup
	for id := uint64(1); id < 4; id++ {
		wg.Go(func() {
			for i := range rounds {
				ev := storedAll(id, kvevent.Device, contents[:32+i%32])
				if err := x.Apply(&ev); err != nil {
					t.Error(err)
				}
				if id != 2 {
					x.Clear(key(id))
				}
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			if err := x.Hide(key(2)); err != nil {
				t.Error(err)
			}
			if !x.Hidden(key(2)) {
				t.Error("not hidden")
			}
			x.Show(key(2))
		}
	})
	wg.Go(func() {
		var m index.Match
		for range 4 * rounds {
			x.Match(chains, &m)
			if got, want := m.Depth(slots[0]), (index.Depth{Device: 32, Host: 32}); got != want {
				t.Errorf("worker 0: %+v, want %+v", got, want)
			}
			if got := m.Depth(slots[1]); got != device(0) {
				t.Errorf("the hidden worker: %+v", got)
			}
			if n := m.Depth(slots[2]).Total(); n != 0 && n != 64 {
				t.Errorf("worker 2: %d blocks, want all or nothing", n)
			}
		}
	})
	wg.Wait()
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
}
