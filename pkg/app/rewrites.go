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
