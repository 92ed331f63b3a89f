package eventplane

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const captureDir = "../../testdata/captures/dynamo"

// recorded is one line of a capture: a NATS message, the frames of a ZMQ
// message, or an exchange with the recovery endpoint.
type recorded struct {
	T       float64
	Subject string
	Reply   string
	Data    []byte
	Frames  json.RawMessage
	Decoded json.RawMessage
	Query   json.RawMessage
}

// decoded is the recorded reading of a message by another msgpack decoder.
type decoded struct {
	Publisher uint64 `json:"publisher_id"`
	Topic     string
	Payload   json.RawMessage
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captureDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readCapture(t testing.TB, name string) []recorded {
	t.Helper()
	var lines []recorded
	for _, raw := range readLines(readFile(t, name+".jsonl")) {
		var l recorded
		mustParse(t, raw, &l)
		lines = append(lines, l)
	}
	return lines
}

// recordedRequest is a request of requests.json.
type recordedRequest struct {
	Tokens []uint32      `json:"token_ids"`
	Hashes []uint64      `json:"block_hashes"`
	Chains []block.Chain `json:"sequence_hashes"`
	Salt   string        `json:"salt"`
}

func readRequests(t testing.TB) []recordedRequest {
	t.Helper()
	var file struct{ Requests []recordedRequest }
	mustParse(t, readFile(t, "requests.json"), &file)
	if len(file.Requests) != 30 {
		t.Fatalf("%d requests, want 30", len(file.Requests))
	}
	return file.Requests
}

// run is what X.run.json says about the making of a capture.
type run struct {
	Requests []struct {
		I        int
		T        float64
		Status   int
		Pod      string
		WorkerID json.RawMessage `json:"worker_id"`
		Usage    struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	Discovery []json.RawMessage
}

func readRun(t testing.TB, name string) run {
	t.Helper()
	var r run
	mustParse(t, readFile(t, name+".run.json"), &r)
	return r
}

// player publishes a capture, message by message in recorded order.
type player struct {
	t     *testing.T
	rig   *rig
	conn  *nats.Conn
	twin  *twin
	named map[fleet.Key]string // component per worker
	heard map[string]uint64    // kv-events messages per component
	kv    uint64
}

func newPlayer(t *testing.T, namespace string) *player {
	t.Helper()
	r, conn := startRig(t, namespace)
	return &player{t: t, rig: r, conn: conn, twin: newTwin(), named: map[fleet.Key]string{}, heard: map[string]uint64{}}
}

// play publishes one message, feeds its recorded reading to the twin, and
// returns the events in it once the plane has taken them in.
func (p *player) play(l recorded) []fact {
	p.t.Helper()
	if err := p.conn.PublishMsg(&nats.Msg{Subject: l.Subject, Reply: l.Reply, Data: l.Data}); err != nil {
		p.t.Fatal(err)
	}
	if !strings.HasSuffix(l.Subject, ".kv-events") || !strings.HasPrefix(l.Subject, "namespace.") {
		return nil
	}
	var d decoded
	mustParse(p.t, l.Decoded, &d)
	if d.Topic != "kv-events" {
		p.t.Fatalf("message of topic %q on %s", d.Topic, l.Subject)
	}
	facts := parseFacts(p.t, d.Publisher, d.Payload)
	p.twin.apply(facts...)
	component := strings.Split(l.Subject, ".")[3]
	for _, f := range facts {
		p.named[f.worker] = component
	}
	p.kv++
	p.heard[component]++
	waitFor(p.t, "a recorded message does not arrive", func() bool { return p.rig.plane.Stats().Messages == p.kv })
	return facts
}

// finish compares everything at the end of a capture.
func (p *player) finish(wantMessages int) {
	p.t.Helper()
	p.rig.barrier(p.conn)
	p.twin.check(p.t, p.rig)
	if p.kv != uint64(wantMessages) {
		p.t.Errorf("%d kv-events messages, want %d", p.kv, wantMessages)
	}
	s := p.rig.plane.Stats()
	if s.Messages != p.kv || s.BadMessages != 0 || s.Dropped != 0 || s.Disconnects != 0 || !s.Connected || !s.EverListened {
		p.t.Errorf("%+v after %d messages", s, p.kv)
	}
	var events uint64
	for _, w := range p.twin.workers {
		events += w.stats.Events
	}
	if s.Decode.Events != events || s.Decode.BadEvents+s.Decode.BadMessages+s.Decode.UnknownFields+s.Decode.UnknownTiers != 0 {
		p.t.Errorf("decoded %+v, want %d events and nothing odd", s.Decode, events)
	}
	if !maps.Equal(s.ByComponent, p.heard) {
		p.t.Errorf("messages by component: %v, want %v", s.ByComponent, p.heard)
	}
}

// counts are known totals of a capture, written down by hand from the files, lest
// a wrong reading of them go unseen in the twin as well.
type counts struct {
	messages, events, gaps, missed, restarts, strays int
}

// captured lists all captures that hold kv-events messages on NATS.
var captured = map[string]counts{
	"1.2.1-aggregated":    {messages: 40, events: 40},
	"1.2.1-disaggregated": {messages: 34, events: 34},
	"1.2.1-dp2":           {messages: 34, events: 34},
	// One publisher whose engine names rank 3 once: that rank starts at 36, and
	// rank 0 goes from 35 to 37. All ranks have the worker's id as publisher, so
	// nobody can tell that from a loss.
	"1.2.1-engine-events": {messages: 44, events: 44, gaps: 1, missed: 1},
	"1.2.1-kubernetes":    {messages: 13, events: 13, restarts: 1},
	"1.3.1-aggregated":    {messages: 40, events: 40},
	"1.4.2-aggregated":    {messages: 35, events: 41},
	"1.5.1-aggregated":    {messages: 36, events: 42},
	"1.6.1-aggregated":    {messages: 35, events: 41},
	"1.6.1-disaggregated": {messages: 24, events: 30},
	"1.6.1-dp2":           {messages: 33, events: 35},
	// The same, id 34 of publisher 7811944250472533, whose id is its own: rank 0
	// goes from 33 over 34, which is rank 3's, to 35. Nothing is missing.
	"1.6.1-engine-events": {messages: 41, events: 44, strays: 1},
	"1.6.1-host-offload":  {messages: 61, events: 69},
	// The pod's second process has another publisher, and starts at 1: one restart.
	"1.6.1-kubernetes": {messages: 12, events: 13, restarts: 1},
}

// elsewhere lists the captures that hold none, and the test that is about them.
var elsewhere = []string{"1.2.1-durable", "1.2.1-recovery", "1.2.1-zmq", "1.6.1-recovery", "1.6.1-zmq"}

func namespaceOf(name string) string {
	if strings.HasSuffix(name, "-kubernetes") {
		return "default-demo" // the base; the messages say default-demo-0a1b2c3d
	}
	return "dynamo"
}

func TestCapturesAreAllReplayed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(captureDir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".jsonl"))
	}
	want := slices.Sorted(maps.Keys(captured))
	want = append(want, elsewhere...)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("captures %v, want %v", names, want)
	}
}

