package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/eventplane/embedded"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kube"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

// App is one picker process. What a policy decides is in its current generation,
// which [App.Apply] replaces; all else is as long as the process.
type App struct {
	log      *slog.Logger
	registry *prometheus.Registry
	server   v1alpha1.ServerConfig
	grace    time.Duration // planeGrace

	extproc  *extproc.Server
	admin    *http.Server
	load     *load.Table
	planes   eventplane.Siblings // of all generations
	recovery answers             // of workers
	source   source
	where    string           // source looks for workers
	cluster  *kube.Watcher    // source, where workers are in a cluster; else nil
	bus      *embedded.Server // nil unless configured
	life     *life
	totals   totals

	streams, health, metrics net.Listener

	current  atomic.Pointer[generation]
	applying chan struct{} // holds one: who applies a spec

	// pool is what source published last, nil before it did.
	pool atomic.Pointer[fleet.Snapshot]

	pooling      sync.Mutex    // orders changes of the pool, and guards all below
	generations  []*generation // that hear of them: the current one, the next, and those in which requests still are
	handoffNoted bool
	prefill      prefillState
}

// New builds a picker and opens its listeners. cfg must be defaulted and valid,
// as v1alpha1.Load returns it.
func New(cfg *v1alpha1.EndpointPickerConfig, log *slog.Logger) (*App, error) {
	return newApp(cfg, &v1alpha1.RoutingPolicySpec{}, log)
}

// newApp is New for a process whose environment sets what policies leave out.
func newApp(cfg *v1alpha1.EndpointPickerConfig, environment *v1alpha1.RoutingPolicySpec, log *slog.Logger) (_ *App, err error) {
	a := &App{
		log:      log,
		registry: telemetry.NewRegistry(),
		server:   cfg.Server,
		grace:    planeGrace,
		load:     load.NewTable(),
		life:     newLife(),
		applying: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := a.serveNATS(cfg); err != nil {
		return nil, err
	}
	if a.source, a.where, err = newSource(cfg, environment, a); err != nil {
		return nil, err
	}
	first, err := newGeneration(a, &cfg.Spec, nil)
	if err != nil {
		return nil, err
	}
	a.join(first)
	a.current.Store(first)
	encrypt, err := serverTLS(cfg.Server.ExtProcTLS, log)
	if err != nil {
		return nil, err
	}
	a.extproc, err = extproc.New(extproc.Config{
		Routing:      first.routing(),
		MaxBodyBytes: int(cfg.Server.MaxBodyBytes),
		DrainTimeout: cfg.Server.DrainTimeout.Duration,
		TLS:          encrypt,
		Ready:        a.ready,
		Log:          log,
		Registerer:   a.registry,
	})
	if err != nil {
		return nil, err
	}
	a.registry.MustRegister((*collector)(a))
	if err := a.listen(&cfg.Server); err != nil {
		return nil, err
	}
	return a, nil
}

// serveNATS starts the NATS server of a trial. The spec hears it, unless it names
// another.
func (a *App) serveNATS(cfg *v1alpha1.EndpointPickerConfig) (err error) {
	if cfg.Server.EmbeddedNATS == nil {
		return nil
	}
	if a.bus, err = embedded.Start(cfg.Server.EmbeddedNATS.Address); err != nil {
		return fmt.Errorf("server.embeddedNATS: %w", err)
	}
	a.log.Info("serving NATS, for trials only: it has no passwords, and no other replica shares it", "url", a.bus.URL())
	if url := &cfg.Spec.EventPlane.NATS.URL; *url == "" {
		*url = a.bus.URL()
	}
	return nil
}

func (a *App) listen(cfg *v1alpha1.ServerConfig) (err error) {
	for _, l := range []struct {
		what, address string
		to            *net.Listener
	}{
		{"extProcAddress", cfg.ExtProcAddress, &a.streams},
		{"healthAddress", cfg.HealthAddress, &a.health},
		{"metricsAddress", cfg.MetricsAddress, &a.metrics},
	} {
		if *l.to, err = net.Listen("tcp", l.address); err != nil {
			return fmt.Errorf("server.%s: %w", l.what, err)
		}
	}
	a.admin = &http.Server{Handler: a.adminHandler(), ReadHeaderTimeout: 10 * time.Second}
	return nil
}

// Close gives up the listeners of an app that is not going to run.
func (a *App) Close() {
	for _, l := range []net.Listener{a.streams, a.health, a.metrics, a.recovery.listener} {
		if l != nil {
			l.Close()
		}
	}
	if a.bus != nil {
		a.bus.Close()
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
	if err := a.startFirst(rest); err != nil {
		return err
	}
	serving, cut := context.WithCancel(ctx)
	defer cut()
	context.AfterFunc(rest, cut) // a part that fails ends the serving too

	group.Go(func() error {
		defer stop()
		return a.extproc.Run(serving, a.streams, a.health)
	})
	group.Go(func() error { return a.source.Run(rest) })
	group.Go(func() error { return a.life.watch(rest) })
	group.Go(func() error { return a.life.wait(rest) })
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
	if a.bus != nil {
		a.bus.Close()
	}
	a.log.Info("stopped")
	return err
}

// startFirst starts the parts of the first generation. All parts end with ctx.
func (a *App) startFirst(ctx context.Context) error {
	a.applying <- struct{}{} // there may be another one any moment
	defer func() { <-a.applying }()
	a.life.begin(ctx)
	parts := a.current.Load().parts()
	if err := a.start(parts); err != nil { //nolint:contextcheck // it has just become the one of all parts
		return err
	}
	for _, p := range parts {
		p.use(a.life)
	}
	return nil
}

// Ready says what is missing before requests are welcome, nil when nothing is.
func (a *App) Ready() error { return a.ready() }

// EventsReceived is the number of KV events that were read from NATS.
func (a *App) EventsReceived() uint64 {
	events, _ := a.totals.events()
	return events
}

// Listed is the number of ranks of a worker in the pool.
func (a *App) Listed(name string) (n int) {
	for _, w := range a.fleet().Workers {
		if w.Name == name {
			n++
		}
	}
	return n
}
