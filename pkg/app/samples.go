package app

import (
	"context"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/parity"
)

// sample is one request of live traffic that is compared with an engine, after it
// has been routed.
type sample struct {
	model *model
	at    time.Time
	kase  parity.Case
	seed  block.Seed

	// What the request was routed by: chains that were computed here, or the ids
	// of an engine.
	inProcess bool
	chains    []block.Chain
	tokens    int
	engine    []uint32
}

// maxSampleBytes is the largest body that is compared, in bytes.
const maxSampleBytes = 1 << 20

// offer hands a sample over. It never waits: a request is under way.
func (p *inProcess) offer(s *sample, shape parity.Shape, pr *extproc.Prompt) {
	if len(pr.Body) > maxSampleBytes {
		p.dropped.Add(1)
		return
	}
	s.seed = pr.Seed
	s.kase = parity.LiveCase(shape, parity.Case{Kind: pr.Kind, Body: slices.Clone(pr.Body)})
	select {
	case p.samples <- s:
	default:
		p.dropped.Add(1)
	}
}

// compare compares samples until ctx ends.
func (p *inProcess) compare(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-p.samples:
			p.inspect(ctx, s)
		}
	}
}

// inspect compares one sample.
func (p *inProcess) inspect(ctx context.Context, s *sample) {
	if p.current.Load() != s.model {
		return // about files that are not in use any more
	}
	url, ids, outcome := "", s.engine, parity.Agree
	if s.inProcess {
		urls := p.cfg.Engines.Engines()
		if len(urls) == 0 {
			return
		}
		url = urls[p.turn.Add(1)%uint64(len(urls))]
		ids, outcome = p.engine(ctx, url)(&s.kase)
	}
	if ctx.Err() != nil {
		return
	}
	r := parity.Result{Case: &s.kase, Outcome: outcome}
	if outcome == parity.Agree {
		r = parity.Judge(&s.kase, ids, p.local(s.model, s.at), s.model.gate.Special())
	}
	if token, same := s.routed(ids, p.cfg.Layout); r.Outcome == parity.Agree && s.inProcess && !same {
		r.Outcome, r.Diff = parity.Differ, parity.Diff{Token: token, Local: s.tokens, Engine: len(ids)}
	}
	p.checks[originLive][r.Outcome].Add(1)
	p.tell(s.model, s.model.gate.Live(url, r))
	if r.Outcome == parity.Differ {
		p.differed.Store(true)
	}
}

// routed says whether the request was routed by the chains that these ids have.
// Where it was not, token is about where they part.
func (s *sample) routed(ids []uint32, layout block.Layout) (token int, same bool) {
	if s.tokens > len(ids) {
		return len(ids), false
	}
	chains := block.AppendChains(nil, layout.AppendHashes(nil, ids[:s.tokens], s.seed))
	for i := range min(len(chains), len(s.chains)) {
		if chains[i] != s.chains[i] {
			return i * layout.Size, false
		}
	}
	return min(len(chains), len(s.chains)) * layout.Size, len(chains) == len(s.chains)
}
