package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestDefaultHandoff wants the pick to reach the decode worker, and the decode
// worker to have the prompt computed by the worker that it names.
func TestDefaultHandoff(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			prefill, decode := s.pool(true)
			s.list(join(prefill, decode)...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: f.mode}, join(prefill, decode)...)

			const requests = 8
			picks := func(w *worker, role string) float64 {
				return s.metric("warmpath_worker_decisions_total", fmt.Sprintf("worker=%q", w.name), fmt.Sprintf("for=%q", role))
			}
			for i := range requests {
				before := map[*worker]float64{}
				for _, w := range prefill {
					before[w] = picks(w, "prefill")
				}
				r := s.complete(tokens(i, 5*blockSize))
				p, d := named(t, r.prefill(), prefill), named(t, r.decode(), decode)
				if got, want := d.stats(t).LastPrefillHeader, "x-prefiller-host-port: "+p.addr(); got != want {
					t.Errorf("%s got %q, but the prompt was computed where %q leads", d.name, got, want)
				}
				if n := picks(p, "prefill") - before[p]; n != 1 {
					t.Errorf("%s computed the prompt, but the picker picked it %v times", p.name, n)
				}
			}
			var asked, answered, misdirected, failed uint64
			for _, w := range prefill {
				answered += w.stats(t).HandshakePrefill
				misdirected += w.stats(t).Misdirected
			}
			for _, w := range decode {
				st := w.stats(t)
				asked, failed, misdirected = asked+st.HandshakeDecode, failed+st.PrefillFailures, misdirected+st.Misdirected
				if got := picks(w, "decode"); got != float64(st.Requests) {
					t.Errorf("%s got %d requests, the picker sent %v", w.name, st.Requests, got)
				}
			}
			if asked != requests || answered != requests || misdirected != 0 || failed != 0 {
				t.Errorf("%d handshakes asked for, %d answered, %d misdirected, %d failed; want %d, %[5]d, 0, 0",
					asked, answered, misdirected, failed, requests)
			}
			s.awaitMetric(requests, "warmpath_decisions_total", `mode="disaggregated"`)
		})
	}
}

// routingHeaders may come from the picker only (endpoint-picker.md 1.2,
// dynamo.md 5.2, engines.md 3.2).
var routingHeaders = []string{
	"x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset",
	"x-gateway-destination-endpoint-served", "x-gateway-destination-endpoint-scores",
	"x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port", "x-data-parallel-host-port",
	"x-data-parallel-rank", "x-bypass-remote-prefill",
	"x-worker-instance-id", "x-dynamo-worker-instance-id", "x-dp-rank", "x-dynamo-dp-rank",
	"x-prefill-instance-id", "x-dynamo-prefill-instance-id", "x-prefill-dp-rank", "x-dynamo-prefill-dp-rank",
	"x-dynamo-routing-mode", "x-dynamo-request-id",
}

// forged returns a client's copies of all routing headers, each of them twice.
func forged() http.Header {
	h := http.Header{}
	for _, name := range routingHeaders {
		h.Add(name, "forged-1")
		h.Add(name, "forged-2")
	}
	return h
}

// wantRouting wants exactly these routing headers, each of them once.
func wantRouting(t *testing.T, got http.Header, want map[string]string) {
	t.Helper()
	for _, name := range routingHeaders {
		values := got.Values(name)
		if v, ok := want[name]; ok && !slices.Equal(values, []string{v}) {
			t.Errorf("%s: %q arrived, want %q", name, values, v)
		} else if !ok && len(values) > 0 {
			t.Errorf("%s: %q arrived, want no such header", name, values)
		}
	}
	for name, values := range got {
		if strings.Contains(strings.Join(values, " "), "forged") {
			t.Errorf("%s: %q arrived from the client", name, values)
		}
	}
}

