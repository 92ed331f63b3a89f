package dynamo

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// hash64 draws integers around every size at which their encoding changes.
var hash64 = rapid.OneOf(
	rapid.Uint64(),
	rapid.SampledFrom([]uint64{
		0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1,
		1 << 53, 1<<53 + 1, math.MaxInt64, 1 << 63, math.MaxUint64,
	}),
)

// drawEvent draws an event as the decoder returns it.
func drawEvent(t *rapid.T, gen Generation, scope Scope) kvevent.Event {
	e := kvevent.Event{
		WorkerID: hash64.Draw(t, "worker"),
		Rank:     rapid.Uint32().Draw(t, "rank"),
		ID:       hash64.Draw(t, "id"),
		Tier:     kvevent.Tier(rapid.IntRange(0, kvevent.NumTiers-1).Draw(t, "tier")),
		Kind:     kvevent.Kind(rapid.IntRange(int(kvevent.Stored), int(kvevent.Cleared)).Draw(t, "kind")),
	}
	if gen == Gen15 {
		e.Residency = rapid.SampledFrom([]string{"worker", "cache_owner", "shared pool", string(make([]byte, 300))}).Draw(t, "residency")
	}
	switch e.Kind {
	case kvevent.Cleared:
		e.AllRanks = scope != EndpointScope
	case kvevent.Removed:
		for range drawCount(t) {
			e.Gone = append(e.Gone, kvevent.EngineHash(hash64.Draw(t, "gone")))
		}
	case kvevent.Stored:
		if e.HasParent = rapid.Bool().Draw(t, "has parent"); e.HasParent {
			e.Parent = kvevent.EngineHash(hash64.Draw(t, "parent"))
		}
		if e.HasStart = rapid.Bool().Draw(t, "has start"); e.HasStart {
			e.Start = rapid.Uint32().Draw(t, "start")
		}
		media := rapid.Bool().Draw(t, "media")
		for i := range drawCount(t) {
			e.Blocks = append(e.Blocks, kvevent.Block{
				Engine: kvevent.EngineHash(hash64.Draw(t, "engine")), Hash: block.Hash(hash64.Draw(t, "tokens")),
			})
			for media && rapid.Bool().Draw(t, "object") {
				o := kvevent.Media{Block: i, Hash: hash64.Draw(t, "mm")}
				for range rapid.IntRange(0, 3).Draw(t, "ranges") {
					o.Offsets = append(o.Offsets, [2]uint32{rapid.Uint32().Draw(t, "from"), rapid.Uint32().Draw(t, "to")})
				}
				e.Media = append(e.Media, o)
			}
		}
	}
	return e
}

// drawCount draws a length, now and then one that needs a longer array head.
func drawCount(t *rapid.T) int {
	if rapid.IntRange(0, 20).Draw(t, "long") == 0 {
		return rapid.IntRange(15, 40).Draw(t, "count")
	}
	return rapid.IntRange(0, 4).Draw(t, "count")
}

func drawMessage(t *rapid.T) (Generation, Scope, Envelope, []kvevent.Event) {
	gen := rapid.SampledFrom([]Generation{Gen12, Gen14, Gen15}).Draw(t, "generation")
	scope := rapid.SampledFrom([]Scope{ComponentScope, EndpointScope, StreamScope}).Draw(t, "scope")
	env := Envelope{hash64.Draw(t, "publisher"), hash64.Draw(t, "sequence"), hash64.Draw(t, "at"), TopicKVEvents}
	n := 1
	if gen != Gen12 {
		n = rapid.IntRange(0, 20).Draw(t, "events")
	}
	var events []kvevent.Event
	for range n {
		events = append(events, drawEvent(t, gen, scope))
	}
	return gen, scope, env, events
}

// TestRoundTrip: what is encoded decodes to the same, in every generation and
// scope, with one decoder's buffers used over and over.
func TestRoundTrip(t *testing.T) {
	var d Decoder
	rapid.Check(t, func(t *rapid.T) {
		gen, scope, env, events := drawMessage(t)
		msg, err := AppendMessage(nil, gen, env, events)
		if err != nil {
			t.Fatal(err)
		}
		gotEnv, got, err := collect(&d, msg, scope)
		if err != nil || gotEnv != env {
			t.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
		}
		if diff := cmp.Diff(events, got); diff != "" {
			t.Fatal(diff)
		}
		if worker, ok := PeekWorker(msg); ok != (len(events) > 0) || ok && worker != events[0].WorkerID {
			t.Fatalf("peeked %d, %v", worker, ok)
		}
	})
}

