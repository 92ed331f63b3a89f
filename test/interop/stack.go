package interop

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// startTimeout is how long a stack may take to answer. It takes about a second
// on an idle machine.
const startTimeout = 3 * time.Minute

//go:embed scripts/*.py
var scripts embed.FS

// StackConfig says what to start. Zero values take the defaults named.
type StackConfig struct {
	Version   string             // Dynamo release, one of Versions
	NATSURL   string             // where the workers publish
	Roles     map[fleet.Role]int // workers per role: Aggregated, or Prefill and Decode
	BlockSize int                // tokens per block; 16
	Blocks    int                // KV blocks per rank; 64
	Ranks     int                // data-parallel ranks per worker; 1
	Namespace string             // Dynamo namespace; "dynamo"

	Router     string  // how the frontend chooses workers: "direct" does as headers say, "kv" itself; "direct"
	Speedup    float64 // over the pace of a real engine; 20
	HostBlocks int     // KV blocks per rank in host memory; only 1.6 has such a tier; none
	Durable    bool    // events go to JetStream; only up to 1.3
	ServeFiles bool    // workers serve the files of their model

	// Pods, when set, is where parts find each other, and gives workers the names of
	// its pods; otherwise that is a folder, and the id of a worker is any number.
	Pods *Pods
}

// withDefaults returns the configuration to run, or what is wrong with it.
func (c StackConfig) withDefaults() (StackConfig, error) {
	c.BlockSize = cmp.Or(c.BlockSize, 16)
	c.Blocks = cmp.Or(c.Blocks, 64)
	c.Ranks = cmp.Or(c.Ranks, 1)
	c.Namespace = cmp.Or(c.Namespace, "dynamo")
	c.Router = cmp.Or(c.Router, "direct")
	c.Speedup = cmp.Or(c.Speedup, 20)
	aggregated, prefill, decode := c.Roles[fleet.Aggregated], c.Roles[fleet.Prefill], c.Roles[fleet.Decode]
	switch {
	case c.NATSURL == "":
		return c, errors.New("NATSURL is not set")
	case aggregated > 0 && prefill == 0 && decode == 0:
	case aggregated == 0 && prefill > 0 && decode > 0:
	default:
		return c, fmt.Errorf("roles %v: want aggregated workers, or both prefill and decode workers", c.Roles)
	}
	return c, nil
}

// Stack is a running Dynamo deployment.
type Stack struct {
	cfg     StackConfig
	inst    Installation
	dir     string // of this stack alone: scripts, model, discovery, logs
	env     []string
	workers []*worker
	front   *process
	url     string
}

type worker struct {
	*process
	pod  string // its name, the same over restarts
	role fleet.Role
	id   uint64
	args []string // of dynamo_stack.py
}

// StartStack starts workers and a direct-mode frontend, each as a process, and
// returns when the frontend answers for every worker. All ends with the test.
func StartStack(t testing.TB, cfg StackConfig) *Stack {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatalf("stack: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	inst, err := Install(ctx, cfg.Version)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stack{cfg: cfg, inst: inst, dir: t.TempDir()}
	s.env = s.environment()
	if err := s.writeFiles(ctx); err != nil {
		t.Fatalf("stack: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s.startWorkers(t)
	for attempt := 1; ; attempt++ {
		s.startFrontend(t, attempt)
		err := s.waitReady(ctx)
		if err == nil {
			return s
		}
		// Between our look and the frontend's start another may take the port.
		if attempt == 3 || s.front.running() || !strings.Contains(s.front.logTail(), "already in use") {
			t.Fatalf("dynamo %s: %v", cfg.Version, err)
		}
	}
}

// Model returns the model's name in requests.
func (s *Stack) Model() string { return filepath.Join(s.dir, "model") }

// FrontendURL returns the base URL of the frontend's OpenAI endpoint.
func (s *Stack) FrontendURL() string { return s.url }

// FrontendAddr returns the frontend's IP address and port.
func (s *Stack) FrontendAddr() string { return strings.TrimPrefix(s.url, "http://") }

// Workers returns the instance ids of a role's workers, as registered in
// Dynamo's discovery. The order stays the same over the life of a stack.
func (s *Stack) Workers(role fleet.Role) []uint64 {
	var ids []uint64
	for _, w := range s.workers {
		if w.role == role {
			ids = append(ids, w.id)
		}
	}
	return ids
}

// writeFiles lays out the stack's folder.
func (s *Stack) writeFiles(ctx context.Context) error {
	names, err := scripts.ReadDir("scripts")
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := scripts.ReadFile("scripts/" + name.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name.Name()), b, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, s.inst.Python, filepath.Join(s.dir, "tiny_model.py"), s.Model())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write the model: %w\n%s", err, out)
	}
	return nil
}

// environment returns the environment of all parts: ours, without anything that
// would configure Dynamo or Python from outside.
func (s *Stack) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, prefix := range []string{"DYN_", "NATS_", "ETCD_", "OTEL_", "HF_", "PYTHON", "XDG_", "HOME="} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	})
	if s.cfg.Pods == nil {
		env = append(env, "DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV="+s.discoveryDir())
	} else {
		env = append(env, "DYN_DISCOVERY_BACKEND=kubernetes", "KUBECONFIG="+s.cfg.Pods.kubeconfig)
	}
	if s.cfg.ServeFiles {
		// A free port of this machine alone, which the model card tells.
		env = append(env, "DYN_SELF_HOST_METADATA=1", "DYN_SYSTEM_PORT=0", "DYN_SYSTEM_HOST=127.0.0.1")
	}
	return append(env,
		"PYTHONPATH="+s.inst.Dir,
		"PYTHONDONTWRITEBYTECODE=1",
		// The frontend keeps copies of model cards in its home folder.
		"HOME="+s.dir,
		"HF_HUB_OFFLINE=1",
		"DYN_MODEL="+s.Model(),
		"NATS_SERVER="+s.cfg.NATSURL,
		"DYN_EVENT_PLANE=nats",
		"DYN_LOG="+workerLogFilter,
		"DYN_LOGGING_JSONL=1",
		// Frontends answer /v1/messages only when told to.
		"DYN_ENABLE_ANTHROPIC_API=1",
		// Requests, and the way back for their answers, stay on this machine. The
		// second wants the name of an interface: 1.2 takes no address there.
		"DYN_TCP_RPC_HOST=127.0.0.1",
		"DYN_TCP_RESPONSE_STREAM_HOST=lo",
	)
}

