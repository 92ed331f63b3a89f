package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// TestExamples lints and renders each of the example values. What is rendered is in
// testdata/golden, for people to read in a change.
func TestExamples(t *testing.T) {
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := tools.Lint(t.Context(), root, "-f", file); err != nil {
				t.Error(err)
			} else if bytes.Contains(out, []byte("[WARNING]")) {
				t.Errorf("helm lint warns:\n%s", out)
			}
			got := withoutSchemas(render(t, "-f", file))
			golden := filepath.Join("testdata/golden", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; write it with: make chart-golden", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s differs; if that is meant: make chart-golden\n%s", golden, diff)
			}
			all := objects(t, render(t, "-f", file))
			unique(t, all)
			strictConfig(t, all)
		})
	}
}

// withoutSchemas cuts the spec off a CRD: it is long, and kept in config/crd.
func withoutSchemas(rendered []byte) []byte {
	docs := bytes.SplitAfter(rendered, []byte("\n---\n"))
	for i, doc := range docs {
		if head, _, ok := bytes.Cut(doc, []byte("\nspec:\n")); ok && bytes.Contains(head, []byte("\nkind: CustomResourceDefinition\n")) {
			docs[i] = append(slices.Clip(head), "\nspec: ... # as in config/crd\n---\n"...)
		}
	}
	return bytes.Join(docs, nil)
}

// TestEveryPresetHasAnExample keeps the examples complete.
func TestEveryPresetHasAnExample(t *testing.T) {
	var schema struct {
		Properties struct {
			Gateway struct {
				Properties struct {
					Preset struct{ Enum []string }
				}
			}
		}
	}
	readYAML(t, filepath.Join(root, "charts/warmpath/values.schema.json"), &schema)
	presets := schema.Properties.Gateway.Properties.Preset.Enum
	if len(presets) < 8 {
		t.Fatalf("presets in the schema: %q", presets)
	}
	used := []string{"none"}
	for _, file := range examples(t) {
		var values struct{ Gateway struct{ Preset string } }
		readYAML(t, file, &values)
		used = append(used, values.Gateway.Preset)
	}
	for _, preset := range presets {
		if !slices.Contains(used, preset) {
			t.Errorf("charts/warmpath/ci has no values with gateway.preset %s", preset)
		}
	}
}

// inNoNamespace are kinds whose objects belong to the whole cluster.
var inNoNamespace = []string{"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}

// unique fails when two objects are one for the API server.
func unique(t *testing.T, all []object) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range all {
		key := text(o, "apiVersion") + " " + id(o)
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if ns := text(o, "metadata", "namespace"); ns == "" && !slices.Contains(inNoNamespace, text(o, "kind")) {
			t.Errorf("%s has no namespace", key)
		}
	}
}

// strictConfig decodes the configuration as the picker does.
func strictConfig(t *testing.T, all []object) *v1alpha1.EndpointPickerConfig {
	t.Helper()
	for _, o := range ofKind(all, "ConfigMap") {
		if data := text(o, "data", "config.yaml"); data != "" {
			cfg, err := v1alpha1.Decode([]byte(data), "config.yaml")
			if err != nil {
				t.Errorf("the picker refuses its configuration: %v\n%s", err, data)
			}
			return cfg
		}
	}
	t.Error("no ConfigMap holds config.yaml")
	return nil
}