// loose writes the same events in every other way that is legal: keys in any
// order, keys nobody knows, signed and needlessly long integers, positional
// structs. It is the slow twin of the encoder: it builds a tree and packs it.
type loose struct {
	t       *rapid.T
	unknown uint64
}

// integer returns u in a drawn encoding that can hold it.
func (w *loose) integer(u uint64) any {
	var forms []raw
	add := func(fits bool, lead byte, size int) {
		if fits {
			b := raw{lead}
			for i := size - 1; i >= 0; i-- {
				b = append(b, byte(u>>(8*i)))
			}
			forms = append(forms, b)
		}
	}
	if u < 128 {
		forms = append(forms, raw{byte(u)})
	}
	add(u < 1<<8, 0xcc, 1)
	add(u < 1<<16, 0xcd, 2)
	add(u < 1<<32, 0xce, 4)
	add(true, 0xcf, 8)
	add(u < 1<<7, 0xd0, 1)
	add(u < 1<<15, 0xd1, 2)
	add(u < 1<<31, 0xd2, 4)
	add(u < 1<<63, 0xd3, 8)
	return rapid.SampledFrom(forms).Draw(w.t, "form")
}

// hash returns u as an integer, or as the negative number with the same bits.
func (w *loose) hash(u uint64) any {
	if rapid.Bool().Draw(w.t, "signed") {
		return int64(u)
	}
	return w.integer(u)
}

// fields returns a struct: positional if that is drawn, else keyed in a drawn
// order with keys nobody knows in between.
func (w *loose) fields(mayBePositional bool, fields m) any {
	if mayBePositional && rapid.Bool().Draw(w.t, "positional") {
		var values a
		for _, f := range fields {
			values = append(values, f.val)
		}
		return values
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "unknown") {
		w.unknown++
		fields = append(fields, rapid.SampledFrom(m{{"new", a{1, m{{"x", nil}}}}, {7, "seven"}, {"", m{}}, {nil, 1.5}}).Draw(w.t, "field"))
	}
	return rapid.Permutation(fields).Draw(w.t, "order")
}

func (w *loose) data(e *kvevent.Event) any {
	switch e.Kind {
	case kvevent.Cleared:
		return rapid.SampledFrom([]any{"cleared", m{{"cleared", nil}}}).Draw(w.t, "cleared")
	case kvevent.Removed:
		gone := a{}
		for _, h := range e.Gone {
			gone = append(gone, w.hash(uint64(h)))
		}
		return m{{"removed", w.fields(true, m{{"block_hashes", gone}})}}
	case kvevent.Stored: // below
	}
	var parent, start any
	if e.HasParent {
		parent = w.hash(uint64(e.Parent))
	}
	if e.HasStart {
		start = w.integer(uint64(e.Start))
	}
	blocks := a{}
	for i, b := range e.Blocks {
		var extra any
		var objects a
		for _, o := range e.Media {
			if o.Block != i {
				continue
			}
			offsets := a{}
			for _, p := range o.Offsets {
				offsets = append(offsets, a{w.integer(uint64(p[0])), w.integer(uint64(p[1]))})
			}
			objects = append(objects, w.fields(true, m{{"mm_hash", w.hash(o.Hash)}, {"offsets", offsets}}))
		}
		if objects != nil {
			extra = w.fields(true, m{{"mm_objects", objects}})
		}
		blocks = append(blocks, w.fields(true, m{{"block_hash", w.hash(uint64(b.Engine))}, {"tokens_hash", w.hash(uint64(b.Hash))}, {"mm_extra_info", extra}}))
	}
	return m{{"stored", w.fields(true, m{{"parent_hash", parent}, {"start_position", start}, {"blocks", blocks}})}}
}

func (w *loose) event(e *kvevent.Event) any {
	fields := m{{"worker_id", w.integer(e.WorkerID)}}
	if e.Tier != kvevent.Device || rapid.Bool().Draw(w.t, "say device") {
		fields = append(fields, kv{"storage_tier", e.Tier.String()})
		if e.Residency != "" {
			fields = append(fields, kv{"residency_domain", e.Residency})
		}
	} else if e.Residency != "" {
		fields = append(fields, kv{"storage_tier", nil}, kv{"residency_domain", e.Residency})
	}
	fields = append(fields, kv{"event", w.fields(true, m{{"event_id", w.integer(e.ID)}, {"data", w.data(e)}, {"dp_rank", w.integer(uint64(e.Rank))}})})
	if rapid.Bool().Draw(w.t, "source") {
		fields = append(fields, kv{"state_source", a{1, "x"}})
	}
	return w.fields(true, fields)
}

