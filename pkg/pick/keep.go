package pick

import "github.com/warmpath/warmpath/pkg/load"

// keep says whether a prompt stays on a decode worker, and on which: the mode is
// Disaggregated when it does not (dynamo.md 4.4).
//
// In the Dynamo model that is the decode worker of the pair, as in Dynamo. In the
// Congestion model it is the cheapest one that computes the prompt.
func (s *Scratch) keep(pair *pairing, l *leasts) (at int, mode Mode) {
	p := &s.pricing
	if p.Split.Condition == Never {
		return -1, Disaggregated
	}
	at = pair.decode
	if p.Model == Congestion {
		at = l.local.at
	}
	m := s.member(at)
	prefill, local := s.member(pair.prefill).load.Figures(), m.load.Figures()
	if above(local.PrefillTokens, p.MaxPrefillTokens) || aboveShare(local.PrefillTokens, p.MaxPrefillShare, m.stepTokens) {
		return -1, Disaggregated
	}
	short := func() bool {
		fresh := max(0, s.req.Tokens-s.matched(m)*int(p.blockSize))
		return fresh < p.Split.ShortTokens && float64(fresh) < p.Split.ShortRatio*p.tokens
	}
	switch c := p.Split.Condition; {
	case (c == IfShort || c == IfEither) && short():
		return at, KeptShort
	case (c == IfPrefillBusy || c == IfEither) && prefill.PrefillTokens > p.Split.BusyPrefillTokens:
		return at, KeptPrefillBusy
	case c == IfFaster && s.faster(at, pair, &prefill, &local):
		return at, KeptFaster
	}
	return -1, Disaggregated
}

// faster says whether the first token is estimated to come sooner from a decode
// worker alone than from a pair.
func (s *Scratch) faster(at int, pair *pairing, prefill, local *load.Figures) bool {
	alone, split := s.estimate(at, pair, prefill, local)
	return alone < split
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
