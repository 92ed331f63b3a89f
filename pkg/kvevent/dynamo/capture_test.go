package dynamo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

const captureDir = "../../../testdata/captures/dynamo"

// captureLine is one recorded message: of NATS (Subject, Data) or of ZMQ (Frames).
type captureLine struct {
	Subject string
	Data    []byte
	Frames  json.RawMessage
	Decoded json.RawMessage
}

// readCapture returns the lines of one capture file.
func readCapture(t testing.TB, name string) []captureLine {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captureDir, name))
	if err != nil {
		t.Fatal(err)
	}
	var lines []captureLine
	for i, raw := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var l captureLine
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%s:%d: %v", name, i+1, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// zmqBody returns topic and envelope of a message of the ZMQ plane (dynamo.md
// 1.3): four frames, the last one a version byte, a length and the envelope.
func zmqBody(t testing.TB, raw json.RawMessage) (topic string, envelope []byte) {
	t.Helper()
	var frames [][]byte
	if err := json.Unmarshal(raw, &frames); err != nil {
		t.Fatal(err)
	}
	if len(frames) != 4 {
		t.Fatalf("%d frames, want 4", len(frames))
	}
	body := frames[3]
	if body[0] != 1 || binary.BigEndian.Uint32(body[1:]) != uint32(len(body)-5) {
		t.Fatalf("body frame starts %x", body[:5])
	}
	return string(frames[0]), body[5:]
}

// wire mirrors the JSON view of a message: a slow, obvious second decoder.
type wire struct {
	PublisherID uint64 `json:"publisher_id"`
	Sequence    uint64
	PublishedAt uint64 `json:"published_at"`
	Topic       string
	Payload     json.RawMessage
}

type wireEvent struct {
	WorkerID  uint64  `json:"worker_id"`
	Tier      string  `json:"storage_tier"`
	Residency *string `json:"residency_domain"`
	Event     struct {
		ID   uint64 `json:"event_id"`
		Data any
		Rank uint32 `json:"dp_rank"`
	}
}

