package dynamo

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
)

// drawOptional draws a value that may not be stated.
func drawOptional[T any](t *rapid.T, g *rapid.Generator[T], label string) Optional[T] {
	if !rapid.Bool().Draw(t, "has "+label) {
		return Optional[T]{}
	}
	return some(g.Draw(t, label))
}

var float = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
	0, math.Copysign(0, -1), 1, 1 << 53, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
}))

func requestsGen(scheduled bool) *rapid.Generator[Requests] {
	return rapid.Custom(func(t *rapid.T) Requests {
		r := Requests{
			Prefills: hash64.Draw(t, "prefills"), PrefillTokens: hash64.Draw(t, "tokens"), PrefillVariance: float.Draw(t, "variance"),
			Decodes: hash64.Draw(t, "decodes"), DecodeKVTokens: hash64.Draw(t, "kv"), DecodeVariance: float.Draw(t, "kv variance"),
		}
		if scheduled {
			r.PrefillKVTokens = hash64.Draw(t, "prefill kv")
		}
		return r
	})
}

var chainGen = rapid.Custom(func(t *rapid.T) []block.Chain {
	var c []block.Chain
	for range drawCount(t) {
		c = append(c, block.Chain(hash64.Draw(t, "hash")))
	}
	return c
})

var hintGen = rapid.Custom(func(t *rapid.T) PrefillHint {
	return PrefillHint{Tokens: hash64.Draw(t, "hint"), Duration: drawOptional(t, rapid.Custom(func(t *rapid.T) PrefillDuration {
		return PrefillDuration{hash64.Draw(t, "secs"), rapid.Uint32Range(0, nanosPerSecond-1).Draw(t, "nanos")}
	}), "duration")}
})

// drawLoad draws a load as the decoder returns it.
func drawLoad(t *rapid.T) Load {
	l := Load{Kind: LoadKind(rapid.IntRange(int(LoadMetrics), int(LoadSequence)).Draw(t, "kind"))}
	worker, rank := hash64.Draw(t, "worker"), rapid.Uint32().Draw(t, "rank")
	switch l.Kind {
	case LoadMetrics:
		l.Metrics = KVMetrics{worker, rank, drawOptional(t, hash64, "decode"), drawOptional(t, hash64, "prefill"), drawOptional(t, hash64, "used")}
	case LoadForwardPass:
		l.Pass = ForwardPass{
			rapid.Uint32Min(1).Draw(t, "version"), worker, rank, hash64.Draw(t, "counter"), float.Draw(t, "wall time"),
			drawOptional(t, requestsGen(true), "scheduled"), drawOptional(t, requestsGen(false), "queued"),
		}
	case LoadSequence:
		name := rapid.StringN(0, 40, 300)
		l.Sequence = SequenceEvent{
			RequestID: []byte(name.Draw(t, "request")), WorkerID: worker, Rank: rank, RouterID: hash64.Draw(t, "router"),
			Kind: SequenceKind(rapid.IntRange(int(AddRequest), int(MarkPrefillCompleted)).Draw(t, "change")),
		}
		if rapid.Bool().Draw(t, "has lora") {
			l.Sequence.LoRA = []byte(name.Draw(t, "lora"))
		}
		if l.Sequence.Kind == AddRequest {
			l.Sequence.Added = Added{
				drawOptional(t, chainGen, "sequence"), rapid.Bool().Draw(t, "track"),
				drawOptional(t, rapid.Uint32(), "output"), drawOptional(t, hintGen, "hint"),
			}
		}
	}
	return l
}

func drawEnvelope(t *rapid.T, topic string) Envelope {
	return Envelope{hash64.Draw(t, "publisher"), hash64.Draw(t, "sequence"), hash64.Draw(t, "at"), topic}
}

// TestLoadRoundTrip: what is encoded decodes to the same, with one decoder's
// buffers used over and over.
func TestLoadRoundTrip(t *testing.T) {
	var d LoadDecoder
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		env := drawEnvelope(t, l.Kind.String())
		msg, err := AppendLoad(nil, env, &l)
		if err != nil {
			t.Fatal(err)
		}
		gotEnv, got, err := d.Decode(msg)
		if err != nil || gotEnv != env {
			t.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
		}
		if diff := cmp.Diff(l, *got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatal(diff)
		}
		again, err := AppendLoad(nil, env, got)
		if err != nil || !bytes.Equal(again, msg) {
			t.Fatalf("encoded twice (%v):\n%x\n%x", err, msg, again)
		}
	})
}

