package admission

import "time"

// Policy is the order within a flow.
type Policy uint8

// Policies, by Dynamo's names (dynamo.md 4.4).
const (
	FCFS Policy = iota // first come, first served
	WSPT               // the fewest tokens to compute first: weighted shortest processing time
)

// Bounds.
const (
	// MaxFlows is how many fairness ids of one priority have a flow of their own. All
	// further ones share one.
	MaxFlows = 64
	// MaxRequests is the most that a queue may be made for.
	MaxRequests = 100_000
	// MaxBytes is the most that the requests of a queue may hold together, unless it is
	// one alone.
	MaxBytes = 256 << 20
)

// Item is one request that waits. What is exported belongs to the caller and must
// stay the same while the queue has the item, but for Tokens of one that is on
// trial.
type Item struct {
	Priority int    // higher ones first
	Flow     string // the fairness id; empty is one, too
	// Kind is equal for requests that may go to the same workers: where one of them
	// finds no room, the others need not be tried.
	Kind              uint64
	Tokens            int // of the prompt that have to be computed
	Bytes             int // of memory that it holds: its body
	Arrival, Deadline time.Time
	Value             any // the caller's own

	seq   uint64 // order of arrival
	band  *band
	flow  *flow
	state state
	at    [numHeaps]int
}

type state uint8

const (
	outside state = iota // not in the queue
	waiting
	trial  // Next returned it
	passed // it, or one of its kind, was tried in this round in vain
)

// Queue holds requests that wait for a worker. It is not for concurrent use.
//
// Who is next: the highest priority; within that, fairness ids take turns; within
// one of them the policy decides. A request that finds no room holds up those of
// its own kind only, which are all served in that order. It is the first of its
// kind to be tried whenever load falls, so it is not starved either.
type Queue struct {
	policy Policy
	max    int
	seq    uint64
	weight weight
	bands  []*band // highest priority first; none is empty

	kinds  map[uint64]int // how many items there are of each kind
	full   map[uint64]bool
	held   int     // items of the kinds in full
	passed []*Item // in this round
}

// New returns a queue for at most maxRequests requests.
func New(policy Policy, maxRequests int) *Queue {
	return &Queue{policy: policy, max: maxRequests, kinds: map[uint64]int{}, full: map[uint64]bool{}}
}

// Len is the number of requests that wait.
func (q *Queue) Len() int { return q.weight.n }

// Bytes is how many they hold.
func (q *Queue) Bytes() int { return q.weight.bytes }

// Waits says whether a request of some kind waits.
func (q *Queue) Waits(kind uint64) bool { return q.kinds[kind] > 0 }

// Push lets a request wait. In a queue that is full it takes the place of the newest
// request of the largest flow of the lowest priority: if that is lower than its own, or
// is its own, and the flow is larger than its own flow would be. Else the new one is
// refused. A queue is full of requests or of bytes, and flows are as large as they have
// of that. It may take more than one that is displaced to make room for many bytes.
func (q *Queue) Push(it *Item) (displaced []*Item, ok bool) {
	for {
		bytes := q.weight.bytes > 0 && q.weight.bytes+it.Bytes > MaxBytes
		if q.weight.n < q.max && !bytes {
			break
		}
		out := q.gives(it, bytes && q.weight.n < q.max)
		if out == nil {
			return displaced, false
		}
		q.forget(out)
		displaced = append(displaced, out)
	}
	q.seq++
	it.seq = q.seq
	it.at = [numHeaps]int{nowhere, nowhere, nowhere}
	it.band = q.band(it.Priority)
	it.flow = it.band.flow(it.Flow)
	it.flow.weight.add(1, it.Bytes)
	q.weight.add(1, it.Bytes)
	q.kinds[it.Kind]++
	if q.full[it.Kind] {
		q.held++
	}
	q.wait(it)
	return displaced, true
}

// gives returns the request that gives way to a new one, nil for none. One that is on
// trial is not displaced.
func (q *Queue) gives(to *Item, bytes bool) *Item {
	for i := len(q.bands) - 1; i >= 0 && q.bands[i].priority <= to.Priority; i-- {
		b := q.bands[i]
		it := b.largest(bytes)
		if it == nil {
			continue
		}
		if b.priority < to.Priority {
			return it
		}
		mine := weight{1, to.Bytes}
		if f := b.known(to.Flow); f != nil {
			mine.add(f.weight.n, f.weight.bytes)
		}
		if it.flow.weight.of(bytes) > mine.of(bytes) {
			return it
		}
	}
	return nil
}

// wait puts an item to those that are to be tried.
func (q *Queue) wait(it *Item) {
	it.state = waiting
	it.flow.insert(it, q.policy)
	if it.at[byRecent] == nowhere {
		it.flow.recent.push(it)
	}
}

// Remove takes out a request that waits no more, because its client is gone or its
// time is over. It says false when the request is not waiting: it is on trial, or
// was served or displaced.
func (q *Queue) Remove(it *Item) bool {
	if it.state != waiting && it.state != passed {
		return false
	}
	q.forget(it)
	return true
}

// Next begins a trial: it returns the next request that has not been tried in this
// round, nor has any of its kind. A trial ends with Served, Busy or Drop, before the
// next one begins. It returns nil when there is none.
func (q *Queue) Next(now time.Time) *Item {
	for _, b := range q.bands {
		for turn := b.turns.Front(); turn != nil; turn = turn.Next() {
			f := turn.Value.(*flow)
			for it := f.next(q.policy, now); it != nil && q.held < q.weight.n; it = f.next(q.policy, now) {
				f.withdraw(it)
				if q.full[it.Kind] {
					q.pass(it)
					continue
				}
				f.recent.remove(it)
				it.state = trial
				return it
			}
		}
	}
	return nil
}

func (q *Queue) pass(it *Item) {
	it.state = passed
	q.passed = append(q.passed, it)
}

// Served ends a trial: the request has a worker. Its flow has had its turn.
func (q *Queue) Served(it *Item) {
	it.band.turns.MoveToBack(it.flow.turn)
	q.forget(it)
}

// Drop ends the trial of a request that does not wait any longer.
func (q *Queue) Drop(it *Item) { q.forget(it) }

// Busy ends a trial: there is no room for the request, nor for others of its kind in
// this round. It keeps its place.
func (q *Queue) Busy(it *Item) {
	it.flow.recent.push(it)
	q.pass(it)
	if !q.full[it.Kind] {
		q.full[it.Kind] = true
		q.held += q.kinds[it.Kind]
	}
}

// EndRound ends a round of trials. The next one begins with the first request again.
func (q *Queue) EndRound() {
	for i, it := range q.passed {
		if it.state == passed { // else it left meanwhile
			q.wait(it)
		}
		q.passed[i] = nil
	}
	q.passed = q.passed[:0]
	q.held = 0
	clear(q.full)
}

// forget takes an item out, and with it what it leaves empty.
func (q *Queue) forget(it *Item) {
	b, f := it.band, it.flow
	f.withdraw(it)
	f.recent.remove(it)
	it.state = outside
	q.weight.add(-1, -it.Bytes)
	if q.full[it.Kind] {
		q.held--
	}
	if q.kinds[it.Kind]--; q.kinds[it.Kind] == 0 {
		delete(q.kinds, it.Kind)
	}
	if f.weight.add(-1, -it.Bytes); f.weight.n > 0 {
		return
	}
	b.turns.Remove(f.turn)
	delete(b.flows, f.id)
	if len(b.flows) == 0 {
		at, _ := q.find(b.priority)
		q.bands = append(q.bands[:at], q.bands[at+1:]...)
	}
}
