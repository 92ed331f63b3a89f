package eventplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// simWorker is a worker rank with a cache, a ring of its last events, and answers.
type simWorker struct {
	mu        sync.Mutex
	random    *rand.Rand
	key       fleet.Key
	publisher uint64
	clock     uint64
	id        uint64
	held      map[uint64][]uint64 // path of every block held, by engine hash, which is its last content
	ring      []kvevent.Event
	failures  int // answers that fail, from now on
}

const simRing = 8

func newSimWorker(k fleet.Key, seed uint64) *simWorker {
	return &simWorker{
		random: rand.New(rand.NewPCG(seed, k.ID)), key: k, clock: 1000,
		publisher: publisherOf(dynamo.Gen15, k), held: map[uint64][]uint64{},
	}
}

// restart is a new process with an empty cache.
func (w *simWorker) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.publisher != w.key.ID {
		w.publisher += 2
	}
	w.id, w.ring, w.clock = 0, nil, w.clock+5000
	clear(w.held)
}

// step changes the cache and returns the message that tells of it.
func (w *simWorker) step() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id++
	ev := kvevent.Event{WorkerID: w.key.ID, Rank: w.key.Rank, ID: w.id, Kind: kvevent.Stored}
	engines := w.engines()
	switch n := w.random.IntN(40); {
	case n == 0:
		ev.Kind = kvevent.Cleared
		clear(w.held)
	case n < 12 && len(engines) > 0: // leaves only, as caches do
		ev.Kind = kvevent.Removed
		for _, e := range engines {
			if w.leaf(e) && len(ev.Gone) < 2 {
				ev.Gone = append(ev.Gone, kvevent.EngineHash(e))
			}
		}
		for _, g := range ev.Gone {
			delete(w.held, uint64(g))
		}
	default:
		var path []uint64
		if len(engines) > 0 && w.random.IntN(3) > 0 {
			parent := engines[w.random.IntN(len(engines))]
			path = w.held[parent]
			ev.HasParent, ev.Parent = true, kvevent.EngineHash(parent)
		}
		for range 1 + w.random.IntN(3) {
			content := w.random.Uint64N(1 << 40)
			path = append(slices.Clone(path), content)
			w.held[content] = path
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(content), Hash: block.Hash(content)})
		}
	}
	w.ring = append(w.ring, ev)
	if len(w.ring) > simRing {
		w.ring = w.ring[1:]
	}
	w.clock++
	msg, err := dynamo.AppendMessage(nil, dynamo.Gen15, dynamo.Envelope{PublisherID: w.publisher, PublishedAt: w.clock}, []kvevent.Event{ev})
	if err != nil {
		panic(err)
	}
	return msg
}

func (w *simWorker) engines() []uint64 {
	var all []uint64
	for e := range w.held {
		all = append(all, e)
	}
	slices.Sort(all)
	return all
}

func (w *simWorker) leaf(engine uint64) bool {
	for _, path := range w.held {
		if n := len(path); n > 1 && path[n-2] == engine {
			return false
		}
	}
	return true
}

func (w *simWorker) chains() []block.Chain {
	w.mu.Lock()
	defer w.mu.Unlock()
	chains := []block.Chain{}
	for _, path := range w.held {
		chains = append(chains, chainOf(path))
	}
	slices.Sort(chains)
	return chains
}

// answer is what the worker says of its events from one on.
func (w *simWorker) answer(from uint64) (Recovered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.failures > 0:
		w.failures--
		return Recovered{}, errors.New("busy")
	case from > w.id:
		return Recovered{LastID: w.id}, nil
	case from > 0 && len(w.ring) > 0 && from >= w.ring[0].ID:
		return Recovered{Events: slices.Clone(w.ring[from-w.ring[0].ID:]), LastID: w.id}, nil
	}
	r := Recovered{All: true, LastID: w.id}
	paths := [][]uint64{}
	for _, path := range w.held {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b []uint64) int { return len(a) - len(b) }) // parents first
	for i, path := range paths {
		n := len(path)
		ev := kvevent.Event{
			WorkerID: w.key.ID, Rank: w.key.Rank, ID: uint64(i), Kind: kvevent.Stored,
			Blocks: []kvevent.Block{{Engine: kvevent.EngineHash(path[n-1]), Hash: block.Hash(path[n-1])}},
		}
		if n > 1 {
			ev.HasParent, ev.Parent = true, kvevent.EngineHash(path[n-2])
		}
		r.Events = append(r.Events, ev)
	}
	return r, nil
}

