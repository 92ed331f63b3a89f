package dynamo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
)

// The JSON view of load messages: a slow, obvious second decoder. Fields that
// these structs lack, and ones that captures lack, fail the test.
type (
	wireMetrics struct {
		Worker  *uint64 `json:"worker_id"`
		Rank    *uint32 `json:"dp_rank"`
		Decode  *uint64 `json:"active_decode_blocks"`
		Prefill *uint64 `json:"active_prefill_tokens"`
		Used    *uint64 `json:"kv_used_blocks"`
	}
	wirePass struct {
		Version   uint32        `json:"version"`
		Worker    string        `json:"worker_id"`
		Rank      uint32        `json:"dp_rank"`
		Counter   uint64        `json:"counter_id"`
		WallTime  float64       `json:"wall_time"`
		Scheduled *wireRequests `json:"scheduled_requests"`
		Queued    *wireRequests `json:"queued_requests"`
	}
	wireRequests struct {
		Prefills        uint64  `json:"num_prefill_requests"`
		PrefillTokens   uint64  `json:"sum_prefill_tokens"`
		PrefillVariance float64 `json:"var_prefill_length"`
		PrefillKV       uint64  `json:"sum_prefill_kv_tokens"`
		Decodes         uint64  `json:"num_decode_requests"`
		DecodeKV        uint64  `json:"sum_decode_kv_tokens"`
		DecodeVariance  float64 `json:"var_decode_kv_tokens"`
	}
	wireSequence struct {
		Request string `json:"request_id"`
		Worker  struct {
			ID   uint64 `json:"worker_id"`
			Rank uint32 `json:"dp_rank"`
		} `json:"worker"`
		Data   json.RawMessage `json:"data"`
		Router uint64          `json:"router_id"`
		LoRA   *string         `json:"lora_name"`
	}
	wireAdded struct {
		Sequence *[]uint64 `json:"token_sequence"`
		Track    bool      `json:"track_prefill_tokens"`
		Output   *uint32   `json:"expected_output_tokens"`
		Hint     *struct {
			Tokens   uint64 `json:"initial_effective_prefill_tokens"`
			Duration *struct {
				Secs  uint64 `json:"secs"`
				Nanos uint32 `json:"nanos"`
			} `json:"expected_prefill_duration"`
		} `json:"prefill_load_hint"`
	}
)

// parseStrict decodes JSON and refuses fields that v lacks.
func parseStrict(t *testing.T, raw []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
}

func optional[T any](p *T) Optional[T] {
	if p == nil {
		return Optional[T]{}
	}
	return Optional[T]{Value: *p, Set: true}
}

