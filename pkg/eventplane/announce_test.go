package eventplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
)

// Workers of the tests, and a subject where each was heard.
var (
	both    = fleet.Key{ID: 1}
	prefill = fleet.Key{ID: 1<<64 - 1, Rank: 3}
	decode  = fleet.Key{ID: 3, Rank: 1}

	prefillSubject = dynamo.EventSubject(dynamo.Gen15, "dynamo", "pre fill", "gen~1")
)

// words is what was said, in short.
func words(said []told) (short []string) {
	for _, w := range said {
		short = append(short, fmt.Sprintf("%s %s %d/%d", w.event.RequestID, w.event.Kind, w.event.WorkerID, w.event.Rank))
	}
	return short
}

// TestAnnouncements: what others hear of a request, on which subject, from the
// first word of its workers to its end.
func TestAnnouncements(t *testing.T) {
	r, conn, e := startSync(t, "dynamo", load.NewEngines())
	router := r.plane.announce.router
	if router == 0 || router >= 1<<53 {
		t.Errorf("router id %d, want 53 bits that are not all 0", router)
	}

	// Each worker is learnt from another kind of message.
	lone := fleet.Key{ID: 4}
	publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(both, 1, 1)))
	publish(t, conn, strings.Replace(prefillSubject, "kv-events", "forward-pass-metrics", 1), appendLoad(t, dynamo.Load{
		Kind: dynamo.LoadForwardPass, Pass: dynamo.ForwardPass{WorkerID: prefill.ID},
	}))
	publish(t, conn, strings.Replace(endpointSubject, "kv-events", "active_sequences_events", 1), appendLoad(t, dynamo.Load{
		Kind:     dynamo.LoadSequence,
		Sequence: dynamo.SequenceEvent{Kind: dynamo.MarkPrefillCompleted, WorkerID: decode.ID, RouterID: decode.ID},
	}))
	publish(t, conn, strings.Replace(componentSubject, "kv-events", "active_sequences_events", 1), appendLoad(t, dynamo.Load{
		Kind: dynamo.LoadSequence, Sequence: dynamo.SequenceEvent{Kind: dynamo.Free, WorkerID: lone.ID, RouterID: 77},
	}))
	r.barrier(conn)
	r.loadBarrier(conn)

	chains := chainsFrom(1<<63, 3)
	a := r.plane.Announce(&Placement{RequestID: "a", Adapter: "lora", Prefill: both, Decode: both, PrefillTokens: 40, Blocks: 3, Chains: chains})
	clear(chains) // the announcement keeps none of them
	b := r.plane.Announce(&Placement{RequestID: "b", Prefill: prefill, Decode: decode, PrefillTokens: 90, Blocks: 5, Chains: chainsFrom(500, 5)})
	a.PrefillDone()
	b.PrefillDone()
	b.Finished()
	a.Finished()
	c := r.plane.Announce(&Placement{RequestID: "c", Prefill: prefill, Decode: decode, Blocks: 2})
	c.Finished() // before any output
	d := r.plane.Announce(&Placement{RequestID: "d", Prefill: lone, Decode: lone, Blocks: 2})
	d.Finished()

	said := e.all(r)
	want := []string{
		"a AddRequest 1/0", "b AddRequest 18446744073709551615/3", "b AddRequest 3/1",
		"a MarkPrefillCompleted 1/0",
		"b MarkPrefillCompleted 18446744073709551615/3", "b Free 18446744073709551615/3",
		"b Free 3/1", "a Free 1/0",
		"c AddRequest 18446744073709551615/3", "c AddRequest 3/1", "c Free 18446744073709551615/3", "c Free 3/1",
		"d AddRequest 4/0", "d Free 4/0",
	}
	if diff := cmp.Diff(want, words(said)); diff != "" {
		t.Fatal(diff)
	}
	wantEnvelopes(t, r, said)

	tokens := func(n uint64) dynamo.Optional[dynamo.PrefillHint] {
		return dynamo.Optional[dynamo.PrefillHint]{Value: dynamo.PrefillHint{Tokens: n}, Set: true}
	}
	sequence := func(c []block.Chain) dynamo.Optional[[]block.Chain] {
		return dynamo.Optional[[]block.Chain]{Value: c, Set: true}
	}
	for i, want := range map[int]dynamo.Added{
		0:  {Sequence: sequence(chainsFrom(1<<63, 3)), TrackPrefill: true, Hint: tokens(40)},
		1:  {TrackPrefill: true, Hint: tokens(90)},
		2:  {Sequence: sequence(said[2].event.Added.Sequence.Value)},
		8:  {TrackPrefill: true},
		9:  {Sequence: sequence(said[9].event.Added.Sequence.Value)},
		12: {TrackPrefill: true, Sequence: sequence(said[12].event.Added.Sequence.Value)},
	} {
		if diff := cmp.Diff(want, said[i].event.Added); diff != "" {
			t.Errorf("%s\n%s", words(said)[i], diff)
		}
	}
	// Hashes that are made up are as many as there are blocks, and none comes twice.
	seen := map[block.Chain]bool{}
	for i, n := range map[int]int{2: 5, 9: 2, 12: 2} {
		drawn := said[i].event.Added.Sequence.Value
		if len(drawn) != n {
			t.Errorf("%s: %d blocks, want %d", words(said)[i], len(drawn), n)
		}
		for _, h := range drawn {
			if seen[h] || 500 <= h && h < 505 {
				t.Errorf("%s: hash %d is not its own", words(said)[i], h)
			}
			seen[h] = true
		}
	}
	for i, w := range said {
		if got, want := string(w.event.LoRA), map[bool]string{true: "lora"}[string(w.event.RequestID) == "a"]; got != want {
			t.Errorf("%s: adapter %q, want %q", words(said)[i], got, want)
		}
	}
	r.wantAnnounced(AnnounceStats{Added: 7, Prefilled: 2, Freed: 7})
}

