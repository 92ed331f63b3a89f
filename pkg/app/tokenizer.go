package app

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/render"
)

// tokenizer asks engines for token ids, and says whose fault a failure is.
type tokenizer struct {
	*render.Client
	layout block.Layout
}

// newTokenizer returns what asks engines for token ids, or nil when that is
// turned off.
func newTokenizer(spec *v1alpha1.TokenizerSpec, layout block.Layout, picker *pick.Picker) (*tokenizer, error) {
	if spec.Disabled {
		return nil, nil
	}
	pool := &enginePool{picker: picker}
	protocols := map[v1alpha1.TokenizeProtocol]render.Protocol{
		v1alpha1.TokenizeAuto:     render.Auto,
		v1alpha1.TokenizeRender:   render.Render,
		v1alpha1.TokenizeTokenize: render.Tokenize,
	}
	client, err := render.New(render.Config{
		URLs:            spec.Engine.URLs,
		Pool:            pool.urls,
		Protocol:        protocols[spec.Engine.Protocol],
		Timeout:         spec.Engine.Timeout.Duration,
		BreakerFailures: spec.Engine.Breaker.Failures,
		BreakerCooldown: spec.Engine.Breaker.Cooldown.Duration,
	})
	if err != nil {
		return nil, err
	}
	return &tokenizer{client, layout}, nil
}

// Tokenize implements extproc.Tokenizer.
func (t *tokenizer) Tokenize(ctx context.Context, p *extproc.Prompt) (err error) {
	p.Source, p.Lent = extproc.Engine, true
	p.IDs, err = t.Client.Tokens(ctx, p.IDs[:0], p.Kind, p.Body)
	if err != nil {
		return &extproc.TokenizeError{
			Reason:  render.Reason(err),
			Request: errors.Is(err, render.ErrRejected) || errors.Is(err, render.ErrTooLarge) || errors.Is(err, render.ErrUnsupported),
			Err:     err,
		}
	}
	p.Hash(t.layout)
	return nil
}

// enginePool lists the engines of the pool, once per change of it.
type enginePool struct {
	picker *pick.Picker
	last   atomic.Pointer[engineList]
}

type engineList struct {
	of   *fleet.Snapshot
	urls []string
}

func (p *enginePool) urls() []string {
	now := p.picker.Fleet()
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
