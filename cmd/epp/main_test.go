package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

// asCommand makes this test binary run as epp itself.
const asCommand = "WARMPATH_TEST_RUN_EPP"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

const deadline = time.Minute

// epp runs the command as a process of its own until it exits.
func epp(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := process(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func process(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

const goodConfig = `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
server: {extProcAddress: "127.0.0.1:0", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", recoveryAddress: "127.0.0.1:0", drainTimeout: 3s}
discovery:
  file: {path: workers.yaml}
spec:
  eventPlane: {disabled: true}
`

const goodWorkers = `apiVersion: routing.warmpath.dev/v1alpha1
kind: WorkerList
workers:
- {name: p, address: 10.0.0.1, ports: [8000], labels: {DYN_COMPONENT: prefill}}
- {name: d0, address: 10.0.0.2, ports: [8000], labels: {DYN_COMPONENT: decode}}
- {name: d1, address: 10.0.0.3, ports: [8000], labels: {DYN_COMPONENT: decode}}
- {name: a, address: 10.0.0.4, ports: [8000]}
- {name: b, address: 10.0.0.5, ports: [8000], ready: false}
`

// write puts a configuration and a list of workers into a folder of the test's.
func write(t *testing.T, config, workers string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "epp.yaml")
	for name, text := range map[string]string{path: config, filepath.Join(dir, "workers.yaml"): workers} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestValidateGood(t *testing.T) {
	path := write(t, goodConfig, goodWorkers)
	code, stdout, stderr := epp(t, "validate", "--config", path)
	want := path + " is valid: 1 prefill, 2 decode, 1 aggregated workers are ready in " + filepath.Join(filepath.Dir(path), "workers.yaml") + "\n"
	if code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, want)
	}
}

// TestValidateEnvironment: what comes of Dynamo's variables is listed, and a mistake
// in one is an error.
func TestValidateEnvironment(t *testing.T) {
	path := write(t, goodConfig, goodWorkers)
	t.Setenv("DYN_ROUTER_TEMPERATURE", "0.5")
	t.Setenv("DYN_ROUTER_EVENT_THREADS", "4")
	code, stdout, stderr := epp(t, "validate", "--config", path)
	for _, line := range []string{
		"\nenvironment: DYN_ROUTER_TEMPERATURE=0.5 is the default of spec.cost.temperature\n",
		"\nenvironment: DYN_ROUTER_EVENT_THREADS=4 has no effect: ",
	} {
		if code != 0 || !strings.Contains(stdout, line) || stderr != "" {
			t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, line)
		}
	}
	t.Setenv("DYN_ROUTER_TEMPERATURE", "warm")
	for _, args := range [][]string{{"validate"}, {}} {
		code, _, stderr = epp(t, append(args, "--config", path)...)
		if want := `epp: environment: DYN_ROUTER_TEMPERATURE="warm": must be a number from 0 to 100`; code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, stderr %q, want %q", code, stderr, want)
		}
	}
}

// TestValidateWarns: what is valid and has no effect with the listed workers is said.
func TestValidateWarns(t *testing.T) {
	config := goodConfig + "  admission: {activePrefillTokensThresholdFraction: 4}\n"
	path := write(t, config, strings.Replace(goodWorkers, "name: a,", "name: a, dataParallelSize: 2,", 1))
	code, stdout, stderr := epp(t, "validate", "--config", path)
	for _, line := range []string{"\nwarning: spec.admission.activePrefillTokensThresholdFraction (or ", "\nwarning: spec.handoff: several data-parallel ranks share the endpoint 10.0.0.4:8000 "} {
		if code != 0 || !strings.Contains(stdout, line) || stderr != "" {
			t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, line)
		}
	}
	path = write(t, config+"  handoff: {headers: [{name: x-prefiller-host-port, value: PrefillEndpoint}, {name: x-data-parallel-rank, value: DecodeRank}]}\n",
		strings.Replace(goodWorkers, "name: a,", "name: a, dataParallelSize: 2, maxBatchedTokens: 8192,", 1))
	if code, stdout, stderr = epp(t, "validate", "--config", path); code != 0 || strings.Contains(stdout, "warning") || stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q, want no warning", code, stdout, stderr)
	}
}

