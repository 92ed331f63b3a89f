package chart

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/warmpath/warmpath/internal/testcluster"
)

// start runs the cluster that the tests of this file share; TestMain ends it.
var start = sync.OnceValues(func() (*testcluster.Cluster, error) {
	ctx := context.Background()
	crds, err := foreignCRDs(ctx)
	if err != nil {
		return nil, err
	}
	c, err := testcluster.Start(ctx, testcluster.Options{CRDs: append(testcluster.DefaultCRDs, testcluster.GatewayAPI)})
	if err != nil {
		return nil, err
	}
	started = c
	_, err = envtest.InstallCRDs(c.Config(), envtest.CRDInstallOptions{CRDs: crds})
	return c, err
})

// started is the cluster, if one runs.
var started *testcluster.Cluster

func cluster(t *testing.T) *testcluster.Cluster {
	t.Helper()
	c, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply hands an object to the API server as kubectl apply --server-side does.
// Fields that it does not know are errors.
func apply(t *testing.T, c *testcluster.Cluster, o object, options ...client.PatchOption) {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	options = append(options, client.FieldOwner("test"), client.ForceOwnership, client.FieldValidation(metav1.FieldValidationStrict))
	if err := c.Client().Patch(t.Context(), &unstructured.Unstructured{Object: o}, client.RawPatch(types.ApplyPatchType, data), options...); err != nil {
		t.Errorf("the API server refuses %s: %v", id(o), err)
	}
}

// TestAccepted hands all that the chart renders to a real API server, with the real
// definitions of other people's kinds; but for GKE's, which nobody publishes as a
// module: testdata/crds has what the chart sets of them.
func TestAccepted(t *testing.T) {
	c := cluster(t)
	createNamespace(t, c, "gateways", nil)
	createNamespace(t, c, "demo", nil)
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range objects(t, render(t, "-f", file)) {
				apply(t, c, o, client.DryRunAll)
			}
		})
	}
	t.Run("kustomize", func(t *testing.T) {
		built, err := tools.Build(t.Context(), root+"/config/default")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects(t, built) {
			apply(t, c, o, client.DryRunAll)
		}
	})
	for _, name := range samples {
		t.Run(name, func(t *testing.T) {
			for _, o := range objects(t, []byte(readFile(t, "config/samples/"+name))) {
				at(o, "metadata").(object)["namespace"] = "demo"
				apply(t, c, o)
			}
		})
	}
}

// TestPodsAreAdmitted makes every pod of the chart in a namespace that enforces the
// restricted Pod Security Standard.
func TestPodsAreAdmitted(t *testing.T) {
	c := cluster(t)
	createNamespace(t, c, "restricted", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	create := func(t *testing.T, name string, meta object, spec any) error {
		t.Helper()
		pod := &unstructured.Unstructured{Object: object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": object{"name": name, "namespace": "restricted", "labels": meta["labels"]},
			"spec":     spec,
		}}
		return c.Client().Create(t.Context(), pod, client.DryRunAll)
	}
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range objects(t, render(t, "-f", file)) {
				spec := podSpec(o)
				if spec == nil {
					continue
				}
				delete(spec, "priorityClassName") // there is none here
				if err := create(t, name, at(o, "metadata").(object), spec); err != nil {
					t.Errorf("the pod of %s is refused: %v", id(o), err)
				}
			}
		})
	}
	// It would refuse one that is not restricted.
	spec := podSpec(ofKind(objects(t, render(t, "--set", "podSecurityContext.runAsNonRoot=false")), "Deployment")[0])
	if err := create(t, "root", object{}, spec); err == nil || !strings.Contains(err.Error(), "runAsNonRoot") {
		t.Errorf("nothing is enforced: %v", err)
	}
}

// TestRoleGrants asks the API server what the picker's account may do.
func TestRoleGrants(t *testing.T) {
	c := cluster(t)
	namespace := c.Namespace(t)
	out, err := tools.Template(t.Context(), root, "llm-router", namespace, "--set", "crds.enabled=false,rbac.nodes=true")
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, out)
	for _, kind := range []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		for _, o := range ofKind(all, kind) {
			apply(t, c, o)
		}
	}
	account := text(ofKind(all, "ServiceAccount")[0], "metadata", "name")
	as, err := client.New(c.ServiceAccountConfig(t, namespace, account), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	may := func(verb, resource, name string) bool {
		t.Helper()
		resource, group, _ := strings.Cut(resource, ".")
		resource, sub, _ := strings.Cut(resource, "/")
		in := namespace
		if resource == "nodes" {
			in = ""
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: in, Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name},
		}}
		if err := as.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	for key, verbs := range rights {
		resource, name, _ := strings.Cut(key, " ")
		for verb := range strings.FieldsSeq(verbs) {
			if !may(verb, resource, name) {
				t.Errorf("the picker may not %s %s", verb, key)
			}
		}
	}
	for _, verb := range []string{"list", "watch"} {
		if !may(verb, "nodes", "") {
			t.Errorf("the picker may not %s nodes", verb)
		}
	}
	for _, forbidden := range [][3]string{
		{"get", "nodes", ""},
		{"patch", "nodes", ""},
		{"get", "nodes/proxy", ""},
		{"get", "secrets", ""},
		{"list", "secrets", ""},
		{"create", "pods", ""},
		{"delete", "pods", ""},
		{"update", "inferencepools/status.inference.networking.k8s.io", ""},
		{"update", "routingpolicies.routing.warmpath.dev", ""},
		{"update", "leases.coordination.k8s.io", "another-warmpath"},
		{"list", "services", ""},
	} {
		if may(forbidden[0], forbidden[1], forbidden[2]) {
			t.Errorf("the picker may %v", forbidden)
		}
	}
}

func createNamespace(t *testing.T, c *testcluster.Cluster, name string, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := c.Client().Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
}
