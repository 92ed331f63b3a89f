package render

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// Client asks engines for token ids. It is safe for concurrent use. Close it
// when done.
type Client struct {
	cfg    Config
	counts [outcomes]atomic.Uint64
	turn   atomic.Uint64

	mu      sync.Mutex
	urls    []string // what engines was built from
	engines []*engine
}

// New returns a client. A configuration without any engine is fine: every call
// then returns [ErrNoEngine].
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return &Client{cfg: cfg.withDefaults()}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }

// Tokens returns the token ids of the prompt in a request body, of its first
// prompt where it has several. It overwrites dst and returns it, grown as
// needed; after an error it returns dst empty.
//
// It asks one engine after another, starting at a different one each time,
// until one answers, one refuses the request or its model, or the deadline of
// ctx or [Config.Timeout] has passed. When all fail, the error is that of the
// last one asked. See [Reason] for a label.
func (c *Client) Tokens(ctx context.Context, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
	dst, err := c.tokens(ctx, dst, kind, body)
	c.counts[outcomeOf(err)].Add(1)
	if err != nil {
		return dst[:0], err
	}
	return dst, nil
}

// perByte is how much more time a byte of the request gives: tokenizing 100,000
// tokens takes an engine some 600 ms (engines.md 6.5). Without it, long prompts
// alone would open an engine's breaker for all.
const perByte = time.Microsecond

// newCall returns a call for a request that can be asked at all.
func (c *Client) newCall(kind prompt.Kind, body []byte) (*call, error) {
	if kind != prompt.Chat && kind != prompt.Completion {
		return nil, fmt.Errorf("%w: only chats and completions have a prompt", ErrRejected)
	}
	if int64(len(body)) > c.cfg.MaxRequestBytes {
		return nil, ErrTooLarge
	}
	return &call{client: c, kind: kind, body: body, timeout: c.cfg.Timeout + time.Duration(len(body))*perByte}, nil
}

func (c *Client) tokens(ctx context.Context, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
	call, err := c.newCall(kind, body)
	if err != nil {
		return dst, err
	}
	engines := c.current()
	if len(engines) == 0 {
		return dst, ErrNoEngine
	}
	ctx, cancel := context.WithTimeout(ctx, call.timeout)
	defer cancel()
	err = ErrOpen
	start := c.turn.Add(1)
	for i := range uint64(len(engines)) {
		e := engines[(start+i)%uint64(len(engines))]
		out, callErr := e.ask(ctx, call, dst)
		if callErr == nil {
			return out, nil
		}
		if errors.Is(callErr, gobreaker.ErrOpenState) || errors.Is(callErr, gobreaker.ErrTooManyRequests) {
			continue
		}
		err = fmt.Errorf("engine %s: %w", e.url, callErr)
		// An engine that does not know the model says what the others would: a
		// client must not have its body sent to all of them.
		if ctx.Err() != nil || errors.Is(callErr, ErrRejected) || errors.Is(callErr, ErrUnsupported) {
			break
		}
	}
	return dst, err
}

// current returns the engines of this moment. Engines that stayed keep their
// state, that of the others is dropped.
func (c *Client) current() []*engine {
	urls := c.cfg.URLs
	if len(urls) == 0 && c.cfg.Pool != nil {
		urls = c.cfg.Pool()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(urls, c.urls) {
		return c.engines
	}
	old := make(map[string]*engine, len(c.engines))
	for _, e := range c.engines {
		old[e.url] = e
	}
	c.urls = slices.Clone(urls)
	c.engines = make([]*engine, 0, len(urls))
	seen := make(map[string]bool, len(urls))
	for _, u := range urls {
		if seen[u] {
			continue
		}
		seen[u] = true
		e := old[u]
		if e == nil {
			e = newEngine(u, c.cfg)
		}
		c.engines = append(c.engines, e)
	}
	return c.engines
}
