package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var metric = regexp.MustCompile(`warmpath_[a-z0-9_]+`)

// TestMetricsExist checks that alerts and dashboards ask for metrics that
// docs/operate.md describes; the tests of the documents compare that with what a
// picker serves.
func TestMetricsExist(t *testing.T) {
	operate := readFile(t, "docs/operate.md")
	documented := map[string]bool{}
	for _, name := range metric.FindAllString(operate, -1) {
		documented[name] = true
	}
	files, err := filepath.Glob(filepath.Join(root, "charts/warmpath/files/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range append(files, filepath.Join(root, "charts/warmpath/files/alerts.yaml")) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metric.FindAllString(string(data), -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range names {
			if !documented[name] {
				t.Errorf("%s: docs/operate.md knows no %s", filepath.Base(file), name)
			}
		}
	}
}

// TestAlerts checks the form of the alerts, and that each has a runbook.
func TestAlerts(t *testing.T) {
	rules := ofKind(objects(t, render(t, "-f", examples(t)["production"])), "PrometheusRule")
	if len(rules) != 1 {
		t.Fatalf("%d PrometheusRules", len(rules))
	}
	runbooks := readFile(t, "docs/runbooks.md")
	alerts := 0
	for _, rule := range list(list(at(rules[0], "spec", "groups"))[0]["rules"]) {
		name := text(rule, "alert")
		if name == "" {
			continue // a recording rule of the example
		}
		alerts++
		if !strings.HasPrefix(name, "Warmpath") || text(rule, "labels", "severity") == "" || text(rule, "for") == "" ||
			text(rule, "annotations", "summary") == "" || text(rule, "annotations", "description") == "" {
			t.Errorf("%s lacks something: %v", name, rule)
		}
		if expr := text(rule, "expr"); strings.Contains(expr, "$SELECTOR") || strings.Count(expr, `job="warmpath", namespace="demo"`) != len(metricOrUp.FindAllString(expr, -1)) {
			t.Errorf("%s looks at other releases, too: %s", name, expr)
		}
		if want := "docs/runbooks.md#" + strings.ToLower(name); !strings.HasSuffix(text(rule, "annotations", "runbook_url"), want) {
			t.Errorf("%s: runbook_url %q, want %s", name, text(rule, "annotations", "runbook_url"), want)
		}
		section := sectionOf(runbooks, name)
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Look at.**", "**Do.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("docs/runbooks.md: %s has no %s", name, part)
			}
		}
	}
	if alerts == 0 || alerts > 10 {
		t.Errorf("%d alerts", alerts)
	}
	if n := strings.Count(runbooks, "\n## Warmpath"); n != alerts {
		t.Errorf("%d runbooks for %d alerts", n, alerts)
	}
}

// TestExpressions lets Prometheus' own parser read what it will be asked.
func TestExpressions(t *testing.T) {
	var all []string
	example := objects(t, render(t, "-f", examples(t)["production"]))
	for _, rule := range list(list(at(ofKind(example, "PrometheusRule")[0], "spec", "groups"))[0]["rules"]) {
		all = append(all, text(rule, "expr"))
	}
	for _, m := range ofKind(example, "ConfigMap") {
		for name, data := range at(m, "data").(object) {
			if !strings.HasSuffix(name, ".json") {
				continue
			}
			var dashboard struct {
				Panels []struct{ Targets []struct{ Expr string } }
			}
			if err := json.Unmarshal([]byte(data.(string)), &dashboard); err != nil {
				t.Fatal(err)
			}
			for _, p := range dashboard.Panels {
				for _, q := range p.Targets {
					all = append(all, strings.ReplaceAll(q.Expr, "$__rate_interval", "1m"))
				}
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d expressions", len(all))
	}
	if err := promcheck(t, all...); err != nil {
		t.Error(err)
	}
	if err := promcheck(t, "sum(rate(warmpath_streams[5m])"); err == nil {
		t.Error("nothing is checked")
	}
}

func promcheck(t *testing.T, expressions ...string) error {
	t.Helper()
	data, err := json.Marshal(expressions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-ldflags=-s -w", ".")
	cmd.Dir = filepath.Join(root, "hack/helm/promcheck")
	cmd.Stdin = bytes.NewReader(data)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var metricOrUp = regexp.MustCompile(`(warmpath_[a-z0-9_]+|\bup)\{`)

// sectionOf is what a document says below a heading.
func sectionOf(doc, heading string) string {
	_, rest, _ := strings.Cut(doc, "\n## "+heading+"\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

// TestDashboards checks what Grafana would only say when somebody looks.
func TestDashboards(t *testing.T) {
	maps := ofKind(objects(t, render(t, "-f", examples(t)["production"])), "ConfigMap")
	found := 0
	for _, m := range maps {
		for name, data := range at(m, "data").(object) {
			if !strings.HasSuffix(name, ".json") {
				continue
			}
			found++
			if text(m, "metadata", "labels", "grafana_dashboard") != "1" {
				t.Errorf("%s: no sidecar looks for labels %v", id(m), at(m, "metadata", "labels"))
			}
			var dashboard struct {
				UID, Title string
				Panels     []struct {
					ID         int
					Type       string
					Title      string
					Datasource struct{ UID string }
					Targets    []struct{ Expr string }
				}
			}
			if err := json.Unmarshal([]byte(data.(string)), &dashboard); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ids := map[int]bool{}
			for _, p := range dashboard.Panels {
				if ids[p.ID] {
					t.Errorf("%s: two panels have id %d", name, p.ID)
				}
				ids[p.ID] = true
				if p.Type == "row" {
					continue
				}
				if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
					t.Errorf("%s: panel %q asks nothing, or a fixed data source", name, p.Title)
				}
				for _, q := range p.Targets {
					if n := len(metricOrUp.FindAllString(q.Expr, -1)); n == 0 || strings.Count(q.Expr, `job=~"$job", namespace=~"$namespace"`) != n {
						t.Errorf("%s: panel %q does not follow the variables: %s", name, p.Title, q.Expr)
					}
				}
			}
			if dashboard.UID == "" || len(ids) < 10 {
				t.Errorf("%s: uid %q, %d panels", name, dashboard.UID, len(ids))
			}
		}
	}
	if found == 0 {
		t.Error("no dashboard")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