// simFleet answers for simulated workers.
type simFleet struct {
	workers map[fleet.Key]*simWorker
	mute    map[fleet.Key]bool // cannot be asked

	onAsk func(fleet.Key, uint64) // before an answer is made
	late  func(fleet.Key)         // between an answer and its arrival
}

func newSimFleet(n int, seed uint64) *simFleet {
	f := &simFleet{workers: map[fleet.Key]*simWorker{}, mute: map[fleet.Key]bool{}}
	for i := range n {
		k := fleet.Key{ID: uint64(1 + i/2), Rank: uint32(i % 2)}
		f.workers[k] = newSimWorker(k, seed+uint64(i))
	}
	return f
}

func (f *simFleet) Workers() (keys []fleet.Key, ok bool) {
	for k := range f.workers {
		if !f.mute[k] {
			keys = append(keys, k)
		}
	}
	return keys, true
}

func (f *simFleet) CanAsk(k fleet.Key) bool { return f.workers[k] != nil && !f.mute[k] }

func (f *simFleet) Ask(ctx context.Context, k fleet.Key, from uint64) (Recovered, error) {
	if f.onAsk != nil {
		f.onAsk(k, from)
	}
	r, err := f.workers[k].answer(from)
	if f.late != nil {
		f.late(k)
	}
	if ctx.Err() != nil {
		return Recovered{}, ctx.Err()
	}
	return r, err
}

// newSimRig is a plane without NATS that takes messages from a channel and asks
// simulated workers.
func newSimRig(t testing.TB, f *simFleet) *rig {
	t.Helper()
	r := newRig(t, "", "dynamo")
	r.plane.cfg.Recover, r.plane.askBackoff = f, time.Millisecond
	r.plane.open()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.plane.dispatch(r.plane.queue, nil) })
	running.Go(func() { r.plane.resync(ctx) })
	t.Cleanup(func() {
		cancel()
		close(r.plane.queue)
		running.Wait()
	})
	return r
}

func (r *rig) send(data []byte) { r.plane.queue <- &nats.Msg{Subject: endpointSubject, Data: data} }

func (r *rig) suspectAll() {
	r.plane.mu.Lock()
	defer r.plane.mu.Unlock()
	r.plane.suspectAll(false)
}

func (r *rig) state(k fleet.Key) State { return r.plane.Workers()[k].State }

// settled waits until all that was sent is taken in and every question is answered.
func (r *rig) settled(f *simFleet) {
	r.t.Helper()
	waitFor(r.t, "messages are left", func() bool { return len(r.plane.queue) == 0 })
	r.plane.settle()
	waitFor(r.t, "a worker is not in sync", func() bool {
		for k, w := range r.plane.Workers() {
			if w.State != Synced && !f.mute[k] {
				r.advance(askAgain)
				r.plane.look()
				return false
			}
		}
		return true
	})
}

func (r *rig) wantTruth(f *simFleet) {
	r.t.Helper()
	for k, w := range f.workers {
		got := r.index.Chains(k, kvevent.Device)
		slices.Sort(got)
		if want := w.chains(); !slices.Equal(got, want) {
			r.t.Errorf("worker %v: the index has %d chains, the worker %d: %+v", k, len(got), len(want), r.plane.Workers()[k])
		}
		if r.index.Hidden(k) {
			r.t.Errorf("worker %v is hidden", k)
		}
	}
}

// TestResyncInDisorder: whatever is lost, whenever workers restart, fail to answer,
// or go on while they do, in the end the index has what they hold.
func TestResyncInDisorder(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			f := newSimFleet(6, seed*100)
			f.workers[fleet.Key{ID: 3}].publisher = 3 // as in Dynamo 1.2
			f.workers[fleet.Key{ID: 3, Rank: 1}].publisher = 3
			f.late = func(fleet.Key) {
				for range int(seed) * 10 {
					runtime.Gosched()
				}
			}
			r := newSimRig(t, f)
			keys, _ := f.Workers()
			slices.SortFunc(keys, fleet.Key.Compare)
			for range 600 {
				w := f.workers[keys[random.IntN(len(keys))]]
				switch n := random.IntN(100); {
				case n < 12:
					w.step() // lost
				case n == 12:
					w.restart()
				case n == 13:
					w.mu.Lock()
					w.failures = random.IntN(3)
					w.mu.Unlock()
				case n == 14:
					r.suspectAll()
				case n == 15:
					r.plane.look()
				default:
					r.send(w.step())
				}
			}
			for _, w := range f.workers {
				w.mu.Lock()
				w.failures = 0
				w.mu.Unlock()
				r.send(w.step())
			}
			r.settled(f)
			r.wantTruth(f)
		})
	}
}

