package chart

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
)

// policyCRD is the CRD that the chart brings along.
const policyCRD = "routingpolicies.routing.warmpath.dev"

// release is one that Helm installs into a real API server. Nothing runs there that
// would make pods, so Helm is not told to wait for any.
type release struct {
	cluster   *testcluster.Cluster
	namespace string
	env       []string
	example   string // values
	change    []string
	kinds     map[schema.GroupVersionKind]bool // of all that it may have
	replicas  float64                          // that the autoscaler chose; 0: there is none
}

// TestRelease installs, upgrades, rolls back and uninstalls the chart with Helm, as
// docs/install.md says. The first time the cluster does not have our CRD.
func TestRelease(t *testing.T) {
	c := cluster(t)
	c.RemoveCRDs(t, testcluster.RoutingPolicies)
	t.Run("default", func(t *testing.T) {
		r := newRelease(t, c, "default", "--set=replicaCount=3", "--set=podDisruptionBudget.enabled=false", "--set=metrics.dashboards.enabled=true", "--set=config.spec.blockSize=32")
		r.lifecycle(t)
		r.keepsPolicies(t)
	})
	c.InstallCRDs(t, testcluster.RoutingPolicies)
	t.Run("istio", func(t *testing.T) {
		t.Parallel() // Helm mostly waits
		newRelease(t, c, "istio", "--set=nats.url=", "--set=nats.embedded.enabled=true", "--set=replicaCount=1", "--set=extProcTLS.enabled=true").lifecycle(t)
	})
	t.Run("production", func(t *testing.T) {
		t.Parallel()
		r := newRelease(t, c, "production", "--set=config.server.drainTimeout=10m", "--set=networkPolicy.enabled=false", "--set=metrics.serviceMonitor.enabled=false", "--set=metrics.podMonitor.enabled=true")
		r.lifecycle(t)
		if r.replicas == 0 {
			t.Error("no autoscaler: this test looks at too little")
		}
	})
}

func newRelease(t *testing.T, c *testcluster.Cluster, example string, change ...string) *release {
	t.Helper()
	namespace, home := c.Namespace(t), t.TempDir()
	env := append(os.Environ(), "KUBECONFIG="+testcluster.Kubeconfig(t, c.Config(), namespace))
	for _, name := range []string{"CACHE", "CONFIG", "DATA"} {
		env = append(env, "HELM_"+name+"_HOME="+filepath.Join(home, name))
	}
	return &release{cluster: c, namespace: namespace, env: env, example: examples(t)[example], change: change, kinds: map[schema.GroupVersionKind]bool{}}
}

// helm runs a command of Helm on the release.
func (r *release) helm(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tools.Helm, append([]string{command, "llm-router", "--namespace", r.namespace}, args...)...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *release) run(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := r.helm(t, command, args...); err != nil {
		t.Fatalf("helm %s %q: %v\n%s", command, args, err, out)
	}
}

// chart is where the chart is, and the flags of the values.
func (r *release) chart(flags ...string) []string {
	return append([]string{filepath.Join(root, "charts/warmpath")}, flags...)
}

