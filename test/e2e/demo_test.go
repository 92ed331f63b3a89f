package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// demoResult is what the demo prints at its end, with -o json.
type demoResult struct {
	Gateway           string         `json:"gateway"`
	Requests          int            `json:"requests"`
	Errors            int            `json:"errors"`
	HitRate           float64        `json:"hit_rate"`
	HitRateLast10s    float64        `json:"hit_rate_last_10s"`
	Ceiling           float64        `json:"ceiling"`
	Events            uint64         `json:"events"`
	DecisionsByWorker map[string]int `json:"decisions_by_worker"`
	PrefillHeaderSeen uint64         `json:"prefill_header_seen"`
	TopWorkerShare    float64        `json:"top_worker_share"`
}

// readDemo reads the one JSON object on stdout; every field must be there.
func readDemo(t *testing.T, p *process) demoResult {
	t.Helper()
	out := p.stdout.String()
	var r demoResult
	decoder := json.NewDecoder(strings.NewReader(out))
	if err := decoder.Decode(&r); err != nil || decoder.More() {
		t.Fatalf("stdout is not one JSON object: %v: %s", err, out)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(out), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gateway", "requests", "errors", "hit_rate", "hit_rate_last_10s", "ceiling", "events", "decisions_by_worker", "prefill_header_seen", "top_worker_share"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("no field %s in %s", name, out)
		}
	}
	return r
}

// startDemo runs the demo with a folder of its own for temporary files, by which
// its child processes are known.
func startDemo(t *testing.T, flags ...string) (*process, string) {
	t.Helper()
	tmp := t.TempDir()
	return start(t, "demo", []string{"TMPDIR=" + tmp}, append([]string{warmpathBinary, "demo", "--port", "0", "-o", "json"}, flags...)...), tmp
}

// wantNothingLeft wants neither a process nor a file of the demo.
func wantNothingLeft(t *testing.T, tmp string) {
	t.Helper()
	if left := processesNaming(t, tmp); len(left) > 0 {
		t.Errorf("the demo left processes: %v", left)
	}
	if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
		t.Errorf("the demo left files: %v, %v", files, err)
	}
}

// processesNaming lists the processes with a text in their command line.
func processesNaming(t *testing.T, text string) (found []string) {
	t.Helper()
	for _, line := range commandLines(t) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// lines of the live view are a second each: requests, errors, hit rate.
var lineOfView = regexp.MustCompile(`(?m)^ +\d+s +(\d+) +(\d+) +([\d.]+)% `)

// awaitView waits until the live view has n lines with requests, and that many requests
// in all. It returns the hit rates of these lines.
func awaitView(t *testing.T, p *process, view *lockedBuffer, n, requests int) (rates []float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the demo shows %d requests in %d lines", requests, n), func() bool {
		sum := 0
		rates = nil
		for _, m := range lineOfView.FindAllStringSubmatch(view.String(), -1) {
			served, err := strconv.Atoi(m[1])
			rate, err2 := strconv.ParseFloat(m[3], 64)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if sum += served; served > 0 {
				rates = append(rates, rate)
			}
		}
		if !p.running() {
			t.Fatalf("the demo has ended:\n%s", tail(p.stderr.String()))
		}
		return len(rates) >= n && sum >= requests
	})
	return rates
}