// wantEnvelopes checks the subject of each word, and that who listens to one hears
// one publisher that counts from 0.
func wantEnvelopes(t *testing.T, r *rig, said []told) {
	t.Helper()
	subjects := map[fleet.Key]string{
		both:      "namespace.dynamo.component.backend.active_sequences_events",
		{ID: 4}:   "namespace.dynamo.component.backend.active_sequences_events",
		prefill:   "namespace.dynamo.component.pre%20fill.endpoint.gen%7E1.active_sequences_events",
		decode:    "namespace.dynamo.component.backend.endpoint.generate.active_sequences_events",
		{ID: 999}: "",
	}
	next, publishers := map[string]uint64{}, map[uint64]string{}
	at := uint64(r.now().UnixMilli())
	latest := at + r.plane.ReplicaStats().Sent // words are later than every state before them
	for i, w := range said {
		if want := subjects[fleet.Key{ID: w.event.WorkerID, Rank: w.event.Rank}]; w.subject != want {
			t.Errorf("%s on %s, want %s", words(said)[i], w.subject, want)
		}
		id := w.envelope.PublisherID
		if other, ok := publishers[id]; ok && other != w.subject || id == 0 || id >= 1<<53 || id == r.plane.announce.router {
			t.Errorf("publisher %d on %s and %q", id, w.subject, other)
		}
		publishers[id] = w.subject
		want := dynamo.Envelope{
			PublisherID: id, Sequence: next[w.subject], PublishedAt: min(max(w.envelope.PublishedAt, at), latest), Topic: dynamo.TopicActiveSequences,
		}
		at = want.PublishedAt
		if w.envelope != want {
			t.Errorf("%s: %+v, want %+v", words(said)[i], w.envelope, want)
		}
		next[w.subject]++
	}
	if len(publishers) != 3 {
		t.Errorf("publishers %v, want 3", publishers)
	}
}

// TestAnnouncementsAreDynamos: for the requests that real routers placed, the
// bytes of what we say are theirs.
func TestAnnouncementsAreDynamos(t *testing.T) {
	for name, want := range map[string]int{"1.2.1-aggregated": 28, "1.6.1-aggregated": 24, "1.2.1-disaggregated": 16, "1.6.1-disaggregated": 16} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "", "dynamo").syncing()
			var sent [][]byte
			p := r.sends(func(_ string, data []byte) error {
				sent = append(sent, bytes.Clone(data))
				return nil
			})
			compared := 0
			for _, request := range routedRequests(t, name) {
				var placement Placement
				guessed := false
				var decoder dynamo.LoadDecoder
				for _, l := range request {
					_, m, err := decoder.Decode(l.Data)
					if err != nil {
						t.Fatal(err)
					}
					e := &m.Sequence
					r.plane.announce.router = e.RouterID
					k := fleet.Key{ID: e.WorkerID, Rank: e.Rank}
					r.at(l.Subject, k)
					if e.Kind != dynamo.AddRequest {
						continue
					}
					placement.RequestID, placement.Decode = string(e.RequestID), k
					if e.Added.TrackPrefill {
						placement.Prefill, placement.PrefillTokens = k, int(e.Added.Hint.Value.Tokens)
					}
					guessed = e.Added.OutputTokens.Set
					placement.Chains = append(placement.Chains, e.Added.Sequence.Value...)
				}
				if guessed { // the client told how long the output will be, which we do not read
					continue
				}
				placement.Blocks = len(placement.Chains)
				an := r.plane.Announce(&placement)
				an.PrefillDone()
				an.Finished()
				sent = nil
				p.catchUp()
				compared++
				if got, want := payloads(t, sent, placement.pair()), payloads(t, dataOf(request), placement.pair()); !slices.Equal(got, want) {
					t.Errorf("request %s\n got %q\nwant %q", placement.RequestID, got, want)
				}
			}
			if compared != want {
				t.Errorf("%d requests, want %d", compared, want)
			}
		})
	}
}

