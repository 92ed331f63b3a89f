package dynamo

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// hexMetrics is the example payload of dynamo.md 1.5.
const hexMetrics = "85a9776f726b65725f6964cf00043710f49c0cffa764705f72616e6b00b46163746976655f6465636f64655f626c6f636b73c0b56163746976655f70726566696c6c5f746f6b656e73c0ae6b765f757365645f626c6f636b73cd04d2"

// The examples of dynamo.md 1.6 and 1.7, written by hand as trees.
var (
	treeAdd = sequenceTree(m{{"AddRequest", m{
		{"token_sequence", a{uint64(14643705804678351452), uint64(4945711292740353085)}},
		{"track_prefill_tokens", true},
		{"expected_output_tokens", nil},
		{"prefill_load_hint", nil},
	}}})
	treePrefilled = sequenceTree("MarkPrefillCompleted")
	treeFree      = sequenceTree("Free")
	treePass      = m{
		{"version", 1},
		{"worker_id", "1186445869714687"},
		{"dp_rank", 0},
		{"counter_id", uint64(8812)},
		{"wall_time", 0.0213},
		{"scheduled_requests", m{
			{"num_prefill_requests", 1},
			{"sum_prefill_tokens", uint64(2048)},
			{"var_prefill_length", 0.0},
			{"sum_prefill_kv_tokens", 0},
			{"num_decode_requests", 31},
			{"sum_decode_kv_tokens", uint64(90112)},
			{"var_decode_kv_tokens", 12.5},
		}},
		{"queued_requests", m{
			{"num_prefill_requests", 3},
			{"sum_prefill_tokens", uint64(6000)},
			{"var_prefill_length", 4.0},
			{"num_decode_requests", 0},
			{"sum_decode_kv_tokens", 0},
			{"var_decode_kv_tokens", 0.0},
		}},
	}
)

func sequenceTree(data any) m {
	return m{
		{"request_id", "req-1"},
		{"worker", m{{"worker_id", uint64(worker0)}, {"dp_rank", 0}}},
		{"data", data},
		{"router_id", 77},
		{"lora_name", nil},
	}
}

// The same as values.
var (
	exampleMetrics = Load{Kind: LoadMetrics, Metrics: KVMetrics{WorkerID: worker0, UsedBlocks: some[uint64](1234)}}
	exampleAdd     = sequenceLoad(SequenceEvent{Kind: AddRequest, Added: Added{
		Sequence: some([]block.Chain{14643705804678351452, 4945711292740353085}), TrackPrefill: true,
	}})
	examplePrefilled = sequenceLoad(SequenceEvent{Kind: MarkPrefillCompleted})
	exampleFree      = sequenceLoad(SequenceEvent{Kind: Free})
	examplePass      = Load{Kind: LoadForwardPass, Pass: ForwardPass{
		Version: 1, WorkerID: worker0, Counter: 8812, WallTime: 0.0213,
		Scheduled: some(Requests{Prefills: 1, PrefillTokens: 2048, Decodes: 31, DecodeKVTokens: 90112, DecodeVariance: 12.5}),
		Queued:    some(Requests{Prefills: 3, PrefillTokens: 6000, PrefillVariance: 4}),
	}}
)

func sequenceLoad(e SequenceEvent) Load {
	e.RequestID, e.WorkerID, e.RouterID = []byte("req-1"), worker0, 77
	return Load{Kind: LoadSequence, Sequence: e}
}

// envelopTopic wraps a payload as publishers of the topic do.
func envelopTopic(topic string, payload []byte) []byte {
	b := msgp.AppendMapHeader(nil, 5)
	b = msgp.AppendUint64(msgp.AppendString(b, "publisher_id"), worker0)
	b = msgp.AppendUint64(msgp.AppendString(b, "sequence"), 0)
	b = msgp.AppendUint64(msgp.AppendString(b, "published_at"), 1750000000000)
	b = msgp.AppendString(msgp.AppendString(b, "topic"), topic)
	return msgp.AppendBytes(msgp.AppendString(b, "payload"), payload)
}

func TestLoadExamples(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    Load
	}{
		{"kv_metrics", unhexString(t, hexMetrics), exampleMetrics},
		{"forward pass", pack(t, treePass), examplePass},
		{"add", pack(t, treeAdd), exampleAdd},
		{"prefilled", pack(t, treePrefilled), examplePrefilled},
		{"free", pack(t, treeFree), exampleFree},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic := c.want.Kind.String()
			msg := envelopTopic(topic, c.payload)
			var d LoadDecoder
			env, got, err := d.Decode(msg)
			if err != nil || env != (Envelope{worker0, 0, 1750000000000, topic}) {
				t.Fatalf("%+v, %v", env, err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Fatal(diff)
			}
			again, err := AppendLoad([]byte("kept"), env, got)
			if err != nil || string(again) != "kept"+string(msg) {
				t.Fatalf("encoded again (%v)\n got %x\nwant %x", err, again, msg)
			}
		})
	}
}

