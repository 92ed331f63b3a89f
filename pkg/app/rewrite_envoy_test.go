package app

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/pkg/gateway"
)

const (
	askedBody  = `{"messages":[{"role":"user","content":"hi"}], "model" : "asked", "stream":true}`
	targetBody = `{"messages":[{"role":"user","content":"hi"}], "model" : "org/the-target", "stream":true}`
	whole      = `{"id":"1","model":"org/the-target","choices":[]}`
)

// modelWorker answers as the model it was asked for: with a stream whose first
// piece ends within the name, or in one piece. It goes on after the first piece
// when it is told to.
type modelWorker struct {
	*httptest.Server

	goOn     chan struct{}
	requests chan *http.Request
	bodies   chan string
}

func startModelWorker(t *testing.T) *modelWorker {
	t.Helper()
	w := &modelWorker{goOn: make(chan struct{}), requests: make(chan *http.Request, 1), bodies: make(chan string, 1)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.NotFound(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.requests <- r
		w.bodies <- string(body)
		if r.URL.Query().Get("whole") != "" {
			rw.Header().Set("Content-Type", "application/json")
			rw.Header().Set("Content-Length", fmt.Sprint(len(whole)))
			_, _ = io.WriteString(rw, whole)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: {\"id\":\"1\",\"model\":\"org/the-tar")
		_ = http.NewResponseController(rw).Flush()
		<-w.goOn
		_, _ = io.WriteString(rw, "ge") // nothing is left of this piece, where it comes alone
		_ = http.NewResponseController(rw).Flush()
		_, _ = io.WriteString(rw, "t\",\"choices\":[]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(w.Close)
	return w
}

// checkRequest looks at what the worker got.
func (w *modelWorker) checkRequest(t *testing.T) {
	t.Helper()
	r := <-w.requests
	if got := <-w.bodies; got != targetBody {
		t.Errorf("the worker got %s, want %s", got, targetBody)
	}
	if r.ContentLength >= 0 && r.ContentLength != int64(len(targetBody)) {
		t.Errorf("a body of %d bytes was announced with %d", len(targetBody), r.ContentLength)
	}
	if got := r.Header.Get("X-Llm-D-Model-Name-Rewrite"); got != "" {
		t.Errorf("the worker got the client's header %s", got)
	}
}

// front starts a gateway, a real Envoy or the built-in one, and returns its URL.
func front(t *testing.T, builtin bool, cfg gateway.Config) string {
	t.Helper()
	if builtin {
		b, err := gateway.NewBuiltin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- b.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return "http://" + b.Addr().String()
	}
	binary, err := gateway.InstallEnvoy(t.Context(), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	e, err := gateway.StartEnvoy(t.Context(), binary, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + e.Addr().String()
}

// TestModelRewriteThroughGateway: the worker gets the target, the client what it
// asked for, in every mode of bodies, and a stream is not held back.
func TestModelRewriteThroughGateway(t *testing.T) {
	w := startModelWorker(t)
	r := start(t, noText+noEvents+`
modelRewrites:
- matches: [asked]
  targets: [{modelRewrite: org/the-target}]
`, listedWorker(w.Server))
	r.waitReady(t)
	picker := r.ExtProcAddr().(*net.TCPAddr).AddrPort()
	for name, tc := range map[string]struct {
		builtin  bool
		cfg      gateway.Config
		streamed bool // the response comes as it is made
	}{
		"Envoy":                     {false, gateway.Config{Picker: picker}, true},
		"Envoy with content-length": {false, gateway.Config{Picker: picker, KeepContentLength: true}, true},
		"Envoy, buffered":           {false, gateway.Config{Picker: picker, RequestBodyMode: gateway.Buffered, ResponseBodyMode: gateway.Buffered}, false},
		"built-in":                  {true, gateway.Config{Picker: picker}, true},
		"built-in, buffered":        {true, gateway.Config{Picker: picker, RequestBodyMode: gateway.Buffered, ResponseBodyMode: gateway.Buffered}, false},
	} {
		t.Run(name, func(t *testing.T) {
			url := front(t, tc.builtin, tc.cfg) + "/v1/chat/completions"
			resp := ask(t, url+"?whole=yes")
			w.checkRequest(t)
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != strings.Replace(whole, "org/the-target", "asked", 1) {
				t.Errorf("the client got %s, %v", got, err)
			}

			if !tc.streamed {
				go func() { w.goOn <- struct{}{} }()
			}
			resp = ask(t, url)
			w.checkRequest(t)
			first := make([]byte, len("data: {\"id\":\"1\",\"model\":\"asked"))
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			if tc.streamed {
				w.goOn <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			if got := string(first) + string(rest); err != nil || got != "data: {\"id\":\"1\",\"model\":\"asked\",\"choices\":[]}\n\ndata: [DONE]\n\n" {
				t.Errorf("the client got %q, %v", got, err)
			}
		})
	}
	if got := r.metric(t, `warmpath_model_rewrites_total{model="asked",target="org/the-target"}`); got != 10 {
		t.Errorf("%v requests are counted, want 10", got)
	}
}

func ask(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(askedBody))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Llm-D-Model-Name-Rewrite", "from the client")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return resp
}
