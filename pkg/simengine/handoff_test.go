package simengine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

func TestHandshake(t *testing.T) {
	url := startNATS(t)
	l := listen(t, connect(t, url))
	p := start(t, Config{Name: "p-0", Role: fleet.Prefill, BlockSize: 4, NATSURL: url, Generation: dynamo.Gen15})
	d := start(t, Config{Name: "d-0", Role: fleet.Decode, BlockSize: 4, NATSURL: url, Generation: dynamo.Gen15})
	for _, cached := range []int{0, 20} {
		a, h := complete(t, d, completions, object{"model": testModel, "prompt": ids(1, 22), "max_tokens": 9}, headerPrefiller, p.Addr())
		if u := a.Usage; u.PromptTokens != 22 || u.CompletionTokens != 9 || u.PromptTokensDetails.CachedTokens != cached {
			t.Errorf("usage %+v, want %d cached", u, cached)
		}
		if h.Get(headerWorker) != "d-0" || h.Get(headerPrefillWorker) != "p-0" || h.Get(headerDecodeWorker) != "d-0" {
			t.Errorf("headers %v", h)
		}
	}
	ps, ds := p.Stats(), d.Stats()
	if ps.HandshakePrefill != 2 || ps.PrefilledTokens != 22+2 || ps.CachedTokens != 20 || ps.GeneratedTokens != 2 || ps.Misdirected != 0 {
		t.Errorf("prefill worker %+v", ps)
	}
	if ds.HandshakeDecode != 2 || ds.PrefilledTokens != 0 || ds.ReceivedTokens != 22+2 || ds.GeneratedTokens != 18 || ds.Misdirected != 0 {
		t.Errorf("decode worker %+v", ds)
	}
	if want := headerPrefiller + ": " + p.Addr(); ds.LastPrefillHeader != want || ds.PrefillHeaders != 2 {
		t.Errorf("prefill header %q, want %q", ds.LastPrefillHeader, want)
	}
	if got := metricValue(t, d, "vllm:external_prefix_cache_hits_total"); got != "24" {
		t.Errorf("external hits %s", got)
	}
	l.settle(t, p)
	l.same(t, p)
	if len(l.blocks) != 5 {
		t.Errorf("%d blocks announced, want the prompt's 5", len(l.blocks))
	}
	// Without the header the decode worker computes by itself, with what it holds.
	a, h := complete(t, d, completions, object{"prompt": append(ids(1, 22), ids(2, 3)...)})
	if a.Usage.PromptTokensDetails.CachedTokens != 20 || h.Get(headerPrefillWorker) != "d-0" {
		t.Errorf("usage %+v, headers %v", a.Usage.PromptTokensDetails, h)
	}
}

func TestHandshakeOfStreamedChat(t *testing.T) {
	p := start(t, Config{Name: "p-0", Role: fleet.Prefill, BlockSize: 4})
	d := start(t, Config{Name: "d-0", Role: fleet.Aggregated, BlockSize: 4, Resolve: func(id uint64, rank uint32) (string, bool) {
		return p.Addr(), id == p.cfg.WorkerID && rank == 0
	}})
	id := fmt.Sprint(p.cfg.WorkerID)
	const body = `{"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":3,"messages":[{"role":"user","content":"hello"}]}`
	for _, headers := range [][]string{
		{"x-prefill-instance-id", id},
		{"x-dynamo-prefill-instance-id", id, "x-dynamo-prefill-dp-rank", "0"},
		{"x-dynamo-prefill-instance-id", id, "x-prefill-dp-rank", "4294967295", "x-prefill-instance-id", "1"},
	} {
		r := call(t, d, http.MethodPost, "/v1/chat/completions", body, headers...)
		if r.status != http.StatusOK || r.header.Get(headerPrefillWorker) != "p-0" {
			t.Fatalf("%v: %d %v %s", headers, r.status, r.header, r.body)
		}
		if got := events(t, r.body); len(got) != 1+3+2 {
			t.Errorf("%d events: %s", len(got), r.body)
		}
	}
	for _, headers := range [][]string{
		{"x-prefill-instance-id", "7"},
		{"x-prefill-instance-id", "abc"},
		{"x-prefill-instance-id", id, "x-prefill-dp-rank", "1"},
		{"x-prefill-instance-id", id, "x-prefill-dp-rank", "x"},
		{headerPrefiller, "nowhere"},
	} {
		if r := call(t, d, http.MethodPost, "/v1/chat/completions", body, headers...); r.status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", headers, r.status, r.body)
		}
	}
	if s := p.Stats(); s.HandshakePrefill != 3 || s.Requests != 3 {
		t.Errorf("prefill worker %+v", s)
	}
}

