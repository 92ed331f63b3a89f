package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/simengine"
)

const completions = "/v1/completions"

func TestReadyFollowsThePool(t *testing.T) {
	r := start(t, noEvents, "")
	if status, text := r.get(t, "/healthz"); status != http.StatusOK || text != "ok\n" {
		t.Errorf("/healthz: %d %q", status, text)
	}
	want := "not ready:\npool: no ready worker in " + filepath.Join(r.dir, "workers.yaml") + "\n"
	if status, text := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || text != want {
		t.Errorf("/readyz: %d %q, want %q", status, text, want)
	}
	if got := r.health(t); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC health: %v", got)
	}
	_, body := tokens(1, 8)
	if set := r.ask(t, completions, body); set != nil {
		t.Errorf("an empty pool picks %v", set)
	}
	writeWorkers(t, r.dir, decodeA)
	r.waitReady(t)
	if _, text := r.get(t, "/readyz"); text != "ready\n" {
		t.Errorf("/readyz: %q", text)
	}
	if got := r.health(t); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC health: %v", got)
	}
	if set := r.ask(t, completions, body); set["x-gateway-destination-endpoint"] != "10.0.2.1:8000" {
		t.Errorf("picked %v", set)
	}
	writeWorkers(t, r.dir, "")
	r.eventually(t, "/readyz says 503 again", func() bool {
		status, _ := r.get(t, "/readyz")
		return status == http.StatusServiceUnavailable
	})
}

func (r *running) health(t *testing.T) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	conn, err := grpc.NewClient(r.HealthAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	reply, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "readiness"})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetStatus()
}

func TestWorkerListIsWatched(t *testing.T) {
	r := start(t, noEvents, aggregated)
	r.waitMetric(t, `warmpath_pool_workers{role="Aggregated"}`, 1)
	writeWorkers(t, r.dir, prefillA+prefillB+decodeA)
	r.waitMetric(t, `warmpath_pool_workers{role="Aggregated"}`, 0)
	r.waitMetric(t, `warmpath_pool_workers{role="Prefill"}`, 2)
	r.waitMetric(t, `warmpath_pool_workers{role="Decode"}`, 1)
	if r.Listed("prefill-a") != 1 || r.Listed("agg-a") != 0 || r.Ready() != nil {
		t.Errorf("listed %d and %d, ready: %v", r.Listed("prefill-a"), r.Listed("agg-a"), r.Ready())
	}
	_, body := tokens(1, 8)
	set := r.ask(t, completions, body)
	if set["x-gateway-destination-endpoint"] != "10.0.2.1:8000" || !strings.HasPrefix(set["x-prefiller-host-port"], "10.0.1.") {
		t.Errorf("picked %v", set)
	}
	writeWorkers(t, r.dir, "- {name: [}\n")
	r.eventually(t, "the log tells of the bad list", func() bool { return r.log.count("worker list not usable") == 1 })
	if set := r.ask(t, completions, body); set["x-gateway-destination-endpoint"] != "10.0.2.1:8000" {
		t.Errorf("the last good list is lost: %v", set)
	}
}

// TestMissingPrefillIsLoggedOncePerChange, and so is its return.
func TestMissingPrefillIsLoggedOncePerChange(t *testing.T) {
	const gone, back = "no prefill worker is ready", "prefill workers are ready again"
	r := start(t, noEvents, prefillA+decodeA)
	changes := 1
	change := func(workers string, wantGone, wantBack int) {
		t.Helper()
		changes++
		writeWorkers(t, r.dir, workers)
		r.eventually(t, fmt.Sprintf("change %d is seen", changes), func() bool { return r.log.count("pool changed") == changes })
		// The same call that logs the change logs the prefill side, after it: a
		// page that waits for nothing else could be too early.
		r.eventually(t, "the log says so", func() bool { return r.log.count(gone) >= wantGone && r.log.count(back) >= wantBack })
		if r.log.count(gone) != wantGone || r.log.count(back) != wantBack {
			t.Errorf("after change %d:\n%s", changes, r.log)
		}
	}
	r.eventually(t, "the first pool is seen", func() bool { return r.log.count("pool changed") == 1 })
	if r.log.count(gone) != 0 {
		t.Errorf("log:\n%s", r.log)
	}
	change(decodeA, 1, 0)
	change(decodeA+decodeB, 1, 0)
	_, body := tokens(1, 8)
	for range 3 {
		if set := r.ask(t, completions, body); set == nil || set["x-prefiller-host-port"] != "" {
			t.Errorf("picked %v", set)
		}
	}
	if got := r.metric(t, `warmpath_decisions_total{mode="no_prefill_ready"}`); got != 3 {
		t.Errorf("%v decisions without a prefill worker are counted, want 3", got)
	}
	change(prefillA+decodeA, 1, 1)
	change(prefillB+decodeA, 1, 1)
	change(decodeB, 2, 1)
	change(aggregated, 2, 1)
	change(prefillA+decodeA, 2, 1)
	change(prefillA, 2, 1)
	r.eventually(t, "the log tells of the last pool", func() bool { return r.log.count("the pool has no ready worker that can decode") > 0 })
	if n := r.log.count("the pool has no ready worker that can decode"); n != 1 {
		t.Errorf("that is told %d times:\n%s", n, r.log)
	}
}