// wantLoad returns what the JSON view of a load message's payload says.
func wantLoad(t *testing.T, topic string, payload []byte) Load {
	t.Helper()
	switch topic {
	case TopicKVMetrics:
		var w wireMetrics
		parseStrict(t, payload, &w)
		return Load{Kind: LoadMetrics, Metrics: KVMetrics{
			*w.Worker, *w.Rank, optional(w.Decode), optional(w.Prefill), optional(w.Used),
		}}
	case TopicForwardPassMetrics:
		var w wirePass
		parseStrict(t, payload, &w)
		id, err := strconv.ParseUint(w.Worker, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return Load{Kind: LoadForwardPass, Pass: ForwardPass{
			w.Version, id, w.Rank, w.Counter, w.WallTime, wantRequests(w.Scheduled), wantRequests(w.Queued),
		}}
	case TopicActiveSequences:
		var w wireSequence
		parseStrict(t, payload, &w)
		e := SequenceEvent{RequestID: []byte(w.Request), WorkerID: w.Worker.ID, Rank: w.Worker.Rank, RouterID: w.Router}
		if w.LoRA != nil {
			e.LoRA = []byte(*w.LoRA)
		}
		wantData(t, w.Data, &e)
		return Load{Kind: LoadSequence, Sequence: e}
	}
	t.Fatalf("topic %q", topic)
	return Load{}
}

func wantRequests(w *wireRequests) Optional[Requests] {
	if w == nil {
		return Optional[Requests]{}
	}
	return some(Requests{w.Prefills, w.PrefillTokens, w.PrefillVariance, w.PrefillKV, w.Decodes, w.DecodeKV, w.DecodeVariance})
}

func wantData(t *testing.T, data json.RawMessage, e *SequenceEvent) {
	t.Helper()
	switch string(data) {
	case `"Free"`:
		e.Kind = Free
		return
	case `"MarkPrefillCompleted"`:
		e.Kind = MarkPrefillCompleted
		return
	}
	var tagged struct {
		AddRequest *wireAdded
	}
	parseStrict(t, data, &tagged)
	w := tagged.AddRequest
	e.Kind = AddRequest
	e.Added = Added{TrackPrefill: w.Track, OutputTokens: optional(w.Output)}
	if w.Sequence != nil {
		e.Added.Sequence.Set = true
		for _, h := range *w.Sequence {
			e.Added.Sequence.Value = append(e.Added.Sequence.Value, block.Chain(h))
		}
	}
	if w.Hint != nil {
		e.Added.Hint = some(PrefillHint{Tokens: w.Hint.Tokens})
		if d := w.Hint.Duration; d != nil {
			e.Added.Hint.Value.Duration = some(PrefillDuration{d.Secs, d.Nanos})
		}
	}
}

// cloneLoad returns a load that outlives the next decode.
func cloneLoad(l *Load) Load {
	c := *l
	c.Sequence.RequestID = bytes.Clone(c.Sequence.RequestID)
	c.Sequence.LoRA = bytes.Clone(c.Sequence.LoRA)
	c.Sequence.Added.Sequence.Value = slices.Clone(c.Sequence.Added.Sequence.Value)
	return c
}

// loadMessage returns body, topic and, of NATS, subject of a line that is a load
// message.
func loadMessage(t *testing.T, l captureLine) (msg []byte, topic string, subject *Subject) {
	t.Helper()
	if l.Subject != "" {
		s, err := ParseSubject(l.Subject)
		if err != nil {
			return nil, "", nil // JetStream's
		}
		return l.Data, s.Topic, &s
	}
	var first []string
	if json.Unmarshal(l.Frames, &first) != nil {
		return nil, "", nil // an exchange with the recovery endpoint
	}
	topic, msg = zmqBody(t, l.Frames)
	return msg, topic, nil
}

// TestLoadCaptures decodes every recorded load message to exactly what was
// recorded beside it, and encodes it to the same bytes. The numbers say how many
// messages each file has, lest some go missing unseen.
func TestLoadCaptures(t *testing.T) {
	// Messages of kv_metrics, forward-pass-metrics and active_sequences_events.
	want := map[string][3]int{
		"1.2.1-aggregated":    {80, 24, 87},
		"1.2.1-disaggregated": {80, 24, 96},
		"1.2.1-dp2":           {80, 24, 87},
		"1.2.1-durable":       {80, 24, 87},
		"1.2.1-engine-events": {},
		"1.2.1-kubernetes":    {13, 24, 0},
		"1.2.1-recovery":      {},
		"1.2.1-zmq":           {8, 8, 0},
		"1.3.1-aggregated":    {80, 24, 90},
		"1.4.2-aggregated":    {80, 24, 90},
		"1.5.1-aggregated":    {58, 24, 96},
		"1.6.1-aggregated":    {43, 24, 96},
		"1.6.1-disaggregated": {45, 24, 96},
		"1.6.1-dp2":           {42, 24, 96},
		"1.6.1-engine-events": {},
		"1.6.1-host-offload":  {46, 24, 96},
		"1.6.1-kubernetes":    {13, 24, 0},
		"1.6.1-recovery":      {},
		"1.6.1-zmq":           {7, 8, 0},
	}
	onDisk, err := filepath.Glob(filepath.Join(captureDir, "*.jsonl"))
	if err != nil || len(onDisk) != len(want) {
		t.Fatalf("%d capture files (%v), want %d", len(onDisk), err, len(want))
	}
	var d LoadDecoder // one for all: its buffers are reused
	var sum LoadStats
	for name, counts := range want {
		t.Run(name, func(t *testing.T) {
			var got [3]int
			for i, line := range readCapture(t, name+".jsonl") {
				msg, topic, subject := loadMessage(t, line)
				kind := kindOfTopic(topic)
				if kind == 0 {
					continue
				}
				got[kind-1]++
				checkLoadSubject(t, subject, line.Subject)
				checkLoadLine(t, &d, fmt.Sprintf("line %d", i+1), msg, line.Decoded)
			}
			if got != counts {
				t.Errorf("messages %v, want %v", got, counts)
			}
		})
		sum.Metrics += uint64(counts[0])
		sum.Passes += uint64(counts[1])
		sum.Sequences += uint64(counts[2])
	}
	sum.Messages = sum.Metrics + sum.Passes + sum.Sequences
	if d.Stats() != sum {
		t.Errorf("stats %+v, want %+v", d.Stats(), sum)
	}
}

func checkLoadLine(t *testing.T, d *LoadDecoder, at string, msg []byte, decoded json.RawMessage) {
	t.Helper()
	var w wire
	parseExact(t, decoded, &w)
	env, got, err := d.Decode(msg)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if want := (Envelope{w.PublisherID, w.Sequence, w.PublishedAt, w.Topic}); env != want {
		t.Fatalf("%s: envelope %+v, want %+v", at, env, want)
	}
	if diff := cmp.Diff(wantLoad(t, w.Topic, w.Payload), *got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", at, diff)
	}
	again, err := AppendLoad(nil, env, got)
	if err != nil || !bytes.Equal(again, msg) {
		t.Fatalf("%s: encoded again (%v)\n got %x\nwant %x", at, err, again, msg)
	}
}

// checkLoadSubject: a recorded subject is the one that LoadSubject gives, and
// matches exactly one of the subscriptions.
func checkLoadSubject(t *testing.T, s *Subject, recorded string) {
	t.Helper()
	if s == nil {
		return // ZMQ
	}
	gen := Gen12
	if s.Scope == EndpointScope {
		gen = Gen14
	}
	if got := LoadSubject(gen, s.Topic, s.Namespace, s.Component, s.Endpoint); got != recorded {
		t.Errorf("subject %s, recorded %s", got, recorded)
	}
	if n := subscriptions(recorded); n != 1 {
		t.Errorf("subject %s is matched by %d subscriptions", recorded, n)
	}
}

// subscriptions counts the load subscriptions that match a subject, by NATS's
// rule for '*'.
func subscriptions(subject string) int {
	n := 0
	for _, pattern := range LoadSubjects() {
		if slices.EqualFunc(strings.Split(pattern, "."), strings.Split(subject, "."),
			func(p, s string) bool { return p == "*" || p == s }) {
			n++
		}
	}
	return n
}

// TestDamagedLoadCaptures: a real message cut anywhere is an error, and one with
// a wrong byte anywhere is an error or not, but never a panic.
func TestDamagedLoadCaptures(t *testing.T) {
	var d LoadDecoder
	for _, name := range []string{"1.2.1-disaggregated", "1.6.1-aggregated"} {
		seen := map[string]int{}
		for _, l := range readCapture(t, name+".jsonl") {
			msg, topic, _ := loadMessage(t, l)
			if kindOfTopic(topic) == 0 || seen[topic] == 8 {
				continue
			}
			seen[topic]++
			msg = bytes.Clone(msg)
			for i := range msg {
				if _, got, err := d.Decode(msg[:i]); err == nil || got != nil {
					t.Fatalf("cut at %d of %d was accepted", i, len(msg))
				}
				for _, flip := range []byte{0x01, 0x10, 0x80, 0xff} {
					msg[i] ^= flip
					if _, got, err := d.Decode(msg); (err == nil) != (got != nil) {
						t.Fatalf("load %v beside error %v", got, err)
					}
					msg[i] ^= flip
				}
			}
		}
		if len(seen) != 3 {
			t.Errorf("%s has %v", name, seen)
		}
	}
	if s := d.Stats(); s.Metrics == 0 || s.Passes == 0 || s.Sequences == 0 || s.BadMessages == 0 || s.UnknownFields == 0 {
		t.Errorf("stats %+v: some damage is never accepted, or does nothing", s)
	}
}