// lifecycle takes the release through its life, and looks at what there is after
// each step.
func (r *release) lifecycle(t *testing.T) {
	first, second := r.wanted(t, "-f", r.example), r.wanted(t, append([]string{"-f", r.example}, r.change...)...)
	if cmp.Equal(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second))) {
		t.Fatal("the upgrade neither adds an object nor takes one away: this test looks at too little")
	}

	r.run(t, "install", r.chart("-f", r.example)...)
	r.autoscale(t)
	installed := r.state(t)
	checkState(t, "install", first, installed)

	r.run(t, "upgrade", r.chart(append([]string{"--reuse-values"}, r.change...)...)...)
	upgraded := r.state(t)
	checkState(t, "upgrade", second, upgraded)
	sameObjects(t, "upgrade", installed, upgraded)
	if cmp.Equal(at(deployment(t, installed), "spec", "template"), at(deployment(t, upgraded), "spec", "template")) {
		t.Error("another configuration does not bring other pods")
	}
	if got := at(deployment(t, upgraded), "spec", "replicas"); r.replicas != 0 && got != r.replicas {
		t.Errorf("after an upgrade there are %v replicas, and the autoscaler chose %v", got, r.replicas)
	}

	r.refuses(t, upgraded)

	r.run(t, "rollback", "1")
	back := r.state(t)
	checkState(t, "rollback", first, back)
	sameObjects(t, "rollback", upgraded, back)
	if diff := cmp.Diff(lasting(installed), lasting(back)); diff != "" {
		t.Errorf("after a rollback it is not as it was (-before +after):\n%s", diff)
	}

	r.run(t, "uninstall")
	if left := r.state(t); len(left) > 0 {
		t.Errorf("these are left: %q", slices.Sorted(maps.Keys(left)))
	}
	var secrets corev1.SecretList // where Helm keeps its releases
	if err := r.cluster.Client().List(t.Context(), &secrets, client.InNamespace(r.namespace)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d Secrets are left: %v", len(secrets.Items), err)
	}
}

// refuses upgrades with values that are wrong: by the schema, and by what the
// templates check. Nothing may change.
func (r *release) refuses(t *testing.T, before map[string]object) {
	t.Helper()
	for set, want := range map[string]string{
		"config.spec.blocksize=64":           "additional properties 'blocksize' not allowed",
		"config.server.metricsAddress=:9003": "both are port 9003",
	} {
		out, err := r.helm(t, "upgrade", r.chart("--reuse-values", "--set", set)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("an upgrade with %s: %v, want %q in\n%s", set, err, want, out)
		}
	}
	if diff := cmp.Diff(before, r.state(t)); diff != "" {
		t.Errorf("an upgrade that is refused changes (-before +after):\n%s", diff)
	}
	out, err := r.helm(t, "status", "--output", "json")
	var status struct {
		Version int
		Info    struct{ Status string }
	}
	if err != nil || json.Unmarshal([]byte(out), &status) != nil || status.Version != 2 || status.Info.Status != "deployed" {
		t.Errorf("after upgrades that are refused the release is %+v (%v), want version 2, deployed", status, err)
	}
}

// keepsPolicies checks what becomes of the CRD, and with it of all policies.
func (r *release) keepsPolicies(t *testing.T) {
	c := r.cluster.Client()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: policyCRD}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatalf("the CRD does not survive the release: %v", err)
	}
	policy := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "llm"}}
	policy.Spec.TargetRef.Name = "llm"
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	// The release may come back, and takes the CRD over.
	r.run(t, "install", r.chart("-f", r.example)...)
	r.run(t, "uninstall")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Errorf("a policy does not survive the release: %v", err)
	}
	// Another release must leave it alone, and is told so.
	other := *r
	other.namespace = r.cluster.Namespace(t)
	if out, err := other.helm(t, "install", r.chart("-f", r.example)...); err == nil || !strings.Contains(out, policyCRD) {
		t.Errorf("another release takes the CRD: %v\n%s", err, out)
	}

	r.run(t, "install", r.chart("-f", r.example, "--set=crds.keep=false")...)
	r.run(t, "uninstall")
	gone := func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, gone); err != nil {
		t.Errorf("with crds.keep=false the CRD stays: %v", err)
	}
}

// autoscaled is the number of replicas that an autoscaler chose.
const autoscaled = 7

// autoscale does what a HorizontalPodAutoscaler of the release would: from then on
// the number of replicas is up to it, whatever Helm does.
func (r *release) autoscale(t *testing.T) {
	t.Helper()
	for _, o := range ofKind(slices.Collect(maps.Values(r.state(t))), "HorizontalPodAutoscaler") {
		name := metav1.ObjectMeta{Namespace: r.namespace, Name: text(o, "spec", "scaleTargetRef", "name")}
		scale := &autoscalingv1.Scale{ObjectMeta: name, Spec: autoscalingv1.ScaleSpec{Replicas: autoscaled}}
		err := r.cluster.Client().SubResource("scale").Update(t.Context(), &appsv1.Deployment{ObjectMeta: name}, client.WithSubResourceBody(scale), client.FieldOwner("autoscaler"))
		if err != nil {
			t.Fatal(err)
		}
		r.replicas = autoscaled
	}
}

