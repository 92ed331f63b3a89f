package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// eventStream starts a stream of server-sent events.
func eventStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush(w)
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // the client is gone when this fails
}

// open sends a completion and returns as soon as the response headers are there.
func (s *stack) open(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return s.client.Do(req)
}

// TestEventsAreNotHeldBack has a worker send an event only when the client has
// read the one before it. Any buffer on the way would stop both for good.
func TestEventsAreNotHeldBack(t *testing.T) {
	for i, f := range follows {
		for _, h2c := range []bool{false, true}[:1+(i+1)%2] {
			t.Run(fmt.Sprintf("%s/h2c=%t", f.name, h2c), func(t *testing.T) {
				t.Parallel()
				const events = 20
				read := make(chan struct{})
				s := newStack(t)
				s.client = newClient(t, h2c)
				agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, func(w http.ResponseWriter, r *http.Request) {
					eventStream(w)
					for i := range events {
						fmt.Fprintf(w, "data: %d\n\n", i)
						flush(w)
						select {
						case <-read:
						case <-r.Context().Done():
							return
						}
					}
				})
				s.list(&agg.worker)
				s.startPicker(pickerOptions{})
				s.startGateway(gateway.Config{Follow: f.mode}, &agg.worker)
				resp, err := s.open(t.Context(), completion(tokens(1, 100)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				for i := range events {
					if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
						t.Fatalf("event %d: %q, %v", i, line, err)
					}
					if blank, err := lines.ReadString('\n'); blank != "\n" {
						t.Fatalf("after event %d: %q, %v", i, blank, err)
					}
					// With the first output the prompt is computed; the request goes on.
					if i == 0 {
						s.awaitMetric(0, "warmpath_worker_prefill_tokens")
						s.awaitMetric(1, "warmpath_worker_requests")
					}
					read <- struct{}{}
				}
				if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
					t.Errorf("the stream ends with %q, %v", rest, err)
				}
				s.idle()
			})
		}
	}
}

// TestManyStreams holds 64 answers open and lets them finish together. All cost
// the same, so the load of those before it puts every request on the emptier
// worker.
func TestManyStreams(t *testing.T) {
	for _, h2c := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2c=%t", h2c), func(t *testing.T) {
			t.Parallel()
			const streams, length = 64, 160
			gate := make(chan struct{})
			s := newStack(t)
			s.client = newClient(t, h2c)
			answer := func(w http.ResponseWriter, r *http.Request) {
				eventStream(w)
				for i := range 5 {
					fmt.Fprintf(w, "data: %d\n\n", i)
					flush(w)
					select {
					case <-gate:
					case <-r.Context().Done():
						return
					}
				}
			}
			agg := []*recorder{
				newRecorder(t, "agg-0", fleet.Aggregated, 1, answer), newRecorder(t, "agg-1", fleet.Aggregated, 1, answer),
			}
			s.list(&agg[0].worker, &agg[1].worker)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{})

			first, rest := "data: 0\n\n", "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n"
			var open []io.ReadCloser
			for i := range streams {
				resp, err := s.open(t.Context(), completion(tokens(i, length)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				event := make([]byte, len(first))
				if _, err := io.ReadFull(resp.Body, event); resp.StatusCode != http.StatusOK || string(event) != first || err != nil {
					t.Fatalf("stream %d: %s %q, %v", i, resp.Status, event, err)
				}
				open = append(open, resp.Body)
			}
			s.awaitMetric(streams, "warmpath_streams")
			s.awaitMetric(0, "warmpath_worker_prefill_tokens")
			for _, w := range agg {
				id := fmt.Sprintf("worker_id=%q", fmt.Sprint(w.id()))
				s.awaitMetric(streams/2, "warmpath_worker_requests", id)
				s.awaitMetric(streams/2*length/blockSize, "warmpath_worker_decode_blocks", id)
				if n := w.count(); n != streams/2 {
					t.Errorf("%d requests at %s, want %d", n, w.name, streams/2)
				}
			}
			close(gate)
			for i, body := range open {
				if text, err := io.ReadAll(body); string(text) != rest || err != nil {
					t.Errorf("stream %d ends with %q, %v", i, text, err)
				}
			}
			s.idle()
		})
	}
}

// TestManyHandoffs sends 64 streams at once through prefill and decode workers
// that take time.
func TestManyHandoffs(t *testing.T) {
	t.Parallel()
	const streams, outputs = 64, 8
	s := newStack(t)
	prefill := s.sims(2, "prefill", fleet.Prefill, "--prefill-tokens-per-second", "100000")
	decode := s.sims(2, "decode", fleet.Decode, "--decode-per-token", "1ms", "--transfer-fixed", "1ms")
	s.list(join(prefill, decode)...)
	s.startPicker(pickerOptions{guesses: true})
	s.startGateway(gateway.Config{})
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			body := strings.Replace(completion(tokens(i%8, 64+i)), `"max_tokens":1`, fmt.Sprintf(`"max_tokens":%d,"stream":true`, outputs), 1)
			resp, err := s.open(t.Context(), body)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(text), "data: "); resp.StatusCode != http.StatusOK || n != outputs+1 || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || err != nil {
				t.Errorf("stream %d: %s, %d events, %v: %s", i, resp.Status, n, err, text)
			}
		})
	}
	wg.Wait()
	s.idle()
	var finished, handshakes uint64
	for _, w := range decode {
		st := w.stats(t)
		finished, handshakes = finished+st.Finished, handshakes+st.HandshakeDecode
	}
	if finished != streams || handshakes != streams {
		t.Errorf("%d requests finished, %d handshakes, want %d", finished, handshakes, streams)
	}
}
