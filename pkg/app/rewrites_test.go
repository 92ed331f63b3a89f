package app

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/rewrite"
)

// TestRewritesOfTheCluster: they come after those of the spec, and one that cannot be
// used leaves them as they are.
func TestRewritesOfTheCluster(t *testing.T) {
	r := start(t, noText+noEvents+"\nmodelRewrites: [{matches: [m], targets: [{modelRewrite: spec}]}]\n", aggregated)
	r.waitReady(t)
	to := func(model string, matches ...string) rewrite.Rule {
		return rewrite.Rule{Matches: matches, Targets: []rewrite.Target{{Model: model}}}
	}
	r.useRewrites([]rewrite.Rule{to("cluster", "m", "n")})
	r.useRewrites([]rewrite.Rule{to("")})
	if got := r.log.count("rules of InferenceModelRewrites cannot be used"); got != 1 {
		t.Errorf("%d lines of the log, want 1", got)
	}
	for _, model := range []string{"m", "n", "o"} {
		r.ask(t, completions, `{"model":"`+model+`","prompt":[1,2,3,4]}`)
	}
	r.useRewrites(nil)
	r.ask(t, completions, `{"model":"n","prompt":[1,2,3,4]}`)
	for series, want := range map[string]float64{
		`warmpath_model_rewrites_total{model="m",target="spec"}`:    1,
		`warmpath_model_rewrites_total{model="n",target="cluster"}`: 1,
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}
