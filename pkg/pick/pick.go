package pick

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
)

// Reasons why there is no decision.
var (
	// ErrNoWorkers: the pool has no ready worker that can decode.
	ErrNoWorkers = errors.New("no ready worker in the pool can decode")
	// ErrSubset: the gateway's subset hint leaves no worker that can decode.
	ErrSubset = errors.New("no ready worker that can decode is in the subset the gateway asked for")
	// ErrNoPrefill: the options require a split, and no prefill worker is ready.
	ErrNoPrefill = errors.New("the policy requires a prefill worker, and none is ready")
	// ErrBusy: all workers that could take the request are over a bound.
	ErrBusy = errors.New("all workers are busy")
)

// Mode is how a decision splits a request.
type Mode uint8

// Modes of decisions.
const (
	// Disaggregated: a prefill worker computes the prompt, a decode worker goes on.
	Disaggregated Mode = iota
	// OnAggregated: one aggregated worker does both, as meant.
	OnAggregated
	// NoPrefillReady: the pool has decode workers but no ready prefill worker,
	// so the decode worker computes the prompt too.
	NoPrefillReady
	// NoPrefillInSubset: the same, because the subset hint leaves no prefill worker.
	NoPrefillInSubset
	// PromptLess: the request has no prompt, such as a GET of the list of models.
	PromptLess
	// SplitOff: the options ask not to split, so the decode worker computes the
	// prompt.
	SplitOff
	// NumModes is the number of modes.
	NumModes = 6
)

// String returns the mode as metrics and logs name it.
func (m Mode) String() string {
	return [NumModes]string{"disaggregated", "aggregated", "no_prefill_ready", "no_prefill_in_subset", "no_prompt", "split_off"}[m]
}

// Request is what a decision needs to know of a request.
type Request struct {
	Tokens int           // prompt length in tokens, estimated when not known exactly
	Chains []block.Chain // prefix chains of its full blocks; empty when the ids are not known
	// Text are chains of runs of the prompt's text, when its token ids are not known:
	// for what is remembered of texts, never for the index. Empty when Chains is not.
	Text            []block.Chain
	TextBlockTokens int // tokens that a run of Text is taken for

	Subset Subset
	// PromptLess is a request with nothing to prefill: the least occupied worker
	// that decodes gets it.
	PromptLess bool
	// NoGuess keeps the prompt out of the guesses: the worker will hash it
	// differently, as with images.
	NoGuess bool

	Class   string           // of the request: see Options.Classes
	Adapter string           // the LoRA adapter, empty for none
	Session string           // requests of a session go to the same workers, all else being equal
	Avoid   []netip.AddrPort // endpoints that failed the request before: taken only where there are no others
}

// Subset is the gateway's restriction of the candidates (endpoint-picker.md 1.4).
type Subset struct {
	Present   bool
	Endpoints []netip.AddrPort
	Addrs     []netip.Addr // bare IPs: every port of the pod
}

// Has reports whether an endpoint may be chosen.
func (s *Subset) Has(e netip.AddrPort) bool {
	return !s.Present || slices.Contains(s.Endpoints, e) || slices.Contains(s.Addrs, e.Addr())
}

// Decision is the outcome. Prefill is the worker that computes the prompt: equal
// to Decode unless Mode is Disaggregated.
type Decision struct {
	Decode, Prefill fleet.Worker
	Mode            Mode
	Matched         int // blocks of the prompt that Prefill holds, on any tier
	Best            int // blocks that the best worker in the pool holds
	Total           int // full blocks of the prompt
	Reservation     *load.Reservation
}

// Scratch is the memory of one decision at a time, for reuse. The zero value is
// ready. After Pick, Candidates has every candidate's terms, in the order of the
// snapshot.
type Scratch struct {
	Candidates []Terms
	match      index.Match
}

// Picker makes decisions over a pool. Pick may be called at once from many
// goroutines, each with its own Scratch.
type Picker struct {
	index     *index.Index
	guesses   *index.Speculation
	load      *load.Table
	blockSize int
	options   atomic.Pointer[Options]
	mu        sync.Mutex // orders changes of the pool
	pool      atomic.Pointer[pool]
}

// pool is a snapshot with what decisions look up per worker.
type pool struct {
	*fleet.Snapshot
	slots []index.Slot
	loads []*load.Worker
}