// TestLooseForms: every legal way to write a message decodes to the same events.
func TestLooseForms(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gen, scope, env, events := drawMessage(rt)
		w := loose{t: rt}
		var payload any
		if gen == Gen12 {
			payload = w.event(&events[0])
		} else {
			batch := a{}
			for i := range events {
				batch = append(batch, w.event(&events[i]))
			}
			payload = batch
		}
		msg := pack(t, w.fields(true, m{
			{"publisher_id", w.integer(env.PublisherID)},
			{"sequence", w.integer(env.Sequence)},
			{"published_at", w.integer(env.PublishedAt)},
			{"topic", env.Topic},
			{"payload", pack(t, payload)},
		}))
		var d Decoder
		gotEnv, got, err := collect(&d, msg, scope)
		if err != nil || gotEnv != env {
			rt.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
		}
		if diff := cmp.Diff(events, got); diff != "" {
			rt.Fatalf("last skip %v: %s", d.LastSkip(), diff)
		}
		if s := d.Stats(); s.UnknownFields != w.unknown || s.BadEvents != 0 {
			rt.Fatalf("stats %+v, want %d unknown fields", s, w.unknown)
		}
		checkPeek(t, msg)
	})
}

func TestAppendMessageRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		gen    Generation
		env    Envelope
		events []kvevent.Event
	}{
		{"no generation", 0, env0, []kvevent.Event{clearedEvent}},
		{"generation of the future", Gen15 + 1, env0, []kvevent.Event{clearedEvent}},
		{"two events in one map", Gen12, env0, []kvevent.Event{clearedEvent, clearedEvent}},
		{"no event in a map", Gen12, env0, nil},
		{"other topic", Gen15, Envelope{Topic: TopicKVMetrics}, []kvevent.Event{clearedEvent}},
		{"no kind", Gen15, env0, []kvevent.Event{{}}},
		{"unknown kind", Gen15, env0, []kvevent.Event{{Kind: kvevent.Cleared + 1}}},
		{"unknown tier", Gen15, env0, []kvevent.Event{{Kind: kvevent.Cleared, Tier: kvevent.NumTiers}}},
		{"media of no block", Gen15, env0, []kvevent.Event{{Kind: kvevent.Stored, Media: []kvevent.Media{{}}}}},
		{"media before all blocks", Gen15, env0, []kvevent.Event{{Kind: kvevent.Stored, Blocks: make([]kvevent.Block, 1), Media: []kvevent.Media{{Block: -1}}}}},
		{"media out of order", Gen15, env0, []kvevent.Event{{Kind: kvevent.Stored, Blocks: make([]kvevent.Block, 2), Media: []kvevent.Media{{Block: 1}, {Block: 0}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := AppendMessage([]byte("kept"), c.gen, c.env, c.events)
			if err == nil || string(got) != "kept" {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

// TestDefaultsOfEncoding: an empty topic and an empty residency domain get the
// words that Dynamo writes.
func TestDefaultsOfEncoding(t *testing.T) {
	msg, err := AppendMessage(nil, Gen15, Envelope{}, []kvevent.Event{clearedEvent})
	if err != nil {
		t.Fatal(err)
	}
	var d Decoder
	env, got, err := collect(&d, msg, EndpointScope)
	if err != nil || env.Topic != TopicKVEvents || len(got) != 1 || got[0].Residency != "worker" {
		t.Fatalf("%+v, %+v, %v", env, got, err)
	}
}

// FuzzDecode feeds its input as a whole message and as the payload of one:
// nothing panics, nothing is counted wrongly, and what decodes is encoded to a
// message that decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{hexStored, hexMedia, hexRemoved, hexCleared} {
		f.Add(envelop(unhexString(f, s)), true)
		f.Add(unhexString(f, s), false)
	}
	files, err := filepath.Glob(filepath.Join(captureDir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no captures: %v", err)
	}
	for _, file := range files {
		n := 0
		for _, l := range readCapture(f, filepath.Base(file)) {
			if msg, scope, ok := kvMessage(f, l); ok && n < 8 {
				f.Add(msg, scope != EndpointScope)
				n++
			}
		}
	}
	f.Add(pack(f, a{5, "device", a{1, m{{"stored", a{nil, a{a{7, 8, a{a{a{9, a{a{0, 4}}}}}}}}}}, 0}}), true)
	f.Add(pack(f, a{good(1), 3, a{1, 2}, append(good(2), kv{"residency_domain", "worker"})}), false)
	f.Add(pack(f, a{1, 2, 3, "kv-events", a{0x81, 1, 2}}), false)
	f.Add(pack(f, a{append(m{{"storage_tier", "moon"}}, good(1)...), good(2)}), false)
	for _, s := range bareEvents {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, component bool) {
		scope := EndpointScope
		if component {
			scope = ComponentScope
		}
		checkDecode(t, data, scope)
		checkDecode(t, envelop(data), scope)
	})
}

// checkDecode decodes any bytes and checks all that must hold of the result.
func checkDecode(t *testing.T, msg []byte, scope Scope) {
	t.Helper()
	checkPeek(t, msg)
	var d Decoder
	before := bytes.Clone(msg)
	env, events, err := collect(&d, msg, scope)
	if !bytes.Equal(msg, before) {
		t.Fatal("the message was changed")
	}
	if s := d.Stats(); s.Events != uint64(len(events)) || (err != nil) != (s.BadMessages == 1) {
		t.Fatalf("stats %+v after %d events and error %v", s, len(events), err)
	}
	if env.Topic != TopicKVEvents {
		if len(events) > 0 || err == nil {
			t.Fatalf("%d events of topic %q, error %v", len(events), env.Topic, err)
		}
		return
	}
	events = slices.DeleteFunc(events, func(e kvevent.Event) bool {
		if e.Tier < kvevent.NumTiers {
			return false
		}
		if _, err := AppendMessage(nil, Gen12, env, []kvevent.Event{e}); err == nil {
			t.Fatalf("an event of an unknown tier was encoded: %+v", e)
		}
		return true
	})
	for i := range events {
		gen := Gen12
		if events[i].Residency != "" {
			gen = Gen15
		}
		checkAgain(t, gen, scope, env, events[i:i+1])
	}
	var plain, stated []kvevent.Event
	for _, e := range events {
		if e.Residency == "" {
			plain = append(plain, e)
		} else {
			stated = append(stated, e)
		}
	}
	checkAgain(t, Gen14, scope, env, plain)
	checkAgain(t, Gen15, scope, env, stated)
}

// checkAgain encodes events and wants them back. The encoding must be canonical
// too: whole msgpack that a second encoding repeats.
func checkAgain(t *testing.T, gen Generation, scope Scope, env Envelope, events []kvevent.Event) {
	t.Helper()
	msg, err := AppendMessage(nil, gen, env, events)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := msgp.Skip(msg); err != nil || len(rest) > 0 {
		t.Fatalf("encoded to malformed msgpack: %d bytes left, %v", len(rest), err)
	}
	var d Decoder
	gotEnv, got, err := collect(&d, msg, scope)
	if err != nil || gotEnv != env {
		t.Fatalf("%+v, %v; want %+v", gotEnv, err, env)
	}
	if diff := cmp.Diff(events, got); diff != "" {
		t.Fatal(diff)
	}
	again, err := AppendMessage(nil, gen, gotEnv, got)
	if err != nil || !bytes.Equal(again, msg) {
		t.Fatalf("encoded twice (%v):\n%x\n%x", err, msg, again)
	}
}

// TestCanonicalBlock: the reader of blocks at a glance sees what the other one
// reads, of whole, cut and damaged blocks, and it does see the usual ones.
func TestCanonicalBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := appendStored(nil, &kvevent.Event{Blocks: []kvevent.Block{{
			Engine: kvevent.EngineHash(hash64.Draw(t, "engine")), Hash: block.Hash(hash64.Draw(t, "tokens")),
		}}})
		_, b, _ = bytes.Cut(b, []byte("blocks\x91"))
		usual := len(b) == canonicalSize
		b = append(b, rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "more")...)
		blk, ok := canonicalBlock(b)
		if ok != usual {
			t.Fatalf("%x: seen %v", b, ok)
		}
		if rapid.Bool().Draw(t, "damage") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "end")]
			blk, ok = canonicalBlock(b)
		}
		if !ok {
			return
		}
		var d Decoder
		rest, err := d.readBlock(b)
		if err != nil || len(rest) != len(b)-canonicalSize || len(d.blocks) != 1 || d.blocks[0] != blk || d.media != nil {
			t.Fatalf("%x: %+v, read as %+v, %v", b, blk, d.blocks, err)
		}
	})
}