func (s *Stack) discoveryDir() string { return filepath.Join(s.dir, "discovery") }

// startPart runs dynamo_stack.py, in a pod when there are pods.
func (s *Stack) startPart(t testing.TB, name, pod string, args ...string) *process {
	t.Helper()
	env := s.env
	if s.cfg.Pods != nil {
		env = append(slices.Clip(env), podEnvironment(pod)...)
	}
	command := append([]string{s.inst.Python, filepath.Join(s.dir, "dynamo_stack.py")}, args...)
	return startProcess(t, name, s.dir, env, command...)
}

// startWorkers starts all workers at once, then waits for their instance ids.
func (s *Stack) startWorkers(t testing.TB) {
	t.Helper()
	for _, role := range []fleet.Role{fleet.Aggregated, fleet.Prefill, fleet.Decode} {
		for i := range s.cfg.Roles[role] {
			word := strings.ToLower(role.String())
			w := &worker{role: role, pod: fmt.Sprintf("%s-%d", word, i), args: s.workerArgs(word)}
			w.process = s.startPart(t, w.pod, w.pod, w.args...)
			s.workers = append(s.workers, w)
		}
	}
	for _, w := range s.workers {
		s.awaitID(t, w)
	}
}

func (s *Stack) workerArgs(role string) []string {
	args := []string{
		"worker", "--role", role, "--namespace", s.cfg.Namespace,
		"--block-size", strconv.Itoa(s.cfg.BlockSize), "--blocks", strconv.Itoa(s.cfg.Blocks),
		"--ranks", strconv.Itoa(s.cfg.Ranks), "--host-blocks", strconv.Itoa(s.cfg.HostBlocks),
		"--speedup", strconv.FormatFloat(s.cfg.Speedup, 'f', -1, 64),
	}
	if s.cfg.Durable {
		args = append(args, "--durable")
	}
	return args
}

// awaitID waits until a worker says its instance id.
func (s *Stack) awaitID(t testing.TB, w *worker) {
	t.Helper()
	line, err := w.firstLine(startTimeout)
	if err != nil {
		t.Fatal(err)
	}
	var up struct {
		InstanceID uint64 `json:"instance_id"`
	}
	if err := json.Unmarshal([]byte(line), &up); err != nil {
		t.Fatalf("%s says %q: %v", w.name, line, err)
	}
	w.id = up.InstanceID
}

// Restart kills the i-th worker of a role, with no chance to say goodbye, and starts
// it again in another pod of the same name, as a StatefulSet does. It returns when
// the frontend reaches the new process. The frontend must see the old one go: it
// does not notice a new address of a worker that never left.
func (s *Stack) Restart(t testing.TB, role fleet.Role, i int) {
	t.Helper()
	if s.cfg.Pods == nil {
		t.Fatal("restart: without pods, a worker started again is another worker")
	}
	at := slices.IndexFunc(s.workers, func(w *worker) bool { return w.role == role }) + i
	old := s.workers[at]
	old.kill(t)
	s.cfg.Pods.Delete(old.pod)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := poll(ctx, func() error { return s.checkGone(ctx, old.id) }); err != nil {
		t.Fatal(err)
	}
	s.cfg.Pods.Create(old.pod)
	w := &worker{role: role, pod: old.pod, args: old.args}
	w.process = s.startPart(t, old.name+"-again", w.pod, w.args...)
	s.workers[at] = w
	s.awaitID(t, w)
	if err := s.waitReady(ctx); err != nil {
		t.Fatalf("after the restart of %s: %v", w.pod, err)
	}
}

func (s *Stack) startFrontend(t testing.TB, attempt int) {
	t.Helper()
	port := freePort(t)
	s.url = "http://127.0.0.1:" + port
	s.front = s.startPart(t, fmt.Sprintf("frontend-%d", attempt), "frontend", "frontend", "--port", port, "--router", s.cfg.Router)
}

// freePort returns a port that nothing listens on. Dynamo's frontend cannot
// choose one itself and say which.
func freePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(testport.Free(t))
}
