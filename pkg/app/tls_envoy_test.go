package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// envoyTLS is an Envoy that encrypts its streams to the picker: %s are the picker's
// port and its idea of whom to trust.
const envoyTLS = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: main
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: main
          route_config: {virtual_hosts: [{name: pool, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: workers}}]}]}
          http_filters:
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: picker}}
              processing_mode: {request_header_mode: SEND, request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND, response_header_mode: SEND, response_body_mode: FULL_DUPLEX_STREAMED, response_trailer_mode: SEND}
              response_attributes: ["upstream.address"]
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: picker
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
        common_http_protocol_options: {max_requests_per_connection: 5} # so that it connects again and again
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: picker.test
        common_tls_context: {%s}
    load_assignment: {cluster_name: picker, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
  - name: workers
    connect_timeout: 1s
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config: {use_http_header: true, http_header_name: x-gateway-destination-endpoint}
`

// startEnvoy runs Envoy with a configuration and returns where it listens.
func startEnvoy(t *testing.T, config string) (url string) {
	t.Helper()
	binary, err := gateway.InstallEnvoy(t.Context(), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--admin-address-path", adminFile, "-l", "warn")
	said := &logBuffer{}
	cmd.Stderr, cmd.WaitDelay = said, 5*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was told to stop
	})
	var page struct {
		Listeners []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	eventually(t, said, "Envoy listens", func() bool {
		admin, err := os.ReadFile(adminFile)
		if err != nil {
			return false
		}
		resp, err := client.Get("http://" + strings.TrimSpace(string(admin)) + "/listeners?format=json")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&page) == nil && len(page.Listeners) == 1 && page.Listeners[0].Local.Socket.Port > 0
	})
	return fmt.Sprintf("http://127.0.0.1:%d", page.Listeners[0].Local.Socket.Port)
}

// listedWorker is a server as a line in the list of workers.
func listedWorker(s *httptest.Server) string {
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	return fmt.Sprintf("- {name: agg, address: %s, ports: [%s], workerID: \"31\"}\n", host, port)
}

func post(url string) error {
	_, body := tokens(1, 8)
	resp, err := client.Post(url+completions, "application/json", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(text) != "hello" {
		return fmt.Errorf("%d %q, %v", resp.StatusCode, text, err)
	}
	return nil
}

func startHello(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(s.Close)
	return s
}

// TestEnvoyOverTLS: a gateway that checks nothing meets a certificate that nobody
// signed.
func TestEnvoyOverTLS(t *testing.T) {
	r := encrypted(t, v1alpha1.TLSSpec{SelfSigned: true}, listedWorker(startHello(t)))
	url := startEnvoy(t, fmt.Sprintf(envoyTLS, "", portOf(r)))
	for range 20 {
		if err := post(url); err != nil {
			t.Errorf("%v\n%s", err, r.log)
		}
	}
	if got := r.metric(t, "warmpath_served_elsewhere_total"); got != 0 {
		t.Errorf("%v responses from elsewhere", got)
	}
	if got := r.metric(t, `warmpath_responses_total{class="2xx"}`); got != 20 {
		t.Errorf("%v responses, want 20", got)
	}
}

// TestServedElsewhereByEnvoy: the picked worker refuses connections, and Envoy goes to
// another one by itself. Only what it says of who served tells.
func TestServedElsewhereByEnvoy(t *testing.T) {
	alive := startHello(t)
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(testport.Free(t)))
	r := start(t, noText+noEvents, fmt.Sprintf("- {name: dead, address: 127.0.0.1, ports: [%d], workerID: \"31\"}\n", dead.Port()))
	r.waitReady(t)
	binary, err := gateway.InstallEnvoy(t.Context(), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	front, err := gateway.StartEnvoy(t.Context(), binary, gateway.Config{
		Picker: r.ExtProcAddr().(*net.TCPAddr).AddrPort(), Follow: gateway.OverrideHost,
		Workers: []netip.AddrPort{dead, netip.MustParseAddrPort(strings.TrimPrefix(alive.URL, "http://"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := front.Stop(); err != nil {
			t.Error(err)
		}
	})
	url := "http://" + front.Addr().String()
	served := uint64(0)
	for range 10 { // the fallback may try the dead one again
		if post(url) == nil {
			served++
		}
	}
	if served == 0 {
		t.Fatal("the other worker never served")
	}
	if got := r.Observe().ServedElsewhere; got != served {
		t.Errorf("%d responses from elsewhere are counted, want %d", got, served)
	}
	if got := r.log.count("picked=" + dead.String() + " served=" + strings.TrimPrefix(alive.URL, "http://")); got != 1 {
		t.Errorf("%d lines of the log, want 1\n%s", got, r.log)
	}
}

func portOf(r *running) int {
	return r.ExtProcAddr().(*net.TCPAddr).Port
}

// TestEnvoyChecksCertificate: a gateway that trusts one authority only goes on
// while the certificate is replaced, and replaced by what is none.
func TestEnvoyChecksCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.sign(t, 7, certFile, keyFile)
	r := encrypted(t, v1alpha1.TLSSpec{CertFile: certFile, KeyFile: keyFile}, listedWorker(startHello(t)))
	url := startEnvoy(t, fmt.Sprintf(envoyTLS, fmt.Sprintf(
		`validation_context: {trusted_ca: {filename: %q}, match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: picker.test}}]}`, ca.file), portOf(r)))
	if err := post(url); err != nil {
		t.Fatalf("%v\n%s", err, r.log)
	}
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	sent := 0
	traffic.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := post(url); err != nil {
				t.Error(err)
				return
			}
			sent++
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	trust := &tls.Config{RootCAs: roots, ServerName: "picker.test", NextProtos: []string{"h2"}}
	ca.sign(t, 8, certFile, keyFile)
	r.eventually(t, "the new certificate is shown", func() bool { return r.serial(t, trust) == 8 })
	const unusable = "the new certificate of ext-proc cannot be used"
	before := r.log.count(unusable) // a pair of which one file was new when it was read
	if err := os.WriteFile(certFile, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "the log tells of the broken one", func() bool {
		return r.serial(t, trust) == 8 && r.log.count(unusable) > before
	})
	ca.sign(t, 9, certFile, keyFile)
	r.eventually(t, "the last certificate is shown", func() bool { return r.serial(t, trust) == 9 })
	close(stop)
	traffic.Wait()
	if sent == 0 {
		t.Error("no request came through meanwhile")
	}
	if err := post(url); err != nil {
		t.Error(err)
	}
}
