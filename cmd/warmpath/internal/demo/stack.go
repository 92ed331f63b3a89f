package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/pkg/app"
	"github.com/warmpath/warmpath/pkg/eventplane/embedded"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/simengine"
)

const (
	model     = "warmpath/demo"
	blockSize = 16
	question  = "Why is the sky blue?" // the README asks it, too
	namespace = "demo"
)

// cacheBlocks is the KV capacity of a worker, in blocks. One that computes prompts
// cannot hold the system prompts of all tenants, so it cannot be good for
// everybody; one that decodes needs room for all requests that run there.
var cacheBlocks = map[fleet.Role]int{fleet.Aggregated: 2200, fleet.Prefill: 1600, fleet.Decode: 6000}

// timing makes a cache hit visible: a cold prompt of 3,500 tokens takes 175 ms.
var timing = simengine.Timing{
	PrefillTokensPerSecond: 20_000,
	DecodePerToken:         2 * time.Millisecond,
	TransferBytesPerToken:  100_000,
	TransferBandwidth:      10e9,
	TransferFixed:          2 * time.Millisecond,
}

// stack is all parts of the demo.
type stack struct {
	dir     string
	bus     *embedded.Server
	picker  *app.App
	front   front
	running context.Context //nolint:containedctx // the life of all parts, which outlive the caller's context until close
	cancel  context.CancelFunc

	mu      sync.Mutex
	workers []*worker // those that were ever started
	failed  chan error
	wg      sync.WaitGroup
}

// worker is one simulated worker.
type worker struct {
	*simengine.Engine
	name string
	role fleet.Role
	stop context.CancelFunc
}

// newStack starts everything. On an error, what was started is stopped.
func newStack(ctx context.Context, cfg *Config) (_ *stack, err error) {
	s := &stack{failed: make(chan error, 64)}
	// Parts stop in close, in order, not when ctx ends.
	s.running, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "warmpath-demo-"); err != nil {
		return nil, err
	}
	if s.bus, err = embedded.Start("127.0.0.1:0"); err != nil {
		return nil, err
	}
	fmt.Fprintf(cfg.Progress, "NATS        %s\n", s.bus.URL())
	roles := []fleet.Role{fleet.Prefill, fleet.Prefill, fleet.Decode, fleet.Decode}
	if cfg.SplitAt > 0 {
		roles = []fleet.Role{fleet.Aggregated, fleet.Aggregated, fleet.Aggregated, fleet.Aggregated}
	}
	if err := s.deploy(roles, cfg.Progress); err != nil { //nolint:contextcheck // workers live as long as the stack
		return nil, err
	}
	if err := s.startPicker(cfg); err != nil {
		return nil, err
	}
	fmt.Fprintf(cfg.Progress, "picker      ext-proc on %s, metrics on http://%s/metrics\n", s.picker.ExtProcAddr(), s.picker.MetricsAddr())
	fmt.Fprintf(cfg.Progress, "explain     warmpath explain --picker http://%s --model %s %q\n", s.picker.MetricsAddr(), model, question)
	if s.front, err = startFront(ctx, s.running, cfg, s.picker.ExtProcAddr().String(), s.run); err != nil {
		return nil, err
	}
	fmt.Fprintf(cfg.Progress, "gateway     %s on %s\n\n", cfg.Gateway, s.url())
	return s, nil
}

// run starts a part that must not end before close.
func (s *stack) run(what string, f func() error) {
	s.wg.Go(func() {
		if err := f(); err != nil {
			s.failed <- fmt.Errorf("%s: %w", what, err)
		}
	})
}

