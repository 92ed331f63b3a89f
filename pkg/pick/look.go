package pick

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// Scratch is the memory of one decision at a time, for reuse. The zero value is
// ready. After Pick, Candidates has every worker that could have been taken, in the
// order of the snapshot.
type Scratch struct {
	Candidates []Terms

	req     *Request
	pool    *pool
	pricing pricing
	match   index.Match
	active  []int32 // by row of the load table
	byPlace []least // for pairs: the best decode worker per place

	// Workers that were left out, and why.
	outside        int  // could decode, but for the subset
	prefillOutside bool // could prefill, but for the subset
	required       bool // only a pair would do, and this worker does both

	found            bool   // the index has something of the prompt
	best, bestDecode int    // blocks that need not be computed, on workers that prefill, and on decode workers
	session          uint64 // hash of it
}

// look finds the candidates of a request, and all about them that does not change
// before the decision.
func (s *Scratch) look(p *Picker, req *Request, now time.Time) {
	s.req, s.pool = req, p.pool.Load()
	p.load.Age(now)
	s.price(p, req)
	s.pricing.now = now.UnixNano()
	p.index.Match(req.Chains, &s.match)
	s.found = s.match.Found() // before guesses, which events may never confirm
	p.guesses.Merge(now, req.Chains, &s.match)
	if p.texts != nil && len(req.Text) > 0 {
		p.texts.Merge(now, req.Text, &s.match)
		s.match.Rescale(req.TextBlockTokens, p.blockSize)
	}
	s.outside, s.prefillOutside, s.required = 0, false, false
	s.best, s.bestDecode, s.session = 0, 0, hashOf(req.Session)
	s.Candidates = s.Candidates[:0]
	s.active = s.active[:0]
	if s.usesActive() {
		s.active = p.load.Active(req.Chains, s.active)
	}
	for i := range s.pool.members {
		m := &s.pool.members[i]
		depth := s.match.Depth(m.slot)
		shared := s.sharedBy(&depth)
		if m.role == fleet.Decode && !s.never() {
			s.bestDecode = max(s.bestDecode, s.reused(&depth, shared))
		} else {
			s.best = max(s.best, s.reused(&depth, shared))
		}
		if side := s.sideOf(m.role); side != numSides && s.inSubset(i, side) {
			s.add(i, m, side, &depth, shared)
		}
	}
}

// price sets what the costs of all candidates depend on.
func (s *Scratch) price(p *Picker, req *Request) {
	o := p.options.Load()
	blocks := (req.Tokens + p.blockSize - 1) / p.blockSize
	s.pricing = pricing{
		Options: &o.Options, knobs: &o.Dynamo, temperature: o.Dynamo.Temperature,
		blockSize: float64(p.blockSize), tokens: float64(req.Tokens), blocks: float64(blocks), rho: p.load.Rho(), pace: guessedSecondsPerToken,
	}
	mixed := s.pool.Count(fleet.Aggregated) > 0 && s.pool.Count(fleet.Prefill) > 0
	if o.Split.Condition == IfFaster || mixed && o.Model == Congestion {
		s.pricing.learn(p.load)
	}
	if t := &o.Transfer; mixed || t.BytesPerToken > 0 || t.BytesPerPrompt > 0 {
		s.pricing.pace = s.pool.meanPace()
	}
	if len(o.classes) > 0 && req.Class != "" {
		if k, ok := o.classes[req.Class]; ok {
			s.pricing.knobs, s.pricing.temperature = k, k.Temperature
		}
	}
	if o.Model == Congestion {
		s.pricing.temperature = 0
	}
}

// add adds a candidate.
func (s *Scratch) add(i int, m *member, side fleet.Role, depth *index.Depth, shared int) {
	n := len(s.Candidates)
	if n == cap(s.Candidates) {
		s.Candidates = slices.Grow(s.Candidates, max(len(s.pool.members), 1))
	}
	s.Candidates = s.Candidates[:n+1]
	t := &s.Candidates[n]
	*t = Terms{Worker: i, Side: side}
	t.saved, t.device = s.pricing.saves(depth, shared)
	if int(m.row) < len(s.active) { // else it is new, or sharing makes no difference
		t.active = s.active[m.row]
	}
	if s.req.Avoid != nil && s.avoids(i) {
		t.penalty = avoided
	}
	if s.req.Adapter != "" {
		t.penalty += s.lacks(m)
	}
}

