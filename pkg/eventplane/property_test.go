package eventplane

import (
	"bytes"
	"testing"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestNoGoodEventIsLost mixes good messages with bad ones, and good events with
// bad ones inside a message. Plane and index must be as if only the good ones had
// been there, and as the twin says.
func TestNoGoodEventIsLost(t *testing.T) {
	counted := map[string]int{}
	bad := badMessages(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &mixer{t: rt, tt: t, rig: newRig(t, "", "dynamo"), twin: newTwin(), next: map[fleet.Key]uint64{}, known: bad}
		steps := map[string]func(){
			"good message":   m.good,
			"good batch":     m.batch,
			"cut batch":      m.cutBatch,
			"garbage":        m.garbage,
			"cut message":    m.cutMessage,
			"known bad":      m.knownBad,
			"lost messages":  m.loss,
			"other space":    m.otherSpace,
			"same once more": m.again,
			"restart":        m.restart,
		}
		names := []string{
			"good message", "good message", "good batch", "good batch", "cut batch", "garbage", "cut message",
			"known bad", "lost messages", "other space", "same once more", "restart",
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "step")
			counted[name]++
			steps[name]()
		}
		m.twin.check(rt, m.rig)
		for range 3 {
			m.twin.checkPrompt(rt, m.rig, rapid.SliceOfN(contents, 0, 6).Draw(rt, "prompt"))
		}
		s := m.rig.plane.Stats()
		if s.BadMessages != m.bad || s.OtherSpace != m.others || s.Messages != m.messages {
			rt.Fatalf("%d messages, %d bad, %d of others; want %d, %d, %d", s.Messages, s.BadMessages, s.OtherSpace, m.messages, m.bad, m.others)
		}
	})
	for _, step := range []string{"good batch", "cut batch", "restart"} {
		if counted[step] == 0 {
			t.Errorf("no step of kind %q", step)
		}
	}
}

// Few values, so that equal prefixes, equal engine hashes and clashes are common.
var (
	contents = rapid.Uint64Range(1, 3)
	engines  = rapid.Uint64Range(1, 12)
	someone  = rapid.SampledFrom([]fleet.Key{{ID: 1}, {ID: 1, Rank: 1}, {ID: 1 << 63}, {ID: 2, Rank: 7}})
)

// mixer drives a plane and its twin.
type mixer struct {
	t     *rapid.T
	tt    *testing.T
	rig   *rig
	twin  *twin
	next  map[fleet.Key]uint64 // last event id that a worker used
	known map[string][]byte    // bad messages by name

	messages, bad, others uint64
}

// draw makes one good event, with the next id of its worker.
func (m *mixer) draw(whole bool) fact {
	f := fact{
		worker: someone.Draw(m.t, "worker"),
		tier:   rapid.SampledFrom([]string{"device", "device", "host_pinned", "disk", "external"}).Draw(m.t, "tier"),
		kind:   rapid.SampledFrom([]string{"stored", "stored", "stored", "stored", "removed", "removed", "cleared"}).Draw(m.t, "kind"),
	}
	switch f.kind {
	case "stored":
		if rapid.Bool().Draw(m.t, "has a parent") {
			parent := engines.Draw(m.t, "parent")
			f.parent = &parent
		}
		for range rapid.IntRange(0, 3).Draw(m.t, "blocks") {
			f.blocks = append(f.blocks, factBlock{Engine: engines.Draw(m.t, "engine"), Tokens: contents.Draw(m.t, "content")})
		}
	case "removed":
		f.gone = rapid.SliceOfN(engines, 0, 3).Draw(m.t, "gone")
	case "cleared":
		f.whole = whole
	}
	m.next[f.worker]++
	f.id = m.next[f.worker]
	return f
}

func (m *mixer) subject() (subject string, whole bool) {
	whole = rapid.Bool().Draw(m.t, "component scope")
	if whole {
		return componentSubject, true
	}
	return endpointSubject, false
}

// send gives a message of ours to the plane. bad says how often it counts as bad.
func (m *mixer) send(subject string, data []byte, bad bool) {
	m.messages++
	if bad {
		m.bad++
	}
	m.rig.give(subject, data)
}

func (m *mixer) good() {
	subject, whole := m.subject()
	f := m.draw(whole)
	m.send(subject, encode(m.tt, dynamo.Gen12, f.event()), false)
	m.twin.apply(f)
}

// again sends a worker's last event once more, or something else under its id.
func (m *mixer) again() {
	subject, whole := m.subject()
	f := m.draw(whole)
	m.next[f.worker]--
	f.id--
	if f.id == 0 {
		return // it has no last event
	}
	m.send(subject, encode(m.tt, dynamo.Gen15, f.event()), false)
	m.twin.apply(f)
}

// loss lets a worker use ids that never come.
func (m *mixer) loss() {
	m.next[someone.Draw(m.t, "worker")] += rapid.Uint64Range(1, 5).Draw(m.t, "lost")
}

func (m *mixer) restart() { m.next[someone.Draw(m.t, "worker")] = 0 }