// TestResync: events that were lost are asked for; until they are there, the worker
// is credited with nothing, and others as ever.
func TestResync(t *testing.T) {
	f := newSimFleet(4, 1)
	a, b := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	asked, go_on := make(chan uint64, 16), make(chan struct{})
	r := newSimRig(t, f)
	for range 5 {
		r.send(f.workers[a].step())
		r.send(f.workers[b].step())
	}
	r.settled(f)
	r.wantTruth(f)
	prompt := func(k fleet.Key) []block.Chain {
		var longest []uint64
		for _, path := range f.workers[k].held {
			if len(path) > len(longest) {
				longest = path
			}
		}
		return chainsOf(longest)
	}
	depth := func(k fleet.Key) int {
		var m index.Match
		r.index.Match(prompt(k), &m)
		slot, _ := r.index.Lookup(k)
		return m.Depth(slot).Total()
	}
	if depth(a) == 0 || depth(b) == 0 {
		t.Fatal("nothing to lose")
	}

	f.onAsk = func(k fleet.Key, from uint64) {
		if k != a {
			return
		}
		select {
		case asked <- from:
		default:
		}
		<-go_on
	}
	f.workers[a].step()
	f.workers[a].step()
	r.send(f.workers[a].step())
	if from := <-asked; from != 6 {
		t.Errorf("asked from %d, want 6", from)
	}
	if r.state(a) != Resyncing || !r.index.Hidden(a) || depth(a) != 0 {
		t.Errorf("%v, hidden %v, depth %d", r.state(a), r.index.Hidden(a), depth(a))
	}
	r.send(f.workers[a].step()) // waits
	r.send(f.workers[b].step())
	waitFor(t, "others do not go on", func() bool { return r.plane.Workers()[b].LastID == 6 })
	if depth(b) == 0 {
		t.Error("another worker lost its credit")
	}
	close(go_on)
	r.settled(f)
	r.wantTruth(f)
	waitFor(t, "it is not said how", func() bool {
		return r.logs.count("level=INFO", "told again", "worker_id=1", "the events that were missing") == 1
	})
	got := r.plane.Workers()[a]
	// The answer may have been made before the ninth event or after it.
	if got.Gaps != 1 || got.Missed != 2 || got.LastID != 9 || got.Recovered < 3 || got.Events+got.Recovered != 9 {
		t.Errorf("%+v", got)
	}
}

