package eventplane

import (
	"context"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const (
	publishers = 16
	perWorker  = 150 // events of each of a publisher's two ranks
)

// TestManyPublishers: workers of both generations publish at once, each on its own
// connection, while others read. No event of any is lost or out of order.
func TestManyPublishers(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo")
	r.run()
	marker := connect(t, address)
	r.listening(marker)

	done, stopReading := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	var reads atomic.Uint64
	for range 3 {
		readers.Go(func() { r.readUntil(done, &reads) })
	}
	messages := make([]uint64, publishers)
	twins := make([]*twin, publishers)
	for i := range publishers {
		conn := connect(t, address)
		writers.Go(func() {
			facts := randomHistory(uint64(i))
			twins[i] = newTwin()
			twins[i].apply(facts...)
			subject, gen, most := componentSubject, dynamo.Gen12, 1
			if i%2 == 1 {
				subject, gen, most = endpointSubject, dynamo.Gen15, 7
			}
			for len(facts) > 0 {
				env := dynamo.Envelope{PublisherID: facts[0].publisher}
				var events []kvevent.Event
				for len(events) < most && len(facts) > 0 && facts[0].publisher == env.PublisherID {
					events = append(events, facts[0].event())
					facts = facts[1:]
				}
				msg, err := dynamo.AppendMessage(nil, gen, env, events)
				if err == nil {
					err = conn.Publish(subject, msg)
				}
				if err != nil {
					t.Errorf("publisher %d: %v", i, err)
					return
				}
				messages[i]++
			}
			if err := conn.FlushTimeout(patience); err != nil {
				t.Errorf("publisher %d: %v", i, err)
			}
		})
	}
	writers.Wait()
	var total uint64
	for _, n := range messages {
		total += n
	}
	waitFor(t, "not all messages arrive", func() bool { return r.plane.Stats().Messages == total })
	waitFor(t, "nobody reads", func() bool { return reads.Load() > 100 })
	stopReading()
	readers.Wait()

	all := newTwin()
	for _, w := range twins {
		maps.Copy(all.workers, w.workers)
		s := &all.stats
		s.Stored, s.Duplicates, s.Replaced = s.Stored+w.stats.Stored, s.Duplicates+w.stats.Duplicates, s.Replaced+w.stats.Replaced
		s.UnknownParents, s.Cleared = s.UnknownParents+w.stats.UnknownParents, s.Cleared+w.stats.Cleared
		s.Removed, s.UnknownRemovals = s.Removed+w.stats.Removed, s.UnknownRemovals+w.stats.UnknownRemovals
	}
	all.check(t, r)
	for k, s := range r.plane.Workers() {
		if counted(s) != (WorkerStats{LastID: perWorker, Events: perWorker}) {
			t.Errorf("worker %v: %+v", k, s)
		}
	}
	if s := r.plane.Stats(); s.BadMessages != 0 || s.Dropped != 0 || s.Disconnects != 0 {
		t.Errorf("%+v", s)
	}
}

// readUntil reads all that can be read while events come in, and checks that
// event ids never step back and nothing is held that is not counted.
func (r *rig) readUntil(done context.Context, reads *atomic.Uint64) {
	last := map[fleet.Key]WorkerStats{}
	prompt := chainsOf([]uint64{1, 2, 3, 1, 2, 3})
	var m index.Match
	messages := uint64(0)
	for done.Err() == nil {
		s := r.plane.Stats()
		if s.Messages < messages || s.ByComponent["backend"] != s.Messages {
			r.t.Errorf("%+v after %d messages", s, messages)
		}
		messages = s.Messages
		for k, w := range r.plane.Workers() {
			if w.LastID < last[k].LastID || w.LastID != w.Events {
				r.t.Errorf("worker %v: %+v after %+v", k, w, last[k])
			}
			last[k] = w
		}
		r.index.Match(prompt, &m)
		for _, k := range r.index.Workers() {
			if slot, ok := r.index.Lookup(k); ok && m.Depth(slot).Total() > len(prompt) {
				r.t.Errorf("worker %v holds more than the prompt", k)
			}
		}
		reads.Add(1)
	}
}

// randomHistory is what two ranks of one worker say, interleaved. Every event
// depends on those before it: out of order, the outcome is another.
func randomHistory(seed uint64) (facts []fact) {
	rng := rand.New(rand.NewPCG(seed, 1))
	ids := [2]uint64{}
	for len(facts) < 2*perWorker {
		rank := rng.IntN(2)
		if ids[rank] == perWorker {
			rank = 1 - rank
		}
		ids[rank]++
		f := fact{worker: fleet.Key{ID: 1<<63 + seed, Rank: uint32(rank)}, id: ids[rank], tier: tierNames[rng.IntN(2)], kind: "stored"}
		if f.publisher = f.worker.ID; seed%2 == 1 {
			f.publisher = publisherOf(dynamo.Gen15, f.worker)
		}
		switch rng.IntN(20) {
		case 0, 1, 2, 3:
			f.kind = "removed"
			f.gone = []uint64{rng.Uint64N(20), rng.Uint64N(20)}
		case 4:
			// Workers with an even number publish in component scope, where this is
			// about the other rank too.
			f.kind, f.whole = "cleared", seed%2 == 0
		default:
			if parent := rng.Uint64N(20); rng.IntN(3) > 0 {
				f.parent = &parent
			}
			for range 1 + rng.IntN(3) {
				f.blocks = append(f.blocks, factBlock{Engine: rng.Uint64N(20), Tokens: 1 + rng.Uint64N(3)})
			}
		}
		facts = append(facts, f)
	}
	return facts
}

// TestStopWhileBusy: the plane can be stopped in the middle of a flood. Whatever
// it took in before is in order and complete.
func TestStopWhileBusy(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo")
	stop := r.run()
	r.listening(connect(t, address))
	var conns []*nats.Conn
	for range 4 {
		conns = append(conns, connect(t, address))
	}
	flooding, stopFlood := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var sent atomic.Uint64
	for i, conn := range conns {
		subject := []string{componentSubject, endpointSubject}[i%2]
		flood.Go(func() {
			for id := uint64(1); flooding.Err() == nil; id++ {
				if sent.Load() > r.plane.Stats().Messages+queueSize/2 { // NATS is not to drop any
					runtime.Gosched()
					id--
					continue
				}
				sent.Add(1)
				msg, err := dynamo.AppendMessage(nil, dynamo.Gen12, dynamo.Envelope{}, []kvevent.Event{stored(fleet.Key{ID: uint64(i)}, id, id)})
				if err == nil {
					err = conn.Publish(subject, msg)
				}
				if err == nil && id%256 == 0 {
					err = conn.FlushTimeout(patience) // no faster than the server
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	waitFor(t, "no flood", func() bool { return r.plane.Stats().Messages > 500 })
	stop()
	before, workers := r.plane.Stats(), r.plane.Workers()
	entries := r.index.Stats().Entries
	stopFlood()
	flood.Wait()
	if after := r.plane.Stats(); after.Messages != before.Messages || r.index.Stats().Entries != entries {
		t.Errorf("%d messages were taken in after the end", after.Messages-before.Messages)
	}
	for k, w := range workers {
		if counted(w) != (WorkerStats{LastID: w.LastID, Events: w.LastID}) {
			t.Errorf("worker %v: %+v", k, w)
		}
		r.wantHeld(k, int(w.LastID))
	}
}
