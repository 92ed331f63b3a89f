package app

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// Environment is what the variables of Dynamo's router say (dynamo.md 4.2): defaults
// for what neither a policy nor the configuration file sets.
type Environment struct {
	// Spec has the fields that variables set, and no others.
	Spec v1alpha1.RoutingPolicySpec
	// Set are the variables that set a field, Ignored those that have no effect.
	Set, Ignored []Setting
}

// Setting is a variable of the environment.
type Setting struct {
	Name, Value string
	Field       string // of the spec
	Why         string // it has no effect
}

// String says what comes of the variable.
func (s Setting) String() string {
	if s.Why != "" {
		return fmt.Sprintf("%s=%s has no effect: %s", s.Name, s.Value, s.Why)
	}
	return fmt.Sprintf("%s=%s is the default of %s", s.Name, s.Value, s.Field)
}

// routerPrefixes are what the names of such variables begin with. A name that begins
// so and is not known is most likely a mistake.
var routerPrefixes = []string{"DYN_ROUTER_", "DYN_SHARED_CACHE_", "DYN_ACTIVE_"}

// serviceVariable is what Kubernetes tells every pod of each Service, whose name may
// begin alike.
var serviceVariable = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// ReadEnvironment reads variables, each as name=value. One that is empty counts as
// not set. The error joins one per variable whose value is wrong, or whose name is not
// known.
func ReadEnvironment(environ []string) (*Environment, error) {
	values := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && value != "" {
			values[name] = value
		}
	}
	env := &Environment{}
	d := &draft{}
	var errs []error
	known := map[string]bool{}
	for i := range routerVariables {
		v := &routerVariables[i]
		for _, name := range v.names {
			known[name] = true
		}
		if err := v.read(env, d, values); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, unknownVariables(values, known)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	d.finish()
	env.Spec = d.RoutingPolicySpec
	return env, nil
}

// read takes one variable, by any of its names, into a draft.
func (v *variable) read(env *Environment, d *draft, values map[string]string) error {
	var name, value string
	for _, n := range v.names {
		switch got, present := values[n]; {
		case !present:
		case name == "":
			name, value = n, got
		case got != value:
			return fmt.Errorf("%s=%q contradicts %s=%q; both mean the same: remove %s", n, got, name, value, n)
		}
	}
	if name == "" {
		return nil
	}
	if err := v.set(d, value); err != nil {
		return fmt.Errorf("%s=%q: %w", name, value, err)
	}
	s := Setting{Name: name, Value: value, Field: v.field, Why: v.why}
	if v.why != "" {
		env.Ignored = append(env.Ignored, s)
	} else {
		env.Set = append(env.Set, s)
	}
	return nil
}

// unknownVariables reports names that look like those of the router and are none.
func unknownVariables(values map[string]string, known map[string]bool) (errs []error) {
	names := slices.Sorted(maps.Keys(known))
	for name := range values {
		ours := slices.ContainsFunc(routerPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if !ours || known[name] || serviceVariable.MatchString(name) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s is the name of no variable (%s)", name, v1alpha1.Suggest(name, names)))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// finish makes fields of what several variables say together.
func (d *draft) finish() {
	if d.conditional {
		d.Disaggregation.Condition = v1alpha1.ConditionShortPrompt
		if d.condition != "" {
			d.Disaggregation.Condition = d.condition
		}
	}
	if d.loadAware { // dynamo.md 4.2: it takes the place of what else was said
		c := &d.Cost
		c.OverlapScoreCredit, c.UseKVEvents, c.AssumeKVReuse = new(0.0), new(false), new(false)
		c.TrackActiveBlocks, c.TrackPrefillTokens = new(true), new(true)
		c.SharedCacheType = v1alpha1.SharedCacheNone
	}
}

// Log says what comes of the environment, and what does not.
func (e *Environment) Log(log *slog.Logger, spec *v1alpha1.RoutingPolicySpec) {
	for _, s := range e.Set {
		log.Info("the environment has a default", "variable", s.Name, "value", s.Value, "field", s.Field)
	}
	for _, s := range e.Ignored {
		log.Warn("a variable of the environment has no effect", "variable", s.Name, "value", s.Value, "why", s.Why)
	}
	if e.knobs() && spec.Cost.Model == v1alpha1.ModelCongestion {
		log.Warn("knobs of the environment have no effect: the configuration file asks for cost.model Congestion")
	}
}

// knobs says whether a variable sets a knob of Dynamo's costs.
func (e *Environment) knobs() bool {
	s := v1alpha1.RoutingPolicySpec{Cost: e.Spec.Cost}
	s.Default()
	return s.Cost.Model == v1alpha1.ModelDynamo
}