func TestValidateSamples(t *testing.T) {
	code, stdout, stderr := epp(t, "validate", "--config", filepath.Join("..", "..", "config", "samples", "endpointpickerconfig.yaml"))
	if code != 0 || !strings.Contains(stdout, "is valid") || stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestValidateModel: what the picker would only log is an error here.
func TestValidateModel(t *testing.T) {
	dir := t.TempDir()
	inProcess := "  tokenizer: {inProcess: {source: {directory: {path: " + dir + "}}}}\n"
	path := write(t, goodConfig+inProcess, goodWorkers)
	for _, step := range []struct {
		do   func()
		want string // in stderr; empty when all is well
	}{
		{func() {}, "tokenizer.json"},
		{func() { testmodels.WriteSmall(t, dir, testmodels.ChatML) }, ""},
		{func() { testmodels.WriteSmall(t, dir, "{{ x | nothing_like_that }}") }, "nothing_like_that"},
		{func() {
			if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"model":{"type":"Unigram"}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "Unigram"},
	} {
		step.do()
		code, _, stderr := epp(t, "validate", "--config", path)
		if (code == 0) != (step.want == "") || !strings.Contains(stderr, step.want) || code != 0 && !strings.Contains(stderr, "spec.tokenizer.inProcess") {
			t.Errorf("exit %d, stderr %q, want %q", code, stderr, step.want)
		}
	}
}

func TestValidateBad(t *testing.T) {
	for _, tc := range []struct {
		name, config, workers string
		want                  []string // each as a part of stderr
	}{
		{
			"unknown field", strings.Replace(goodConfig, "spec:\n", "spec:\n  blokSize: 16\n", 1), goodWorkers,
			[]string{"epp.yaml:7: ", "blokSize", "blockSize"},
		},
		{
			"wrong type", strings.Replace(goodConfig, "spec:\n", "spec:\n  blockSize: large\n", 1), goodWorkers,
			[]string{"epp.yaml:7: ", "blockSize"},
		},
		{
			"out of range", strings.Replace(goodConfig, "spec:\n", "spec:\n  blockSize: -1\n", 1), goodWorkers,
			[]string{"epp.yaml:7: ", "blockSize"},
		},
		{
			"two problems", strings.Replace(goodConfig, "spec:\n", "spec:\n  blockSize: 0\n  eagle: perhaps\n", 1), goodWorkers,
			[]string{"epp.yaml:7: ", "epp.yaml:8: ", "eagle"},
		},
		{"no YAML", "a: [", goodWorkers, []string{"epp.yaml:1: "}},
		{
			"another kind", strings.Replace(goodConfig, "kind: EndpointPickerConfig", "kind: WorkerList", 1), goodWorkers,
			[]string{"epp.yaml:2: ", "EndpointPickerConfig"},
		},
		{"no NATS", strings.Replace(goodConfig, "{disabled: true}", "{}", 1), goodWorkers, []string{"epp.yaml:7: ", "spec.eventPlane"}},
		{
			"bad worker", goodConfig, strings.Replace(goodWorkers, "10.0.0.2", "somewhere", 1),
			[]string{"workers.yaml:5: ", "address", "somewhere"},
		},
		{
			"worker of no role", goodConfig, strings.Replace(goodWorkers, "prefill", "prefil", 1),
			[]string{"workers.yaml", "DYN_COMPONENT", "prefil"},
		},
		{"no list of workers", goodConfig, "", []string{"workers.yaml", "discovery.file.path"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := epp(t, "validate", "--config", write(t, tc.config, tc.workers))
			if code != 1 || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			for _, part := range append(tc.want, "epp: ") {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr %q does not say %q", stderr, part)
				}
			}
		})
	}
}

func TestNoConfig(t *testing.T) {
	for _, args := range [][]string{{}, {"validate"}} {
		code, stdout, stderr := epp(t, args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, "give one with --config FILE") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
		missing := filepath.Join(t.TempDir(), "none.yaml")
		code, _, stderr = epp(t, append(args, "--config", missing)...)
		if code != 1 || !strings.Contains(stderr, missing) {
			t.Errorf("%v with a missing file: exit %d, stderr %q", args, code, stderr)
		}
	}
}

func TestBadUsage(t *testing.T) {
	path := write(t, goodConfig, goodWorkers)
	for _, args := range [][]string{
		{"--config", path, "--log-format", "xml"},
		{"--config", path, "extra"},
		{"validate", "--config", path, "extra"},
		{"--no-such-flag"},
	} {
		if code, _, stderr := epp(t, args...); code != 1 || !strings.HasPrefix(stderr, "epp: ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, stderr %q", args, code, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, stderr := epp(t, "--help")
	if code != 0 || stderr != "" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	for _, part := range []string{"Examples:", "epp --config epp.yaml", "epp validate --config", "kind: EndpointPickerConfig", "--log-format", "x-gateway-destination-endpoint"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("help does not say %q:\n%s", part, stdout)
		}
	}
	if code, stdout, _ = epp(t, "validate", "--help"); code != 0 || !strings.Contains(stdout, "Examples:") {
		t.Errorf("validate: exit %d\n%s", code, stdout)
	}
	if code, stdout, _ = epp(t, "--version"); code != 0 || !strings.Contains(stdout, telemetry.Version()) {
		t.Errorf("version: exit %d, %q", code, stdout)
	}
}

// TestHelpExample: the configuration that --help shows is a good one.
func TestHelpExample(t *testing.T) {
	_, help, ok := strings.Cut(command().Long, "A small one:\n\n")
	example, _, end := strings.Cut(help, "\n\n")
	if !ok || !end {
		t.Fatal("the help has no example")
	}
	example = regexp.MustCompile(`(?m)^  `).ReplaceAllString(example, "")
	if code, _, stderr := epp(t, "validate", "--config", write(t, example+"\n", goodWorkers)); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestSignals: SIGTERM and SIGINT end a serving process with exit code 0.
func TestSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			cmd := process(ctx, "--config", write(t, goodConfig, goodWorkers))
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stderr)
			var address string
			for lines.Scan() {
				if m := regexp.MustCompile(`msg=serving .*metrics=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
					address = m[1]
					break
				}
			}
			if address == "" {
				t.Fatal("epp never said that it serves")
			}
			waitReady(t, "http://"+address+"/readyz")
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(stderr)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, rest)
			}
			if !strings.Contains(string(rest), "msg=draining") || !strings.Contains(string(rest), "msg=stopped") {
				t.Errorf("log:\n%s", rest)
			}
		})
	}
}

func waitReady(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: deadline}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); ; <-tick.C {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s never said 200: %v", url, err)
		}
	}
}
