package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	zone     = "topology.kubernetes.io/zone"
	rack     = "topology.kubernetes.io/rack"
	hostname = "kubernetes.io/hostname"
	clique   = "nvidia.com/gpu.clique"
)

// TestSitesOfPodsAndNodes: what the labels of a pod do not say of its place those of
// its node do, whatever is on the node besides.
func TestSitesOfPodsAndNodes(t *testing.T) {
	nodes := map[string]map[string]string{
		"node-1": {zone: "z1", rack: "r1", hostname: "h1", clique: "c1", "llm-d.ai/engine-type": "sglang"},
		"node-2": {"dynamo.topology/zone": "z2"},
		"bare":   nil,
	}
	r := testRules()
	r.nodeLabels = func(name string) map[string]string { return nodes[name] }
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want fleet.Location
	}{
		"all from the node":      {pod("a", on("node-1")), fleet.Location{Zone: "z1", Rack: "r1", Host: "h1", Fabric: "c1"}},
		"some from the node":     {pod("a", on("node-1"), label(rack, "own"), label("llm-d.ai/engine-type", "vllm")), fleet.Location{Zone: "z1", Rack: "own", Host: "h1", Fabric: "c1", Connector: "vllm"}},
		"a later label of a pod": {pod("a", on("node-1"), label("dynamo.topology/zone", "own")), fleet.Location{Zone: "own", Rack: "r1", Host: "h1", Fabric: "c1"}},
		"an empty label":         {pod("a", on("node-1"), label(zone, "")), fleet.Location{Zone: "z1", Rack: "r1", Host: "h1", Fabric: "c1"}},
		"no hostname":            {pod("a", on("node-2")), fleet.Location{Zone: "z2", Host: "node-2"}},
		"no labels":              {pod("a", on("bare")), fleet.Location{Host: "bare"}},
		"an unknown node":        {pod("a", on("new"), label(zone, "own")), fleet.Location{Zone: "own", Host: "new"}},
		"no node yet":            {pod("a"), fleet.Location{}},
	} {
		if got := siteOf(&r, tc.pod).Location(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// bigNode is a node as clouds and operators of GPUs write them, but for its zone, which
// API servers copy to its pods.
func bigNode(name string, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{hostname: name, rack: "r0", clique: "a.1"},
		Annotations: map[string]string{"example.com/topology": strings.Repeat("annotation ", 200)},
	}}
	for i := range 50 {
		n.Labels[fmt.Sprint("feature.node.kubernetes.io/cpu-feature-", i)] = "true"
	}
	maps.Copy(n.Labels, labels)
	return n
}

// metadataOf is what the API server sends of a node.
func metadataOf(n *corev1.Node) *metav1.PartialObjectMetadata {
	m := nodeMetadata()
	m.ObjectMeta = *n.ObjectMeta.DeepCopy()
	return m
}

// TestTrimNode: of a node its name and the labels that are asked for stay.
func TestTrimNode(t *testing.T) {
	var w Watcher
	w.keptLabels.Store(&[]string{clique, hostname, zone, rack})
	node := metadataOf(bigNode("n", map[string]string{zone: ""}))
	node.UID, node.ResourceVersion, node.ManagedFields = "uid", "7", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	want := nodeMetadata()
	want.Name, want.UID, want.ResourceVersion = "n", "uid", "7"
	want.Labels = map[string]string{hostname: "n", rack: "r0", clique: "a.1"}
	trimmed, err := w.trimNode(node)
	if diff := cmp.Diff(want, trimmed); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if again, err := w.trimNode(trimmed); err != nil || !cmp.Equal(want, again) {
		t.Errorf("trimmed again: %+v, %v", again, err)
	}
	stone := toolscache.DeletedFinalStateUnknown{Key: "n"}
	if got, err := w.trimNode(stone); err != nil || got != any(stone) {
		t.Errorf("a tombstone becomes %+v, %v", got, err)
	}
}

// TestNodesThatAreWell: kubelets report of every node every few minutes. That makes no
// new pool, of which a large cluster would make many a second; other labels do.
func TestNodesThatAreWell(t *testing.T) {
	told := 0
	handler := newNodes().telling(func() { told++ })
	before, now := metadataOf(bigNode("n", nil)), metadataOf(bigNode("n", nil))
	now.ResourceVersion = "8"
	handler.OnUpdate(before, now)
	if told != 0 {
		t.Error("a node that is well makes a new pool")
	}
	now.Labels[rack] = "r1"
	handler.OnUpdate(before, now)
	handler.OnAdd(now, false)
	handler.OnDelete(now)
	if told != 3 {
		t.Errorf("told %d times of another rack, a new node and one that is gone", told)
	}
	told = 0
	(&kind{}).telling(func() { told++ }).OnUpdate(before, before)
	if told != 1 {
		t.Error("other kinds are not told of")
	}
}

