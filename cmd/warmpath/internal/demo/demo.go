package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says what the demo does.
type Config struct {
	Gateway  string        // "envoy" or "builtin"
	Port     uint16        // of the gateway; 0 takes a free one
	SplitAt  time.Duration // start aggregated, become prefill/decode then; 0: prefill/decode at once
	Duration time.Duration // 0: until ctx ends
	Clients  int           // conversations at once; 0: no traffic but that of others
	JSON     bool          // end with one JSON object on Out
	Out      io.Writer     // the live view; with JSON only the result
	Progress io.Writer     // what is being set up; with JSON the live view too
	Log      *slog.Logger  // of the parts
}

// Validate reports what makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Gateway != "envoy" && c.Gateway != "builtin":
		return fmt.Errorf("--gateway %q is not envoy or builtin", c.Gateway)
	case c.SplitAt < 0 || c.Duration < 0:
		return errors.New("--split-at and --duration cannot be negative")
	case c.Duration > 0 && c.SplitAt >= c.Duration:
		return fmt.Errorf("--split-at %s never comes: --duration is %s", c.SplitAt, c.Duration)
	case c.Clients < 0:
		return errors.New("--clients cannot be negative")
	}
	return nil
}

// Result is what the demo measured.
type Result struct {
	Gateway           string            `json:"gateway"`
	Requests          int               `json:"requests"`
	Errors            int               `json:"errors"`
	HitRate           float64           `json:"hit_rate"`          // prompt tokens found in caches, share of all
	HitRateLast10s    float64           `json:"hit_rate_last_10s"` // the same over the last 10 s
	Ceiling           float64           `json:"ceiling"`           // the share an infinite cache would find
	Events            uint64            `json:"events"`            // KV events the picker received
	DecisionsByWorker map[string]int    `json:"decisions_by_worker"`
	TopWorkerShare    float64           `json:"top_worker_share"`    // of a tenant's prompts in the last 10 s, the share that its busiest worker computed; mean over tenants
	PrefillHeaderSeen uint64            `json:"prefill_header_seen"` // requests whose decode worker was told a prefill worker
	ErrorSamples      map[string]string `json:"error_samples,omitempty"`
}

// Run runs the demo until its duration is over or ctx ends; both are success.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	s, err := newStack(ctx, &cfg)
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case s == nil:
		return nil // interrupted while setting up
	}
	err = drive(ctx, &cfg, s)
	return errors.Join(err, s.close())
}

// clientEvery is the time between the starts of two clients.
const clientEvery = 250 * time.Millisecond

// drive sends traffic and shows what becomes of it.
func drive(ctx context.Context, cfg *Config, s *stack) error {
	if cfg.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Duration)
		defer cancel()
	}
	t := newTraffic(s.url())
	view := cfg.Out
	if cfg.JSON {
		view = cfg.Progress
	}
	group, gctx := errgroup.WithContext(ctx)
	for i := range cfg.Clients {
		group.Go(func() error {
			pause(gctx, time.Duration(i)*clientEvery) // so that one sees caches fill
			t.client(gctx, i)
			return nil
		})
	}
	if cfg.Clients > 0 {
		group.Go(func() error { show(gctx, view, t, s); return nil })
	}
	group.Go(func() error { return s.watch(gctx) })
	if cfg.SplitAt > 0 {
		group.Go(func() error { return s.splitAt(gctx, cfg.SplitAt, view) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r := t.result()
	r.Gateway, r.Events, r.PrefillHeaderSeen = cfg.Gateway, s.events(), s.prefillHeaders()
	if cfg.JSON {
		return json.NewEncoder(cfg.Out).Encode(r)
	}
	return summary(cfg.Out, &r)
}
