package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/pkg/rewrite"
)

// InferenceModelRewrites are in one of two groups, by the age of what installed them
// (endpoint-picker.md 2.5). A cluster may have none, either or both.
var (
	rewriteVersion    = schema.GroupVersion{Group: "llm-d.ai", Version: "v1alpha2"}
	oldRewriteVersion = schema.GroupVersion{Group: "inference.networking.x-k8s.io", Version: "v1alpha2"}

	rewriteKind    = rewriteVersion.WithKind("InferenceModelRewrite")
	oldRewriteKind = oldRewriteVersion.WithKind("InferenceModelRewrite")
)

const rewriteResource = "inferencemodelrewrites"

// modelRewrite is an InferenceModelRewrite. Its spec is read when it is kept, so that
// one that is odd does not fail the whole list.
type modelRewrite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec json.RawMessage `json:"spec,omitempty"`

	read *readRewrite // what trimRewrite read from Spec
}

// oldModelRewrite is one of the old group: for each kind the cache wants a type of its
// own.
type oldModelRewrite struct{ modelRewrite }

type modelRewriteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []modelRewrite `json:"items"`
}

type oldModelRewriteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []oldModelRewrite `json:"items"`
}

// poolRef names a pool in the same namespace.
type poolRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// names says whether the reference is to the InferencePool of this name.
func (r *poolRef) names(pool string) bool {
	return r.Name == pool && cmp.Or(r.Group, inferencev1.GroupName) == inferencev1.GroupName && cmp.Or(r.Kind, poolKind.Kind) == poolKind.Kind
}

// rewriteSpec is the spec of an InferenceModelRewrite. A field that is not known here
// may narrow a rule, so an object with one is refused as a whole.
type rewriteSpec struct {
	PoolRef poolRef `json:"poolRef"`
	Rules   []struct {
		Matches []struct {
			Model struct {
				Type  string `json:"type"`
				Value string `json:"value"`
			} `json:"model"`
		} `json:"matches"`
		Targets []struct {
			Weight       *int   `json:"weight"`
			ModelRewrite string `json:"modelRewrite"`
		} `json:"targets"`
	} `json:"rules"`
}

// readRewrite is what an object says. It is immutable.
type readRewrite struct {
	pool  poolRef
	rules []rewrite.Rule
	err   error // why there are none
}

func readRewriteSpec(text []byte) *readRewrite {
	var only struct {
		PoolRef poolRef `json:"poolRef"`
	}
	if err := json.Unmarshal(text, &only); err != nil {
		return &readRewrite{err: err}
	}
	r := &readRewrite{pool: only.PoolRef}
	var spec rewriteSpec
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if r.err = dec.Decode(&spec); r.err == nil {
		r.rules, r.err = spec.rules()
	}
	return r
}

// rules returns the rules of an object, or what is wrong with the first that cannot
// be followed.
func (s *rewriteSpec) rules() ([]rewrite.Rule, error) {
	rules := make([]rewrite.Rule, len(s.Rules))
	for i, r := range s.Rules {
		rule := &rules[i]
		for j, m := range r.Matches {
			if m.Model.Type != "" && m.Model.Type != "Exact" {
				return nil, fmt.Errorf("rules[%d].matches[%d].model.type is %q, and only Exact is known", i, j, m.Model.Type)
			}
			rule.Matches = append(rule.Matches, m.Model.Value)
		}
		for j, t := range r.Targets {
			target := rewrite.Target{Model: t.ModelRewrite}
			if t.Weight != nil {
				if target.Weight = *t.Weight; target.Weight == 0 {
					return nil, fmt.Errorf("rules[%d].targets[%d].weight is 0: leave the target out to send it nothing", i, j)
				}
			}
			rule.Targets = append(rule.Targets, target)
		}
		if err := rule.Validate(); err != nil {
			return nil, fmt.Errorf("rules[%d].%w", i, err)
		}
	}
	return rules, nil
}

func (m *modelRewrite) copied() modelRewrite {
	c := *m
	c.ObjectMeta = *m.DeepCopy()
	c.Spec = append(json.RawMessage(nil), m.Spec...)
	return c // read is immutable
}

// DeepCopyObject makes it an object of a scheme.
func (m *modelRewrite) DeepCopyObject() runtime.Object {
	c := m.copied()
	return &c
}

