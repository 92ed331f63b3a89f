package eventplane

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
)

// syncing makes a plane that does not run yet tell other routers of requests.
func (r *rig) syncing() *rig {
	r.plane.cfg.ReplicaSync = true
	r.plane.announce = newAnnouncer(&r.plane.cfg)
	return r
}

// startSync runs a plane that hears of load and tells of its own, on a server of
// its own, with somebody who listens.
func startSync(t testing.TB, namespace string, to Loads) (*rig, *nats.Conn, *ear) {
	t.Helper()
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, namespace).syncing()
	r.plane.cfg.Loads = to
	conn := connect(t, address)
	e := earOn(t, conn)
	r.run()
	r.listening(conn)
	r.loadBarrier(conn)
	r.speaks()
	return r, conn, e
}

// speaks waits until others can be told of requests: that is another connection than
// the one that hears them.
func (r *rig) speaks() {
	r.t.Helper()
	waitFor(r.t, "the plane tells others nothing", func() bool { return r.plane.ReplicaStats().Sent > 0 })
}

// wantAnnounced waits for counts of announcements: a word is heard before it counts.
func (r *rig) wantAnnounced(want AnnounceStats) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprintf("announced is not %+v", want), func() bool { return r.plane.AnnounceStats() == want })
}

// at puts workers at a place.
func (r *rig) at(subject string, workers ...fleet.Key) {
	for _, k := range workers {
		r.plane.announce.places.heard(k, subject)
	}
}

// told is a message about a request, as others hear it.
type told struct {
	subject  string
	envelope dynamo.Envelope
	event    dynamo.SequenceEvent // keeps no memory of the message
	raw      []byte
}

// ear hears active_sequences_events.
type ear struct {
	t       testing.TB
	sub     *nats.Subscription
	decoder dynamo.LoadDecoder
}

func earOn(t testing.TB, conn *nats.Conn) *ear {
	t.Helper()
	sub, err := conn.SubscribeSync("namespace.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	flush(t, conn)
	return &ear{t: t, sub: sub}
}

// next is the next word of a plane; what others say is passed over.
func (e *ear) next(by *rig) told {
	e.t.Helper()
	for {
		m, err := e.sub.NextMsg(patience)
		if err != nil {
			e.t.Fatalf("no word of a request: %v", err)
		}
		env, l, err := e.decoder.Decode(m.Data)
		if err != nil || l.Kind != dynamo.LoadSequence || l.Sequence.RouterID != by.plane.announce.router {
			continue
		}
		again, err := dynamo.AppendLoad(nil, env, l)
		if err != nil || !bytes.Equal(again, m.Data) {
			e.t.Fatalf("written again (%v)\n got %x\nwant %x", err, again, m.Data)
		}
		if m.Reply != "" || len(m.Header) > 0 {
			e.t.Errorf("reply %q, headers %v; want none", m.Reply, m.Header)
		}
		ev := l.Sequence
		ev.RequestID = bytes.Clone(ev.RequestID)
		ev.LoRA = bytes.Clone(ev.LoRA)
		ev.Added.Sequence.Value = slices.Clone(ev.Added.Sequence.Value)
		return told{m.Subject, env, ev, m.Data}
	}
}

// all are the words of a plane up to the end of a request, which it is given now.
func (e *ear) all(by *rig) []told {
	e.t.Helper()
	mark := fleet.Key{ID: 1 << 50}
	by.at("namespace.mark.component.x.kv-events", mark)
	by.plane.Announce(&Placement{RequestID: "the end", Prefill: mark, Decode: mark}).Finished()
	var words []told
	for {
		w := e.next(by)
		if w.event.WorkerID != mark.ID {
			words = append(words, w)
		} else if w.event.Kind == dynamo.Free {
			return words
		}
	}
}

// chains are n hashes that nobody else has.
func chainsFrom(first uint64, n int) []block.Chain {
	c := make([]block.Chain, n)
	for i := range c {
		c[i] = block.Chain(first + uint64(i))
	}
	return c
}

// foreign is what a plane's engines have of other routers on a worker.
func foreign(r *rig, engines *load.Engines, k fleet.Key) load.Foreign {
	return engines.Get(k, r.now(), forever).Foreign
}

// sends makes a publisher that does not run give its messages to f.
func (r *rig) sends(f func(subject string, data []byte) error) *publisher {
	return newPublisher(r.plane, f)
}

func discard(string, []byte) error { return nil }
