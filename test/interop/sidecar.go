package interop

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"testing"
)

// Sidecar is the endpoint of one worker: what a gateway dials for it. It passes
// every request on to the stack's frontend, unchanged, and remembers its
// headers. (In a Kubernetes deployment each worker pod has a frontend of its own
// beside it. Any of them can reach every worker, so one frontend behind all
// sidecars behaves the same, and a wrong pick shows.)
type Sidecar struct {
	Worker uint64
	Addr   netip.AddrPort

	mu       sync.Mutex
	requests map[string]http.Header // by request id
	unnamed  int
}

// StartSidecars gives every worker of a stack an endpoint until the test ends.
// They are keyed by worker id.
func StartSidecars(t testing.TB, s *Stack) map[uint64]*Sidecar {
	t.Helper()
	front, err := url.Parse(s.FrontendURL())
	if err != nil {
		t.Fatalf("sidecars: %v", err)
	}
	sidecars := map[uint64]*Sidecar{}
	for _, w := range s.workers {
		sidecars[w.id] = startSidecar(t, front, w.id)
	}
	return sidecars
}

func startSidecar(t testing.TB, front *url.URL, worker uint64) *Sidecar {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("sidecar: %v", err)
	}
	c := &Sidecar{
		Worker:   worker,
		Addr:     listener.Addr().(*net.TCPAddr).AddrPort(),
		requests: map[string]http.Header{},
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(front) },
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" { // which the picker reads; no client asks for it
			c.note(r.Header.Clone())
		}
		proxy.ServeHTTP(w, r)
	})}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			t.Errorf("sidecar of %d: %v", worker, err)
		}
	})
	t.Cleanup(func() {
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("sidecar of %d: %v", worker, err)
		}
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return c
}

func (c *Sidecar) note(h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := h.Get(RequestIDHeader)
	if id == "" {
		c.unnamed++
		return
	}
	c.requests[id] = h
}

// Request returns the headers of a request that came to this endpoint.
func (c *Sidecar) Request(id string) (http.Header, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.requests[id]
	return h, ok
}

// Count returns how many requests with an id have come, and how many without.
func (c *Sidecar) Count() (named, unnamed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests), c.unnamed
}
