package extproc

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/admission"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Queueing says how requests wait while all workers are busy. The zero value lets
// none wait.
type Queueing struct {
	Policy      admission.Policy
	MaxWait     time.Duration // of one request; 0: none waits
	MaxRequests int           // that wait; at most admission.MaxRequests
}

// Validate reports what cannot work.
func (q *Queueing) Validate() error {
	if q.MaxWait < 0 || q.MaxWait > 0 && (q.MaxRequests < 1 || q.MaxRequests > admission.MaxRequests) {
		return fmt.Errorf("extproc: a queue for %d requests, %v each, cannot be", q.MaxRequests, q.MaxWait)
	}
	return nil
}

// What becomes of requests that find no room.
var (
	errShed      = fmt.Errorf("%w, and the request's objective has a priority below 0", pick.ErrBusy)
	errQueueFull = fmt.Errorf("%w, and no more requests may wait", pick.ErrBusy)
	errDisplaced = fmt.Errorf("%w, and a request of a higher priority, or of a fairness id with fewer requests, took the place of this one in the queue", pick.ErrBusy)
	errExpired   = fmt.Errorf("%w, and stayed so for as long as a request may wait", pick.ErrBusy)
	errAborted   = errors.New("the search for a worker failed")
)

// lookAgain is how often a queue looks for room by itself: figures of engines and
// what other replicas place change without a sign.
const lookAgain = 50 * time.Millisecond

// room is where requests wait. Nothing runs in it while nobody waits: one of those
// who wait, who holds the baton, tries for all.
type room struct {
	Queueing
	metrics *queueMetrics
	now     func() time.Time
	again   time.Duration // lookAgain

	n     atomic.Int64  // requests that wait
	wake  chan struct{} // holds one: load fell, or somebody came
	baton chan struct{} // holds one: somebody looks for room

	mu    sync.Mutex // short: not held while a worker is picked
	queue *admission.Queue
}

func newRoom(q Queueing, m *queueMetrics, now func() time.Time) *room {
	return &room{
		Queueing: q, metrics: m, now: now, again: lookAgain, wake: make(chan struct{}, 1), baton: make(chan struct{}, 1),
		queue: admission.New(q.Policy, q.MaxRequests),
	}
}

// waiter is one request that waits. attempt picks workers for it: pick.ErrBusy when
// there are none yet. It may be called from other goroutines, by one at a time.
type waiter struct {
	item    admission.Item
	attempt func(it *admission.Item) error
	leaving error         // why it waits no more while it is on trial
	settled chan struct{} // closed when err is the outcome
	err     error
}

// fell tells of load that fell.
func (r *room) fell() {
	if r == nil || r.n.Load() == 0 {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// othersFirst says whether others come before a new request: all who wait, where it may
// wait, too; else those of its kind, and those to whom the whole pool is open.
func (r *room) othersFirst(priority int, s *pick.Subset) bool {
	if r == nil || r.n.Load() == 0 {
		return false
	}
	if priority >= 0 {
		return true
	}
	kind := kindOf(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.Waits(kind) || r.queue.Waits(anyWorker)
}

// wait returns when a request has workers, with nil, or waits no more.
func (r *room) wait(ctx context.Context, w *waiter) error {
	if err := r.enter(w); err != nil {
		return err
	}
	r.fell() // there may be room by now, or for this one only
	expired := time.NewTimer(r.MaxWait)
	defer expired.Stop()
	var wake <-chan struct{}
	var again <-chan time.Time
	baton := r.baton
	for {
		select {
		case <-w.settled:
			return w.err
		case <-ctx.Done():
			return r.leave(w, ctx.Err())
		case <-expired.C:
			return r.leave(w, errExpired)
		case baton <- struct{}{}:
			defer r.pass()
			tick := time.NewTicker(r.again)
			defer tick.Stop()
			baton, wake, again = nil, r.wake, tick.C
		case <-wake:
			r.round(w)
		case <-again:
			r.round(w)
		}
	}
}

// pass gives the baton to whoever takes it, and makes him look.
func (r *room) pass() {
	<-r.baton
	r.fell()
}

// enter puts a request into the queue.
func (r *room) enter(w *waiter) error {
	w.settled = make(chan struct{})
	w.item.Value = w
	r.mu.Lock()
	defer r.mu.Unlock()
	displaced, ok := r.queue.Push(&w.item)
	for _, it := range displaced {
		r.settle(it, errDisplaced)
	}
	if !ok {
		return errQueueFull
	}
	r.n.Add(1)
	return nil
}

// settle tells a request that has left the queue of its outcome. The caller holds the
// lock.
func (r *room) settle(it *admission.Item, err error) {
	r.n.Add(-1)
	w := it.Value.(*waiter)
	w.err = err
	close(w.settled)
}

// leave takes a request out of the queue. One that is on trial learns how that ends:
// it may have got its worker in the same moment.
func (r *room) leave(w *waiter, why error) error {
	r.mu.Lock()
	if r.queue.Remove(&w.item) {
		r.n.Add(-1)
		r.mu.Unlock()
		return why
	}
	w.leaving = why
	r.mu.Unlock()
	<-w.settled
	return w.err
}

// round tries the requests that wait, in order, until there is no room for any of
// those that are left. It is called by who holds the baton, on behalf of all; it ends
// early when that one has what it waits for.
func (r *room) round(self *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.queue.EndRound()
	var trial *admission.Item
	defer func() {
		if trial != nil { // attempt panicked: nobody else would ever end the trial
			r.queue.Drop(trial)
			r.settle(trial, errAborted)
			if r.queue.Remove(&self.item) { // it goes down with it: nobody waits there any more
				r.settle(&self.item, errAborted)
			}
		}
	}()
	for self.pending() {
		if trial = r.queue.Next(r.now()); trial == nil {
			return
		}
		err := r.try(trial)
		it, w := trial, trial.Value.(*waiter)
		trial = nil
		switch {
		case !errors.Is(err, pick.ErrBusy):
			r.queue.Served(it)
			r.settle(it, err)
		case w.leaving != nil:
			r.queue.Drop(it)
			r.settle(it, w.leaving)
		default:
			r.queue.Busy(it)
		}
	}
}

// try lets go of the lock while it picks.
func (r *room) try(it *admission.Item) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	return it.Value.(*waiter).attempt(it)
}

// pending says whether a request still waits.
func (w *waiter) pending() bool {
	select {
	case <-w.settled:
		return false
	default:
		return true
	}
}

// anyWorker is the kind of requests to which the whole pool is open.
const anyWorker = 0

// seedOfKinds is for this process only.
var seedOfKinds = maphash.MakeSeed()

// kindOf is equal for requests that may go to the same workers.
func kindOf(s *pick.Subset) uint64 {
	if !s.Present {
		return anyWorker
	}
	sum := uint64(1)
	for _, e := range s.Endpoints {
		sum += maphash.Comparable(seedOfKinds, e)
	}
	for _, a := range s.Addrs {
		sum += maphash.Comparable(seedOfKinds, a)
	}
	return max(sum, anyWorker+1)
}