// New returns a picker with an empty pool and DefaultOptions. blockSize is tokens
// per KV block.
func New(x *index.Index, guesses *index.Speculation, table *load.Table, blockSize int) *Picker {
	p := &Picker{index: x, guesses: guesses, load: table, blockSize: blockSize}
	p.pool.Store(&pool{Snapshot: &fleet.Snapshot{}})
	p.SetOptions(DefaultOptions())
	return p
}

// SetFleet replaces the pool. Guesses about workers that left are forgotten, and
// so is their load when their last request ends. What they hold stays in the
// index: a worker that only blinked still has its cache, and would never tell of
// it again. Whoever follows their events calls Drop when they stay away.
//
// It returns index.ErrFull when some workers got no place in the index: they are
// served by load alone.
func (p *Picker) SetFleet(s *fleet.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	prev := p.pool.Load()
	for i, w := range prev.Workers {
		if _, still := s.Index(w.Key); still {
			continue
		}
		p.guesses.Forget(prev.slots[i])
		if p.index.Held(w.Key) == [kvevent.NumTiers]int{} {
			p.index.Drop(w.Key)
		}
	}
	next := &pool{Snapshot: s, slots: make([]index.Slot, len(s.Workers)), loads: make([]*load.Worker, len(s.Workers))}
	var full error
	for i, w := range s.Workers {
		slot, err := p.register(w.Key, s)
		if err != nil {
			full, slot = err, index.MaxWorkers // holds nothing
		}
		next.slots[i] = slot
		next.loads[i] = p.load.Worker(w.Key)
	}
	p.pool.Store(next)
	p.load.Retain(s)
	return full
}

// register gives a worker a place in the index. When there is none, everybody
// who is not in the new pool makes room.
func (p *Picker) register(k fleet.Key, pool *fleet.Snapshot) (index.Slot, error) {
	slot, err := p.index.Register(k)
	if err == nil {
		return slot, nil
	}
	for _, other := range p.index.Workers() {
		if _, member := pool.Index(other); !member {
			p.drop(other)
		}
	}
	return p.index.Register(k)
}

// Drop forgets what is known of a worker, unless the pool has it (again).
func (p *Picker) Drop(k fleet.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, member := p.pool.Load().Index(k); !member {
		p.drop(k)
	}
}

func (p *Picker) drop(k fleet.Key) {
	p.Forget(k)
	p.index.Drop(k)
}

// Forget drops the guesses about a worker, as when its cache is gone.
func (p *Picker) Forget(k fleet.Key) {
	if slot, ok := p.index.Lookup(k); ok {
		p.guesses.Forget(slot)
	}
}

// Fleet returns the pool in use.
func (p *Picker) Fleet() *fleet.Snapshot { return p.pool.Load().Snapshot }

// Pick chooses the workers for a request and books its load on them. random(n)
// returns a number in [0, n). The caller must release the decision's reservation.
func (p *Picker) Pick(req *Request, now time.Time, random func(n int) int, s *Scratch) (Decision, error) {
	pool := p.pool.Load()
	p.index.Match(req.Chains, &s.match)
	p.guesses.Merge(now, req.Chains, &s.match)
	blocks := (req.Tokens + p.blockSize - 1) / p.blockSize

	p.load.Lock()
	choice := p.choose(pool, req, blocks, random, s)
	if choice.decode < 0 {
		p.load.Unlock()
		return Decision{}, choice.err()
	}
	missing := max(0, req.Tokens-choice.overlap.Total()*p.blockSize)
	reservation := p.load.Reserve(load.Booking{
		At:            now,
		PrefillTokens: missing,
		Blocks:        blocks,
		Chains:        req.Chains,
		PrefillKey:    pool.Workers[choice.prefill].Key,
		Prefill:       pool.loads[choice.prefill],
		DecodeKey:     pool.Workers[choice.decode].Key,
		Decode:        pool.loads[choice.decode],
	})
	p.load.Unlock()

	// The guess belongs to the worker that computes the prompt and tells of it.
	// A decode worker that has to prefill publishes no events to confirm it.
	if !req.NoGuess && (choice.mode == Disaggregated || choice.mode == OnAggregated) {
		p.guesses.Record(now, pool.slots[choice.prefill], req.Chains, choice.overlap.Device)
	}
	return Decision{
		Decode:      pool.Workers[choice.decode],
		Prefill:     pool.Workers[choice.prefill],
		Mode:        choice.mode,
		Matched:     choice.overlap.Total(),
		Best:        choice.best,
		Total:       len(req.Chains),
		Reservation: reservation,
	}, nil
}