// optional returns an optional integer in a drawn form, nil when it is not stated.
func (w *loose) optional(o Optional[uint64]) any {
	if !o.Set {
		return nil
	}
	return w.integer(o.Value)
}

// float returns f as a float, or as an integer when it is one.
func (w *loose) float(f float64) any {
	if f >= 0 && f < 1<<53 && f == math.Trunc(f) && !math.Signbit(f) && rapid.Bool().Draw(w.t, "whole") {
		return w.integer(uint64(f))
	}
	return f
}

func (w *loose) requests(o Optional[Requests], scheduled bool) any {
	if !o.Set {
		return nil
	}
	r := o.Value
	fields := m{
		{"num_prefill_requests", w.integer(r.Prefills)},
		{"sum_prefill_tokens", w.integer(r.PrefillTokens)},
		{"var_prefill_length", w.float(r.PrefillVariance)},
	}
	if scheduled {
		fields = append(fields, kv{"sum_prefill_kv_tokens", w.integer(r.PrefillKVTokens)})
	}
	return w.fields(true, append(fields, m{
		{"num_decode_requests", w.integer(r.Decodes)},
		{"sum_decode_kv_tokens", w.integer(r.DecodeKVTokens)},
		{"var_decode_kv_tokens", w.float(r.DecodeVariance)},
	}...))
}

func (w *loose) added(r *Added) any {
	var sequence, output, hint any
	if r.Sequence.Set {
		hashes := a{}
		for _, h := range r.Sequence.Value {
			hashes = append(hashes, w.hash(uint64(h)))
		}
		sequence = hashes
	}
	if r.OutputTokens.Set {
		output = w.integer(uint64(r.OutputTokens.Value))
	}
	if h := r.Hint.Value; r.Hint.Set {
		var duration any
		if d := h.Duration.Value; h.Duration.Set {
			duration = w.fields(true, m{{"secs", w.integer(d.Seconds)}, {"nanos", w.integer(uint64(d.Nanos))}})
		}
		hint = w.fields(true, m{{"initial_effective_prefill_tokens", w.integer(h.Tokens)}, {"expected_prefill_duration", duration}})
	}
	return w.fields(true, m{
		{"token_sequence", sequence},
		{"track_prefill_tokens", r.TrackPrefill},
		{"expected_output_tokens", output},
		{"prefill_load_hint", hint},
	})
}

func (w *loose) load(l *Load) any {
	switch l.Kind {
	case LoadMetrics:
		k := &l.Metrics
		return w.fields(true, m{
			{"worker_id", w.integer(k.WorkerID)},
			{"dp_rank", w.integer(uint64(k.Rank))},
			{"active_decode_blocks", w.optional(k.DecodeBlocks)},
			{"active_prefill_tokens", w.optional(k.PrefillTokens)},
			{"kv_used_blocks", w.optional(k.UsedBlocks)},
		})
	case LoadForwardPass:
		p := &l.Pass
		return w.fields(true, m{
			{"version", w.integer(uint64(p.Version))},
			{"worker_id", rapid.SampledFrom([]any{strconv.FormatUint(p.WorkerID, 10), w.integer(p.WorkerID)}).Draw(w.t, "worker form")},
			{"dp_rank", w.integer(uint64(p.Rank))},
			{"counter_id", w.integer(p.Counter)},
			{"wall_time", w.float(p.WallTime)},
			{"scheduled_requests", w.requests(p.Scheduled, true)},
			{"queued_requests", w.requests(p.Queued, false)},
		})
	case LoadSequence: // below
	}
	e := &l.Sequence
	var data, lora any = e.Kind.String(), nil
	if e.Kind == AddRequest {
		data = m{{"AddRequest", w.added(&e.Added)}}
	} else if rapid.Bool().Draw(w.t, "word as map") {
		data = m{{e.Kind.String(), nil}}
	}
	if e.LoRA != nil {
		lora = string(e.LoRA)
	}
	return w.fields(true, m{
		{"request_id", string(e.RequestID)},
		{"worker", w.fields(true, m{{"worker_id", w.integer(e.WorkerID)}, {"dp_rank", w.integer(uint64(e.Rank))}})},
		{"data", data},
		{"router_id", w.integer(e.RouterID)},
		{"lora_name", lora},
	})
}