// watch returns the first error of any part, or nil when ctx ends.
func (s *stack) watch(ctx context.Context) error {
	select {
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// deploy starts workers of the given roles and lists exactly these for the
// picker, as a new ReplicaSet replaces an old one. Older workers keep running
// until retire.
func (s *stack) deploy(roles []fleet.Role, progress io.Writer) error {
	count := map[fleet.Role]int{}
	var list []*worker
	for _, role := range roles {
		name := fmt.Sprintf("%s-%d", map[fleet.Role]string{fleet.Aggregated: "agg", fleet.Prefill: "prefill", fleet.Decode: "decode"}[role], count[role])
		count[role]++
		ctx, stop := context.WithCancel(s.running)
		engine, err := simengine.New(simengine.Config{
			Name: name, Role: role, Model: model, BlockSize: blockSize, Blocks: cacheBlocks[role],
			NATSURL: s.bus.URL(), Namespace: namespace, Generation: dynamo.Gen14, Timing: timing,
		})
		if err != nil {
			stop()
			return fmt.Errorf("worker %s: %w", name, err)
		}
		s.run("worker "+name, func() error { return engine.Run(ctx) })
		list = append(list, &worker{Engine: engine, name: name, role: role, stop: stop})
		fmt.Fprintf(progress, "%-11s worker on http://%s\n", name, engine.Addr())
	}
	s.mu.Lock()
	s.workers = append(s.workers, list...)
	s.mu.Unlock()
	return s.listWorkers(list)
}

// listWorkers writes the picker's list of workers, in one step.
func (s *stack) listWorkers(list []*worker) error {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nworkers:\n", v1alpha1.APIVersion, v1alpha1.KindWorkerList)
	for _, w := range list {
		addr, err := netip.ParseAddrPort(w.Addr())
		if err != nil {
			return err
		}
		label := map[fleet.Role]string{fleet.Aggregated: "worker", fleet.Prefill: "prefill", fleet.Decode: "decode"}[w.role]
		fmt.Fprintf(&b, "- {name: %s, address: %q, ports: [%d], labels: {nvidia.com/dynamo-component-type: %s}}\n", w.name, addr.Addr(), addr.Port(), label)
	}
	tmp := filepath.Join(s.dir, "workers.tmp")
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(s.dir, "workers.yaml"))
}

func (s *stack) startPicker(cfg *Config) error {
	config := fmt.Sprintf(`apiVersion: %s
kind: %s
server: {extProcAddress: "127.0.0.1:0", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", recoveryAddress: "127.0.0.1:0", drainTimeout: 5s}
discovery: {file: {path: workers.yaml}}
spec:
  blockSize: %d
  eventPlane: {nats: {url: %q, namespace: %s}}
`, v1alpha1.APIVersion, v1alpha1.KindEndpointPickerConfig, blockSize, s.bus.URL(), namespace)
	path := filepath.Join(s.dir, "epp.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	parsed, err := v1alpha1.Load(path)
	if err != nil {
		return err
	}
	if s.picker, err = app.New(parsed, cfg.Log); err != nil {
		return err
	}
	s.run("picker", func() error { return s.picker.Run(s.running) })
	return until(s.running, time.Minute, "the picker sees its workers and NATS", func() bool { return s.picker.Ready() == nil })
}

// splitAt replaces the aggregated workers by prefill and decode workers while
// requests go on, as an operator does.
func (s *stack) splitAt(ctx context.Context, after time.Duration, progress io.Writer) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(after):
	}
	fmt.Fprintf(progress, "\n--- re-deploying: 4 aggregated workers (component backend) become 2 prefill and 2 decode workers (component prefill) ---\n\n")
	old := s.all()
	err := s.deploy([]fleet.Role{fleet.Prefill, fleet.Prefill, fleet.Decode, fleet.Decode}, progress) //nolint:contextcheck // workers live as long as the stack
	if err != nil {
		return err
	}
	fmt.Fprintln(progress)
	// Old pods terminate once no request has run on them for a moment: a request
	// that was sent their way may still be under way.
	for _, w := range old {
		busy := time.Now()
		err := until(ctx, 30*time.Second, w.name+" has finished its requests", func() bool {
			if st := w.Stats(); s.picker.Listed(w.name) > 0 || st.Running+st.Waiting > 0 {
				busy = time.Now()
			}
			return time.Since(busy) > time.Second
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
		w.stop()
	}
	return nil
}

func (s *stack) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*worker(nil), s.workers...)
}

func (s *stack) url() string { return "http://" + s.front.Addr().String() }

func (s *stack) events() uint64 { return s.picker.EventsReceived() }

// prefillHeaders counts the requests whose decode worker was told a prefill
// worker.
func (s *stack) prefillHeaders() (n uint64) {
	for _, w := range s.all() {
		if w.role != fleet.Prefill {
			n += w.Stats().PrefillHeaders
		}
	}
	return n
}

// close stops everything, the gateway first.
func (s *stack) close() error {
	var err error
	if s.front != nil {
		err = s.front.Stop()
	}
	s.cancel()
	s.wg.Wait()
	if s.bus != nil {
		s.bus.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// front is the gateway.
type front interface {
	Addr() netip.AddrPort
	Stop() error
}

// startFront starts the gateway. Installing Envoy may be interrupted by ctx; the
// gateway itself lives as long as running.
func startFront(ctx, running context.Context, cfg *Config, picker string, run func(string, func() error)) (front, error) {
	addr, err := netip.ParseAddrPort(picker)
	if err != nil {
		return nil, err
	}
	g := gateway.Config{
		Listen: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), cfg.Port),
		Picker: addr,
		Log:    cfg.Log,
	}
	if cfg.Gateway == "envoy" {
		binary, err := gateway.InstallEnvoy(ctx, cachedir.Path(), cfg.Progress)
		if err != nil {
			return nil, err
		}
		return gateway.StartEnvoy(running, binary, g)
	}
	b, err := gateway.NewBuiltin(g)
	if err != nil {
		return nil, err
	}
	bctx, stop := context.WithCancel(running)
	done := make(chan struct{})
	run("gateway", func() error { defer close(done); return b.Run(bctx) })
	return &builtin{Builtin: b, stop: stop, done: done}, nil
}

// builtin gives the built-in gateway the life of a process.
type builtin struct {
	*gateway.Builtin
	stop context.CancelFunc
	done chan struct{}
}

// Stop ends the gateway and waits for it.
func (b *builtin) Stop() error {
	b.stop()
	<-b.done
	return nil
}

// until waits for a condition.
func until(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s in vain until %s", limit, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