func TestEventsReachDecisions(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, "eventPlane: {nats: {url: \""+ns.ClientURL()+"\", namespace: ns}}", prefillA+prefillB+decodeA)
	r.waitReady(t)
	r.waitMetric(t, "warmpath_event_plane_connected", 1)
	r.waitSubscribed(t, ns)

	ids, body := tokens(1, 12)
	publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids))
	publish(t, ns, dynamo.Gen12, "backend", stored(11, 1, ids[:4]))
	publish(t, ns, dynamo.Gen14, "prefill", stored(99, 1, ids)) // of a worker that no pool has
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="12"}`, 3)
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="11"}`, 1)
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="99"}`, 3)
	for range 5 {
		if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" {
			t.Errorf("picked %v, not the worker that holds the prompt", set)
		}
		r.waitMetric(t, "warmpath_streams", 0) // no load weighs on the next one
	}
	for series, want := range map[string]float64{
		`warmpath_event_messages_total{component="prefill"}`:                            2,
		`warmpath_event_messages_total{component="backend"}`:                            1,
		`warmpath_index_entries`:                                                        7,
		`warmpath_index_blocks_total{kind="stored"}`:                                    7,
		`warmpath_worker_events_total{rank="0",worker_id="12"}`:                         1,
		`warmpath_prompt_blocks_total{kind="matched"}`:                                  15,
		`warmpath_prompt_blocks_total{kind="best"}`:                                     15,
		`warmpath_prompt_blocks_total{kind="total"}`:                                    15,
		`warmpath_decisions_total{mode="disaggregated"}`:                                5,
		`warmpath_worker_event_gaps_total{rank="0",worker_id="12"}`:                     0,
		`warmpath_event_messages_odd_total{kind="bad"}`:                                 0,
		`warmpath_event_plane_disconnects_total`:                                        0,
		`warmpath_worker_events_unused_total{rank="0",reason="refused",worker_id="99"}`: 0,
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if r.EventsReceived() != 3 {
		t.Errorf("%d events received, want 3", r.EventsReceived())
	}
	r.eventually(t, "the load is freed", func() bool {
		return r.metric(t, `warmpath_worker_requests{rank="0",worker_id="21"}`) == 0 &&
			r.metric(t, `warmpath_worker_prefill_tokens{rank="0",worker_id="12"}`) == 0
	})
}

// TestClearedWorkerLosesItsGuesses: what a decision expects of a worker is void
// when the worker says that it holds nothing.
func TestClearedWorkerLosesItsGuesses(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, "eventPlane: {speculationTTL: 1h, nats: {url: \""+ns.ClientURL()+"\"}}", prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	const best = `warmpath_prompt_blocks_total{kind="best"}`
	_, body := tokens(1, 8)
	for i, want := range []float64{0, 2} {
		r.ask(t, completions, body)
		if got := r.metric(t, best); got != want {
			t.Fatalf("after request %d: best match %v blocks so far, want %v", i+1, got, want)
		}
	}
	publish(t, ns, dynamo.Gen14, "prefill", kvevent.Event{WorkerID: 11, ID: 1, Kind: kvevent.Cleared})
	r.waitMetric(t, `warmpath_index_blocks_total{kind="cleared"}`, 1)
	r.ask(t, completions, body)
	if got := r.metric(t, best); got != 2 {
		t.Errorf("after the clear: best match %v blocks in all, want 2", got)
	}
}

func TestDebugIndex(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, "eventPlane: {nats: {url: \""+ns.ClientURL()+"\"}}", prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	ids, _ := tokens(1, 8)
	host := stored(11, 2, ids)
	host.Tier = kvevent.Host
	publish(t, ns, dynamo.Gen14, "prefill", stored(11, 1, ids), host)
	const huge = 1<<63 + 1 // no float64 holds it
	publish(t, ns, dynamo.Gen14, "prefill", stored(huge, 1, ids[:4]))
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="9223372036854775809"}`, 1)
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="host_pinned",worker_id="11"}`, 2)

	var page struct {
		Workers []struct {
			ID, Name, Role string
			Rank           uint32
			Blocks         map[string]int
			Chains         []string
		}
	}
	read := func(query string) {
		t.Helper()
		page.Workers = nil
		status, text := r.get(t, "/debug/index"+query)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if len(page.Workers) != 3 {
			t.Fatalf("%d workers in %s", len(page.Workers), text)
		}
	}
	read("")
	one := page.Workers[0]
	if one.ID != "11" || one.Name != "prefill-a" || one.Role != "Prefill" || one.Blocks["device"] != 2 || one.Blocks["host_pinned"] != 2 || one.Blocks["disk"] != 0 || one.Chains != nil {
		t.Errorf("worker %+v", one)
	}
	if two := page.Workers[1]; two.ID != "21" || two.Role != "Decode" || two.Blocks["device"] != 0 {
		t.Errorf("worker %+v", two)
	}
	if last := page.Workers[2]; last.ID != "9223372036854775809" || last.Name != "" || last.Role != "" {
		t.Errorf("worker %+v", last)
	}
	read("?chains=true")
	if got := page.Workers[0].Chains; len(got) != 2 || got[0] == got[1] || page.Workers[1].Chains != nil {
		t.Errorf("chains %v", got)
	}
}

// TestMetricsAreDocumented: every family is in docs/operate.md, and every family
// there exists.
func TestMetricsAreDocumented(t *testing.T) {
	ns := startNATS(t, 0)
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	engine := simulated(t, simengine.Config{Name: "simulated", Model: "m", Generation: dynamo.Gen14})
	r := start(t, "tokenizer: {engine: {timeout: 1ms}, inProcess: {source: {directory: {path: "+dir+"}}, parity: {policy: \"Off\"}}}\n"+
		"eventPlane: {nats: {url: \""+ns.ClientURL()+"\"}}", prefillA+decodeA+listedAs(t, "simulated", 31, engine.Addr()))
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	r.waitMetric(t, `warmpath_engine_running_requests{rank="0",worker_id="31"}`, 0)
	ids, body := tokens(1, 8)
	publish(t, ns, dynamo.Gen14, "prefill", stored(11, 1, ids))
	r.waitMetric(t, `warmpath_worker_events_total{rank="0",worker_id="11"}`, 1)
	publishLoad(t, ns, dynamo.Gen14, "prefill", usedBlocks(11, 7))
	publishLoad(t, ns, dynamo.Gen14, "prefill", queued(11, 1, 2, 300))
	r.waitMetric(t, `warmpath_engine_queued_prefill_tokens{rank="0",worker_id="11"}`, 300)
	r.ask(t, completions, body)
	r.ask(t, completions, "{")
	r.ask(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
	r.ask(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}],"chat_template":""}`) // not in process

	_, page := r.get(t, "/metrics")
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(page, -1) {
		have[m[1]] = true
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total", "warmpath_build_info"} {
		if !have[name] {
			t.Errorf("/metrics has no %s", name)
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`warmpath_[a-z_]+`).FindAllString(string(text), -1)
	if len(documented) < 20 {
		t.Fatalf("docs/operate.md names %d families only", len(documented))
	}
	// These have a series only after what they count has happened: here, an
	// undecided request, a response, a stream that is read, and a pool in a cluster.
	later := []string{"warmpath_policy_condition", "warmpath_undecided_total", "warmpath_responses_total", "warmpath_event_stream_lag_messages"}
	for _, name := range documented {
		if !have[name] && !slices.Contains(later, name) {
			t.Errorf("docs/operate.md tells of %s, which /metrics does not have", name)
		}
	}
	for name := range have {
		if strings.HasPrefix(name, "warmpath_") && name != "warmpath_build_info" && !slices.Contains(documented, name) {
			t.Errorf("%s is not in docs/operate.md", name)
		}
	}
}