// routedRequests are the words of routers about the requests of a capture of which
// all is recorded.
func routedRequests(t *testing.T, name string) map[string][]recorded {
	t.Helper()
	all, done := map[string][]recorded{}, map[string]int{}
	for _, l := range readCapture(t, name) {
		if !strings.HasSuffix(l.Subject, dynamo.TopicActiveSequences) {
			continue
		}
		var d decoded
		var p loadPayload
		mustParse(t, l.Decoded, &d)
		mustParse(t, d.Payload, &p)
		if p.Router != p.Worker.ID { // not the worker itself
			all[p.Request] = append(all[p.Request], l)
		}
		switch string(p.Data) {
		case `"Free"`:
			done[p.Request]--
		case `"MarkPrefillCompleted"`:
		default:
			done[p.Request]++
		}
	}
	for id := range all {
		if done[id] != 0 {
			delete(all, id)
		}
	}
	return all
}

func dataOf(lines []recorded) (data [][]byte) {
	for _, l := range lines {
		data = append(data, l.Data)
	}
	return data
}

// payloads are the payloads of messages about one request, sorted: real ones come
// in any order. Dynamo's routers say that a prompt is computed, or leave it to the
// worker, and of a decode worker too: that is left out. So are the hashes of a
// pair, which are drawn at random; their number counts.
func payloads(t *testing.T, messages [][]byte, pair bool) (texts []string) {
	t.Helper()
	var decoder dynamo.LoadDecoder
	for _, m := range messages {
		_, l, err := decoder.Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		if l.Sequence.Kind == dynamo.MarkPrefillCompleted {
			continue
		}
		if pair {
			clear(l.Sequence.Added.Sequence.Value)
		}
		text, err := dynamo.AppendLoad(nil, dynamo.Envelope{}, l)
		if err != nil {
			t.Fatal(err)
		}
		if !pair { // nothing was changed: the bytes as they came
			text = m[bytes.Index(m, []byte("payload")):]
		}
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return texts
}

// TestPrefilledIsDynamos: what is left out above, byte for byte.
func TestPrefilledIsDynamos(t *testing.T) {
	r := newRig(t, "", "dynamo").syncing()
	var sent []byte
	p := r.sends(func(_ string, data []byte) error {
		sent = bytes.Clone(data)
		return nil
	})
	compared := 0
	for _, l := range readCapture(t, "1.2.1-aggregated") {
		var d decoded
		if mustParse(t, l.Decoded, &d); d.Topic != dynamo.TopicActiveSequences {
			continue
		}
		var w loadPayload
		mustParse(t, d.Payload, &w)
		if string(w.Data) != `"MarkPrefillCompleted"` {
			continue
		}
		var count struct{ Sequence, PublishedAt json.Number }
		mustParse(t, bytes.ReplaceAll(l.Decoded, []byte("published_at"), []byte("publishedat")), &count)
		k := fleet.Key{ID: w.Worker.ID, Rank: w.Worker.Rank}
		r.at(l.Subject, k)
		r.plane.announce.router = w.Router
		an := r.plane.Announce(&Placement{RequestID: w.Request, Prefill: k, Decode: k})
		p.catchUp()
		v := p.voices[l.Subject]
		v.id, v.next = d.Publisher, number(t, count.Sequence)
		r.mu.Lock()
		r.time = time.UnixMilli(int64(number(t, count.PublishedAt)))
		r.mu.Unlock()
		an.PrefillDone()
		p.catchUp()
		if !bytes.Equal(sent, l.Data) {
			t.Errorf("request %s\n got %x\nwant %x", w.Request, sent, l.Data)
		}
		compared++
	}
	if compared < 20 {
		t.Errorf("%d messages compared", compared)
	}
}

// TestTwoPlanes: one sees the load that the other places, and not its own.
func TestTwoPlanes(t *testing.T) {
	mine, theirs := load.NewEngines(), load.NewEngines()
	r, conn, _ := startSync(t, "dynamo", mine)
	other := newRig(t, r.plane.cfg.URL, "dynamo").syncing()
	other.plane.cfg.Loads = theirs
	other.run()
	other.listening(conn)
	other.loadBarrier(conn)
	other.speaks()
	r.at(componentSubject, both)
	r.at(prefillSubject, prefill)
	r.at(endpointSubject, decode)

	type view map[fleet.Key]load.Foreign
	check := func(what string, want view) {
		t.Helper()
		waitFor(t, what, func() bool {
			for _, k := range []fleet.Key{both, prefill, decode} {
				if foreign(other, theirs, k) != want[k] {
					return false
				}
			}
			return true
		})
	}
	a := r.plane.Announce(&Placement{RequestID: "a", Prefill: both, Decode: both, PrefillTokens: 40, Blocks: 3})
	b := r.plane.Announce(&Placement{RequestID: "b", Prefill: prefill, Decode: decode, PrefillTokens: 90, Blocks: 5})
	check("both are placed", view{both: {Requests: 1, PrefillTokens: 40, Blocks: 3}, prefill: {Requests: 1, PrefillTokens: 90}, decode: {Requests: 1, Blocks: 5}})
	b.PrefillDone()
	check("a prompt is computed", view{both: {Requests: 1, PrefillTokens: 40, Blocks: 3}, decode: {Requests: 1, Blocks: 5}})
	// A replica that never heard a worker learns its place from the other.
	c := other.plane.Announce(&Placement{RequestID: "c", Prefill: both, Decode: both, PrefillTokens: 7})
	waitFor(t, "the first sees the second's", func() bool { return foreign(r, mine, both) == load.Foreign{Requests: 1, PrefillTokens: 7} })
	a.Finished()
	b.Finished()
	c.Finished()
	check("all have ended", view{})
	waitFor(t, "the second's has ended", func() bool { return foreign(r, mine, both) == load.Foreign{} })
	r.loadBarrier(conn)
	other.loadBarrier(conn)
	for _, k := range []fleet.Key{prefill, decode} {
		if f := foreign(r, mine, k); f != (load.Foreign{}) {
			t.Errorf("the first counts its own on %v: %+v", k, f)
		}
	}
	// AddRequest and Free three times, MarkPrefillCompleted once; and those of the other.
	if got := [2]uint64{r.plane.LoadStats().Own, other.plane.LoadStats().Own}; got != [2]uint64{7, 2} {
		t.Errorf("own words passed over: %v, want 7 and 2", got)
	}
}

// TestWordsInAnyOrder: whatever order our words reach another router in, nothing
// of the request stays behind.
func TestWordsInAnyOrder(t *testing.T) {
	r := newRig(t, "", "dynamo").syncing()
	var sent []*nats.Msg
	p := r.sends(func(subject string, data []byte) error {
		sent = append(sent, &nats.Msg{Subject: subject, Data: bytes.Clone(data)})
		return nil
	})
	r.at(componentSubject, prefill, decode)
	an := r.plane.Announce(&Placement{RequestID: "a", Prefill: prefill, Decode: decode, PrefillTokens: 90, Blocks: 5})
	an.PrefillDone()
	an.Finished()
	p.catchUp()
	if len(sent) != 5 {
		t.Fatalf("%d messages, want 5", len(sent))
	}
	orders, most := 0, uint64(0)
	var try func(done, left []*nats.Msg)
	try = func(done, left []*nats.Msg) {
		for i := range left {
			try(append(slices.Clone(done), left[i]), slices.Delete(slices.Clone(left), i, i+1))
		}
		if len(left) > 0 {
			return
		}
		orders++
		engines := load.NewEngines()
		reader := newRig(t, "", "dynamo")
		reader.plane.cfg.Loads = engines
		for _, m := range done {
			reader.plane.receiveLoad(m)
			most = max(most, foreign(reader, engines, prefill).PrefillTokens)
		}
		for _, k := range []fleet.Key{prefill, decode} {
			if f := foreign(reader, engines, k); f != (load.Foreign{}) {
				t.Errorf("order %v leaves %+v on %v", done, f, k)
			}
		}
	}
	try(nil, sent)
	if orders != 120 || most != 90 {
		t.Errorf("%d orders, at most %d tokens; want 120 and 90", orders, most)
	}
}

// TestUnknownPlace: of a worker that was never heard nothing is told, which is
// counted and said; the other one of a pair is told of.
func TestUnknownPlace(t *testing.T) {
	r, _, e := startSync(t, "dynamo", load.NewEngines())
	r.at(endpointSubject, decode)
	for i := range 3 {
		an := r.plane.Announce(&Placement{RequestID: fmt.Sprint(i), Prefill: prefill, Decode: decode})
		an.PrefillDone()
		an.Finished()
	}
	an := r.plane.Announce(&Placement{RequestID: "alone", Prefill: both, Decode: both})
	an.PrefillDone()
	an.Finished()
	said := e.all(r)
	want := []string{"0 AddRequest 3/1", "0 Free 3/1", "1 AddRequest 3/1", "1 Free 3/1", "2 AddRequest 3/1", "2 Free 3/1"}
	if diff := cmp.Diff(want, words(said)); diff != "" {
		t.Error(diff)
	}
	if s := r.plane.AnnounceStats(); s.UnknownPlace != 4 || s.Prefilled != 0 {
		t.Errorf("%+v, want 4 without a place", s)
	}
	const line = "other routers are not told of requests on a worker that was never heard"
	if n := r.logs.count(line, "worker_id=18446744073709551615", "rank=3"); n != 1 || r.logs.count(line) != 1 {
		t.Errorf("%d lines of the log, want 1", r.logs.count(line))
	}
	r.advance(time.Minute)
	r.plane.Announce(&Placement{RequestID: "later", Prefill: both, Decode: both}).Finished()
	e.all(r)
	if n := r.logs.count(line); n != 2 {
		t.Errorf("%d lines of the log a minute later, want 2", n)
	}
	wantNothingOpen(t, r)
}

// wantNothingOpen checks that nothing waits and no request is open.
func wantNothingOpen(t *testing.T, r *rig) {
	t.Helper()
	waitFor(t, "announcements stay open", func() bool {
		a := r.plane.announce
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.open == 0 && a.blocks == 0 && len(a.words) == 0
	})
}

// TestAnOutageOfNATS: what happens during it is counted, not kept; but the end of a
// request that others know of is told as soon as it is over.
func TestAnOutageOfNATS(t *testing.T) {
	port := freePort(t)
	address, stop := startNATS(t, port)
	r := newRig(t, address, "dynamo").syncing()
	r.plane.reconnectWait = time.Millisecond
	conn := connect(t, address)
	e := earOn(t, conn)
	r.run()
	r.speaks()
	r.at(componentSubject, both, prefill, decode)
	known := r.plane.Announce(&Placement{RequestID: "known", Prefill: prefill, Decode: decode})
	lasting := r.plane.Announce(&Placement{RequestID: "lasting", Prefill: both, Decode: both})
	e.all(r)
	stop()
	probes := uint64(0)
	waitFor(t, "the outage is not noticed", func() bool {
		r.plane.Announce(&Placement{RequestID: "probe", Prefill: both, Decode: both}).Finished()
		probes++
		return r.plane.AnnounceStats().NotConnected > 0
	})
	var before AnnounceStats
	waitFor(t, "not all of them are dealt with", func() bool {
		before = r.plane.AnnounceStats()
		return before.Added+before.NotConnected == probes+4 // that of all is a request too
	})
	lost := r.plane.Announce(&Placement{RequestID: "lost", Prefill: both, Decode: both})
	known.PrefillDone()
	known.Finished()
	waitFor(t, "the words of the outage are not counted", func() bool {
		return r.plane.AnnounceStats().NotConnected == before.NotConnected+2 // AddRequest and MarkPrefillCompleted
	})
	startNATS(t, port)
	waitFor(t, "nobody listens again", func() bool { return conn.FlushTimeout(time.Second) == nil })
	waitFor(t, "its end is not told", func() bool { return r.plane.AnnounceStats().Freed == before.Added-1 })
	lost.Finished()
	lasting.PrefillDone()
	lasting.Finished()
	var said []string
	for _, w := range words(e.all(r)) {
		if !strings.HasPrefix(w, "probe") {
			said = append(said, w)
		}
	}
	// The listener may have come back after the first two words were said.
	want := []string{"known Free 18446744073709551615/3", "known Free 3/1", "lasting MarkPrefillCompleted 1/0", "lasting Free 1/0"}
	if !slices.Equal(said, want) && !slices.Equal(said, want[1:]) && !slices.Equal(said, want[2:]) {
		t.Errorf("said %q, want %q", said, want)
	}
	wantNothingOpen(t, r)
}

// TestNoServer: nothing waits for a server that never comes, nor does the end.
func TestNoServer(t *testing.T) {
	r := newRig(t, fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)), "dynamo").syncing()
	stop := r.run()
	r.at(componentSubject, both)
	for range 10 {
		an := r.plane.Announce(&Placement{RequestID: "a", Prefill: both, Decode: both})
		an.PrefillDone()
		an.Finished()
	}
	waitFor(t, "they are not counted", func() bool { return r.plane.AnnounceStats() == AnnounceStats{NotConnected: 10} })
	wantNothingOpen(t, r)
	stop()
}

