package vllm

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

var (
	hash64  = rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 127, 128, 1<<32 - 1, 1 << 32, 1 << 63, math.MaxUint64}))
	token32 = rapid.OneOf(rapid.Uint32Range(0, 200_000), rapid.SampledFrom([]uint32{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32}))
	mediums = map[string]kvevent.Tier{"": kvevent.Device, "GPU": kvevent.Device, "CPU": kvevent.Host, "DISK": kvevent.Disk, "EXTERNAL": kvevent.External, "FS": kvevent.NumTiers}
)

func drawHashes(t *rapid.T, least int) []kvevent.EngineHash {
	n := rapid.IntRange(least, 4).Draw(t, "hashes")
	if rapid.IntRange(0, 20).Draw(t, "many") == 0 {
		n = 20
	}
	var hashes []kvevent.EngineHash
	for range n {
		hashes = append(hashes, kvevent.EngineHash(hash64.Draw(t, "hash")))
	}
	return hashes
}

// drawEvent draws an event that a decoder of the block size keeps.
func drawEvent(t *rapid.T, form Form, size int) Event {
	e := Event{Kind: kvevent.Kind(rapid.IntRange(int(kvevent.Stored), int(kvevent.Cleared)).Draw(t, "kind"))}
	if e.Kind == kvevent.Cleared {
		return e
	}
	e.Medium = rapid.SampledFrom([]string{"", "GPU", "CPU", "DISK", "EXTERNAL", "FS"}).Draw(t, "medium")
	if e.HasGroup = rapid.Bool().Draw(t, "grouped"); e.HasGroup {
		e.Group = rapid.Uint32().Draw(t, "group")
	}
	if e.Kind == kvevent.Removed {
		e.Hashes = drawHashes(t, 0)
		return e
	}
	e.Hashes = drawHashes(t, 1)
	e.BlockSize = size
	e.Tokens = rapid.SliceOfN(token32, size*len(e.Hashes), size*len(e.Hashes)).Draw(t, "tokens")
	e.Parent = kvevent.EngineHash(hash64.Filter(func(h uint64) bool {
		return h != 0 && !slices.Contains(e.Hashes, kvevent.EngineHash(h))
	}).Draw(t, "parent"))
	if e.HasParent = rapid.Bool().Draw(t, "has parent"); !e.HasParent {
		e.Parent = 0
	}
	e.Adapter = rapid.SampledFrom([]string{"", "my-adapter", "日本"}).Draw(t, "adapter")
	if form == MapForm {
		e.Salt = rapid.SampledFrom([]string{"", "tenant-a", "b"}).Draw(t, "salt")
	}
	if e.HasGroup {
		e.Spec = rapid.SampledFrom([]string{"", "full_attention", "mla_attention", "sink_full_attention"}).Draw(t, "spec")
	}
	for i := range e.Hashes {
		for rapid.IntRange(0, 4).Draw(t, "object") == 0 {
			e.Media = append(e.Media, kvevent.Media{Block: i, Hash: hash64.Draw(t, "mm")})
		}
	}
	return e
}

// want is the slow twin of the decoder: what an event means, block by block.
func want(e *Event, rank uint32) kvevent.Event {
	w := kvevent.Event{
		WorkerID: worker, Copies: true, Rank: rank, Kind: e.Kind, Tier: mediums[e.Medium],
		Parent: e.Parent, HasParent: e.HasParent, Media: e.Media,
	}
	if e.Kind != kvevent.Stored {
		w.Gone = e.Hashes
		return w
	}
	for i, h := range e.Hashes {
		var objects []uint64
		for _, m := range e.Media {
			if m.Block == i {
				objects = append(objects, m.Hash)
			}
		}
		tokens := e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
		w.Blocks = append(w.Blocks, kvevent.Block{Engine: h, Hash: block.HashWithMedia(tokens, block.NewSeed(e.Adapter, e.Salt), objects)})
	}
	return w
}

