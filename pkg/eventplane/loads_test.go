package eventplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
)

// forever is an age that no figure of a test reaches.
var forever = load.MaxAge{Occupancy: 1000 * time.Hour, Step: 1000 * time.Hour}

// startLoads runs a plane that hears of load, on a server of its own.
func startLoads(t testing.TB, namespace string, to Loads) (*rig, *nats.Conn) {
	t.Helper()
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, namespace)
	r.plane.cfg.Loads = to
	r.run()
	conn := connect(t, address)
	r.listening(conn)
	r.loadBarrier(conn)
	return r, conn
}

// loadBarrier returns when the plane hears all load topics, and all that was
// published on conn before has been taken in.
func (r *rig) loadBarrier(conn *nats.Conn) {
	r.t.Helper()
	r.barriers() // a number of its own
	for i, wildcard := range dynamo.LoadSubjects() {
		subject := strings.Replace(wildcard, "*", fmt.Sprintf("mark%d-%d", r.marks, i), 1)
		subject = strings.ReplaceAll(subject, "*", "x")
		waitFor(r.t, "the plane does not hear "+subject, func() bool {
			publish(r.t, conn, subject, nil)
			flush(r.t, conn)
			r.plane.loads.mu.Lock()
			defer r.plane.loads.mu.Unlock()
			_, ok := r.plane.loads.subjects[subject]
			return ok
		})
	}
}

// loadPayload is the recorded reading of a load message, whatever its topic.
type loadPayload struct {
	ID      json.Number `json:"worker_id"` // a string in forward-pass-metrics
	Rank    uint32      `json:"dp_rank"`
	Decode  *uint64     `json:"active_decode_blocks"`
	Prefill *uint64     `json:"active_prefill_tokens"`
	Used    *uint64     `json:"kv_used_blocks"`

	Scheduled *map[string]json.Number `json:"scheduled_requests"`
	Queued    *map[string]json.Number `json:"queued_requests"`

	Request string `json:"request_id"`
	Router  uint64 `json:"router_id"`
	Worker  struct {
		ID   uint64 `json:"worker_id"`
		Rank uint32 `json:"dp_rank"`
	}
	Data json.RawMessage
}

// loadTwin works out figures from the recorded readings: the last of each field,
// and requests as sets.
type loadTwin struct {
	figures map[fleet.Key]*load.EngineFigures
	placed  map[fleet.Key]map[string]load.Foreign // by request and router
	done    map[fleet.Key]map[string]bool         // likewise, and of the request alone when the worker says so
	ended   map[fleet.Key]map[string]bool
}

func newLoadTwin() *loadTwin {
	return &loadTwin{
		figures: map[fleet.Key]*load.EngineFigures{}, placed: map[fleet.Key]map[string]load.Foreign{},
		done: map[fleet.Key]map[string]bool{}, ended: map[fleet.Key]map[string]bool{},
	}
}