// fakePrefill answers prefill legs with the given statuses in turn, then well.
type fakePrefill struct {
	mu       sync.Mutex
	statuses []int
	bodies   []map[string]json.RawMessage
	headers  []http.Header
	answer   string
}

func (f *fakePrefill) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	f.bodies = append(f.bodies, body)
	f.headers = append(f.headers, r.Header)
	if n := len(f.bodies); n <= len(f.statuses) && f.statuses[n-1] != http.StatusOK {
		w.WriteHeader(f.statuses[n-1])
		_, _ = io.WriteString(w, `{"error":{"message":"from the prefill worker"}}`)
		return
	}
	_, _ = io.WriteString(w, f.answer)
}

const goodLeg = `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":4}},"kv_transfer_params":{"do_remote_prefill":true,
	"do_remote_decode":false,"remote_block_ids":[[1,2]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"10.0.0.1","remote_port":5600,"new_key":1}}`

func TestPrefillLegBody(t *testing.T) {
	fake := &fakePrefill{answer: goodLeg}
	server := httptest.NewServer(fake)
	defer server.Close()
	d := start(t, Config{Role: fleet.Decode, BlockSize: 4})
	r := call(t, d, http.MethodPost, "/v1/completions", `{"prompt":"hello","max_tokens":2,"stream":true,"stream_options":{"include_usage":true},
		"big":12345678901234567890,"cache_salt":"s"}`, headerPrefiller, server.Listener.Addr().String(), "authorization", "Bearer x", "x-request-id", "r7")
	if got := events(t, r.body); decode[completion](t, []byte(got[2])).Usage.PromptTokensDetails.CachedTokens != 4 {
		t.Errorf("usage %s", got[2])
	}
	body := fake.bodies[0]
	for name, want := range map[string]string{
		"prompt": `"hello"`, "max_tokens": "1", "stream": "false", "stream_options": "", "big": "12345678901234567890", "cache_salt": `"s"`,
		"kv_transfer_params": `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":null,"remote_engine_id":null,"remote_host":null,"remote_port":null}`,
	} {
		if got := string(body[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if h := fake.headers[0]; h.Get("Authorization") != "Bearer x" || h.Get("X-Request-Id") != "r7" || h.Get(headerPrefiller) != "" {
		t.Errorf("headers %v", h)
	}
}

func TestFailingPrefill(t *testing.T) {
	d := start(t, Config{Role: fleet.Decode, BlockSize: 4})
	for _, tc := range []struct {
		name     string
		statuses []int
		answer   string
		calls    int
		status   int
		say      string
	}{
		{"busy once", []int{503}, goodLeg, 2, 200, ""},
		{"bad gateway once", []int{502}, goodLeg, 2, 200, ""},
		{"timeout once", []int{504}, goodLeg, 2, 200, ""},
		{"busy twice", []int{503, 503}, goodLeg, 2, 503, "from the prefill worker"},
		{"bad request", []int{400}, goodLeg, 1, 400, "from the prefill worker"},
		{"broken", []int{500}, goodLeg, 1, 500, "from the prefill worker"},
		{"no transfer", nil, `{"usage":{}}`, 2, 502, "no kv_transfer_params"},
		{"half a transfer", nil, strings.Replace(goodLeg, "remote_host", "host", 1), 2, 502, "no kv_transfer_params"},
		{"not JSON", nil, `<html>`, 2, 502, "invalid character"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := &fakePrefill{statuses: tc.statuses, answer: tc.answer}
			server := httptest.NewServer(fake)
			defer server.Close()
			before := d.Stats()
			r := call(t, d, http.MethodPost, "/v1/completions", `{"prompt":"hello"}`, headerPrefiller, server.Listener.Addr().String())
			if r.status != tc.status || len(fake.bodies) != tc.calls || !strings.Contains(string(r.body), tc.say) {
				t.Errorf("status %d after %d calls: %s", r.status, len(fake.bodies), r.body)
			}
			after := d.Stats()
			if failed := after.PrefillFailures != before.PrefillFailures; failed != (tc.status != 200) || after.PrefilledTokens != 0 {
				t.Errorf("stats %+v", after)
			}
		})
	}
	r := call(t, d, http.MethodPost, "/v1/completions", `{"prompt":"hello"}`, headerPrefiller, "127.0.0.1:1")
	if r.status != http.StatusBadGateway || !strings.Contains(string(r.body), "prefill worker 127.0.0.1:1") {
		t.Errorf("nobody there: %d %s", r.status, r.body)
	}
}

// A sidecar of another kind may do the prefill leg: the engine's own fields work.
func TestHandshakeByASidecarInFront(t *testing.T) {
	p := start(t, Config{Name: "p-0", Role: fleet.Prefill, BlockSize: 4, Rank: 1})
	d := start(t, Config{Name: "d-0", Role: fleet.Decode, BlockSize: 4})
	first, _ := complete(t, p, completions, object{"prompt": ids(1, 10), "max_tokens": 1, "kv_transfer_params": object{"do_remote_decode": true}})
	k := first.KVTransferParams
	if k == nil || !k.complete() || k.DoRemoteDecode || *k.RemotePort != 5601 || k.RemoteNumTokens != 10 || k.TransferMode != "pull" || k.TPSize != 1 {
		t.Fatalf("transfer parameters %+v", k)
	}
	if blocks := decode[[][]int](t, k.RemoteBlockIDs); len(blocks) != 1 || len(blocks[0]) != 3 {
		t.Errorf("block ids %v, want three", blocks)
	}
	a, _ := complete(t, d, completions, object{"prompt": ids(1, 10), "kv_transfer_params": k})
	if s := d.Stats(); s.ReceivedTokens != 10 || s.PrefilledTokens != 0 || a.Usage.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("stats %+v, usage %+v", s, a.Usage)
	}
	// With too little to fetch blocks, vLLM computes the prompt.
	complete(t, d, completions, object{"prompt": ids(2, 10), "kv_transfer_params": object{"do_remote_prefill": true}})
	complete(t, d, completions, object{"prompt": ids(3, 10), "kv_transfer_params": object{"do_remote_decode": true}})
	k.DoRemotePrefill = false
	complete(t, d, completions, object{"prompt": ids(4, 10), "kv_transfer_params": k})
	if s := d.Stats(); s.PrefilledTokens != 30 || s.Misdirected != 1 {
		t.Errorf("stats %+v", s)
	}
	complete(t, p, completions, object{"prompt": ids(2, 10)}, headerPrefiller, d.Addr())
	if s := p.Stats(); s.Misdirected != 1 || s.HandshakeDecode != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestHangingUpReachesThePrefillWorker(t *testing.T) {
	p := start(t, Config{Name: "p-0", Role: fleet.Prefill, Timing: Timing{PrefillTokensPerSecond: 0.001}})
	d := start(t, Config{Name: "d-0", Role: fleet.Decode, Resolve: func(uint64, uint32) (string, bool) { return p.Addr(), true }})
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.Addr()+"/v1/completions", strings.NewReader(`{"prompt":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-prefill-instance-id", "1")
	answered := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		answered <- err
	}()
	eventually(t, "the prefill runs", func() bool { return p.Stats().Running == 1 })
	hangUp()
	if err := <-answered; err == nil {
		t.Fatal("answered before the prefill was done")
	}
	eventually(t, "both give up", func() bool {
		ps, ds := p.Stats(), d.Stats()
		return ps.Running == 0 && ps.Aborted == 1 && ds.Aborted == 1
	})
}
