package dynamo

import (
	"encoding/hex"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// The example messages of dynamo.md 1.3 and 1.4, from "worker-0".
const (
	hexEnvelope = "85ac7075626c69736865725f6964cf00043710f49c0cffa873657175656e636500ac7075626c69736865645f6174cf000001977420dc00a5746f706963a96b762d6576656e7473a77061796c6f6164c4ae" + hexStored
	hexStored   = "83a9776f726b65725f6964cf00043710f49c0cffac73746f726167655f74696572a6646576696365a56576656e7483a86576656e745f696401a46461746181a673746f72656483ab706172656e745f68617368c0ae73746172745f706f736974696f6ec0a6626c6f636b739183aa626c6f636b5f68617368cf9a3298afb5ac71c7ab746f6b656e735f68617368cfcb38e4d7fb2dca5cad6d6d5f65787472615f696e666fc0a764705f72616e6b00"
	hexMedia    = "83a9776f726b65725f6964cf00043710f49c0cffac73746f726167655f74696572ab686f73745f70696e6e6564a56576656e7483a86576656e745f696402a46461746181a673746f72656483ab706172656e745f68617368cf9a3298afb5ac71c7ae73746172745f706f736974696f6e01a6626c6f636b739183aa626c6f636b5f68617368ccdeab746f6b656e735f68617368cd014dad6d6d5f65787472615f696e666f81aa6d6d5f6f626a656374739182a76d6d5f686173682aa76f66667365747391920004a764705f72616e6b01"
	hexRemoved  = "83a9776f726b65725f6964cf00043710f49c0cffac73746f726167655f74696572a6646576696365a56576656e7483a86576656e745f696403a46461746181a772656d6f76656481ac626c6f636b5f68617368657391cf9a3298afb5ac71c7a764705f72616e6b00"
	hexCleared  = "83a9776f726b65725f6964cf00043710f49c0cffac73746f726167655f74696572a6646576696365a56576656e7483a86576656e745f696404a464617461a7636c6561726564a764705f72616e6b00"
)

const worker0 = 1186445869714687

var (
	storedEvent = kvevent.Event{
		WorkerID: worker0, ID: 1, Kind: kvevent.Stored,
		Blocks: []kvevent.Block{{Engine: 11111111111111111111, Hash: 14643705804678351452}},
	}
	mediaEvent = kvevent.Event{
		WorkerID: worker0, ID: 2, Rank: 1, Tier: kvevent.Host, Kind: kvevent.Stored,
		Parent: 11111111111111111111, HasParent: true, Start: 1, HasStart: true,
		Blocks: []kvevent.Block{{Engine: 222, Hash: 333}},
		Media:  []kvevent.Media{{Block: 0, Hash: 42, Offsets: [][2]uint32{{0, 4}}}},
	}
	removedEvent = kvevent.Event{
		WorkerID: worker0, ID: 3, Kind: kvevent.Removed,
		Gone: []kvevent.EngineHash{11111111111111111111},
	}
	clearedEvent = kvevent.Event{WorkerID: worker0, ID: 4, Kind: kvevent.Cleared}
)

func unhexString(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// envelop wraps a payload as publishers do.
func envelop(payload []byte) []byte {
	b := msgp.AppendMapHeader(nil, 5)
	b = msgp.AppendUint64(msgp.AppendString(b, "publisher_id"), worker0)
	b = msgp.AppendUint64(msgp.AppendString(b, "sequence"), 0)
	b = msgp.AppendUint64(msgp.AppendString(b, "published_at"), 1750000000000)
	b = msgp.AppendString(msgp.AppendString(b, "topic"), "kv-events")
	return msgp.AppendBytes(msgp.AppendString(b, "payload"), payload)
}

var env0 = Envelope{PublisherID: worker0, PublishedAt: 1750000000000, Topic: "kv-events"}

func isTopicError(err error, topic string) bool {
	return errors.Is(err, ErrTopic) && strings.Contains(err.Error(), topic)
}

func TestExamples(t *testing.T) {
	if got := hex.EncodeToString(envelop(unhexString(t, hexStored))); got != hexEnvelope {
		t.Fatalf("envelope\n got %s\nwant %s", got, hexEnvelope)
	}
	for _, c := range []struct {
		name, payload string
		want          kvevent.Event
	}{
		{"stored", hexStored, storedEvent},
		{"media", hexMedia, mediaEvent},
		{"removed", hexRemoved, removedEvent},
		{"cleared", hexCleared, clearedEvent},
	} {
		for _, scope := range []Scope{ComponentScope, EndpointScope} {
			t.Run(c.name+"/"+scope.String(), func(t *testing.T) {
				c.want.AllRanks = c.want.Kind == kvevent.Cleared && scope == ComponentScope
				msg := envelop(unhexString(t, c.payload))
				var d Decoder
				env, got, err := collect(&d, msg, scope)
				if err != nil || env != env0 {
					t.Fatalf("%+v, %v", env, err)
				}
				if diff := cmp.Diff([]kvevent.Event{c.want}, got); diff != "" {
					t.Fatal(diff)
				}
				again, err := AppendMessage([]byte("kept"), Gen12, env, got)
				if err != nil || string(again) != "kept"+string(msg) {
					t.Fatalf("encoded again (%v): %x", err, again)
				}
			})
		}
	}
}

// m builds msgpack from Go values, for tests: map[string]any is not used because
// the order of keys matters.
type kv struct {
	key any
	val any
}
type (
	m   []kv
	a   []any
	raw []byte
)

func pack(t testing.TB, v any) []byte {
	t.Helper()
	return packTo(t, nil, v)
}

func packTo(t testing.TB, b []byte, v any) []byte {
	t.Helper()
	switch v := v.(type) {
	case m:
		b = msgp.AppendMapHeader(b, uint32(len(v)))
		for _, f := range v {
			b = packTo(t, packTo(t, b, f.key), f.val)
		}
		return b
	case a:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, e := range v {
			b = packTo(t, b, e)
		}
		return b
	case raw:
		return append(b, v...)
	}
	b, err := msgp.AppendIntf(b, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func block1(fields ...kv) m {
	return append(m{{"block_hash", 7}, {"tokens_hash", 8}}, fields...)
}

// good is a valid event with the given id.
func good(id int) m {
	return m{{"worker_id", 5}, {"event", m{{"event_id", id}, {"data", "cleared"}}}}
}

// with is a valid event but for its data.
func with(data any) m {
	return m{{"worker_id", 5}, {"event", m{{"event_id", 1}, {"data", data}}}}
}

func stored(fields ...kv) m { return m{{"stored", m(fields)}} }

// TestForms: everything that is accepted although no release writes it so.
func TestForms(t *testing.T) {
	store := kvevent.Event{WorkerID: 5, ID: 1, Kind: kvevent.Stored, Blocks: []kvevent.Block{{Engine: 7, Hash: 8}}}
	parent := store
	parent.Parent, parent.HasParent = math.MaxUint64, true
	start := parent
	start.Start, start.HasStart = 3, true
	cleared := kvevent.Event{WorkerID: 5, ID: 1, Kind: kvevent.Cleared}
	edit := func(e kvevent.Event, f func(*kvevent.Event)) kvevent.Event { f(&e); return e }
	for _, c := range []struct {
		name    string
		payload any
		want    []kvevent.Event
		unknown uint64
	}{
		{"least", with(stored(kv{"blocks", a{block1()}})), []kvevent.Event{store}, 0},
		{
			"keys in any order",
			m{{"event", m{{"dp_rank", 0}, {"data", stored(kv{"blocks", a{m{{"tokens_hash", 8}, {"block_hash", 7}}}}, kv{"parent_hash", nil})}, {"event_id", 1}}}, {"worker_id", 5}},
			[]kvevent.Event{store},
			0,
		},
		{
			"unknown keys",
			m{{"new", a{1, m{{"x", a{}}}}}, {"worker_id", 5}, {3, 4}, {"event", m{{"event_id", 1}, {"why", nil}, {"data", stored(kv{"lora", "x"}, kv{"blocks", a{block1(kv{"size", 16})}})}}}},
			[]kvevent.Event{store},
			5,
		},
		{"keys as bytes", m{{[]byte("worker_id"), 5}, {[]byte("event"), m{{[]byte("event_id"), 1}, {"data", "cleared"}}}}, []kvevent.Event{cleared}, 0},
		{"state_source", append(good(1), kv{"state_source", m{{"x", 1}}}), []kvevent.Event{cleared}, 0},
		{"nil for not stated", append(m{{"storage_tier", nil}, {"residency_domain", nil}}, good(1)...), []kvevent.Event{cleared}, 0},
		{"nil rank", m{{"worker_id", 5}, {"event", m{{"event_id", 1}, {"data", "cleared"}, {"dp_rank", nil}}}}, []kvevent.Event{cleared}, 0},
		{
			"largest integers",
			m{{"worker_id", uint64(math.MaxUint64)}, {"event", m{{"event_id", uint64(math.MaxUint64)}, {"data", "cleared"}, {"dp_rank", math.MaxUint32}}}},
			[]kvevent.Event{{WorkerID: math.MaxUint64, ID: math.MaxUint64, Rank: math.MaxUint32, Kind: kvevent.Cleared}},
			0,
		},
		{
			"negative hashes", with(stored(kv{"parent_hash", -1}, kv{"blocks", a{m{{"block_hash", -5}, {"tokens_hash", int64(math.MinInt64)}}}})),
			[]kvevent.Event{edit(parent, func(e *kvevent.Event) {
				e.Blocks = []kvevent.Block{{Engine: math.MaxUint64 - 4, Hash: 1 << 63}}
			})},
			0,
		},
		{
			"negative removal", with(m{{"removed", m{{"block_hashes", a{-1, 0, uint64(math.MaxUint64)}}}}}),
			[]kvevent.Event{{WorkerID: 5, ID: 1, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{math.MaxUint64, 0, math.MaxUint64}}},
			0,
		},
		{
			"integers longer than needed, signed",
			m{{"worker_id", raw{0xcf, 0, 0, 0, 0, 0, 0, 0, 5}}, {"event", m{{"event_id", raw{0xd3, 0, 0, 0, 0, 0, 0, 0, 1}}, {"data", "cleared"}, {"dp_rank", raw{0xd1, 0, 0}}}}},
			[]kvevent.Event{cleared},
			0,
		},
		{"empty removal", with(m{{"removed", m{{"block_hashes", a{}}}}}), []kvevent.Event{{WorkerID: 5, ID: 1, Kind: kvevent.Removed}}, 0},
		{"cleared as map", with(m{{"cleared", nil}}), []kvevent.Event{cleared}, 0},
		{"residency", append(good(1), kv{"residency_domain", "cache_owner"}), []kvevent.Event{edit(cleared, func(e *kvevent.Event) { e.Residency = "cache_owner" })}, 0},
		{"no media", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", m{}})}})), []kvevent.Event{store}, 0},
		{
			"media", with(stored(kv{"blocks", a{block1(), block1(kv{"mm_extra_info", m{{"mm_objects", a{m{{"offsets", a{}}, {"mm_hash", -1}}, m{{"mm_hash", 2}, {"offsets", a{a{1, 2}, a{3, 4}}}}, m{{"mm_hash", 3}}}}}})}})),
			[]kvevent.Event{edit(store, func(e *kvevent.Event) {
				e.Blocks = []kvevent.Block{{Engine: 7, Hash: 8}, {Engine: 7, Hash: 8}}
				e.Media = []kvevent.Media{{Block: 1, Hash: math.MaxUint64}, {Block: 1, Hash: 2, Offsets: [][2]uint32{{1, 2}, {3, 4}}}, {Block: 1, Hash: 3}}
			})},
			0,
		},
		{
			"the last of equal keys counts",
			m{
				{"worker_id", 5},
				{"event", m{{"event_id", 9}, {"dp_rank", 9}, {"data", "cleared"}}},
				{"event", m{{"data", m{{"removed", m{{"block_hashes", a{1}}}}}}, {"event_id", 1}, {"data", stored(kv{"parent_hash", 4}, kv{"start_position", 2}, kv{"blocks", a{block1(), block1()}}, kv{"blocks", a{block1()}}, kv{"parent_hash", nil}, kv{"start_position", nil})}}},
			},
			[]kvevent.Event{store},
			0,
		},
		{
			"also in a removal and for the tier",
			m{
				{"storage_tier", "moon"},
				{"storage_tier", "disk"},
				{"storage_tier", nil},
				{"residency_domain", "worker"},
				{"residency_domain", nil},
				{"worker_id", 5},
				{"event", m{{"event_id", 1}, {"dp_rank", 9}, {"dp_rank", nil}, {"data", m{{"removed", m{{"block_hashes", a{1, 2}}, {"block_hashes", a{3}}}}}}}},
			},
			[]kvevent.Event{{WorkerID: 5, ID: 1, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{3}}},
			0,
		},
		{
			"also in media", with(stored(kv{"blocks", a{block1(
				kv{"mm_extra_info", m{{"mm_objects", a{m{{"mm_hash", 1}, {"offsets", a{a{1, 2}}}}}}}},
				kv{"mm_extra_info", m{{"mm_objects", a{m{{"mm_hash", 2}}}}, {"mm_objects", a{m{{"mm_hash", 3}, {"offsets", a{a{3, 4}}}, {"offsets", a{a{5, 6}}}}}}}})}})),
			[]kvevent.Event{edit(store, func(e *kvevent.Event) {
				e.Media = []kvevent.Media{{Hash: 3, Offsets: [][2]uint32{{5, 6}}}}
			})},
			0,
		},
		{"no events", a{}, nil, 0},
		{"array of one", a{good(1)}, []kvevent.Event{cleared}, 0},

		{"positional, outer only", a{5, "device", m{{"event_id", 1}, {"data", "cleared"}}}, []kvevent.Event{cleared}, 0},
		{"positional without tier", a{5, a{1, "cleared"}}, []kvevent.Event{cleared}, 0},
		{
			"positional with all",
			a{5, "disk", "worker", a{1, m{{"stored", a{-1, 3, a{a{7, 8, nil}}}}}, 2}, nil},
			[]kvevent.Event{edit(start, func(e *kvevent.Event) { e.Tier, e.Residency, e.Rank = kvevent.Disk, "worker", 2 })},
			0,
		},
		{"positional from before start_position", a{5, "device", a{1, m{{"stored", a{-1, a{a{7, 8}}}}}, 0}}, []kvevent.Event{parent}, 0},
		{"positional removal", a{5, "device", a{1, m{{"removed", a{a{1, 2}}}}, 0}}, []kvevent.Event{{WorkerID: 5, ID: 1, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{1, 2}}}, 0},
		{
			"positional media",
			a{5, a{1, m{{"stored", a{nil, nil, a{a{7, 8, a{a{a{42, a{a{0, 4}}}}}}}}}}}},
			[]kvevent.Event{edit(store, func(e *kvevent.Event) {
				e.Media = []kvevent.Media{{Hash: 42, Offsets: [][2]uint32{{0, 4}}}}
			})},
			0,
		},
		{
			"positional with more than is known",
			a{5, "device", "worker", a{1, "cleared", 0, "more"}, nil, "more"},
			[]kvevent.Event{edit(cleared, func(e *kvevent.Event) { e.Residency = "worker" })},
			2,
		},
		{"array of positional", a{a{5, "device", a{1, "cleared", 0}}, good(1)}, []kvevent.Event{cleared, cleared}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			env, got, err := collect(&d, envelop(pack(t, c.payload)), EndpointScope)
			if err != nil || env != env0 {
				t.Fatalf("%+v, %v", env, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (last skip: %v)", diff, d.LastSkip())
			}
			if want := (DecodeStats{Messages: 1, Events: uint64(len(c.want)), UnknownFields: c.unknown}); d.Stats() != want {
				t.Errorf("stats %+v, want %+v", d.Stats(), want)
			}
		})
	}
}

// TestEnvelopes: forms of the envelope that are accepted.
func TestEnvelopes(t *testing.T) {
	payload := pack(t, good(1))
	numbers := a{}
	for _, c := range payload {
		numbers = append(numbers, uint64(c))
	}
	topic := kv{"topic", "kv-events"}
	for _, c := range []struct {
		name    string
		msg     any
		want    Envelope
		unknown uint64
	}{
		{
			"any order, unknown keys",
			m{{"payload", payload}, {"v", 2}, topic, {nil, nil}, {"sequence", 9}, {"published_at", 8}, {"publisher_id", uint64(math.MaxUint64)}},
			Envelope{math.MaxUint64, 9, 8, "kv-events"},
			2,
		},
		{"positional", a{1, 2, 3, "kv-events", payload}, Envelope{1, 2, 3, "kv-events"}, 0},
		{"positional with more", a{1, 2, 3, "kv-events", payload, m{}}, Envelope{1, 2, 3, "kv-events"}, 1},
		{"payload of small integers", m{topic, {"payload", numbers}}, Envelope{Topic: "kv-events"}, 0},
		{"only what matters", m{topic, {"payload", payload}}, Envelope{Topic: "kv-events"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			env, got, err := collect(&d, pack(t, c.msg), EndpointScope)
			if err != nil || env != c.want || len(got) != 1 {
				t.Fatalf("%+v, %d events, %v", env, len(got), err)
			}
			if want := (DecodeStats{Messages: 1, Events: 1, UnknownFields: c.unknown}); d.Stats() != want {
				t.Errorf("stats %+v, want %+v", d.Stats(), want)
			}
		})
	}
}

// TestBadEvents: a value that is no event is skipped with its reason, and the
// events around it reach apply, in an array; alone it is skipped just so.
func TestBadEvents(t *testing.T) {
	deep := raw(strings.Repeat("\x91", 1<<16) + "\xc0")
	for _, c := range []struct {
		name  string
		value any
		why   string
	}{
		{"nil", nil, "neither a map nor an array"},
		{"string", "x", "neither a map nor an array"},
		{"integer", 5, "neither a map nor an array"},
		{"float", 1.5, "neither a map nor an array"},
		{"bytes", []byte("x"), "neither a map nor an array"},
		{"empty map", m{}, "no worker_id"},
		{"two workers", append(good(1), kv{"worker_id", 5}), "worker_id: given twice"},
		{"empty array", a{}, "no worker_id"},
		{"deep nesting", deep, "not an integer"},
		{"no worker_id", good(1)[1:], "no worker_id"},
		{"no event", good(1)[:1], "no event"},
		{"worker_id as string", append(m{{"worker_id", "5"}}, good(1)[1:]...), "worker_id: not an integer"},
		{"worker_id as float", append(m{{"worker_id", 5.0}}, good(1)[1:]...), "worker_id: not an integer"},
		{"negative worker_id", append(m{{"worker_id", -5}}, good(1)[1:]...), "worker_id: negative"},
		{"event of the wrong type", m{{"worker_id", 5}, {"event", "x"}}, "event: neither a map nor an array"},
		{"no event_id", m{{"worker_id", 5}, {"event", m{{"data", "cleared"}}}}, "event: no event_id"},
		{"no data", m{{"worker_id", 5}, {"event", m{{"event_id", 1}}}}, "event: no data"},
		{"negative event_id", m{{"worker_id", 5}, {"event", m{{"event_id", -1}, {"data", "cleared"}}}}, "event: event_id: negative"},
		{"nil event_id", m{{"worker_id", 5}, {"event", m{{"event_id", nil}, {"data", "cleared"}}}}, "event: event_id: not an integer"},
		{"rank too large", m{{"worker_id", 5}, {"event", m{{"event_id", 1}, {"data", "cleared"}, {"dp_rank", 1 << 32}}}}, "event: dp_rank: does not fit in 32 bits"},
		{"negative rank", m{{"worker_id", 5}, {"event", m{{"event_id", 1}, {"data", "cleared"}, {"dp_rank", -1}}}}, "event: dp_rank: negative"},
		{"tier of the wrong type", append(m{{"storage_tier", 1}}, good(1)...), "storage_tier: not a string"},
		{"residency of the wrong type", append(m{{"residency_domain", 1}}, good(1)...), "residency_domain: not a string"},
		{"unknown word", with("paused"), `event: data: unknown change "paused"`},
		{"unknown change", with(m{{"moved", m{}}}), `event: data: unknown change "moved"`},
		{"two changes", with(m{{"cleared", nil}, {"removed", m{{"block_hashes", a{}}}}}), "neither one named change nor a word"},
		{"no change", with(m{}), "neither one named change nor a word"},
		{"data of the wrong type", with(3), "neither one named change nor a word"},
		{"change without a name", with(m{{1, m{}}}), "data: not a string"},
		{"cleared with a value", with(m{{"cleared", 1}}), "cleared: not nil"},
		{"stored without blocks", with(stored(kv{"parent_hash", 1})), "no blocks"},
		{"stored of the wrong type", with(m{{"stored", nil}}), "neither a map nor an array"},
		{"blocks of the wrong type", with(stored(kv{"blocks", m{}})), "blocks: not an array"},
		{"block of the wrong type", with(stored(kv{"blocks", a{block1(), 3}})), "blocks: 1: neither a map nor an array"},
		{"no block_hash", with(stored(kv{"blocks", a{block1()[1:]}})), "no block_hash or tokens_hash"},
		{"no tokens_hash", with(stored(kv{"blocks", a{block1()[:1]}})), "no block_hash or tokens_hash"},
		{"hash as string", with(stored(kv{"blocks", a{m{{"block_hash", "7"}, {"tokens_hash", 8}}}})), "block_hash: not an integer"},
		{"hash as bytes", with(stored(kv{"blocks", a{m{{"block_hash", []byte("\x07")}, {"tokens_hash", 8}}}})), "block_hash: not an integer"},
		{"parent of the wrong type", with(stored(kv{"parent_hash", "1"}, kv{"blocks", a{}})), "parent_hash: not an integer"},
		{"start too large", with(stored(kv{"start_position", 1 << 32}, kv{"blocks", a{}})), "start_position: does not fit in 32 bits"},
		{"negative start", with(stored(kv{"start_position", -1}, kv{"blocks", a{}})), "start_position: negative"},
		{"media of the wrong type", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", 1})}})), "mm_extra_info: neither a map nor an array"},
		{"objects of the wrong type", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", m{{"mm_objects", nil}}})}})), "mm_objects: not an array"},
		{"object without hash", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", m{{"mm_objects", a{m{}}}}})}})), "no mm_hash"},
		{"offsets not in pairs", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", m{{"mm_objects", a{m{{"mm_hash", 1}, {"offsets", a{a{1, 2, 3}}}}}}}})}})), "offsets: not a pair of start and end"},
		{"negative offset", with(stored(kv{"blocks", a{block1(kv{"mm_extra_info", m{{"mm_objects", a{m{{"mm_hash", 1}, {"offsets", a{a{-1, 2}}}}}}}})}})), "offsets: negative"},
		{"removed without hashes", with(m{{"removed", m{}}}), "no block_hashes"},
		{"hashes of the wrong type", with(m{{"removed", m{{"block_hashes", 1}}}}), "block_hashes: not an array"},
		{"removed hash of the wrong type", with(m{{"removed", m{{"block_hashes", a{1, nil}}}}}), "block_hashes: not an integer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkSkipped(t, a{good(1), c.value, good(2)}, 1, c.why)
			checkSkipped(t, a{c.value, good(1), c.value, good(2), c.value}, 3, c.why)
			if _, isMap := c.value.(m); isMap {
				checkAllSkipped(t, c.value)
			}
		})
	}
}

// checkSkipped decodes a batch that holds good(1), good(2) and bad values.
func checkSkipped(t *testing.T, batch a, bad uint64, why string) {
	t.Helper()
	var d Decoder
	_, got, err := collect(&d, envelop(pack(t, batch)), EndpointScope)
	if err != nil || len(got) != 2 || got[0].ID != 1 || got[1].ID != 2 {
		t.Errorf("%d bad of %d: %+v, %v", bad, len(batch), got, err)
	}
	if s := d.Stats(); s.BadEvents != bad || s.Events != 2 || s.BadMessages != 0 {
		t.Errorf("stats %+v, want %d bad events", s, bad)
	}
	if err := d.LastSkip(); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("reason %v, want %q", err, why)
	}
}

// checkAllSkipped decodes a payload of one bad event.
func checkAllSkipped(t *testing.T, value any) {
	t.Helper()
	var d Decoder
	_, got, err := collect(&d, envelop(pack(t, value)), ComponentScope)
	if err != nil || got != nil || d.Stats() != (DecodeStats{Messages: 1, BadEvents: 1}) {
		t.Errorf("alone: %d events, %v, %+v", len(got), err, d.Stats())
	}
}

func TestUnknownTierAndEmptyStores(t *testing.T) {
	var d Decoder
	_, got, err := collect(&d, envelop(pack(t, a{
		append(m{{"storage_tier", "moon"}}, good(1)...),
		good(2),
		with(stored(kv{"blocks", a{}})),
	})), EndpointScope)
	if err != nil || len(got) != 3 || got[1].ID != 2 || got[1].Tier != kvevent.Device || got[2].Kind != kvevent.Stored || got[2].Blocks != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if e := got[0]; e.ID != 1 || e.Tier != kvevent.NumTiers || e.Tier.String() != "unknown" || e.Kind != kvevent.Cleared {
		t.Errorf("event of an unknown tier: %+v", e)
	}
	if want := (DecodeStats{Messages: 1, Events: 3, UnknownTiers: 1, EmptyStores: 1}); d.Stats() != want {
		t.Errorf("stats %+v, want %+v", d.Stats(), want)
	}
	if d.LastTier() != "moon" || d.LastSkip() != nil {
		t.Errorf("tier %q, skipped for %v", d.LastTier(), d.LastSkip())
	}
}

// TestBadMessages: what makes a message an error, and what of it is still used.
func TestBadMessages(t *testing.T) {
	ok := pack(t, good(1))
	two := pack(t, a{good(1), good(2)})
	topic := kv{"topic", "kv-events"}
	huge := []byte{0xdd, 0xff, 0xff, 0xff, 0xff} // an array of 2^32-1
	for _, c := range []struct {
		name   string
		msg    []byte
		events int
		is     error
		why    string
	}{
		{"empty", nil, 0, io.ErrUnexpectedEOF, "envelope"},
		{"json", []byte(`{"worker_id":1]`), 0, errJSON, "bare event"},
		{"integer", pack(t, 5), 0, msgpack.ErrShape, "envelope"},
		{"string", pack(t, "x"), 0, msgpack.ErrShape, "envelope"},
		{"never used byte", []byte{0xc1}, 0, msgpack.ErrShape, "envelope"},
		{"wrong topic", pack(t, m{{"topic", "kv_metrics"}, {"payload", ok}}), 0, ErrTopic, "kv_metrics"},
		{"long wrong topic", pack(t, m{{"topic", strings.Repeat("x", 1<<16)}, {"payload", ok}}), 0, ErrTopic, "xxx"},
		{"wrong topic after the payload", pack(t, m{{"payload", ok}, {"topic", "kv_metrics"}}), 0, ErrTopic, "kv_metrics"},
		{"no topic", pack(t, m{{"payload", ok}}), 0, ErrTopic, `""`},
		{"topic of the wrong type", pack(t, m{{"topic", 1}, {"payload", ok}}), 0, msgpack.ErrString, "topic"},
		{"no payload", pack(t, m{topic}), 0, nil, "no payload"},
		{"nil payload", pack(t, m{topic, {"payload", nil}}), 0, nil, "payload: neither bytes nor an array"},
		{"payload as string", pack(t, m{topic, {"payload", "x"}}), 0, nil, "payload: neither bytes nor an array"},
		{"payload of larger integers", pack(t, m{topic, {"payload", a{256}}}), 0, nil, "more than bytes"},
		{"payload of words", pack(t, m{topic, {"payload", a{"x"}}}), 0, msgpack.ErrInteger, "payload"},
		{"negative sequence", pack(t, m{topic, {"sequence", -1}, {"payload", ok}}), 0, msgpack.ErrNegative, "sequence"},
		{"short positional", pack(t, a{1, 2, 3, "kv-events"}), 0, nil, "no payload"},
		{"empty payload", envelop(nil), 0, io.ErrUnexpectedEOF, "payload"},
		{"scalar payload", envelop(pack(t, 5)), 0, msgpack.ErrShape, "payload"},
		{"word payload", envelop(pack(t, "cleared")), 0, msgpack.ErrShape, "payload"},
		{"two payloads", pack(t, m{topic, {"payload", ok}, {"payload", two}}), 1, errTwice, "payload"},
		{"bytes after the envelope", append(envelop(ok), 0), 1, nil, "1 bytes follow it"},
		{"bytes after the payload", envelop(append(slices.Clip(ok), 0xc0)), 1, errLeftovers, "payload"},
		{"bytes after the array", envelop(append(slices.Clip(two), ok...)), 2, errLeftovers, "payload"},
		{"damage after the payload", pack(t, m{topic, {"payload", ok}, {"x", raw{0xc1}}}), 1, nil, "unknown field"},
		{"array longer than it is", envelop(append([]byte{0x93}, append(slices.Clip(ok), ok...)...)), 2, io.ErrUnexpectedEOF, "event 3 of 3"},
		{"malformed between events", envelop(append([]byte{0x93}, append(slices.Clip(ok), 0xc1)...)), 1, nil, "event 2 of 3"},
		{"huge payload array", envelop(huge), 0, io.ErrUnexpectedEOF, "event 1 of 4294967295"},
		{"huge payload of integers", pack(t, m{topic, {"payload", raw(huge)}}), 0, io.ErrUnexpectedEOF, "payload"},
		{"huge envelope", huge, 0, io.ErrUnexpectedEOF, "envelope"},
		{"huge blocks", envelop(pack(t, with(stored(kv{"blocks", raw(huge)})))), 0, io.ErrUnexpectedEOF, "payload"},
		{"huge removal", envelop(pack(t, with(m{{"removed", m{{"block_hashes", raw(huge)}}}}))), 0, io.ErrUnexpectedEOF, "payload"},
		{"huge unknown map", envelop(pack(t, m{{"x", raw("\xdf\xff\xff\xff\xff")}})), 0, io.ErrUnexpectedEOF, "payload"},
		{"deep nesting", pack(t, m{topic, {"x", raw(strings.Repeat("\x91", 1<<20))}}), 0, io.ErrUnexpectedEOF, "unknown field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			_, got, err := collect(&d, c.msg, EndpointScope)
			if err == nil || len(got) != c.events || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("%d events, error %v; want %d, %v with %q", len(got), err, c.events, c.is, c.why)
			}
			if len(err.Error()) > 300 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			s := d.Stats()
			if s.Messages != 1 || s.BadMessages != 1 || s.Events != uint64(c.events) {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestTruncation cuts a message of three events at every byte: exactly the events
// that are whole reach apply.
func TestTruncation(t *testing.T) {
	events := []kvevent.Event{storedEvent, mediaEvent, removedEvent}
	whole, err := AppendMessage(nil, Gen15, env0, events)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int // where each event ends, counted from the end of the message
	for i := range events {
		after := 0
		for j := i + 1; j < len(events); j++ {
			after += len(appendRouterEvent(nil, Gen15, &events[j]))
		}
		ends = append(ends, len(whole)-after)
	}
	var d Decoder
	for cut := range whole {
		_, got, err := collect(&d, whole[:cut], EndpointScope)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
		want := 0
		for want < len(ends) && ends[want] <= cut {
			want++
		}
		if len(got) != want {
			t.Fatalf("cut at %d: %d events, want %d", cut, len(got), want)
		}
	}
}

// sixteen is a message as the mocker sends it: one stored event of 16 blocks.
func sixteen(t testing.TB, gen Generation) []byte {
	t.Helper()
	e := kvevent.Event{WorkerID: math.MaxUint64 - 1, ID: 1000, Kind: kvevent.Stored, Parent: 1 << 63, HasParent: true}
	if gen == Gen15 {
		e.Residency = "cache_owner"
	}
	for i := range uint64(16) {
		e.Blocks = append(e.Blocks, kvevent.Block{Engine: kvevent.EngineHash(1<<63 + i), Hash: 1<<62 + 1})
	}
	msg, err := AppendMessage(nil, gen, env0, []kvevent.Event{e})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	media, err := AppendMessage(nil, Gen14, env0, []kvevent.Event{mediaEvent, removedEvent, clearedEvent})
	if err != nil {
		t.Fatal(err)
	}
	for name, msg := range map[string][]byte{
		"map": sixteen(t, Gen12), "array": sixteen(t, Gen15), "media, removed, cleared": media,
	} {
		var d Decoder
		blocks := 0
		apply := func(e *kvevent.Event) { blocks += len(e.Blocks) }
		if n := testing.AllocsPerRun(100, func() {
			if _, err := d.Decode(msg, EndpointScope, apply); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per message", name, n)
		}
		if blocks == 0 {
			t.Errorf("%s: no blocks", name)
		}
	}
}

// TestWordsAreBounded: a publisher with ever new words does not grow the decoder.
func TestWordsAreBounded(t *testing.T) {
	var d Decoder
	for i := range 10 * maxWords {
		word := strconv.Itoa(i) + strings.Repeat("x", i%(2*maxWords))
		_, got, err := collect(&d, envelop(pack(t, append(good(1), kv{"residency_domain", word}))), EndpointScope)
		if err != nil || len(got) != 1 || got[0].Residency != word {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if len(d.words) != maxWords {
		t.Errorf("%d words remembered, want %d", len(d.words), maxWords)
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, msg := range map[string][]byte{"map": sixteen(b, Gen12), "array": sixteen(b, Gen15)} {
		b.Run(name+"/16blocks", func(b *testing.B) {
			var d Decoder
			b.ReportAllocs()
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				if _, err := d.Decode(msg, EndpointScope, func(*kvevent.Event) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestEnvelopeDuringApply: who says an event is known while it is applied, also
// when the message is cut short after it.
func TestEnvelopeDuringApply(t *testing.T) {
	var d Decoder
	for publisher := range uint64(3) {
		for _, cut := range []int{0, 1} {
			events := []kvevent.Event{{WorkerID: 1, ID: 1, Kind: kvevent.Cleared}, {WorkerID: 1, ID: 2, Kind: kvevent.Cleared}}
			msg, err := AppendMessage(nil, Gen14, Envelope{PublisherID: publisher, Sequence: 9}, events)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			_, err = d.Decode(msg[:len(msg)-cut], EndpointScope, func(*kvevent.Event) {
				n++
				if e := d.Envelope(); e.PublisherID != publisher || e.Sequence != 9 || e.Topic != TopicKVEvents {
					t.Errorf("envelope %+v, want publisher %d", e, publisher)
				}
			})
			if n != 2-cut || (err != nil) != (cut > 0) {
				t.Errorf("%d events, %v", n, err)
			}
		}
	}
}