// set returns fields with one replaced, or added.
func set(fields m, key string, val any) m {
	out := append(m(nil), fields...)
	for i := range out {
		if out[i].key == key {
			out[i].val = val
			return out
		}
	}
	return append(out, kv{key, val})
}

// without returns fields without one.
func without(fields m, key string) m {
	var out m
	for _, f := range fields {
		if f.key != key {
			out = append(out, f)
		}
	}
	return out
}

// values returns the positional form of a struct.
func values(fields m) a {
	var out a
	for _, f := range fields {
		out = append(out, f.val)
	}
	return out
}

// added is a sequence event that adds a request with the given fields.
func added(fields ...kv) m { return sequenceTree(m{{"AddRequest", m(fields)}}) }

func hint(fields ...kv) m { return added(kv{"prefill_load_hint", m(fields)}) }

// TestLoadForms: everything that is accepted although no release writes it so.
func TestLoadForms(t *testing.T) {
	metrics := func(k KVMetrics) Load { return Load{Kind: LoadMetrics, Metrics: k} }
	pass := func(p ForwardPass) Load { return Load{Kind: LoadForwardPass, Pass: p} }
	adds := func(x Added) Load { return sequenceLoad(SequenceEvent{Kind: AddRequest, Added: x}) }
	edit := func(l Load, f func(*Load)) Load { f(&l); return l }
	zero := some[uint64](0)
	huge := uint64(math.MaxUint64)
	scheduled, queued := treePass[5].val.(m), treePass[6].val.(m)
	addFields := treeAdd[2].val.(m)[0].val.(m)
	for _, c := range []struct {
		name    string
		payload any
		want    Load
		unknown uint64
	}{
		{"metrics: least", m{{"worker_id", 5}}, metrics(KVMetrics{WorkerID: 5}), 0},
		{
			"metrics: nil is not zero",
			m{{"kv_used_blocks", nil}, {"active_prefill_tokens", 0}, {"active_decode_blocks", nil}, {"worker_id", 5}, {"dp_rank", nil}},
			metrics(KVMetrics{WorkerID: 5, PrefillTokens: zero}), 0,
		},
		{
			"metrics: largest",
			m{{"worker_id", huge}, {"dp_rank", math.MaxUint32}, {"active_decode_blocks", huge}, {"active_prefill_tokens", uint64(1<<53 + 1)}, {"kv_used_blocks", huge}},
			metrics(KVMetrics{huge, math.MaxUint32, some(huge), some[uint64](1<<53 + 1), some(huge)}), 0,
		},
		{"metrics: positional", a{5, 1, nil, 0, 7}, metrics(KVMetrics{5, 1, Optional[uint64]{}, zero, some[uint64](7)}), 0},
		{"metrics: short positional", a{5, 1, 3}, metrics(KVMetrics{WorkerID: 5, Rank: 1, DecodeBlocks: some[uint64](3)}), 0},
		{"metrics: long positional", a{5, 1, nil, nil, nil, m{{1, a{}}}, "x"}, metrics(KVMetrics{WorkerID: 5, Rank: 1}), 2},
		{
			"metrics: unknown keys, keys as bytes",
			m{{"total", a{1, m{{"x", 1}}}}, {[]byte("worker_id"), 5}, {7, 8}, {nil, nil}, {"dp_rank", 2}},
			metrics(KVMetrics{WorkerID: 5, Rank: 2}), 3,
		},
		{
			"metrics: the last of equal keys counts",
			m{{"worker_id", 4}, {"dp_rank", 9}, {"kv_used_blocks", 9}, {"active_decode_blocks", nil}, {"worker_id", 5}, {"dp_rank", nil}, {"kv_used_blocks", nil}, {"active_decode_blocks", 0}},
			metrics(KVMetrics{WorkerID: 5, DecodeBlocks: zero}), 0,
		},
		{
			"metrics: integers longer than needed, signed",
			m{{"worker_id", raw{0xcf, 0, 0, 0, 0, 0, 0, 0, 5}}, {"dp_rank", raw{0xd1, 0, 1}}, {"kv_used_blocks", raw{0xd3, 0, 0, 0, 0, 0, 0, 0, 0}}},
			metrics(KVMetrics{WorkerID: 5, Rank: 1, UsedBlocks: zero}), 0,
		},

		{"pass: least", m{{"worker_id", "5"}}, pass(ForwardPass{WorkerID: 5}), 0},
		{"pass: worker as integer", m{{"worker_id", huge}}, pass(ForwardPass{WorkerID: huge}), 0},
		{"pass: largest worker", m{{"worker_id", "18446744073709551615"}}, pass(ForwardPass{WorkerID: huge}), 0},
		{
			"pass: not stated is not zero",
			m{{"worker_id", "5"}, {"scheduled_requests", nil}, {"queued_requests", m{}}},
			pass(ForwardPass{WorkerID: 5, Queued: some(Requests{})}), 0,
		},
		{
			"pass: the last of equal keys counts",
			m{{"worker_id", "4"}, {"dp_rank", 4}, {"queued_requests", queued}, {"scheduled_requests", scheduled}, {"worker_id", "5"}, {"dp_rank", nil}, {"queued_requests", nil}, {"scheduled_requests", m{{"num_decode_requests", 1}, {"num_decode_requests", 2}}}},
			pass(ForwardPass{WorkerID: 5, Scheduled: some(Requests{Decodes: 2})}), 0,
		},
		{"pass: positional", values(treePass), examplePass, 0},
		{"pass: all positional", a{1, "1186445869714687", 0, 8812, 0.0213, values(scheduled), append(values(queued), 1), "more"}, examplePass, 2},
		{
			"pass: unknown keys",
			append(m{{"gpu", a{}}}, set(set(treePass, "scheduled_requests", append(m{{"x", nil}}, scheduled...)), "queued_requests", append(m{{"sum_prefill_kv_tokens", 3}}, queued...))...),
			examplePass, 3,
		},
		{
			"pass: numbers of all kinds",
			m{{"worker_id", "5"}, {"wall_time", float32(0.5)}, {"queued_requests", m{{"var_prefill_length", 3}, {"var_decode_kv_tokens", -1}}}, {"scheduled_requests", m{{"var_prefill_length", uint64(1 << 63)}, {"var_decode_kv_tokens", math.Inf(1)}}}},
			pass(ForwardPass{
				WorkerID: 5, WallTime: 0.5, Queued: some(Requests{PrefillVariance: 3, DecodeVariance: -1}),
				Scheduled: some(Requests{PrefillVariance: 1 << 63, DecodeVariance: math.Inf(1)}),
			}), 0,
		},
		{"pass: not a number", m{{"worker_id", "5"}, {"wall_time", math.NaN()}}, pass(ForwardPass{WorkerID: 5, WallTime: math.NaN()}), 0},

		{"sequence: words as maps", sequenceTree(m{{"Free", nil}}), exampleFree, 0},
		{"sequence: no lora_name", without(treePrefilled, "lora_name"), examplePrefilled, 0},
		{"sequence: lora", set(treeFree, "lora_name", "sql"), edit(exampleFree, func(l *Load) { l.Sequence.LoRA = []byte("sql") }), 0},
		{"sequence: empty lora is one", set(treeFree, "lora_name", ""), edit(exampleFree, func(l *Load) { l.Sequence.LoRA = []byte{} }), 0},
		{"sequence: empty request", set(treeFree, "request_id", ""), edit(exampleFree, func(l *Load) { l.Sequence.RequestID = []byte{} }), 0},
		{"sequence: nil rank", set(treeFree, "worker", m{{"worker_id", worker0}, {"dp_rank", nil}}), exampleFree, 0},
		{"sequence: no rank", set(treeFree, "worker", m{{"worker_id", worker0}}), exampleFree, 0},
		{
			"sequence: largest",
			set(set(treeFree, "router_id", huge), "worker", m{{"worker_id", huge}, {"dp_rank", math.MaxUint32}}),
			edit(exampleFree, func(l *Load) {
				l.Sequence.RouterID, l.Sequence.WorkerID, l.Sequence.Rank = huge, huge, math.MaxUint32
			}), 0,
		},
		{"sequence: least request", added(), adds(Added{TrackPrefill: true}), 0},
		{"sequence: empty is stated", added(kv{"token_sequence", a{}}, kv{"track_prefill_tokens", false}), adds(Added{Sequence: some[[]block.Chain](nil)}), 0},
		{
			"sequence: signed hashes",
			added(kv{"token_sequence", a{-1, int64(math.MinInt64), huge, 0}}),
			adds(Added{TrackPrefill: true, Sequence: some([]block.Chain{math.MaxUint64, 1 << 63, math.MaxUint64, 0})}), 0,
		},
		{
			"sequence: all of a request",
			added(kv{"prefill_load_hint", m{{"expected_prefill_duration", m{{"nanos", 999999999}, {"secs", huge}}}, {"initial_effective_prefill_tokens", huge}}}, kv{"expected_output_tokens", math.MaxUint32}),
			adds(Added{TrackPrefill: true, OutputTokens: some[uint32](math.MaxUint32), Hint: some(PrefillHint{huge, some(PrefillDuration{huge, 999999999})})}), 0,
		},
		{"sequence: nothing expected is stated", added(kv{"expected_output_tokens", 0}), adds(Added{TrackPrefill: true, OutputTokens: some[uint32](0)}), 0},
		{"sequence: hint without duration", hint(kv{"initial_effective_prefill_tokens", 0}), adds(Added{TrackPrefill: true, Hint: some(PrefillHint{})}), 0},
		{
			"sequence: positional",
			a{"req-1", a{worker0, 0}, m{{"AddRequest", values(addFields)}}, 77, nil},
			exampleAdd, 0,
		},
		{
			"sequence: long positional",
			a{"req-1", a{worker0, 0, 1}, m{{"AddRequest", a{nil, true, nil, a{8, a{1, 2, 3}, 4}, 5}}}, 77, nil, "more"},
			adds(Added{TrackPrefill: true, Hint: some(PrefillHint{8, some(PrefillDuration{1, 2})})}), 5,
		},
		{
			"sequence: unknown keys",
			append(m{{"x", m{{"y", a{}}}}, {3, 4}}, set(set(treeAdd, "worker", m{{"pod", "p"}, {"worker_id", worker0}}), "data", m{{"AddRequest", append(m{{"isl", 3}}, addFields...)}})...),
			exampleAdd, 4,
		},
		{
			"sequence: the last of equal keys counts",
			append(
				m{{"lora_name", "x"}, {"worker", m{{"worker_id", 9}, {"dp_rank", 9}}}, {"data", m{{"AddRequest", m{{"token_sequence", a{1, 2, 3}}, {"expected_output_tokens", 7}}}}}},
				added(kv{"token_sequence", a{4}}, kv{"token_sequence", nil}, kv{"expected_output_tokens", 8}, kv{"expected_output_tokens", nil}, kv{"prefill_load_hint", m{{"initial_effective_prefill_tokens", 3}}}, kv{"prefill_load_hint", nil})...,
			),
			adds(Added{TrackPrefill: true}), 0,
		},
		{"sequence: a later word counts", append(m{{"data", treeAdd[2].val}}, treeFree...), exampleFree, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d LoadDecoder
			_, got, err := d.Decode(envelopTopic(c.want.Kind.String(), pack(t, c.payload)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got, cmpopts.EquateNaNs()); diff != "" {
				t.Error(diff)
			}
			s := d.Stats()
			if s.UnknownFields != c.unknown || s.Messages != 1 || s.BadMessages != 0 || s.Metrics+s.Passes+s.Sequences != 1 {
				t.Errorf("stats %+v, want %d unknown fields", s, c.unknown)
			}
		})
	}
}

