package recovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ErrStopped is the error of a query of a client whose Start has returned, or
// returned meanwhile.
var ErrStopped = errors.New("recovery client has stopped")

// errTimeout is the cause of a query's end after Config.Timeout.
var errTimeout = fmt.Errorf("took longer than its timeout: %w", context.DeadlineExceeded)

// Client asks workers. Query is safe for concurrent use, while Start runs.
type Client struct {
	cfg   Config
	newID func() (string, error)

	greetTimeout time.Duration // the constant, but for tests

	up      chan struct{} // closed when there is a listener, or will never be
	started atomic.Bool
	slots   chan struct{} // one per running query

	mu       sync.Mutex
	listener net.Listener
	stopped  bool
	calls    map[string]*call // by the id that the worker's dial-back must name

	stats counters
}

// call is a query that is under way.
type call struct {
	cancel context.CancelCauseFunc
	taken  bool          // the dial-back has come
	back   chan net.Conn // takes it without waiting
}

type counters struct {
	queries, failed, dialBacks, refused atomic.Uint64
	bytes                               atomic.Int64
}

// Stats counts what a client did.
type Stats struct {
	Queries   uint64 // that have ended or run
	Failed    uint64 // of those, without an answer
	DialBacks uint64 // that were waited for
	Refused   uint64 // connections that were not: unknown, late, double, malformed, or too many
	Bytes     int64  // of answers, frames and all
}

// New returns a client that has not been started.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Client{
		cfg: cfg, newID: randomID, greetTimeout: greetTimeout, up: make(chan struct{}),
		slots: make(chan struct{}, cfg.MaxQueries), calls: map[string]*call{},
	}, nil
}

// randomID returns an id that nobody else can name: 122 random bits.
func randomID() (string, error) {
	id, err := uuid.NewRandom()
	return id.String(), err
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	return Stats{
		Queries: c.stats.queries.Load(), Failed: c.stats.failed.Load(),
		DialBacks: c.stats.dialBacks.Load(), Refused: c.stats.refused.Load(), Bytes: c.stats.bytes.Load(),
	}
}

// Start listens on Config.Listen, and serves. It returns an error at once when it
// cannot listen. It is called once.
func (c *Client) Start(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.cfg.Listen)
	if err != nil {
		c.stop()
		close(c.up)
		return fmt.Errorf("recovery: listen for dial-backs: %w", err)
	}
	return c.Serve(ctx, l)
}

// Serve takes dial-backs from a listener until ctx ends, then closes it, ends the
// queries that run, and returns nil when all it began has ended. It is called once,
// instead of Start.
func (c *Client) Serve(ctx context.Context, l net.Listener) error {
	if !c.started.CompareAndSwap(false, true) {
		l.Close()
		return errors.New("recovery: started twice")
	}
	c.mu.Lock()
	c.listener = l
	c.mu.Unlock()
	close(c.up)
	c.cfg.Log.Info("listening for the answers of workers", "address", l.Addr().String())
	c.accept(ctx, l)
	c.stop()
	return nil
}

// stop ends all queries and lets none begin.
func (c *Client) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, q := range c.calls {
		q.cancel(ErrStopped)
	}
}

// Query asks a worker and returns its answer. Before Start has got its listener,
// and while MaxQueries others run, it waits. The error is a [*RemoteError] when
// the worker says that it cannot answer, [ErrStopped], [ErrNoDialBack],
// [ErrTooLarge], [ErrProtocol], [ErrOtherWorker], the cause of ctx's end, or one
// of the network. A query that has failed left nothing behind, here or there,
// and may be tried again.
func (c *Client) Query(ctx context.Context, t Target, r Request) (Answer, error) {
	c.stats.queries.Add(1)
	a, err := c.query(ctx, t, r)
	if err != nil {
		c.stats.failed.Add(1)
		return Answer{}, fmt.Errorf("ask worker %d rank %d at %.256s: %w", r.WorkerID, r.Rank, t.Address, err)
	}
	return a, nil
}

func (c *Client) query(ctx context.Context, t Target, r Request) (Answer, error) {
	if err := r.validate(t); err != nil {
		return Answer{}, err
	}
	ctx, stopTimer := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer stopTimer()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	select {
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("wait for the listener: %w", context.Cause(ctx))
	case <-c.up:
	}
	id, err := c.newID()
	if err != nil {
		return Answer{}, fmt.Errorf("make an id: %w", err)
	}
	q, listening, err := c.open(id, cancel)
	if err != nil {
		return Answer{}, err
	}
	defer c.close(id, q)
	select {
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("wait for other queries: %w", context.Cause(ctx))
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	}
	a, err := c.exchange(ctx, q, t, r, listening, id)
	if err != nil && ctx.Err() != nil {
		// What the network says then is only how we stopped it.
		return Answer{}, context.Cause(ctx)
	}
	return a, err
}

// open registers a query under an id.
func (c *Client) open(id string, cancel context.CancelCauseFunc) (*call, net.Addr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, nil, ErrStopped
	}
	if _, taken := c.calls[id]; taken {
		return nil, nil, errors.New("the id is in use")
	}
	q := &call{cancel: cancel, back: make(chan net.Conn, 1)}
	c.calls[id] = q
	return q, c.listener.Addr(), nil
}

// close forgets a query, and ends a dial-back that came too late to be read.
func (c *Client) close(id string, q *call) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
	select {
	case conn := <-q.back:
		kill(conn)
		conn.Close()
	default:
	}
}
