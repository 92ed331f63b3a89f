package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rights are all that a picker may do, in the namespace of its pool: verbs by
// resource (and the name it is bound to). Add to it only what the picker cannot do
// without; the Role says what each is for.
var rights = map[string]string{
	"pods":                             "get list watch",
	"dynamoworkermetadatas.nvidia.com": "get list watch",
	"inferencepools.inference.networking.k8s.io": "get list watch",
	"services":                                    "get",
	"routingpolicies.routing.warmpath.dev":        "get list watch",
	"routingpolicies/status.routing.warmpath.dev": "update",
	"events":                     "create patch",
	"leases.coordination.k8s.io": "create",
	"leases.coordination.k8s.io llm-router-warmpath": "get update",
	"inferencepools.inference.networking.x-k8s.io":   "get",

	"inferenceobjectives.llm-d.ai":                         "get list watch",
	"inferenceobjectives.inference.networking.x-k8s.io":    "get list watch",
	"inferencemodelrewrites.llm-d.ai":                      "get list watch",
	"inferencemodelrewrites.inference.networking.x-k8s.io": "get list watch",
}

func TestRights(t *testing.T) {
	all := objects(t, render(t))
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
		if n := len(ofKind(all, kind)); n > 0 {
			t.Errorf("%d objects of kind %s", n, kind)
		}
	}
	roles := ofKind(all, "Role")
	if len(roles) != 1 {
		t.Fatalf("%d Roles", len(roles))
	}
	if diff := cmp.Diff(rights, rightsOf(roles[0])); diff != "" {
		t.Errorf("the Role differs from the table (-want +got):\n%s", diff)
	}
	binding := ofKind(all, "RoleBinding")[0]
	subject := list(binding["subjects"])[0]
	account := ofKind(all, "ServiceAccount")[0]
	if text(binding, "roleRef", "name") != text(roles[0], "metadata", "name") || text(subject, "name") != text(account, "metadata", "name") {
		t.Errorf("the binding binds %v to %v", binding["roleRef"], subject)
	}
	if got := podOf(t, all, "Deployment", "epp").spec["serviceAccountName"]; got != subject["name"] {
		t.Errorf("the pods run as %v", got)
	}
}

// TestRightsOverNodes: who asks for labels of nodes gets the right to them, over the
// cluster, and nothing else. Releases of two namespaces make two ClusterRoles.
func TestRightsOverNodes(t *testing.T) {
	all := objects(t, render(t, "--set", "rbac.nodes=true,config.spec.topology.labelsFrom=PodsAndNodes"))
	roles, bindings := ofKind(all, "ClusterRole"), ofKind(all, "ClusterRoleBinding")
	if len(roles) != 1 || len(bindings) != 1 {
		t.Fatalf("%d ClusterRoles, %d bindings", len(roles), len(bindings))
	}
	if diff := cmp.Diff(map[string]string{"nodes": "list watch"}, rightsOf(roles[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rights, rightsOf(ofKind(all, "Role")[0])); diff != "" {
		t.Errorf("the Role changes, too (-want +got):\n%s", diff)
	}
	name := text(roles[0], "metadata", "name")
	subject, account := list(bindings[0]["subjects"])[0], ofKind(all, "ServiceAccount")[0]
	if text(bindings[0], "roleRef", "name") != name || text(bindings[0], "roleRef", "kind") != "ClusterRole" ||
		text(subject, "name") != text(account, "metadata", "name") || text(subject, "namespace") != "demo" {
		t.Errorf("the binding binds %v to %v", bindings[0]["roleRef"], subject)
	}
	out, err := tools.Template(t.Context(), root, "llm-router", "other", "--set", "rbac.nodes=true")
	if err != nil {
		t.Fatal(err)
	}
	if other := text(ofKind(objects(t, out), "ClusterRole")[0], "metadata", "name"); other == name {
		t.Errorf("releases of two namespaces share %s", name)
	}
	// Whoever makes the roles without the chart makes this one, too.
	render(t, "--set", "rbac.create=false,config.spec.topology.labelsFrom=PodsAndNodes")
	// A policy that is not rendered asks for nothing.
	render(t, "--set", "routingPolicy.spec.topology.labelsFrom=PodsAndNodes")
}

// TestRightsWithoutPool checks that a picker of a label selector may do even less.
func TestRightsWithoutPool(t *testing.T) {
	role := ofKind(objects(t, render(t, "-f", examples(t)["standalone-envoy"])), "Role")[0]
	want := map[string]string{"pods": rights["pods"], "dynamoworkermetadatas.nvidia.com": rights["dynamoworkermetadatas.nvidia.com"]}
	if diff := cmp.Diff(want, rightsOf(role)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rightsOf is a Role as a table.
func rightsOf(role object) map[string]string {
	table := map[string]string{}
	for _, rule := range list(role["rules"]) {
		verbs := texts(rule["verbs"])
		slices.Sort(verbs)
		names := texts(rule["resourceNames"])
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range texts(rule["apiGroups"]) {
			for _, resource := range texts(rule["resources"]) {
				for _, name := range names {
					key := strings.TrimSuffix(resource+"."+group, ".")
					table[strings.TrimSpace(key+" "+name)] = strings.Join(verbs, " ")
				}
			}
		}
	}
	return table
}

func texts(v any) []string {
	items, _ := v.([]any)
	var all []string
	for _, i := range items {
		all = append(all, i.(string))
	}
	return all
}
