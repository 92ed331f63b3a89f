package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestDrain ends the picker while a stream is open: the stream completes, and so
// does one that comes before gateways have learnt of it.
func TestDrain(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	s := newStack(t)
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		eventStream(w)
		fmt.Fprint(w, "data: 1\n\n")
		flush(w)
		select {
		case <-finish:
		case <-r.Context().Done():
			return
		}
		for i := range 100 {
			fmt.Fprintf(w, "data: %d\n\n", i+2)
			flush(w)
		}
	})
	s.list(&agg.worker)
	s.startPicker(pickerOptions{drain: "30s"})
	s.startGateway(gateway.Config{})
	serving := s.healthClient(t)
	if got := serving(""); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health is %s", got)
	}

	resp, err := s.open(t.Context(), completion(tokens(1, 100)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "data: 1\n" || err != nil {
		t.Fatalf("first event %q, %v", line, err)
	}
	s.picker.signal(t, syscall.SIGTERM)
	s.picker.awaitLog(t, "draining")
	eventually(t, "health says that no new request is welcome", func() bool { return serving("") == healthv1.HealthCheckResponse_NOT_SERVING })
	if got := serving("liveness"); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("liveness is %s", got)
	}
	s.ok(get(t, s.url+"/v1/models"))
	close(finish)
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	want := "\n"
	for i := range 100 {
		want += fmt.Sprintf("data: %d\n\n", i+2)
	}
	if string(rest) != want {
		t.Errorf("the stream ends with %q", rest)
	}
	s.picker.wait(t)
	if len(s.picker.logged("stopped")) != 1 {
		t.Error("the picker did not say that it stopped")
	}
}

// healthClient returns what asks the picker's gRPC health service.
func (s *stack) healthClient(t *testing.T) func(service string) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	conn, err := grpc.NewClient(s.health, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := healthv1.NewHealthClient(conn)
	return func(service string) healthv1.HealthCheckResponse_ServingStatus {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
}

// TestDrainTimeout ends the picker while a stream is open that never ends.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	gone := make(chan struct{})
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, func(w http.ResponseWriter, r *http.Request) {
		eventStream(w)
		fmt.Fprint(w, "data: 1\n\n")
		flush(w)
		<-r.Context().Done()
		close(gone)
	})
	s.list(&agg.worker)
	s.startPicker(pickerOptions{drain: "1500ms"})
	s.startGateway(gateway.Config{})
	resp, err := s.open(t.Context(), completion(tokens(1, 100)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.picker.end(t, syscall.SIGTERM)
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client sees %v, want a cut stream", err)
	}
	await(t, "the worker's request is cut off", gone)
	if n := len(s.picker.logged("drain timeout is over; cutting open streams")); n != 1 {
		t.Errorf("the cut was logged %d times", n)
	}
}

// TestPrefillGone takes all prefill workers away and brings them back.
func TestPrefillGone(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const missing, back = "no prefill worker is ready; decode workers compute prompts themselves until one is", "prefill workers are ready again"
			s := newStack(t)
			prefill, decode := s.pool(true)
			s.list(join(prefill, decode)...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: f.mode}, join(prefill, decode)...)
			n := 0
			wantLogged := func(gone, again int) {
				t.Helper()
				s.picker.wantLogged(t, gone, missing)
				s.picker.wantLogged(t, again, back)
			}
			split := func() {
				t.Helper()
				n++
				r := s.complete(tokens(n, 100))
				named(t, r.prefill(), prefill)
				named(t, r.decode(), decode)
			}
			alone := func(among []*worker) {
				t.Helper()
				n++
				before := s.metric("warmpath_decisions_total", `mode="no_prefill_ready"`)
				r := s.complete(tokens(n, 100))
				named(t, r.decode(), among)
				if r.prefill() != r.decode() {
					t.Errorf("computed by %q, decoded by %q", r.prefill(), r.decode())
				}
				if got := s.metric("warmpath_decisions_total", `mode="no_prefill_ready"`) - before; got != 1 {
					t.Errorf("%v decisions without a prefill worker were counted, want 1", got)
				}
			}
			split()
			wantLogged(0, 0)
			for round := 1; round <= 2; round++ {
				s.list(decode...)
				alone(decode)
				alone(decode)
				s.list(decode[:1]...) // another change, but not of this
				alone(decode[:1])
				wantLogged(round, round-1)
				s.list(append(decode[:1:1], prefill[0])...)
				split()
				s.list(join(prefill, decode)...)
				split()
				wantLogged(round, round)
			}
			for _, w := range prefill {
				if m := w.stats(t).Misdirected; m != 0 {
					t.Errorf("%d requests were misdirected to %s", m, w.name)
				}
			}
			s.idle()
		})
	}
}