// TestLoadEnvelopes: forms of the envelope that are accepted.
func TestLoadEnvelopes(t *testing.T) {
	payload := unhexString(t, hexMetrics)
	numbers := a{}
	for _, c := range payload {
		numbers = append(numbers, uint64(c))
	}
	topic := kv{"topic", TopicKVMetrics}
	for _, c := range []struct {
		name    string
		msg     any
		want    Envelope
		unknown uint64
	}{
		{"positional", a{1, 2, 3, TopicKVMetrics, payload}, Envelope{1, 2, 3, TopicKVMetrics}, 0},
		{"positional with more", a{1, 2, 3, TopicKVMetrics, payload, nil}, Envelope{1, 2, 3, TopicKVMetrics}, 1},
		{
			"any order, unknown keys",
			m{{"payload", payload}, {"v", 2}, {"sequence", 9}, topic, {"publisher_id", uint64(math.MaxUint64)}},
			Envelope{math.MaxUint64, 9, 0, TopicKVMetrics},
			1,
		},
		{"payload of small integers", m{topic, {"payload", numbers}}, Envelope{Topic: TopicKVMetrics}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d LoadDecoder
			env, got, err := d.Decode(pack(t, c.msg))
			if err != nil || env != c.want {
				t.Fatalf("%+v, %v", env, err)
			}
			if diff := cmp.Diff(exampleMetrics, *got); diff != "" {
				t.Error(diff)
			}
			if want := (LoadStats{Messages: 1, Metrics: 1, UnknownFields: c.unknown}); d.Stats() != want {
				t.Errorf("stats %+v, want %+v", d.Stats(), want)
			}
		})
	}
}

