package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
	if alerts == 0 || alerts > 15 {
		t.Errorf("%d alerts", alerts)
	}
	if n := strings.Count(runbooks, "\n## Warmpath"); n != alerts {
		t.Errorf("%d runbooks for %d alerts", n, alerts)
	}
}

// TestRunbookValues checks that the values which runbooks name, such as reasons, are
// values of the labels of metrics.
func TestRunbookValues(t *testing.T) {
	known := metrics(t)
	quoted := regexp.MustCompile("`([a-z]+(?:_[a-z]+)*)`")
	values := 0
	for section := range strings.SplitSeq(readFile(t, "docs/runbooks.md"), "\n## ") {
		name, section, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(name, "Warmpath") {
			continue
		}
		of, labels := "", []string{"namespace", "pod"}
		for _, m := range regexp.MustCompile("warmpath_[a-z0-9_]+").FindAllString(section, -1) {
			of += known[m].meaning
			labels = append(labels, known[m].labels...)
		}
		for _, m := range quoted.FindAllStringSubmatch(section, -1) {
			word := m[1]
			if strings.HasPrefix(word, "warmpath_") || slices.Contains(labels, word) || slices.Contains(notValues, word) {
				continue
			}
			values++
			if !strings.Contains(of, "`"+word+"`") {
				t.Errorf("docs/runbooks.md: docs/operate.md knows %s of no metric that %s names", word, name)
			}
		}
	}
	if values < 10 {
		t.Errorf("%d values: this test looks at too little", values)
	}
}

// notValues are words in runbooks that are something else than values of labels.
var notValues = []string{"describe", "resources"}

// metricOrUp finds what an expression asks for.
var metricOrUp = regexp.MustCompile(`(warmpath_[a-z0-9_]+|\b(?:up|process_cpu_seconds_total))\{`)

// sectionOf is what a document says below a heading.
func sectionOf(doc, heading string) string {
	_, rest, _ := strings.Cut(doc, "\n## "+heading+"\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

// TestDashboards checks what Grafana would only say when somebody looks.
func TestDashboards(t *testing.T) {
	maps := ofKind(objects(t, render(t, "-f", examples(t)["production"])), "ConfigMap")
	uids := map[string]string{}
	for _, m := range maps {
		for name, data := range at(m, "data").(object) {
			if !strings.HasSuffix(name, ".json") {
				continue
			}
			if text(m, "metadata", "labels", "grafana_dashboard") != "1" {
				t.Errorf("%s: no sidecar looks for labels %v", id(m), at(m, "metadata", "labels"))
			}
			var dashboard struct {
				UID, Title string
				Panels     []struct {
					ID          int
					Type        string
					Title       string
					Description string
					FieldConfig struct{ Defaults struct{ Unit string } }
					Datasource  struct{ UID string }
					Targets     []struct{ Expr string }
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
				if p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
					t.Errorf("%s: panel %q does not say what it shows, or in which unit", name, p.Title)
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
			if other := uids[dashboard.UID]; other != "" {
				t.Errorf("%s has the uid of %s", name, other)
			}
			uids[dashboard.UID] = name
		}
	}
	if len(uids) == 0 {
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
