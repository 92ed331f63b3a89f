package testcluster

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

func pool(namespace, name string) *inferencev1.InferencePool {
	return &inferencev1.InferencePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: inferencev1.InferencePoolSpec{
			Selector:    inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "llm"}},
			TargetPorts: []inferencev1.Port{{Number: 8000}},
			EndpointPickerRef: &inferencev1.EndpointPickerRef{
				Name: "picker", Port: &inferencev1.Port{Number: 9002},
			},
		},
	}
}

// TestVersion checks that the server is what hack/assets asks for, and knows it:
// what it serves depends on the version it believes to be.
func TestVersion(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v.GitVersion != "v1.36.3" || v.Major != "1" || v.Minor != "36" || v.EmulationMinor != "36" {
		t.Errorf("got %#v", v)
	}
}

// TestKinds creates an object of each kind, and one that its CRD must refuse.
func TestKinds(t *testing.T) {
	ns, c := shared.Namespace(t), shared.Client()
	metadata := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"data": map[string]any{"endpoints": map[string]any{"a/b/c/1": map[string]any{"type": "Endpoint"}}}},
	}}
	metadata.SetGroupVersionKind(schema.GroupVersionKind{Group: "nvidia.com", Version: "v1alpha1", Kind: "DynamoWorkerMetadata"})
	metadata.SetNamespace(ns)
	metadata.SetName("pod-0")
	objects := []client.Object{
		pool(ns, "llm"),
		metadata,
		&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "llm"}},
		&v1alpha1.RoutingPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "llm"},
			Spec: v1alpha1.PoolRoutingSpec{TargetRef: v1alpha1.PolicyTarget{
				Group: "inference.networking.k8s.io", Kind: "InferencePool", Name: "llm",
			}},
		},
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(metadata.GroupVersionKind())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(metadata), got); err != nil {
		t.Fatal(err)
	}
	if kind, _, _ := unstructured.NestedString(got.Object, "spec", "data", "endpoints", "a/b/c/1", "type"); kind != "Endpoint" {
		t.Errorf("the free JSON of %v was pruned", got.Object)
	}
	bad := pool(ns, "bad")
	bad.Spec.TargetPorts = nil
	if err := c.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("a pool without ports: %v", err)
	}
}

// TestCRDsComeAndGo installs and removes kinds in a cluster that began with none.
func TestCRDsComeAndGo(t *testing.T) {
	c := StartFor(t, Options{CRDs: []CRDs{}})
	ns := c.Namespace(t)
	if err := c.Client().Create(t.Context(), pool(ns, "a")); !meta.IsNoMatchError(err) {
		t.Errorf("without the CRD: %v", err)
	}
	c.InstallCRDs(t, OldInferencePools)
	if err := c.Client().Create(t.Context(), pool(ns, "a")); !meta.IsNoMatchError(err) {
		t.Errorf("with the CRD of the old group: %v", err)
	}
	old := &unstructured.Unstructured{}
	old.SetAPIVersion("inference.networking.x-k8s.io/v1alpha2")
	old.SetKind("InferencePool")
	old.SetNamespace(ns)
	old.SetName("a")
	if err := c.Client().Create(t.Context(), old); err != nil {
		t.Error(err)
	}
	c.InstallCRDs(t, InferencePools)
	if err := c.Client().Create(t.Context(), pool(ns, "a")); err != nil {
		t.Error(err)
	}
	c.RemoveCRDs(t, InferencePools)
	if err := c.Client().Create(t.Context(), pool(ns, "b")); err == nil {
		t.Error("a pool was created though its kind is gone")
	}
}