// numSides is the number of roles, and the side of a worker that a request has no
// use for.
const numSides = 3

// sideOf says what a worker would do for the request.
func (s *Scratch) sideOf(role fleet.Role) fleet.Role {
	mode := s.pricing.Split.Mode
	switch {
	case role == fleet.Prefill && (s.req.PromptLess || mode == SplitNever):
		return numSides
	case s.req.PromptLess:
		return fleet.Decode
	case role == fleet.Aggregated && mode == SplitRequired:
		s.required = true
		return numSides
	case role == fleet.Decode && mode == SplitNever:
		return fleet.Aggregated
	}
	return role
}

// inSubset says whether the subset has a worker, and remembers that it has not.
func (s *Scratch) inSubset(i int, side fleet.Role) bool {
	if !s.req.Subset.Present || s.req.Subset.Has(s.pool.Workers[i].Endpoint) {
		return true
	}
	if side == fleet.Prefill {
		s.prefillOutside = true
	} else {
		s.outside++
	}
	return false
}

// avoids says whether the request should not go to a worker again.
func (s *Scratch) avoids(i int) bool { return slices.Contains(s.req.Avoid, s.pool.Workers[i].Endpoint) }

// lacks is what it costs, in blocks, that a worker does not have the adapter. Of a
// worker that does not say, it is taken to be so: where nobody says, that makes no
// difference.
func (s *Scratch) lacks(m *member) float64 {
	switch m.load.Adapter(s.req.Adapter) {
	case load.AdapterLoaded:
		return 0
	case load.AdapterWaiting:
		return adapterWaits
	case load.AdapterFull:
		return adapterFull
	case load.AdapterUnknown, load.AdapterAbsent:
	}
	return adapterAbsent
}

// never says whether the decode workers compute their prompts themselves.
func (s *Scratch) never() bool { return s.pricing.Split.Mode == SplitNever }

// storeForAll says whether blocks outside workers are in a store that all read.
func (s *Scratch) storeForAll() bool {
	return s.pricing.Model == Congestion || s.pricing.Dynamo.SharedCache
}

// sharedBy is how many blocks a worker can read from a store for all, after those
// that it holds itself.
func (s *Scratch) sharedBy(d *index.Depth) int {
	if !s.storeForAll() {
		return 0
	}
	return s.match.SharedFrom(d.Device + d.Host + d.Disk)
}

// reused is how many blocks of the prompt a worker need not compute.
func (s *Scratch) reused(d *index.Depth, shared int) int {
	return d.Device + d.Host + d.Disk + max(d.External, shared)
}

// matched is the same of a worker.
func (s *Scratch) matched(m *member) int {
	d := s.match.Depth(m.slot)
	return s.reused(&d, s.sharedBy(&d))
}

// bestFor is what the best worker could have reused. Workers that only decode do not
// count, unless one of them computes the prompt.
func (s *Scratch) bestFor(m Mode) int {
	if m == Disaggregated || m == OnAggregated || m == PromptLess {
		return s.best
	}
	return max(s.best, s.bestDecode)
}

// usesActive says whether the blocks that requests share make a difference.
func (s *Scratch) usesActive() bool {
	p := &s.pricing
	return len(s.req.Chains) > 0 && (p.Model == Congestion || !p.Dynamo.IgnoreKVReuse && !p.Dynamo.IgnoreActiveBlocks)
}

// shares says whether a decision's blocks may be those of other requests on its
// worker: not those that come from a prefill worker (dynamo.md 5.1).
func (s *Scratch) shares(m Mode) bool { return m != Disaggregated && s.usesActive() }

func (s *Scratch) blocks() int { return int(s.pricing.blocks) }

// member and worker return those of a candidate.
func (s *Scratch) member(c int) *member { return &s.pool.members[s.Candidates[c].Worker] }

func (s *Scratch) worker(c int) *fleet.Worker { return &s.pool.Workers[s.Candidates[c].Worker] }
