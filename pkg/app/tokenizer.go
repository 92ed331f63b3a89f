package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/render"
)

// promptTokens turns prompts into chains: in this process where that is configured
// and allowed, else by asking an engine.
type promptTokens struct {
	part
	*render.Client

	layout    block.Layout
	inProcess *inProcess // nil when not configured
}

// newPromptTokens returns what turns prompts into chains, or nil when that is turned
// off.
func newPromptTokens(policy *v1alpha1.RoutingPolicySpec, pool *atomic.Pointer[fleet.Snapshot], log *slog.Logger) (*promptTokens, error) {
	spec := &policy.Tokenizer
	if spec.Disabled {
		return nil, nil
	}
	layout := layoutOf(policy)
	engines := &enginePool{pool: pool}
	protocols := map[v1alpha1.TokenizeProtocol]render.Protocol{
		v1alpha1.TokenizeAuto:     render.Auto,
		v1alpha1.TokenizeRender:   render.Render,
		v1alpha1.TokenizeTokenize: render.Tokenize,
	}
	client, err := render.New(render.Config{
		URLs:            spec.Engine.URLs,
		Pool:            engines.urls,
		Protocol:        protocols[spec.Engine.Protocol],
		Timeout:         spec.Engine.Timeout.Duration,
		BreakerFailures: spec.Engine.Breaker.Failures,
		BreakerCooldown: spec.Engine.Breaker.Cooldown.Duration,
	})
	if err != nil {
		return nil, err
	}
	t := &promptTokens{Client: client, layout: layout}
	t.part = newPart(t.run)
	if spec.InProcess.Enabled() {
		if t.inProcess, err = configureInProcess(policy, layout, client, log); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func layoutOf(spec *v1alpha1.RoutingPolicySpec) block.Layout {
	return block.Layout{Size: spec.BlockSize, Eagle: spec.Eagle}
}

// run works until ctx ends. Idle connections end with it.
func (t *promptTokens) run(ctx context.Context) error {
	defer t.Close()
	if t.inProcess != nil {
		return t.inProcess.run(ctx)
	}
	<-ctx.Done()
	return nil
}

// ready says what a new picker waits for.
func (t *promptTokens) ready() error {
	if t.inProcess == nil {
		return nil
	}
	return t.inProcess.ready()
}

// Tokenize implements extproc.Tokenizer. What cannot be done in process goes one
// step back, to an engine.
func (t *promptTokens) Tokenize(ctx context.Context, p *extproc.Prompt) (err error) {
	if t.inProcess != nil {
		reason := t.inProcess.tokenize(p)
		if reason == "" {
			return nil
		}
		if t.inProcess.alone(p) {
			return &extproc.TokenizeError{Reason: reason, Request: true, Err: errAlone}
		}
	}
	p.Source, p.Lent = extproc.Engine, true
	p.IDs, err = t.Tokens(ctx, p.IDs[:0], p.Kind, p.Body)
	if err != nil {
		return &extproc.TokenizeError{
			Reason:  render.Reason(err),
			Request: errors.Is(err, render.ErrRejected) || errors.Is(err, render.ErrTooLarge) || errors.Is(err, render.ErrUnsupported),
			Err:     err,
		}
	}
	p.Hash(t.layout)
	if t.inProcess != nil {
		t.inProcess.told(p)
	}
	return nil
}

var errAlone = errors.New("the token ids cannot be computed here, and no engine has an endpoint that tells them")

// enginePool lists the engines of the pool, once per change of it.
type enginePool struct {
	pool *atomic.Pointer[fleet.Snapshot]
	last atomic.Pointer[engineList]
}

type engineList struct {
	of   *fleet.Snapshot
	urls []string
}

func (p *enginePool) urls() []string {
	now := p.pool.Load()
	if now == nil {
		return nil
	}
	if last := p.last.Load(); last != nil && last.of == now {
		return last.urls
	}
	next := &engineList{of: now, urls: engines(now)}
	p.last.Store(next)
	return next.urls
}

// engines returns the base URLs of the workers that serve the OpenAI API for the
// pool. Workers that share an endpoint are asked once.
func engines(s *fleet.Snapshot) []string {
	var urls []string
	seen := map[string]bool{}
	for _, w := range s.Workers {
		url := "http://" + w.Endpoint.String()
		if w.Role != fleet.Prefill && !seen[url] {
			seen[url] = true
			urls = append(urls, url)
		}
	}
	return urls
}
