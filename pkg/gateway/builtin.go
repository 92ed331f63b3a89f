package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// connectTimeout bounds a connection to a worker, as in the Envoy configuration.
const connectTimeout = time.Second

// Builtin is a reverse proxy that asks the picker over ext-proc as Envoy does:
// the same messages in the same order, the same reading of the answers, the same
// replies when something is broken. It is small and not tuned. Follow mode
// OverrideHost is Envoy's alone.
//
// One difference is known: when a client goes away the picker's Recv returns
// Canceled always, with Envoy mostly io.EOF. The stream's context is cancelled
// with both.
type Builtin struct {
	cfg       Config
	lis       net.Listener
	transport *http.Transport

	// Set by Run before the first request.
	conn   *grpc.ClientConn
	picker extprocv3.ExternalProcessorClient

	mu      sync.Mutex // guards closing, and orders handlers.Add before Wait
	closing bool
	// handlers counts requests: http.Server.Close does not wait for them.
	handlers sync.WaitGroup

	logMu sync.Mutex // keeps access-log lines whole
}

// NewBuiltin opens the listener. [Builtin.Run] must follow: it serves, and closes
// the listener.
func NewBuiltin(cfg Config) (*Builtin, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Follow == OverrideHost {
		return nil, errors.New("gateway configuration: follow mode OverrideHost needs envoy; the built-in gateway has ByHeader and ByMetadata")
	}
	cfg = cfg.withDefaults()
	lis, err := net.Listen("tcp", cfg.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("built-in gateway: %w", err)
	}
	return &Builtin{
		cfg: cfg,
		lis: lis,
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
			DisableCompression:  true, // bodies pass as they are
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     time.Minute,
		},
	}, nil
}

// Addr is where clients connect.
func (b *Builtin) Addr() netip.AddrPort {
	addr := b.lis.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// Run serves until ctx ends, which cuts requests under way, as a stopped Envoy
// does. It returns nil then, and when all it started has ended. Call it once.
func (b *Builtin) Run(ctx context.Context) error {
	defer b.lis.Close()
	conn, err := grpc.NewClient("passthrough:///"+b.cfg.Picker.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		// A picker that comes back must be in service with the next request.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond},
			MinConnectTimeout: connectTimeout,
		}))
	if err != nil {
		return fmt.Errorf("built-in gateway: picker: %w", err)
	}
	defer conn.Close()
	b.conn, b.picker = conn, extprocv3.NewExternalProcessorClient(conn)
	defer b.transport.CloseIdleConnections()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:           http.HandlerFunc(b.serve),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(b.cfg.Log.Handler(), slog.LevelDebug),
	}
	var closer sync.WaitGroup
	closer.Go(func() {
		<-ctx.Done()
		_ = srv.Close()
	})
	b.cfg.Log.Info("built-in gateway started", "addr", b.Addr())
	err = srv.Serve(b.lis)
	stopped := ctx.Err() != nil
	cancel()
	closer.Wait()
	b.drain()
	if stopped {
		return nil
	}
	return fmt.Errorf("built-in gateway: %w", err)
}

// drain turns new requests away and waits for those under way.
func (b *Builtin) drain() {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.handlers.Wait()
}

// serve handles one request.
func (b *Builtin) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if b.closing {
		b.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	b.handlers.Add(1)
	b.mu.Unlock()
	defer b.handlers.Done()

	x := newExchange(b, w, r)
	result := x.serve() //nolint:contextcheck // the exchange holds the context of its one request
	b.log(x, result)
	if result.abort {
		panic(http.ErrAbortHandler) // net/http's way to cut the response short
	}
}

// awaitPicker returns when the picker's connection is ready, or when it has had
// the time to become so. A connection that is down is being retried all the
// time, and grpc would fail a request without looking.
func (b *Builtin) awaitPicker(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	for {
		state := b.conn.GetState()
		if state == connectivity.Ready {
			return
		}
		if state == connectivity.Idle {
			b.conn.Connect()
		}
		if !b.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// log writes the access-log line of a request that has ended.
func (b *Builtin) log(x *exchange, r result) {
	if b.cfg.AccessLog == nil {
		return
	}
	line, err := json.Marshal(struct {
		ID       string `json:"id"`
		Method   string `json:"method"`
		Path     string `json:"path"`
		Code     int    `json:"code"`
		Details  string `json:"details"`
		Upstream string `json:"upstream,omitempty"`
	}{x.id, x.r.Method, x.r.RequestURI, r.code, r.details, x.upstreamAddr})
	if err != nil { // a struct of strings and an int always marshals
		return
	}
	b.logMu.Lock()
	defer b.logMu.Unlock()
	_, _ = b.cfg.AccessLog.Write(append(line, '\n')) // nobody to tell
}
