package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// example is one policy of testdata/policies. Above each of them a comment names
// the rule of the CRD that it is about, and what the API server says (want), or only
// the picker does (go).
type example struct {
	at                 string // file and number
	rule, want, picker string
	policy             *unstructured.Unstructured
}

// functions write what is long.
var functions = template.FuncMap{
	"repeat": func(s string, n int) string { return strings.Repeat(s, n) },
	"items": func(prefix string, n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("%q", fmt.Sprint(prefix, i))
		}
		return "[" + strings.Join(list, ", ") + "]"
	},
	"objectives": func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("{name: o%d}", i)
		}
		return "[" + strings.Join(list, ", ") + "]"
	},
	"classes": func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("{name: c%d, temperature: 0}", i)
		}
		return "[" + strings.Join(list, ", ") + "]"
	},
	"headers": func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("{name: x-%d, value: RequestID}", i)
		}
		return "[" + strings.Join(list, ", ") + "]"
	},
}

// examples reads those of a folder.
func examples(t *testing.T, kind string) (list []example) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "policies", kind, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s policies: %v", kind, err)
	}
	for _, name := range files {
		var text bytes.Buffer
		if err := template.Must(template.New(filepath.Base(name)).Funcs(functions).ParseFiles(name)).Execute(&text, nil); err != nil {
			t.Fatal(err)
		}
		for i, doc := range strings.Split(text.String(), "\n---\n") {
			e := example{at: fmt.Sprintf("%s/%s#%d", kind, filepath.Base(name), i+1), policy: &unstructured.Unstructured{}}
			if err := yaml.UnmarshalStrict([]byte(doc), &e.policy.Object); err != nil {
				t.Fatalf("%s: %v", e.at, err)
			}
			for line := range strings.Lines(doc) {
				key, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "# ")), ": ")
				switch key {
				case "# rule", "rule":
					e.rule = value
				case "want":
					e.want = value
				case "go":
					e.picker = value
				}
			}
			complete(&e)
			list = append(list, e)
		}
	}
	return list
}

// complete adds what all policies have, where an example is not about that.
func complete(e *example) {
	o := e.policy.Object
	o["apiVersion"], o["kind"] = v1alpha1.APIVersion, "RoutingPolicy"
	o["metadata"] = map[string]any{"name": "example"}
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		o["spec"] = spec
	}
	if e.rule == "spec required" {
		return
	}
	target, ok := spec["targetRef"].(map[string]any)
	if !ok {
		target = map[string]any{}
		spec["targetRef"] = target
	}
	if _, ok := target["name"]; !ok && e.rule != "spec.targetRef required" {
		target["name"] = "pool"
	}
}

