package app

import (
	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// rewriteRules turns the rules of a spec into those of requests.
func rewriteRules(spec *v1alpha1.RoutingPolicySpec) []rewrite.Rule {
	rules := make([]rewrite.Rule, 0, len(spec.ModelRewrites))
	for _, r := range spec.ModelRewrites {
		rule := rewrite.Rule{Matches: r.Matches}
		for _, t := range r.Targets {
			target := rewrite.Target{Model: t.ModelRewrite}
			if t.Weight != nil {
				target.Weight = int(*t.Weight)
			}
			rule.Targets = append(rule.Targets, target)
		}
		rules = append(rules, rule)
	}
	return rules
}

// useRewrites takes rules of the cluster into use, after those of the spec. ext-proc
// is there by the time that they come.
func (a *App) useRewrites(rules []rewrite.Rule) {
	r, err := rewrite.New(rules)
	if err != nil { // each was checked where it was read
		a.log.Error("rules of InferenceModelRewrites cannot be used, the ones before stay", "error", err)
		return
	}
	a.extproc.UseRewrites(r)
}
