package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func kept(t *testing.T, name, spec string) *objective {
	t.Helper()
	o, err := trimObjective(&objective{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: json.RawMessage(spec)})
	if err == nil {
		o, err = trimObjective(o) // as may happen
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.(*objective)
}

// TestPriorities: which objectives are those of a pool.
func TestPriorities(t *testing.T) {
	list := []*objective{
		kept(t, "high", `{"priority":5,"poolRef":{"name":"pool"}}`),
		kept(t, "sheddable", `{"priority":-1,"poolRef":{"group":"inference.networking.k8s.io","kind":"InferencePool","name":"pool"}}`),
		kept(t, "plain", `{"poolRef":{"name":"pool"},"new":1}`),
		kept(t, "null", `{"priority":null,"poolRef":{"name":"pool"}}`),
		kept(t, "other", `{"priority":5,"poolRef":{"name":"other"}}`),
		kept(t, "group", `{"priority":5,"poolRef":{"group":"example.com","name":"pool"}}`),
		kept(t, "kind", `{"priority":5,"poolRef":{"kind":"Service","name":"pool"}}`),
		kept(t, "text", `{"priority":"5","poolRef":{"name":"pool"}}`),
		kept(t, "large", `{"priority":4294967296,"poolRef":{"name":"pool"}}`),
		kept(t, "empty", ``),
	}
	old := []*oldObjective{
		{*kept(t, "high", `{"priority":1,"poolRef":{"name":"pool"}}`)},
		{*kept(t, "elder", `{"priority":2,"poolRef":{"name":"pool"}}`)},
	}
	got, odd := priorities(list, old, "pool")
	if want := map[string]int{"high": 5, "sheddable": -1, "plain": 0, "null": 0, "elder": 2}; !maps.Equal(got, want) {
		t.Errorf("priorities %v, want %v", got, want)
	}
	if want := []string{"text", "large", "empty"}; !slices.Equal(odd, want) {
		t.Errorf("odd are %v, want %v", odd, want)
	}
}

// TestFollowsObjectives: what is told follows the objects.
func TestFollowsObjectives(t *testing.T) {
	ns := shared.Namespace(t)
	var mu sync.Mutex
	var told map[string]int
	r := start(t, shared, ns, func(c *Config) {
		c.Objectives = func(m map[string]int) {
			mu.Lock()
			defer mu.Unlock()
			told = m
		}
	})
	expect := func(when string, want map[string]int) {
		t.Helper()
		until(t, when, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return maps.Equal(told, want)
		}, func() any {
			mu.Lock()
			defer mu.Unlock()
			return told
		})
	}
	create(t, shared, testPool(ns, 8000))
	made := func(name string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective",
			"metadata": map[string]any{"namespace": ns, "name": name}, "spec": spec,
		}}
		create(t, shared, o)
		return o
	}
	pool := map[string]any{"name": "pool"}
	high := made("high", map[string]any{"priority": int64(10), "poolRef": pool})
	made("batch", map[string]any{"priority": int64(-1), "poolRef": pool})
	made("other", map[string]any{"priority": int64(3), "poolRef": map[string]any{"name": "other"}})
	expect("two are there", map[string]int{"high": 10, "batch": -1})
	if err := unstructured.SetNestedField(high.Object, int64(20), "spec", "priority"); err != nil {
		t.Fatal(err)
	}
	if err := shared.Client().Update(t.Context(), high); err != nil {
		t.Fatal(err)
	}
	expect("one changed", map[string]int{"high": 20, "batch": -1})
	if err := shared.Client().DeleteAllOf(t.Context(), high, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	expect("all are gone", map[string]int{})
	if p := r.problems(); slices.ContainsFunc(p, func(p Problem) bool { return p.Reason == reasonForbidden }) {
		t.Errorf("problems %v", p)
	}
}
