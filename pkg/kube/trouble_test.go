package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/internal/testcluster"
)

// watchRole is what the watching half needs, as the chart's Role has it.
func watchRole() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
		{APIGroups: []string{"inference.networking.k8s.io"}, Resources: []string{"inferencepools"}, Verbs: read},
		{APIGroups: []string{"routing.warmpath.dev"}, Resources: []string{"routingpolicies"}, Verbs: read},
		{APIGroups: []string{"nvidia.com"}, Resources: []string{"dynamoworkermetadatas"}, Verbs: read},
		{APIGroups: []string{"inference.networking.x-k8s.io"}, Resources: []string{"inferencepools"}, Verbs: []string{"get"}},
		{APIGroups: []string{"llm-d.ai", "inference.networking.x-k8s.io"}, Resources: []string{"inferenceobjectives"}, Verbs: read},
		{APIGroups: []string{"llm-d.ai", "inference.networking.x-k8s.io"}, Resources: []string{"inferencemodelrewrites"}, Verbs: read},
	}
}

// without returns the rules without one verb on one resource.
func without(verb, resource string) []rbacv1.PolicyRule {
	rules := watchRole()
	for i := range rules {
		if rules[i].Resources[0] == resource {
			rules[i].Verbs = slices.DeleteFunc(slices.Clone(rules[i].Verbs), func(v string) bool { return v == verb })
		}
	}
	return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 })
}

// grant lets the service account "picker" of a namespace do what the rules say, and
// no more.
func grant(t *testing.T, c *testcluster.Cluster, ns string, rules []rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "picker"}, Rules: rules}
	if err := c.Client().Update(t.Context(), role); err != nil { // makes it, too
		t.Fatal(err)
	}
	err := c.Client().Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "picker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "picker"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "picker"}},
	})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	awaitGranted(t, c, ns, rules)
}

// awaitGranted waits until the API server goes by the rules.
func awaitGranted(t *testing.T, c *testcluster.Cluster, ns string, rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, whole := range watchRole() {
		for _, verb := range whole.Verbs {
			group, resource := whole.APIGroups[0], whole.Resources[0]
			want := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
			})
			until(t, "the API server goes by the Role for "+verb+" "+resource, func() bool {
				return c.May(t, ns, "picker", verb, group, resource) == want
			}, func() any { return !want })
		}
	}
}

// startAs runs a watcher as the service account "picker".
func startAs(t *testing.T, ns string, rules []rbacv1.PolicyRule, change ...func(*Config)) *rig {
	t.Helper()
	config := shared.ServiceAccountConfig(t, ns, "picker")
	grant(t, shared, ns, rules)
	create(t, shared, testPool(ns, 8000))
	r := &rig{t: t, c: shared, ns: ns}
	r.addPod("a", "10.0.0.1")
	return start(t, shared, ns, append(change, func(c *Config) { c.Rest = config })...)
}

func TestRoleSuffices(t *testing.T) {
	ns := shared.Namespace(t)
	r := startAs(t, ns, watchRole())
	r.expect("the pod is there", "a/0@10.0.0.1:8000 Aggregated")
	r.expectProblem(reasonPickerNotFound) // the last thing that is looked at
	if got := r.problems(); len(got) != 1 || strings.Contains(r.logged(), "must not") {
		t.Errorf("problems %v", got)
	}
}

