package pick

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// Explanation is why a request would go where it would go, with nothing booked.
type Explanation struct {
	Model       Model
	Rho         float64 // share of time that workers which compute prompts are busy
	Temperature float64
	BlockSize   int
	Tokens      int // of the prompt
	Blocks      int // full blocks of the prompt whose ids are known, or that its text stands for

	Err             error // why there is no decision, nil when there is one
	Mode            Mode
	Held            Mode // the condition that speaks against a split; see Decision
	Moot            bool
	Prefill, Decode int // positions in Workers; of no meaning with an error
	Matched, Best   int

	// Transfer is what handing over blocks adds to the cost of the pair that was
	// compared last, in the unit of the model, and Way how far they travel. The
	// estimates are the times to the first token, in seconds, of a decode worker alone
	// and of that pair; 0 when no pair could be made.
	Transfer                     float64
	Way                          fleet.Distance
	AloneEstimate, SplitEstimate float64
	// What a transfer takes, as learned from the first outputs of pairs.
	TransferSerial, TransferPerToken float64 // seconds
	TransferSamples                  int

	Workers []WorkerTerms // all of the pool
}

// WorkerTerms are what a decision knows of one worker, and what it makes of that.
type WorkerTerms struct {
	Worker fleet.Worker
	Side   fleet.Role // what it would do
	Out    Out        // why it cannot be taken

	Held    index.Depth // what it holds of the prompt, guesses included
	Shared  int         // blocks it would read from a store for all
	Saved   float64     // blocks, weighted by tier, that it need not compute
	Active  int         // blocks of the prompt that its requests use already
	Penalty float64     // blocks: it lacks the adapter
	Avoided bool        // it failed before: taken only where there are no others
	Ahead   float64     // prompt tokens that one placed there now would wait for, by the Congestion model
	Room    int         // KV blocks that it has; 0: not known
	Load    load.Figures

	// Costs of what it would do, by model: Congestion in tokens, Dynamo in blocks. Local
	// is the cost of computing the prompt as well, on the decode side.
	Cost, Local [NumModels]float64
}

// Out is why a worker cannot be taken.
type Out uint8

// Reasons.
const (
	In            Out = iota // it can
	OutOfRole                // the request has no use for its role
	OutsideSubset            // the gateway's hint leaves it out
	OverBound                // it is busy
)

// String returns the reason as explanations name it.
func (o Out) String() string {
	return [...]string{"", "not of use for this request", "outside the gateway's subset", "busy: over a bound"}[o]
}

// Explain decides as Pick would now, and books nothing.
func (p *Picker) Explain(req *Request, now time.Time, random func(n int) int, s *Scratch) *Explanation {
	s.look(p, req, now)
	s.pricing.learn(p.load)
	c := s.choose(random)
	e := &Explanation{
		Model: s.pricing.Model, Rho: s.pricing.rho, Temperature: s.pricing.temperature, BlockSize: p.blockSize,
		Tokens: req.Tokens, Blocks: len(req.Chains), Err: c.err,
	}
	e.TransferSerial, e.TransferPerToken, e.TransferSamples = p.load.TransferEstimate()
	if len(req.Chains) == 0 {
		e.Blocks = len(req.Text) * req.TextBlockTokens / p.blockSize
	}
	e.Workers = make([]WorkerTerms, len(s.pool.members))
	for i := range e.Workers {
		s.explain(i, &e.Workers[i])
	}
	for i := range s.Candidates {
		s.explainCosts(&s.Candidates[i], &e.Workers[s.Candidates[i].Worker])
	}
	if c.err == nil {
		e.Mode, e.Held, e.Moot = c.mode, c.held, c.moot
		e.Prefill, e.Decode = s.Candidates[c.prefill].Worker, s.Candidates[c.decode].Worker
		e.Matched, e.Best = s.matched(s.member(c.prefill)), s.bestFor(c.mode)
	}
	s.explainPair(e, random)
	return e
}

func (s *Scratch) explain(i int, w *WorkerTerms) {
	m := &s.pool.members[i]
	w.Worker, w.Held, w.Load = s.pool.Workers[i], s.match.Depth(m.slot), m.load.Figures()
	w.Ahead, w.Room = m.load.Ahead(s.pricing.now), m.room(&w.Load)
	w.Shared = s.sharedBy(&w.Held)
	w.Out, w.Side = OutOfRole, m.role
	if side := s.sideOf(m.role); side != numSides {
		w.Side, w.Out = side, OutsideSubset // what is not is a candidate
	}
}

// explainCosts puts the costs of both models beside each other.
func (s *Scratch) explainCosts(t *Terms, w *WorkerTerms) {
	w.Out = In
	if t.out {
		w.Out = OverBound
	}
	w.Saved, w.Active, w.Penalty, w.Avoided = t.saved, int(t.active), t.penalty, t.penalty >= avoided
	if w.Avoided {
		w.Penalty -= avoided
	}
	for m := range NumModels {
		p, other := s.pricing, *t
		o := *p.Options
		o.Model = Model(m)
		p.Options = &o
		other.saved, other.device = p.saves(&w.Held, s.match.SharedFrom(w.Held.Device+w.Held.Host+w.Held.Disk))
		if p.lowest == 0 && p.knobs.OverlapScoreCreditDecay > 0 {
			p.lowest = s.lowestPrefill()
		}
		w.Cost[m], w.Local[m] = p.price(Model(m), &other, &w.Load, &s.pool.members[t.Worker])
	}
}

// explainPair says what the cheapest pair takes, and what a decode worker alone.
func (s *Scratch) explainPair(e *Explanation, random func(int) int) {
	var l leasts
	s.compare(&l, random)
	pair := s.pair(&l, random)
	if pair.prefill < 0 {
		return
	}
	e.Way = s.distance(pair.prefill, pair.decode)
	e.Transfer = s.transfer(pair.prefill, e.Way)
	at := l.local.at
	prefill, local := s.member(pair.prefill).load.Figures(), s.member(at).load.Figures()
	e.AloneEstimate, e.SplitEstimate = s.estimate(at, &pair, &prefill, &local)
}
