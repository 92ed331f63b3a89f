package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// arrived is a request as a worker got it.
type arrived struct {
	method, uri string
	header      http.Header
	encoding    []string
	length      int64
	size        int
	sum         string
}

// recorder is a worker that writes down what it gets. handle, when set, answers;
// else it is an empty JSON object.
type recorder struct {
	worker
	handle http.HandlerFunc

	mu  sync.Mutex
	got []arrived
}

// newRecorder starts recorders on as many ports as ranks; all share one record.
func newRecorder(t *testing.T, name string, role fleet.Role, ports int, handle http.HandlerFunc) *recorder {
	t.Helper()
	return newRecorderAt(t, name, role, slices.Repeat([]string{"127.0.0.1:0"}, ports), handle)
}

// newRecorderAt is newRecorder for addresses that matter.
func newRecorderAt(t *testing.T, name string, role fleet.Role, addrs []string, handle http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{worker: worker{name: name, role: role}, handle: handle}
	for _, addr := range addrs {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: r}}
		server.Start()
		t.Cleanup(server.Close)
		r.addrs = append(r.addrs, netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://")))
	}
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/metrics" { // the picker looks, and no client asked for it
		http.NotFound(w, req)
		return
	}
	sum := sha256.New()
	n, err := io.Copy(sum, req.Body)
	if err != nil {
		return // the gateway gave the request up
	}
	a := arrived{req.Method, req.RequestURI, req.Header.Clone(), req.TransferEncoding, req.ContentLength, int(n), hex.EncodeToString(sum.Sum(nil))}
	a.header.Set("Host", req.Host)
	r.mu.Lock()
	r.got = append(r.got, a)
	r.mu.Unlock()
	if r.handle != nil {
		r.handle(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}") // the client is gone when this fails
}

// count is the number of requests that came.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// last returns the newest request.
func (r *recorder) last(t *testing.T) arrived {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) == 0 {
		t.Fatalf("no request came to %s", r.name)
	}
	return r.got[len(r.got)-1]
}