func TestNamesForbiddenVerbs(t *testing.T) {
	qualified := map[string]string{
		"pods": "pods", "inferencepools": "inferencepools.inference.networking.k8s.io",
		"routingpolicies": "routingpolicies.routing.warmpath.dev", "dynamoworkermetadatas": "dynamoworkermetadatas.nvidia.com",
		"inferenceobjectives":    "inferenceobjectives.llm-d.ai",
		"inferencemodelrewrites": "inferencemodelrewrites.llm-d.ai",
	}
	for resource, name := range qualified {
		for _, verb := range []string{"list", "watch"} {
			t.Run(verb+" "+resource, func(t *testing.T) {
				t.Parallel()
				ns := shared.Namespace(t)
				r := startAs(t, ns, without(verb, resource))
				// Half a right is enough to read: by watching alone, or by listing again
				// and again.
				r.expect("it is read all the same", "a/0@10.0.0.1:8000 Aggregated")
				message := "system:serviceaccount:" + ns + ":picker must not " + verb + " " + name + " in namespace " + ns
				r.expectProblem(reasonForbidden, message, "rbac.create=true")
				until(t, "it is logged", func() bool { return strings.Contains(r.logged(), message) }, func() any { return r.logged() })
				grant(t, shared, ns, watchRole())
				r.expectMended(reasonForbidden)
				r.addPod("b", "10.0.0.2")
				r.expect("watched again", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
			})
		}
	}
}

// Without any right the picker says so, and begins once it has them.
func TestNoRights(t *testing.T) {
	ns := shared.Namespace(t)
	r := startAs(t, ns, nil)
	r.expectProblem(reasonForbidden, "must not list pods in namespace "+ns)
	r.expectProblem(reasonForbidden, "must not watch inferencepools.inference.networking.k8s.io in namespace "+ns)
	if err := r.Synced(); err == nil || !strings.Contains(err.Error(), "must not list pods") {
		t.Errorf("Synced says %v", err)
	}
	grant(t, shared, ns, without("get", "services"))
	r.expect("the pod is there", "a/0@10.0.0.1:8000 Aggregated")
	r.expectMended(reasonForbidden)
	until(t, "it is logged that Services are not read", func() bool { return strings.Contains(r.logged(), "must not get services") }, func() any { return r.logged() })
	if got := r.problems(); len(got) > 0 {
		t.Errorf("that is no problem, but there are %v", got)
	}
}

func TestOutage(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	r.addPod("a", "10.0.0.1")
	r.expect("a pod", "a/0@10.0.0.1:8000 Aggregated")

	shared.StopAPI()
	back := sync.OnceFunc(func() { shared.StartAPI(t) })
	defer back()
	until(t, "it is noticed", func() bool { return r.outages.err() != nil }, func() any { return nil })
	late := start(t, shared, ns) // while there is no API server
	until(t, "the late one says what it lacks", func() bool {
		err := late.Synced()
		return err != nil && strings.Contains(err.Error(), shared.Config().Host)
	}, func() any { return late.Synced() })
	if err := r.Synced(); err != nil {
		t.Errorf("Synced says %v", err)
	}
	if got := r.workers(); !slices.Equal(got, []string{"a/0@10.0.0.1:8000 Aggregated"}) || r.View().Snapshot == nil {
		t.Errorf("the pool became %v", got)
	}
	r.mu.Lock()
	count := len(r.published)
	r.mu.Unlock()

	back()
	r.addPod("b", "10.0.0.2")
	r.expect("changes arrive", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	late.expect("the late one is there, too", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	until(t, "all is well again", func() bool { return r.outages.err() == nil }, func() any { return r.outages.err() })
	if n := strings.Count(r.logged(), "API server not usable"); n != 1 {
		t.Errorf("the outage is logged %d times", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.published[count:] {
		if len(s.Workers) == 0 {
			t.Error("the pool was emptied")
		}
	}
}

// The kinds that a picker follows may come after it, and go.
func TestKindsComeAndGo(t *testing.T) {
	c := testcluster.StartFor(t, testcluster.Options{CRDs: []testcluster.CRDs{testcluster.OldInferencePools}})
	ns := c.Namespace(t)
	account := c.ServiceAccountConfig(t, ns, "picker")
	grant(t, c, ns, watchRole())
	r := start(t, c, ns, func(cfg *Config) { cfg.Rest = account })
	r.addPod("a", "10.0.0.1")
	r.expectProblem(reasonPoolInOldGroup, "inference.networking.x-k8s.io", "1.0 or later")
	if err := r.Synced(); err == nil || !strings.Contains(err.Error(), "1.0 or later") {
		t.Errorf("Synced says %v", err)
	}
	c.InstallCRDs(t, testcluster.InferencePools)
	create(t, c, oldInferencePool(ns))
	r.expectProblem(reasonPoolInOldGroup, ns+"/pool", "create it again")
	c.RemoveCRDs(t, testcluster.OldInferencePools)
	r.expectProblem(reasonPoolNotFound, ns+"/pool")
	create(t, c, testPool(ns, 8000))
	r.expect("the pool comes", "a/0@10.0.0.1:8000 Aggregated")

	c.InstallCRDs(t, testcluster.DynamoWorkerMetadatas)
	create(t, c, dynamo(ns, "a", dynamoData(16)))
	r.expect("metadata comes", "a/0@10.0.0.1:8000 Aggregated", "a/1@10.0.0.1:8000 Aggregated")
	c.RemoveCRDs(t, testcluster.DynamoWorkerMetadatas)
	r.expect("metadata goes", "a/0@10.0.0.1:8000 Aggregated")

	c.RemoveCRDs(t, testcluster.InferencePools)
	r.expect("the pool goes with its kind")
	r.expectProblem(reasonPoolKindMissing, "discovery.kubernetes.selector")
	c.InstallCRDs(t, testcluster.InferencePools)
	create(t, c, testPool(ns, 8000))
	r.expect("the pool is back", "a/0@10.0.0.1:8000 Aggregated")
	if err := r.Synced(); err != nil {
		t.Errorf("Synced says %v", err)
	}
}

func oldInferencePool(ns string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferencePool",
		"metadata": map[string]any{"namespace": ns, "name": "pool"},
		"spec": map[string]any{
			"selector": map[string]any{"app": "llm"}, "targetPortNumber": int64(8000),
			"extensionRef": map[string]any{"name": "picker"},
		},
	}}
}

func TestReadersConcurrently(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				v := r.View()
				if v.Snapshot != nil && v.Pool != nil && len(v.Snapshot.Workers) > 1 {
					t.Error("more workers than pods")
				}
				_ = r.Synced() // races are what is looked for
			}
		})
	}
	r.addPod("a", "10.0.0.1")
	for range 3 {
		r.expect("it is there", "a/0@10.0.0.1:8000 Aggregated")
		shared.SetReady(t, ns, "a", false)
		r.expect("it is not")
		shared.SetReady(t, ns, "a", true)
	}
	stop()
	readers.Wait()
}
