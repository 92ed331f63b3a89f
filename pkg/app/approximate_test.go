package app

import (
	"strings"
	"testing"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

const remembered = "warmpath_remembered_blocks"

// TestApproximate: without events, a prompt goes where it went before.
func TestApproximate(t *testing.T) {
	r := start(t, noText+noEvents, prefillA+prefillB+decodeA)
	r.waitReady(t)
	_, body := tokens(1, 12) // three blocks
	alone := func() string { // where the prompt goes when nothing else is under way
		r.wantIdle(t)
		return r.ask(t, completions, body)["x-prefiller-host-port"]
	}
	first := alone()
	for range 20 {
		if next := alone(); next != first {
			t.Fatalf("the prompt goes to %s, before to %s", next, first)
		}
	}
	if n := r.metric(t, remembered); n != 3 {
		t.Errorf("%v blocks are remembered, want 3", n)
	}
	if bytes, bound := r.metric(t, "warmpath_remembered_bytes"), r.metric(t, "warmpath_remembered_bytes_max"); bytes <= 0 || bytes >= bound {
		t.Errorf("%v of %v bytes", bytes, bound)
	}

	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Disaggregation.Mode = v1alpha1.DisaggregationRequired })
	if n := r.metric(t, remembered); n != 3 {
		t.Errorf("%v blocks are remembered under another policy, want 3", n)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Cost = loadOnly() })
	r.eventually(t, "by load alone, the other worker gets it, too", func() bool { return alone() != first })
	if n := r.metric(t, remembered); n != 0 {
		t.Errorf("%v blocks are remembered where they do not count", n)
	}
}

// TestTextAffinity: where nothing tells token ids, a chat goes where it went before.
func TestTextAffinity(t *testing.T) {
	r := start(t, noText+noEvents, prefillA+prefillB+decodeA)
	r.waitReady(t)
	body := `{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("be kind ", 200) + `"}]}`
	first := ""
	for range 20 {
		r.wantIdle(t)
		next := r.ask(t, "/v1/chat/completions", body)["x-prefiller-host-port"]
		if first == "" {
			first = next
		}
		if next != first {
			t.Fatalf("the prompt goes to %s, before to %s", next, first)
		}
	}
	if n := r.metric(t, promptsFrom("text")); n != 20 {
		t.Errorf("%v prompts were matched by their text, want 20", n)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Cost = loadOnly() })
	r.ask(t, "/v1/chat/completions", body)
	if n := r.metric(t, promptsFrom("unknown")); n != 1 {
		t.Errorf("%v prompts were routed by load alone, want 1", n)
	}
}
