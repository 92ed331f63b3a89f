package admission

import (
	"container/list"
	"slices"
	"time"
)

// band is the requests of one priority.
type band struct {
	priority int
	flows    map[string]*flow
	turns    *list.List // of *flow: the first one is next
}

// flow is the requests of one fairness id, or of those that share a flow.
type flow struct {
	id   string
	turn *list.Element
	need heap // in the order of the policy; used by WSPT only
	age  heap
	// recent holds the items that may be displaced.
	recent heap
	weight weight // of its items, those on trial and those passed over included
}

func newBand(priority int) *band {
	return &band{priority: priority, flows: map[string]*flow{}, turns: list.New()}
}

// others is the flow of the fairness ids that get none of their own. No header has
// this value.
const others = "\n"

// known returns the flow that a fairness id is in, or would be in, nil where that is a
// new one.
func (b *band) known(id string) *flow {
	if f := b.flows[id]; f != nil || len(b.flows) < MaxFlows {
		return f
	}
	return b.flows[others]
}

// flow returns the flow of a fairness id. One that was empty is the last to have
// its turn.
func (b *band) flow(id string) *flow {
	if f := b.known(id); f != nil {
		return f
	}
	if len(b.flows) >= MaxFlows {
		id = others
	}
	f := &flow{
		id:   id,
		need: heap{which: byNeed, less: needsLess},
		age:  heap{which: byAge, less: func(a, b *Item) bool { return a.seq < b.seq }},

		recent: heap{which: byRecent, less: func(a, b *Item) bool { return a.seq > b.seq }},
	}
	f.turn = b.turns.PushBack(f)
	b.flows[id] = f
	return f
}

// weight is what requests take of the queue.
type weight struct{ n, bytes int }

// of is what is scarce of it.
func (w weight) of(bytes bool) int {
	if bytes {
		return w.bytes
	}
	return w.n
}

func (w *weight) add(n, bytes int) { w.n, w.bytes = w.n+n, w.bytes+bytes }

// largest returns the newest request of the flow that has most of what is scarce, of
// equals the newest one of all. It is nil when none may be displaced, or has any of it.
func (b *band) largest(bytes bool) (newest *Item) {
	most := 0
	for _, f := range b.flows {
		it, has := f.recent.first(), f.weight.of(bytes)
		if it == nil || has == 0 || has < most || has == most && it.seq < newest.seq {
			continue
		}
		newest, most = it, has
	}
	return newest
}

// needsLess is the order of WSPT within a flow: Dynamo's weight, which is (1 +
// priority) / max(1, tokens to compute), has the same priority for all of them.
func needsLess(a, b *Item) bool {
	if x, y := max(1, a.Tokens), max(1, b.Tokens); x != y {
		return x < y
	}
	return a.seq < b.seq
}

// next is the item of a flow that is served before its others, nil when none is
// left to try. Under WSPT an item that has waited for half of its time is served in
// the order of arrival, before those that have not: large ones are not passed by
// small ones for ever.
func (f *flow) next(policy Policy, now time.Time) *Item {
	oldest := f.age.first()
	if policy == FCFS || oldest == nil || now.Sub(oldest.Arrival) >= oldest.Deadline.Sub(oldest.Arrival)/2 {
		return oldest
	}
	return f.need.first()
}

// insert puts an item to those that are to be tried.
func (f *flow) insert(it *Item, policy Policy) {
	f.age.push(it)
	if policy == WSPT {
		f.need.push(it)
	}
}

// withdraw is the opposite of insert.
func (f *flow) withdraw(it *Item) {
	f.age.remove(it)
	f.need.remove(it)
}

// band returns the band of a priority.
func (q *Queue) band(priority int) *band {
	at, found := q.find(priority)
	if !found {
		q.bands = slices.Insert(q.bands, at, newBand(priority))
	}
	return q.bands[at]
}

// find says where the band of a priority is, or would be: higher ones come first.
func (q *Queue) find(priority int) (at int, found bool) {
	return slices.BinarySearchFunc(q.bands, priority, func(b *band, p int) int { return p - b.priority })
}