// TestPods takes a pod through its life.
func TestPods(t *testing.T) {
	ns := shared.Namespace(t)
	shared.CreatePod(t, Pod{Namespace: ns, Name: "p", Labels: map[string]string{"app": "llm"}, IPs: []string{"10.0.0.1", "fd00::1"}})
	get := func() *corev1.Pod {
		t.Helper()
		pod := new(corev1.Pod)
		if err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "p"}, pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	if p := get(); !isReady(p) || p.Labels["app"] != "llm" || p.Status.PodIP != "10.0.0.1" || len(p.Status.PodIPs) != 2 {
		t.Errorf("got labels %v status %+v", p.Labels, p.Status)
	}
	shared.SetReady(t, ns, "p", false)
	if p := get(); isReady(p) || p.Status.ContainerStatuses[0].Ready {
		t.Errorf("ready still: %+v", p.Status)
	}
	shared.SetContainerReady(t, ns, "p", "main", true)
	if !isReady(get()) {
		t.Error("not ready though its container is")
	}
	shared.SetIPs(t, ns, "p", "10.0.0.2")
	if p := get(); p.Status.PodIP != "10.0.0.2" || len(p.Status.PodIPs) != 1 {
		t.Errorf("addresses %+v", p.Status)
	}
	shared.Restart(t, ns, "p", "main")
	shared.Restart(t, ns, "p", "")
	if n := get().Status.ContainerStatuses[0].RestartCount; n != 2 {
		t.Errorf("%d restarts", n)
	}
	shared.TerminatePod(t, ns, "p")
	if get().DeletionTimestamp == nil {
		t.Error("not terminating")
	}
	shared.DeletePod(t, ns, "p")
	err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "p"}, new(corev1.Pod))
	if !apierrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// TestRBAC gives a service account one verb and checks that it has no other, also
// by way of a file.
func TestRBAC(t *testing.T) {
	ns := shared.Namespace(t)
	meta := metav1.ObjectMeta{Namespace: ns, Name: "reader"}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "reader", Namespace: ns}},
		},
	} {
		if err := shared.Client().Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := shared.ServiceAccountConfig(t, ns, "reader")
	path := Kubeconfig(t, config, ns)
	fromFile, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"config": config, "file": fromFile} {
		c := clientFor(t, config)
		// The authorizer learns of the role a little later.
		eventually(t, name+": pods can be listed", func() bool {
			err := c.List(t.Context(), new(corev1.PodList), client.InNamespace(ns))
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatalf("%s: %v", name, err)
			}
			return err == nil
		})
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "p"}, new(corev1.Pod)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: get a pod: %v", name, err)
		}
		if !shared.May(t, ns, "reader", "list", "", "pods") || shared.May(t, ns, "reader", "get", "", "pods") {
			t.Errorf("%s: May does not say what the API server does", name)
		}
		if err := c.List(t.Context(), new(corev1.PodList), client.InNamespace("default")); !apierrors.IsForbidden(err) {
			t.Errorf("%s: list pods of another namespace: %v", name, err)
		}
	}
}

// clientFor makes a client whose connections end with the test.
func clientFor(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIdle(config) })
	return c
}

// TestOutage takes the API server away and back.
func TestOutage(t *testing.T) {
	c := StartFor(t, Options{})
	ns := c.Namespace(t)
	if err := c.Client().Create(t.Context(), pool(ns, "llm")); err != nil {
		t.Fatal(err)
	}
	host := c.Config().Host
	c.StopAPI()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "llm"}, new(inferencev1.InferencePool)); err == nil {
		t.Error("an API server that is down answers")
	}
	c.StartAPI(t)
	if err := c.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "llm"}, new(inferencev1.InferencePool)); err != nil {
		t.Error(err)
	}
	if got := c.Config().Host; got != host {
		t.Errorf("it came back at %s instead of %s", got, host)
	}
	if c.Address().String() != "127.0.0.1" || !strings.HasPrefix(host, "https://127.0.0.1:") {
		t.Errorf("address %s, host %s", c.Address(), host)
	}
}

// TestClose checks that nothing is left of a cluster.
func TestClose(t *testing.T) {
	c, err := Start(t.Context(), Options{CRDs: []CRDs{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c.api.Running() || c.etcd.Running() {
		t.Error("a process is left")
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
	if resp, err := http.Get(c.etcdURL() + "/readyz"); err == nil {
		resp.Body.Close()
		t.Error("etcd answers")
	}
}

// TestStartFails reports what a program said that does not start.
func TestStartFails(t *testing.T) {
	if _, err := StartProcess("nothing", nil, "/no/such/program"); err == nil || !strings.Contains(err.Error(), "start nothing") {
		t.Errorf("no program: %v", err)
	}
	c := &Cluster{dir: t.TempDir(), binaries: shared.binaries, address: shared.address, etcdPort: shared.etcdPort}
	if err := c.launchAPI(t.Context()); err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("an API server without keys: %v", err)
	}
	if _, err := Start(t.Context(), Options{CRDs: []CRDs{"Unicorns"}}); err == nil || !strings.Contains(err.Error(), "Unicorns") {
		t.Errorf("unknown CRDs: %v", err)
	}
}