// TestTheEndFreesAll: a plane that ends leaves no request on others' books, and
// takes no more.
func TestTheEndFreesAll(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "dynamo").syncing()
	e := earOn(t, connect(t, address))
	stop := r.run()
	r.speaks()
	r.at(componentSubject, both, prefill, decode)
	var open []*Announcement
	for range 100 {
		open = append(open,
			r.plane.Announce(&Placement{RequestID: "one", Prefill: both, Decode: both}),
			r.plane.Announce(&Placement{RequestID: "pair", Prefill: prefill, Decode: decode}))
	}
	open[1].PrefillDone()
	open[2].Finished()
	stop()
	counts := map[dynamo.SequenceKind]int{}
	for range 300 + 1 + 300 {
		counts[e.next(r).event.Kind]++
	}
	if counts[dynamo.AddRequest] != 300 || counts[dynamo.MarkPrefillCompleted] != 1 || counts[dynamo.Free] != 300 {
		t.Errorf("%v, want 300 of AddRequest and of Free", counts)
	}
	for _, an := range open {
		an.PrefillDone()
		an.Finished()
	}
	before := r.plane.AnnounceStats()
	if an := r.plane.Announce(&Placement{RequestID: "late", Prefill: both, Decode: both}); an != nil {
		t.Error("an ended plane takes an announcement")
	}
	if got := r.plane.AnnounceStats(); got.NotConnected != before.NotConnected+1 {
		t.Errorf("%d not counted, want 1 more than %d", got.NotConnected, before.NotConnected)
	}
	if n := len(r.plane.announce.words); n != 0 {
		t.Errorf("%d words wait for nobody", n)
	}
}