func number(t *testing.T, v any) uint64 {
	t.Helper()
	u, err := strconv.ParseUint(string(v.(json.Number)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// parseExact decodes JSON without losing bits of integers in untyped places.
func parseExact(t *testing.T, raw []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
}

// wantMessage returns what a recorded message says, and its generation.
func wantMessage(t *testing.T, decoded json.RawMessage, scope Scope) (Envelope, []kvevent.Event, Generation) {
	t.Helper()
	var w wire
	parseExact(t, decoded, &w)
	gen := Gen14
	var list []wireEvent
	if w.Payload[0] == '{' {
		gen = Gen12
		list = make([]wireEvent, 1)
		parseExact(t, w.Payload, &list[0])
	} else {
		parseExact(t, w.Payload, &list)
	}
	var events []kvevent.Event
	for _, we := range list {
		if we.Residency != nil {
			gen = Gen15
		}
		events = append(events, wantEvent(t, we, scope))
	}
	return Envelope{w.PublisherID, w.Sequence, w.PublishedAt, w.Topic}, events, gen
}

func wantEvent(t *testing.T, w wireEvent, scope Scope) kvevent.Event {
	t.Helper()
	e := kvevent.Event{WorkerID: w.WorkerID, Rank: w.Event.Rank, ID: w.Event.ID}
	tiers := map[string]kvevent.Tier{"device": kvevent.Device, "host_pinned": kvevent.Host, "disk": kvevent.Disk, "external": kvevent.External}
	var known bool
	if e.Tier, known = tiers[w.Tier]; !known {
		t.Fatalf("capture has tier %q", w.Tier)
	}
	if w.Residency != nil {
		e.Residency = *w.Residency
	}
	if w.Event.Data == "cleared" {
		e.Kind, e.AllRanks = kvevent.Cleared, scope == ComponentScope
		return e
	}
	data := w.Event.Data.(map[string]any)
	if removed, ok := data["removed"].(map[string]any); ok {
		e.Kind = kvevent.Removed
		for _, h := range removed["block_hashes"].([]any) {
			e.Gone = append(e.Gone, kvevent.EngineHash(number(t, h)))
		}
		return e
	}
	stored := data["stored"].(map[string]any)
	e.Kind = kvevent.Stored
	if p := stored["parent_hash"]; p != nil {
		e.Parent, e.HasParent = kvevent.EngineHash(number(t, p)), true
	}
	if p := stored["start_position"]; p != nil {
		e.Start, e.HasStart = uint32(number(t, p)), true
	}
	for i, b := range stored["blocks"].([]any) {
		b := b.(map[string]any)
		e.Blocks = append(e.Blocks, kvevent.Block{
			Engine: kvevent.EngineHash(number(t, b["block_hash"])), Hash: block.Hash(number(t, b["tokens_hash"])),
		})
		extra, _ := b["mm_extra_info"].(map[string]any)
		if extra == nil {
			continue
		}
		for _, o := range extra["mm_objects"].([]any) {
			o := o.(map[string]any)
			m := kvevent.Media{Block: i, Hash: number(t, o["mm_hash"])}
			for _, pair := range o["offsets"].([]any) {
				p := pair.([]any)
				m.Offsets = append(m.Offsets, [2]uint32{uint32(number(t, p[0])), uint32(number(t, p[1]))})
			}
			e.Media = append(e.Media, m)
		}
	}
	return e
}

// clone returns an event that outlives the next decode.
func clone(e *kvevent.Event) kvevent.Event {
	c := *e
	c.Blocks = append([]kvevent.Block(nil), e.Blocks...)
	c.Gone = append([]kvevent.EngineHash(nil), e.Gone...)
	c.Media = append([]kvevent.Media(nil), e.Media...)
	for i, m := range c.Media {
		c.Media[i].Offsets = append([][2]uint32(nil), m.Offsets...)
	}
	return c
}

// collect decodes a message and returns all that apply saw.
func collect(d *Decoder, msg []byte, scope Scope) (Envelope, []kvevent.Event, error) {
	var got []kvevent.Event
	env, err := d.Decode(msg, scope, func(e *kvevent.Event) { got = append(got, clone(e)) })
	return env, got, err
}

// TestCaptures decodes every recorded KV event and encodes it again. The numbers
// say how many messages each file has, lest a file go missing unseen.
func TestCaptures(t *testing.T) {
	files := []struct {
		name string
		want int // kv-events messages
		gen  Generation
	}{
		{"1.2.1-aggregated", 40, Gen12},
		{"1.2.1-disaggregated", 34, Gen12},
		{"1.2.1-dp2", 34, Gen12},
		{"1.2.1-durable", 40, 0},
		{"1.2.1-engine-events", 44, Gen12},
		{"1.2.1-kubernetes", 13, Gen12},
		{"1.2.1-recovery", 0, 0},
		{"1.2.1-zmq", 3, Gen12},
		{"1.3.1-aggregated", 40, Gen12},
		{"1.4.2-aggregated", 35, Gen14},
		{"1.5.1-aggregated", 36, Gen15},
		{"1.6.1-aggregated", 35, Gen15},
		{"1.6.1-disaggregated", 24, Gen15},
		{"1.6.1-dp2", 33, Gen15},
		{"1.6.1-engine-events", 41, Gen15},
		{"1.6.1-host-offload", 61, Gen15},
		{"1.6.1-kubernetes", 12, Gen15},
		{"1.6.1-recovery", 0, 0},
		{"1.6.1-zmq", 7, Gen15},
	}
	onDisk, err := filepath.Glob(filepath.Join(captureDir, "*.jsonl"))
	if err != nil || len(onDisk) != len(files) {
		t.Fatalf("%d capture files (%v), want %d", len(onDisk), err, len(files))
	}
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			var d Decoder // one for the file: its buffers are reused
			n, events := 0, 0
			for i, l := range readCapture(t, f.name+".jsonl") {
				at := fmt.Sprintf("line %d", i+1)
				msg, scope, ok := kvMessage(t, l)
				if !ok {
					continue
				}
				n++
				checkPeek(t, msg)
				if scope == StreamScope {
					events += checkBare(t, &d, msg, l.Decoded)
					continue
				}
				wantEnv, want, gen := wantMessage(t, l.Decoded, scope)
				if gen != f.gen {
					t.Errorf("%s: generation %d, want %d", at, gen, f.gen)
				}
				env, got, err := collect(&d, msg, scope)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if env != wantEnv {
					t.Fatalf("%s: envelope %+v, want %+v", at, env, wantEnv)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s: events (-want +got):\n%s", at, diff)
				}
				events += len(got)
				again, err := AppendMessage(nil, gen, env, got)
				if err != nil || !bytes.Equal(again, msg) {
					t.Fatalf("%s: encoded again (%v)\n got %x\nwant %x", at, err, again, msg)
				}
			}
			if n != f.want {
				t.Errorf("%d kv-events messages, want %d", n, f.want)
			}
			s := d.Stats()
			s.EmptyStores = 0 // the engine-events captures have some on purpose
			if want := (DecodeStats{Messages: uint64(n), Events: uint64(events)}); s != want {
				t.Errorf("stats %+v, want %+v", s, want)
			}
		})
	}
}

