package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestProbe(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" || asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("not ready:\npool: no ready worker\n"))
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	}))
	defer server.Close()
	code, out, errs := epp(t, "probe", "--url", server.URL, "--wait", "20s")
	if code != 0 || out != "ready\n" || asked.Load() < 2 {
		t.Errorf("ready at the second look: exit %d, %q, %q", code, out, errs)
	}
	code, out, errs = epp(t, "probe", "--url", server.URL+"/never", "--wait", "100ms")
	if code != 1 || !strings.Contains(out, "no ready worker") || !strings.Contains(errs, "503") {
		t.Errorf("never ready: exit %d, %q, %q", code, out, errs)
	}
	server.Close()
	if code, _, errs = epp(t, "probe", "--url", server.URL, "--wait", "100ms"); code != 1 || !strings.Contains(errs, "refused") {
		t.Errorf("nobody there: exit %d, %q", code, errs)
	}
}

// A picker for a cluster is checked without one.
func TestValidateInCluster(t *testing.T) {
	config := `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
discovery: {kubernetes: {pool: {name: llm}}}
spec: {}
`
	path := write(t, config, "")
	code, out, errs := epp(t, "validate", "--config", path)
	if code != 0 || !strings.Contains(out, "InferencePool llm") {
		t.Errorf("%s: exit %d, %q, %q", filepath.Base(path), code, out, errs)
	}
	path = write(t, strings.Replace(config, "pool: {name: llm}", `selector: {labelSelector: app=llm, targetPorts: [8000]}`, 1), "")
	code, out, errs = epp(t, "validate", "--config", path)
	if code != 1 || !strings.Contains(errs, "nats.url: required") {
		t.Errorf("a selector without NATS: exit %d, %q, %q", code, out, errs)
	}
}