// TestTooMany: what does not fit is counted, and nobody is told of it, from its
// first word to its last. When there is room again, there is.
func TestTooMany(t *testing.T) {
	for name, tc := range map[string]struct {
		placement Placement
		fit       int
	}{
		"requests": {Placement{Prefill: both, Decode: both}, maxAnnounced},
		"blocks":   {Placement{Prefill: both, Decode: both, Blocks: 1 << 18, Chains: chainsFrom(1, 1<<18)}, maxWaitingBlocks >> 18},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "", "dynamo").syncing()
			r.at(componentSubject, both)
			p := r.sends(discard)
			var kept []*Announcement
			for range tc.fit {
				an := r.plane.Announce(&tc.placement)
				if an == nil {
					t.Fatalf("only %d fit", len(kept))
				}
				kept = append(kept, an)
			}
			for range 3 {
				an := r.plane.Announce(&tc.placement)
				if an != nil {
					t.Fatal("more fit than there is room for")
				}
				an.PrefillDone()
				an.Finished()
			}
			for _, an := range kept {
				an.Finished()
			}
			p.catchUp()
			n := uint64(tc.fit)
			if s := r.plane.AnnounceStats(); s != (AnnounceStats{Added: n, Freed: n, QueueFull: 3}) {
				t.Errorf("%+v, want %d and 3 that did not fit", s, n)
			}
			wantNothingOpen(t, r)
			if r.plane.Announce(&tc.placement) == nil {
				t.Error("there is no room although nothing waits")
			}
		})
	}
}