func drawBatch(t *rapid.T) (Form, int, Batch, []Event, []kvevent.Event) {
	form := rapid.SampledFrom([]Form{ArrayForm, MapForm}).Draw(t, "form")
	size := rapid.SampledFrom([]int{1, 3, 16}).Draw(t, "size")
	batch := Batch{Time: rapid.Float64().Draw(t, "time"), Rank: rapid.Uint32().Draw(t, "rank")}
	var events []Event
	var wanted []kvevent.Event
	for range rapid.IntRange(0, 5).Draw(t, "events") {
		e := drawEvent(t, form, size)
		events = append(events, e)
		wanted = append(wanted, want(&e, batch.Rank))
	}
	return form, size, batch, events, wanted
}

// TestRoundTrip: what is encoded decodes to what it means.
func TestRoundTrip(t *testing.T) {
	decoders := map[int]*Decoder{}
	rapid.Check(t, func(rt *rapid.T) {
		form, size, batch, events, wanted := drawBatch(rt)
		msg, err := AppendBatch([]byte("kept"), form, batch, events)
		if err != nil || string(msg[:4]) != "kept" {
			rt.Fatal(err)
		}
		if decoders[size] == nil {
			decoders[size] = newDecoder(t, size)
		}
		gotBatch, got, err := collect(decoders[size], msg[4:])
		if err != nil || gotBatch != batch {
			rt.Fatalf("%+v, %v; want %+v", gotBatch, err, batch)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			rt.Fatalf("%v: %s", decoders[size].LastSkip(), diff)
		}
	})
}

// loose writes the same events in every other way that is legal.
type loose struct {
	t       *rapid.T
	b       []byte
	unknown uint64
}

func (w *loose) uint(u uint64) {
	type form struct {
		max  uint64
		lead byte
		size int
	}
	forms := []form{
		{1<<7 - 1, 0, 0},
		{1<<8 - 1, 0xcc, 1},
		{1<<16 - 1, 0xcd, 2},
		{1<<32 - 1, 0xce, 4},
		{math.MaxUint64, 0xcf, 8},
		{1<<7 - 1, 0xd0, 1},
		{1<<15 - 1, 0xd1, 2},
		{1<<31 - 1, 0xd2, 4},
		{1<<63 - 1, 0xd3, 8},
	}
	forms = slices.DeleteFunc(forms, func(f form) bool { return u > f.max })
	f := rapid.SampledFrom(forms).Draw(w.t, "form")
	if f.size == 0 {
		w.b = append(w.b, byte(u))
		return
	}
	w.b = append(w.b, f.lead)
	for i := f.size - 1; i >= 0; i-- {
		w.b = append(w.b, byte(u>>(8*i)))
	}
}

// hash writes a hash as an integer, as a negative one, or as a digest.
func (w *loose) hash(h kvevent.EngineHash) {
	switch rapid.IntRange(0, 2).Draw(w.t, "hash") {
	case 0:
		w.uint(uint64(h))
	case 1:
		w.b = msgp.AppendInt64(w.b, int64(h))
	default:
		digest := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(w.t, "digest")
		w.b = msgp.AppendBytes(w.b, binary.BigEndian.AppendUint64(digest, uint64(h)))
	}
}

func (w *loose) hashes(hashes []kvevent.EngineHash) {
	w.b = msgp.AppendArrayHeader(w.b, uint32(len(hashes)))
	for _, h := range hashes {
		w.hash(h)
	}
}

func (w *loose) text(s string) func() {
	return func() {
		if w.b = msgp.AppendString(w.b, s); s == "" {
			w.b = msgp.AppendNil(w.b[:len(w.b)-1])
		}
	}
}

