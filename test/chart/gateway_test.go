package chart

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestPickerPort checks that gateways speak HTTP/2 to the port that the pool names.
func TestPickerPort(t *testing.T) {
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(t, render(t, "-f", file))
			services := map[string]object{}
			for _, s := range ofKind(all, "Service") {
				services[text(s, "metadata", "name")] = s
			}
			picker := text(ofKind(all, "Deployment")[0], "metadata", "name")
			port := list(at(services[picker], "spec", "ports"))[0]
			if text(port, "name") != "grpc-ext-proc" || port["port"] != float64(9002) {
				t.Errorf("the picker's first port is %v", port)
			}
			want := "kubernetes.io/h2c"
			if name == "gke" { // with TLS
				want = "HTTP2"
			}
			if port["appProtocol"] != want {
				t.Errorf("appProtocol is %v, want %s", port["appProtocol"], want)
			}
			for _, pool := range ofKind(all, "InferencePool") {
				ref := at(pool, "spec", "endpointPickerRef").(object)
				if ref["name"] != picker || at(ref, "port", "number") != port["port"] {
					t.Errorf("the pool names another picker: %v", ref)
				}
			}
			for _, route := range ofKind(all, "HTTPRoute") {
				backend := list(list(at(route, "spec", "rules"))[0]["backendRefs"])[0]
				if backend["name"] != text(ofKind(all, "InferencePool")[0], "metadata", "name") {
					t.Errorf("the route leads to %v", backend)
				}
			}
		})
	}
}

// TestPresets checks what each preset adds, and that it adds nothing else.
func TestPresets(t *testing.T) {
	foreign := func(all []object) string {
		var kinds []string
		for _, o := range all {
			if group, _, _ := strings.Cut(text(o, "apiVersion"), "/"); strings.HasSuffix(group, "istio.io") || strings.HasSuffix(group, "gke.io") || strings.HasSuffix(group, "envoyproxy.io") {
				kinds = append(kinds, text(o, "kind"))
			}
		}
		return strings.Join(kinds, " ")
	}
	for name, want := range map[string]string{
		"istio":            "", // without TLS it needs nothing
		"istio-tls":        "DestinationRule",
		"gke":              "GCPBackendPolicy HealthCheckPolicy",
		"envoy-gateway":    "BackendTrafficPolicy",
		"envoy-ai-gateway": "BackendTrafficPolicy ClientTrafficPolicy",
		"agentgateway":     "",
		"kgateway":         "",
	} {
		all := objects(t, render(t, "-f", examples(t)[name]))
		if got := foreign(all); got != want {
			t.Errorf("%s adds %q, want %q", name, got, want)
		}
	}
	rule := ofKind(objects(t, render(t, "-f", examples(t)["istio-tls"])), "DestinationRule")[0]
	if text(rule, "spec", "host") != "llm-router-warmpath.demo.svc.cluster.local" || text(rule, "spec", "trafficPolicy", "tls", "mode") != "SIMPLE" {
		t.Errorf("DestinationRule: %v", rule["spec"])
	}
}

// TestStandaloneEnvoy lets Envoy read its configurations.
func TestStandaloneEnvoy(t *testing.T) {
	envoy, err := gateway.InstallEnvoy(context.WithoutCancel(t.Context()), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"closed":        {"-f", examples(t)["standalone-envoy"]},
		"closed, TLS":   {"-f", examples(t)["standalone-envoy"], "--set", "extProcTLS.enabled=true"},
		"closed, h2c":   {"-f", examples(t)["standalone-envoy"], "--set", "inferencePool.appProtocol=kubernetes.io/h2c"},
		"open, TLS":     {"-f", examples(t)["standalone-envoy-failopen"]},
		"open, no TLS":  {"-f", examples(t)["standalone-envoy-failopen"], "--set", "extProcTLS.enabled=false"},
		"open, of IPv6": {"-f", examples(t)["standalone-envoy-failopen"], "--set", "gateway.standaloneEnvoy.listenAddress=::"},
		"open, short":   {"-f", examples(t)["standalone-envoy-failopen"], "--set", "config.server.maxBodyBytes=2097152"},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, args...))
			config := ""
			for _, m := range ofKind(all, "ConfigMap") {
				config += text(m, "data", "envoy.yaml")
			}
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", file, "-l", "warn").CombinedOutput(); err != nil {
				t.Errorf("Envoy refuses it: %v\n%s\n%s", err, out, config)
			}
			longest := "67108864"
			if name == "open, short" {
				longest = "2097152"
			}
			if !strings.Contains(config, "request_body_buffer_limit: "+longest+"\n") {
				t.Error("Envoy does not take as long bodies as the picker")
			}
			if open := strings.Contains(config, "override_host"); open != strings.HasPrefix(name, "open") {
				t.Errorf("follows a list of workers: %v", open)
			}
		})
	}
}

// TestNotes checks what a user is told after the installation.
func TestNotes(t *testing.T) {
	notes := func(args ...string) string {
		t.Helper()
		out, err := tools.Notes(t.Context(), root, "llm-router", "demo", args...)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"plain":    {nil, []string{"kubectl -n demo get rp", "name: llm-router-warmpath", "NO NATS SERVER IS NAMED", "routingPolicy.create=true"}},
		"embedded": {[]string{"-f", examples(t)["embedded-nats"]}, []string{"trials only", "NATS_SERVER=nats://llm-router-warmpath-nats.demo:4222", "DYN_EVENT_PLANE=nats"}},
		"istio":    {[]string{"-f", examples(t)["istio"]}, []string{"InferencePool llm was made"}},
		"envoy":    {[]string{"-f", examples(t)["standalone-envoy"]}, []string{"http://llm-router-warmpath-envoy.demo:80/", "ext-proc at"}},
	} {
		got := notes(tc.args...)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the notes do not say %q:\n%s", name, want, got)
			}
		}
		if name != "plain" && strings.Contains(got, "NO NATS") {
			t.Errorf("%s: the notes miss a NATS server that is there", name)
		}
	}
}