// kvMessage returns body and scope of a line that is a kv-events message.
func kvMessage(t testing.TB, l captureLine) (msg []byte, scope Scope, ok bool) {
	t.Helper()
	if l.Subject == "" {
		var first []string
		if json.Unmarshal(l.Frames, &first) != nil {
			return nil, 0, false // an exchange with the recovery endpoint
		}
		topic, body := zmqBody(t, l.Frames)
		return body, EndpointScope, topic == TopicKVEvents
	}
	s, err := ParseSubject(l.Subject)
	if err != nil {
		return nil, 0, false // JetStream's
	}
	if s.String() != l.Subject {
		t.Errorf("subject %s written again is %s", l.Subject, s)
	}
	return l.Data, s.Scope, s.Topic == TopicKVEvents
}

// TestOtherTopicsInCaptures: what is on other subjects is refused by its topic.
func TestOtherTopicsInCaptures(t *testing.T) {
	seen := map[string]int{}
	for _, l := range readCapture(t, "1.6.1-aggregated.jsonl") {
		s, err := ParseSubject(l.Subject)
		if err != nil {
			t.Fatal(err)
		}
		if s.Topic == TopicKVEvents {
			continue
		}
		seen[s.Topic]++
		var d Decoder
		env, got, err := collect(&d, l.Data, s.Scope)
		if !isTopicError(err, s.Topic) || env.Topic != s.Topic || got != nil {
			t.Fatalf("%s: envelope %+v, %d events, error %v", s, env, len(got), err)
		}
	}
	for _, topic := range []string{TopicKVMetrics, TopicForwardPassMetrics, TopicActiveSequences} {
		if seen[topic] == 0 {
			t.Errorf("no message of topic %s", topic)
		}
	}
}

// TestDamagedCaptures: a real message cut anywhere is an error, and one with a
// wrong byte anywhere is an error or not, but never a panic. Most of such damage
// sits in names and hashes, where it cannot be seen.
func TestDamagedCaptures(t *testing.T) {
	var d Decoder
	accepted := 0
	for _, l := range readCapture(t, "1.6.1-engine-events.jsonl") {
		msg := bytes.Clone(l.Data)
		for i := range msg {
			if _, _, err := collect(&d, msg[:i], EndpointScope); err == nil {
				t.Fatalf("cut at %d of %d was accepted", i, len(msg))
			}
			for _, flip := range []byte{0x01, 0x10, 0x80, 0xff} {
				msg[i] ^= flip
				_, err := d.Decode(msg, EndpointScope, func(*kvevent.Event) {})
				msg[i] ^= flip
				if err == nil {
					accepted++
				}
			}
		}
	}
	if s := d.Stats(); accepted == 0 || s.BadEvents == 0 {
		t.Errorf("%d damaged messages accepted, stats %+v: the damage did nothing", accepted, s)
	}
}