func number(t *testing.T, n json.Number) uint64 {
	t.Helper()
	u, err := strconv.ParseUint(string(n), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// take takes in one recorded message and returns the worker that it is about.
func (w *loadTwin) take(t *testing.T, topic string, raw json.RawMessage, now time.Time) fleet.Key {
	t.Helper()
	var p loadPayload
	mustParse(t, raw, &p)
	k := fleet.Key{ID: p.Worker.ID, Rank: p.Worker.Rank}
	if topic != dynamo.TopicActiveSequences {
		k = fleet.Key{ID: number(t, p.ID), Rank: p.Rank}
	}
	if w.figures[k] == nil {
		w.figures[k] = &load.EngineFigures{}
		w.placed[k], w.done[k], w.ended[k] = map[string]load.Foreign{}, map[string]bool{}, map[string]bool{}
	}
	f := w.figures[k]
	switch topic {
	case dynamo.TopicKVMetrics:
		for to, n := range map[*load.Reading]*uint64{&f.DecodeBlocks: p.Decode, &f.PrefillTokens: p.Prefill, &f.UsedBlocks: p.Used} {
			if n != nil {
				*to = load.Reading{N: *n, At: now}
			}
		}
	case dynamo.TopicForwardPassMetrics:
		for to, m := range map[*load.Batch]*map[string]json.Number{&f.Scheduled: p.Scheduled, &f.Queued: p.Queued} {
			if m == nil {
				continue
			}
			*to = load.Batch{
				Prefills: number(t, (*m)["num_prefill_requests"]), PrefillTokens: number(t, (*m)["sum_prefill_tokens"]),
				Decodes: number(t, (*m)["num_decode_requests"]), DecodeKVTokens: number(t, (*m)["sum_decode_kv_tokens"]), At: now,
			}
			if n, ok := (*m)["sum_prefill_kv_tokens"]; ok {
				to.PrefillKVTokens = number(t, n)
			}
		}
	case dynamo.TopicActiveSequences:
		w.word(t, k, &p)
	}
	return k
}

func (w *loadTwin) word(t *testing.T, k fleet.Key, p *loadPayload) {
	t.Helper()
	name := fmt.Sprint(p.Request, " ", p.Router)
	switch string(p.Data) {
	case `"Free"`:
		w.ended[k][name] = true
	case `"MarkPrefillCompleted"`:
		if p.Router == k.ID {
			name = p.Request
		}
		w.done[k][name] = true
	default:
		var data struct {
			AddRequest struct {
				Sequence []json.Number `json:"token_sequence"`
				Track    bool          `json:"track_prefill_tokens"`
				Hint     *struct {
					Tokens uint64 `json:"initial_effective_prefill_tokens"`
				} `json:"prefill_load_hint"`
			}
		}
		mustParse(t, p.Data, &data)
		a := data.AddRequest
		placed := load.Foreign{Requests: 1, Blocks: uint64(len(a.Sequence))}
		if a.Track && a.Hint != nil {
			placed.PrefillTokens = a.Hint.Tokens
		}
		w.placed[k][name] = placed
	}
	f := load.Foreign{}
	for name, placed := range w.placed[k] {
		if w.ended[k][name] {
			continue
		}
		f.Requests++
		f.Blocks += placed.Blocks
		if request, _, _ := strings.Cut(name, " "); !w.done[k][name] && !w.done[k][request] {
			f.PrefillTokens += placed.PrefillTokens
		}
	}
	w.figures[k].Foreign = f
}

// TestLoadCaptures replays what real workers and routers said, at the times it
// was recorded, and compares the figures after each message.
func TestLoadCaptures(t *testing.T) {
	for name, want := range map[string]struct {
		topics  [3]uint64 // messages of kv_metrics, forward-pass-metrics, active_sequences_events
		workers int
		left    uint64 // requests whose end was not recorded
		late    uint64 // requests that ended before they were placed
	}{
		"1.2.1-aggregated":    {topics: [3]uint64{80, 24, 87}, workers: 2},
		"1.2.1-disaggregated": {topics: [3]uint64{80, 24, 96}, workers: 4},
		"1.2.1-dp2":           {topics: [3]uint64{80, 24, 87}, workers: 4},
		"1.2.1-kubernetes":    {topics: [3]uint64{13, 24, 0}, workers: 2},
		"1.6.1-aggregated":    {topics: [3]uint64{43, 24, 96}, workers: 2, left: 1},
		"1.6.1-disaggregated": {topics: [3]uint64{45, 24, 96}, workers: 4, left: 1},
		"1.6.1-dp2":           {topics: [3]uint64{42, 24, 96}, workers: 4},
		"1.6.1-kubernetes":    {topics: [3]uint64{13, 24, 0}, workers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			engines := load.NewEngines()
			r, conn := startLoads(t, namespaceOf(name), engines)
			w := newLoadTwin()
			got, most := uint64(0), uint64(0)
			for _, l := range readCapture(t, name) {
				topic := l.Subject[strings.LastIndexByte(l.Subject, '.')+1:]
				if !slices.Contains([]string{dynamo.TopicKVMetrics, dynamo.TopicForwardPassMetrics, dynamo.TopicActiveSequences}, topic) {
					continue
				}
				r.mu.Lock()
				r.time = time.UnixMicro(int64(l.T * 1e6))
				r.mu.Unlock()
				publish(t, conn, l.Subject, l.Data)
				got++
				var d decoded
				mustParse(t, l.Decoded, &d)
				k := w.take(t, topic, d.Payload, r.now())
				waitFor(t, fmt.Sprintf("message %d does not lead to %+v", got, *w.figures[k]), func() bool {
					s := r.plane.LoadStats()
					return s.ByTopic[topic] > 0 && engines.Get(k, r.now(), forever) == *w.figures[k] && total(s) == got
				})
				most = max(most, w.figures[k].Foreign.PrefillTokens)
			}
			left := uint64(0)
			for k, f := range w.figures {
				if now := engines.Get(k, r.now(), forever); now != *f {
					t.Errorf("worker %v: %+v, want %+v", k, now, *f)
				}
				left += f.Foreign.Requests
			}
			s := r.plane.LoadStats()
			if topics := [3]uint64{s.ByTopic[dynamo.TopicKVMetrics], s.ByTopic[dynamo.TopicForwardPassMetrics], s.ByTopic[dynamo.TopicActiveSequences]}; topics != want.topics {
				t.Errorf("messages %v, want %v", topics, want.topics)
			}
			if len(w.figures) != want.workers || left != want.left || most == 0 && want.topics[2] > 0 {
				t.Errorf("%d workers, %d requests left, at most %d prefill tokens; want %d, %d, and some", len(w.figures), left, most, want.workers, want.left)
			}
			if s.BadMessages != 0 || s.UnknownFields != 0 || s.Dropped != 0 || s.Misplaced != 0 {
				t.Errorf("%+v, want nothing odd", s)
			}
			if odd := engines.Stats(); odd != (load.EngineStats{LateAdds: want.late}) {
				t.Errorf("%+v, want %d late requests and nothing odd", odd, want.late)
			}
		})
	}
}

func total(s LoadStats) (n uint64) {
	for _, m := range s.ByTopic {
		n += m
	}
	return n
}

// appendLoad returns the body of a load message.
func appendLoad(t testing.TB, l dynamo.Load) []byte {
	t.Helper()
	msg, err := dynamo.AppendLoad(nil, dynamo.Envelope{PublisherID: 5}, &l)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// used is the message that a worker uses n blocks.
func used(t testing.TB, k fleet.Key, n uint64) []byte {
	t.Helper()
	return appendLoad(t, dynamo.Load{Kind: dynamo.LoadMetrics, Metrics: dynamo.KVMetrics{
		WorkerID: k.ID, Rank: k.Rank, UsedBlocks: dynamo.Optional[uint64]{Value: n, Set: true},
	}})
}

func TestOddLoadMessages(t *testing.T) {
	engines := load.NewEngines()
	r, conn := startLoads(t, "default-demo", engines)
	k := fleet.Key{ID: 1<<64 - 1, Rank: 3}
	gone := r.plane.LoadStats().OtherSpace
	good := used(t, k, 7)
	for _, m := range []struct {
		subject string
		data    []byte
	}{
		{"namespace.default-demo.kv_metrics", good},
		{"namespace.default-demo-0a1b2c3d.component.a.endpoint.b.kv_metrics", used(t, k, 8)},
		{"namespace.other.kv_metrics", used(t, k, 9)},
		{"namespace.default-demo2.component.a.endpoint.b.kv_metrics", used(t, k, 10)},
		{"namespace.default-demo.kv_metrics", good[:len(good)-1]},
		{"namespace.default-demo.kv_metrics", nil},
		{"namespace.default-demo.component.%zz.endpoint.b.kv_metrics", good},
		{"namespace.default-demo.component.a.forward-pass-metrics", used(t, k, 11)},
		{"namespace.default-demo.kv_metrics", encode(t, dynamo.Gen12, stored(k, 1, 1))},
	} {
		publish(t, conn, m.subject, m.data)
	}
	r.loadBarrier(conn)
	s := r.plane.LoadStats()
	if s.ByTopic[dynamo.TopicKVMetrics] != 3 || s.BadMessages != 4 || s.Misplaced != 1 || s.OtherSpace < gone+2 {
		t.Errorf("%+v", s)
	}
	if got := engines.Get(k, r.now(), forever).UsedBlocks.N; got != 8 {
		t.Errorf("%d blocks, want 8", got)
	}
	if n := r.logs.count("a load message could not be read"); n != 1 {
		t.Errorf("%d lines of the log about bad messages, want 1", n)
	}
	if s := r.plane.Stats(); s.Messages != 0 || s.BadMessages != 0 {
		t.Errorf("load messages count as KV events: %+v", s)
	}
	r.advance(time.Minute)
	publish(t, conn, "namespace.default-demo.kv_metrics", nil)
	r.loadBarrier(conn)
	if n := r.logs.count("a load message could not be read"); n != 2 {
		t.Errorf("%d lines of the log a minute later, want 2", n)
	}
}

// stuckLoads is a sink that blocks.
type stuckLoads struct {
	Loads
	entered chan struct{}
	leave   chan struct{}
	once    sync.Once
}

func (s *stuckLoads) State(k fleet.Key, o load.Occupancy) {
	s.once.Do(func() { close(s.entered) })
	<-s.leave
	s.Loads.State(k, o)
}

// TestLoadFloodHoldsUpNoEvents: with load messages stuck and their queue full, KV
// events go on, and what was dropped is counted, of load alone.
func TestLoadFloodHoldsUpNoEvents(t *testing.T) {
	engines := load.NewEngines()
	stuck := &stuckLoads{Loads: engines, entered: make(chan struct{}), leave: make(chan struct{})}
	r, conn := startLoads(t, "dynamo", stuck)
	release := sync.OnceFunc(func() { close(stuck.leave) })
	t.Cleanup(release)
	k := fleet.Key{ID: 1}
	msg := used(t, k, 7)
	for range loadQueueSize + 1000 {
		publish(t, conn, "namespace.dynamo.kv_metrics", msg)
	}
	<-stuck.entered
	publish(t, conn, componentSubject, encode(t, dynamo.Gen12, stored(k, 1, 1, 2)))
	r.barrier(conn)
	r.wantHeld(k, 2)
	waitFor(t, "no load message is dropped", func() bool { return r.plane.LoadStats().Dropped > 0 })
	const said = "load messages come faster"
	waitFor(t, "nobody says that load messages are dropped", func() bool { return r.logs.count(said) > 0 })
	r.plane.asyncError(conn, r.plane.loads.subs[0], nats.ErrSlowConsumer)
	if n := r.logs.count(said); n != 1 || r.logs.count("reports an error") != 0 {
		t.Errorf("it is said %d times, want once a minute and nothing else", n)
	}
	r.plane.asyncError(conn, r.plane.subs[0], nats.ErrSlowConsumer)
	if n := r.logs.count("reports an error"); n != 1 {
		t.Errorf("%d lines about dropped KV events, want 1", n)
	}
	if s := r.plane.Stats(); s.Dropped != 0 || s.Disconnects != 0 {
		t.Errorf("%+v, want no KV event dropped", s)
	}
	release()
	waitFor(t, "the queue is not worked off", func() bool {
		s := r.plane.LoadStats()
		return s.ByTopic[dynamo.TopicKVMetrics]+s.Dropped == loadQueueSize+1000
	})
	if got := engines.Get(k, r.now(), forever).UsedBlocks.N; got != 7 {
		t.Errorf("%d blocks, want 7", got)
	}
}

// TestRestartIsTold: the figures of a process that is gone can be dropped.
func TestRestartIsTold(t *testing.T) {
	r := newRig(t, "", "dynamo")
	engines := load.NewEngines()
	r.plane.cfg.Loads, r.plane.cfg.Restarted = engines, engines.Drop
	a, b := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	for _, k := range []fleet.Key{a, b} {
		r.plane.receiveLoad(&nats.Msg{Subject: "namespace.dynamo.kv_metrics", Data: used(t, k, 7)})
		r.give(componentSubject, encode(t, dynamo.Gen12, stored(k, 1, 1)))
		r.give(componentSubject, encode(t, dynamo.Gen12, stored(k, 2, 2)))
		r.give(componentSubject, encode(t, dynamo.Gen12, cleared(k, 3)))
	}
	known := func(k fleet.Key) bool { return engines.Get(k, r.now(), forever).UsedBlocks.Known() }
	if !known(a) || !known(b) {
		t.Fatal("figures are gone without a restart")
	}
	r.give(componentSubject, encode(t, dynamo.Gen12, stored(a, 1, 3)))
	if known(a) || !known(b) {
		t.Errorf("after a restart of the first: %v, %v, want the second only", known(a), known(b))
	}
}

// A plane that is told so hears figures of load, and no KV event.
func TestLoadsOnly(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "default-demo")
	r.plane.cfg.Loads, r.plane.cfg.LoadsOnly = load.NewEngines(), true
	r.run()
	conn := connect(t, address)
	r.loadBarrier(conn)
	waitFor(t, "the plane does not say that it listens", func() bool { return r.plane.Stats().EverListened })
	unheard := r.barriers()
	for _, subject := range unheard {
		publish(t, conn, subject, nil)
	}
	r.loadBarrier(conn) // what came before has been taken in
	for _, subject := range unheard {
		if r.heard(subject) {
			t.Errorf("%s was heard", subject)
		}
	}
	if s := r.plane.Stats(); s.Messages+s.OtherSpace != 0 || r.plane.Warming() != "" {
		t.Errorf("%+v, warming %q", s, r.plane.Warming())
	}
}

// Nothing is waited for, and nobody asked, about what no plane listens to.
func TestLoadsOnlyNeedsNoWarmUp(t *testing.T) {
	r := newRig(t, "", "")
	cfg := r.plane.cfg
	cfg.LoadsOnly, cfg.WarmUp, cfg.JetStream = true, WarmUp{Timeout: time.Minute, Peers: true}, &JetStream{Stream: "s"}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if p.Warming() != "" || p.cfg.JetStream != nil || p.cfg.WarmUp != (WarmUp{}) {
		t.Errorf("warming %q, %+v", p.Warming(), p.cfg)
	}
}
