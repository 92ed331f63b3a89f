package rewrite

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Rule says what becomes of requests for some models.
type Rule struct {
	// Matches are the exact names of the models. Without any, the rule is for
	// every request that no other rule names, those without a model among them.
	Matches []string
	Targets []Target // at least one
}

// Target is a model that a rule may choose.
type Target struct {
	Model string
	// Weight is its share among the targets of the rule. 0 is one that was not
	// given: such targets share alike when no target has a weight, and are not
	// chosen when one has.
	Weight int
}

// MaxWeight is the largest weight of a target (endpoint-picker.md 2.5).
const MaxWeight = 1_000_000

// All stands for the models of a rule without matches.
const All = "*"

// Choice is what a rule chose.
type Choice struct {
	Match string // the name in the rule that matched, or All
	Model string // the model to ask for
	JSON  []byte // its name as JSON, quotes included; not to be changed
}

// Rules are rules in order. They do not change. Nil has none.
type Rules struct {
	exact map[string]*targets
	rest  *targets
}

// targets are those of one rule that can be chosen.
type targets struct {
	choices []weighted
	total   int
}

type weighted struct {
	Choice

	weight int
}

// New returns rules. A rule that names the model beats one for all of them, and of
// those the first in the list counts (endpoint-picker.md 2.5).
func New(rules []Rule) (*Rules, error) {
	r := &Rules{exact: map[string]*targets{}}
	for i, rule := range rules {
		if err := rule.Validate(); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i, err)
		}
		for _, name := range rule.Matches {
			if r.exact[name] == nil {
				r.exact[name] = rule.targets(name)
			}
		}
		if len(rule.Matches) == 0 && r.rest == nil {
			r.rest = rule.targets(All)
		}
	}
	return r, nil
}

// Validate reports what cannot work.
func (r *Rule) Validate() error {
	if len(r.Targets) == 0 {
		return errors.New("targets is empty: name at least one model to send requests to")
	}
	for i, name := range r.Matches {
		if name == "" {
			return fmt.Errorf("matches[%d] is empty: name a model, or leave matches out to match all", i)
		}
	}
	for i, t := range r.Targets {
		switch {
		case t.Model == "":
			return fmt.Errorf("targets[%d].modelRewrite is empty: name the model to send requests to", i)
		case t.Weight < 0 || t.Weight > MaxWeight:
			return fmt.Errorf("targets[%d].weight is %d: it must be 1 to %d, or left out", i, t.Weight, MaxWeight)
		}
	}
	return nil
}

// targets returns the targets that can be chosen for requests that match.
func (r *Rule) targets(match string) *targets {
	given := false
	for _, t := range r.Targets {
		given = given || t.Weight > 0
	}
	var out targets
	for _, t := range r.Targets {
		weight := t.Weight
		if !given {
			weight = 1
		}
		if weight > 0 {
			out.choices = append(out.choices, weighted{Choice{match, t.Model, Quote(t.Model)}, weight})
			out.total += weight
		}
	}
	return &out
}

// Choose returns the model that takes the place of the named one; ok is false when
// no rule matches. The name is empty for a request without one. random returns a
// number from 0 to n-1, each as likely as the others. Several sets of rules count
// as one, in which those of the first come first.
func Choose(model string, random func(n int) int, sets ...*Rules) (c *Choice, ok bool) {
	var t *targets
	for _, r := range sets {
		if r != nil && t == nil {
			t = r.exact[model]
		}
	}
	for _, r := range sets {
		if r != nil && t == nil {
			t = r.rest
		}
	}
	if t == nil {
		return nil, false
	}
	if len(t.choices) == 1 {
		return &t.choices[0].Choice, true
	}
	n := random(t.total)
	for i := range t.choices {
		if n -= t.choices[i].weight; n < 0 {
			return &t.choices[i].Choice, true
		}
	}
	return &t.choices[len(t.choices)-1].Choice, true
}

// ForAll says whether some rule is for requests without a model, too.
func (r *Rules) ForAll() bool { return r != nil && r.rest != nil }

// Quote returns a name as JSON, quotes included. Only what JSON does not allow in
// a string is escaped.
func Quote(name string) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(name) != nil {
		return []byte(`""`) // a string is always JSON
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