// event writes an event as a map in a drawn order, with fields nobody knows.
func (w *loose) event(e *Event) {
	type field struct {
		key   string
		value func()
	}
	fields := []field{{"type", w.text(map[kvevent.Kind]string{kvevent.Stored: typeStored, kvevent.Removed: typeRemoved, kvevent.Cleared: typeCleared}[e.Kind])}}
	add := func(key string, value func()) { fields = append(fields, field{key, value}) }
	if e.Kind != kvevent.Cleared {
		add("block_hashes", func() { w.hashes(e.Hashes) })
		if e.Medium != "" || rapid.Bool().Draw(w.t, "nil medium") {
			add("medium", w.text(e.Medium))
		}
		if e.HasGroup {
			add("group_idx", func() { w.uint(uint64(e.Group)) })
		}
	}
	if e.Kind == kvevent.Stored {
		add("token_ids", func() {
			w.b = msgp.AppendArrayHeader(w.b, uint32(len(e.Tokens)))
			for _, t := range e.Tokens {
				w.uint(uint64(t))
			}
		})
		add("block_size", func() { w.uint(uint64(e.BlockSize)) })
		add("lora_name", w.text(e.Adapter))
		add("cache_salt", w.text(e.Salt))
		add("kv_cache_spec_kind", w.text(e.Spec))
		add("extra_keys", func() {
			inner := writer{b: w.b}
			if inner.media(e) == nil {
				w.b = inner.b
			}
		})
		if e.HasParent {
			add("parent_block_hash", func() { w.hash(e.Parent) })
		}
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "unknown") {
		w.unknown++
		add("new", func() { w.b = append(w.b, 0x92, 0x81, 0xa1, 'x', 0xc0, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0) })
	}
	w.b = msgp.AppendMapHeader(w.b, uint32(len(fields)))
	for _, f := range rapid.Permutation(fields).Draw(w.t, "order") {
		w.b = msgp.AppendString(w.b, f.key)
		f.value()
	}
}

// TestLooseForms: every legal way to write a batch decodes to what it means.
func TestLooseForms(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, size, batch, events, wanted := drawBatch(rt)
		w := loose{t: rt}
		w.b = msgp.AppendMapHeader(w.b, 3)
		w.b = msgp.AppendUint32(msgp.AppendString(w.b, "data_parallel_rank"), batch.Rank)
		w.b = msgp.AppendFloat64(msgp.AppendString(w.b, "ts"), batch.Time)
		w.b = msgp.AppendArrayHeader(msgp.AppendString(w.b, "events"), uint32(len(events)))
		for i := range events {
			w.event(&events[i])
		}
		d := newDecoder(t, size)
		gotBatch, got, err := collect(d, w.b)
		if err != nil || gotBatch != batch {
			rt.Fatalf("%+v, %v; want %+v", gotBatch, err, batch)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			rt.Fatalf("%v: %s", d.LastSkip(), diff)
		}
		if s := d.Stats(); s.UnknownFields != w.unknown || s.IgnoredKeys != 0 || s.BadEvents != 0 {
			rt.Fatalf("%+v, want %d unknown fields", s, w.unknown)
		}
	})
}

// TestTokensTwin holds the fast reader of token ids against the plain one, on
// whole arrays and on any bytes.
func TestTokensTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := loose{t: t}
		n := rapid.IntRange(0, 40).Draw(t, "tokens")
		w.b = msgp.AppendArrayHeader(w.b, uint32(n))
		for range n {
			if rapid.IntRange(0, 60).Draw(t, "odd") == 0 {
				w.b = append(w.b, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")...)
				continue
			}
			w.uint(uint64(token32.Draw(t, "token")))
		}
		w.b = w.b[:rapid.IntRange(max(0, len(w.b)-9), len(w.b)).Draw(t, "end")]
		got, rest, err := readTokens([]uint32{7}, w.b)
		plain, plainRest, plainErr := plainTokens([]uint32{7}, w.b)
		if err != plainErr || err == nil && (!slices.Equal(got, plain) || len(rest) != len(plainRest)) {
			t.Fatalf("%x: %v, %v; want %v, %v", w.b, got, err, plain, plainErr)
		}
	})
}

// plainTokens is the twin of readTokens.
func plainTokens(dst []uint32, b []byte) ([]uint32, []byte, error) {
	n, b, err := msgpack.ReadArray(b)
	for i := uint32(0); err == nil && i < n; i++ {
		var t uint32
		if t, b, err = msgpack.ReadUint32(b); err == nil {
			dst = append(dst, t)
		}
	}
	return dst, b, err
}