// TestDemo runs the README's demo, shorter, with the switch to prefill/decode.
func TestDemo(t *testing.T) {
	for _, front := range []string{"envoy", "builtin"} {
		t.Run(front, func(t *testing.T) {
			t.Parallel()
			p, tmp := startDemo(t, "--gateway", front, "--split-at", "4s")
			hits := regexp.MustCompile(`(?s)re-deploying.* [1-9]\d* +0 +(0\.[1-9]|[1-9]\d*\.\d)% [^\n]* prefill-\d `)
			eventually(t, "prefill workers find prompts in their caches", func() bool { return !p.running() || hits.MatchString(p.stderr.String()) })
			p.end(t, syscall.SIGINT)
			r := readDemo(t, p)
			if r.Gateway != front || r.Errors != 0 || r.Requests == 0 || r.Events == 0 || r.PrefillHeaderSeen == 0 {
				t.Errorf("result %+v", r)
			}
			if r.HitRate <= 0 || r.HitRate > r.Ceiling || r.HitRateLast10s <= 0 || r.Ceiling >= 1 {
				t.Errorf("hit rate %v, last 10 s %v, ceiling %v", r.HitRate, r.HitRateLast10s, r.Ceiling)
			}
			for _, kind := range []string{"agg-", "prefill-", "decode-"} {
				n := 0
				for name, decisions := range r.DecisionsByWorker {
					if strings.HasPrefix(name, kind) {
						n += decisions
					}
				}
				if n == 0 {
					t.Errorf("no decision for a worker %s...: %v", kind, r.DecisionsByWorker)
				}
			}
			wantNothingLeft(t, tmp)
		})
	}
}

// TestDemoConcentrates: tenants settle on the workers that hold their prefix. Two
// prefill workers without affinity would share each tenant's prompts by halves.
func TestDemoConcentrates(t *testing.T) {
	t.Parallel()
	p, _ := startDemo(t, "--gateway", "builtin")
	awaitView(t, p, &p.stderr, 9, 150)
	p.end(t, syscall.SIGINT)
	r := readDemo(t, p)
	if r.TopWorkerShare < 0.65 {
		t.Errorf("a tenant's busiest worker computed %.2f of its prompts, want at least 0.65", r.TopWorkerShare)
	}
	if r.HitRate > r.Ceiling || r.HitRate < 0.8*r.Ceiling {
		t.Errorf("hit rate %.3f, ceiling %.3f", r.HitRate, r.Ceiling)
	}
	if r.PrefillHeaderSeen != uint64(r.Requests) {
		t.Errorf("%d requests, %d of them with a prefill pick", r.Requests, r.PrefillHeaderSeen)
	}
}

// TestDemoShowsTheClimb reads the live view: the hit rate climbs.
func TestDemoShowsTheClimb(t *testing.T) {
	t.Parallel()
	p := start(t, "demo", []string{"TMPDIR=" + t.TempDir()}, warmpathBinary, "demo", "--port", "0", "--gateway", "builtin")
	rates := awaitView(t, p, &p.stdout, 7, 0)
	p.end(t, syscall.SIGINT)
	if first, last := rates[0], rates[len(rates)-1]; last <= first {
		t.Errorf("the hit rate went from %v%% to %v%%", first, last)
	}
}

// TestDemoInterrupted ends the demo with Ctrl-C, in the middle of its traffic.
func TestDemoInterrupted(t *testing.T) {
	for _, front := range []string{"envoy", "builtin"} {
		t.Run(front, func(t *testing.T) {
			t.Parallel()
			p, tmp := startDemo(t, "--gateway", front)
			eventually(t, "the demo shows its traffic", func() bool {
				return !p.running() || strings.Contains(p.stderr.String(), "hit rate")
			})
			if n := len(processesNaming(t, tmp)); front == "envoy" && n == 0 {
				t.Error("no Envoy runs")
			}
			p.end(t, syscall.SIGINT)
			if r := readDemo(t, p); r.Gateway != front || r.Requests == 0 || r.Errors != 0 {
				t.Errorf("result %+v", r)
			}
			wantNothingLeft(t, tmp)
		})
	}
}

// TestDemoPortTaken wants the reason, and nothing left behind.
func TestDemoPortTaken(t *testing.T) {
	t.Parallel()
	port := startNATS(t, server.RANDOM_PORT).Addr().(*net.TCPAddr).Port
	p, tmp := startDemo(t, "--gateway", "builtin", "--port", strconv.Itoa(port))
	await(t, "the demo has ended", p.done)
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.stderr.String(), "address already in use") {
		t.Errorf("exit status %d: %s", code, tail(p.stderr.String()))
	}
	wantNothingLeft(t, tmp)
}
