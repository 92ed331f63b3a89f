package kube

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/pkg/rewrite"
)

// keptRewrite is an object as the cache keeps it, of so many seconds after the first.
func keptRewrite(t *testing.T, name string, second int64, spec string) *modelRewrite {
	t.Helper()
	o, err := trimRewrite(&modelRewrite{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}, Spec: json.RawMessage(spec),
	})
	if err == nil {
		o, err = trimRewrite(o) // as may happen
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.(*modelRewrite)
}

// oneRule is a spec with a rule for all that goes to a model.
func oneRule(to string) string {
	return `{"poolRef":{"name":"pool"},"rules":[{"targets":[{"modelRewrite":"` + to + `"}]}]}`
}

func targetsOf(rules []rewrite.Rule) (models []string) {
	for _, r := range rules {
		models = append(models, r.Targets[0].Model)
	}
	return models
}

// TestRulesOfRewrites: what an object says, and of which pool.
func TestRulesOfRewrites(t *testing.T) {
	for spec, want := range map[string][]rewrite.Rule{
		`{"poolRef":{"name":"pool"},"rules":[
			{"matches":[{"model":{"type":"Exact","value":"a"}},{"model":{"value":"b"}}],"targets":[{"modelRewrite":"x","weight":9},{"modelRewrite":"y","weight":1}]},
			{"targets":[{"modelRewrite":"z"}]}]}`: {
			{Matches: []string{"a", "b"}, Targets: []rewrite.Target{{Model: "x", Weight: 9}, {Model: "y", Weight: 1}}},
			{Targets: []rewrite.Target{{Model: "z"}}},
		},
		`{"poolRef":{"group":"inference.networking.k8s.io","kind":"InferencePool","name":"pool"},"rules":[{"targets":[{"modelRewrite":"z"}]}]}`: {{Targets: []rewrite.Target{{Model: "z"}}}},
		strings.Replace(oneRule("z"), `"pool"`, `"other"`, 1):                      nil,
		strings.Replace(oneRule("z"), `"name"`, `"group":"example.com","name"`, 1): nil,
		strings.Replace(oneRule("z"), `"name"`, `"kind":"Service","name"`, 1):      nil,
		`{"poolRef":{"name":"other"},"rules":"none of ours"}`:                      nil,
		`{"poolRef":{"name":"pool"}}`:                                              nil,
	} {
		got, problems := rulesOf([]*modelRewrite{keptRewrite(t, "a", 0, spec)}, nil, "pool")
		if len(problems) > 0 || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v; problems %v", spec, got, want, problems)
		}
	}
}

// TestOldestRewriteFirst: whatever the order in which they are read.
func TestOldestRewriteFirst(t *testing.T) {
	list := []*modelRewrite{
		keptRewrite(t, "b", 7, oneRule("third")), keptRewrite(t, "c", 3, oneRule("first")),
		keptRewrite(t, "a", 7, oneRule("second")), keptRewrite(t, "both", 9, oneRule("new")),
	}
	gone := keptRewrite(t, "gone", 0, oneRule("gone"))
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(8, 0)}
	old := []*oldModelRewrite{{*keptRewrite(t, "both", 1, oneRule("old"))}, {*keptRewrite(t, "d", 8, oneRule("fourth"))}, {*gone}}
	got, problems := rulesOf(list, old, "pool")
	if want := []string{"first", "second", "third", "fourth", "new"}; !reflect.DeepEqual(targetsOf(got), want) || len(problems) > 0 {
		t.Errorf("%v, want %v; problems %v", targetsOf(got), want, problems)
	}
}

