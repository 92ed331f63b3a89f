package pick

import (
	"math"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// pairing is a prefill and a decode worker that go together, by position in the
// candidates; prefill is below 0 when there is none.
type pairing struct {
	prefill, decode int
	cost            float64 // transfer included
}

// tieBreak makes the nearer of two pairs the cheaper one where nothing is known of
// what a transfer costs. It is less than any difference of work.
const tieBreak = 1e-6

// pair finds the cheapest pair.
func (s *Scratch) pair(l *leasts, random func(int) int) pairing {
	none := pairing{prefill: -1, decode: -1, cost: math.Inf(1)}
	prefill, decode := &l.side[fleet.Prefill], &l.side[fleet.Decode]
	switch {
	case prefill.n == 0 || decode.n == 0:
		return none
	case s.pool.sites.alike():
		p := pairing{prefill: prefill.at, decode: decode.at}
		p.cost = prefill.low + decode.low + s.transfer(p.prefill, s.distance(p.prefill, p.decode))
		return p
	case s.pricing.Split.Order == DecodeFirst:
		best := none
		var first least
		for i := range s.Candidates {
			if s.takes(i, fleet.Decode) && s.mated(i) {
				first.offer(i, s.Candidates[i].Cost, random)
			}
		}
		if first.n > 0 {
			s.join(&best, first.at, random)
		}
		return best
	}
	best := none
	groups := int32(len(s.pool.sites.groups))
	if groups == 0 {
		s.meet(&best, 0, random)
	}
	for g := int32(1); g <= groups; g++ {
		s.meet(&best, g, random)
	}
	return best
}

// join finds the cheapest prefill worker for a decode worker.
func (s *Scratch) join(best *pairing, decode int, random func(int) int) {
	var l least
	for i := range s.Candidates {
		if t := &s.Candidates[i]; t.Side == fleet.Prefill && !t.out && s.connect(i, decode) {
			l.offer(i, t.Cost+s.transfer(i, s.distance(i, decode)), random)
		}
	}
	if l.n > 0 {
		*best = pairing{prefill: l.at, decode: decode, cost: l.low + s.Candidates[decode].Cost}
	}
}

// meet finds the cheapest pair among the workers of a group, which all connect. For
// every prefill worker the best decode worker near it is looked up by what they have
// in common, so that the work grows with the workers, not with the pairs. That is
// exact, since a longer way never costs less.
func (s *Scratch) meet(best *pairing, group int32, random func(int) int) {
	sites := s.pool.sites
	if n := len(sites.values) + 1; cap(s.byPlace) < n {
		s.byPlace = make([]least, n)
	}
	near := s.byPlace[:len(sites.values)+1] // 0 is everywhere
	clear(near)
	for i := range s.Candidates {
		t := &s.Candidates[i]
		if at := s.site(i); t.Side == fleet.Decode && !t.out && fits(at.group, group) {
			near[0].offer(i, t.Cost, random)
			for _, value := range at.near {
				if value != 0 {
					near[value].offer(i, t.Cost, random)
				}
			}
		}
	}
	l := least{low: best.cost}
	if best.prefill >= 0 {
		l.n = 1
	}
	if near[0].n == 0 {
		return
	}
	for i := range s.Candidates {
		t := &s.Candidates[i]
		at := s.site(i)
		if t.Side != fleet.Prefill || t.out || !fits(at.group, group) {
			continue
		}
		offer := func(d *least, way fleet.Distance) {
			if before := l; d.n > 0 {
				if l.offer(i, t.Cost+d.low+s.transfer(i, way), random); l != before && l.at == i {
					*best = pairing{prefill: i, decode: d.at, cost: l.low}
				}
			}
		}
		offer(&near[0], fleet.Elsewhere)
		for way, value := range at.near {
			if value != 0 {
				offer(&near[value], fleet.Distance(way))
			}
		}
	}
}

// mated says whether a prefill worker connects with a decode worker.
func (s *Scratch) mated(decode int) bool {
	if len(s.pool.sites.groups) == 0 {
		return true
	}
	for i := range s.Candidates {
		if s.takes(i, fleet.Prefill) && s.connect(i, decode) {
			return true
		}
	}
	return false
}

// fits says whether a worker of one group connects with those of another; 0 is not
// known, and fits all.
func fits(a, b int32) bool { return a == b || a == 0 || b == 0 }

func (s *Scratch) site(c int) *site { return &s.pool.sites.all[s.member(c).site] }

func (s *Scratch) connect(a, b int) bool { return fits(s.site(a).group, s.site(b).group) }

func (s *Scratch) distance(a, b int) fleet.Distance {
	x, y := s.site(a), s.site(b)
	for way, value := range x.near {
		if value != 0 && value == y.near[way] {
			return fleet.Distance(way)
		}
	}
	return fleet.Elsewhere
}

// transfer is what handing the blocks over costs, in the unit of the costs.
func (s *Scratch) transfer(prefill int, way fleet.Distance) float64 {
	p := &s.pricing
	cost := 0.0
	if !s.pool.sites.alike() {
		cost = tieBreak * float64(way)
	}
	if p.Transfer.BytesPerToken == 0 && p.Transfer.BytesPerPrompt == 0 {
		if p.Model == Dynamo { // which knows of no transfers
			return cost
		}
		// What was learned is the same for all pairs: it counts against aggregated workers.
		return cost + (p.serial+p.perToken*p.tokens)/p.pace
	}
	f := s.member(prefill).load.Figures()
	tokens := p.Transfer.seconds(p, p.compute(&s.Candidates[prefill], float64(f.PrefillTokens)), way) / p.pace
	if p.Model == Congestion {
		return cost + tokens
	}
	return cost + p.knobs.PrefillLoadScale*tokens/p.blockSize
}

// seconds is how much later the first token comes for a transfer: the part at the
// end of the prompt, and what of the rest does not fit into the time in which the
// prompt is computed.
func (t *TransferOptions) seconds(p *pricing, compute float64, way fleet.Distance) float64 {
	serial, stream := t.SerialSeconds, p.perToken*p.tokens
	if serial == 0 {
		serial = p.serial
	}
	if speed := t.BytesPerSecond[way]; speed > 0 && (t.BytesPerToken > 0 || t.BytesPerPrompt > 0) {
		// What is learned has both in it, over all distances.
		serial = t.SerialSeconds + t.BytesPerPrompt/speed
		stream = max(0, t.BytesPerToken*p.tokens/speed-compute*p.pace)
	}
	return serial + stream
}

// meanPace is what a prompt token takes on the workers of the pool, in seconds: one
// figure for all, or a transfer would cost less on a slow worker.
func (p *pool) meanPace() float64 {
	sum, n := 0.0, 0
	for i := range p.members {
		if s := p.members[i].load.Figures().SecondsPerToken; s > 0 {
			sum, n = sum+s, n+1
		}
	}
	if n == 0 {
		return guessedSecondsPerToken
	}
	return sum / float64(n)
}

// learn takes what the first outputs of earlier pairs taught about transfers, once
// there have been some.
func (p *pricing) learn(t *load.Table) {
	if serial, perToken, samples := t.TransferEstimate(); samples >= minTransfers {
		p.serial, p.perToken = serial, perToken
	}
}

// minTransfers is how many pairs teach what a transfer takes.
const minTransfers = 16

// guessedSecondsPerToken stands for the time that a prompt token takes until that is
// learned: a large model on a large accelerator (engines.md 5).
const guessedSecondsPerToken = 1e-4

func (p *pricing) secondsPerToken(learned float64) float64 {
	if learned > 0 {
		return learned
	}
	return guessedSecondsPerToken
}