func TestCaptureReplay(t *testing.T) {
	requests := readRequests(t)
	for name, want := range captured {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t, namespaceOf(name))
			for _, l := range readCapture(t, name) {
				if p.play(l) == nil {
					continue
				}
				p.twin.check(t, p.rig)
				for _, r := range requests {
					p.twin.checkPrompt(t, p.rig, r.Hashes)
				}
			}
			p.finish(want.messages)
			var got counts
			got.messages = int(p.kv)
			for _, s := range p.rig.plane.Workers() {
				got.events += int(s.Events)
				got.gaps += int(s.Gaps)
				got.missed += int(s.Missed)
				got.restarts += int(s.Restarts)
				got.strays += int(s.Strays)
			}
			if got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}

// TestCaptureOfRequests: every prompt block that a worker says it stored is found
// under the sequence hash that real Dynamo computed for it, at that moment. The
// simulated engines of these captures use the sequence hash as their own block
// hash, so what a worker holds can also be told without any hashing.
func TestCaptureOfRequests(t *testing.T) {
	requests := readRequests(t)
	byHash := map[uint64][]block.Chain{} // block hash to the chains that end with it
	for _, r := range requests {
		for i, h := range r.Hashes {
			byHash[h] = append(byHash[h], r.Chains[i])
		}
	}
	for name := range captured {
		if strings.HasSuffix(name, "engine-events") || strings.HasSuffix(name, "kubernetes") {
			continue // other prompts
		}
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t, "dynamo")
			ofPrompts, sampled := 0, 0
			held := map[fleet.Key]map[string]map[block.Chain]bool{}
			seen := map[block.Chain]bool{}
			for _, l := range readCapture(t, name) {
				facts := p.play(l)
				for _, f := range facts {
					trackHeld(held, f)
				}
				p.wantHeld(held)
				for _, f := range facts {
					for _, b := range f.blocks {
						if len(byHash[b.Tokens]) == 0 {
							sampled++
							continue
						}
						ofPrompts++
						p.wantPromptBlock(f, b, byHash[b.Tokens])
						seen[block.Chain(b.Engine)] = true
					}
				}
			}
			for i, r := range requests {
				if r.Salt != "" {
					continue // its release refused it or hashed it otherwise
				}
				for j, c := range r.Chains {
					if !seen[c] {
						t.Errorf("block %d of request %d was never seen", j, i)
					}
				}
			}
			if sampled > 12 || ofPrompts < 200 {
				t.Errorf("%d blocks of prompts, %d of sampled output", ofPrompts, sampled)
			}
		})
	}
}

