package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestWorkerDies kills a worker in the middle of an answer. What was reserved on
// it comes back, the client sees a cut stream, and once the worker is off the
// list all is well.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(2, "agg", fleet.Aggregated, "--decode-per-token", "20ms")
	s.list(agg...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	resp, err := s.open(t.Context(), strings.Replace(completion(tokens(1, 160)), `"max_tokens":1`, `"max_tokens":30000,"ignore_eos":true,"stream":true`, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.awaitMetric(1, "warmpath_worker_requests")
	dead := named(t, resp.Header.Get("x-sim-worker"), agg)
	dead.kill()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client sees %v, want a cut stream", err)
	}
	s.idle()
	alive := agg[0]
	if dead == alive {
		alive = agg[1]
	}
	s.list(alive)
	for i := range 4 {
		if r := s.complete(tokens(i, 160)); r.decode() != alive.name {
			t.Errorf("%q served, want %q", r.decode(), alive.name)
		}
	}
	s.idle()
}

// TestWorkerRestarts replaces a worker by one of the same name and address with
// an empty cache, as a StatefulSet does: with its first event the picker knows.
func TestWorkerRestarts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := make([]*worker, 2)
	for i := range agg {
		agg[i] = s.sim(fmt.Sprintf("agg-%d", i), fleet.Aggregated, "--listen", fmt.Sprintf("127.0.0.1:%d", testport.Free(t)))
	}
	s.list(agg...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	prompt := tokens(1, 20*blockSize)
	first := named(t, s.complete(prompt).prefill(), agg) // one event: the ids start over at the same id
	s.awaitHeld(first.name, prompt)
	first.stop(t)
	fresh := s.sim(first.name, fleet.Aggregated, "--listen", first.addr())
	s.ok(post(t, "http://"+fresh.addr()+"/v1/completions", completion(tokens(2, blockSize)), nil))
	s.awaitMetric(1, "warmpath_worker_restarts_total")
	eventually(t, "the old cache is forgotten", func() bool { _, none := s.holds(fresh.name, prompt); return none })
	s.awaitHeld(fresh.name, tokens(2, blockSize))

	other := agg[0]
	if other == first {
		other = agg[1]
	}
	s.ok(post(t, "http://"+other.addr()+"/v1/completions", completion(prompt), nil))
	s.awaitHeld(other.name, prompt)
	for range 4 {
		s.idle()
		if r := s.complete(prompt); r.prefill() != other.name {
			t.Errorf("computed by %q, want %q", r.prefill(), other.name)
		}
	}
	s.picker.wantLogged(t, 1, "a worker started over; what it held is forgotten")
}

// TestPickerRestarts replaces the picker on its port under an Envoy that stays.
func TestPickerRestarts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(2, "agg", fleet.Aggregated)
	s.list(agg...)
	s.startPicker(pickerOptions{listen: fmt.Sprintf("127.0.0.1:%d", testport.Free(t))})
	s.startGateway(gateway.Config{})
	s.complete(tokens(1, 100))
	s.picker.kill()
	if r := s.post("/v1/completions", completion(tokens(1, 100)), nil); r.status != http.StatusInternalServerError {
		t.Errorf("without a picker the answer is %d, want Envoy's 500", r.status)
	}
	s.startPicker(pickerOptions{listen: s.extProc.String()})
	s.sticks(tokens(2, 20*blockSize), agg)
}
