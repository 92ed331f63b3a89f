package pick

import (
	"math"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// choice is the outcome of choose. decode < 0 means none.
type choice struct {
	decode, prefill int
	mode            Mode
	overlap         index.Depth // of prefill
	best            int

	// Workers that were left out, and why.
	outside        int  // could decode, but for the subset
	prefillOutside bool // could prefill, but for the subset
	busy           int  // could decode, but for a bound
	prefillBusy    bool // could prefill, but for a bound
	required       bool // only a pair would do, and there is nobody to prefill
	decodes        bool // somebody could decode
}

func (c *choice) err() error {
	switch {
	case c.prefillBusy && (c.decodes || c.busy > 0):
		return ErrBusy
	case c.required:
		return ErrNoPrefill
	case c.busy > 0:
		return ErrBusy
	case c.outside > 0:
		return ErrSubset
	}
	return ErrNoWorkers
}

// choose compares the best pair with the best aggregated worker. The caller
// holds the load lock.
func (p *Picker) choose(pool *pool, req *Request, blocks int, random func(int) int, s *Scratch) choice {
	o := p.options.Load()
	var cheapest [numSides]least
	c := choice{decode: -1}
	all := s.Candidates[:0]
	for i := range pool.Workers {
		w := &pool.Workers[i]
		depth := s.match.Depth(pool.slots[i])
		if w.Role != fleet.Decode || o.Split.Mode == SplitNever {
			c.best = max(c.best, depth.Total())
		}
		side := sideOf(w.Role, req, o)
		if side == numSides {
			c.required = c.required || w.Role == fleet.Aggregated
			continue
		}
		figures := pool.loads[i].Figures()
		if !c.admit(w, req, &figures, side, o) {
			continue
		}
		all = append(all, Terms{Worker: i, Side: side})
		o.fill(&all[len(all)-1], &figures, &depth, req.Tokens, blocks, p.blockSize, p.load.Rho())
		cheapest[side].offer(all, random)
	}
	s.Candidates = all
	c.settle(req, o, all, &cheapest, random)
	if o.Model == Dynamo && o.Dynamo.Temperature > 0 && c.decode >= 0 {
		c.soften(all, o.Dynamo.Temperature, random)
	}
	switch {
	case c.decode < 0:
	case c.mode == NoPrefillReady || c.mode == NoPrefillInSubset: // it computes the prompt itself
		c.overlap = s.match.Depth(pool.slots[c.decode])
		c.best = max(c.best, c.overlap.Total())
	case c.mode == OnAggregated && pool.Workers[c.decode].Role == fleet.Decode:
		c.mode = SplitOff
	}
	return c
}

// numSides is the number of roles, and the side of a worker that a request has no
// use for.
const numSides = 3

// sideOf says what a worker would do for a request.
func sideOf(role fleet.Role, req *Request, o *Options) fleet.Role {
	switch {
	case role == fleet.Prefill && (req.PromptLess || o.Split.Mode == SplitNever):
		return numSides
	case req.PromptLess:
		return fleet.Decode
	case role == fleet.Aggregated && o.Split.Mode == SplitRequired:
		return numSides
	case role == fleet.Decode && o.Split.Mode == SplitNever:
		return fleet.Aggregated
	}
	return role
}

// admit says whether a worker may be taken, and remembers why not.
func (c *choice) admit(w *fleet.Worker, req *Request, f *load.Figures, side fleet.Role, o *Options) bool {
	if !req.Subset.Has(w.Endpoint) {
		if side == fleet.Prefill {
			c.prefillOutside = true
		} else {
			c.outside++
		}
		return false
	}
	if req.PromptLess {
		return true // costs the worker next to nothing
	}
	if over(f.PrefillTokens, o.MaxPrefillTokens) && side != fleet.Decode || over(f.DecodeBlocks, o.MaxDecodeBlocks) && side != fleet.Prefill {
		if side == fleet.Prefill {
			c.prefillBusy = true
		} else {
			c.busy++
		}
		return false
	}
	return true
}

// over says whether a figure is over a bound; 0 is no bound.
func over(figure, bound int) bool { return bound > 0 && figure > bound }

// settle takes the cheaper of the best pair and the best aggregated worker, or a
// decode worker alone where there is nothing else. It leaves decode below 0 when
// nothing may be taken.
func (c *choice) settle(req *Request, o *Options, all []Terms, cheapest *[numSides]least, random func(int) int) {
	prefill, decode, aggregated := &cheapest[fleet.Prefill], &cheapest[fleet.Decode], &cheapest[fleet.Aggregated]
	c.decodes = decode.n > 0
	c.required = (c.required || c.decodes) && o.Split.Mode == SplitRequired && prefill.n == 0 && !c.prefillBusy
	pairCost := prefill.cost() + decode.cost()
	switch {
	case req.PromptLess && decode.n > 0:
		c.take(PromptLess, all, decode, decode)
	case aggregated.n > 0 && (aggregated.cost() < pairCost || aggregated.cost() == pairCost && random(2) == 0):
		c.take(OnAggregated, all, aggregated, aggregated)
	case decode.n > 0 && prefill.n > 0:
		c.take(Disaggregated, all, prefill, decode)
	case c.prefillBusy: // one will have room soon, and a decode worker would be held up
	case o.Split.Mode == SplitRequired && !req.PromptLess:
	case decode.n > 0:
		c.take(NoPrefillReady, all, decode, decode)
		if c.prefillOutside {
			c.mode = NoPrefillInSubset
		}
	}
}

func (c *choice) take(mode Mode, all []Terms, prefill, decode *least) {
	c.mode, c.overlap = mode, all[prefill.at].Overlap
	c.prefill, c.decode = all[prefill.at].Worker, all[decode.at].Worker
}

// soften replaces the workers that were settled on by ones taken by chance, with
// weights that fall with the cost (dynamo.md 4.1, temperature).
func (c *choice) soften(all []Terms, temperature float64, random func(int) int) {
	if c.mode == OnAggregated {
		t := sample(all, fleet.Aggregated, temperature, random)
		c.decode, c.prefill, c.overlap = t.Worker, t.Worker, t.Overlap
		return
	}
	c.decode = sample(all, fleet.Decode, temperature, random).Worker
	c.prefill = c.decode
	if c.mode == Disaggregated {
		t := sample(all, fleet.Prefill, temperature, random)
		c.prefill, c.overlap = t.Worker, t.Overlap
	}
}

// sample draws one of the candidates of a side, of which there is at least one.
func sample(all []Terms, side fleet.Role, temperature float64, random func(int) int) *Terms {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range all {
		if all[i].Side == side {
			low, high = min(low, all[i].Cost), max(high, all[i].Cost)
		}
	}
	weight := func(t *Terms) float64 {
		if high == low {
			return 1
		}
		return math.Exp(-(t.Cost - low) / ((high - low) * temperature))
	}
	sum := 0.0
	for i := range all {
		if all[i].Side == side {
			sum += weight(&all[i])
		}
	}
	left := sum * float64(random(1<<53)) / (1 << 53)
	var last *Terms
	for i := range all {
		if all[i].Side != side {
			continue
		}
		last = &all[i]
		if left -= weight(last); left < 0 {
			break
		}
	}
	return last
}

// least keeps the cheapest of the candidates offered, equal ones at random with
// equal chances.
type least struct {
	at  int // of the candidates
	low float64
	n   int // how many share the lowest cost
}

// offer takes the last of the candidates into account.
func (l *least) offer(all []Terms, random func(int) int) {
	at := len(all) - 1
	switch cost := all[at].Cost; {
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