// wantHeld compares all that workers hold with what trackHeld says.
func (p *player) wantHeld(held map[fleet.Key]map[string]map[block.Chain]bool) {
	p.t.Helper()
	for k, tiers := range held {
		for tier, want := range tiers {
			got := p.rig.index.Chains(k, kvevent.Tier(slices.Index(tierNames, tier)))
			slices.Sort(got)
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				p.t.Fatalf("worker %v on %s: %v, want %v", k, tier, got, want)
			}
		}
	}
}

// trackHeld keeps what a worker holds by the engine's own block hashes alone.
func trackHeld(held map[fleet.Key]map[string]map[block.Chain]bool, f fact) {
	if held[f.worker] == nil {
		held[f.worker] = map[string]map[block.Chain]bool{}
	}
	if held[f.worker][f.tier] == nil {
		held[f.worker][f.tier] = map[block.Chain]bool{}
	}
	for _, b := range f.blocks {
		held[f.worker][f.tier][block.Chain(b.Engine)] = true
	}
	for _, g := range f.gone {
		delete(held[f.worker][f.tier], block.Chain(g))
	}
}

// wantPromptBlock checks that a stored block of a request can be found under one
// of the sequence hashes recorded for its content.
func (p *player) wantPromptBlock(f fact, b factBlock, recorded []block.Chain) {
	p.t.Helper()
	path := p.twin.worker(f.worker).held[b.Engine]
	if path == nil {
		return // removed again by a later event of the same message
	}
	chain := chainOf(path.path)
	if !slices.Contains(recorded, chain) || chain != block.Chain(b.Engine) {
		p.t.Errorf("block %d has chain %d, which no request has: %v", b.Tokens, chain, recorded)
	}
	if !slices.Contains(p.rig.index.Chains(f.worker, kvevent.Tier(slices.Index(tierNames, f.tier))), chain) {
		p.t.Errorf("worker %v stored %d and the index does not have it", f.worker, chain)
	}
}

// decideWorker is the answer's word on who did the work.
type decideWorker struct {
	Prefill     uint64 `json:"prefill_worker_id"`
	PrefillRank uint32 `json:"prefill_dp_rank"`
	Decode      uint64 `json:"decode_worker_id"`
}

// TestCaptureOfDisaggregation: only prefill workers hold blocks, and a router
// that listens to "backend" alone would hear nothing.
func TestCaptureOfDisaggregation(t *testing.T) {
	for _, name := range []string{"1.2.1-disaggregated", "1.6.1-disaggregated"} {
		t.Run(name, func(t *testing.T) {
			prefill, decode := map[uint64]bool{}, map[uint64]bool{}
			for _, r := range readRun(t, name).Requests {
				if r.Status != 200 {
					continue
				}
				var w decideWorker
				mustParse(t, r.WorkerID, &w)
				prefill[w.Prefill], decode[w.Decode] = true, true
			}
			if len(prefill) != 2 || len(decode) != 2 {
				t.Fatalf("prefill workers %v, decode workers %v", prefill, decode)
			}
			p := newPlayer(t, "dynamo")
			for _, l := range readCapture(t, name) {
				p.play(l)
			}
			p.finish(captured[name].messages)
			if keys := p.rig.index.Workers(); len(keys) != 2 {
				t.Errorf("the index has workers %v", keys)
			}
			for _, k := range p.rig.index.Workers() {
				if !prefill[k.ID] || decode[k.ID] || p.named[k] != "prefill" {
					t.Errorf("worker %v of component %s holds blocks", k, p.named[k])
				}
				if p.rig.index.Held(k)[kvevent.Device] == 0 {
					t.Errorf("prefill worker %v holds nothing", k)
				}
			}
			if c := p.rig.plane.Stats().ByComponent; c["backend"] != 0 {
				t.Errorf("messages by component: %v", c)
			}
		})
	}
}