// TestNATSComesLater: requests are served meanwhile, and nothing needs a
// restart; the same when NATS goes away and returns.
func TestNATSComesLater(t *testing.T) {
	port := testport.Free(t)
	a, dir, log := build(t, fmt.Sprintf("eventPlane: {nats: {url: \"nats://127.0.0.1:%d\"}}", port), prefillA+prefillB+decodeA)
	a.current.Load().events.started = time.Now().Add(time.Hour) // the grace must not end in the test
	r := run(t, a, dir, log)
	r.waitMetric(t, `warmpath_pool_workers{role="Prefill"}`, 2)
	want := "not ready:\nevent plane: not connected yet\n"
	if status, text := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || text != want {
		t.Errorf("/readyz: %d %q, want %q", status, text, want)
	}
	if got := r.metric(t, "warmpath_event_plane_connected"); got != 0 {
		t.Errorf("connected is %v", got)
	}
	ids, body := tokens(1, 12)
	_, other := tokens(500, 12) // of its own: it leaves a guess
	if set := r.ask(t, completions, other); set["x-gateway-destination-endpoint"] != "10.0.2.1:8000" {
		t.Errorf("without NATS: picked %v", set)
	}

	ns := startNATS(t, port)
	r.waitMetric(t, "warmpath_event_plane_connected", 1)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids))
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="12"}`, 3)

	stopNATS(ns)
	r.waitMetric(t, "warmpath_event_plane_connected", 0)
	if status, text := r.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("NATS takes readiness away: %d %q", status, text)
	}
	if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" {
		t.Errorf("with NATS gone: picked %v, not the holder", set)
	}
	ns = startNATS(t, port)
	r.waitMetric(t, "warmpath_event_plane_connected", 1)
	r.waitSubscribed(t, ns)
	more, _ := tokens(1000, 8)
	publish(t, ns, dynamo.Gen14, "prefill", stored(12, 5, more)) // 2 to 4 were missed
	r.waitMetric(t, `warmpath_worker_events_missed_total{rank="0",worker_id="12"}`, 3)
	// Nobody can tell what it holds by now: what it stored since is what counts.
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="12"}`, 2)
	r.waitMetric(t, `warmpath_worker_state{rank="0",state="partial",worker_id="12"}`, 1)
	if got := r.metric(t, "warmpath_event_plane_disconnects_total"); got != 1 {
		t.Errorf("%v disconnects, want 1", got)
	}
}