// TestBadLoads: what makes a payload an error, and its reason.
func TestBadLoads(t *testing.T) {
	const (
		kvm = TopicKVMetrics
		fpm = TopicForwardPassMetrics
		seq = TopicActiveSequences
	)
	huge := raw{0xdd, 0xff, 0xff, 0xff, 0xff} // an array of 2^32-1
	deep := raw(strings.Repeat("\x91", 1<<16) + "\xc0")
	requests := func(fields ...kv) m { return m{{"worker_id", "5"}, {"queued_requests", m(fields)}} }
	duration := func(v any) m {
		return hint(kv{"initial_effective_prefill_tokens", 1}, kv{"expected_prefill_duration", v})
	}
	for _, c := range []struct {
		topic   string
		payload any
		is      error
		why     string
	}{
		{kvm, nil, msgpack.ErrShape, "payload"},
		{kvm, "x", msgpack.ErrShape, "payload"},
		{kvm, raw{}, io.ErrUnexpectedEOF, "payload"},
		{kvm, raw{0xc1}, msgpack.ErrShape, "payload"},
		{kvm, m{}, errNoWorker, ""},
		{kvm, a{}, errNoWorker, ""},
		{kvm, huge, io.ErrUnexpectedEOF, ""},
		{kvm, raw{0xdf, 0xff, 0xff, 0xff, 0xff}, io.ErrUnexpectedEOF, ""},
		{kvm, deep, msgpack.ErrInteger, "worker_id"},
		{kvm, a{a{5, 0, nil, nil, nil}}, msgpack.ErrInteger, "worker_id"}, // no batches of these
		{kvm, m{{"worker_id", nil}}, msgpack.ErrInteger, "worker_id"},
		{kvm, m{{"worker_id", "5"}}, msgpack.ErrInteger, "worker_id"},
		{kvm, m{{"worker_id", -5}}, msgpack.ErrNegative, "worker_id"},
		{kvm, m{{"worker_id", 5}, {"dp_rank", 1 << 32}}, msgpack.ErrRange32, "dp_rank"},
		{kvm, m{{"worker_id", 5}, {"dp_rank", -1}}, msgpack.ErrNegative, "dp_rank"},
		{kvm, m{{"worker_id", 5}, {"kv_used_blocks", -1}}, msgpack.ErrNegative, "kv_used_blocks"},
		{kvm, m{{"worker_id", 5}, {"active_prefill_tokens", 1.0}}, msgpack.ErrInteger, "active_prefill_tokens"},
		{kvm, m{{"worker_id", 5}, {"active_decode_blocks", a{}}}, msgpack.ErrInteger, "active_decode_blocks"},
		{kvm, m{{"worker_id", 5}, {"x", huge}}, io.ErrUnexpectedEOF, "unknown field"},
		{kvm, raw(append(pack(t, m{{"worker_id", 5}}), 0xc0)), nil, "1 bytes follow it"},

		{fpm, 1.5, msgpack.ErrShape, "payload"},
		{fpm, m{}, errNoWorker, ""},
		{fpm, m{{"worker_id", ""}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", "-5"}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", "+5"}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", "0x5"}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", "5 "}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", "18446744073709551616"}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", strings.Repeat("0", 1<<16)}}, errDecimal, "worker_id"},
		{fpm, m{{"worker_id", nil}}, msgpack.ErrString, "worker_id"},
		{fpm, m{{"worker_id", 5.0}}, msgpack.ErrString, "worker_id"},
		{fpm, m{{"worker_id", -5}}, msgpack.ErrNegative, "worker_id"},
		{fpm, set(treePass, "version", "1"), msgpack.ErrInteger, "version"},
		{fpm, set(treePass, "version", 1<<32), msgpack.ErrRange32, "version"},
		{fpm, set(treePass, "counter_id", nil), msgpack.ErrInteger, "counter_id"},
		{fpm, set(treePass, "wall_time", nil), errNumber, "wall_time"},
		{fpm, set(treePass, "wall_time", "1"), errNumber, "wall_time"},
		{fpm, m{{"worker_id", "5"}, {"wall_time", raw{0xcb, 0, 0}}}, io.ErrUnexpectedEOF, "wall_time"},
		{fpm, m{{"worker_id", "5"}, {"wall_time", raw{}}}, io.ErrUnexpectedEOF, "wall_time"},
		{fpm, set(treePass, "scheduled_requests", 3), msgpack.ErrShape, "scheduled_requests"},
		{fpm, requests(kv{"num_prefill_requests", -1}), msgpack.ErrNegative, "queued_requests: num_prefill_requests"},
		{fpm, requests(kv{"sum_prefill_tokens", nil}), msgpack.ErrInteger, "queued_requests: sum_prefill_tokens"},
		{fpm, requests(kv{"num_decode_requests", 1.5}), msgpack.ErrInteger, "queued_requests: num_decode_requests"},
		{fpm, requests(kv{"sum_decode_kv_tokens", "1"}), msgpack.ErrInteger, "queued_requests: sum_decode_kv_tokens"},
		{fpm, requests(kv{"var_decode_kv_tokens", true}), errNumber, "queued_requests: var_decode_kv_tokens"},
		{fpm, requests(kv{"x", huge}), io.ErrUnexpectedEOF, "queued_requests: unknown field"},

		{seq, true, msgpack.ErrShape, "payload"},
		{seq, without(treeFree, "request_id"), errNoRequest, ""},
		{seq, without(treeFree, "worker"), errNoPlace, ""},
		{seq, without(treeFree, "data"), errNoData, ""},
		{seq, without(treeFree, "router_id"), errNoRouter, ""},
		{seq, set(treeFree, "request_id", nil), msgpack.ErrString, "request_id"},
		{seq, set(treeFree, "request_id", []byte("x")), msgpack.ErrString, "request_id"},
		{seq, set(treeFree, "worker", 5), msgpack.ErrShape, "worker"},
		{seq, set(treeFree, "worker", m{{"dp_rank", 5}}), errNoWorker, "worker"},
		{seq, set(treeFree, "worker", m{{"worker_id", -1}}), msgpack.ErrNegative, "worker: worker_id"},
		{seq, set(treeFree, "worker", a{1, 1 << 32}), msgpack.ErrRange32, "worker: dp_rank"},
		{seq, set(treeFree, "router_id", "77"), msgpack.ErrInteger, "router_id"},
		{seq, set(treeFree, "lora_name", 1), msgpack.ErrString, "lora_name"},
		{seq, sequenceTree(nil), errData, "data"},
		{seq, sequenceTree(a{"Free"}), errData, "data"},
		{seq, sequenceTree(m{}), errData, "data"},
		{seq, sequenceTree(m{{"Free", nil}, {"AddRequest", m{}}}), errData, "data"},
		{seq, sequenceTree(m{{1, nil}}), msgpack.ErrString, "data"},
		{seq, sequenceTree("free"), nil, `data: unknown change "free"`},
		{seq, sequenceTree(m{{"Move", m{}}}), nil, `data: unknown change "Move"`},
		{seq, sequenceTree(strings.Repeat("x", 1<<16)), nil, "unknown change"},
		{seq, sequenceTree("AddRequest"), nil, "AddRequest: says nothing of the request"},
		{seq, sequenceTree(m{{"AddRequest", nil}}), msgpack.ErrShape, "data"},
		{seq, sequenceTree(m{{"MarkPrefillCompleted", 1}}), nil, "MarkPrefillCompleted: not nil"},
		{seq, added(kv{"token_sequence", m{}}), msgpack.ErrArray, "data: token_sequence"},
		{seq, added(kv{"token_sequence", a{1, nil}}), msgpack.ErrInteger, "data: token_sequence"},
		{seq, added(kv{"token_sequence", huge}), io.ErrUnexpectedEOF, "data: token_sequence"},
		{seq, added(kv{"track_prefill_tokens", nil}), errBool, "data: track_prefill_tokens"},
		{seq, added(kv{"track_prefill_tokens", 1}), errBool, "data: track_prefill_tokens"},
		{seq, added(kv{"expected_output_tokens", 1 << 32}), msgpack.ErrRange32, "data: expected_output_tokens"},
		{seq, added(kv{"prefill_load_hint", 1}), msgpack.ErrShape, "data: prefill_load_hint"},
		{seq, hint(), errNoTokens, "data: prefill_load_hint"},
		{seq, hint(kv{"initial_effective_prefill_tokens", nil}), msgpack.ErrInteger, "initial_effective_prefill_tokens"},
		{seq, duration(1.5), msgpack.ErrShape, "expected_prefill_duration"},
		{seq, duration(m{}), errNoDuration, "expected_prefill_duration"},
		{seq, duration(m{{"secs", 1}}), errNoDuration, "expected_prefill_duration"},
		{seq, duration(m{{"nanos", 1}}), errNoDuration, "expected_prefill_duration"},
		{seq, duration(a{1, 1000000000}), errNanos, "expected_prefill_duration: nanos"},
		{seq, duration(a{-1, 0}), msgpack.ErrNegative, "expected_prefill_duration: secs"},
		{seq, raw(append(pack(t, treeFree), pack(t, treeFree)...)), nil, "bytes follow it"},
	} {
		msg := envelopTopic(c.topic, pack(t, c.payload))
		checkBadLoad(t, msg, c.is, c.topic+" payload: ")
		checkBadLoad(t, msg, c.is, c.why)
	}
}

