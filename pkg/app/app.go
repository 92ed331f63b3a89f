package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/discovery"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/recovery"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

// App is one picker process.
type App struct {
	log      *slog.Logger
	registry *prometheus.Registry
	started  time.Time

	index   *index.Index
	guesses *index.Speculation
	load    *load.Table
	engines *load.Engines
	picker  *pick.Picker

	workers       *discovery.File
	plane         *eventplane.Plane // nil when events are disabled
	planeWasReady atomic.Bool
	recoverer     *recoverer    // nil when workers are not asked
	tokenizer     *promptTokens // nil when turned off
	extproc       *extproc.Server
	admin         *http.Server

	streams, health, metrics net.Listener
	answers                  net.Listener // of workers, nil when they are not asked

	handoff      extproc.Handoff
	handoffNoted bool
	prefill      prefillState
}

// New builds a picker and opens its listeners. cfg must be defaulted and valid,
// as v1alpha1.Load returns it.
func New(cfg *v1alpha1.EndpointPickerConfig, log *slog.Logger) (*App, error) {
	spec := &cfg.Spec
	if cfg.Discovery.File == nil {
		return nil, errors.New("discovery.kubernetes is not built yet")
	}
	a := &App{
		log:      log,
		registry: telemetry.NewRegistry(),
		started:  time.Now(),
		guesses:  index.NewSpeculation(guessTTL(spec)),
		load:     load.NewTable(),
		engines:  load.NewEngines(),
		handoff:  handoff(&spec.Handoff),
	}
	var err error
	if a.index, err = index.NewBounded(index.Config{MaxBytes: cfg.Server.MaxIndexBytes}); err != nil {
		return nil, err
	}
	a.picker = pick.New(a.index, a.guesses, a.load, spec.BlockSize)
	a.picker.SetOptions(pickOptions(spec))
	a.workers = &discovery.File{
		Path:    cfg.Discovery.File.Path,
		Roles:   fleet.RoleRules(spec.Roles),
		Publish: a.setFleet,
		Log:     log,
	}
	if err := a.buildEdges(cfg); err != nil {
		return nil, err
	}
	a.registry.MustRegister((*collector)(a))
	if err := a.listen(&cfg.Server); err != nil {
		return nil, err
	}
	return a, nil
}

// guessTTL is how long decisions are remembered. Without events nothing would
// ever confirm a guess, so nothing is guessed.
func guessTTL(spec *v1alpha1.RoutingPolicySpec) time.Duration {
	if spec.EventPlane.Disabled || spec.EventPlane.SpeculationTTL == nil {
		return 0
	}
	return spec.EventPlane.SpeculationTTL.Duration
}

func (a *App) buildEdges(cfg *v1alpha1.EndpointPickerConfig) error {
	spec := &cfg.Spec
	var err error
	var asks eventplane.Recoverer // stays nil, not a nil *recoverer
	if spec.EventPlane.AsksWorkers() {
		if a.recoverer, err = newRecoverer(cfg, a.picker, recovery.Config{Log: a.log}); err != nil {
			return err
		}
		asks = a.recoverer
	}
	if !spec.EventPlane.Disabled {
		a.plane, err = eventplane.New(eventplane.Config{
			URL:         spec.EventPlane.NATS.URL,
			Namespace:   spec.EventPlane.NATS.Namespace,
			Name:        spec.EventPlane.NATS.Name,
			Security:    security(&spec.EventPlane.NATS),
			Index:       a.index,
			Known:       a.known,
			Lost:        a.picker.Forget,
			Drop:        a.drop,
			Restarted:   a.engines.Drop,
			Loads:       a.engines,
			ReplicaSync: spec.EventPlane.ReplicaSync,
			Recover:     asks,
			JetStream:   jetStream(&spec.EventPlane.JetStream),
			WarmUp:      warmUp(&spec.EventPlane.WarmUp),
			Log:         a.log,
		})
		if err != nil {
			return err
		}
	}
	layout := block.Layout{Size: spec.BlockSize, Eagle: spec.Eagle}
	if a.tokenizer, err = newPromptTokens(spec, layout, a.picker, a.log); err != nil {
		return err
	}
	var tokens extproc.Tokenizer // stays nil, not a nil *promptTokens
	if a.tokenizer != nil {
		tokens = a.tokenizer
	}
	a.extproc, err = extproc.New(extproc.Config{
		Picker:       a.picker,
		Layout:       layout,
		Tokenizer:    tokens,
		DecodeTexts:  spec.Tokenizer.InProcess.Enabled(),
		Adapters:     adapters(spec),
		IgnoreSalt:   spec.CacheSalt == v1alpha1.CacheSaltIgnore,
		Handoff:      a.handoff,
		Announcer:    a.announcer(spec.EventPlane.ReplicaSync),
		MaxBodyBytes: int(cfg.Server.MaxBodyBytes),
		DrainTimeout: cfg.Server.DrainTimeout.Duration,
		Ready:        a.ready,
		Log:          a.log,
		Registerer:   a.registry,
	})
	return err
}

