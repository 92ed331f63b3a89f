package chart

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/app"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// patience is how long a test waits for what takes a second on an idle machine.
const patience = time.Minute

// TestStandaloneEnvoyServes sends requests through the Envoy of the standalone
// preset, with a real picker behind it. One of two workers is in the picker's pool:
// it gets all requests while a picker is there. Then the failure mode decides.
func TestStandaloneEnvoyServes(t *testing.T) {
	binary, err := gateway.InstallEnvoy(context.WithoutCancel(t.Context()), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, mode string
		tls        bool
	}{
		{"FailClose", "FailClose", false},
		{"FailClose, TLS", "FailClose", true},
		{"FailOpen", "FailOpen", false},
		{"FailOpen, TLS", "FailOpen", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			picked, other := worker(t, "picked"), worker(t, "other")
			extProc := freePort(t)
			stop := startPicker(t, extProc, picked, tc.tls)
			envoy := startEnvoy(t, binary, extProc, tc.mode, tc.tls, picked, other)

			eventually(t, "Envoy routes by the picker", func() bool { return envoy.post(t) == "200 picked" })
			for range 20 {
				if got := envoy.post(t); got != "200 picked" {
					t.Fatalf("a request with a body got %q", got)
				}
			}
			long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("long ", 1<<20) + `"}]}`
			if got := ask(t, http.MethodPost, envoy.requests+"/v1/chat/completions", long); got != "200 picked" {
				t.Errorf("a request with a body of 5 MiB got %q", got)
			}
			if got := envoy.get(t, envoy.requests); got != "200 picked" {
				t.Errorf("a request without a body got %q", got)
			}
			if got := envoy.get(t, envoy.probes+"/ready"); !strings.HasPrefix(got, "200") {
				t.Errorf("the probe got %q", got)
			}
			if got := envoy.get(t, envoy.probes+"/quitquitquit"); !strings.HasPrefix(got, "404") {
				t.Errorf("the port for probes reaches all of the admin port: %q", got)
			}

			stop()
			if tc.mode == "FailClose" {
				eventually(t, "requests are refused", func() bool { return strings.HasPrefix(envoy.post(t), "503") })
				return
			}
			seen := map[string]bool{}
			eventually(t, "both workers get requests", func() bool {
				got := envoy.post(t)
				if !strings.HasPrefix(got, "200 ") {
					t.Fatalf("a request got %q", got)
				}
				seen[got] = true
				return seen["200 picked"] && seen["200 other"]
			})
		})
	}
}

// spoofed is what a client puts into headers that steer requests.
const spoofed = "10.9.8.7:6543"

// worker is an engine that says its name, and which header of a client steers it.
func worker(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, header := range extproc.RoutingHeaders(nil) {
			if r.Header.Get(header) == spoofed {
				fmt.Fprint(w, name+" is steered by "+header)
				return
			}
		}
		fmt.Fprint(w, name)
	}))
	t.Cleanup(s.Close)
	return portOf(t, s.Listener.Addr())
}

// startPicker runs a picker whose pool is one worker. The function that is returned
// stops it.
func startPicker(t *testing.T, extProc, workerPort string, tls bool) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("workers.yaml", `
apiVersion: routing.warmpath.dev/v1alpha1
kind: WorkerList
workers: [{name: picked, address: 127.0.0.1, ports: [`+workerPort+`]}]
`)
	encrypt := ""
	if tls {
		encrypt = "extProcTLS: {selfSigned: true}, "
	}
	config := write("config.yaml", `
apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
server: {`+encrypt+`extProcAddress: "127.0.0.1:`+extProc+`", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", drainTimeout: 1s}
discovery: {file: {path: workers.yaml}}
spec: {eventPlane: {disabled: true}, tokenizer: {disabled: true}}
`)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- app.Serve(ctx, config, "text", io.Discard) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the picker: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// envoy is a running Envoy, by the URLs of its two listeners.
type envoy struct{ requests, probes string }

// startEnvoy runs the Envoy of the preset, with the names of Services replaced by
// the loopback.
func startEnvoy(t *testing.T, binary, extProc, mode string, tls bool, workers ...string) envoy {
	t.Helper()
	all := objects(t, render(t, "-f", examples(t)["standalone-envoy-failopen"],
		"--set", fmt.Sprintf("extProcTLS.enabled=%t", tls),
		"--set", "inferencePool.failureMode="+mode,
		"--set", "inferencePool.targetPorts={"+strings.Join(workers, ",")+"}",
		"--set", "config.server.extProcAddress=:"+extProc,
		"--set", "gateway.standaloneEnvoy.streamIdleTimeoutSeconds=7200", // longer than Envoy lets a picker think
		"--set", "gateway.standaloneEnvoy.listenAddress=127.0.0.1"))
	config := ""
	for _, m := range ofKind(all, "ConfigMap") {
		config += text(m, "data", "envoy.yaml")
	}
	requests, probes := freePort(t), freePort(t)
	config = strings.NewReplacer(
		"llm-router-warmpath-pickers.demo.svc.cluster.local", "127.0.0.1",
		"llm-router-warmpath-workers.demo.svc.cluster.local", "127.0.0.1",
		"port_value: 8080}", "port_value: "+requests+"}",
		"port_value: 8081}", "port_value: "+probes+"}",
		"port_value: 9901}", "port_value: "+freePort(t)+"}",
	).Replace(config)
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := testcluster.StartProcess("envoy", nil, binary, "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("envoy:\n%s", p.Output())
		}
	})
	return envoy{"http://127.0.0.1:" + requests, "http://127.0.0.1:" + probes}
}

// post sends a chat and returns the status and the body of the answer.
func (e envoy) post(t *testing.T) string {
	t.Helper()
	return ask(t, http.MethodPost, e.requests+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
}

func (e envoy) get(t *testing.T, url string) string {
	t.Helper()
	return ask(t, http.MethodGet, url, "")
}

func ask(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range extproc.RoutingHeaders(nil) {
		req.Header.Set(header, spoofed)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, data))
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain until: %s", patience, what)
		}
	}
}

// freePort returns a port on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(testport.Free(t))
}

func portOf(t *testing.T, addr net.Addr) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
