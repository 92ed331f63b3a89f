package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// hear listens to what routers tell each other. The messages of a test are read
// one by one.
func hear(t *testing.T, s *server.Server) (next func() string) {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(s.ClientURL(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		<-closed
	})
	sub, err := conn.SubscribeSync("namespace.ns.component.*.active_sequences_events")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var decoder dynamo.LoadDecoder
	return func() string {
		t.Helper()
		m, err := sub.NextMsg(deadline)
		if err != nil {
			t.Fatal(err)
		}
		_, l, err := decoder.Decode(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		e := &l.Sequence
		return fmt.Sprintf("%s %d %s of %d tokens, %d blocks", e.Kind, e.WorkerID, e.RequestID, e.Added.Hint.Value.Tokens, len(e.Added.Sequence.Value))
	}
}

// startSync starts a picker that tells other routers of its requests, and whose
// workers have been heard.
func startSync(t *testing.T, ns *server.Server) *running {
	t.Helper()
	dir, config := files(t, "tokenizer: {disabled: true}\nhandoff: {preset: Dynamo}\neventPlane: {nats: {url: \""+ns.ClientURL()+"\", namespace: ns}, replicaSync: true}", prefillA+decodeA)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	a, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a, dir, log)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	for id, component := range map[uint64]string{11: "prefill", 21: "backend"} {
		publishLoad(t, ns, dynamo.Gen12, component, queued(id, 1, 0, 0))
	}
	r.waitMetric(t, `warmpath_load_messages_total{topic="forward-pass-metrics"}`, 2)
	return r
}

// TestReplicaSync: what is placed is told under the id that the workers know, and
// not counted as another router's.
func TestReplicaSync(t *testing.T) {
	ns := startNATS(t, 0)
	next := hear(t, ns)
	r := startSync(t, ns)
	_, body := tokens(1, 9)
	id := r.ask(t, completions, body)["x-dynamo-request-id"]
	if id == "" {
		t.Fatal("no request id in the handoff")
	}
	for _, want := range []string{
		"AddRequest 11 " + id + " of 9 tokens, 0 blocks", "AddRequest 21 " + id + " of 0 tokens, 2 blocks",
		"Free 11 " + id + " of 0 tokens, 0 blocks", "Free 21 " + id + " of 0 tokens, 0 blocks",
	} {
		if got := next(); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	r.waitMetric(t, `warmpath_load_messages_odd_total{kind="own"}`, 4)
	for series, want := range map[string]float64{
		`warmpath_announcements_total{kind="AddRequest"}`:               2,
		`warmpath_announcements_total{kind="MarkPrefillCompleted"}`:     0,
		`warmpath_announcements_total{kind="Free"}`:                     2,
		`warmpath_announcements_dropped_total{reason="unknown_place"}`:  0,
		`warmpath_announcements_dropped_total{reason="queue_full"}`:     0,
		`warmpath_announcements_dropped_total{reason="not_connected"}`:  0,
		`warmpath_announcements_dropped_total{reason="too_large"}`:      0,
		`warmpath_announcements_dropped_total{reason="denied"}`:         0,
		`warmpath_foreign_requests{rank="0",worker_id="11"}`:            0,
		`warmpath_load_messages_total{topic="active_sequences_events"}`: 4,
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// TestReplicasOnMetrics: two pickers see each other, and that one has ended.
func TestReplicasOnMetrics(t *testing.T) {
	ns := startNATS(t, 0)
	one, other := startSync(t, ns), startSync(t, ns)
	for _, r := range []*running{one, other} {
		r.waitMetric(t, "warmpath_replicas", 1)
		r.eventually(t, "states are sent and received", func() bool {
			return r.metric(t, `warmpath_replica_state_messages_total{direction="sent"}`) > 0 &&
				r.metric(t, `warmpath_replica_state_messages_total{direction="received"}`) > 0
		})
	}
	if age := one.metric(t, "warmpath_replica_state_age_seconds"); age < 0 || age > 30 {
		t.Errorf("the state is %v s old", age)
	}
	lost := one.metric(t, "warmpath_replicas_lost_total") // for a moment, on a machine that does much else
	other.shutdown(t)
	one.waitMetric(t, "warmpath_replicas", 0)
	for series, want := range map[string]float64{
		"warmpath_replica_state_age_seconds":                        0,
		"warmpath_replicas_lost_total":                              lost,
		`warmpath_replica_messages_odd_total{kind="bad"}`:           0,
		`warmpath_replica_messages_odd_total{kind="other_version"}`: 0,
		`warmpath_replica_messages_odd_total{kind="unknown_field"}`: 0,
		`warmpath_replica_messages_odd_total{kind="dropped"}`:       0,
	} {
		if got := one.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// TestReplicaSyncAtTheEnd: a picker that stops with requests under way leaves none
// of them on other routers' books.
func TestReplicaSyncAtTheEnd(t *testing.T) {
	ns := startNATS(t, 0)
	next := hear(t, ns)
	r := startSync(t, ns)
	conn, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		EndOfStream: true,
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte("/v1/embeddings")},
		}},
	}}}); err != nil {
		t.Fatal(err)
	}
	var placed, freed []string
	for range 2 {
		placed = append(placed, next()[:len("AddRequest 11")])
	}
	r.shutdown(t)
	for range 2 {
		freed = append(freed, next()[:len("Free 11")])
	}
	slices.Sort(placed)
	slices.Sort(freed)
	if !slices.Equal(placed, []string{"AddRequest 11", "AddRequest 21"}) || !slices.Equal(freed, []string{"Free 11", "Free 21"}) {
		t.Errorf("told %q and %q", placed, freed)
	}
}

// TestNoReplicaSync: by default nothing is told, and requests do not even hear of
// the possibility.
func TestNoReplicaSync(t *testing.T) {
	ns := startNATS(t, 0)
	a, _, _ := build(t, "tokenizer: {disabled: true}\neventPlane: {nats: {url: \""+ns.ClientURL()+"\"}}", prefillA)
	defer a.Close()
	if an := a.current.Load().events.plane.Announce(&eventplane.Placement{}); an != nil {
		t.Error("the plane takes an announcement")
	}
	if got := a.current.Load().events.announcer(false); got != nil {
		t.Errorf("an announcer %v", got)
	}
	off, _, _ := build(t, noEvents, prefillA)
	defer off.Close()
	if got := off.current.Load().events.announcer(true); got != nil {
		t.Errorf("an announcer %v without an event plane", got)
	}
}