// TestAStuckServer: while a message cannot be sent, requests go on.
func TestAStuckServer(t *testing.T) {
	r := newRig(t, "", "dynamo").syncing()
	r.at(componentSubject, both)
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := r.sends(func(string, []byte) error {
		once.Do(func() { close(entered) })
		<-leave
		return nil
	})
	r.plane.Announce(&Placement{Prefill: both, Decode: both}).Finished()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.catchUp()
	}()
	<-entered
	for range 1000 {
		an := r.plane.Announce(&Placement{Prefill: both, Decode: both})
		an.PrefillDone()
		an.Finished()
	}
	if s := r.plane.AnnounceStats(); s != (AnnounceStats{}) {
		t.Errorf("%+v while the first message is stuck", s)
	}
	close(leave)
	<-done
	p.catchUp()
	if s := r.plane.AnnounceStats(); s != (AnnounceStats{Added: 1001, Prefilled: 1000, Freed: 1001}) {
		t.Errorf("%+v", s)
	}
}

// TestServerLimits: what the server does not take or pass on is counted, and said.
func TestServerLimits(t *testing.T) {
	s, _ := runServer(t, &server.Options{
		Port: anyPort, MaxPayload: 4096,
		Users: []*server.User{
			{Username: "picker", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Deny: []string{"namespace.closed.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"namespace.>"}},
			}},
			{Username: "ear", Password: "p"},
		},
	})
	as := func(user string) string { return strings.Replace(s.ClientURL(), "nats://", "nats://"+user+":p@", 1) }
	r := newRig(t, as("picker"), "").syncing()
	e := earOn(t, connect(t, as("ear")))
	r.run()
	r.speaks()
	r.at(componentSubject, both, decode)
	r.at("namespace.closed.component.backend.kv-events", prefill)
	r.plane.Announce(&Placement{RequestID: "large", Prefill: both, Decode: both, Chains: chainsFrom(1<<63, 1000)}).Finished()
	r.plane.Announce(&Placement{RequestID: "\xff", Prefill: both, Decode: both}).Finished()
	r.plane.Announce(&Placement{RequestID: "denied", Prefill: prefill, Decode: decode}).Finished()
	if diff := cmp.Diff([]string{"denied AddRequest 3/1", "denied Free 3/1"}, words(e.all(r))); diff != "" {
		t.Error(diff)
	}
	r.wantAnnounced(AnnounceStats{Added: 3, Freed: 3, TooLarge: 2, Denied: 2})
	waitFor(t, "it is not said that the server denies", func() bool { return r.logs.count("does not let us tell", "namespace.closed") == 1 })
	wantNothingOpen(t, r)
}