func TestCaptureOfKubernetes(t *testing.T) {
	for _, name := range []string{"1.2.1-kubernetes", "1.6.1-kubernetes"} {
		t.Run(name, func(t *testing.T) {
			pods := map[fleet.Key]string{}
			for _, r := range readRun(t, name).Requests {
				if r.Pod == "" {
					continue // sent without a choice of pod
				}
				pods[fleet.Key{ID: fleet.WorkerID(r.Pod)}] = r.Pod
			}
			p := newPlayer(t, "default-demo")
			for _, l := range readCapture(t, name) {
				p.play(l)
			}
			p.finish(captured[name].messages)
			if len(pods) != 2 {
				t.Fatalf("pods %v", pods)
			}
			first := fleet.Key{ID: fleet.WorkerID("worker-0")}
			for k, s := range p.rig.plane.Workers() {
				if pods[k] == "" {
					t.Errorf("worker %v is no pod of %v", k, pods)
				}
				want := uint64(0)
				if k == first {
					want = 1
				}
				if s.Restarts != want {
					t.Errorf("pod %s: %d restarts, want %d", pods[k], s.Restarts, want)
				}
			}
			if keys := p.rig.index.Workers(); len(keys) != 2 {
				t.Errorf("the index has workers %v", keys)
			}
			p.rig.wantLost(map[fleet.Key]int{first: 1})
		})
	}
}

// TestCapturePrediction: what the index says about a prompt before the request is
// sent is what the engine then reports as cached. Requests were sent one after
// the other, and T is when the answer was there. Releases before 1.5 report
// nothing; in a disaggregated pool the decode worker reports, which has no events.
func TestCapturePrediction(t *testing.T) {
	requests := readRequests(t)
	for _, name := range []string{"1.5.1-aggregated", "1.6.1-aggregated", "1.6.1-host-offload"} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t, "dynamo")
			lines := readCapture(t, name)
			checked, warm := 0, 0
			before := 0.0
			for _, r := range readRun(t, name).Requests {
				for len(lines) > 0 && lines[0].T <= before {
					p.play(lines[0])
					lines = lines[1:]
				}
				before = r.T
				req := requests[r.I]
				if req.Salt != "" {
					continue // the simulated engine does not salt its blocks
				}
				var w decideWorker
				mustParse(t, r.WorkerID, &w)
				var m index.Match
				p.rig.index.Match(chainsOf(req.Hashes), &m)
				slot, _ := p.rig.index.Lookup(fleet.Key{ID: w.Prefill, Rank: w.PrefillRank})
				// The last token is always computed, and its block with it.
				got := 16 * min(m.Depth(slot).Total(), (len(req.Tokens)-1)/16)
				if want := r.Usage.Details.Cached; got != want {
					t.Errorf("request %d: the engine found %d tokens, the index says %d (%+v of %d)", r.I, want, got, m.Depth(slot), len(req.Hashes))
				}
				checked++
				if got > 0 {
					warm++
				}
			}
			if checked != 27 || warm < 10 {
				t.Errorf("%d requests checked, %d of them warm", checked, warm)
			}
		})
	}
}

// scopeOf is where a ZMQ channel belongs, as discovery says: names in 1.2, a
// scope in 1.4 and later.
type scopeOf struct {
	Type, Topic          string
	Namespace, Component string
	Scope                *struct {
		Endpoint struct{ Namespace, Component, Name string }
	}
}

// subject is what the channel's messages would have as NATS subject: both planes
// carry the same envelopes and scopes (dynamo.md 1.2, 1.3).
func (s *scopeOf) subject() string {
	switch {
	case s.Scope != nil:
		e := s.Scope.Endpoint
		return "namespace." + e.Namespace + ".component." + e.Component + ".endpoint." + e.Name + "." + s.Topic
	case s.Component == "":
		return "namespace." + s.Namespace + "." + s.Topic
	}
	return "namespace." + s.Namespace + ".component." + s.Component + "." + s.Topic
}