// TestBadLoadMessages: what makes an envelope an error.
func TestBadLoadMessages(t *testing.T) {
	ok := unhexString(t, hexMetrics)
	topic := kv{"topic", TopicKVMetrics}
	for _, c := range []struct {
		msg []byte
		is  error
		why string
	}{
		{nil, io.ErrUnexpectedEOF, "envelope"},
		{[]byte(`{"worker_id":1}`), msgpack.ErrShape, "envelope"},
		{[]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, io.ErrUnexpectedEOF, "envelope"},
		{envelop(ok), ErrLoadTopic, `but "kv-events"`},
		{pack(t, m{{"payload", ok}}), ErrLoadTopic, `but ""`},
		{envelopTopic(strings.Repeat("x", 1<<16), ok), ErrLoadTopic, "xxx"},
		{pack(t, m{topic}), nil, "no payload"},
		{pack(t, m{topic, {"payload", nil}}), nil, "envelope: payload: neither bytes nor an array"},
		{pack(t, m{topic, {"payload", a{256}}}), nil, "more than bytes"},
		{pack(t, m{topic, {"payload", ok}, {"sequence", -1}}), msgpack.ErrNegative, "envelope: sequence"},
		{append(envelopTopic(TopicKVMetrics, ok), 0), nil, "envelope: 1 bytes follow it"},
		{pack(t, m{topic, {"payload", ok}, {"x", raw(strings.Repeat("\x91", 1<<20))}}), io.ErrUnexpectedEOF, "unknown field"},
	} {
		checkBadLoad(t, c.msg, c.is, c.why)
	}
}

