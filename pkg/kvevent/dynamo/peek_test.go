package dynamo

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// checkPeek holds PeekWorker against its twin, the decoder: the worker of the
// first event, unless that event was skipped. The two forms that PeekWorker does
// not read may only be ok=false.
func checkPeek(t *testing.T, msg []byte) {
	t.Helper()
	worker, ok := PeekWorker(msg)
	var d Decoder
	events, first := 0, uint64(0)
	_, err := d.Decode(msg, EndpointScope, func(e *kvevent.Event) {
		if events++; events > 1 {
			return
		}
		if first = e.WorkerID; d.Stats().BadEvents > 0 {
			events = math.MinInt // not the first value in an event's place
		}
	})
	if events < 1 || ok && worker == first {
		return
	}
	if !ok && (msg[0] == '{' && bytes.IndexByte(msg, '\\') >= 0 || payloadOfNumbers(msg)) {
		return
	}
	t.Fatalf("peeked %d, %v; decoded %d, %v, of %x", worker, ok, first, err, msg)
}

// payloadOfNumbers reports whether a message has its payload as an array.
func payloadOfNumbers(msg []byte) bool {
	l, b, err := msgpack.ReadLayout(msg)
	for i := 0; err == nil && i < l.N; i++ {
		var f int
		if f, b, err = l.Field(b, i, envelopeFields); err == nil {
			if f == envPayload {
				return msgp.NextType(b) == msgp.ArrayType
			}
			b, err = msgpack.Skip(b)
		}
	}
	return false
}

// TestPeekForms: the worker is found wherever a message may say it.
func TestPeekForms(t *testing.T) {
	topic := kv{"topic", "kv-events"}
	event := m{{"event_id", 1}, {"data", "cleared"}}
	late := m{{"event", event}, {"storage_tier", "disk"}, {7, a{}}, {"worker_id", uint64(math.MaxUint64)}}
	for name, msg := range map[string][]byte{
		"canonical map":         envelop(pack(t, m{{"worker_id", uint64(math.MaxUint64)}, {"event", event}})),
		"canonical array":       envelop(pack(t, a{m{{"worker_id", uint64(math.MaxUint64)}, {"event", event}}})),
		"long array":            envelop(append([]byte{0xdc, 0, 1}, pack(t, late)...)),
		"longest array":         envelop(append([]byte{0xdd, 0, 0, 0, 1}, pack(t, late)...)),
		"id last":               envelop(pack(t, late)),
		"positional":            envelop(pack(t, a{uint64(math.MaxUint64), "device", event})),
		"array of positional":   envelop(pack(t, a{a{uint64(math.MaxUint64), event}})),
		"positional envelope":   pack(t, a{1, 2, 3, "kv-events", pack(t, a{late})}),
		"payload first":         pack(t, m{{"payload", pack(t, late)}, {"x", 1.5}, topic}),
		"large envelope":        pack(t, m{{"publisher_id", math.MaxInt}, {"sequence", 300}, {"published_at", -1}, topic, {"payload", pack(t, late)}}),
		"payload above 64 KiB":  envelop(pack(t, a{late, strings.Repeat("x", 1<<16)})),
		"json":                  []byte(`{"worker_id":18446744073709551615,"event":{"event_id":1,"data":"cleared"}}`),
		"json, id last, spaces": []byte("{\"event\" : {\"event_id\":1,\"data\":\"cleared\",\"x\":[\"}\",\"\\\"\"]} , \"y\":1 ,\n\"worker_id\" : 18446744073709551615 }"),
	} {
		if worker, ok := PeekWorker(msg); !ok || worker != math.MaxUint64 {
			t.Errorf("%s: %d, %v", name, worker, ok)
		}
		if strings.HasPrefix(name, "large") {
			continue // a negative time: the decoder has it for damage
		}
		checkPeek(t, msg)
	}
}

// TestPeekNothing: no message, no event, no id.
func TestPeekNothing(t *testing.T) {
	topic := kv{"topic", "kv-events"}
	for name, msg := range map[string][]byte{
		"empty": nil, "scalar": {5}, "never used": {0xc1}, "cut": envelop(nil)[:20],
		"other topic": pack(t, m{{"topic", "kv_metrics"}}), "empty payload": envelop(nil),
		"empty array": envelop([]byte{0x90}), "empty long array": envelop([]byte{0xdc, 0, 0}), "cut array": envelop([]byte{0xdc, 0}),
		"empty map": envelop([]byte{0x80}), "word": envelop(pack(t, "cleared")),
		"no id":         envelop(pack(t, m{{"event", m{}}})),
		"negative id":   envelop(pack(t, m{{"worker_id", -1}})),
		"id of a word":  envelop(pack(t, m{{"worker_id", "1"}})),
		"payload a map": pack(t, m{topic, {"payload", m{}}}),
		"no payload":    pack(t, m{topic}),
		"huge":          {0xdf, 0xff, 0xff, 0xff, 0xff},
		"json":          []byte(`{`), "json without": []byte(`{"event":{}}`), "json cut": []byte(`{"worker_id":12`),
		"json float": []byte(`{"worker_id":1.5}`), "json word": []byte(`{"worker_id":"1"}`), "json large": []byte(`{"worker_id":18446744073709551616}`),
		"json no colon": []byte(`{"worker_id" 1}`), "json open string": []byte(`{"worker_`),
		"json open value": []byte(`{"a":"`), "json no comma": []byte(`{"a":{}}`), "json no key": []byte(`{1:2}`),
	} {
		if worker, ok := PeekWorker(msg); ok {
			t.Errorf("%s: %d", name, worker)
		}
		checkPeek(t, msg)
	}
}

// TestPeekCut: a message cut short peeks to the worker that the decoder finds in
// what is left, wherever it is cut.
func TestPeekCut(t *testing.T) {
	for _, gen := range []Generation{Gen12, Gen15} {
		whole := sixteen(t, gen)
		for cut := range whole {
			checkPeek(t, whole[:cut])
			if worker, ok := PeekWorker(whole[:cut]); ok && worker != math.MaxUint64-1 {
				t.Fatalf("cut at %d: %d", cut, worker)
			}
		}
	}
	for _, text := range bareEvents {
		for cut := range text {
			checkPeek(t, []byte(text[:cut]))
		}
	}
}

func BenchmarkPeekWorker(b *testing.B) {
	late := pack(b, m{{"payload", pack(b, a{m{{"event", m{{"event_id", 1}, {"data", "cleared"}}}, {"worker_id", 1}}})}, {"topic", "kv-events"}})
	for name, msg := range map[string][]byte{
		"map": sixteen(b, Gen12), "array": sixteen(b, Gen15), "any-order": late, "json": []byte(bareEvents[0]),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := PeekWorker(msg); !ok {
					b.Fatal("no worker")
				}
			}
		})
	}
}