// element is one event as bytes of a batch.
func element(t testing.TB, f fact) []byte {
	t.Helper()
	payload := payloadOf(t, encode(t, dynamo.Gen15, f.event()))
	if payload[0] != 0x91 {
		t.Fatalf("payload starts with %x, want an array of one", payload[0])
	}
	return payload[1:]
}

func payloadOf(t testing.TB, msg []byte) []byte {
	t.Helper()
	payload, _, err := msgp.ReadBytesZC(msgp.Locate("payload", msg))
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// junk is a whole value of msgpack that is no event.
func (m *mixer) junk() []byte {
	f := fact{worker: fleet.Key{ID: 1}, id: 1, tier: "device", kind: "stored", blocks: []factBlock{{1, 1}}}
	whole := element(m.tt, f)
	broken := func(old, new string) []byte {
		b := bytes.Replace(whole, []byte(old), []byte(new), 1)
		if bytes.Equal(b, whole) {
			m.t.Fatalf("%q is not in an event", old)
		}
		return b
	}
	return rapid.SampledFrom([][]byte{
		msgp.AppendNil(nil), msgp.AppendUint64(nil, 1), msgp.AppendInt64(nil, -1), msgp.AppendString(nil, "cleared"),
		msgp.AppendBool(nil, true), msgp.AppendFloat64(nil, 1.5), msgp.AppendBytes(nil, whole),
		msgp.AppendArrayHeader(nil, 0), msgp.AppendMapHeader(nil, 0),
		append(msgp.AppendArrayHeader(nil, 1), whole...),
		broken("worker_id", "walker_id"), broken("event_id", "evict_id"), broken("stored", "stared"),
		broken("tokens_hash", "tokens_hush"), broken("block_hash", "black_hash"), broken("blocks", "blacks"),
	}).Draw(m.t, "junk")
}

// batch sends good events with junk among them.
func (m *mixer) batch() {
	subject, whole := m.subject()
	var body []byte
	n := rapid.IntRange(0, 6).Draw(m.t, "elements")
	bad := false
	for range n {
		if rapid.IntRange(0, 2).Draw(m.t, "junk if 0") == 0 {
			bad = true
			body = append(body, m.junk()...)
			continue
		}
		f := m.draw(whole)
		body = append(body, element(m.tt, f)...)
		m.twin.apply(f)
	}
	payload := append(msgp.AppendArrayHeader(nil, uint32(n)), body...)
	m.send(subject, wrap(payload), bad)
}

// cutBatch sends a batch that ends in the middle of an event, be it the payload
// or the message that ends there. What is whole before that counts.
func (m *mixer) cutBatch() {
	subject, whole := m.subject()
	n := rapid.IntRange(1, 5).Draw(m.t, "elements")
	keep := rapid.IntRange(0, n-1).Draw(m.t, "whole ones")
	payload := msgp.AppendArrayHeader(nil, uint32(n))
	size := 0 // of the payload that is left
	for i := range n {
		f := m.draw(whole)
		e := element(m.tt, f)
		if i < keep {
			m.twin.apply(f)
		}
		if i == keep {
			size = len(payload) + rapid.IntRange(0, len(e)-1).Draw(m.t, "cut at")
		}
		payload = append(payload, e...)
	}
	if rapid.Bool().Draw(m.t, "message is whole") {
		m.send(subject, wrap(payload[:size]), true)
		return
	}
	msg := wrap(payload)
	m.send(subject, msg[:len(msg)-(len(payload)-size)], true)
}

// cutMessage sends a good message that is cut anywhere.
func (m *mixer) cutMessage() {
	subject, whole := m.subject()
	f := m.draw(whole)
	msg := encode(m.tt, dynamo.Gen12, f.event())
	m.send(subject, msg[:rapid.IntRange(0, len(msg)-1).Draw(m.t, "cut at")], true)
}

// garbage sends bytes that start with no map or array, so that they can never be
// a message by chance.
func (m *mixer) garbage() {
	subject, _ := m.subject()
	data := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(m.t, "garbage")
	start := rapid.SampledFrom([]byte{0x00, 0x7f, 0xc0, 0xc1, 0xc4, 0xcf, 0xd9, 0xff, '{', ' '}).Draw(m.t, "first byte")
	m.send(subject, append([]byte{start}, data...), true)
}

// known are messages of badMessages without the large ones.
var known = []string{"empty", "text", "json", "wrong topic", "no payload", "empty payload", "payload of text", "claims too much", "huge map"}

func (m *mixer) knownBad() {
	subject, _ := m.subject()
	m.send(subject, m.known[rapid.SampledFrom(known).Draw(m.t, "which")], true)
}

// otherSpace sends a good message of somebody else.
func (m *mixer) otherSpace() {
	f := fact{worker: someone.Draw(m.t, "worker"), id: 1, tier: "device", kind: "cleared"}
	subject := dynamo.EventSubject(dynamo.Gen12, "dynamo2", "backend", "")
	m.others++
	m.rig.give(subject, encode(m.tt, dynamo.Gen12, f.event()))
}