// TestDynamoHandoff looks at the very headers that the decode worker gets.
func TestDynamoHandoff(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			prefill := s.sim("prefill-0", fleet.Prefill, "--rank", "1")
			prefill.ranks = 2 // rank 0 is behind the same port and holds nothing
			decode := newRecorder(t, "decode-0", fleet.Decode, 2, nil)
			s.list(prefill, &decode.worker)
			s.startPicker(pickerOptions{spec: "  handoff: {preset: Dynamo}"})
			s.startGateway(gateway.Config{Follow: f.mode, SubsetHeader: true}, prefill, &decode.worker)

			prompt := tokens(1, 20*blockSize)
			s.ok(post(t, "http://"+prefill.addr()+"/v1/completions", completion(prompt), nil))
			s.awaitHeld(prefill.name, prompt)
			ids := map[string]bool{}
			ask := func(subset string) http.Header {
				t.Helper()
				h := forged()
				h.Set("x-subset", subset)
				s.idle()
				s.ok(s.post("/v1/completions", completion(prompt), h))
				got := decode.last(t).header
				id := got.Get("x-dynamo-request-id")
				if uuid.Validate(id) != nil || len(id) != 36 || ids[id] {
					t.Errorf("x-dynamo-request-id %q is no UUID or came before", id)
				}
				ids[id] = true
				return got
			}
			for rank, addr := range decode.addrs {
				for range 2 {
					got := ask(prefill.addr() + "," + addr.String())
					id, prefillID := fmt.Sprint(decode.id()), fmt.Sprint(prefill.id())
					wantRouting(t, got, map[string]string{
						"x-gateway-destination-endpoint": addr.String(),
						"x-worker-instance-id":           id, "x-dynamo-worker-instance-id": id,
						"x-dp-rank": fmt.Sprint(rank), "x-dynamo-dp-rank": fmt.Sprint(rank),
						"x-prefill-instance-id": prefillID, "x-dynamo-prefill-instance-id": prefillID,
						"x-prefill-dp-rank": "1", "x-dynamo-prefill-dp-rank": "1",
						"x-dynamo-routing-mode": "disaggregated",
						"x-dynamo-request-id":   got.Get("x-dynamo-request-id"),
					})
				}
			}
			// Without a prefill worker in the subset the decode worker does it all.
			got := ask(decode.addr())
			id := fmt.Sprint(decode.id())
			wantRouting(t, got, map[string]string{
				"x-gateway-destination-endpoint": decode.addr(),
				"x-worker-instance-id":           id, "x-dynamo-worker-instance-id": id,
				"x-dp-rank": "0", "x-dynamo-dp-rank": "0",
				"x-dynamo-routing-mode": "aggregated",
				"x-dynamo-request-id":   got.Get("x-dynamo-request-id"),
			})
			if n := s.metric("warmpath_decisions_total", `mode="no_prefill_in_subset"`); n != 1 {
				t.Errorf("%v decisions without a prefill worker in the subset were counted, want 1", n)
			}
		})
	}
}

// TestForgedHeaders wants no client to steer, whatever the handoff is.
func TestForgedHeaders(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
			s.list(&agg.worker)
			s.startPicker(pickerOptions{spec: "  handoff: {preset: None}"})
			s.startGateway(gateway.Config{Follow: f.mode}, &agg.worker)
			want := map[string]string{"x-gateway-destination-endpoint": agg.addr()}

			s.ok(s.post("/v1/completions", completion(tokens(1, 50)), forged()))
			wantRouting(t, agg.last(t).header, want)
			s.ok(s.post("/v1/embeddings", "{}", forged()))
			wantRouting(t, agg.last(t).header, want)
			r, err := send(t, s.client, http.MethodGet, s.url+"/v1/models", nil, forged())
			if err != nil {
				t.Fatal(err)
			}
			s.ok(r)
			wantRouting(t, agg.last(t).header, want)
			if n := agg.count(); n != 3 {
				t.Errorf("%d requests came, want 3", n)
			}
		})
	}
}
