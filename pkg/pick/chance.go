package pick

import (
	"math"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// soften replaces the workers that were settled on by ones taken by chance, with
// weights that fall with the cost (dynamo.md 4.1, temperature).
func (s *Scratch) soften(c *choice, random func(int) int) {
	switch c.mode {
	case OnAggregated, SplitOff:
		c.decode = s.sample(fleet.Aggregated, own, random)
		c.prefill = c.decode
	case Disaggregated:
		c.decode = s.sample(fleet.Decode, ownWithMate, random)
		c.prefill = s.sample(fleet.Prefill, s.with(c.decode), random)
	case PromptLess:
		c.decode = s.sample(fleet.Decode, own, random)
		c.prefill = c.decode
	case NoPrefillReady, NoPrefillInSubset:
		c.decode = s.sample(fleet.Decode, local, random)
		c.prefill = c.decode
	default: // it stays where the condition found that it should
	}
}

// costOf says what taking a candidate costs; infinity rules it out.
type costOf func(s *Scratch, at int) float64

func own(s *Scratch, at int) float64 { return s.Candidates[at].Cost }

// ownWithMate rules out decode workers that no prefill worker connects with.
func ownWithMate(s *Scratch, at int) float64 {
	if !s.mated(at) {
		return math.Inf(1)
	}
	return s.Candidates[at].Cost
}

func local(s *Scratch, at int) float64 { return s.Candidates[at].Local }

// with is the cost of prefill workers that go with a decode worker.
func (s *Scratch) with(decode int) costOf {
	if s.pool.sites.alike() {
		return own
	}
	return func(s *Scratch, at int) float64 {
		if !s.connect(at, decode) {
			return math.Inf(1)
		}
		return s.Candidates[at].Cost + s.transfer(at, s.distance(at, decode))
	}
}

// sample draws one of the candidates of a side, of which there is at least one that is
// not ruled out. One that is to be avoided is drawn where there are no others.
func (s *Scratch) sample(side fleet.Role, cost costOf, random func(int) int) int {
	all := cost
	cost = func(s *Scratch, at int) float64 {
		if s.Candidates[at].penalty >= avoided {
			return math.Inf(1)
		}
		return all(s, at)
	}
	if low, _ := s.span(side, cost); math.IsInf(low, 1) {
		cost = all
	}
	low, high := s.span(side, cost)
	weight := func(at int) float64 {
		switch c := cost(s, at); {
		case math.IsInf(c, 1):
			return 0
		case high == low:
			return 1
		default:
			return math.Exp(-(c - low) / ((high - low) * s.pricing.temperature))
		}
	}
	sum := 0.0
	for i := range s.Candidates {
		if s.takes(i, side) {
			sum += weight(i)
		}
	}
	left := sum * float64(random(1<<53)) / (1 << 53)
	last := -1
	for i := range s.Candidates {
		if !s.takes(i, side) || weight(i) == 0 {
			continue
		}
		last = i
		if left -= weight(i); left < 0 {
			break
		}
	}
	return last
}

// span is the lowest and the highest finite cost of a side.
func (s *Scratch) span(side fleet.Role, cost costOf) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i := range s.Candidates {
		if c := cost(s, i); s.takes(i, side) && !math.IsInf(c, 1) {
			low, high = min(low, c), max(high, c)
		}
	}
	return low, high
}

// takes says whether a candidate may be taken for a side.
func (s *Scratch) takes(at int, side fleet.Role) bool {
	t := &s.Candidates[at]
	return t.Side == side && !t.out
}

// steer makes the requests of a session go to the same workers where those cost at
// most a block more than the ones that were settled on. Which they are follows from
// the session and the workers alone, so that all replicas agree and nothing has to
// be remembered.
func (s *Scratch) steer(c *choice) {
	switch c.mode {
	case OnAggregated, SplitOff:
		c.decode = s.near(c.decode, fleet.Aggregated, own)
		c.prefill = c.decode
	case Disaggregated:
		if s.pool.sites.alike() {
			c.decode = s.near(c.decode, fleet.Decode, own)
		}
		c.prefill = s.near(c.prefill, fleet.Prefill, s.with(c.decode))
	case NoPrefillReady, NoPrefillInSubset:
		c.decode = s.near(c.decode, fleet.Decode, local)
		c.prefill = c.decode
	default: // nothing is computed, or it stays where the condition found that it should
	}
}

// near returns the candidate that a session prefers among those that cost about as
// much as one that was chosen.
func (s *Scratch) near(chosen int, side fleet.Role, cost costOf) int {
	most := cost(s, chosen) + 1
	if s.pricing.Model == Congestion {
		most = cost(s, chosen) + s.pricing.blockSize
	}
	best, rank := chosen, uint64(0)
	for i := range s.Candidates {
		if !s.takes(i, side) || cost(s, i) > most {
			continue
		}
		w := &s.pool.Workers[s.Candidates[i].Worker]
		if r := preference(s.session, w.ID, w.Rank); best < 0 || r >= rank {
			best, rank = i, r
		}
	}
	return best
}

// hashOf is FNV-1a.
func hashOf(session string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(session) {
		h = (h ^ uint64(session[i])) * 1099511628211
	}
	return h
}

// preference is how much a session, by its hash, likes a worker: rendezvous hashing.
func preference(session, id uint64, rank uint32) uint64 {
	h := session
	h ^= id ^ uint64(rank)<<32
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
