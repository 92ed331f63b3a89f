package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// startStandaloneEnvoy runs the Envoy that the chart makes for clusters without a
// gateway. Hosts are the pickers, which it would have from DNS.
func (d *deployment) startStandaloneEnvoy(hosts ...string) {
	d.t.Helper()
	d.startStandaloneEnvoyFor(hosts, nil)
}

// startStandaloneEnvoyFor is the same with values, and with the workers that Envoy
// knows with FailOpen.
func (d *deployment) startStandaloneEnvoyFor(pickers, workers []string, values ...string) {
	d.t.Helper()
	config := ""
	for _, o := range d.render(append(values, `gateway.preset="standaloneEnvoy"`, `gateway.standaloneEnvoy.listenAddress="127.0.0.1"`)...) {
		if text, ok := at(o, "data", "envoy.yaml").(string); ok {
			config = text
		}
	}
	config = d.resolve(config, "{%s}", ", ", "pickers", extProc, pickers)
	if workers != nil {
		config = d.resolve(config, "- %s", "\n        ", "workers", d.port, workers)
	}
	requests, admin := testport.Free(d.t), testport.Free(d.t)
	config = strings.NewReplacer(
		// A busy machine must not make Envoy take a picker for dead that is only slow.
		"- timeout: 1s", "- timeout: 30s", "connect_timeout: 1s", "connect_timeout: 30s",
		"connection_keepalive: {interval: 5s, timeout: 5s}", "connection_keepalive: {interval: 5s, timeout: 60s}",
		"port_value: 8080}", fmt.Sprintf("port_value: %d}", requests),
		"port_value: 8081}", fmt.Sprintf("port_value: %d}", testport.Free(d.t)),
		"port_value: 9901}", fmt.Sprintf("port_value: %d}", admin),
	).Replace(config)
	path := filepath.Join(d.dir, "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		d.t.Fatal(err)
	}
	p, err := testcluster.StartProcess("envoy", nil, envoyBinary, "-c", path, "--disable-hot-restart", "--concurrency", "2", "-l", "warn")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		p.Kill()
		if d.t.Failed() {
			d.t.Logf("envoy wrote:\n%s", tail(p.Output()))
		}
	})
	d.url = fmt.Sprintf("http://127.0.0.1:%d", requests)
	stats := fmt.Sprintf("http://127.0.0.1:%d/stats?filter=cluster.picker.membership_healthy", admin)
	healthy := fmt.Sprintf("cluster.picker.membership_healthy: %d\n", len(pickers))
	eventually(d.t, "Envoy knows all pickers, and finds them healthy", func() bool {
		r, err := send(d.t, once, http.MethodGet, stats, nil, nil)
		return err == nil && r.body == healthy
	})
}

// resolve puts hosts in the place of a Service's name in a configuration of Envoy, where
// an endpoint is written as in item.
func (d *deployment) resolve(config, item, separator, service string, port int, hosts []string) string {
	d.t.Helper()
	endpoint := func(host string) string {
		return fmt.Sprintf(item, fmt.Sprintf("endpoint: {address: {socket_address: {address: %s, port_value: %d}}}", host, port))
	}
	name := endpoint(fmt.Sprintf("%s-%s.%s.svc.cluster.local", account, service, d.ns))
	if strings.Count(config, name) != 1 {
		d.t.Fatalf("the chart's Envoy does not name the %s as this test expects:\n%s", service, config)
	}
	var list []string
	for _, host := range hosts {
		list = append(list, endpoint(host))
	}
	return strings.Replace(config, name, strings.Join(list, separator), 1)
}

// serveAt makes a picker serve ext-proc at an address of its own, as pods do.
func serveAt(host, drain string) func(object) {
	return func(config object) {
		s := config["server"].(object)
		s["extProcAddress"] = fmt.Sprintf("%s:%d", host, extProc)
		s["drainTimeout"] = drain
	}
}