// TestOddRewrites: they are left out, with a word about why, and the others count.
func TestOddRewrites(t *testing.T) {
	rule := func(r string) string { return `{"poolRef":{"name":"pool"},"rules":[` + r + `]}` }
	for spec, want := range map[string]string{
		rule(`{"targets":[]}`): "rules[0].targets is empty",
		rule(`{"targets":[{"modelRewrite":"x"}]},{"targets":[{"modelRewrite":""}]}`):                            "rules[1].targets[0].modelRewrite is empty",
		rule(`{"targets":[{"modelRewrite":"x","weight":0}]}`):                                                   "rules[0].targets[0].weight is 0",
		rule(`{"targets":[{"modelRewrite":"x","weight":1000001}]}`):                                             "rules[0].targets[0].weight is 1000001",
		rule(`{"matches":[{"model":{"type":"Prefix","value":"a"}}],"targets":[{"modelRewrite":"x"}]}`):          `rules[0].matches[0].model.type is "Prefix"`,
		rule(`{"matches":[{"model":{"value":"a"}},{}],"targets":[{"modelRewrite":"x"}]}`):                       "rules[0].matches[1] is empty",
		rule(`{"matches":[{"model":{"value":"a"},"headers":[{"name":"x"}]}],"targets":[{"modelRewrite":"x"}]}`): `unknown field "headers"`,
		rule(`{"targets":[{"modelRewrite":7}]}`):                                                                "rules.targets.modelRewrite",
		`{"poolRef":"pool"}`:                                                                                    "poolRef",
		``:                                                                                                      "unexpected end",
	} {
		rules, problems := rulesOf([]*modelRewrite{keptRewrite(t, "odd", 0, spec), keptRewrite(t, "good", 1, oneRule("x"))}, nil, "pool")
		if len(rules) != 1 || len(problems) != 1 || problems[0].Reason != reasonRewriteInvalid ||
			!strings.HasPrefix(problems[0].Message, "InferenceModelRewrite odd is ignored") || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: %v, %+v; want %q", spec, rules, problems, want)
		}
	}
}

// TestFollowsRewrites: what is told follows the objects, in either group, and what is
// wrong with one shows.
func TestFollowsRewrites(t *testing.T) {
	ns := shared.Namespace(t)
	var mu sync.Mutex
	var told []rewrite.Rule
	r := start(t, shared, ns, func(c *Config) {
		c.Rewrites = func(rules []rewrite.Rule) {
			mu.Lock()
			defer mu.Unlock()
			told = rules
		}
	})
	expect := func(when string, want ...string) {
		t.Helper()
		targets := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return targetsOf(told)
		}
		until(t, when, func() bool { return reflect.DeepEqual(targets(), want) }, func() any { return targets() })
	}
	create(t, shared, testPool(ns, 8000))
	made := func(version, name, spec string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": version, "kind": "InferenceModelRewrite", "metadata": map[string]any{"namespace": ns, "name": name},
		}}
		var s map[string]any
		if err := json.Unmarshal([]byte(spec), &s); err != nil {
			t.Fatal(err)
		}
		o.Object["spec"] = s
		create(t, shared, o)
		return o
	}
	first := made("llm-d.ai/v1alpha2", "a", oneRule("x"))
	expect("one is there", "x")
	old := made("inference.networking.x-k8s.io/v1alpha2", "b", oneRule("y"))
	made("llm-d.ai/v1alpha2", "elsewhere", strings.Replace(oneRule("z"), `"pool"`, `"other"`, 1))
	expect("one of the old group", "x", "y")

	named := func() bool {
		for _, p := range r.View().Refs {
			if p.Reason == reasonRewriteInvalid && strings.Contains(p.Message, "InferenceModelRewrite a is ignored") {
				return true
			}
		}
		return false
	}
	for _, c := range []struct {
		spec string
		odd  bool
		want []string
	}{{`{"poolRef":{"name":"pool"},"rules":[{"targets":[]}]}`, true, []string{"y"}}, {oneRule("better"), false, []string{"better", "y"}}} {
		var s map[string]any
		if err := json.Unmarshal([]byte(c.spec), &s); err != nil {
			t.Fatal(err)
		}
		first.Object["spec"] = s
		if err := shared.Client().Update(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		expect(c.spec, c.want...)
		until(t, "the problem shows, or no longer", func() bool { return named() == c.odd }, func() any { return r.View().Refs })
	}
	for _, o := range []*unstructured.Unstructured{first, old} {
		if err := shared.Client().DeleteAllOf(t.Context(), o, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	expect("all are gone")
	for _, p := range r.View().Refs {
		if p.Reason == reasonForbidden || p.Reason == reasonRewriteInvalid {
			t.Errorf("problem %v", p)
		}
	}
}
