// Package docs holds the tests of what the documents claim: every YAML block of
// our kinds decodes, every link between documents leads somewhere, every curl
// command of the README does what the text says and can be explained, every metric
// in the documents exists, and every metric is documented.
package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

const root = "../.."

// fence is one fenced block of a document.
type fence struct {
	file string
	line int
	lang string
	text string
}

func fences(t *testing.T) []fence {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []fence
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var open *fence
		for i, line := range strings.Split(string(data), "\n") {
			switch {
			case open == nil && strings.HasPrefix(line, "```"):
				open = &fence{file: filepath.Base(file), line: i + 1, lang: strings.TrimPrefix(line, "```")}
			case open != nil && line == "```":
				all = append(all, *open)
				open = nil
			case open != nil:
				open.text += line + "\n"
			}
		}
	}
	return all
}

func TestYAMLDecodes(t *testing.T) {
	kinds := map[string]int{}
	for _, f := range fences(t) {
		if f.lang != "yaml" {
			continue
		}
		name := fmt.Sprintf("%s:%d", f.file, f.line)
		var err error
		switch {
		case strings.Contains(f.text, "kind: "+v1alpha1.KindEndpointPickerConfig):
			kinds[v1alpha1.KindEndpointPickerConfig]++
			_, err = v1alpha1.Decode([]byte(f.text), name)
		case strings.Contains(f.text, "kind: "+v1alpha1.KindWorkerList):
			kinds[v1alpha1.KindWorkerList]++
			_, err = v1alpha1.DecodeWorkers([]byte(f.text), name)
		default:
			err = fmt.Errorf("%s: a yaml block of no kind of ours; mark it with no language", name)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if kinds[v1alpha1.KindEndpointPickerConfig] == 0 || kinds[v1alpha1.KindWorkerList] == 0 {
		t.Errorf("the documents show %v; they should show both kinds", kinds)
	}
}

// TestLinks follows every link from one document to another, and to a heading.
func TestLinks(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "charts/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	links := 0
	for _, file := range files {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, heading, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			} else if heading != "" && !slices.Contains(headings(read(t, target)), heading) {
				t.Errorf("%s links to %s, which has no such heading", file, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("the documents have no links")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// headings are the anchors of a document, as GitHub makes them. Comments of shell
// commands count as well, which does no harm.
func headings(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\pL\pN\- _]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// demo is a running demo, as its first lines describe it.
type demo struct {
	binary, gateway, metrics string
	explain                  []string // the arguments that it tells people to give to warmpath
}

func startDemo(t *testing.T, gateway string) demo {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "warmpath")
	build := exec.Command("go", "build", "-o", binary, "./cmd/warmpath")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, binary, "demo", "--gateway", gateway, "--port", "0", "--clients", "0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Errorf("interrupt the demo: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the demo ended badly after an interrupt: %v", err)
		}
	})
	d := demo{binary: binary}
	lines := bufio.NewScanner(stderr)
	said := ""
	for lines.Scan() {
		line := lines.Text()
		said += line + "\n"
		if m := regexp.MustCompile(`metrics on (http://\S+)/metrics`).FindStringSubmatch(line); m != nil {
			d.metrics = m[1]
		}
		if m := regexp.MustCompile(`^explain +warmpath (explain --picker \S+ --model \S+) "(.*)"$`).FindStringSubmatch(line); m != nil {
			d.explain = append(strings.Fields(m[1]), m[2])
		}
		if m := regexp.MustCompile(`^gateway .* on (http://\S+)`).FindStringSubmatch(line); m != nil {
			d.gateway = m[1]
			break
		}
	}
	if d.gateway == "" || d.metrics == "" || d.explain == nil {
		t.Fatalf("the demo did not say where it listens, or how to ask it for reasons:\n%s", said)
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return d
}

func (d demo) do(t *testing.T, method, url string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// curl runs a curl command of the README, as far as the README uses curl.
func (d demo) curl(t *testing.T, command string) (*http.Response, string) {
	t.Helper()
	var words []string
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(command, -1) {
		words = append(words, m[1]+m[2])
	}
	url, body, header := "", "", http.Header{}
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "-H":
			name, value, _ := strings.Cut(words[i+1], ": ")
			header.Set(name, value)
			i++
		case w == "-d":
			body = words[i+1]
			i++
		case strings.HasPrefix(w, "http://127.0.0.1:8080"):
			url = d.gateway + strings.TrimPrefix(w, "http://127.0.0.1:8080")
		case regexp.MustCompile(`^-[sSiN]+$`).MatchString(w):
		default:
			t.Fatalf("the test does not know %q of %s", w, command)
		}
	}
	return d.do(t, http.MethodPost, url, header, body)
}

func TestReadmeAgainstTheDemo(t *testing.T) {
	for _, gateway := range []string{"envoy", "builtin"} {
		t.Run(gateway, func(t *testing.T) {
			d := startDemo(t, gateway)
			t.Run("curl", func(t *testing.T) { testCurl(t, d) })
			t.Run("metrics", func(t *testing.T) { testMetrics(t, d) })
		})
	}
}

func testCurl(t *testing.T, d demo) {
	var commands []string
	for _, f := range fences(t) {
		for line := range strings.Lines(f.text) {
			if strings.HasPrefix(line, "curl ") {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
	}
	if len(commands) != 3 {
		t.Fatalf("the documents have %d curl commands; this test knows 3", len(commands))
	}

	first, text := d.curl(t, commands[0])
	if !regexp.MustCompile(`"cached_tokens": ?0`).MatchString(text) {
		t.Errorf("chat, first time: something is cached already: %s", text)
	}
	var resp *http.Response
	resp, text = d.curl(t, commands[0])
	if was := first.Header.Get("x-sim-prefill-worker"); resp.Header.Get("x-sim-prefill-worker") != was {
		t.Errorf("chat went to %q first and then to %q", was, resp.Header.Get("x-sim-prefill-worker"))
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("x-sim-prefill-worker") == "" || resp.Header.Get("x-sim-decode-worker") == "" {
		t.Errorf("chat: %s, %v", resp.Status, resp.Header)
	}
	if !regexp.MustCompile(`"cached_tokens": ?[1-9]`).MatchString(text) {
		t.Errorf("chat, second time: cached_tokens did not grow: %s", text)
	}

	want := "Of the 2 blocks " + first.Header.Get("x-sim-prefill-worker") + " holds 2"
	if out := d.explained(t); !strings.Contains(out, want) {
		t.Errorf("chat, third time: no %q in the explanation:\n%s", want, out)
	}

	resp, text = d.curl(t, commands[1])
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(text, "data: ") || !strings.Contains(text, "data: [DONE]") {
		t.Errorf("stream of token ids: %s: %s", resp.Status, text)
	}

	resp, text = d.curl(t, commands[2])
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"missing_model"`) {
		t.Errorf("no model: %s: %s", resp.Status, text)
	}
}

// explained runs the command that the demo prints.
func (d demo) explained(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), d.binary, d.explain...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(d.explain, " "), err, out)
	}
	return string(out)
}

// testMetrics compares the metrics that the demo's picker serves with those that
// the documents name, both ways.
func testMetrics(t *testing.T, d demo) {
	served := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(served, "warmpath_engine_waiting_requests{"); {
		// What engines say of themselves is there once they have been asked.
		if _, served = d.do(t, http.MethodGet, d.metrics+"/metrics", nil, ""); time.Now().After(end) {
			t.Fatal("the metrics of the workers' engines are never read")
		}
	}
	operate, err := os.ReadFile(filepath.Join(root, "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	architecture, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\bwarmpath_[a-z_]+`)
	documented := name.FindAllString(string(operate), -1)
	// Families that appear only with their first event cannot be seen here, nor
	// figures that the demo's workers do not publish, nor what only a cluster has.
	rare := []string{
		"warmpath_undecided_total", "warmpath_event_stream_lag_messages", "warmpath_policy_condition",
		"warmpath_engine_kv_used_blocks", "warmpath_engine_queued_requests", "warmpath_engine_queued_prefill_tokens",
	}
	// The demo's model has no files, so no prompt becomes tokens in the picker;
	// pkg/app compares these.
	inProcess := regexp.MustCompile(`^warmpath_(in_process|parity|model|prompt_memo)_`)
	for _, n := range append(documented, name.FindAllString(string(architecture), -1)...) {
		if inProcess.MatchString(n) {
			continue
		}
		if !regexp.MustCompile(`(?m)^# TYPE `+n+` `).MatchString(served) && !slices.Contains(rare, n) {
			t.Errorf("the documents name %s, which does not exist", n)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (warmpath_[a-z_]+)`).FindAllStringSubmatch(served, -1) {
		if m[1] != "warmpath_build_info" && !slices.Contains(documented, m[1]) {
			t.Errorf("docs/operate.md does not name %s", m[1])
		}
	}
	testLabels(t, string(operate), served)
}

// testLabels compares the labels of what is served with those in the table of
// metrics, by which the alerts and dashboards of the chart are checked. Of the values,
// it looks at those of labels that alerts and dashboards select by.
func testLabels(t *testing.T, operate, served string) {
	rows := map[string]string{}   // of the table, by metric
	labels := map[string]string{} // as they are written there
	for _, row := range regexp.MustCompile(`(?m)^\| `+"`"+`warmpath_.*$`).FindAllString(operate, -1) {
		names, _, _ := strings.Cut(row, " | ")
		for _, m := range regexp.MustCompile("`(warmpath_[a-z_]+)({[a-z_,]+})?`").FindAllStringSubmatch(names, -1) {
			rows[m[1]], labels[m[1]] = row, m[2]
		}
	}
	label := regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^(warmpath_[a-z_]+?)(?:_bucket|_sum|_count)?(?:{(.*)})? `).FindAllStringSubmatch(served, -1) {
		name := m[1]
		if rows[name] == "" {
			continue // said already, but for warmpath_build_info
		}
		seen++
		var have, want []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] == "le" {
				continue
			}
			have = append(have, l[1])
			if slices.Contains([]string{"direction", "kind", "part", "result", "role", "source"}, l[1]) && !strings.Contains(rows[name], "`"+l[2]+"`") {
				t.Errorf("docs/operate.md does not say what %s is where %s=%q", name, l[1], l[2])
			}
		}
		if in := strings.Trim(labels[name], "{}"); in != "" {
			want = strings.Split(in, ",")
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has the labels %q, in docs/operate.md %q", name, have, want)
		}
	}
	if seen < 100 {
		t.Errorf("%d series were compared", seen)
	}
}