// grantNodes lets the service account "picker" of a namespace do what the chart's
// ClusterRole would, or less.
func grantNodes(t *testing.T, ns string, verbs ...string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-picker-nodes"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: verbs}},
	}
	if err := shared.Client().Update(t.Context(), role); err != nil { // makes it, too
		t.Fatal(err)
	}
	err := shared.Client().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "picker"}},
	})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// createNode makes a node, whose name no other test has. It goes with the test.
func createNode(t *testing.T, n *corev1.Node) {
	t.Helper()
	create(t, shared, n)
	ctx := context.WithoutCancel(t.Context()) // the test's own is over by then
	t.Cleanup(func() {
		if err := shared.Client().Delete(ctx, n); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// changeNode changes a node, which others may change meanwhile.
func changeNode(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	node := &corev1.Node{}
	if err := shared.Client().Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	change(node)
	if err := shared.Client().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// onNode places a pod.
func onNode(name string) func(*testcluster.Pod) { return func(p *testcluster.Pod) { p.Node = name } }

// places are those of the workers published last, by name.
func (r *rig) places() map[string]fleet.Location {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]fleet.Location{}
	if n := len(r.published); n > 0 {
		for _, w := range r.published[n-1].Workers {
			all[w.Name] = w.Site.Location()
		}
	}
	return all
}

// expectPlaces waits until the workers are there, and no others.
func (r *rig) expectPlaces(when string, want map[string]fleet.Location) {
	r.t.Helper()
	until(r.t, when, func() bool { return maps.Equal(r.places(), want) }, func() any { return r.places() })
}

// withNodes is the spec of a file that asks for labels of nodes.
func withNodes(c *Config) { c.File.Topology.LabelsFrom = v1alpha1.LabelsFromPodsAndNodes }

// TestPlacesOfNodes follows nodes, which come after their pods, change and go, with
// no more rights than the chart gives.
func TestPlacesOfNodes(t *testing.T) {
	ns := shared.Namespace(t)
	first, second := ns+"-n1", ns+"-n2"
	createNode(t, bigNode(first, map[string]string{rack: "r1", clique: "c1"}))
	grantNodes(t, ns, "list", "watch")
	r := startAs(t, ns, watchRole(), withNodes)
	r.addPod("b", "10.0.0.2", onNode(first))
	r.addPod("c", "10.0.0.3", onNode(second), func(p *testcluster.Pod) { p.Labels[rack] = "own" })
	a := fleet.Location{Host: testcluster.Node} // a node without labels
	onFirst := fleet.Location{Rack: "r1", Fabric: "c1", Host: first}
	r.expectPlaces("a node that is not there yet is a place that is not known", map[string]fleet.Location{
		"a": a, "b": onFirst, "c": {Rack: "own", Host: second},
	})

	createNode(t, bigNode(second, map[string]string{rack: "r2", zone: "z2"}))
	onSecond := fleet.Location{Zone: "z2", Rack: "own", Fabric: "a.1", Host: second}
	r.expectPlaces("the node comes", map[string]fleet.Location{"a": a, "b": onFirst, "c": onSecond})

	changeNode(t, first, func(n *corev1.Node) { n.Labels[rack] = "r3" })
	onFirst.Rack = "r3"
	r.expectPlaces("a label changes", map[string]fleet.Location{"a": a, "b": onFirst, "c": onSecond})

	changeNode(t, first, func(n *corev1.Node) { delete(n.Labels, rack) })
	onFirst.Rack = ""
	r.expectPlaces("a label goes", map[string]fleet.Location{"a": a, "b": onFirst, "c": onSecond})

	if err := shared.Client().Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first}}); err != nil {
		t.Fatal(err)
	}
	onFirst = fleet.Location{Host: first}
	r.expectPlaces("a node goes", map[string]fleet.Location{"a": a, "b": onFirst, "c": onSecond})

	kept, _, _ := r.kinds.nodes().objects().GetByKey(second)
	if got := kept.(*metav1.PartialObjectMetadata); len(got.Labels) != 4 || len(got.Annotations)+len(got.ManagedFields) > 0 {
		t.Errorf("kept of a node: %+v", got)
	}
	if strings.Contains(r.logged(), "must not") {
		t.Error("something was refused")
	}
}