// TestLooseLoads: every legal way to write a message decodes to the same load.
func TestLooseLoads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLoad(rt)
		env := drawEnvelope(rt, l.Kind.String())
		w := loose{t: rt}
		msg := pack(t, w.fields(true, m{
			{"publisher_id", w.integer(env.PublisherID)},
			{"sequence", w.integer(env.Sequence)},
			{"published_at", w.integer(env.PublishedAt)},
			{"topic", env.Topic},
			{"payload", pack(t, w.load(&l))},
		}))
		var d LoadDecoder
		gotEnv, got, err := d.Decode(msg)
		if err != nil || gotEnv != env {
			rt.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
		}
		if diff := cmp.Diff(l, *got, cmpopts.EquateNaNs()); diff != "" {
			rt.Fatal(diff)
		}
		if s := d.Stats(); s.UnknownFields != w.unknown {
			rt.Fatalf("stats %+v, want %d unknown fields", s, w.unknown)
		}
	})
}

// FuzzDecodeLoad feeds its input as a whole message and as the payload of one of
// each topic.
func FuzzDecodeLoad(f *testing.F) {
	f.Add(unhexString(f, hexMetrics))
	for _, tree := range []any{
		treePass, treeAdd, treePrefilled, treeFree,
		a{5, 1, nil, 0, 7},
		a{1, "5", 0, 1, 0.5, a{1, 2, 3.0, 4, 5, 6, 7.0}, a{1, 2, 3.0, 4, 5, 6.0}},
		a{"req", a{5, 0}, m{{"AddRequest", a{a{1}, true, 3, a{8, a{1, 2}}}}}, 77, "lora"},
	} {
		f.Add(pack(f, tree))
	}
	seen := map[string]int{}
	for _, l := range readCapture(f, "1.6.1-aggregated.jsonl") {
		if s, err := ParseSubject(l.Subject); err == nil && kindOfTopic(s.Topic) != 0 && seen[s.Topic] < 8 {
			seen[s.Topic]++
			f.Add(l.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkDecodeLoad(t, data)
		for _, topic := range loadTopics[LoadMetrics:] {
			checkDecodeLoad(t, envelopTopic(topic, data))
		}
	})
}

// checkDecodeLoad decodes any bytes and checks all that must hold of the result:
// nothing panics, the message is not changed, and what decodes is encoded to
// whole msgpack that decodes to the same and that a second encoding repeats.
func checkDecodeLoad(t *testing.T, msg []byte) {
	t.Helper()
	var d LoadDecoder
	before := bytes.Clone(msg)
	env, got, err := d.Decode(msg)
	if !bytes.Equal(msg, before) {
		t.Fatal("the message was changed")
	}
	s := d.Stats()
	if (got == nil) != (err != nil) || (err != nil) != (s.BadMessages == 1) || s.Metrics+s.Passes+s.Sequences+s.BadMessages != 1 {
		t.Fatalf("load %+v, error %v, stats %+v", got, err, s)
	}
	if err != nil {
		return
	}
	first := cloneLoad(got)
	if first.Kind == LoadForwardPass {
		first.Pass.Version = max(first.Pass.Version, forwardPassVersion)
	}
	again, err := AppendLoad(nil, env, &first)
	if !utf8.Valid(first.Sequence.RequestID) || !utf8.Valid(first.Sequence.LoRA) {
		if !errors.Is(err, errUTF8) {
			t.Fatalf("names that are not UTF-8 were encoded: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := msgp.Skip(again); err != nil || len(rest) > 0 {
		t.Fatalf("encoded to malformed msgpack: %d bytes left, %v", len(rest), err)
	}
	gotEnv, got, err := d.Decode(slices.Clip(again))
	if err != nil || gotEnv != env {
		t.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
	}
	if diff := cmp.Diff(first, *got, cmpopts.EquateNaNs()); diff != "" {
		t.Fatal(diff)
	}
	if twice, err := AppendLoad(nil, env, got); err != nil || !bytes.Equal(twice, again) {
		t.Fatalf("encoded twice (%v):\n%x\n%x", err, again, twice)
	}
}
