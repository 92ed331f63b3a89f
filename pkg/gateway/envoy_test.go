package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func envoyBinaryFor(t *testing.T) string {
	t.Helper()
	binary, err := envoyPath()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestEnvoyValidates has Envoy check every shape the template can take.
func TestEnvoyValidates(t *testing.T) {
	binary := envoyBinaryFor(t)
	picker := netip.MustParseAddrPort("[::1]:9002")
	for _, follow := range []FollowMode{ByHeader, ByMetadata, OverrideHost} {
		for _, mode := range []BodyMode{FullDuplex, Buffered, None} {
			t.Run(fmt.Sprint(follow, mode), func(t *testing.T) {
				cfg := Config{
					Listen: netip.MustParseAddrPort("[::1]:0"), Picker: picker, Follow: follow, RequestBodyMode: mode, ResponseBodyMode: None - mode,
					SubsetHeader: mode != Buffered, KeepContentLength: mode == None, StreamIdleTimeout: 1500 * time.Millisecond,
				}
				if follow == OverrideHost {
					cfg.Workers = []netip.AddrPort{picker, netip.MustParseAddrPort("10.0.0.1:8000")}
				}
				if mode != None {
					cfg.AccessLog = io.Discard
				}
				if err := Validate(t.Context(), binary, cfg); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestEnvoyRefuses checks that Validate passes on what Envoy says.
func TestEnvoyRefuses(t *testing.T) {
	binary := envoyBinaryFor(t)
	// The longest Go duration overflows Envoy's.
	bad := Config{Picker: netip.MustParseAddrPort("127.0.0.1:1"), StreamIdleTimeout: 1<<63 - 1}
	err := Validate(t.Context(), binary, bad)
	if err == nil || !strings.Contains(err.Error(), "uration") {
		t.Errorf("error %v does not name the duration", err)
	}
}

// TestEnvoyPortTaken wants the reason in the error, and nothing left behind.
func TestEnvoyPortTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	first := front(t, "builtin", Config{Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	_, err := StartEnvoy(t.Context(), envoyBinaryFor(t), Config{Listen: first, Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	if err == nil || !strings.Contains(err.Error(), "cannot bind") {
		t.Errorf("error %v, want one that says it cannot bind", err)
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEnvoyMissingBinary(t *testing.T) {
	_, err := StartEnvoy(t.Context(), filepath.Join(t.TempDir(), "envoy"), Config{Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// TestEnvoyLife covers the admin address, the end with the context, and Stop.
func TestEnvoyLife(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := StartEnvoy(ctx, envoyBinaryFor(t), Config{Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	body, err := get(t.Context(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+e.Admin().String()+"/server_info")
	if err != nil || !strings.Contains(string(body), envoyVersion) {
		t.Errorf("admin: %v in %.100s", err, body)
	}
	select {
	case <-e.Done():
		t.Fatalf("it ended: %v", e.Wait())
	default:
	}
	cancel()
	<-e.Done()
	for range 2 {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestEnvoyCrash wants Wait to say that the process ended on its own.
func TestEnvoyCrash(t *testing.T) {
	e, err := StartEnvoy(t.Context(), envoyBinaryFor(t), Config{Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.Admin().String()+"/quitquitquit", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := e.Wait(); err == nil {
		t.Error("Wait says that all is well with an Envoy that nobody stopped")
	}
}

// TestEnvoyOverrideHost has the first of two choices refuse: the retry goes to
// the second, and the picker is told who served.
func TestEnvoyOverrideHost(t *testing.T) {
	w := startWorker(t)
	dead := closedPort(t)
	p := startPicker(t, dead.String()+","+w.addr())
	addr := front(t, "envoy", Config{Picker: p.addr, Follow: OverrideHost, Workers: []netip.AddrPort{dead, netip.MustParseAddrPort(w.addr())}})
	c := parityCase{name: "retry", method: "POST", path: "/echo", size: 300, status: 200, arrived: true}
	o := c.run(t, addr, p, c.name)
	c.verify(t, o)
	if o.Served != w.addr() {
		t.Errorf("served %q, want %q", o.Served, w.addr())
	}
}