// checkBadLoad decodes a bad message, between two good ones: it leaves nothing
// behind.
func checkBadLoad(t *testing.T, msg []byte, is error, why string) {
	t.Helper()
	var d LoadDecoder
	good := envelopTopic(TopicKVMetrics, pack(t, m{{"worker_id", 5}}))
	if _, _, err := d.Decode(good); err != nil {
		t.Fatal(err)
	}
	_, got, err := d.Decode(msg)
	if err == nil || got != nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), why) {
		t.Errorf("%.40x: load %+v, error %v; want %v with %q", msg, got, err, is, why)
		return
	}
	if len(err.Error()) > 300 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
	_, got, err = d.Decode(good)
	if err != nil || cmp.Diff(Load{Kind: LoadMetrics, Metrics: KVMetrics{WorkerID: 5}}, *got) != "" {
		t.Errorf("after %q: %+v, %v", why, got, err)
	}
	if s := d.Stats(); s.Messages != 3 || s.Metrics != 2 || s.BadMessages != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestLoadTruncation cuts each example at every byte.
func TestLoadTruncation(t *testing.T) {
	for _, l := range []Load{exampleMetrics, examplePass, exampleAdd, examplePrefilled, exampleFree} {
		msg, err := AppendLoad(nil, Envelope{}, &l)
		if err != nil {
			t.Fatal(err)
		}
		var d LoadDecoder
		payload := len(msg)
		for cut := range msg {
			if _, got, err := d.Decode(msg[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) || got != nil {
				t.Fatalf("%s cut at %d of %d: %v", l.Kind, cut, payload, err)
			}
		}
		body := msg[bytes.Index(msg, []byte("payload"))+len("payload"):]
		head := 2
		if body[0] == 0xc5 {
			head = 3
		}
		for cut := range body[head:] {
			short := envelopTopic(l.Kind.String(), body[head:head+cut])
			if _, got, err := d.Decode(short); !errors.Is(err, io.ErrUnexpectedEOF) || got != nil {
				t.Fatalf("%s payload cut at %d: %v", l.Kind, cut, err)
			}
		}
	}
}

// fullLoads are messages with all that they can hold.
func fullLoads() map[string]Load {
	e := exampleAdd.Sequence
	e.RequestID, e.LoRA = []byte("b122b33c-64da-42ab-8d8b-f68061f40c2f"), []byte("some-adapter-of-more-than-32-bytes")
	e.Added.Hint = some(PrefillHint{Tokens: 90, Duration: some(PrefillDuration{1, 2})})
	e.Added.OutputTokens = some[uint32](32)
	e.Added.Sequence = some(make([]block.Chain, 64))
	return map[string]Load{
		"metrics": {Kind: LoadMetrics, Metrics: KVMetrics{math.MaxUint64, 1, some[uint64](1), some[uint64](2), some[uint64](3)}},
		"pass":    examplePass,
		"add":     {Kind: LoadSequence, Sequence: e},
		"free":    exampleFree,
	}
}

func TestLoadsDoNotAllocate(t *testing.T) {
	for name, l := range fullLoads() {
		msg, err := AppendLoad(nil, Envelope{}, &l)
		if err != nil {
			t.Fatal(err)
		}
		var d LoadDecoder
		if n := testing.AllocsPerRun(100, func() {
			if _, _, err := d.Decode(msg); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per message decoded", name, n)
		}
		buf := make([]byte, 0, 2*len(msg))
		if n := testing.AllocsPerRun(100, func() {
			if _, err := AppendLoad(buf, Envelope{}, &l); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per message encoded", name, n)
		}
	}
}

func BenchmarkDecodeLoad(b *testing.B) {
	for name, l := range fullLoads() {
		msg, err := AppendLoad(nil, Envelope{}, &l)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			var d LoadDecoder
			b.ReportAllocs()
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				if _, _, err := d.Decode(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAppendLoadRefuses(t *testing.T) {
	withSequence := func(f func(*SequenceEvent)) Load {
		l := fullLoads()["add"]
		f(&l.Sequence)
		return l
	}
	for _, c := range []struct {
		name string
		env  Envelope
		load Load
	}{
		{"no kind", Envelope{}, Load{}},
		{"unknown kind", Envelope{}, Load{Kind: LoadSequence + 1}},
		{"topic of another kind", Envelope{Topic: TopicKVMetrics}, examplePass},
		{"kv-events", Envelope{Topic: TopicKVEvents}, exampleMetrics},
		{"no sequence kind", Envelope{}, withSequence(func(e *SequenceEvent) { e.Kind = 0 })},
		{"unknown sequence kind", Envelope{}, withSequence(func(e *SequenceEvent) { e.Kind = MarkPrefillCompleted + 1 })},
		{"request not UTF-8", Envelope{}, withSequence(func(e *SequenceEvent) { e.RequestID = []byte{0xff} })},
		{"adapter not UTF-8", Envelope{}, withSequence(func(e *SequenceEvent) { e.LoRA = []byte{0xff} })},
		{"a second of nanoseconds", Envelope{}, withSequence(func(e *SequenceEvent) { e.Added.Hint.Value.Duration.Value.Nanos = nanosPerSecond })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := AppendLoad([]byte("kept"), c.env, &c.load)
			if err == nil || string(got) != "kept" {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

// TestForwardPassDefaults: version 0 is written as 1, and what is not stated is
// left out.
func TestForwardPassDefaults(t *testing.T) {
	msg, err := AppendLoad(nil, Envelope{}, &Load{Kind: LoadForwardPass, Pass: ForwardPass{WorkerID: 5}})
	want := envelopTopic(TopicForwardPassMetrics, pack(t, m{
		{"version", 1}, {"worker_id", "5"}, {"dp_rank", 0}, {"counter_id", 0}, {"wall_time", 0.0},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if tail := want[bytes.Index(want, []byte("topic")):]; !bytes.HasSuffix(msg, tail) {
		t.Errorf("%s\nwant …%s", hex.Dump(msg), hex.Dump(tail))
	}
}

func TestLoadWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{LoadMetrics.String(), "kv_metrics"},
		{LoadForwardPass.String(), "forward-pass-metrics"},
		{LoadSequence.String(), "active_sequences_events"},
		{LoadKind(0).String(), "unknown"},
		{(LoadSequence + 1).String(), "unknown"},
		{AddRequest.String(), "AddRequest"},
		{Free.String(), "Free"},
		{MarkPrefillCompleted.String(), "MarkPrefillCompleted"},
		{SequenceKind(0).String(), "unknown"},
		{(MarkPrefillCompleted + 1).String(), "unknown"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestLoadSubjects: every subject of a load topic matches exactly one of the
// subscriptions, and no KV event does.
func TestLoadSubjects(t *testing.T) {
	for _, c := range []struct {
		gen         Generation
		topic, want string
	}{
		{Gen12, TopicKVMetrics, "namespace.my ns.kv_metrics"},
		{Gen12, TopicForwardPassMetrics, "namespace.my ns.component.backend.forward-pass-metrics"},
		{Gen12, TopicActiveSequences, "namespace.my ns.component.backend.active_sequences_events"},
		{Gen14, TopicKVMetrics, "namespace.my%20ns.component.backend.endpoint.generate.kv_metrics"},
		{Gen14, TopicForwardPassMetrics, "namespace.my%20ns.component.backend.endpoint.generate.forward-pass-metrics"},
		{Gen15, TopicActiveSequences, "namespace.my%20ns.component.backend.endpoint.generate.active_sequences_events"},
	} {
		got := LoadSubject(c.gen, c.topic, "my ns", "backend", "generate")
		if got != c.want {
			t.Errorf("generation %d: %s, want %s", c.gen, got, c.want)
		}
		if n := subscriptions(got); n != 1 {
			t.Errorf("%s is matched by %d subscriptions", got, n)
		}
	}
	for _, gen := range []Generation{Gen12, Gen14, Gen15} {
		if s := EventSubject(gen, "dynamo", "backend", "generate"); subscriptions(s) != 0 {
			t.Errorf("%s is matched", s)
		}
	}
}