// DeepCopyObject makes it an object of a scheme.
func (m *oldModelRewrite) DeepCopyObject() runtime.Object { return &oldModelRewrite{m.copied()} }

// DeepCopyObject makes it an object of a scheme.
func (l *modelRewriteList) DeepCopyObject() runtime.Object {
	c := &modelRewriteList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, l.Items[i].copied())
	}
	return c
}

// DeepCopyObject makes it an object of a scheme.
func (l *oldModelRewriteList) DeepCopyObject() runtime.Object {
	c := &oldModelRewriteList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, oldModelRewrite{l.Items[i].copied()})
	}
	return c
}

// addRewrites makes a scheme know both kinds.
func addRewrites(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(rewriteKind, &modelRewrite{})
	s.AddKnownTypeWithName(rewriteVersion.WithKind("InferenceModelRewriteList"), &modelRewriteList{})
	metav1.AddToGroupVersion(s, rewriteVersion)
	s.AddKnownTypeWithName(oldRewriteKind, &oldModelRewrite{})
	s.AddKnownTypeWithName(oldRewriteVersion.WithKind("InferenceModelRewriteList"), &oldModelRewriteList{})
	metav1.AddToGroupVersion(s, oldRewriteVersion)
	return nil
}

// trimRewrite keeps of an object what is used.
func trimRewrite(object any) (any, error) {
	switch m := object.(type) {
	case *modelRewrite:
		c := m.trimmed()
		return &c, nil
	case *oldModelRewrite:
		return &oldModelRewrite{m.trimmed()}, nil
	}
	return object, nil // the tombstone of a deletion that was missed
}

func (m *modelRewrite) trimmed() modelRewrite {
	c := modelRewrite{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
			CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		},
		read: m.read,
	}
	if c.read == nil {
		c.read = readRewriteSpec(m.Spec)
	}
	return c
}

// rulesOf puts together the rules for a pool: those of the oldest object first
// (endpoint-picker.md 2.5). An object that is in both groups counts as it is in the
// newer one. One that cannot be followed is left out, and is a problem.
func rulesOf(objects []*modelRewrite, old []*oldModelRewrite, pool string) (rules []rewrite.Rule, problems []Problem) {
	all := slices.Clone(objects)
	for _, o := range old {
		if !slices.ContainsFunc(objects, func(m *modelRewrite) bool { return m.Name == o.Name }) {
			all = append(all, &o.modelRewrite)
		}
	}
	slices.SortFunc(all, func(a, b *modelRewrite) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range all {
		unreadable := m.read.err != nil && m.read.pool == poolRef{} // it may be for the pool
		switch {
		case !m.DeletionTimestamp.IsZero() || !m.read.pool.names(pool) && !unreadable:
		case m.read.err != nil:
			problems = append(problems, Problem{reasonRewriteInvalid, fmt.Sprintf(
				"InferenceModelRewrite %s is ignored, and requests go on as if it were not there: spec: %v; correct it", m.Name, m.read.err)})
		default:
			rules = append(rules, m.read.rules...)
		}
	}
	return rules, problems
}

// rewritesKnown says whether all rewrites were read that there are.
func (w *Watcher) rewritesKnown() bool {
	for _, gvk := range []schema.GroupVersionKind{rewriteKind, oldRewriteKind} {
		if k := w.kinds.kind(gvk); k != nil && !k.settled() {
			return false
		}
	}
	return true
}

// followRewrites tells of the rules for the pool when they are others, and returns
// what is wrong with objects.
func (w *Watcher) followRewrites() []Problem {
	if w.fixed != nil || w.cfg.Rewrites == nil {
		return nil
	}
	rules, problems := rulesOf(
		objectsOf[*modelRewrite](w.kinds.kind(rewriteKind)), objectsOf[*oldModelRewrite](w.kinds.kind(oldRewriteKind)),
		w.cfg.Discovery.Pool.Name)
	if len(rules)+len(w.rewrites) == 0 || reflect.DeepEqual(rules, w.rewrites) {
		return problems
	}
	w.rewrites = rules
	w.cfg.Rewrites(rules)
	w.cfg.Log.Info("InferenceModelRewrites changed", "rules", len(rules))
	return problems
}
