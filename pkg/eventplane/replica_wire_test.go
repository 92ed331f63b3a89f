package eventplane

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// stateMessage writes a part of a state with these requests.
func stateMessage(at uint64, part, parts int, open ...load.OpenRequest) []byte {
	var s statePart
	for _, o := range open {
		n := slices.Index(s.workers, o.Worker)
		if n < 0 {
			n = len(s.workers)
			s.workers = append(s.workers, o.Worker)
		}
		s.add(string(o.Request), n, o.PrefillTokens, o.Blocks, o.Prefilled)
	}
	return s.appendTo(nil, at, part, parts)
}

// copyOf is a message that stays.
func copyOf(m *replicaMessage) replicaMessage {
	c := *m
	c.open = nil
	for _, o := range m.open {
		o.Request = bytes.Clone(o.Request)
		c.open = append(c.open, o)
	}
	return c
}

var someState = []load.OpenRequest{
	{Worker: prefill, Request: []byte("a"), PrefillTokens: 1 << 40, Blocks: 3},
	{Worker: decode, Request: []byte{}, Blocks: 77, Prefilled: true},
	{Worker: prefill, Request: []byte("b\xff"), PrefillTokens: 5, Prefilled: true},
}

// TestReplicaMessages: what is written is read, whole or not at all.
func TestReplicaMessages(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want replicaMessage
	}{
		"alive": {appendReplicaHead(nil, replicaAlive, math.MaxUint64, 0), replicaMessage{kind: replicaAlive, at: math.MaxUint64}},
		"gone":  {appendReplicaHead(nil, replicaGone, 5, 0), replicaMessage{kind: replicaGone, at: 5}},
		"state": {stateMessage(7, 2, 300, someState...), replicaMessage{kind: replicaState, at: 7, part: 2, parts: 300, open: someState}},
		"empty": {stateMessage(7, 0, 1), replicaMessage{kind: replicaState, at: 7, parts: 1}},
	} {
		var d replicaDecoder
		got, err := d.decode(c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, copyOf(got), cmp.AllowUnexported(replicaMessage{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if d.unknownFields != 0 {
			t.Errorf("%s: %d unknown fields", name, d.unknownFields)
		}
		for cut := range c.b {
			if _, err := d.decode(c.b[:cut]); err == nil {
				t.Errorf("%s cut at %d is read", name, cut)
			}
		}
	}
}

// TestReplicaMessagesOfLater: what later releases may add is passed over, and
// counted; what they may change is not read.
func TestReplicaMessagesOfLater(t *testing.T) {
	str := msgp.AppendString
	b := msgp.AppendMapHeader(nil, 8)
	b = msgp.AppendUint64(str(b, "v"), 1)
	b = msgp.AppendArrayHeader(str(b, "open"), 1) // before what it refers to
	b = msgp.AppendArrayHeader(b, 7)
	b = msgp.AppendUint64(msgp.AppendUint64(msgp.AppendUint64(str(b, "r"), 0), 9), 8)
	b = msgp.AppendMapHeader(str(msgp.AppendBool(b, true), "more"), 0)
	b = msgp.AppendArrayHeader(msgp.AppendArrayHeader(str(b, "workers"), 1), 3)
	b = msgp.AppendNil(msgp.AppendUint64(msgp.AppendUint64(b, 5), 6))
	b = msgp.AppendArrayHeader(str(b, "later"), 2)
	b = msgp.AppendNil(msgp.AppendFloat64(b, 1))
	for key, n := range map[string]uint64{"kind": 2, "at": 3, "part": 0, "parts": 1} {
		b = msgp.AppendUint64(str(b, key), n)
	}
	var d replicaDecoder
	got, err := d.decode(b)
	if err != nil {
		t.Fatal(err)
	}
	want := replicaMessage{kind: replicaState, at: 3, parts: 1, open: []load.OpenRequest{
		{Worker: fleet.Key{ID: 5, Rank: 6}, Request: []byte("r"), PrefillTokens: 9, Blocks: 8, Prefilled: true},
	}}
	if diff := cmp.Diff(want, copyOf(got), cmp.AllowUnexported(replicaMessage{})); diff != "" {
		t.Error(diff)
	}
	if d.unknownFields != 4 {
		t.Errorf("%d unknown fields, want 4", d.unknownFields)
	}
	for name, b := range map[string][]byte{
		"version 2":        msgp.AppendUint64(str(msgp.AppendMapHeader(nil, 1), "v"), 2),
		"another first":    msgp.AppendUint64(str(msgp.AppendMapHeader(nil, 1), "kind"), 1),
		"no version":       msgp.AppendMapHeader(nil, 0),
		"no kind":          msgp.AppendUint64(str(msgp.AppendMapHeader(nil, 1), "v"), 1),
		"kind 4":           appendReplicaHead(nil, 4, 1, 0),
		"no such worker":   bytes.Replace(stateMessage(7, 0, 1, someState[0]), []byte("\xa1a\x00"), []byte("\xa1a\x01"), 1),
		"no map":           {0x93, 1, 2, 3},
		"nothing":          {},
		"a huge array":     append(str(appendReplicaHead(nil, 2, 1, 1), "open"), 0xdd, 0xff, 0xff, 0xff, 0xff),
		"too few items":    append(str(appendReplicaHead(nil, 2, 1, 1), "workers"), 0x91, 0x91, 1),
		"a negative tally": append(str(appendReplicaHead(nil, 2, 1, 1), "part"), 0xff),
	} {
		if _, err := d.decode(b); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// FuzzReplicaMessage: nothing that comes makes the decoder panic or keep more than
// the message can hold, and what it reads is read again from what it writes.
func FuzzReplicaMessage(f *testing.F) {
	f.Add(stateMessage(7, 2, 300, someState...))
	f.Add(appendReplicaHead(nil, replicaAlive, 1, 0))
	f.Add([]byte{0x81, 0xa1, 'v', 1})
	f.Add([]byte{0x82, 0xa1, 'v', 1, 0xa4, 'o', 'p', 'e', 'n', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, again replicaDecoder
		m, err := d.decode(b)
		if err != nil {
			return
		}
		if len(m.open) > len(b)/6 || len(d.workers) > len(b)/3 {
			t.Fatalf("%d requests on %d workers of %d bytes", len(m.open), len(d.workers), len(b))
		}
		engines := load.NewEngines()
		m.tell(engines, 7, time.Unix(1000, 0))
		if m.kind != replicaState || m.part > math.MaxInt || m.parts > math.MaxInt {
			return
		}
		m2, err := again.decode(stateMessage(m.at, int(m.part), int(m.parts), m.open...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(copyOf(m), copyOf(m2), cmp.AllowUnexported(replicaMessage{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// heardBy gives messages to a plane as NATS would.
func heardBy(r *rig, messages []*nats.Msg) {
	for _, m := range messages {
		if strings.HasPrefix(m.Subject, r.plane.replicaPrefix()) {
			r.plane.receiveReplica(m)
		} else {
			r.plane.receiveLoad(m)
		}
	}
}

// TestStatesHealPlanes: with any of the words and states before lost, twice, or in
// another order, a state leads to what is open; so it does in parts of any size,
// with any jumps of the clock.
func TestStatesHealPlanes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, "", "dynamo").syncing()
		r.at(componentSubject, both, decode) // not prefill
		var sent []*nats.Msg
		p := r.sends(func(subject string, data []byte) error {
			sent = append(sent, &nats.Msg{Subject: subject, Data: bytes.Clone(data)})
			return nil
		})
		size := rapid.IntRange(64, 1000).Draw(rt, "size")
		p.partSize = func() int { return size }
		type request struct {
			an   *Announcement
			p    Placement
			done bool
		}
		var open []*request
		for i := range rapid.IntRange(0, 30).Draw(rt, "steps") {
			r.advance(rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, -time.Second}).Draw(rt, "time"))
			what := rapid.IntRange(0, 4).Draw(rt, "what")
			var one *request
			if len(open) > 0 {
				one = rapid.SampledFrom(open).Draw(rt, "request")
			}
			switch {
			case what == 0:
				p.state()
			case what == 1 && one != nil:
				one.an.PrefillDone()
				one.done = true
			case what == 2 && one != nil:
				one.an.Finished()
				open = slices.DeleteFunc(open, func(o *request) bool { return o == one })
			default:
				n := &request{p: Placement{RequestID: fmt.Sprint("request-", i), Prefill: both, Decode: decode, PrefillTokens: rapid.IntRange(0, 99).Draw(rt, "tokens"), Blocks: 2}}
				if k := rapid.SampledFrom([]fleet.Key{both, decode, prefill}).Draw(rt, "worker"); rapid.Bool().Draw(rt, "alone") {
					n.p.Prefill, n.p.Decode = k, k
				}
				n.an = r.plane.Announce(&n.p)
				open = append(open, n)
			}
			p.catchUp()
		}
		before := slices.DeleteFunc(slices.Clone(sent), func(*nats.Msg) bool { return rapid.Bool().Draw(rt, "lost") })
		before = append(before, slices.DeleteFunc(slices.Clone(sent), func(*nats.Msg) bool { return rapid.IntRange(0, 3).Draw(rt, "twice") > 0 })...)
		sent = nil
		p.state()

		hearer := newRig(t, "", "dynamo")
		engines := load.NewEngines()
		hearer.plane.cfg.Loads = engines
		heardBy(hearer, rapid.Permutation(append(before, sent...)).Draw(rt, "order"))
		want := map[fleet.Key]load.Foreign{}
		for _, o := range open {
			add := func(k fleet.Key, tokens int) {
				f := want[k]
				want[k] = load.Foreign{Requests: f.Requests + 1, PrefillTokens: f.PrefillTokens + uint64(tokens)}
			}
			switch {
			case !o.p.pair() && !o.done:
				add(o.p.Decode, o.p.PrefillTokens)
			case !o.p.pair():
				add(o.p.Decode, 0)
			default:
				add(o.p.Decode, 0)
				if !o.done {
					add(o.p.Prefill, o.p.PrefillTokens)
				}
			}
		}
		for _, k := range []fleet.Key{both, decode, prefill} {
			if got := foreign(hearer, engines, k); got != want[k] {
				rt.Fatalf("worker %v: %+v, want %+v", k, got, want[k])
			}
		}
	})
}

// TestTimeOfWords: whatever the clock does, what is said before a state is not
// later than it, and what is said after it is.
func TestTimeOfWords(t *testing.T) {
	r := newRig(t, "", "dynamo").syncing()
	r.at(componentSubject, both)
	var times []uint64
	var states []uint64
	p := r.sends(nil)
	p.send = func(subject string, data []byte) error {
		var d replicaDecoder
		if subject != p.replica {
			times = append(times, p.clock)
			return nil
		}
		m, err := d.decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) > 0 && m.at <= states[len(states)-1] {
			t.Errorf("a state at %d after one at %d", m.at, states[len(states)-1])
		}
		for _, at := range times {
			if at > m.at {
				t.Errorf("a word at %d is in a state at %d", at, m.at)
			}
		}
		states = append(states, m.at)
		return nil
	}
	for range 1000 {
		for range rand.N(3) {
			r.plane.Announce(&Placement{Prefill: both, Decode: both}).Finished()
		}
		n := len(times)
		p.catchUp()
		for _, at := range times[n:] {
			if len(states) > 0 && at <= states[len(states)-1] {
				t.Errorf("a word at %d after a state at %d", at, states[len(states)-1])
			}
		}
		if rand.N(2) == 0 {
			p.state()
		}
		r.advance(time.Duration(rand.Int64N(7)-3) * time.Millisecond)
	}
}

// BenchmarkState is what a publisher does for a state of 1,000 requests on 64
// workers, and what a replica does that hears it, both without NATS.
func BenchmarkState(b *testing.B) {
	const requests = 1000
	r := newRig(b, "", "dynamo").syncing()
	var messages []*nats.Msg
	p := r.sends(func(subject string, data []byte) error {
		messages = append(messages, &nats.Msg{Subject: subject, Data: bytes.Clone(data)})
		return nil
	})
	for i := range requests {
		k := fleet.Key{ID: 1<<52 + uint64(i%64)}
		r.plane.Announce(&Placement{RequestID: fmt.Sprintf("6ecc5f5e-73dd-46b9-99c0-%012d", i), Prefill: k, Decode: k, PrefillTokens: 3000, Blocks: 200})
	}
	p.catchUp()
	b.Run("tell", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			messages = messages[:0]
			p.state()
		}
		size := 0
		for _, m := range messages {
			size += len(m.Data)
		}
		b.ReportMetric(float64(size), "bytes/state")
	})
	b.Run("hear", func(b *testing.B) {
		hearer := newRig(b, "", "dynamo")
		engines := load.NewEngines()
		hearer.plane.cfg.Loads = engines
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			messages = messages[:0]
			p.state()
			b.StartTimer()
			heardBy(hearer, messages)
		}
		if n := foreign(hearer, engines, fleet.Key{ID: 1 << 52}).Requests; n != (requests+63)/64 {
			b.Fatalf("%d requests", n)
		}
	})
}