// TestResyncIsPending: what a worker says at once, before the rest of its fleet, is
// taken in order. A worker that nobody can ask is given up, and credited with what
// it stores from then on until its cache has turned over.
func TestTurnOver(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	r.takeIn(endpointSubject, stored(k, 1, 1, 2, 3))
	r.takeIn(endpointSubject, stored(k, 3, 11, 12))
	if r.state(k) != Partial {
		t.Errorf("%v after a gap", r.state(k))
	}
	r.wantHeld(k, 2)
	if n := r.logs.count("level=WARN", "is not known", "forgotten_blocks=3"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	r.takeIn(endpointSubject, stored(k, 4, 13))
	if r.state(k) != Synced {
		t.Errorf("%v after as many blocks as it held", r.state(k))
	}
	r.wantHeld(k, 3)
	r.takeIn(endpointSubject, stored(k, 6, 21), cleared(k, 7), stored(k, 8, 22))
	if r.state(k) != Synced {
		t.Errorf("%v after a cleared", r.state(k))
	}
	r.wantHeld(k, 1)
	r.wantWorker(k, WorkerStats{LastID: 8, Events: 6, Gaps: 2, Missed: 2, GivenUp: 2})
}

// TestHeardMidway: a worker that was heard too late is partial until it removes
// nothing any more that was not heard of.
func TestHeardMidway(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	id := uint64(500)
	send := func(ev func(fleet.Key, uint64, ...uint64) kvevent.Event, hashes ...uint64) {
		r.takeIn(endpointSubject, ev(k, id, hashes...))
		id++
	}
	for n := range uint64(turnSample + 10) {
		send(stored, n)
	}
	send(removed, 1<<20) // it held that before
	for n := range uint64(turnSample - 1) {
		send(removed, n)
	}
	if r.state(k) != Partial {
		t.Errorf("%v before enough of what it removed was known", r.state(k))
	}
	send(removed, turnSample-1)
	if r.state(k) != Synced {
		t.Errorf("%v at the end", r.state(k))
	}
	r.wantHeld(k, 10)
}

// TestClearedOvertakes: a worker that holds nothing any more need not be asked, and
// what it answers all the same changes nothing.
func TestClearedOvertakes(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	r := newRig(t, "", "dynamo")
	r.plane.cfg.Recover = f
	r.takeIn(endpointSubject, stored(k, 1, 1), stored(k, 3, 3))
	key, ok := r.plane.takeDue()
	if !ok {
		t.Fatal("nobody is asked")
	}
	f.workers[k].ring, f.workers[k].id = []kvevent.Event{stored(k, 2, 2), stored(k, 3, 3)}, 3
	want := func() {
		t.Helper()
		r.wantWorker(k, WorkerStats{LastID: 7, Events: 3, Gaps: 1, Missed: 1, Stale: 2})
		r.wantHeld(k, 1)
		if r.state(k) != Synced || r.index.Hidden(k) {
			t.Errorf("%v, hidden %v", r.state(k), r.index.Hidden(k))
		}
	}
	f.late = func(fleet.Key) {
		r.takeIn(endpointSubject, stored(k, 4, 4), cleared(k, 6), stored(k, 7, 7))
		want()
	}
	r.plane.resyncWorker(t.Context(), key)
	want()
}

// TestUnanswered: a worker that does not answer is given up, said once, and asked
// again later.
func TestUnanswered(t *testing.T) {
	f := newSimFleet(1, 1)
	k := fleet.Key{ID: 1}
	w := f.workers[k]
	r := newSimRig(t, f)
	for range 3 {
		r.send(w.step())
	}
	r.settled(f)
	w.failures = 1 << 30
	w.step()
	r.send(w.step())
	r.send(w.step())
	waitFor(t, "it is not given up", func() bool { return r.state(k) == Partial })
	waitFor(t, "nothing is said of it", func() bool { return r.logs.count("level=WARN", "could not be asked", "error=busy") == 1 })
	if r.index.Hidden(k) {
		t.Errorf("hidden %v, log %s", r.index.Hidden(k), r.logs.text.String())
	}
	r.plane.look()
	if r.state(k) != Partial {
		t.Errorf("%v before its time", r.state(k))
	}
	w.mu.Lock()
	w.failures = 0
	w.mu.Unlock()
	r.settled(f)
	r.wantTruth(f)
}

// TestSuspects: after a reconnect, and after messages were dropped, workers that
// answer are asked, and the others wait for their next event.
func TestSuspects(t *testing.T) {
	f := newSimFleet(4, 1)
	mute := fleet.Key{ID: 2}
	f.mute[mute] = true
	r := newSimRig(t, f)
	for _, w := range f.workers {
		for range 3 {
			r.send(w.step())
		}
	}
	r.settled(f)
	for _, w := range f.workers {
		w.step() // lost, and nothing shows it
	}
	r.plane.mu.Lock()
	r.plane.unsure = true
	r.plane.mu.Unlock()
	r.plane.look()
	waitFor(t, "losses are not found", func() bool {
		for k, w := range r.plane.Workers() {
			if !f.mute[k] && (w.LastID != 4 || w.State != Synced) {
				return false
			}
		}
		return true
	})
	if r.state(mute) != Suspect {
		t.Errorf("%v, want suspect", r.state(mute))
	}
	f.mute[mute] = false // to compare with its truth
	r.send(f.workers[mute].step())
	r.settled(f)
	r.wantTruth(f)

	f.mute[mute] = true
	r.suspectAll()
	r.send(f.workers[mute].step())
	waitFor(t, "an event in order does not clear it", func() bool { return r.state(mute) == Synced })
}

func ExampleState() {
	fmt.Println(Synced, Suspect, Resyncing, Partial)
	// Output: synced suspect resyncing partial
}
