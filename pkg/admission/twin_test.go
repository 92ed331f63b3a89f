package admission_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/admission"
)

// twin is the queue as a plain list: whoever is next is searched for.
type twin struct {
	policy admission.Policy
	max    int
	items  []*admission.Item        // in the order of arrival
	flows  map[*admission.Item]flow // which one each is in
	turns  []flow                   // in the order of their turns; of all priorities
	passed map[*admission.Item]bool
	full   map[uint64]bool
	trial  *admission.Item
}

type flow struct {
	priority int
	id       string
}

func newTwin(policy admission.Policy, most int) *twin {
	return &twin{policy: policy, max: most, flows: map[*admission.Item]flow{}, passed: map[*admission.Item]bool{}, full: map[uint64]bool{}}
}

func (w *twin) push(it *admission.Item) (displaced []*admission.Item, ok bool) {
	for {
		held := 0
		for _, other := range w.items {
			held += other.Bytes
		}
		many, much := len(w.items) >= w.max, held > 0 && held+it.Bytes > admission.MaxBytes
		if !many && !much {
			break
		}
		size := func(it *admission.Item) int { return 1 }
		if !many {
			size = func(it *admission.Item) int { return it.Bytes }
		}
		out := w.gives(it, size)
		if out == nil {
			return displaced, false
		}
		w.forget(out)
		displaced = append(displaced, out)
	}
	f := w.flowOf(it)
	if !slices.Contains(w.turns, f) {
		w.turns = append(w.turns, f)
	}
	w.items = append(w.items, it)
	w.flows[it] = f
	return displaced, true
}

// gives searches for the request that a new one displaces.
func (w *twin) gives(to *admission.Item, sizeOf func(*admission.Item) int) *admission.Item {
	size := map[flow]int{}
	for it, f := range w.flows {
		size[f] += sizeOf(it)
	}
	var best *admission.Item
	for _, it := range w.items { // the later one of equals
		if it == w.trial || it.Priority > to.Priority || size[w.flows[it]] == 0 {
			continue
		}
		if best == nil || it.Priority < best.Priority || it.Priority == best.Priority && size[w.flows[it]] >= size[w.flows[best]] {
			best = it
		}
	}
	if best != nil && best.Priority == to.Priority && size[w.flows[best]] <= size[w.flowOf(to)]+sizeOf(to) {
		return nil
	}
	return best
}

// flowOf is the flow that a request is put into.
func (w *twin) flowOf(it *admission.Item) flow {
	f := flow{it.Priority, it.Flow}
	n := 0
	for _, other := range w.turns {
		if other.priority == it.Priority {
			n++
		}
	}
	if !slices.Contains(w.turns, f) && n >= admission.MaxFlows {
		f.id = "\n"
	}
	return f
}

func (w *twin) forget(it *admission.Item) {
	w.items = slices.DeleteFunc(w.items, func(other *admission.Item) bool { return other == it })
	f := w.flows[it]
	delete(w.flows, it)
	delete(w.passed, it)
	for _, other := range w.flows {
		if other == f {
			return
		}
	}
	w.turns = slices.DeleteFunc(w.turns, func(other flow) bool { return other == f })
}

func (w *twin) next(now time.Time) *admission.Item {
	priorities := []int{}
	for _, it := range w.items {
		priorities = append(priorities, it.Priority)
	}
	slices.Sort(priorities)
	slices.Reverse(priorities)
	for _, priority := range slices.Compact(priorities) {
		for _, f := range w.turns {
			if f.priority != priority {
				continue
			}
			var mine []*admission.Item // whom this flow might send
			for _, it := range w.items {
				if w.flows[it] == f && !w.passed[it] {
					mine = append(mine, it)
				}
			}
			for len(mine) > 0 {
				it := w.choose(mine, now)
				if !w.full[it.Kind] {
					return it
				}
				mine = slices.DeleteFunc(mine, func(other *admission.Item) bool { return other == it })
			}
		}
	}
	return nil
}

func (w *twin) choose(mine []*admission.Item, now time.Time) *admission.Item {
	best := mine[0]
	if w.policy == admission.FCFS || now.Sub(best.Arrival) >= best.Deadline.Sub(best.Arrival)/2 {
		return best
	}
	for _, it := range mine {
		if max(1, it.Tokens) < max(1, best.Tokens) {
			best = it
		}
	}
	return best
}

func (w *twin) served(it *admission.Item) {
	f := w.flows[it]
	w.turns = append(slices.DeleteFunc(w.turns, func(other flow) bool { return other == f }), f)
	w.forget(it)
}