// TestClusterPickerRestarts restarts the only picker while a stream is open.
func TestClusterPickerRestarts(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, dir: t.TempDir(), client: newClient(t, false)}
	s.bus = startJetStream(t, s.dir)
	s.natsURL = s.bus.ClientURL()
	d := s.install(cluster(t), `routingPolicy.create=true`,
		`routingPolicy.spec={"eventPlane":{"speculationTTL":"0s","jetStream":{"enabled":true,"storage":"Memory","maxBytes":1048576}}}`)
	agg, _ := d.pods(false)
	host := d.ip(101)
	d.run("epp-0", serveAt(host, "30s"))
	d.startStandaloneEnvoy(host)
	prompt := tokens(1, 20*blockSize)
	holder := d.sticks(prompt, agg).prefill()

	// A recorder streams; only it is ready when the stream is opened.
	turn := make(chan struct{})
	newRecorderAt(t, "slow-0", fleet.Aggregated, []string{d.addr(d.ip(3))}, streamer(turn))
	d.createPod("slow-0", labels(fleet.Aggregated), d.ip(3))
	d.awaitMetric(3, "warmpath_pool_workers") // first: of one worker alone it must be sure which it is
	for _, w := range agg {
		d.c.SetReady(t, d.ns, w.name, false)
	}
	d.awaitMetric(1, "warmpath_pool_workers")
	stream := d.stream(turn)
	for _, w := range agg {
		d.c.SetReady(t, d.ns, w.name, true)
	}
	stream.more()
	old := d.picker
	old.signal(t, syscall.SIGTERM)
	old.awaitLog(t, "draining")
	eventually(t, "requests are refused", func() bool {
		return d.post("/v1/completions", completion(tokens(3, 100)), nil).status == http.StatusServiceUnavailable
	})
	stream.more()
	if !old.running() {
		t.Error("the picker has ended while a stream was open")
	}
	stream.end()
	old.wait(t)
	if r := d.post("/v1/completions", completion(tokens(3, 100)), nil); r.status != http.StatusServiceUnavailable {
		t.Errorf("without a picker the answer is %d, want 503 as failureMode FailClose says", r.status)
	}
	d.c.DeletePod(t, d.ns, "slow-0")

	d.run("epp-1", serveAt(host, "1500ms"))
	if all, _ := d.holds(holder, prompt); !all {
		t.Error("the new picker does not know what the workers held before it started")
	}
	eventually(t, "Envoy asks the new picker", func() bool {
		return d.post("/v1/completions", completion(tokens(4, 100)), nil).status == http.StatusOK
	})
	for range 4 {
		d.idle()
		if r := d.complete(prompt); r.prefill() != holder {
			t.Errorf("computed by %q, want %q, which holds the prompt", r.prefill(), holder)
		}
	}
	d.awaitCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
}

// startJetStream is startNATS with JetStream, in memory.
func startJetStream(t *testing.T, dir string) *server.Server {
	t.Helper()
	bus, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(dir, "jetstream"),
	})
	if err != nil {
		t.Fatalf("NATS: %v", err)
	}
	bus.Start()
	t.Cleanup(func() { stopNATS(bus) })
	if !bus.ReadyForConnections(patience) {
		t.Fatal("NATS is not ready")
	}
	return bus
}

// TestClusterTwoPickers restarts one of two pickers under traffic. Not a request is
// lost, and the new one knows what the one that stayed knows. Then the one that
// writes the policy's status is the other one.
func TestClusterTwoPickers(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t), `replicaCount=2`, `routingPolicy.create=true`, `routingPolicy.spec={"eventPlane":{"speculationTTL":"0s"}}`)
	agg, _ := d.pods(false)
	hosts := []string{d.ip(101), d.ip(102)}
	d.run("epp-0", serveAt(hosts[0], "10s"))
	eventually(t, "the first picker writes the status", func() bool { return d.livePolicy().Status.Replica == "epp-0" })
	other := d.another()
	other.run("epp-1", serveAt(hosts[1], "10s"))
	d.startStandaloneEnvoy(hosts...)
	other.url = d.url

	prompt := tokens(1, 20*blockSize)
	r := d.complete(prompt)
	holder := named(t, r.prefill(), agg).name
	d.awaitHeld(holder, prompt)
	other.awaitHeld(holder, prompt)
	wantBothAsked(t, d, other)

	load := d.traffic(3)
	load.settle(t)
	d.picker.end(t, syscall.SIGTERM)
	load.settle(t)
	eventually(t, "the second picker writes the status", func() bool { return other.livePolicy().Status.Replica == "epp-1" })
	d.policy(object{"eventPlane": object{"speculationTTL": "1s", "replicaSync": true}})
	other.awaitCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")

	fresh := d.another()
	fresh.run("epp-2", serveAt(hosts[0], "1500ms"))
	if all, _ := fresh.holds(holder, prompt); !all {
		t.Error("the new picker does not know what the one that stayed knows")
	}
	wantBothAsked(t, fresh, other)
	load.settle(t)
	load.stop(t)
	if p := fresh.livePolicy(); p.Status.Replica != "epp-1" {
		t.Errorf("the status is written by %q, want epp-1, which has the lease", p.Status.Replica)
	}
}

// wantBothAsked sends requests until each of two pickers has decided on some.
func wantBothAsked(t *testing.T, a, b *deployment) {
	t.Helper()
	eventually(t, "both pickers are asked", func() bool {
		a.complete(tokens(9, 40))
		return a.metric("warmpath_decisions_total") > 0 && b.metric("warmpath_decisions_total") > 0
	})
}
