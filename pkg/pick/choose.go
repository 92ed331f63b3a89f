package pick

import (
	"math"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// choice is the outcome of choose: positions in the candidates, or an error.
type choice struct {
	prefill, decode int
	mode            Mode
	held            Mode // the condition that speaks against a split
	moot            bool
	err             error
}

// leasts are the cheapest candidates.
type leasts struct {
	side  [numSides]least // for what they would do
	local least           // decode workers, when they compute the prompt too
	busy  int             // could decode, but for a bound
	wait  bool            // could prefill, but for a bound
}

// choose compares the best pair with the best aggregated worker, by their load as of
// now. It changes nothing but its scratch: without the lock, the load may change
// meanwhile (see holds).
func (s *Scratch) choose(random func(int) int) choice {
	var l leasts
	s.compare(&l, random)
	c := s.settle(&l, random)
	if c.err == nil && s.pricing.temperature > 0 {
		s.soften(&c, random)
	}
	if c.err == nil && s.req.Session != "" {
		s.steer(&c)
	}
	return c
}

// holds says whether a choice is still right: nothing was booked on its workers
// since their load was looked at. What was booked on others made them dearer. The
// caller holds the lock.
func (s *Scratch) holds(c *choice) bool {
	if c.err != nil {
		return true
	}
	same := func(at int) bool { return s.member(at).load.Version() == s.Candidates[at].version }
	return same(c.prefill) && same(c.decode)
}

// compare computes the costs of all candidates, and finds the cheapest.
func (s *Scratch) compare(l *leasts, random func(int) int) {
	p := &s.pricing
	if p.Model == Dynamo && p.knobs.OverlapScoreCreditDecay > 0 {
		p.lowest = s.lowestPrefill()
	}
	bounded := !s.req.PromptLess && p.bounded()
	for i := range s.Candidates {
		t := &s.Candidates[i]
		m := &s.pool.members[t.Worker]
		t.version = m.load.Version() // before the figures, so that it is no newer
		f := m.load.Work()
		if p.MaxBlocksShare > 0 { // then by its own word, too
			f = m.load.Figures()
		}
		if t.out = bounded && p.over(t.Side, &f, m); t.out {
			if t.Side == fleet.Prefill {
				l.wait = true
			} else {
				l.busy++
			}
			continue
		}
		t.Cost, t.Local = p.price(p.Model, t, &f, m)
		l.side[t.Side].offer(i, t.Cost, random)
		if t.Side == fleet.Decode {
			l.local.offer(i, t.Local, random)
		}
	}
}

// lowestPrefill is what waits on the least loaded candidate that computes prompts.
func (s *Scratch) lowestPrefill() float64 {
	low := math.Inf(1)
	for i := range s.Candidates {
		if t := &s.Candidates[i]; t.Side != fleet.Decode {
			low = min(low, float64(s.pool.members[t.Worker].load.Figures().PrefillTokens))
		}
	}
	return low
}

// bounded says whether there is a bound at all.
func (p *pricing) bounded() bool {
	return p.MaxPrefillTokens > 0 || p.MaxDecodeBlocks > 0 || p.MaxPrefillShare > 0 || p.MaxBlocksShare > 0
}

// over says whether a bound leaves a worker out.
func (p *pricing) over(side fleet.Role, f *load.Figures, m *member) bool {
	computes, decodes := side != fleet.Decode, side != fleet.Prefill
	return computes && (above(f.PrefillTokens, p.MaxPrefillTokens) || aboveShare(f.PrefillTokens, p.MaxPrefillShare, m.stepTokens)) ||
		decodes && (above(f.DecodeBlocks, p.MaxDecodeBlocks) || p.full(f, m))
}

// full says whether more than the bound of a worker's KV blocks are in use: those of
// its requests, or by its own word.
func (p *pricing) full(f *load.Figures, m *member) bool {
	return p.MaxBlocksShare > 0 && f.KVUse > p.MaxBlocksShare || aboveShare(f.DecodeBlocks, p.MaxBlocksShare, m.room(f))
}

// above says whether a figure is over a bound; 0 is no bound.
func above(figure, bound int) bool { return bound > 0 && figure > bound }

// aboveShare is the same for a share of what a worker has, where that is known.
func aboveShare(figure int, share float64, of int) bool {
	return share > 0 && of > 0 && float64(figure) > share*float64(of)
}

// settle takes the cheaper of the best pair and the best aggregated worker, or a
// decode worker alone where there is nothing else, or where a split does not pay.
func (s *Scratch) settle(l *leasts, random func(int) int) choice {
	o := &s.pricing.Split
	aggregated := &l.side[fleet.Aggregated]
	if s.req.PromptLess {
		if d := &l.side[fleet.Decode]; d.n > 0 {
			return choice{prefill: d.at, decode: d.at, mode: PromptLess}
		}
		return s.refuse(l)
	}
	pair := s.pair(l, random)
	if pair.prefill >= 0 && pair.cost > aggregated.cost() {
		return s.single(aggregated)
	}
	held := Disaggregated
	if pair.prefill >= 0 || l.wait {
		var at int
		if at, held = s.keep(&pair, l, random); held != Disaggregated {
			if c, ok := s.kept(at, held, &pair, aggregated); ok {
				return c
			}
		}
	}
	switch {
	case aggregated.n > 0 && (pair.prefill < 0 || aggregated.cost() == pair.cost && random(2) == 0):
		return s.single(aggregated)
	case pair.prefill >= 0:
		return choice{prefill: pair.prefill, decode: pair.decode, mode: Disaggregated, held: held, moot: held != Disaggregated}
	case l.wait: // one will have room soon, and a decode worker would be held up
	case o.Mode == SplitRequired:
	case l.local.n > 0:
		c := choice{prefill: l.local.at, decode: l.local.at, mode: NoPrefillReady}
		if s.prefillOutside {
			c.mode = NoPrefillInSubset
		}
		return c
	}
	return s.refuse(l)
}

// single takes a worker that does both.
func (s *Scratch) single(l *least) choice {
	c := choice{prefill: l.at, decode: l.at, mode: OnAggregated}
	if s.member(l.at).role == fleet.Decode {
		c.mode = SplitOff
	}
	return c
}

// refuse says why there is no decision.
func (s *Scratch) refuse(l *leasts) choice {
	decodes := l.side[fleet.Decode].n > 0
	// With both halves there, none of them connects.
	lacks := decodes || s.required && l.side[fleet.Prefill].n == 0
	required := lacks && s.pricing.Split.Mode == SplitRequired && !l.wait
	c := choice{err: ErrNoWorkers}
	switch {
	case l.wait && (decodes || l.busy > 0):
		c.err = ErrBusy
	case required && !s.req.PromptLess:
		c.err = ErrNoPrefill
	case l.busy > 0:
		c.err = ErrBusy
	case s.outside > 0:
		c.err = ErrSubset
	}
	return c
}

// least keeps the cheapest of what is offered, equal ones at random with equal
// chances.
type least struct {
	at  int // of the candidates
	low float64
	n   int // how many share the lowest cost
}

func (l *least) offer(at int, cost float64, random func(int) int) {
	switch {
	case l.n == 0 || cost < l.low:
		*l = least{at: at, low: cost, n: 1}
	case cost == l.low:
		l.n++
		if random(l.n) == 0 {
			l.at = at
		}
	}
}

// cost is the lowest cost, or infinity without candidates.
func (l *least) cost() float64 {
	if l.n == 0 {
		return math.Inf(1)
	}
	return l.low
}
