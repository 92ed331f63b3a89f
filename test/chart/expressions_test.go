package chart

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// expression is what an alert or a dashboard asks of Prometheus.
type expression struct {
	where, text string
	labels      []string // of the result, that are shown beside it
}

// expressions are all of them.
func expressions(t *testing.T) []expression {
	t.Helper()
	var all []expression
	example := objects(t, render(t, "-f", examples(t)["production"]))
	for _, rule := range alertRules(t) {
		all = append(all, expression{rule.name, rule.expr, shown(`\$labels\.(\w+)`, rule.annotations)})
	}
	for _, m := range ofKind(example, "ConfigMap") {
		for name, data := range at(m, "data").(object) {
			if strings.HasSuffix(name, ".json") {
				all = append(all, asked(t, name, data.(string))...)
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d expressions", len(all))
	}
	return all
}

// asked are the expressions of a dashboard, those of its variables included.
func asked(t *testing.T, name, data string) (all []expression) {
	t.Helper()
	var dashboard struct {
		Templating struct {
			List []struct{ Query any }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(data), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, v := range dashboard.Templating.List {
		query, ok := v.Query.(object)
		if !ok {
			continue // the data source
		}
		m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(text(query, "query"))
		if m == nil {
			t.Fatalf("%s: this test does not know the query %q", name, query)
		}
		all = append(all, expression{name, m[1], m[2:]})
	}
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			expr := strings.ReplaceAll(q.Expr, "$__rate_interval", "1m")
			all = append(all, expression{name + ": " + p.Title, expr, shown(`{{\s*(\w+)\s*}}`, q.LegendFormat)})
		}
	}
	return all
}

// shown are the labels that a text names.
func shown(pattern, text string) (names []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// metric is one that docs/operate.md describes; the tests of the documents compare
// that with what a picker serves.
type metric struct {
	labels  []string
	meaning string
}

// metrics are all that alerts and dashboards may ask for.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	// What Prometheus and its client library bring along.
	all := map[string]metric{"up": {}, "process_cpu_seconds_total": {}}
	name := regexp.MustCompile("`(warmpath_[a-z0-9_]+)(?:{([a-z_,]+)})?`")
	for row := range strings.Lines(sectionOf(readFile(t, "docs/operate.md"), "Metrics")) {
		names, meaning, ok := strings.Cut(row, " | ")
		if !ok {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(names, -1) {
			var labels []string
			if m[2] != "" {
				labels = strings.Split(m[2], ",")
			}
			if strings.Contains(meaning, "a histogram") {
				all[m[1]+"_bucket"] = metric{append(labels, "le"), meaning}
				continue
			}
			all[m[1]] = metric{labels, meaning}
		}
	}
	described := func(name, meaning string) {
		m := all[name]
		m.meaning += meaning
		all[name] = m
	}
	described("warmpath_policy_condition", readFile(t, "docs/install.md")) // has all conditions
	described("warmpath_in_process_fallbacks_total", sectionOf(readFile(t, "docs/operate.md"), "Tokens in process"))
	if len(all) < 60 {
		t.Fatalf("docs/operate.md describes %d metrics", len(all))
	}
	return all
}

// TestExpressions checks what alerts and dashboards ask for: Prometheus' own parser
// reads it, and the metrics, their labels and the values of these exist.
func TestExpressions(t *testing.T) {
	all, known := expressions(t), metrics(t)
	q := checkQuestion{Metrics: map[string][]string{}}
	for name, m := range known {
		q.Metrics[name] = m.labels
	}
	for _, e := range all {
		q.Expressions = append(q.Expressions, e.text)
	}
	wrong := map[string]string{
		`sum(rate(warmpath_streams[5m])`:                                             "unclosed left parenthesis",
		`sum(rate(warmpath_stream[5m]))`:                                             `there is no metric "warmpath_stream"`,
		`warmpath_streams{queue="x"}`:                                                `there is no label "queue"`,
		`sum by (kind) (rate(warmpath_queue_results_total[5m]))`:                     `there is no label "kind"`,
		`histogram_quantile(0.5, sum(rate(warmpath_queue_wait_seconds_bucket[1m])))`: `there is no label "le"`,
		`sum by (pod) (warmpath_streams) / sum by (job) (warmpath_streams)`:          "matches nothing",
		`warmpath_replicas and on (worker) warmpath_streams`:                         `there is no label "worker"`,
	}
	for text := range wrong {
		q.Expressions = append(q.Expressions, text)
	}
	answers := promcheck(t, q).Expressions
	for i, e := range all {
		a := answers[i]
		if a.Error != "" {
			t.Errorf("%s: %s in\n%s", e.where, a.Error, e.text)
		}
		for _, l := range e.labels {
			if !slices.Contains(a.Labels, l) {
				t.Errorf("%s: the label %s is shown, and the result has only %q", e.where, l, a.Labels)
			}
		}
		checkValues(t, e, known)
	}
	for i, text := range q.Expressions[len(all):] {
		if got := answers[len(all)+i].Error; !strings.Contains(got, wrong[text]) {
			t.Errorf("%s: %q, want %q", text, got, wrong[text])
		}
	}
}

// checkValues checks that the values which an expression selects by are in the
// description of the metric.
func checkValues(t *testing.T, e expression, known map[string]metric) {
	t.Helper()
	matcher := regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	for _, m := range regexp.MustCompile(`(warmpath_[a-z0-9_]+){([^}]*)}`).FindAllStringSubmatch(e.text, -1) {
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if l[1] == "job" || l[1] == "namespace" {
				continue
			}
			for value := range strings.SplitSeq(l[2], "|") {
				if !strings.Contains(known[m[1]].meaning, "`"+value+"`") {
					t.Errorf("%s: docs/operate.md knows no %s{%s=%q}", e.where, m[1], l[1], value)
				}
			}
		}
	}
}

// checkQuestion is what hack/helm/promcheck is asked.
type checkQuestion struct {
	Metrics     map[string][]string
	Expressions []string
	Alerts      []checkAlert
}

type checkAlert struct {
	Expr, For string
	Series    []string
}

// checkAnswer is what it answers, in the order of what was asked.
type checkAnswer struct {
	Expressions []struct {
		Labels []string
		Error  string
	}
	Alerts []struct {
		Firing []map[string]string
		Error  string
	}
}

func promcheck(t *testing.T, q checkQuestion) (a checkAnswer) {
	t.Helper()
	data, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-ldflags=-s -w", ".")
	cmd.Dir = filepath.Join(root, "hack/helm/promcheck")
	cmd.Stdin = bytes.NewReader(data)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("promcheck: %v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Expressions) != len(q.Expressions) || len(a.Alerts) != len(q.Alerts) {
		t.Fatalf("promcheck answers %d expressions and %d alerts", len(a.Expressions), len(a.Alerts))
	}
	return a
}
