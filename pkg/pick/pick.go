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
	// KeptShort: little of the prompt is to be computed on the decode worker, so it
	// computes it. See Condition.
	KeptShort
	// KeptPrefillBusy: the decode worker computes the prompt, because the prefill
	// worker has much to do.
	KeptPrefillBusy
	// KeptFaster: the decode worker computes the prompt, because that is estimated to
	// take less time than a split.
	KeptFaster
	// NumModes is the number of modes.
	NumModes = 9
)

// String returns the mode as metrics and logs name it.
func (m Mode) String() string {
	return [NumModes]string{
		"disaggregated", "aggregated", "no_prefill_ready", "no_prefill_in_subset", "no_prompt", "split_off",
		"kept_short", "kept_prefill_busy", "kept_faster",
	}[m]
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
	// Whole is a request whose output comes all at once: see [load.Booking].
	Whole bool

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
	// Held is the condition that speaks against a split, as a mode: KeptShort and the
	// like; Disaggregated when none does. Where the data plane needs a pair, the prompt
	// is then computed by an aggregated worker, or Moot: it is split all the same. See
	// SplitOptions.NeedsPair.
	Held    Mode
	Moot    bool
	Matched int // blocks of the prompt that Prefill need not compute: those it holds on any tier, or reads from a store for all
	Best    int // the same of the best worker in the pool
	Total   int // full blocks of the prompt
	// Found: a worker holds some of them by its events. Matched and Best count what
	// prompts sent there a moment ago will leave, too.
	Found       bool
	Reservation *load.Reservation

	guess index.Guess // that Prefill is about to hold the prompt
}

// Picker makes decisions over a pool. Pick may be called at once from many
// goroutines, each with its own Scratch.
type Picker struct {
	index     *index.Index
	guesses   *index.Speculation
	texts     *index.Speculation // nil: texts are not matched
	load      *load.Table
	blockSize int
	options   atomic.Pointer[inUse]
	mu        sync.Mutex // orders changes of the pool
	pool      atomic.Pointer[pool]
}

// New returns a picker with an empty pool and DefaultOptions. blockSize is tokens
// per KV block.
func New(x *index.Index, guesses *index.Speculation, table *load.Table, blockSize int) *Picker {
	p := &Picker{index: x, guesses: guesses, load: table, blockSize: blockSize}
	p.pool.Store(&pool{Snapshot: &fleet.Snapshot{}, sites: newSites()})
	p.SetOptions(DefaultOptions())
	return p
}

// RememberTexts makes decisions about prompts without token ids go by their texts, as
// far as texts remembers where they went. It must be called before the first Pick.
func (p *Picker) RememberTexts(texts *index.Speculation) { p.texts = texts }

// optimistic is how often a decision is tried without the lock. It is made again
// when something was booked meanwhile on the workers that it chose.
const optimistic = 2

// Pick chooses the workers for a request and books its load on them, in one step:
// no other decision comes between. random(n) returns a number in [0, n). The caller
// must release the decision. With an error, it has Best and Total only.
func (p *Picker) Pick(req *Request, now time.Time, random func(n int) int, s *Scratch) (Decision, error) {
	s.look(p, req, now)
	c := choice{}
	var reservation *load.Reservation
	for try, done := 0, false; !done; try++ {
		if try < optimistic {
			c = s.choose(random)
		}
		reservation, done = p.conclude(&c, try < optimistic, now, random, s)
	}
	if c.err != nil {
		return Decision{Best: max(s.best, s.bestDecode), Total: len(req.Chains)}, c.err
	}
	prefill := s.member(c.prefill)
	guess := index.Guess{}
	if s.remembers(p, &c) {
		guess = p.guesses.Record(now, prefill.slot, req.Chains, s.match.Depth(prefill.slot).Device)
	}
	if p.texts != nil && !req.NoGuess {
		p.texts.Record(now, prefill.slot, req.Text, 0)
	}
	return Decision{
		Decode:      *s.worker(c.decode),
		Prefill:     *s.worker(c.prefill),
		Mode:        c.mode,
		Held:        c.held,
		Moot:        c.moot,
		Matched:     s.matched(prefill),
		Best:        s.bestFor(c.mode),
		Total:       len(req.Chains),
		Found:       s.found,
		Reservation: reservation,
		guess:       guess,
	}, nil
}

// conclude makes a choice final: it books, unless something was booked meanwhile on
// the workers that were chosen. Of a choice that was not made yet it makes one first:
// under the lock nothing is booked meanwhile.
func (p *Picker) conclude(c *choice, made bool, now time.Time, random func(n int) int, s *Scratch) (r *load.Reservation, done bool) {
	p.load.Lock()
	defer p.load.Unlock() // a panic must not stop all others
	if !made {
		*c = s.choose(random)
	} else if !s.holds(c) {
		return nil, false
	}
	p.load.Arrived(now, s.pool.computing(s.never()))
	if c.err != nil {
		return nil, true
	}
	prefill, decode := s.member(c.prefill), s.member(c.decode)
	b := load.Booking{
		At:            now,
		PrefillTokens: max(0, s.req.Tokens-s.matched(prefill)*p.blockSize),
		Prompt:        s.req.Tokens,
		Blocks:        s.blocks(),
		Whole:         s.req.Whole,
		PrefillKey:    s.worker(c.prefill).Key,
		Prefill:       prefill.load,
		DecodeKey:     s.worker(c.decode).Key,
		Decode:        decode.load,
	}
	if s.shares(c.mode) {
		b.Chains = s.req.Chains[:min(len(s.req.Chains), b.Blocks)]
	}
	return p.load.Reserve(b), true
}

// remembers says whether the worker that computes the prompt is expected to hold it.
// Beside events a guess has to be confirmed by them, and a decode worker that
// computes a prompt publishes none. Where there are no events, it counts as any other.
func (s *Scratch) remembers(p *Picker, c *choice) bool {
	return !s.req.NoGuess && (c.mode == Disaggregated || c.mode == OnAggregated || c.mode != PromptLess && p.guesses.Alone())
}
