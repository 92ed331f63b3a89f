package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// follows are the ways in which a gateway follows the picker.
var follows = []struct {
	name string
	mode gateway.FollowMode
}{{"header", gateway.ByHeader}, {"metadata", gateway.ByMetadata}, {"override_host", gateway.OverrideHost}}

const (
	model     = "warmpath/demo"
	blockSize = 16
	namespace = "e2e"
)

// stack is a whole system: NATS, workers, one picker, one Envoy. Parts are
// started by its methods and end with the test.
type stack struct {
	t       *testing.T
	dir     string
	natsURL string
	bus     *server.Server

	picker  *process
	extProc netip.AddrPort
	health  string
	admin   string // base URL of metrics and debug pages

	front *gateway.Envoy
	url   string // of the gateway

	client *http.Client // that requests are sent with
}

// newStack starts NATS and nothing else.
func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir(), client: newClient(t, false)}
	s.bus = startNATS(t, server.RANDOM_PORT)
	s.natsURL = s.bus.ClientURL()
	return s
}

// startNATS runs a NATS server in this process until the test ends.
func startNATS(t *testing.T, port int) *server.Server {
	t.Helper()
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true})
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

// stopNATS may be called again for a server that has stopped.
func stopNATS(bus *server.Server) {
	bus.Shutdown()
	bus.WaitForShutdown()
}

// pickerOptions are the parts of the configuration in which tests differ. The
// zero value has defaults, but for guesses: without them affinity comes from
// events alone.
type pickerOptions struct {
	listen  string // extProcAddress; empty takes a free port
	drain   string // drainTimeout; empty is just enough for an idle picker
	server  string // further fields of server
	spec    string // further lines of spec, indented by two
	events  string // further fields of spec.eventPlane
	guesses bool
}

// startPicker runs cmd/epp on the workers listed so far, and returns when it is
// ready: it knows its workers and hears NATS.
func (s *stack) startPicker(o pickerOptions) {
	s.t.Helper()
	s.startPickerUnready(o)
	eventually(s.t, "the picker is ready", func() bool { return get(s.t, s.admin+"/readyz").status == 200 })
}

// startPickerUnready returns as soon as the picker serves.
func (s *stack) startPickerUnready(o pickerOptions) {
	s.t.Helper()
	if o.server != "" {
		o.server = ", " + o.server
	}
	if o.events != "" {
		o.events = ", " + o.events
	}
	ttl := "0s"
	if o.guesses {
		ttl = "10m" // of no guess that a test is about
	}
	config := fmt.Sprintf(`apiVersion: %s
kind: %s
server: {extProcAddress: "%s", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", recoveryAddress: "127.0.0.1:0", drainTimeout: %s%s}
discovery: {file: {path: workers.yaml}}
spec:
  blockSize: %d
  eventPlane: {nats: {url: %q, namespace: %s}, speculationTTL: %s%s}
%s
`, v1alpha1.APIVersion, v1alpha1.KindEndpointPickerConfig, cmp.Or(o.listen, "127.0.0.1:0"), cmp.Or(o.drain, "1500ms"), o.server, blockSize, s.natsURL, namespace, ttl, o.events, o.spec)
	s.runPicker("epp", config, nil)
	s.picker.awaitLog(s.t, "pool changed") // the list that it starts with
}

// runPicker runs cmd/epp with a configuration and returns as soon as it serves.
func (s *stack) runPicker(name, config string, env []string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.picker = start(s.t, name, env, eppBinary, "--config", path, "--log-format", "json")
	serving := s.picker.awaitLog(s.t, "serving")
	s.extProc = netip.MustParseAddrPort(serving.text("ext_proc"))
	s.health = serving.text("health")
	s.admin = "http://" + serving.text("metrics")
}

// startGateway puts Envoy in front of the picker. The workers are for follow
// mode override_host, whose clusters are fixed.
func (s *stack) startGateway(cfg gateway.Config, workers ...*worker) {
	s.t.Helper()
	cfg.Picker = s.extProc
	if cfg.Follow == gateway.OverrideHost {
		for _, w := range workers {
			cfg.Workers = append(cfg.Workers, w.addrs...)
		}
	}
	front, err := gateway.StartEnvoy(context.WithoutCancel(s.t.Context()), envoyBinary, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := front.Stop(); err != nil {
			s.t.Error(err)
		}
	})
	s.front, s.url = front, "http://"+front.Addr().String()
}

// worker is one entry of the picker's list of workers.
type worker struct {
	name  string
	role  fleet.Role
	addrs []netip.AddrPort // one per port
	ranks int              // behind one port; 0 leaves it to the number of ports
	*process
}

func (w *worker) addr() string { return w.addrs[0].String() }

func (w *worker) id() uint64 { return fleet.WorkerID(w.name) }

// sim starts a simulated worker and returns when it serves.
func (s *stack) sim(name string, role fleet.Role, flags ...string) *worker {
	s.t.Helper()
	command := []string{
		warmpathBinary, "sim-worker", "--name", name, "--role", strings.ToLower(role.String()),
		"--nats", s.natsURL, "--namespace", namespace, "--model", model,
	}
	w := &worker{name: name, role: role, process: start(s.t, name, nil, append(command, flags...)...)}
	serves := w.awaitLog(s.t, "simulated worker serves")
	w.addrs = []netip.AddrPort{netip.MustParseAddrPort(serves.text("address"))}
	return w
}

// sims starts n simulated workers of a role: name-0, name-1, ...
func (s *stack) sims(n int, name string, role fleet.Role, flags ...string) []*worker {
	s.t.Helper()
	list := make([]*worker, n)
	for i := range list {
		list[i] = s.sim(fmt.Sprintf("%s-%d", name, i), role, flags...)
	}
	return list
}

// stop ends a simulated worker.
func (w *worker) stop(t *testing.T) {
	t.Helper()
	w.end(t, syscall.SIGTERM)
}

// list makes exactly these the picker's workers, in one step as a mounted
// ConfigMap changes. A running picker has taken them when it returns.
func (s *stack) list(workers ...*worker) {
	s.t.Helper()
	labels := map[fleet.Role]string{fleet.Aggregated: "worker", fleet.Prefill: "prefill", fleet.Decode: "decode"}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nworkers:", v1alpha1.APIVersion, v1alpha1.KindWorkerList)
	if len(workers) == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for _, w := range workers {
		var ports []string
		for _, a := range w.addrs {
			ports = append(ports, fmt.Sprint(a.Port()))
		}
		fmt.Fprintf(&b, "- {name: %s, address: %q, ports: [%s], labels: {nvidia.com/dynamo-component-type: %s}",
			w.name, w.addrs[0].Addr(), strings.Join(ports, ", "), labels[w.role])
		if w.ranks > 0 {
			fmt.Fprintf(&b, ", dataParallelSize: %d", w.ranks)
		}
		b.WriteString("}\n")
	}
	before := 0
	if s.picker != nil {
		before = len(s.picker.logged("pool changed"))
	}
	if err := writeFile(s.dir, "workers.yaml", b.String()); err != nil {
		s.t.Fatal(err)
	}
	if s.picker != nil {
		eventually(s.t, "the picker has read its new list of workers", func() bool {
			return len(s.picker.logged("pool changed")) > before
		})
	}
}

// join returns one list of workers.
func join(lists ...[]*worker) (all []*worker) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// named returns the worker of a name, or fails the test.
func named(t *testing.T, name string, workers []*worker) *worker {
	t.Helper()
	for _, w := range workers {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("%q is none of the expected workers", name)
	return nil
}

// writeFile writes a file in one step.
func writeFile(dir, name, text string) error {
	tmp := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}
