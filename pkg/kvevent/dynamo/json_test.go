package dynamo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// bareEvents are the examples of dynamo.md 1.4 as the JetStream mode writes them,
// and other forms that are legal.
var bareEvents = []string{
	`{"worker_id":1186445869714687,"storage_tier":"device","event":{"event_id":1,"data":{"stored":{"parent_hash":null,"start_position":null,"blocks":[{"block_hash":11111111111111111111,"tokens_hash":14643705804678351452,"mm_extra_info":null}]}},"dp_rank":0}}`,
	`{"worker_id":1186445869714687,"storage_tier":"host_pinned","event":{"event_id":2,"data":{"stored":{"parent_hash":11111111111111111111,"start_position":1,"blocks":[{"block_hash":222,"tokens_hash":333,"mm_extra_info":{"mm_objects":[{"mm_hash":42,"offsets":[[0,4]]}]}}]}},"dp_rank":1}}`,
	`{"worker_id":1186445869714687,"storage_tier":"device","event":{"event_id":3,"data":{"removed":{"block_hashes":[11111111111111111111]}},"dp_rank":0}}`,
	`{"worker_id":1186445869714687,"event":{"event_id":4,"data":"cleared"}}`,
	` {"worker_id":1}`,
	"{ \"new\": [ {\"a\\\\\\\"}\": -1.5e-3, \"b\": true}, false, [], {} ],\n\t\"event\": {\"data\": {\"cleared\": null}, \"event_id\": 4},\r\n\"worker_id\" : 1186445869714687 }",
	`{"worker_id":1,"event":{"event_id":1,"data":{"removed":{"block_hashes":[-1,-9223372036854775808,18446744073709551615]}}},"storage_tier":"\u006d\u00f6\ud83d\ude00\n"}`,
}

