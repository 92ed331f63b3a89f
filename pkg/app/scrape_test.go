package app

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/simengine"
)

// listedAs is a worker of the test at an address of this machine.
func listedAs(t *testing.T, name string, id int, at string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("- {name: %s, address: %s, ports: [%s], workerID: %q}\n", name, host, port, fmt.Sprint(id))
}

const (
	waiting31 = `warmpath_engine_waiting_requests{rank="0",worker_id="31"}`
	kvUse31   = `warmpath_engine_kv_usage_ratio{rank="0",worker_id="31"}`
	unread    = "warmpath_scrape_failing_endpoints"
)

// TestFullWorkerIsSeen: what a worker's metrics say shows, and goes on to the load of
// its pool; when they cannot be read any more it shows no more, and requests go on.
func TestFullWorkerIsSeen(t *testing.T) {
	var broken atomic.Bool
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "vllm:num_requests_waiting{engine=\"0\"} 42\nvllm:num_requests_running{engine=\"0\"} 256\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.99\n")
	}))
	defer full.Close()
	idle := simulated(t, simengine.Config{Name: "worker-0", Model: "m", Generation: dynamo.Gen14})
	r := start(t, noText+noEvents, listedAs(t, "full", 31, full.Listener.Addr().String())+listedAs(t, "idle", 32, idle.Addr()))
	r.waitReady(t)
	r.waitMetric(t, waiting31, 42)
	r.waitMetric(t, `warmpath_engine_kv_usage_ratio{rank="0",worker_id="32"}`, 0)
	for series, want := range map[string]float64{
		`warmpath_engine_running_requests{rank="0",worker_id="31"}`: 256, kvUse31: 0.99, unread: 0,
		`warmpath_engine_waiting_requests{rank="0",worker_id="32"}`: 0, `warmpath_scrapes_total{result="bad_status"}`: 0,
	} {
		r.waitMetric(t, series, want)
	}
	if r.metric(t, `warmpath_scrapes_total{result="ok"}`) < 2 || r.metric(t, "warmpath_scrape_duration_seconds_count") < 2 {
		t.Error("looks at metrics are not counted")
	}

	r.eventually(t, "decisions see that it is full", func() bool {
		figures := map[uint64]load.Figures{}
		r.load.Read(func(k fleet.Key, f load.Figures) { figures[k.ID] = f })
		return figures[31].Waiting == 42 && figures[31].KVUse == 0.99
	})

	broken.Store(true)
	r.waitMetric(t, unread, 1)
	r.waitMetric(t, waiting31, -1)
	_, body := tokens(1, 8)
	if r.ask(t, completions, body) == nil {
		t.Error("a request is refused")
	}
	writeWorkers(t, r.dir, listedAs(t, "idle", 32, idle.Addr()))
	r.waitMetric(t, unread, 0)
}

// TestAllEnginesAreRead: workers of several engines in one pool are told apart by the
// names of their metrics.
func TestAllEnginesAreRead(t *testing.T) {
	var workers string
	for i, names := range []simengine.MetricNames{simengine.VLLMMetrics, simengine.SGLangMetrics, simengine.TRTLLMMetrics} {
		e := simulated(t, simengine.Config{Name: fmt.Sprint("worker-", i), Model: "m", Generation: dynamo.Gen14, Blocks: 512, Metrics: names})
		workers += listedAs(t, fmt.Sprint("worker-", i), 31+i, e.Addr())
	}
	r := start(t, noText+noEvents, workers)
	r.waitReady(t)
	for id := range uint64(3) {
		r.waitMetric(t, fmt.Sprintf(`warmpath_engine_kv_usage_ratio{rank="0",worker_id="%d"}`, 31+id), 0)
		got := r.current.Load().metrics.Figures()[fleet.Key{ID: 31 + id}]
		if got.KVBlocks != 512 || got.Block != 16 || got.Waiting != 0 || got.Running != 0 || got.At.IsZero() {
			t.Errorf("worker %d: %+v", id, got)
		}
	}
}

// TestEngineMetricsFollowPolicy: they are read from where the policy says, or not.
func TestEngineMetricsFollowPolicy(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/engine/metrics" {
			fmt.Fprint(w, "sglang:num_queue_reqs 7\n")
		} else {
			http.NotFound(w, r)
		}
	}))
	defer page.Close()
	r := start(t, noText+noEvents+"\nengineMetrics: {enabled: false}", listedAs(t, "one", 31, "127.0.0.1:9"))
	r.waitReady(t)
	if got := r.metric(t, unread); got != -1 {
		t.Errorf("turned off, %v endpoints fail", got)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.EngineMetrics = v1alpha1.EngineMetricsSpec{Path: "/engine/metrics", Port: page.Listener.Addr().(*net.TCPAddr).Port}
		p.EngineMetrics.Default()
	})
	r.waitMetric(t, waiting31, 7)
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.EngineMetrics.Enabled = new(false) })
	r.waitMetric(t, waiting31, -1)
	r.eventually(t, "the generation before has ended", func() bool { return r.alive() == 1 })
}
