package app

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// explained asks the picker where a request would go.
func (r *running) explained(t *testing.T, path, body string, want int) (x Explained, text string) {
	t.Helper()
	response, err := http.Post("http://"+r.MetricsAddr().String()+"/explain?path="+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		t.Fatalf("%s: %s", response.Status, answer)
	}
	if want == http.StatusOK {
		if err := json.Unmarshal(answer, &x); err != nil {
			t.Fatal(err)
		}
	}
	return x, string(answer)
}

// TestExplain: an explanation says where the next request goes, and changes nothing.
func TestExplain(t *testing.T) {
	r := start(t, noText+noEvents, prefillA+prefillB+decodeA)
	r.waitReady(t)
	_, body := tokens(1, 12) // three blocks
	first := r.ask(t, completions, body)["x-prefiller-host-port"]
	r.wantIdle(t) // its load has ended

	x, _ := r.explained(t, completions, body, http.StatusOK)
	if x.Model != "Congestion" || x.BlockSize != 4 || x.Prompt != (ExplainedPrompt{Tokens: 12, Blocks: 3, Source: "token_ids"}) {
		t.Errorf("%+v", x)
	}
	d := x.Decision
	if d == nil || d.Mode != "disaggregated" || d.Matched != 3 || d.Best != 3 || d.Decode != "decode-a" {
		t.Fatalf("decision %+v, refusal %q", d, x.Refusal)
	}
	if len(x.Workers) != 3 {
		t.Fatalf("%d workers, want 3", len(x.Workers))
	}
	cheapest := x.Workers[0]
	for _, w := range x.Workers {
		if w.Role == "Prefill" && (cheapest.Role != "Prefill" || w.Cost.Congestion < cheapest.Cost.Congestion) {
			cheapest = w
		}
	}
	if cheapest.Endpoint != first || cheapest.Chosen != "prefill" || cheapest.Name != d.Prefill || cheapest.Held.Device != 3 {
		t.Errorf("cheapest %+v; the prompt went to %s before", cheapest, first)
	}
	before := r.metric(t, `warmpath_decisions_total{mode="disaggregated"}`)
	for range 10 {
		r.explained(t, completions, body, http.StatusOK)
	}
	if after := r.metric(t, `warmpath_decisions_total{mode="disaggregated"}`); after != before {
		t.Errorf("explaining counted %v decisions", after-before)
	}
	again, _ := r.explained(t, completions, body, http.StatusOK)
	for i, w := range again.Workers {
		if w.Load != x.Workers[i].Load {
			t.Errorf("explaining booked on %s: %+v, before %+v", w.Name, w.Load, x.Workers[i].Load)
		}
	}
}

// TestExplainRefusals: what cannot be read is refused in words, without the prompt;
// where no worker could be picked the answer says why.
func TestExplainRefusals(t *testing.T) {
	r := start(t, noText+noEvents, prefillA)
	r.waitReady(t)
	if _, text := r.explained(t, completions, `{"model": "m", "prompt": "a secret`, http.StatusBadRequest); text == "" || strings.Contains(text, "secret") {
		t.Errorf("answer %q", text)
	}
	_, body := tokens(1, 12)
	x, _ := r.explained(t, completions, body, http.StatusOK)
	if x.Decision != nil || !strings.Contains(x.Refusal, "decode") || len(x.Workers) != 1 {
		t.Errorf("%+v", x)
	}
}