// TestGrace: NATS that stays away does not keep a picker from serving for good.
func TestGrace(t *testing.T) {
	a, dir, log := build(t, fmt.Sprintf("eventPlane: {nats: {url: \"nats://127.0.0.1:%d\"}}", testport.Free(t)), aggregated)
	a.current.Load().events.started = time.Now().Add(-planeGrace)
	r := run(t, a, dir, log)
	r.waitReady(t)
	r.eventually(t, "the log says what is missing", func() bool { return r.log.count("the event plane is not reachable yet") == 1 })
}

// TestShutdownLeavesNothing: text goes through the pool's own engine, and no
// connection to it outlives the picker, nor does anything else.
func TestShutdownLeavesNothing(t *testing.T) {
	ns := startNATS(t, 0)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12]}`)
	}))
	defer engine.Close()
	before := goleak.IgnoreCurrent()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(engine.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf("- {name: self, address: %s, ports: [%s], workerID: \"41\"}\n", host, port)
	r := start(t, "eventPlane: {nats: {url: \""+ns.ClientURL()+"\"}}", self)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	if set := r.ask(t, completions, `{"model":"m","prompt":"hello"}`); set["x-gateway-destination-endpoint"] != host+":"+port {
		t.Errorf("picked %v", set)
	}
	if got := r.metric(t, `warmpath_prompts_total{source="engine"}`); got != 1 {
		t.Errorf("%v prompts through the engine, want 1\n%s", got, r.log)
	}
	r.shutdown(t)
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	if r.log.count("msg=stopped") != 1 {
		t.Errorf("log:\n%s", r.log)
	}
	for _, l := range []net.Addr{r.ExtProcAddr(), r.HealthAddr(), r.MetricsAddr()} {
		if conn, err := net.Dial("tcp", l.String()); err == nil {
			conn.Close()
			t.Errorf("something still listens on %s", l)
		}
	}
}

// TestRunEndsWhenAPartFails, with that part's error.
func TestRunEndsWhenAPartFails(t *testing.T) {
	a, dir, _ := build(t, noEvents, aggregated)
	if err := os.Remove(filepath.Join(dir, "workers.yaml")); err != nil {
		t.Fatal(err)
	}
	err := a.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "workers.yaml") || !strings.Contains(err.Error(), "WorkerList") {
		t.Errorf("Run: %v", err)
	}
}

// TestRunEndsWhenTheEventPlaneFails: an address that is none shows at the start only.
func TestRunEndsWhenTheEventPlaneFails(t *testing.T) {
	before := goleak.IgnoreCurrent()
	_, config := files(t, noEvents, aggregated)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spec.EventPlane.Disabled, cfg.Spec.EventPlane.NATS.URL = false, "nats://127.0.0.1:port"
	a, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "eventplane: connect to NATS") {
		t.Errorf("Run: %v", err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestTakenAddress: the error names the field, and what was opened is closed.
func TestTakenAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for field, set := range map[string]func(*v1alpha1.ServerConfig, string){
		"server.extProcAddress":  func(c *v1alpha1.ServerConfig, a string) { c.ExtProcAddress = a },
		"server.healthAddress":   func(c *v1alpha1.ServerConfig, a string) { c.HealthAddress = a },
		"server.metricsAddress":  func(c *v1alpha1.ServerConfig, a string) { c.MetricsAddress = a },
		"server.recoveryAddress": func(c *v1alpha1.ServerConfig, a string) { c.RecoveryAddress = a },
	} {
		_, config := files(t, "eventPlane: {nats: {url: \"nats://127.0.0.1:1\"}}", aggregated)
		cfg, err := v1alpha1.Load(config)
		if err != nil {
			t.Fatal(err)
		}
		free := fmt.Sprintf("127.0.0.1:%d", testport.Free(t))
		cfg.Server.ExtProcAddress = free
		set(&cfg.Server, taken.Addr().String())
		if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: New returned %v", field, err)
		}
		again, err := net.Listen("tcp", free)
		if err != nil {
			t.Errorf("%s: a listener was left open: %v", field, err)
			continue
		}
		again.Close()
	}
}

func TestClose(t *testing.T) {
	a, _, _ := build(t, noEvents, aggregated)
	a.Close()
	for _, l := range []net.Addr{a.ExtProcAddr(), a.HealthAddr(), a.MetricsAddr()} {
		if conn, err := net.Dial("tcp", l.String()); err == nil {
			conn.Close()
			t.Errorf("something still listens on %s", l)
		}
	}
}

func TestServe(t *testing.T) {
	_, config := files(t, noEvents, aggregated)
	if err := Serve(t.Context(), "", "text", &logBuffer{}); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("no file: %v", err)
	}
	if err := Serve(t.Context(), config+".missing", "text", &logBuffer{}); err == nil || !strings.Contains(err.Error(), "epp.yaml.missing") {
		t.Errorf("missing file: %v", err)
	}
	if err := Serve(t.Context(), config, "xml", &logBuffer{}); err == nil || !strings.Contains(err.Error(), "xml") {
		t.Errorf("log format: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	log, result := &logBuffer{}, make(chan error, 1)
	go func() { result <- Serve(ctx, config, "json", log) }()
	eventually(t, log, "the pool is read", func() bool { return log.count(`"msg":"pool changed"`) == 1 })
	stop()
	if err := <-result; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestHandoffThatDoesNotFit: a pick that nobody is told of is said once.
func TestHandoffThatDoesNotFit(t *testing.T) {
	ranks := `- {name: dp, address: 10.0.3.1, ports: [8000], dataParallelSize: 2}` + "\n"
	const unnamed, unranked = "no handoff header names the one that was picked; see spec.handoff", "share an endpoint"
	for _, tc := range []struct {
		name, handoff, workers string
		want                   map[string]int
	}{
		{"pair, default", "", prefillA + decodeA, map[string]int{unnamed: 0}},
		{"pair, none", "handoff: {preset: None}", prefillA + decodeA, map[string]int{unnamed: 1, unranked: 0}},
		{"pair, dynamo", "handoff: {preset: Dynamo}", prefillA + decodeA, map[string]int{unnamed: 0}},
		{"aggregated, none", "handoff: {preset: None}", aggregated, map[string]int{unnamed: 0}},
		{"ranks, default", "", ranks, map[string]int{unranked: 1}},
		{"ranks, dynamo", "handoff: {preset: Dynamo}", ranks, map[string]int{unranked: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, noEvents+"\n"+tc.handoff, tc.workers)
			r.eventually(t, "the pool is there", func() bool { return r.log.count("pool changed") == 1 })
			writeWorkers(t, r.dir, tc.workers+decodeB)
			r.eventually(t, "the pool changes", func() bool { return r.log.count("pool changed") == 2 })
			for text, want := range tc.want {
				if got := r.log.count(text); got != want {
					t.Errorf("%d lines with %q, want %d:\n%s", got, text, want, r.log.String())
				}
			}
		})
	}
}

// TestAggregatedWorkersStandIn: a pool that lost its prefill side but has
// aggregated workers is described as what it is.
func TestAggregatedWorkersStandIn(t *testing.T) {
	r := start(t, noEvents, decodeA+aggregated)
	r.eventually(t, "the log tells", func() bool { return r.log.count("aggregated workers take all requests") == 1 })
	if n := r.log.count("compute prompts themselves"); n != 0 {
		t.Errorf("%d lines say that decode workers compute prompts", n)
	}
}
