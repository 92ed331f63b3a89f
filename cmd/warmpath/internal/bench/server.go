package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

// process is a server under measurement.
type process struct {
	cmd     *exec.Cmd
	address string // ext-proc
	metrics string
	nats    string
	stderr  bytes.Buffer
}

// startPicker starts this executable as a picker over the given workers.
func startPicker(ctx context.Context, dir, natsURL string, workers int) (*process, error) {
	var list strings.Builder
	list.WriteString("apiVersion: routing.warmpath.dev/v1alpha1\nkind: WorkerList\nworkers:\n")
	for i := range workers {
		fmt.Fprintf(&list, "- {name: %s, address: 127.0.0.1, ports: [%d]}\n", workerName(i), 20_000+i)
	}
	config := fmt.Sprintf(`apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
server: {extProcAddress: "127.0.0.1:0", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", recoveryAddress: "127.0.0.1:0", drainTimeout: 1s}
discovery: {file: {path: workers.yaml}}
spec:
  blockSize: %d
  eventPlane: {nats: {url: %q}}
  tokenizer: {disabled: true}
`, blockSize, natsURL)
	for name, text := range map[string]string{"workers.yaml": list.String(), "epp.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return start(ctx, "serve", "--config", filepath.Join(dir, "epp.yaml"), "--log-format", "json")
}

// startFloor starts this executable as the lightest possible picker.
func startFloor(ctx context.Context) (*process, error) {
	return start(ctx, "bench", "floor-server")
}

// executable is this very program, which plays the other parts too.
func executable() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this executable: %w", err)
	}
	return self, nil
}

func start(ctx context.Context, args ...string) (*process, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, args...)}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	logs, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	lines := bufio.NewReader(io.TeeReader(logs, &p.stderr))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			_ = p.cmd.Wait()
			return nil, fmt.Errorf("the server did not come up: %s", strings.TrimSpace(p.stderr.String()))
		}
		var entry struct {
			Msg     string
			ExtProc string `json:"ext_proc"`
			Metrics string
			NATS    string
		}
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving" {
			p.address, p.metrics, p.nats = entry.ExtProc, entry.Metrics, entry.NATS
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }() // ends with the process
	return p, nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	_ = p.cmd.Wait()
}

// cpu returns the CPU time the process has used, user and system.
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the server's CPU time (needs Linux): %w", err)
	}
	// Fields are counted after the command name, which is in parentheses.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("read the server's CPU time: unknown format")
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	total := time.Duration(0)
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the server's CPU time: %w", err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// resetPeak starts a new measurement of peak memory.
func (p *process) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0o200)
}

// peakMB returns the peak resident memory since resetPeak, in MB.
func (p *process) peakMB() (float64, error) { return peakMB(p.cmd.Process.Pid) }

// peakMB returns the most resident memory a process has had, in MB.
func peakMB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, errors.New("read a process's memory: no VmHWM")
}

// waitEntries waits until the picker's index holds n blocks.
func (p *process) waitEntries(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		held, err := p.entries(ctx)
		if err == nil && held >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the index holds %d of %d blocks after a minute (%w)", held, n, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) entries(ctx context.Context) (int, error) {
	return p.metric(ctx, "warmpath_index_entries")
}

// metric returns one of the picker's metrics, by its name with labels.
func (p *process) metric(ctx context.Context, name string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			return int(v), err
		}
	}
	return 0, errors.Join(fmt.Errorf("no %s among the metrics", name), lines.Err())
}

// FloorServer is the least that an ext-proc server can do and still do its duty:
// it names a fixed worker and sends the body back. It is the baseline that a
// picker's cost is compared with. It logs its address like a picker and serves
// until ctx ends.
func FloorServer(ctx context.Context, stderr io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(server, floor{})
	if err := json.NewEncoder(stderr).Encode(map[string]string{"msg": "serving", "ext_proc": l.Addr().String()}); err != nil {
		return err
	}
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(l)
}

type floor struct {
	extprocv3.UnimplementedExternalProcessorServer
}

// Process answers like a picker that looks at nothing, until the gateway goes
// away, which shows as an error.
func (floor) Process(rpc extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		msg, err := rpc.Recv()
		if err != nil {
			return err
		}
		var out *extprocv3.ProcessingResponse
		switch m := msg.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			out = fixedDestination("127.0.0.1:20000")
		case *extprocv3.ProcessingRequest_RequestBody:
			out = echoRequest(m.RequestBody)
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			out = echoResponse(m.ResponseBody)
		default:
			continue
		}
		if err := rpc.Send(out); err != nil {
			return err
		}
	}
}
