package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestHangUp wants a client that goes away to give back what was reserved for
// it, wherever its request was.
func TestHangUp(t *testing.T) {
	for _, h2c := range []bool{false, true} {
		for _, at := range []string{"while waiting", "in the answer", "while tokenising"} {
			t.Run(fmt.Sprintf("%s/h2c=%t", at, h2c), func(t *testing.T) {
				t.Parallel()
				here, gone := make(chan struct{}), make(chan struct{})
				s := newStack(t)
				s.client = newClient(t, h2c)
				agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, func(w http.ResponseWriter, r *http.Request) {
					if at == "in the answer" {
						eventStream(w)
						fmt.Fprint(w, "data: 1\n\n")
						flush(w)
					}
					close(here)
					<-r.Context().Done()
					close(gone)
				})
				s.list(&agg.worker)
				s.startPicker(pickerOptions{spec: "  tokenizer: {engine: {timeout: 1m}}"})
				s.startGateway(gateway.Config{})

				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				body := completion(tokens(1, 100))
				if at == "while tokenising" {
					body = fmt.Sprintf(`{"model":%q,"prompt":"some text"}`, model)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					resp, err := s.open(ctx, body)
					if err != nil {
						return
					}
					defer resp.Body.Close()
					_, err = io.ReadAll(resp.Body)
					if err == nil {
						t.Errorf("an answer came to its end: %s", resp.Status)
					}
				}()
				await(t, "the worker has the request", here)
				s.awaitMetric(1, "warmpath_streams")
				switch at {
				case "while tokenising": // nothing is decided yet
					if uri := agg.last(t).uri; uri != "/v1/completions/render" {
						t.Errorf("the worker was asked for %s", uri)
					}
				case "while waiting":
					s.awaitMetric(100, "warmpath_worker_prefill_tokens")
					s.awaitMetric(1, "warmpath_worker_requests")
				case "in the answer":
					s.awaitMetric(0, "warmpath_worker_prefill_tokens")
					s.awaitMetric(1, "warmpath_worker_requests")
				}
				hangUp()
				await(t, "the client is gone", ended)
				await(t, "the worker's request is cut off", gone)
				s.idle()
				if n := agg.count(); n != 1 {
					t.Errorf("%d requests came to the worker, want 1", n)
				}
			})
		}
	}
}

// TestHangUpInBody sends half a body.
func TestHangUpInBody(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
	s.list(&agg.worker)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	body := completion(tokens(1, 100))
	conn := s.dial()
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: e2e\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:len(body)/2])
	s.awaitMetric(1, "warmpath_streams")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.idle()
	s.complete(tokens(2, 100)) // all is well
	if n := agg.count(); n != 1 {
		t.Errorf("%d requests came to the worker, want only the last", n)
	}
}