// TestConfig checks what values become in the configuration.
func TestConfig(t *testing.T) {
	file := examples(t)
	config := func(args ...string) *v1alpha1.EndpointPickerConfig {
		t.Helper()
		return strictConfig(t, objects(t, render(t, args...)))
	}

	plain := config()
	if p := plain.Discovery.Kubernetes.Pool; p == nil || p.Name != "llm-router" || p.Namespace != "demo" {
		t.Errorf("the pool is not the release's: %+v", p)
	}
	if !plain.Spec.EventPlane.TellsRouters() {
		t.Error("two replicas do not tell each other what they place")
	}
	if config("--set", "replicaCount=1").Spec.EventPlane.TellsRouters() {
		t.Error("one replica tells others, though there are none")
	}
	if config("--set", "config.spec.eventPlane.replicaSync=false").Spec.EventPlane.TellsRouters() {
		t.Error("config.spec does not win")
	}

	scaled := []string{"--set", "autoscaling.enabled=true,autoscaling.minReplicas=1,replicaCount=1"}
	if !config(scaled...).Spec.EventPlane.TellsRouters() {
		t.Error("autoscaling from one replica on: those that come do not tell each other what they place")
	}
	if len(ofKind(objects(t, render(t, scaled...)), "PodDisruptionBudget")) != 1 {
		t.Error("autoscaling from one replica on: no PodDisruptionBudget")
	}
	scaled[1] += ",autoscaling.maxReplicas=1"
	if config(scaled...).Spec.EventPlane.TellsRouters() {
		t.Error("autoscaling up to one replica: it tells others, though there are none")
	}

	secure := config("-f", file["istio-tls"])
	nats := secure.Spec.EventPlane.NATS
	if nats.UserFile != "/etc/warmpath/secrets/nats-user/username" || nats.PasswordFile != "/etc/warmpath/secrets/nats-user/password" {
		t.Errorf("user and password: %q %q", nats.UserFile, nats.PasswordFile)
	}
	if nats.TLS == nil || nats.TLS.CAFile != "/etc/warmpath/secrets/nats-tls/ca.crt" || nats.TLS.CertFile != "/etc/warmpath/secrets/nats-tls/tls.crt" {
		t.Errorf("TLS: %+v", nats.TLS)
	}
	if tls := secure.Server.ExtProcTLS; tls == nil || tls.CertFile != "/etc/warmpath/secrets/picker-tls/tls.crt" || tls.SelfSigned {
		t.Errorf("TLS of ext-proc: %+v", tls)
	}
	if c := config("-f", file["gke"]); c.Server.ExtProcTLS == nil || !c.Server.ExtProcTLS.SelfSigned || c.Spec.EventPlane.NATS.CredentialsFile != "/etc/warmpath/secrets/nats/user.creds" {
		t.Errorf("gke: %+v %+v", c.Server.ExtProcTLS, c.Spec.EventPlane.NATS)
	}
	if c := config("-f", file["envoy-gateway"]); c.Spec.EventPlane.NATS.NKeyFile != "/etc/warmpath/secrets/nats/seed" {
		t.Errorf("nkey: %+v", c.Spec.EventPlane.NATS)
	}
	if c := config("-f", file["envoy-ai-gateway"]); c.Spec.EventPlane.NATS.TokenFile != "/etc/warmpath/secrets/nats/token" {
		t.Errorf("token: %+v", c.Spec.EventPlane.NATS)
	}
	if c := config("-f", file["embedded-nats"]); c.Server.EmbeddedNATS == nil || c.Server.EmbeddedNATS.Address != ":4222" || c.Spec.EventPlane.NATS.URL != "" {
		t.Errorf("embedded: %+v %+v", c.Server.EmbeddedNATS, c.Spec.EventPlane.NATS)
	}
	if c := config("-f", file["standalone-envoy"]); c.Discovery.Kubernetes.Pool != nil || c.Discovery.Kubernetes.Selector == nil {
		t.Errorf("selector: %+v", c.Discovery.Kubernetes)
	}
	if d := config("-f", file["volumes"]).Spec.Tokenizer.InProcess.Source.Directory; d == nil || d.Path != "/etc/warmpath/model/qwen3" {
		t.Errorf("pvc: %+v", d)
	}
	if d := config("-f", file["oci-volume"]).Spec.Tokenizer.InProcess.Source.Directory; d == nil || d.Path != "/etc/warmpath/model" {
		t.Errorf("ociVolume: %+v", d)
	}
	c := config("-f", file["production"])
	if h := c.Spec.Tokenizer.InProcess.Source.HuggingFace; h == nil || h.Repository != "org/model" || h.Hub.TokenFile != "/etc/warmpath/secrets/hub/token" || h.Hub.CacheDir == "" {
		t.Errorf("huggingFace: %+v", h)
	}
	if c.Server.MaxIndexBytes != 8589934592 || c.Spec.BlockSize != 32 || c.Spec.EventPlane.TellsRouters() {
		t.Errorf("config is not verbatim: %+v", c.Server)
	}
}

// TestMountsHoldWhatTheConfigNames checks that each file that a configuration names
// is below a mount of the container that it is for.
func TestMountsHoldWhatTheConfigNames(t *testing.T) {
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(t, render(t, "-f", file))
			picker := podOf(t, all, "Deployment", "epp")
			var mounts []string
			for _, m := range list(picker.container["volumeMounts"]) {
				path := text(m, "mountPath")
				mounts = append(mounts, path)
				// A policy may name files below /etc/warmpath only.
				if !strings.HasPrefix(path, "/etc/warmpath/") && text(m, "name") != "model-cache" {
					t.Errorf("%s is mounted at %s, where no policy can name it", text(m, "name"), path)
				}
			}
			for _, path := range filesIn(strictConfig(t, all)) {
				if !slices.ContainsFunc(mounts, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
					t.Errorf("nothing is mounted at %s; there is %q", path, mounts)
				}
			}
			for _, v := range list(picker.spec["volumes"]) {
				if s, ok := v["secret"].(object); ok && s["optional"] != true {
					t.Errorf("without Secret %v no picker starts to say so", s["secretName"])
				}
			}
		})
	}
}

// filesIn lists the files and folders that a configuration names.
func filesIn(c *v1alpha1.EndpointPickerConfig) []string {
	n := c.Spec.EventPlane.NATS
	paths := []string{n.CredentialsFile, n.NKeyFile, n.UserFile, n.PasswordFile, n.TokenFile}
	if n.TLS != nil {
		paths = append(paths, n.TLS.CAFile, n.TLS.CertFile, n.TLS.KeyFile)
	}
	if t := c.Server.ExtProcTLS; t != nil {
		paths = append(paths, t.CertFile, t.KeyFile)
	}
	if s := c.Spec.Tokenizer.InProcess.Source; s.Directory != nil {
		paths = append(paths, s.Directory.Path)
	} else if s.HuggingFace != nil {
		paths = append(paths, s.HuggingFace.Hub.TokenFile, s.HuggingFace.Hub.CacheDir)
	}
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}
