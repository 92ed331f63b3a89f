package recovery

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// everyKind is a dump of one event of each kind, with all that events may have.
const everyKind = `{"data":{"TreeDump":{"events":[
	{"worker_id":1,"storage_tier":"host_pinned","residency_domain":"cache_owner","event":{"event_id":0,"data":{"stored":{
		"parent_hash":18446744073709551615,"start_position":4294967295,"blocks":[
			{"block_hash":9223372036854775808,"tokens_hash":1,"mm_extra_info":{"mm_objects":[{"mm_hash":18446744073709551614,"offsets":[[0,4],[6,9]]}]}},
			{"block_hash":-1,"tokens_hash":2,"mm_extra_info":{"mm_objects":[{"mm_hash":7,"offsets":[[1,2]]}]}}]}},"dp_rank":4294967295}},
	{"worker_id":1,"storage_tier":"device","event":{"event_id":1,"data":{"removed":{"block_hashes":[18446744073709551615,3]}},"dp_rank":0}},
	{"worker_id":1,"storage_tier":"moon","event":{"event_id":18446744073709551615,"data":{"removed":{"block_hashes":[4]}},"dp_rank":0},"color":"red"},
	{"worker_id":1,"event":{"event_id":3,"data":"cleared","dp_rank":1}},
	{"worker_id":1,"event":{"event_id":4,"data":{"stored":{"parent_hash":null,"start_position":null,"blocks":[]}},"dp_rank":0}}
	],"last_event_id":18446744073709551615,"reset_scope":"all","more":[1.5,{}]}},"complete_final":false,"extra":null}`

func TestEveryKind(t *testing.T) {
	packed, err := transcode(nil, []byte(everyKind))
	must(t, err)
	for _, old := range []bool{false, true} {
		target := Target{Path: "1/x"}
		if old {
			target.Path = "1/" + oldEndpoint + "0"
		}
		want := []kvevent.Event{
			{
				WorkerID: 1, Rank: 1<<32 - 1, Tier: kvevent.Host, Kind: kvevent.Stored, Residency: "cache_owner",
				Parent: 1<<64 - 1, HasParent: true, Start: 1<<32 - 1, HasStart: true,
				Blocks: []kvevent.Block{{Engine: 1 << 63, Hash: 1}, {Engine: 1<<64 - 1, Hash: 2}},
				Media: []kvevent.Media{
					{Block: 0, Hash: 1<<64 - 2, Offsets: [][2]uint32{{0, 4}, {6, 9}}},
					{Block: 1, Hash: 7, Offsets: [][2]uint32{{1, 2}}},
				},
			},
			{WorkerID: 1, ID: 1, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{1<<64 - 1, 3}},
			{WorkerID: 1, ID: 1<<64 - 1, Tier: kvevent.NumTiers, Kind: kvevent.Removed, Gone: []kvevent.EngineHash{4}},
			{WorkerID: 1, ID: 3, Rank: 1, Kind: kvevent.Cleared, AllRanks: old},
			{WorkerID: 1, ID: 4, Kind: kvevent.Stored},
		}
		for _, body := range []string{everyKind, string(packed)} {
			whole := stream(body)
			p := &parser{target: target, request: askOne}
			must(t, readAnswer(bytes.NewReader(whole), p, 1<<20))
			if diff := cmp.Diff(want, p.answer.Events); diff != "" {
				t.Errorf("old %v: events (-want +got):\n%s", old, diff)
			}
			if a := p.answer; a.Kind != TreeDump || a.LastEventID != 1<<64-1 || a.UnknownFields != 1 || a.UnknownTiers != 1 {
				t.Errorf("old %v: answer %+v", old, a)
			}
		}
	}
}

// TestEveryCut cuts the same answer in msgpack at every byte, inside its frame: the
// frame is whole then, and the answer is not.
func TestEveryCut(t *testing.T) {
	packed, err := transcode(nil, []byte(everyKind))
	must(t, err)
	for cut := range packed {
		p := &parser{target: Target{Path: "1/x"}, request: askOne}
		if err := p.item(packed[:cut]); err == nil {
			t.Fatalf("cut at %d of %d passes", cut, len(packed))
		}
	}
}

// TestRequestForms: the codec says how a request is written, the endpoint's
// generation what is in it.
func TestRequestForms(t *testing.T) {
	from, to := uint64(1<<64-1), uint64(0)
	r := Request{WorkerID: 1<<64 - 2, Rank: 7, From: &from, To: &to}
	for _, c := range []struct {
		path, want string
	}{
		{"1/" + oldEndpoint + "7", `{"worker_id":18446744073709551614,"dp_rank":7,"start_event_id":18446744073709551615,"end_event_id":0}`},
		{"1/a/b/worker_kv_query_source_1", `{"worker_id":18446744073709551614,"dp_rank":7,"start_event_id":18446744073709551615,` +
			`"end_event_id":0,"supports_tree_dump_failed":true,"kind":"recovery"}`},
	} {
		for _, codec := range []Codec{JSON, Msgpack} {
			target := Target{Address: "127.0.0.1:1", Path: c.path, Codec: codec}
			must(t, r.validate(target))
			h, err := hear(bytes.NewReader(appendRequest(nil, target, r, "127.0.0.1:2", "an id")))
			must(t, err)
			if diff := cmp.Diff(generic(t, []byte(c.want)), generic(t, h.body)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", c.path, codec, diff)
			}
			word := map[Codec]string{JSON: "", Msgpack: "msgpack"}[codec]
			if h.path != c.path || h.headers["x-endpoint-path"] != c.path || h.header.PayloadCodec != word || h.header.ID != "an id" ||
				h.info.Address != "127.0.0.1:2" || h.info.Context != "an id" || h.info.Subject != "an id" || h.info.StreamType != "response" {
				t.Errorf("%s, %s: request %+v", c.path, codec, h)
			}
		}
	}
}

func TestWords(t *testing.T) {
	got := fmt.Sprint(Events, TreeDump, TooNew, InvalidRange, Kind(0), JSON, Msgpack, Codec(0))
	if want := "Events TreeDump TooNew InvalidRange unknown json msgpack unknown"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
