package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// TestKustomizeIsTheChart compares config/default with what the chart renders for a
// release warmpath as it comes: they must not drift apart.
func TestKustomizeIsTheChart(t *testing.T) {
	built, err := tools.Build(t.Context(), filepath.Join(root, "config/default"))
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := tools.Template(t.Context(), root, "warmpath", "default")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(t, objects(t, rendered)), plain(t, objects(t, built))); diff != "" {
		t.Errorf("config/default differs from the chart (-chart +kustomize):\n%s", diff)
	}
}

// plain is a list of objects as a map, without what each of the two ways of
// installing adds for itself.
func plain(t *testing.T, all []object) map[string]object {
	t.Helper()
	byID := map[string]object{}
	for _, o := range all {
		meta := at(o, "metadata").(object)
		if text(o, "kind") == "Pod" { // helm test
			continue
		}
		if text(o, "kind") == "ConfigMap" { // kustomize adds a checksum to the name
			meta["name"] = "warmpath"
			o["data"] = plainConfig(t, o)
		}
		owners(meta)
		if template, ok := at(o, "spec", "template", "metadata").(object); ok {
			owners(template)
			for _, v := range list(podSpec(o)["volumes"]) {
				if m, ok := v["configMap"].(object); ok {
					m["name"] = "warmpath"
				}
			}
		}
		byID[id(o)] = o
	}
	return byID
}

// owners removes the marks of the installer.
func owners(meta object) {
	if labels, ok := meta["labels"].(object); ok {
		delete(labels, "helm.sh/chart")
		delete(labels, "app.kubernetes.io/managed-by")
		if len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	if annotations, ok := meta["annotations"].(object); ok {
		delete(annotations, "helm.sh/resource-policy")
		delete(annotations, "checksum/config")
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if text(object{"m": meta}, "m", "name") == "routingpolicies.routing.warmpath.dev" {
		delete(meta, "labels") // kustomize labels the CRD, too
	}
}

// plainConfig is the configuration as the picker reads it; kustomize leaves the
// namespace to POD_NAMESPACE.
func plainConfig(t *testing.T, configMap object) *v1alpha1.EndpointPickerConfig {
	t.Helper()
	cfg := strictConfig(t, []object{configMap})
	cfg.Discovery.Kubernetes.Pool.Namespace = ""
	return cfg
}

// TestDeploy checks what make deploy sets.
func TestDeploy(t *testing.T) {
	image := "registry.example.com:5000/a/epp@sha256:" + strings.Repeat("ab", 32)
	// A copy, since make writes into dist.
	dir := t.TempDir()
	for _, name := range []string{"Makefile", "config"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(root, name), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	kubectl := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\necho \"$@\"; case \"$*\" in *-f\\ -) cat;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(target string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", "-s", target, "KUSTOMIZE="+tools.Kustomize, "KUBECTL="+kubectl, "NAMESPACE=models", "POOL=llm", "IMG="+image)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
		return string(out)
	}
	if out := run("deploy"); !strings.Contains(out, "apply --server-side -f dist/deploy/all.yaml") {
		t.Errorf("make deploy runs kubectl %s", out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "dist/deploy/all.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, data)
	if got := podOf(t, all, "Deployment", "epp").container["image"]; got != image {
		t.Errorf("image %v", got)
	}
	if p := strictConfig(t, all).Discovery.Kubernetes.Pool; p.Name != "llm" {
		t.Errorf("pool %+v", p)
	}
	if _, ok := rightsOf(ofKind(all, "Role")[0])["leases.coordination.k8s.io llm-warmpath"]; !ok {
		t.Error("the Role is for the lease of another pool")
	}
	for _, o := range all {
		if ns := at(o, "metadata", "namespace"); ns != "models" && text(o, "kind") != "CustomResourceDefinition" {
			t.Errorf("%s is in namespace %v", id(o), ns)
		}
	}
	var removed []string
	for line := range strings.SplitSeq(run("undeploy"), "\n") {
		if kind, ok := strings.CutPrefix(line, "kind: "); ok {
			removed = append(removed, kind)
		}
	}
	if len(removed) != len(all)-1 || slices.Contains(removed, "CustomResourceDefinition") {
		t.Errorf("make undeploy removes %q", removed)
	}
}

// TestSamples checks that the objects of each sample fit each other. The test with
// an API server applies them.
func TestSamples(t *testing.T) {
	for _, name := range samples {
		t.Run(name, func(t *testing.T) {
			all := objects(t, []byte(readFile(t, "config/samples/"+name)))
			var kinds []string
			for _, o := range all {
				kinds = append(kinds, text(o, "kind"))
			}
			if !slices.Equal(kinds, []string{"InferencePool", "HTTPRoute", "RoutingPolicy"}) {
				t.Fatalf("holds %q", kinds)
			}
			pool, route, policy := all[0], all[1], all[2]
			poolName := text(pool, "metadata", "name")
			if backend := list(list(at(route, "spec", "rules"))[0]["backendRefs"])[0]; backend["name"] != poolName || backend["kind"] != "InferencePool" {
				t.Errorf("the route leads to %v", backend)
			}
			if ref := text(policy, "spec", "targetRef", "name"); ref != poolName {
				t.Errorf("the policy is for %s", ref)
			}
			// The picker is the one of: helm install <pool> charts/warmpath.
			rendered, err := tools.Template(t.Context(), root, poolName, "default", "--set", "crds.enabled=false")
			if err != nil {
				t.Fatal(err)
			}
			if ref := text(pool, "spec", "endpointPickerRef", "name"); ref != text(ofKind(objects(t, rendered), "Service")[0], "metadata", "name") {
				t.Errorf("the pool names the picker %s", ref)
			}
			spec := at(policy, "spec").(object)
			delete(spec, "targetRef")
			config := object{
				"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindEndpointPickerConfig,
				"discovery": object{"kubernetes": object{"pool": object{"name": poolName}}},
				"spec":      spec,
			}
			data, err := yaml.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v1alpha1.Decode(data, name); err != nil {
				t.Errorf("the picker refuses the policy: %v", err)
			}
		})
	}
}

var samples = []string{"dynamo-disaggregated.yaml", "vllm-disaggregated.yaml", "aggregated.yaml"}