func (a *App) listen(cfg *v1alpha1.ServerConfig) (err error) {
	type listener struct {
		what, address string
		to            *net.Listener
	}
	listeners := []listener{
		{"extProcAddress", cfg.ExtProcAddress, &a.streams},
		{"healthAddress", cfg.HealthAddress, &a.health},
		{"metricsAddress", cfg.MetricsAddress, &a.metrics},
	}
	if a.recoverer != nil {
		listeners = append(listeners, listener{"recoveryAddress", cfg.RecoveryAddress, &a.answers})
	}
	for _, l := range listeners {
		if *l.to, err = net.Listen("tcp", l.address); err != nil {
			a.Close()
			return fmt.Errorf("server.%s: %w", l.what, err)
		}
	}
	a.admin = &http.Server{Handler: a.adminHandler(), ReadHeaderTimeout: 10 * time.Second}
	return nil
}

// Close gives up the listeners of an app that is not going to run.
func (a *App) Close() {
	for _, l := range []net.Listener{a.streams, a.health, a.metrics, a.answers} {
		if l != nil {
			l.Close()
		}
	}
}

// ExtProcAddr is where ext-proc is served: the port that was taken when the
// configuration asks for port 0.
func (a *App) ExtProcAddr() net.Addr { return a.streams.Addr() }

// HealthAddr is where gRPC health is served.
func (a *App) HealthAddr() net.Addr { return a.health.Addr() }

// MetricsAddr is where metrics and debug pages are served.
func (a *App) MetricsAddr() net.Addr { return a.metrics.Addr() }

// Run serves until ctx ends or a part fails, and returns when all parts have
// stopped. The end of ctx is no error: requests under way are drained first
// (extproc.Server.Run), while events and discovery go on.
func (a *App) Run(ctx context.Context) error {
	a.log.Info("serving", "ext_proc", a.ExtProcAddr().String(), "health", a.HealthAddr().String(),
		"metrics", a.MetricsAddr().String(), "version", telemetry.Version())
	// The other parts outlive the drain: they stop when extproc has.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, rest := errgroup.WithContext(rest)
	serving, cut := context.WithCancel(ctx)
	defer cut()
	context.AfterFunc(rest, cut) // a part that fails ends the serving too

	group.Go(func() error {
		defer stop()
		return a.extproc.Run(serving, a.streams, a.health)
	})
	group.Go(func() error { return a.workers.Run(rest) })
	if a.plane != nil {
		group.Go(func() error { return a.plane.Run(rest) })
	}
	if a.recoverer != nil {
		group.Go(func() error { return a.recoverer.Serve(rest, a.answers) })
	}
	if a.tokenizer != nil && a.tokenizer.inProcess != nil {
		group.Go(func() error { return a.tokenizer.inProcess.run(rest) })
	}
	group.Go(func() error {
		if err := a.admin.Serve(a.metrics); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-rest.Done()
		return a.admin.Close()
	})
	err := group.Wait()
	if a.tokenizer != nil {
		a.tokenizer.Close() // its idle connections would outlive us
	}
	a.log.Info("stopped")
	return err
}

// Ready says what is missing before requests are welcome, nil when nothing is.
func (a *App) Ready() error { return a.ready() }

// EventsReceived is the number of KV events that were read from NATS.
func (a *App) EventsReceived() uint64 {
	if a.plane == nil {
		return 0
	}
	return a.plane.Stats().Decode.Events
}

// Listed is the number of ranks of a worker in the pool.
func (a *App) Listed(name string) (n int) {
	for _, w := range a.picker.Fleet().Workers {
		if w.Name == name {
			n++
		}
	}
	return n
}
