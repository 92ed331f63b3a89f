package simengine

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// grace is how long a stopping worker lets running requests go on.
const grace = 2 * time.Second

// Engine is one simulated worker.
type Engine struct {
	cfg      Config
	listener net.Listener
	engineID string // of kv_transfer_params, new in every process
	client   *http.Client
	metrics  *metrics
	pub      *publisher // nil on decode workers
	stats    counters

	lane *semaphore.Weighted // one prefill at a time, first come first served

	mu    sync.Mutex
	cache *cache
	freed chan struct{} // closed and replaced whenever blocks come free

	natsMu sync.Mutex
	nats   *nats.Conn
}

// New checks cfg, takes the listening port and returns a worker that serves once
// [Engine.Run] is called. Run must be called, it gives the port back.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("simulated worker %q: %w", cfg.Name, err)
	}
	cfg = cfg.withDefaults()
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("simulated worker %q: %w", cfg.Name, err)
	}
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails (crypto/rand)
	random := rand.New(rand.NewChaCha8(seed))
	e := &Engine{
		cfg:      cfg,
		listener: listener,
		engineID: hexID(random),
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}},
		lane:     semaphore.NewWeighted(1),
		cache:    newCache(cfg.Blocks, random.Uint64()),
		freed:    make(chan struct{}),
		nats:     cfg.NATS,
	}
	if cfg.Role != fleet.Decode {
		e.pub = newPublisher(cfg, e.sendEvent, random)
	}
	e.metrics = newMetrics(e)
	return e, nil
}

func hexID(random *rand.Rand) string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], random.Uint64())
	binary.LittleEndian.PutUint64(b[8:], random.Uint64())
	return hex.EncodeToString(b[:])
}

// Addr returns the host:port that the worker listens on.
func (e *Engine) Addr() string { return e.listener.Addr().String() }

// Run serves until ctx ends; running requests then get two seconds. It returns
// after everything it started has ended and all events are handed to NATS.
func (e *Engine) Run(ctx context.Context) error {
	closeNATS, err := e.connect()
	if err != nil {
		return errors.Join(fmt.Errorf("simulated worker %q: %w", e.cfg.Name, err), e.listener.Close())
	}
	defer closeNATS()
	defer e.client.CloseIdleConnections()

	var publishing sync.WaitGroup
	publish, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	publishing.Go(func() { e.pub.run(publish) })
	defer publishing.Wait()
	defer stopPublishing()

	if err := e.serve(ctx); err != nil {
		return fmt.Errorf("simulated worker %q: %w", e.cfg.Name, err)
	}
	return nil
}

// serve runs the HTTP server until ctx ends and every handler has returned.
func (e *Engine) serve(ctx context.Context) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	requests, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	routes := e.routes()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			routes.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(e.listener) }()
	e.cfg.Log.Info("simulated worker serves", "name", e.cfg.Name, "worker_id", e.cfg.WorkerID, "rank", e.cfg.Rank,
		"role", e.cfg.Role.String(), "address", e.Addr())
	select {
	case err := <-served:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(requests, grace)
	defer cancel()
	if server.Shutdown(last) != nil { // the grace time is over
		abort()
		_ = server.Close() // its listener is closed already
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connect opens the worker's own NATS connection when it has to. It returns how
// to end it.
func (e *Engine) connect() (func(), error) {
	if e.cfg.NATS != nil || e.cfg.NATSURL == "" || e.pub == nil {
		return func() {
			if e.cfg.NATS != nil {
				_ = e.cfg.NATS.FlushTimeout(grace) // the owner of the connection sees why it fails
			}
		}, nil
	}
	closed := make(chan struct{})
	conn, err := nats.Connect(e.cfg.NATSURL, nats.Name(e.cfg.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(200*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	e.natsMu.Lock()
	e.nats = conn
	e.natsMu.Unlock()
	return func() {
		if !conn.IsConnected() {
			e.cfg.Log.Warn("the last kv events are lost", "error", nats.ErrDisconnected)
		} else if err := conn.FlushTimeout(grace); err != nil {
			e.cfg.Log.Warn("the last kv events may be lost", "error", err)
		}
		conn.Close()
		<-closed
	}, nil
}

// sendEvent hands a message to NATS. Without a connection it says nothing and
// loses the message, as a Dynamo worker without one does.
func (e *Engine) sendEvent(subject string, data []byte) error {
	e.natsMu.Lock()
	conn := e.nats
	e.natsMu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Publish(subject, data)
}

// ErrInUse says that the cache cannot be cleared while requests use it.
var ErrInUse = errors.New("blocks of the cache are in use by requests: try again when none is running")

// Clear empties the KV cache and publishes that it is cleared. While a request
// runs it returns [ErrInUse] and does nothing, as vLLM's reset_prefix_cache.
func (e *Engine) Clear() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.cache.clear() {
		return ErrInUse
	}
	e.pub.cleared()
	return nil
}