// TestCaptureOfZMQ puts messages of the ZMQ plane on NATS: the envelope without
// its frame of version and length, on the subject that discovery implies.
func TestCaptureOfZMQ(t *testing.T) {
	for name, messages := range map[string]int{"1.2.1-zmq": 3, "1.6.1-zmq": 7} {
		t.Run(name, func(t *testing.T) {
			subjects := map[string]string{}
			for _, raw := range readRun(t, name).Discovery {
				var s scopeOf
				mustParse(t, raw, &s)
				if s.Type == "EventChannel" {
					subjects[s.Topic] = s.subject()
				}
			}
			p := newPlayer(t, "dynamo")
			for _, l := range readCapture(t, name) {
				var frames [][]byte
				mustParse(t, l.Frames, &frames)
				body := frames[3]
				if body[0] != 1 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
					t.Fatalf("body frame starts with %x", body[:5])
				}
				subject := subjects[string(frames[0])]
				if subject == "" {
					t.Fatalf("discovery has no channel of topic %q: %v", frames[0], subjects)
				}
				p.play(recorded{Subject: subject, Data: body[5:], Decoded: l.Decoded})
			}
			p.finish(messages)
		})
	}
}

// TestCaptureOfRecovery: the exchanges with a worker's recovery endpoint are not
// on NATS. But the events in its answer are those the worker had published, so
// published again they give what the prompts on line 1 say.
func TestCaptureOfRecovery(t *testing.T) {
	for _, name := range []string{"1.2.1-recovery", "1.6.1-recovery"} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t, "dynamo")
			lines := readLines(readFile(t, name+".jsonl"))
			var start struct{ Tokens [][]uint32 }
			mustParse(t, lines[0], &start)
			answers := 0
			for _, l := range readCapture(t, name)[1:] {
				if l.Subject != "" || l.Data != nil || l.Query == nil {
					t.Fatalf("a NATS message: %+v", l)
				}
			}
			for _, raw := range lines[1:] {
				for _, f := range recoveredEvents(t, raw) {
					answers++
					f.publisher = publisherOf(dynamo.Gen15, f.worker)
					p.twin.apply(f)
					p.rig.give(endpointSubject, encode(t, dynamo.Gen15, f.event()))
				}
			}
			if answers != 3 {
				t.Fatalf("%d events in the answer to start_event_id 1, want 3", answers)
			}
			p.rig.barrier(p.conn)
			p.twin.check(t, p.rig)
			var want []block.Chain
			for _, tokens := range start.Tokens {
				hashes := block.Layout{Size: 16}.AppendHashes(nil, tokens, block.NewSeed("", ""))
				want = append(want, block.AppendChains(nil, hashes)...)
			}
			slices.Sort(want)
			want = slices.Compact(want)
			keys := p.rig.index.Workers()
			if len(keys) != 1 {
				t.Fatalf("workers %v", keys)
			}
			got := p.rig.index.Chains(keys[0], kvevent.Device)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("chains %v, want %v", got, want)
			}
		})
	}
}

// recoveredEvents returns the events of an exchange that asked for all from 1 on.
func recoveredEvents(t *testing.T, line []byte) (facts []fact) {
	t.Helper()
	var exchange struct {
		Query struct {
			Start *uint64 `json:"start_event_id"`
		}
		Codec  string
		Frames []struct{ Body json.RawMessage }
	}
	mustParse(t, line, &exchange)
	if s := exchange.Query.Start; s == nil || *s != 1 {
		return nil
	}
	for _, f := range exchange.Frames {
		var body struct {
			Data struct {
				Events struct{ Events []json.RawMessage }
			}
		}
		if len(f.Body) == 0 || f.Body[0] != '{' {
			continue
		}
		mustParse(t, f.Body, &body)
		for _, raw := range body.Data.Events.Events {
			facts = append(facts, parseFact(t, raw))
		}
	}
	return facts
}

// TestCaptureOfDurable: in the JetStream mode of 1.2 and 1.3, which changes no
// subscription, workers publish bare JSON: it is heard and means the same.
func TestCaptureOfDurable(t *testing.T) {
	p := newPlayer(t, "dynamo")
	n := 0
	for _, l := range readCapture(t, "1.2.1-durable") {
		if !strings.HasSuffix(l.Subject, "kv-events.kv-events") {
			continue
		}
		n++
		facts := parsePayload(t, l.Data)
		facts[0].publisher = facts[0].worker.ID
		p.twin.apply(facts...)
		publish(t, p.conn, l.Subject, l.Data)
	}
	if n != 40 {
		t.Fatalf("%d events, want 40", n)
	}
	p.rig.barrier(p.conn)
	p.twin.check(t, p.rig)
	if s := p.rig.plane.Stats(); s.Messages != 40 || s.BadMessages != 0 || s.ByComponent["backend"] != 40 {
		t.Errorf("%+v", s)
	}
}
