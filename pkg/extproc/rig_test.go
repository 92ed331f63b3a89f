package extproc

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// blockSize of all pools in these tests.
const blockSize = 4

// deadline is how long a test waits for something that must happen.
const deadline = time.Minute

// requestID is what the tests' servers use in place of a new UUID.
const requestID = "00000000-0000-4000-8000-000000000001"

// rig is a server with the parts behind it.
type rig struct {
	index    *index.Index
	load     *load.Table
	picker   *pick.Picker
	registry *prometheus.Registry
	log      *logBuffer
	server   *Server
}

func worker(id uint64, role fleet.Role, endpoint string) fleet.Worker {
	return fleet.Worker{
		Key:      fleet.Key{ID: id},
		Name:     fmt.Sprintf("pod-%d", id),
		Endpoint: netip.MustParseAddrPort(endpoint),
		Role:     role,
	}
}

// Pools. Ids are the workers' names in the tests.
func splitPool() []fleet.Worker {
	decode := worker(21, fleet.Decode, "10.0.2.1:8000")
	decode.Rank = 3
	return []fleet.Worker{
		worker(11, fleet.Prefill, "10.0.1.1:8000"),
		worker(12, fleet.Prefill, "10.0.1.2:8000"),
		decode,
	}
}

func decodePool() []fleet.Worker { return splitPool()[2:] }

func aggregatedPool() []fleet.Worker {
	return []fleet.Worker{worker(31, fleet.Aggregated, "10.0.3.1:8000")}
}

// newRig builds a server that does not listen yet.
func newRig(tb testing.TB, workers []fleet.Worker, change ...func(*Config)) *rig {
	tb.Helper()
	r := &rig{
		index:    index.New(),
		load:     load.NewTable(),
		registry: prometheus.NewRegistry(),
		log:      &logBuffer{},
	}
	r.picker = pick.New(r.index, index.NewSpeculation(time.Hour), r.load, blockSize)
	pool, err := fleet.NewSnapshot(workers)
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.picker.SetFleet(pool); err != nil {
		tb.Fatal(err)
	}
	cfg := Config{
		Routing:      Routing{Picker: r.picker, Layout: block.Layout{Size: blockSize}, Handoff: DefaultHandoff()},
		DrainTimeout: time.Millisecond, // no test waits for the quiet second unless it is about it
		Log:          slog.New(slog.NewTextHandler(r.log, nil)),
		Registerer:   r.registry,
		RequestID:    func() string { return requestID },
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.server, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	return r
}

// live is a rig whose server listens.
type live struct {
	*rig
	streams, health string // addresses
	conn            *grpc.ClientConn
	stop            context.CancelFunc // starts the drain
	ran             chan struct{}      // closed when Run has returned
	err             error              // of Run
}

func startRig(t *testing.T, workers []fleet.Worker, change ...func(*Config)) *live {
	t.Helper()
	l := &live{rig: newRig(t, workers, change...), ran: make(chan struct{})}
	streams, health := listen(t), listen(t)
	l.streams, l.health = streams.Addr().String(), health.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() {
		defer close(l.ran)
		l.err = l.server.Run(ctx, streams, health)
	}()
	l.conn = dial(t, l.streams)
	t.Cleanup(func() {
		l.conn.Close()
		stop()
		l.waitEnd(t)
	})
	return l
}

// waitEnd waits until Run has returned, and reports its error.
func (l *live) waitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-l.ran:
		if l.err != nil {
			t.Errorf("Run: %v", l.err)
		}
	case <-time.After(deadline):
		t.Error("Run did not return")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// probe asks a health service.
func probe(t *testing.T, conn *grpc.ClientConn, service string) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("health check of %q: %v", service, err)
	}
	return r.GetStatus()
}

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", deadline, what)
		}
	}
}

// total sums the figures of all workers.
func (r *rig) total() load.Figures {
	var sum load.Figures
	r.load.Read(func(_ fleet.Key, f load.Figures) {
		sum.PrefillTokens += f.PrefillTokens
		sum.DecodeBlocks += f.DecodeBlocks
		sum.Requests += f.Requests
	})
	return sum
}

// waitIdle waits until no stream is open, and then wants every worker's figures
// to be zero.
func (r *rig) waitIdle(t *testing.T) {
	t.Helper()
	eventually(t, "all streams have ended", func() bool { return r.metric(t, "warmpath_streams") == 0 })
	r.load.Read(func(k fleet.Key, f load.Figures) {
		if f != (load.Figures{}) {
			t.Errorf("worker %s has %+v with no request under way", k, f)
		}
	})
}

// metric returns the value of one series; labels come as name, value. A series
// that does not exist counts as 0, as counters do.
func (r *rig) metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func hasLabels(m *dto.Metric, want []string) bool {
	got := map[string]string{}
	for _, l := range m.GetLabel() {
		got[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			return false
		}
	}
	return true
}

// hold makes a worker hold a prompt, as its events would.
func (r *rig) hold(t *testing.T, k fleet.Key, tokens []uint32, seed block.Seed) {
	t.Helper()
	var blocks []kvevent.Block
	for _, h := range r.server.routing.Load().Layout.AppendHashes(nil, tokens, seed) {
		blocks = append(blocks, kvevent.Block{Engine: kvevent.EngineHash(rand.Uint64()), Hash: h})
	}
	if err := r.index.Apply(&kvevent.Event{WorkerID: k.ID, Rank: k.Rank, ID: 1, Kind: kvevent.Stored, Blocks: blocks}); err != nil {
		t.Fatal(err)
	}
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// count says how many log lines have a text.
func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }
