package render

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// engine is what is remembered of one engine.
type engine struct {
	url     string
	base    string // url without a slash at its end
	breaker *gobreaker.CircuitBreaker[[]uint32]
	// tokenize says that this engine has /tokenize and no render endpoint.
	tokenize atomic.Bool
	counts   [outcomes]atomic.Uint64
	busy     atomic.Int64 // nanoseconds
}

// call is one call of Tokens.
type call struct {
	client *Client
	kind   prompt.Kind
	body   []byte
	// timeout is the time the whole call has.
	timeout time.Duration
	// short is the tokenize body, built when first needed.
	short []byte
}

// blamelessError is a failure that says nothing about the engine.
type blamelessError struct{ error }

func (e blamelessError) Unwrap() error { return e.error }

func newEngine(url string, cfg Config) *engine {
	return &engine{
		url:  url,
		base: strings.TrimRight(url, "/"),
		breaker: gobreaker.NewCircuitBreaker[[]uint32](gobreaker.Settings{
			Name:    url,
			Timeout: cfg.BreakerCooldown,
			ReadyToTrip: func(counts gobreaker.Counts) bool {
				return int64(counts.ConsecutiveFailures) >= int64(cfg.BreakerFailures)
			},
			// A request that is itself at fault shows that the engine works. And
			// a client must not be able to pause it by naming a wrong model.
			IsSuccessful: func(err error) bool {
				return err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrUnsupported)
			},
			IsExcluded: func(err error) bool { return errors.As(err, new(blamelessError)) },
		}),
	}
}

// ask asks the engine, unless its breaker is open.
func (e *engine) ask(ctx context.Context, c *call, dst []uint32) ([]uint32, error) {
	return e.breaker.Execute(func() ([]uint32, error) {
		cfg := c.client.cfg
		// A context's deadline is on the real clock, whatever Now is.
		deadline, _ := ctx.Deadline()
		left := time.Until(deadline)
		start := cfg.Now()
		out, err := e.choose(ctx, c, dst)
		e.busy.Add(int64(cfg.Now().Sub(start)))
		e.counts[outcomeOf(err)].Add(1)
		switch {
		case errors.Is(err, context.Canceled):
			return nil, blamelessError{err}
		case errors.Is(err, ErrTimeout) && left < c.timeout/2:
			// Another engine, or the caller, had used up the time.
			return nil, blamelessError{err}
		}
		return out, err
	})
}

// choose asks by the protocol that fits.
func (e *engine) choose(ctx context.Context, c *call, dst []uint32) ([]uint32, error) {
	switch protocol := c.client.cfg.Protocol; {
	case protocol == Render:
		return e.askRender(ctx, c, dst)
	case protocol == Tokenize:
		return e.askTokenize(ctx, c, dst)
	case e.tokenize.Load():
		out, err := e.askTokenize(ctx, c, dst)
		if errors.Is(err, ErrUnsupported) {
			e.tokenize.Store(false) // it may have been upgraded: look again next time
		}
		return out, err
	}
	out, err := e.askRender(ctx, c, dst)
	if !errors.Is(err, ErrUnsupported) {
		return out, err
	}
	// An engine also answers 404 for a model that it does not serve. Only when
	// /tokenize works is it the endpoint that is missing.
	out, err = e.askTokenize(ctx, c, dst)
	if err == nil {
		e.tokenize.Store(true)
	}
	return out, err
}

func (e *engine) askRender(ctx context.Context, c *call, dst []uint32) ([]uint32, error) {
	path := prompt.CompletionPath
	if c.kind == prompt.Chat {
		path = prompt.ChatPath
	}
	return c.client.post(ctx, e.base+path+"/render", c.body, "token_ids", dst)
}

func (e *engine) askTokenize(ctx context.Context, c *call, dst []uint32) ([]uint32, error) {
	if c.short == nil {
		var err error
		if c.short, err = tokenizeBody(c.kind, c.body); err != nil {
			return nil, err
		}
	}
	return c.client.post(ctx, e.base+"/tokenize", c.short, "tokens", dst)
}

// EngineStats is what was seen of one engine.
type EngineStats struct {
	// URL is the base URL.
	URL string
	// Breaker is "closed", "half-open" or "open".
	Breaker string
	// Tokenize says that Auto found /tokenize and no render endpoint here.
	Tokenize bool
	// Calls were sent to the engine. Failures counts those that failed, by
	// [Reason].
	Calls    uint64
	Failures map[string]uint64
	// Busy is the time that all calls took together.
	Busy time.Duration
}

// Stats is what a client has done so far.
type Stats struct {
	// Calls of Tokens. Failures counts those that failed, by [Reason].
	Calls    uint64
	Failures map[string]uint64
	// Engines are those of this moment, in the order they were given. An engine
	// that vanished takes its figures along.
	Engines []EngineStats
}

// Stats returns a copy of the counters.
func (c *Client) Stats() Stats {
	s := Stats{}
	s.Calls, s.Failures = summary(&c.counts)
	for _, e := range c.current() {
		es := EngineStats{
			URL:      e.url,
			Breaker:  e.breaker.State().String(),
			Tokenize: e.tokenize.Load(),
			Busy:     time.Duration(e.busy.Load()),
		}
		es.Calls, es.Failures = summary(&e.counts)
		s.Engines = append(s.Engines, es)
	}
	return s
}

func summary(counts *[outcomes]atomic.Uint64) (calls uint64, failures map[string]uint64) {
	failures = map[string]uint64{}
	for o := range outcomes {
		n := counts[o].Load()
		calls += n
		if o != succeeded && n > 0 {
			failures[labels[o]] = n
		}
	}
	return calls, failures
}