// TestAnnounceAtOnce: of many requests at once each is told once, in order.
func TestAnnounceAtOnce(t *testing.T) {
	r, _, e := startSync(t, "dynamo", load.NewEngines())
	r.at(componentSubject, both, prefill, decode)
	const streams, each = 8, 40
	var wg sync.WaitGroup
	for s := range streams {
		wg.Go(func() {
			for i := range each {
				p := Placement{RequestID: fmt.Sprint(s, "-", i), Prefill: both, Decode: both, Blocks: 4, Chains: chainsFrom(uint64(1000*s+i), 4)}
				if i%2 == 1 {
					p.Prefill, p.Decode = prefill, decode
				}
				an := r.plane.Announce(&p)
				var ends sync.WaitGroup // whoever calls, and how often
				if i%3 > 0 {
					an.PrefillDone()
					an.PrefillDone()
				}
				for range 2 {
					ends.Go(an.Finished)
				}
				ends.Wait()
				an.PrefillDone()
			}
		})
	}
	wg.Wait()
	said := map[string][]string{}
	for _, w := range e.all(r) {
		id := string(w.event.RequestID)
		said[id] = append(said[id], fmt.Sprint(w.event.Kind, " ", w.event.WorkerID))
		if n := len(w.event.Added.Sequence.Value); w.event.Kind == dynamo.AddRequest && w.event.WorkerID != prefill.ID && n != 4 {
			t.Errorf("request %s has %d blocks", id, n)
		}
	}
	if len(said) != streams*each {
		t.Errorf("%d requests, want %d", len(said), streams*each)
	}
	for id, got := range said {
		var s, i int
		if _, err := fmt.Sscanf(id, "%d-%d", &s, &i); err != nil {
			t.Fatal(err)
		}
		var want []string
		switch pre, dec := fmt.Sprint(" ", prefill.ID), fmt.Sprint(" ", decode.ID); {
		case i%2 == 1 && i%3 > 0:
			want = []string{"AddRequest" + pre, "AddRequest" + dec, "MarkPrefillCompleted" + pre, "Free" + pre, "Free" + dec}
		case i%2 == 1:
			want = []string{"AddRequest" + pre, "AddRequest" + dec, "Free" + pre, "Free" + dec}
		case i%3 > 0:
			want = []string{"AddRequest 1", "MarkPrefillCompleted 1", "Free 1"}
		default:
			want = []string{"AddRequest 1", "Free 1"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("request %s: %q, want %q", id, got, want)
		}
	}
	wantNothingOpen(t, r)
}

// TestVoicesAreBounded: a subject that is forgotten starts over as another
// publisher.
func TestVoicesAreBounded(t *testing.T) {
	r := newRig(t, "", "").syncing()
	p := r.sends(discard)
	first := *p.voice("0")
	for i := range maxVoices {
		p.voice(fmt.Sprint(i)).next = 5
	}
	if len(p.voices) != maxVoices {
		t.Fatalf("%d voices, want %d", len(p.voices), maxVoices)
	}
	p.voice("one more")
	if again := *p.voice("0"); len(p.voices) != 2 || again.next != 0 || again.id == first.id {
		t.Errorf("%d voices, the first %+v, was %+v", len(p.voices), again, first)
	}
}

// TestSyncIsOff: without replica sync nothing is told, learnt or passed over.
func TestSyncIsOff(t *testing.T) {
	r := newRig(t, "", "dynamo")
	engines := load.NewEngines()
	r.plane.cfg.Loads = engines
	r.give(componentSubject, encode(t, dynamo.Gen12, stored(both, 1, 1)))
	an := r.plane.Announce(&Placement{RequestID: "a", Prefill: both, Decode: both})
	if an != nil {
		t.Fatal("there is an announcement")
	}
	an.PrefillDone()
	an.Finished()
	if s := r.plane.AnnounceStats(); s != (AnnounceStats{}) {
		t.Errorf("%+v", s)
	}
	for router := range uint64(3) {
		r.plane.receiveLoad(&nats.Msg{Subject: strings.Replace(componentSubject, "kv-events", "active_sequences_events", 1), Data: appendLoad(t, dynamo.Load{
			Kind: dynamo.LoadSequence, Sequence: dynamo.SequenceEvent{Kind: dynamo.AddRequest, WorkerID: both.ID, RouterID: router},
		})})
	}
	if f := foreign(r, engines, both); f.Requests != 3 || r.plane.LoadStats().Own != 0 {
		t.Errorf("%+v, want 3 requests", f)
	}
	if n := testing.AllocsPerRun(1000, func() {
		an := r.plane.Announce(&Placement{RequestID: "a", Prefill: both, Decode: both})
		an.PrefillDone()
		an.Finished()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// benchPlacement is a decision on a prompt of 128 blocks.
func benchPlacement(pair bool) Placement {
	p := Placement{
		RequestID: "6ecc5f5e-73dd-46b9-99c0-f744e775aab0", Prefill: both, Decode: both,
		PrefillTokens: 300, Blocks: 128, Chains: make([]block.Chain, 128),
	}
	for i := range p.Chains {
		p.Chains[i] = block.Chain(rand.Uint64())
	}
	if pair {
		p.Prefill = prefill
	}
	return p
}

// BenchmarkAnnounce is what one decision costs its request: to be announced, and to
// end. The publisher's work, once in a while, is not in it.
func BenchmarkAnnounce(b *testing.B) {
	for name, pair := range map[string]bool{"aggregated": false, "pair": true} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, "", "dynamo").syncing()
			p := r.sends(discard) // of workers without a place nothing is written
			placement := benchPlacement(pair)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				an := r.plane.Announce(&placement)
				an.PrefillDone()
				an.Finished()
				if i%256 == 255 {
					b.StopTimer()
					p.catchUp()
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkPublish is what the publisher does for one decision, without NATS.
func BenchmarkPublish(b *testing.B) {
	for name, pair := range map[string]bool{"aggregated": false, "pair": true} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, "", "dynamo").syncing()
			r.at(componentSubject, both, prefill)
			p := r.sends(discard)
			placement := benchPlacement(pair)
			b.ReportAllocs()
			for b.Loop() {
				an := r.plane.Announce(&placement)
				an.PrefillDone()
				an.Finished()
				p.catchUp()
			}
			if s := r.plane.AnnounceStats(); s.Freed == 0 || s.UnknownPlace != 0 {
				b.Fatalf("%+v", s)
			}
		})
	}
}
