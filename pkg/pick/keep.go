package pick

import (
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// keep says whether a prompt should stay on a decode worker, and on which: the mode is
// Disaggregated when it should not (dynamo.md 4.4). Where all prefill workers are over
// a bound there is no pair, and the prompt would have to wait for one.
//
// In the Dynamo model that is the decode worker of the pair, as in Dynamo. In the
// Congestion model it is the cheapest one that computes the prompt.
func (s *Scratch) keep(pair *pairing, l *leasts, random func(int) int) (at int, mode Mode) {
	p := &s.pricing
	c := p.Split.Condition
	if c == Never || l.local.n == 0 {
		return -1, Disaggregated
	}
	paired := pair.prefill >= 0
	switch at = l.local.at; {
	case p.Model == Dynamo && paired:
		at = pair.decode
	case p.Model == Dynamo:
		at = l.side[fleet.Decode].at
	}
	m := s.member(at)
	local := m.load.Figures()
	if above(local.PrefillTokens, p.MaxPrefillTokens) || aboveShare(local.PrefillTokens, p.MaxPrefillShare, m.stepTokens) {
		return -1, Disaggregated
	}
	switch {
	case (c == IfShort || c == IfEither) && s.short(m):
		return at, KeptShort
	case (c == IfPrefillBusy || c == IfEither) && (!paired || s.busy(pair.prefill)):
		return at, KeptPrefillBusy
	case c == IfFaster && (!paired || s.faster(at, pair, &local, random)):
		return at, KeptFaster
	}
	return -1, Disaggregated
}

// short says whether little of the prompt is to be computed on a worker.
func (s *Scratch) short(m *member) bool {
	p := &s.pricing
	fresh := max(0, s.req.Tokens-s.matched(m)*int(p.blockSize))
	return fresh < p.Split.ShortTokens && float64(fresh) < p.Split.ShortRatio*p.tokens
}

// busy says whether a prefill worker has much to do.
func (s *Scratch) busy(at int) bool {
	m, o := s.member(at), &s.pricing.Split
	tokens := m.load.Figures().PrefillTokens
	return above(tokens, o.BusyPrefillTokens) || aboveShare(tokens, o.BusyPrefillShare, m.stepTokens)
}

// exploreOneIn is how many prompts go the way that is estimated to be the faster one,
// for one that goes the other way: what is never done teaches nothing, and what was
// learned of it would count for ever.
const exploreOneIn = 64

// faster says whether the first token is estimated to come sooner from a decode
// worker alone than from a pair; now and then that it does not.
func (s *Scratch) faster(at int, pair *pairing, local *load.Figures, random func(int) int) bool {
	prefill := s.member(pair.prefill).load.Figures()
	alone, split := s.estimate(at, pair, &prefill, local)
	return (alone < split) != (random(exploreOneIn) == 0)
}

// kept is the choice for a prompt that should stay on a decode worker, false when the
// data plane cannot do that, and there is no aggregated worker at a fair price: one
// that costs no more than twice the pair and the computing of the prompt.
func (s *Scratch) kept(at int, held Mode, pair *pairing, aggregated *least) (c choice, ok bool) {
	p := &s.pricing
	if p.Split.NeedsPair {
		if aggregated.n == 0 || s.Candidates[aggregated.at].penalty >= avoided {
			return c, false
		}
		whole := p.blocks
		if p.Model == Congestion {
			whole = p.tokens
		}
		if pair.prefill >= 0 && aggregated.cost() > 2*pair.cost+whole {
			return c, false
		}
	}
	if aggregated.n > 0 && (p.Split.NeedsPair || aggregated.cost() < s.Candidates[at].Local) {
		c = s.single(aggregated)
		c.held = held
		return c, true
	}
	return choice{prefill: at, decode: at, mode: held, held: held}, true
}

// estimate is the time to the first token, in seconds, on a decode worker alone and
// on a pair.
func (s *Scratch) estimate(at int, pair *pairing, prefill, local *load.Figures) (alone, split float64) {
	p := &s.pricing
	work := func(c int, f *load.Figures) float64 {
		return float64(f.PrefillTokens) + max(0, p.tokens-s.Candidates[c].saved*p.blockSize)
	}
	// A decode worker that never computed a prompt is taken to be as fast.
	speed := p.secondsPerToken(prefill.SecondsPerToken)
	alone = work(at, local) * speed
	if local.SecondsPerToken > 0 {
		alone = work(at, local) * local.SecondsPerToken
	}
	compute := work(pair.prefill, prefill)
	return alone, compute*speed + p.Transfer.seconds(p, compute, s.distance(pair.prefill, pair.decode))
}
