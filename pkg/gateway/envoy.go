package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds exec to ready. It takes 0.1 to 0.3 s on an idle machine.
	startTimeout = 30 * time.Second
	// stopTimeout is how long Envoy has between SIGTERM and SIGKILL.
	stopTimeout = 5 * time.Second
)

// Envoy is a running Envoy process.
type Envoy struct {
	addr, admin netip.AddrPort
	cancel      context.CancelFunc
	stderr      *lineTail
	done        chan struct{}
	err         error // of the process; read it after done
}

// StartEnvoy starts the binary with cfg and returns when it accepts requests.
// The process ends with ctx, with [Envoy.Stop], and on Linux with the calling
// process. The caller must call Stop or Wait. The error holds what Envoy said.
func StartEnvoy(ctx context.Context, binary string, cfg Config) (*Envoy, error) {
	dir, err := writeConfig(&cfg)
	if err != nil {
		return nil, fmt.Errorf("start envoy: %w", err)
	}
	adminFile := filepath.Join(dir, "admin")
	ctx, cancel := context.WithCancel(ctx)
	// Without the two flush flags access-log lines come seconds late; without
	// disable-hot-restart a second Envoy on the machine does not start
	// (envoy.md section 1).
	cmd := exec.CommandContext(ctx, binary, "-c", configFile(dir), "--disable-hot-restart", "--concurrency", "2",
		"--admin-address-path", adminFile, "-l", "warn", "--file-flush-interval-msec", "50", "--file-flush-min-size-kb", "1")
	e := &Envoy{cancel: cancel, stderr: &lineTail{log: cfg.Log}, done: make(chan struct{})}
	cmd.SysProcAttr = childAttributes()
	cmd.Stdout = cfg.AccessLog
	cmd.Stderr = e.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout

	started := make(chan error, 1)
	go e.run(ctx, cmd, dir, started)
	if err := <-started; err != nil {
		<-e.done
		return nil, fmt.Errorf("start envoy: %w", err)
	}
	if err := e.waitReady(ctx, adminFile); err != nil {
		_ = e.Stop() // the reason for not being ready is the one to report
		return nil, fmt.Errorf("start envoy: %w%s", err, e.stderr.last())
	}
	cfg.Log.Info("envoy started", "addr", e.addr, "admin", e.admin, "pid", cmd.Process.Pid)
	return e, nil
}

// Validate has the binary check the configuration that cfg makes, without
// running it. The error is Envoy's, and names the field.
func Validate(ctx context.Context, binary string, cfg Config) error {
	dir, err := writeConfig(&cfg)
	if err != nil {
		return fmt.Errorf("validate envoy configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	out, err := exec.CommandContext(ctx, binary, "-c", configFile(dir), "--disable-hot-restart",
		"--mode", "validate", "-l", "error").CombinedOutput()
	if err != nil {
		return fmt.Errorf("validate envoy configuration: %w%s", err, lastLines(out))
	}
	return nil
}

// writeConfig fills in cfg's defaults and writes the configuration into a new
// folder, which the caller removes.
func writeConfig(cfg *Config) (dir string, err error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	*cfg = cfg.withDefaults()
	text, err := renderEnvoy(*cfg)
	if err != nil {
		return "", err
	}
	dir, err = os.MkdirTemp("", "warmpath-envoy-")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(configFile(dir), text, 0o644); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// configFile is the configuration's path in the folder of writeConfig.
func configFile(dir string) string { return filepath.Join(dir, "envoy.yaml") }

// run is the life of the process. It holds its OS thread because the kernel
// sends the parent-death signal when the thread that forked ends.
func (e *Envoy) run(ctx context.Context, cmd *exec.Cmd, dir string, started chan<- error) {
	defer close(e.done)
	defer e.cancel()
	defer os.RemoveAll(dir)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		e.err = err
		started <- err
		return
	}
	started <- nil
	if e.err = cmd.Wait(); e.err == nil && ctx.Err() == nil {
		e.err = errors.New("it ended with status 0 though nobody stopped it")
	}
}

// waitReady polls the admin interface until the listener's port is known and
// Envoy says it is ready.
func (e *Envoy) waitReady(ctx context.Context, adminFile string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = e.probe(ctx, client, adminFile); last == nil {
			return nil
		}
		select {
		case <-e.done:
			return fmt.Errorf("it ended before it was ready: %w", e.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (last: %w)", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// probe asks once, and fills in the addresses when all is well.
func (e *Envoy) probe(ctx context.Context, client *http.Client, adminFile string) error {
	text, err := os.ReadFile(adminFile)
	if err != nil {
		return err
	}
	if e.admin, err = netip.ParseAddrPort(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("admin address: %w", err)
	}
	if _, err := get(ctx, client, "http://"+e.admin.String()+"/ready"); err != nil {
		return err
	}
	body, err := get(ctx, client, "http://"+e.admin.String()+"/listeners?format=json")
	if err != nil {
		return err
	}
	e.addr, err = listenerAddr(body)
	return err
}

// listenerAddr reads the address of the one listener out of /listeners.
func listenerAddr(body []byte) (netip.AddrPort, error) {
	var listeners struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    uint16 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &listeners); err != nil {
		return netip.AddrPort{}, fmt.Errorf("admin listeners: %w", err)
	}
	if len(listeners.Statuses) != 1 {
		return netip.AddrPort{}, fmt.Errorf("admin listeners: %d listeners, want 1", len(listeners.Statuses))
	}
	socket := listeners.Statuses[0].Local.Socket
	ip, err := netip.ParseAddr(socket.Address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("admin listeners: %w", err)
	}
	return netip.AddrPortFrom(ip, socket.Port), nil
}

// get returns the body of a 200 reply.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", req.URL.Path, resp.StatusCode)
	}
	return body, nil
}

// Addr is where clients connect.
func (e *Envoy) Addr() netip.AddrPort { return e.addr }

// Admin is Envoy's admin interface (/stats, /clusters, /config_dump).
func (e *Envoy) Admin() netip.AddrPort { return e.admin }

// Done is closed when the process has ended, for whatever reason.
func (e *Envoy) Done() <-chan struct{} { return e.done }

// Wait returns when the process has ended: nil when it was told to, else why,
// with the last lines it wrote.
func (e *Envoy) Wait() error {
	<-e.done
	if e.err == nil || errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("envoy: %w%s", e.err, e.stderr.last())
}

// Stop ends the process (SIGTERM, after 5 s SIGKILL) and waits for it. It may be
// called more than once.
func (e *Envoy) Stop() error {
	e.cancel()
	return e.Wait()
}

// lineTail keeps the last lines written to it and logs each at level debug.
type lineTail struct {
	log *slog.Logger

	mu      sync.Mutex
	partial []byte
	lines   []string
}

// Write takes a piece of output; it never fails.
func (t *lineTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		t.log.Debug("envoy wrote", "line", string(line))
		t.lines = append(t.lines, string(line))
		if extra := len(t.lines) - 5; extra > 0 {
			t.lines = t.lines[extra:]
		}
		t.partial = rest
	}
}

// last formats the last lines for an error message.
func (t *lineTail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLines([]byte(strings.Join(t.lines, "\n") + "\n" + string(t.partial)))
}
