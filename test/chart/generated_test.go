package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGenerated checks that what make writes into the chart is up to date.
func TestGenerated(t *testing.T) {
	t.Run("CRD", func(t *testing.T) {
		const name = "routing.warmpath.dev_routingpolicies.yaml"
		if diff := cmp.Diff(readFile(t, "config/crd/"+name), readFile(t, "charts/warmpath/files/crds/"+name)); diff != "" {
			t.Errorf("the chart has another CRD than config/crd; run: make manifests\n%s", diff)
		}
	})
	t.Run("schema", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "values.schema.json")
		cmd := exec.CommandContext(t.Context(), "go", "run", "./valuesschema", "-values", "../../charts/warmpath/values.yaml",
			"-config", "../../config/schema/endpointpickerconfig.schema.json", "-out", out)
		cmd.Dir = filepath.Join(root, "hack/helm")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		compare(t, out, "charts/warmpath/values.schema.json")
	})
	t.Run("README", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"Chart.yaml", "values.yaml", "README.md.gotmpl"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(readFile(t, "charts/warmpath/"+name)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), tools.Docs, "--log-level", "warning")
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		compare(t, filepath.Join(dir, "README.md"), "charts/warmpath/README.md")
		for row := range strings.SplitSeq(readFile(t, "charts/warmpath/README.md"), "\n") {
			if strings.HasPrefix(row, "| ") && strings.HasSuffix(row, "|  |") {
				t.Errorf("values.yaml does not say what this is: %s", row)
			}
		}
	})
}

func compare(t *testing.T, generated, kept string) {
	t.Helper()
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), readFile(t, kept)); diff != "" {
		t.Errorf("%s is not up to date; run: make chart\n%s", kept, diff)
	}
}