// TestNodesOnlyWhileAsked has policies ask for labels of nodes, for others, and for
// none any more.
func TestNodesOnlyWhileAsked(t *testing.T) {
	ns := shared.Namespace(t)
	node := ns + "-n1"
	createNode(t, bigNode(node, map[string]string{"example.com/row": "row-1"}))
	r := startAs(t, ns, watchRole())
	r.addPod("b", "10.0.0.2", onNode(node))
	a, b := fleet.Location{Host: testcluster.Node}, fleet.Location{Host: node}
	r.expectPlaces("without a policy", map[string]fleet.Location{"a": a, "b": b})
	r.expectProblem(reasonPickerNotFound) // the last thing that is looked at
	if k := r.kinds.nodes(); k.state.Load() != kindUnknown || k.informer.Load() != nil || len(r.problems()) != 1 {
		t.Errorf("nodes are followed, though nobody asks for them; problems %v", r.problems())
	}

	grantNodes(t, ns, "list", "watch")
	policy := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}}
	policy.Spec.TargetRef.Name = "pool"
	policy.Spec.EventPlane.Disabled = true
	policy.Spec.Topology.LabelsFrom = v1alpha1.LabelsFromPodsAndNodes
	create(t, shared, policy)
	b = fleet.Location{Rack: "r0", Fabric: "a.1", Host: node}
	r.expectPlaces("a policy asks for them", map[string]fleet.Location{"a": a, "b": b})

	policy.Spec.Topology.RackLabels = []string{"example.com/row"}
	update(t, policy)
	b.Rack = "row-1"
	r.expectPlaces("it asks for another label", map[string]fleet.Location{"a": a, "b": b})

	policy.Spec.Topology.LabelsFrom = v1alpha1.LabelsFromPods
	update(t, policy)
	r.expectPlaces("it asks for none any more", map[string]fleet.Location{"a": a, "b": {Host: node}})
	k := r.kinds.nodes()
	until(t, "nodes are not followed any more", func() bool {
		return k.state.Load() == kindUnknown && k.informer.Load() == nil && k.objects() == nil
	}, func() any { return k.state.Load() })

	policy.Spec.Topology.LabelsFrom = v1alpha1.LabelsFromPodsAndNodes
	update(t, policy)
	r.expectPlaces("it asks for them again", map[string]fleet.Location{"a": a, "b": b})
}

// update writes a policy again.
func update(t *testing.T, policy *v1alpha1.RoutingPolicy) {
	t.Helper()
	now := &v1alpha1.RoutingPolicy{}
	if err := shared.Client().Get(t.Context(), client.ObjectKeyFromObject(policy), now); err != nil {
		t.Fatal(err)
	}
	now.Spec = policy.Spec
	if err := shared.Client().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// TestNodesForbidden: without rights over the cluster workers are routed to all the
// same, and what is missing is said, until it is there. Rights in the namespace are
// none over nodes.
func TestNodesForbidden(t *testing.T) {
	for name, verbs := range map[string][]string{"both": nil, "list": {"watch"}, "watch": {"list"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := shared.Namespace(t)
			node := ns + "-n1"
			createNode(t, bigNode(node, nil))
			inNamespace := append(watchRole(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}})
			if verbs != nil {
				grantNodes(t, ns, verbs...)
			}
			r := startAs(t, ns, inNamespace, withNodes)
			r.addPod("b", "10.0.0.2", onNode(node))
			r.expect("workers are there", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
			for _, verb := range []string{"list", "watch"} {
				message := "system:serviceaccount:" + ns + ":picker must not " + verb + " nodes"
				if slices.Contains(verbs, verb) {
					if strings.Contains(r.logged(), message) {
						t.Errorf("it may %s nodes", verb)
					}
					continue
				}
				r.expectProblem(reasonForbidden, message, "PodsAndNodes", "rbac.nodes=true", "labelsFrom: Pods")
				if !strings.Contains(r.logged(), message) {
					t.Error("nothing is logged about it")
				}
			}
			if err := r.Synced(); err != nil {
				t.Errorf("Synced says %v", err)
			}
			if verbs == nil {
				r.expectPlaces("places are not known", map[string]fleet.Location{"a": {Host: testcluster.Node}, "b": {Host: node}})
			}
			grantNodes(t, ns, "list", "watch")
			r.expectMended(reasonForbidden)
			r.expectPlaces("places are known", map[string]fleet.Location{"a": {Host: testcluster.Node}, "b": {Rack: "r0", Fabric: "a.1", Host: node}})
			changeNode(t, node, func(n *corev1.Node) { n.Labels[rack] = "r2" })
			r.expectPlaces("and followed", map[string]fleet.Location{"a": {Host: testcluster.Node}, "b": {Rack: "r2", Fabric: "a.1", Host: node}})
		})
	}
}