// TestTwin: whatever happens, the queue does as the plain list does. Nobody is
// lost, nobody is named twice, and there are never more than the bound.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]admission.Policy{admission.FCFS, admission.WSPT}).Draw(t, "policy")
		most := rapid.SampledFrom([]int{1, 3, 20, 1000}).Draw(t, "max")
		ids := rapid.SampledFrom([]int{1, 3, 3 * admission.MaxFlows}).Draw(t, "ids")
		q, w := admission.New(policy, most), newTwin(policy, most)
		now := time.Unix(0, 0)
		var trial *admission.Item
		left := map[*admission.Item]bool{}
		pushed := 0
		leave := func(t *rapid.T, it *admission.Item) {
			if it != nil && left[it] {
				t.Fatal("a request left twice")
			}
			left[it] = it != nil
		}
		push := func(t *rapid.T) {
			it := &admission.Item{
				Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
				Flow:     fmt.Sprint(rapid.IntRange(0, ids-1).Draw(t, "flow")),
				Kind:     uint64(rapid.IntRange(0, 2).Draw(t, "kind")),
				Tokens:   rapid.IntRange(-1, 5).Draw(t, "tokens"),
				Bytes:    rapid.SampledFrom([]int{0, 1, admission.MaxBytes / 8, admission.MaxBytes / 2, 2 * admission.MaxBytes}).Draw(t, "bytes"),
				Arrival:  now, Deadline: now.Add(8 * time.Second),
			}
			displaced, ok := q.Push(it)
			twinDisplaced, twinOK := w.push(it)
			if ok != twinOK || !slices.Equal(displaced, twinDisplaced) {
				t.Fatalf("push: %v %v, want %v %v", displaced, ok, twinDisplaced, twinOK)
			}
			for _, out := range displaced {
				leave(t, out)
			}
			if ok {
				pushed++
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if q.Len() != len(w.items) || q.Len() > most || q.Len() != pushed-len(left) {
					t.Fatalf("%d wait, of a list of %d, of %d that came and %d that left", q.Len(), len(w.items), pushed, len(left))
				}
				held := 0
				for _, it := range w.items {
					held += it.Bytes
				}
				if q.Bytes() != held || held > admission.MaxBytes && len(w.items) > 1 && !slices.ContainsFunc(w.items, func(it *admission.Item) bool { return it.Bytes > admission.MaxBytes }) {
					t.Fatalf("%d bytes, of %d", q.Bytes(), held)
				}
				for kind := range uint64(3) {
					want := slices.ContainsFunc(w.items, func(it *admission.Item) bool { return it.Kind == kind })
					if q.Waits(kind) != want {
						t.Fatalf("kind %d waits: %v, want %v", kind, !want, want)
					}
				}
			},
			"push":      push,
			"push more": func(t *rapid.T) { push(t); push(t); push(t); push(t) },
			"time":      func(t *rapid.T) { now = now.Add(time.Second) },
			"remove": func(t *rapid.T) {
				if len(w.items) == 0 {
					t.Skip("nobody waits")
				}
				it := w.items[rapid.IntRange(0, len(w.items)-1).Draw(t, "which")]
				if got := q.Remove(it); got != (it != trial) {
					t.Fatalf("removed: %v", got)
				}
				if it != trial {
					w.forget(it)
					leave(t, it)
				}
				if q.Remove(it) {
					t.Fatal("removed twice")
				}
			},
			"next": func(t *rapid.T) {
				if trial != nil {
					t.Skip("one is on trial")
				}
				trial = q.Next(now)
				w.trial = trial
				if want := w.next(now); trial != want {
					t.Fatalf("next is %+v, want %+v", trial, want)
				}
			},
			"judge": func(t *rapid.T) {
				if trial == nil {
					t.Skip("none is on trial")
				}
				switch rapid.SampledFrom([]string{"served", "busy", "busy", "gone"}).Draw(t, "how") {
				case "served":
					q.Served(trial)
					w.served(trial)
					leave(t, trial)
				case "busy":
					trial.Tokens = rapid.IntRange(-1, 5).Draw(t, "tokens now") // known better after a trial
					q.Busy(trial)
					w.passed[trial], w.full[trial.Kind] = true, true
				case "gone":
					q.Drop(trial)
					w.forget(trial)
					leave(t, trial)
				}
				trial, w.trial = nil, nil
			},
			"end of a round": func(t *rapid.T) {
				if trial != nil {
					t.Skip("one is on trial")
				}
				q.EndRound()
				clear(w.passed)
				clear(w.full)
			},
		})
	})
}