func TestAppendBatchRefuses(t *testing.T) {
	store := Event{Kind: kvevent.Stored, Hashes: []kvevent.EngineHash{1}, Tokens: []uint32{1}, BlockSize: 1}
	salted, odd, early := store, store, store
	salted.Salt = "x"
	odd.Media = []kvevent.Media{{Block: 1}}
	early.Media = []kvevent.Media{{Block: -1}}
	for name, c := range map[string]struct {
		form  Form
		event Event
	}{
		"no form": {0, store}, "unknown form": {MapForm + 1, store}, "no kind": {MapForm, Event{}}, "unknown kind": {ArrayForm, Event{Kind: 4}},
		"salt in an array": {ArrayForm, salted}, "media of no block": {MapForm, odd}, "media before all": {ArrayForm, early},
	} {
		got, err := AppendBatch([]byte("kept"), c.form, Batch{}, []Event{store, c.event})
		if err == nil || string(got) != "kept" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestGolden: what we write is what another encoder writes.
func TestGolden(t *testing.T) {
	all := vectors(t)
	one, two := []uint32{1, 2, 3, 4}, []uint32{5, 6, 7, 8}
	for name, c := range map[string]struct {
		form   Form
		events []Event
	}{
		"array": {ArrayForm, []Event{{
			Kind: kvevent.Stored, Hashes: []kvevent.EngineHash{11, 12}, Parent: 10, HasParent: true, Tokens: append(one, two...), BlockSize: 4, Medium: "GPU",
		}}},
		"written map": {MapForm, []Event{
			{
				Kind: kvevent.Stored, Hashes: []kvevent.EngineHash{15760518052499183552}, Tokens: one, BlockSize: 4, Medium: "GPU", Adapter: "my-adapter",
				Media: []kvevent.Media{{Hash: 42, Offsets: [][2]uint32{{1, 3}}}}, Salt: "tenant-a", HasGroup: true, Spec: "full_attention",
			},
			{Kind: kvevent.Removed, Hashes: []kvevent.EngineHash{1}, Medium: "CPU", HasGroup: true, Group: 3},
			{Kind: kvevent.Cleared},
		}},
	} {
		got, err := AppendBatch(nil, c.form, at(0), c.events)
		if err != nil || string(got) != string(all[name]) {
			t.Errorf("%s: %v\n got %x\nwant %x", name, err, got, all[name])
		}
	}
}

// FuzzDecode: nothing panics, every value in an event's place is counted once, and
// the same bytes say the same twice.
func FuzzDecode(f *testing.F) {
	for name, msg := range vectors(f) {
		if !strings.HasPrefix(name, "capture 1.2.1") {
			f.Add(msg)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		d := newDecoder(t, 4)
		before := string(msg)
		_, got, err := collect(d, msg)
		s := d.Stats()
		if string(msg) != before || s.Events != uint64(len(got)) || s.Messages != 1 || (err != nil) != (s.BadMessages == 1) {
			t.Fatalf("%+v after %d events and error %v", s, len(got), err)
		}
		if err != nil && len(got) > 0 && err != errLeftovers {
			t.Fatalf("%d events and error %v", len(got), err)
		}
		placed := s.Events + s.BadEvents + s.UnknownEvents + s.OtherGroups + s.OtherSizes + s.OddSpans + s.Placeholders
		if n, ok := eventsIn(msg); err == nil && ok && placed != n {
			t.Fatalf("%d values in the place of events: %+v", n, s)
		}
		d.Restarted()
		if _, again, _ := collect(d, msg); !cmp.Equal(got, again) {
			t.Fatal(cmp.Diff(got, again))
		}
	})
}

// eventsIn returns the length of the list of events; not ok when a batch has more
// than one.
func eventsIn(msg []byte) (n uint64, ok bool) {
	l, b, err := msgpack.ReadLayout(msg)
	for i := 0; err == nil && i < l.N; i++ {
		var f int
		if f, b, err = l.Field(b, i, batchFields); err != nil {
			return 0, false
		}
		if f == batchEvents {
			if ok {
				return 0, false
			}
			ok = true
			count, _, _ := msgpack.ReadArray(b)
			n = uint64(count)
		}
		b, err = msgpack.Skip(b)
	}
	return n, ok
}