// checkBare decodes a recorded bare event and compares it with its JSON view. It
// returns the number of events.
func checkBare(t *testing.T, d *Decoder, msg []byte, decoded json.RawMessage) int {
	t.Helper()
	var w wireEvent
	parseExact(t, decoded, &w)
	env, got, err := collect(d, msg, StreamScope)
	if want := (Envelope{PublisherID: w.WorkerID, Topic: TopicKVEvents}); err != nil || env != want || d.Envelope() != want {
		t.Fatalf("envelope %+v, %v; want %+v", env, err, want)
	}
	if diff := cmp.Diff([]kvevent.Event{wantEvent(t, w, StreamScope)}, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	return len(got)
}

func TestBareEvents(t *testing.T) {
	cleared := clearedEvent
	cleared.AllRanks = true
	for i, want := range []kvevent.Event{storedEvent, mediaEvent, removedEvent, cleared} {
		var d Decoder
		during := 0
		env, err := d.Decode([]byte(bareEvents[i]), StreamScope, func(e *kvevent.Event) {
			if during++; d.Envelope().PublisherID != worker0 {
				t.Errorf("envelope during apply %+v", d.Envelope())
			}
			if diff := cmp.Diff(want, clone(e)); diff != "" {
				t.Error(diff)
			}
		})
		if during != 1 || err != nil || env != (Envelope{PublisherID: worker0, Topic: TopicKVEvents}) {
			t.Errorf("%d: %d events, %+v, %v", i, during, env, err)
		}
	}
	var d Decoder
	if _, got, err := collect(&d, []byte(bareEvents[5]), EndpointScope); err != nil || !cmp.Equal(got, []kvevent.Event{clearedEvent}) {
		t.Errorf("loose form: %+v, %v", got, err)
	}
	_, got, err := collect(&d, []byte(bareEvents[6]), StreamScope)
	want := kvevent.Event{WorkerID: 1, ID: 1, Tier: kvevent.NumTiers, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{math.MaxUint64, 1 << 63, math.MaxUint64}}
	if err != nil || !cmp.Equal(got, []kvevent.Event{want}) || d.LastTier() != "mö😀\n" {
		t.Errorf("unknown tier %q, negative hashes: %+v, %v", d.LastTier(), got, err)
	}
	if s := d.Stats(); s != (DecodeStats{Messages: 2, Events: 2, UnknownFields: 1, UnknownTiers: 1}) {
		t.Errorf("stats %+v", s)
	}
}

// TestBareNotAnEvent: JSON that is whole but no event is skipped and counted, as
// it is in msgpack.
func TestBareNotAnEvent(t *testing.T) {
	const rest = `,"event":{"event_id":1,"data":"cleared"}}`
	for _, c := range []struct{ text, why string }{
		{`{}`, "no worker_id"},
		{`{"worker_id":1}`, "no event"},
		{`{"worker_id":1,"worker_id":2` + rest, "worker_id: given twice"},
		{`{"worker_id":"1"` + rest, "worker_id: not an integer"},
		{`{"worker_id":-1` + rest, "worker_id: negative"},
		{`{"worker_id":-0` + rest, "worker_id: not an integer"},
		{`{"worker_id":1.0` + rest, "worker_id: not an integer"},
		{`{"worker_id":1e2` + rest, "worker_id: not an integer"},
		{`{"worker_id":18446744073709551616` + rest, "worker_id: not an integer"},
		{`{"worker_id":1` + strings.Repeat("0", 400) + rest, "worker_id: not an integer"},
		{`{"worker_id":1,"event":{"event_id":1,"data":"moved"}}`, "moved"},
		{`{"worker_id":1,"event":{"event_id":1,"dp_rank":4294967296,"data":"cleared"}}`, "32 bits"},
	} {
		var d Decoder
		_, got, err := collect(&d, []byte(c.text), StreamScope)
		if err != nil || got != nil || d.Stats() != (DecodeStats{Messages: 1, BadEvents: 1}) {
			t.Errorf("%.80s: %+v, %v, %+v", c.text, got, err, d.Stats())
		}
		if d.LastSkip() == nil || !strings.Contains(d.LastSkip().Error(), c.why) {
			t.Errorf("%.80s: skipped for %v", c.text, d.LastSkip())
		}
	}
}

func TestMalformedJSON(t *testing.T) {
	for _, text := range []string{
		`{]`, `{"a"}`, `{"a",1}`, `{"a":1 "b":2}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":[1,]}`, `{"a":[1}`, `{1:2}`,
		`{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":1e+}`, `{"a":+1}`, `{"a":nul}`, `{"a":truE}`, `{"a":x}`,
		"{\"a\":\"\n\"}", "{\"a\\n\x01\":1}", `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\ud83d"}`, `{"a":"\ud83dxx"}`, `{"a":"\ud83d\u0041"}`, `{"a":"\ude00\ud83d"}`,
		`{"a":1}}`, `{"a":1}{"a":1}`, `{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`,
	} {
		var d Decoder
		_, got, err := collect(&d, []byte(text), StreamScope)
		if !errors.Is(err, errJSON) && !errors.Is(err, errLeftovers) && !errors.Is(err, errDepth) || got != nil {
			t.Errorf("%.80s: %+v, %v", text, got, err)
		}
		if json.Valid([]byte(text)) != errors.Is(err, errDepth) && !strings.Contains(text, `\u`) {
			t.Errorf("%.80s: the standard library does not agree", text)
		}
		if d.Stats() != (DecodeStats{Messages: 1, BadMessages: 1}) {
			t.Errorf("%.80s: %+v", text, d.Stats())
		}
	}
}

// TestBareCut: a bare event cut anywhere is cut short, and the decoder is as good
// as new after it.
func TestBareCut(t *testing.T) {
	var d Decoder
	for _, text := range bareEvents {
		if text[0] != '{' {
			continue
		}
		for cut := 1; cut < len(text); cut++ {
			if _, got, err := collect(&d, []byte(text[:cut]), StreamScope); !errors.Is(err, io.ErrUnexpectedEOF) || got != nil {
				t.Fatalf("%s: %+v, %v", text[:cut], got, err)
			}
		}
		if _, got, err := collect(&d, []byte(text+" \n"), StreamScope); err != nil || len(got) != 1 {
			t.Fatalf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestBareTwin: a bare event, in whatever order and spacing, decodes to what its
// msgpack form decodes to. Other people's encoders write it.
func TestBareTwin(t *testing.T) {
	var d Decoder
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.SampledFrom([]Generation{Gen12, Gen15}).Draw(t, "generation")
		want := drawEvent(t, gen, StreamScope)
		var text bytes.Buffer
		if _, err := msgp.UnmarshalAsJSON(&text, appendRouterEvent(nil, gen, &want)); err != nil {
			t.Fatal(err)
		}
		msg := text.Bytes()
		if rapid.Bool().Draw(t, "rewritten") {
			var tree any
			dec := json.NewDecoder(&text)
			dec.UseNumber()
			if err := dec.Decode(&tree); err != nil {
				t.Fatal(err)
			}
			msg, _ = json.MarshalIndent(tree, "", "\t")
		}
		_, got, err := collect(&d, msg, StreamScope)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v, %v", msg, err, d.LastSkip())
		}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Fatal(diff)
		}
		if worker, ok := PeekWorker(msg); !ok || worker != want.WorkerID {
			t.Fatalf("peeked %d, %v in %s", worker, ok, msg)
		}
	})
}

// FuzzJSON: what the standard library takes for an object is read, and says the
// same as msgpack; all else is refused.
func FuzzJSON(f *testing.F) {
	for _, text := range bareEvents {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"a":[1,-2,3.5e7,"\u00e9\ud83d\ude00\\",null,true,false,{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		packed, rest, err := jsonValue(nil, text, maxDepth)
		if err != nil {
			if json.Valid(text) && !errors.Is(err, errDepth) && !bytes.Contains(text, []byte(`\u`)) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(text[:len(text)-len(rest)]) {
			t.Fatalf("%q was accepted", text)
		}
		if left, err := msgp.Skip(packed); err != nil || len(left) > 0 {
			t.Fatalf("%q: packed to %x: %v", text, packed, err)
		}
	})
}

func TestBareDoesNotAllocate(t *testing.T) {
	msg := []byte(bareEvents[1])
	var d Decoder
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.Decode(msg, StreamScope, func(*kvevent.Event) {}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}
