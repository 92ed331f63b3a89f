package eventplane

import (
	"bytes"
	"testing"
	"time"

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
	var seen WorkerStats
	bad := badMessages(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &mixer{
			t: rt, tt: t, rig: newRig(t, "", "dynamo"), twin: newTwin(), known: bad,
			next: map[fleet.Key]uint64{}, voice: map[fleet.Key]uint64{}, former: map[fleet.Key]uint64{},
		}
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
			"new process":    m.newProcess,
			"late event":     m.late,
			"time":           m.time,
		}
		names := []string{
			"good message", "good message", "good batch", "good batch", "cut batch", "garbage", "cut message",
			"known bad", "lost messages", "other space", "same once more", "restart",
			"new process", "late event", "time",
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "step")
			counted[name]++
			steps[name]()
		}
		m.twin.check(rt, m.rig)
		for _, w := range m.twin.workers {
			seen.Restarts, seen.Stale, seen.Strays = seen.Restarts+w.stats.Restarts, seen.Stale+w.stats.Stale, seen.Strays+w.stats.Strays
			seen.Ignored, seen.Gaps, seen.Duplicates = seen.Ignored+w.stats.Ignored, seen.Gaps+w.stats.Gaps, seen.Duplicates+w.stats.Duplicates
		}
		for range 3 {
			m.twin.checkPrompt(rt, m.rig, rapid.SliceOfN(contents, 0, 6).Draw(rt, "prompt"))
		}
		s := m.rig.plane.Stats()
		if s.BadMessages != m.bad || s.OtherSpace != m.others || s.Messages != m.messages {
			rt.Fatalf("%d messages, %d bad, %d of others; want %d, %d, %d", s.Messages, s.BadMessages, s.OtherSpace, m.messages, m.bad, m.others)
		}
	})
	for _, step := range []string{"good batch", "cut batch", "restart", "new process", "late event", "time"} {
		if counted[step] == 0 {
			t.Errorf("no step of kind %q", step)
		}
	}
	if seen.Restarts == 0 || seen.Stale == 0 || seen.Strays == 0 || seen.Ignored == 0 || seen.Gaps == 0 || seen.Duplicates == 0 {
		t.Errorf("not all that can be was seen: %+v", seen)
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
	known map[string][]byte // bad messages by name

	// Of the publisher of every rank: its id, or 0 for the worker's, that of the
	// process before, and the last event id that it used.
	voice, former, next map[fleet.Key]uint64

	messages, bad, others uint64
}