// wanted is what the chart renders, but for its tests and the CRD.
func (r *release) wanted(t *testing.T, args ...string) map[string]object {
	t.Helper()
	out, err := tools.Template(t.Context(), root, "llm-router", r.namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]object{}
	for _, o := range objects(t, out) {
		if text(o, "kind") == "CustomResourceDefinition" || text(o, "metadata", "annotations", "helm.sh/hook") != "" {
			continue
		}
		r.kinds[schema.FromAPIVersionAndKind(text(o, "apiVersion"), text(o, "kind"))] = true
		byID[id(o)] = o
	}
	return byID
}

// state is what there is of the release.
func (r *release) state(t *testing.T) map[string]object {
	t.Helper()
	byID := map[string]object{}
	for kind := range r.kinds {
		found := &unstructured.UnstructuredList{}
		found.SetGroupVersionKind(kind)
		if err := r.cluster.Client().List(t.Context(), found, client.InNamespace(r.namespace), client.MatchingLabels{"app.kubernetes.io/instance": "llm-router"}); err != nil {
			t.Fatal(err)
		}
		for _, item := range found.Items {
			// What belongs to the whole cluster may be of a release in another namespace.
			if item.GetAnnotations()["meta.helm.sh/release-namespace"] != r.namespace {
				continue
			}
			data, err := item.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			var o object // with numbers as those of what is rendered
			if err := json.Unmarshal(data, &o); err != nil {
				t.Fatal(err)
			}
			byID[id(o)] = o
		}
	}
	return byID
}

// checkState checks that just the objects are there which the chart renders, with all
// that it renders. The API server adds defaults.
func checkState(t *testing.T, after string, want, have map[string]object) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); diff != "" {
		t.Fatalf("after helm %s other objects are there (-want +have):\n%s", after, diff)
	}
	for name, o := range want {
		if where := missing(o, have[name]); where != "" {
			t.Errorf("after helm %s %s differs at %s", after, name, where)
		}
	}
}

// missing says where something that is wanted is not there; nowhere: "".
func missing(want, have any) string {
	switch want := want.(type) {
	case object:
		h, _ := have.(object)
		for key, v := range want {
			if where := missing(v, h[key]); where != "" {
				return "." + key + where
			}
		}
		return ""
	case []any:
		h, _ := have.([]any)
		if len(h) != len(want) {
			return ": another number of elements"
		}
		for i, v := range want {
			if where := missing(v, h[i]); where != "" {
				return "[]" + where
			}
		}
		return ""
	}
	if diff := cmp.Diff(want, have); diff != "" {
		return " (-want +have):\n" + diff
	}
	return ""
}

// sameObjects checks that what was there before and is there now was not made anew.
func sameObjects(t *testing.T, after string, before, now map[string]object) {
	t.Helper()
	for name, o := range now {
		if was, ok := before[name]; ok && text(was, "metadata", "uid") != text(o, "metadata", "uid") {
			t.Errorf("helm %s makes %s anew", after, name)
		}
	}
}

// lasting is a state without what says how it came about.
func lasting(state map[string]object) map[string]object {
	byID := map[string]object{}
	for name, o := range state {
		o = maps.Clone(o)
		meta := maps.Clone(at(o, "metadata").(object))
		for _, key := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"} {
			delete(meta, key)
		}
		o["metadata"] = meta
		delete(o, "status")
		byID[name] = o
	}
	return byID
}

// deployment is that of the picker.
func deployment(t *testing.T, state map[string]object) object {
	t.Helper()
	all := ofKind(slices.Collect(maps.Values(state)), "Deployment")
	if len(all) != 1 {
		t.Fatalf("%d Deployments", len(all))
	}
	return all[0]
}
