package extproc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// Config is what a Server needs. Fields without a default are required.
type Config struct {
	// Routing is the one to begin with. [Server.Use] replaces it.
	Routing

	MaxBodyBytes int           // default 64 MiB
	DrainTimeout time.Duration // default 30 s: see Run
	Ready        func() error  // nil: always ready; an error says what is missing
	TLS          *tls.Config   // of streams; nil: they are not encrypted

	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // default time.Now
	Random     func(n int) int  // default rand.IntN
	RequestID  func() string    // default a random UUID
}

// Validate reports what cannot work, and fills in defaults.
func (c *Config) Validate() error {
	switch {
	case c.Log == nil || c.Registerer == nil:
		return errors.New("extproc: no logger or no registerer")
	case c.MaxBodyBytes < 0 || c.DrainTimeout < 0:
		return errors.New("extproc: a limit is negative")
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 64 << 20
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.IntN
	}
	if c.RequestID == nil {
		c.RequestID = uuid.NewString
	}
	return c.Routing.Validate()
}

// Server is the ext-proc service of one picker.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	cfg          Config
	metrics      *metrics
	routing      atomic.Pointer[routing] // of requests that begin; see acquire
	works        sync.Pool               // of *work
	destinations sync.Map                // endpoint string to *structpb.Struct
	cached       atomic.Int64            // of them, about
	draining     atomic.Bool
	lastStream   atomic.Int64 // when a stream last began, Unix nanoseconds
	tokenizerBad atomic.Bool
	elsewhere    elsewhere
	failures     failures
	objectives   atomic.Pointer[map[string]int] // of the cluster: priorities by name
	rewrites     atomic.Pointer[rewrite.Rules]  // those of [Server.UseRewrites]
	encoded      atomic.Bool                    // a response was encoded, and said so
}

// New returns a server. It listens to nothing before Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	s.cfg.Routing = Routing{} // what is in use is in one place only
	first, err := s.newRouting(cfg.Routing, nil)
	if err != nil {
		return nil, err
	}
	s.routing.Store(first)
	s.works.New = func() any { return &work{} }
	cfg.Registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "warmpath", Name: "served_elsewhere_total", Help: "Responses from another endpoint than the picked one, as far as the gateway says who served.",
	}, func() float64 { return float64(s.elsewhere.n.Load()) }))
	return s, nil
}

// maxMessage bounds one gRPC message. In full duplex chunks are small; a
// gateway that buffers sends a body as one message.
func (c *Config) maxMessage() int { return c.MaxBodyBytes + 1<<20 }

// quiet is how long no new stream must have come before a draining server stops
// taking them. It waits for that at least a third of the drain timeout: gateways
// need some seconds to learn that a picker is going away.
const quiet = time.Second

// Run serves ext-proc on streams and the health service on health until ctx
// ends, and closes both listeners. Config.TLS is for streams only: what probes
// health wants no certificate.
//
// Then it drains: health says NOT_SERVING at once, so that gateways and
// Kubernetes send new requests elsewhere; streams that still come are served for
// a third of DrainTimeout, and on until none has come for a second; open ones may
// finish. What is open after DrainTimeout is cut.
func (s *Server) Run(ctx context.Context, streams, health net.Listener) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.maxMessage()),
		grpc.MaxConcurrentStreams(1 << 20), // Envoy multiplexes all requests over few connections
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(s.stamp, s.recover),
	}
	if s.cfg.TLS != nil {
		options = append(options, grpc.Creds(s.encrypted(s.cfg.TLS)))
	}
	main, side := grpc.NewServer(options...), grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(main, s)
	healthv1.RegisterHealthServer(main, (*healthService)(s))
	healthv1.RegisterHealthServer(side, (*healthService)(s))

	failed := make(chan error, 2)
	var wg sync.WaitGroup
	wg.Go(func() { failed <- main.Serve(streams) })
	wg.Go(func() { failed <- side.Serve(health) })
	defer wg.Wait()
	defer side.Stop()
	defer main.Stop()

	select {
	case err := <-failed:
		return fmt.Errorf("extproc: serve: %w", err)
	case <-ctx.Done():
	}
	s.drain(main)
	return nil
}

func (s *Server) stamp(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.lastStream.Store(time.Now().UnixNano())
	return handler(srv, ss)
}

// recover turns a panic into an error of its one stream. There should be none;
// if there is, the other requests must not pay for it.
func (s *Server) recover(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.metrics.panics.Inc()
			s.cfg.Log.Error("a request made the picker panic; please report this", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	return handler(srv, ss)
}

// drain lets main finish. It returns when all streams have ended or the drain
// timeout is over.
func (s *Server) drain(main *grpc.Server) {
	s.draining.Store(true)
	s.cfg.Log.Info("draining", "timeout", s.cfg.DrainTimeout)
	deadline := time.After(s.cfg.DrainTimeout)
	start := time.Now()
	s.lastStream.Store(start.UnixNano())
	tick := time.NewTicker(quiet / 10)
	defer tick.Stop()
	for time.Since(start) < s.cfg.DrainTimeout/3 || time.Since(time.Unix(0, s.lastStream.Load())) < quiet {
		select {
		case <-tick.C:
		case <-deadline:
			s.cfg.Log.Warn("drain timeout is over; cutting open streams", "timeout", s.cfg.DrainTimeout)
			return
		}
	}
	done := make(chan struct{})
	go func() { // ends with Run: main.Stop makes GracefulStop return
		main.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-deadline:
		s.cfg.Log.Warn("drain timeout is over; cutting open streams", "timeout", s.cfg.DrainTimeout)
		main.Stop()
		<-done
	}
}

// Retain drops the metrics of workers that left the pool, and forgets what failed there.
func (s *Server) Retain(pool *fleet.Snapshot) {
	s.metrics.retain(pool)
	s.failures.retain(pool)
}