// draw makes one good event of a rank's publisher, with its next id. Now and then
// the engine names another rank than the publisher's.
func (m *mixer) draw(at fleet.Key, whole bool) fact {
	f := fact{
		publisher: m.publisher(at),
		worker:    at,
		wide:      whole,
		tier:      rapid.SampledFrom([]string{"device", "device", "device", "host_pinned", "disk", "external", "tape"}).Draw(m.t, "tier"),
		kind:      rapid.SampledFrom([]string{"stored", "stored", "stored", "stored", "removed", "removed", "cleared"}).Draw(m.t, "kind"),
	}
	if rapid.IntRange(0, 5).Draw(m.t, "stray if 0") == 0 {
		f.worker.Rank = rapid.Uint32Range(0, 2).Draw(m.t, "rank")
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
	m.next[at]++
	f.id = m.next[at]
	return f
}

// publisher is the id of a rank's publisher.
func (m *mixer) publisher(at fleet.Key) uint64 {
	if m.voice[at] == 0 {
		return at.ID
	}
	return m.voice[at]
}

// newProcess lets another process speak for a rank, of any release. Its first
// events may be lost.
func (m *mixer) newProcess() { m.replace(someone.Draw(m.t, "worker")) }

func (m *mixer) replace(at fleet.Key) {
	m.former[at] = m.voice[at]
	m.voice[at] = rapid.Uint64Range(0, 3).Draw(m.t, "publisher") * (1000 + uint64(at.Rank))
	m.next[at] = rapid.Uint64Range(0, 5).Draw(m.t, "lost")
}

// late lets a process be replaced and speak once more, sooner or later.
func (m *mixer) late() {
	at := someone.Draw(m.t, "worker")
	m.say(at)
	m.replace(at)
	m.say(at)
	if rapid.Bool().Draw(m.t, "later") {
		m.time()
	}
	now, next := m.voice[at], m.next[at]
	m.voice[at] = m.former[at]
	m.next[at] = rapid.Uint64Range(0, 9).Draw(m.t, "late id")
	m.say(at)
	m.voice[at], m.next[at] = now, next
}

func (m *mixer) time() {
	d := time.Duration(rapid.Int64Range(1, 61).Draw(m.t, "seconds")) * time.Second
	m.rig.advance(d)
	m.twin.now = m.twin.now.Add(d)
}

// encode is one event as a message. The encoder refuses the tier "tape": it is
// written over a name of the same length.
func (m *mixer) encode(gen dynamo.Generation, f fact) []byte {
	tape := f.tier == "tape"
	if tape {
		f.tier = "disk"
	}
	data := encodeFrom(m.tt, f.publisher, gen, f.event())
	if tape {
		data = bytes.Replace(data, []byte("\xa4disk"), []byte("\xa4tape"), 1)
	}
	return data
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

func (m *mixer) good() { m.say(someone.Draw(m.t, "worker")) }

// say sends one good event of a rank's publisher.
func (m *mixer) say(at fleet.Key) {
	subject, whole := m.subject()
	f := m.draw(at, whole)
	m.send(subject, m.encode(rapid.SampledFrom([]dynamo.Generation{dynamo.Gen12, dynamo.Gen15}).Draw(m.t, "release"), f), false)
	m.twin.apply(f)
}

// again sends a worker's last event once more, or something else under its id.
func (m *mixer) again() {
	subject, whole := m.subject()
	at := someone.Draw(m.t, "worker")
	if m.next[at] == 0 {
		return // it has no last event
	}
	m.next[at]--
	f := m.draw(at, whole)
	m.send(subject, m.encode(dynamo.Gen15, f), false)
	m.twin.apply(f)
}

// loss lets a worker use ids that never come.
func (m *mixer) loss() {
	m.next[someone.Draw(m.t, "worker")] += rapid.Uint64Range(1, 5).Draw(m.t, "lost")
}

func (m *mixer) restart() { m.next[someone.Draw(m.t, "worker")] = 0 }

// element is one event as bytes of a batch.
func (m *mixer) element(f fact) []byte {
	payload := payloadOf(m.tt, m.encode(dynamo.Gen15, f))
	if payload[0] != 0x91 {
		m.t.Fatalf("payload starts with %x, want an array of one", payload[0])
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
	whole := m.element(f)
	broken := func(old, other string) []byte {
		b := bytes.Replace(whole, []byte(old), []byte(other), 1)
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
	at := someone.Draw(m.t, "worker")
	n := rapid.IntRange(0, 6).Draw(m.t, "elements")
	bad := false
	for range n {
		if rapid.IntRange(0, 2).Draw(m.t, "junk if 0") == 0 {
			bad = true
			body = append(body, m.junk()...)
			continue
		}
		f := m.draw(at, whole)
		body = append(body, m.element(f)...)
		m.twin.apply(f)
	}
	payload := append(msgp.AppendArrayHeader(nil, uint32(n)), body...)
	m.send(subject, wrapFrom(m.publisher(at), payload), bad)
}

// cutBatch sends a batch that ends in the middle of an event, be it the payload
// or the message that ends there. What is whole before that counts.
func (m *mixer) cutBatch() {
	subject, whole := m.subject()
	at := someone.Draw(m.t, "worker")
	n := rapid.IntRange(1, 5).Draw(m.t, "elements")
	keep := rapid.IntRange(0, n-1).Draw(m.t, "whole ones")
	payload := msgp.AppendArrayHeader(nil, uint32(n))
	size := 0 // of the payload that is left
	for i := range n {
		f := m.draw(at, whole)
		e := m.element(f)
		if i < keep {
			m.twin.apply(f)
		}
		if i == keep {
			size = len(payload) + rapid.IntRange(0, len(e)-1).Draw(m.t, "cut at")
		}
		payload = append(payload, e...)
	}
	if rapid.Bool().Draw(m.t, "message is whole") {
		m.send(subject, wrapFrom(m.publisher(at), payload[:size]), true)
		return
	}
	msg := wrapFrom(m.publisher(at), payload)
	m.send(subject, msg[:len(msg)-(len(payload)-size)], true)
}

// cutMessage sends a good message that is cut anywhere.
func (m *mixer) cutMessage() {
	subject, whole := m.subject()
	f := m.draw(someone.Draw(m.t, "worker"), whole)
	msg := m.encode(dynamo.Gen12, f)
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
