package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// worker is the test's engine.
type worker struct {
	srv *httptest.Server

	mu    sync.Mutex
	gates map[string]chan struct{} // per x-case: closed to let a handler go on
	gone  map[string]chan struct{} // per x-case: closed when the handler's context ended
}

func startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{gates: map[string]chan struct{}{}, gone: map[string]chan struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", w.echo)
	mux.HandleFunc("/body", w.body)
	mux.HandleFunc("/sse", w.sse)
	mux.HandleFunc("/missing", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(rw, "no such model", http.StatusNotFound)
	})
	mux.HandleFunc("/early", func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "not read", http.StatusForbidden)
	})
	mux.HandleFunc("/empty", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/big", func(rw http.ResponseWriter, r *http.Request) { _, _ = rw.Write(text(2 << 20)) })
	mux.HandleFunc("/zero", func(rw http.ResponseWriter, r *http.Request) { rw.Header().Set("Content-Length", "0") })
	mux.HandleFunc("/trailers", w.trailers)
	mux.HandleFunc("/cut", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, "part")
		_ = http.NewResponseController(rw).Flush()
		<-w.gate(r.Header.Get("x-case"))
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/reset", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	w.srv = httptest.NewServer(mux)
	t.Cleanup(w.srv.Close)
	return w
}

func (w *worker) addr() string { return strings.TrimPrefix(w.srv.URL, "http://") }

func channel(w *worker, m map[string]chan struct{}, name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m[name] == nil {
		m[name] = make(chan struct{})
	}
	return m[name]
}

// gate holds a case's handler until the test closes it.
func (w *worker) gate(name string) chan struct{} { return channel(w, w.gates, name) }

// left is closed when a case's handler saw its client go.
func (w *worker) left(name string) chan struct{} { return channel(w, w.gone, name) }

// received is what the worker got.
type received struct {
	Method, URI, Host string
	Header            http.Header
	Trailer           http.Header
	Encoding          []string
	Length            int64
	Size              int
	Sum               string
}

func (w *worker) echo(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	sum := sha256.Sum256(body)
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("X-Worker", "w")
	_ = json.NewEncoder(rw).Encode(received{
		r.Method, r.RequestURI, r.Host, r.Header, r.Trailer, r.TransferEncoding,
		r.ContentLength, len(body), hex.EncodeToString(sum[:]),
	})
}

func (w *worker) body(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = rw.Write(body)
}

func (w *worker) sse(rw http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("x-case")
	_, _ = io.Copy(io.Discard, r.Body)
	rw.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(rw, "data: 1\n\n")
	_ = http.NewResponseController(rw).Flush()
	select {
	case <-w.gate(name):
	case <-r.Context().Done():
		close(w.left(name))
		return
	}
	fmt.Fprint(rw, "data: 2\n\n")
}

func (w *worker) trailers(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	rw.Header().Set("Trailer", "X-Sum")
	fmt.Fprintf(rw, "%d %s", len(body), r.Trailer.Get("X-End"))
	rw.Header().Set("X-Sum", "done")
}