// dryRun asks the API server what it would say of a policy.
func dryRun(t *testing.T, ns string, policy *unstructured.Unstructured) error {
	t.Helper()
	policy.SetNamespace(ns)
	return shared.Client().Create(t.Context(), policy, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// fileWithNATS is what the configuration file of a picker in a cluster says.
func fileWithNATS() *v1alpha1.RoutingPolicySpec {
	var file v1alpha1.RoutingPolicySpec
	file.EventPlane.NATS.URL = "nats://nats:4222"
	file.Default()
	return &file
}

func TestCRDRefusesBadPolicies(t *testing.T) {
	ns := shared.Namespace(t)
	for _, e := range examples(t, "bad") {
		switch err := dryRun(t, ns, e.policy); {
		case e.want == "":
			t.Errorf("%s does not say what the API server says", e.at)
		case err == nil:
			t.Errorf("%s (%s) was taken", e.at, e.rule)
		case !strings.Contains(err.Error(), e.want):
			t.Errorf("%s (%s): %v, want %q", e.at, e.rule, err, e.want)
		case strings.Count(err.Error(), "\n") > 0, !strings.Contains(squeeze(err.Error()), field(e.rule)):
			t.Errorf("%s (%s): %v does not name the field", e.at, e.rule, err)
		}
	}
}

// field is the path of the field that a rule is about.
func field(rule string) string {
	path, _, _ := strings.Cut(rule, " ")
	return strings.ReplaceAll(path, "[]", "")
}

// squeeze takes the positions in lists out of paths.
func squeeze(text string) string {
	for i := range 2000 {
		if !strings.Contains(text, "[") {
			break
		}
		text = strings.ReplaceAll(text, fmt.Sprintf("[%d]", i), "")
	}
	return text
}

// What the API server takes the picker takes, too, after it has read it back with
// the defaults of the CRD.
func TestCRDTakesGoodPolicies(t *testing.T) {
	ns := shared.Namespace(t)
	for _, e := range examples(t, "good") {
		if err := dryRun(t, ns, e.policy); err != nil {
			t.Errorf("%s (%s): %v", e.at, e.rule, err)
			continue
		}
		switch err := pickerSays(t, e.policy); {
		case e.picker == "" && err != nil:
			t.Errorf("%s (%s): the picker says %v", e.at, e.rule, err)
		case e.picker != "" && (err == nil || !strings.Contains(err.Error(), e.picker)):
			t.Errorf("%s (%s): the picker says %v, want %q", e.at, e.rule, err, e.picker)
		}
	}
}

func pickerSays(t *testing.T, policy *unstructured.Unstructured) error {
	t.Helper()
	data, err := policy.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var typed v1alpha1.RoutingPolicy
	if err := json.Unmarshal(data, &typed); err != nil {
		return err
	}
	_, err = effective(&typed, configOf(fileWithNATS(), []string{"/"}))
	return err
}

// Every rule of the CRD has a bad policy and a good one beside it.
func TestEveryRuleHasExamples(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	data, err := os.ReadFile("../../config/crd/routing.warmpath.dev_routingpolicies.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(data, &crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	rules := map[string]bool{}
	collectRules(&spec, "spec", rules)
	if len(rules) < 150 {
		t.Errorf("only %d rules were found", len(rules))
	}
	for _, kind := range []string{"good", "bad"} {
		shown := map[string]bool{}
		for _, e := range examples(t, kind) {
			shown[e.rule] = true
			if !rules[e.rule] {
				t.Errorf("%s: the CRD has no rule %q", e.at, e.rule)
			}
		}
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			if !shown[rule] {
				t.Errorf("no %s policy for the rule %q", kind, rule)
			}
		}
	}
}

// collectRules adds the rules of a schema and of those below it.
func collectRules(s *apiextensionsv1.JSONSchemaProps, path string, rules map[string]bool) {
	for name, set := range map[string]bool{
		"minimum": s.Minimum != nil, "maximum": s.Maximum != nil, "pattern": s.Pattern != "", "enum": len(s.Enum) > 0,
		"minLength": s.MinLength != nil, "maxLength": s.MaxLength != nil, "minItems": s.MinItems != nil, "maxItems": s.MaxItems != nil,
		"required": len(s.Required) > 0, "set": s.XListType != nil && *s.XListType == "set",
	} {
		if set {
			rules[path+" "+name] = true
		}
	}
	if len(s.XListMapKeys) > 0 {
		rules[path+" map "+strings.Join(s.XListMapKeys, " ")] = true
	}
	for _, v := range s.XValidations {
		rules[path+" cel "+v.Message] = true
	}
	for name, p := range s.Properties {
		collectRules(&p, path+"."+name, rules)
	}
	if s.Items != nil && s.Items.Schema != nil {
		collectRules(s.Items.Schema, path+"[]", rules)
	}
}

// lawful are bad configuration files whose spec is good in a policy, and why.
var lawful = map[string]string{
	"kubernetes-selector": "the URL comes from the configuration file of the picker",
	"nats-missing":        "the URL comes from the configuration file of the picker",
	"nothing-set":         "the URL comes from the configuration file",
	"topology-nodes-file": "a picker that reads policies is in a cluster",
}

// What is wrong with the spec of a configuration file is wrong with a policy: the
// API server refuses it, or the picker does.
func TestBadFilesAreBadPolicies(t *testing.T) {
	ns := shared.Namespace(t)
	files, err := filepath.Glob("../../api/v1alpha1/testdata/config/*.bad.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	compared := 0
	for _, name := range files {
		want, err := os.ReadFile(strings.TrimSuffix(name, "yaml") + "want")
		if err != nil {
			t.Fatal(err)
		}
		short := strings.TrimSuffix(filepath.Base(name), ".bad.yaml")
		if !strings.Contains(string(want), ": spec.") {
			continue
		}
		compared++
		err = asPolicy(t, ns, name)
		if _, ok := lawful[short]; ok != (err == nil) {
			t.Errorf("%s: %v; the file is refused for %s", short, err, want)
		}
	}
	if compared < 40 {
		t.Errorf("only %d files were compared", compared)
	}
}

// asPolicy makes a policy of the spec of a configuration file.
func asPolicy(t *testing.T, ns, name string) error {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return err // as kubectl says
	}
	e := example{at: name, policy: &unstructured.Unstructured{Object: map[string]any{"spec": file["spec"]}}}
	complete(&e)
	if err := dryRun(t, ns, e.policy); err != nil {
		return err
	}
	return pickerSays(t, e.policy)
}

// configOf is what effective needs: the spec of a configuration file, and the folders
// in which the files of policies must lie.
func configOf(file *v1alpha1.RoutingPolicySpec, folders []string) *Config {
	return &Config{File: file, Discovery: v1alpha1.KubernetesDiscovery{PolicyFileFolders: folders}}
}
