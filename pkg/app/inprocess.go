package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// engineAsker is what [render.Client] does for a comparison.
type engineAsker interface {
	Engines() []string
	TokensFrom(ctx context.Context, url string, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error)
}

// inProcessConfig is what an inProcess needs. All fields are required.
type inProcessConfig struct {
	Source  modelfiles.Source
	Build   func(*modelfiles.Files) (*model, error)
	Engines engineAsker
	Layout  block.Layout

	Special parity.Special
	Policy  parity.Policy
	Sampler *parity.Sampler
	Recheck time.Duration // after a difference
	Beside  []string      // files that are read with those of the source: a template, model cards
	Poll    time.Duration // of those, and of the files of a directory
	Fixed   bool          // what is made of the same files is the same

	Log *slog.Logger
}

// inProcess turns prompts into chains in this process. It gets the files of the
// model, and again when they change, and compares with engines what it computes.
// Prompts are refused, for a reason, whenever it may not or cannot.
type inProcess struct {
	cfg     inProcessConfig
	started time.Time
	current atomic.Pointer[model] // in use; nil until the first is loaded
	samples chan *sample

	refused  reasons // why prompts were refused
	loads    reasons // how attempts to get the files ended
	checks   [2][parity.NumOutcomes]atomic.Uint64
	dropped  atomic.Uint64 // samples for which there was no room
	turn     atomic.Uint64 // whose turn it is to be compared with
	differed atomic.Bool   // a sample did, since the last look

	mu      sync.Mutex
	waiting string // what a new picker waits for; empty once it need not
	failure string // why the files could not be loaded, of which the log has told
}

// The two origins of comparisons.
const (
	originCanned = iota
	originLive
)

// maxSamples wait for their comparison. Each holds a body.
const maxSamples = 16

func newInProcess(cfg inProcessConfig) *inProcess {
	return &inProcess{
		cfg: cfg, started: time.Now(), samples: make(chan *sample, maxSamples),
		waiting: "the model's files are not loaded yet",
	}
}

// tokenize fills in a prompt, or says why it cannot.
func (p *inProcess) tokenize(pr *extproc.Prompt) (reason string) {
	m := p.current.Load()
	if m == nil {
		return p.refuse("not_loaded")
	}
	if m.noChats != nil && pr.Kind != prompt.Completion {
		return p.refuse(reasonOf(m.noChats))
	}
	shape := parity.ShapeOf(pr.Kind, pr.Scanned)
	if !m.gate.Open(shape) {
		return p.refuse(m.gate.State(shape).String())
	}
	now := time.Now()
	if err := guarded(p.cfg.Log, func() error { return m.fill(pr, now) }); err != nil {
		return p.refuse(reasonOf(err))
	}
	if shape != parity.Other && p.cfg.Sampler.Take(now, false) {
		p.offer(&sample{model: m, at: now, inProcess: true, chains: slices.Clone(pr.Chains), tokens: pr.Tokens}, shape, pr)
	}
	return ""
}

// alone says whether engines are known to have no endpoint that tells the ids of
// such a prompt: then none need be asked.
func (p *inProcess) alone(pr *extproc.Prompt) bool {
	m := p.current.Load()
	return m != nil && p.cfg.Policy != parity.Off && m.gate.State(parity.ShapeOf(pr.Kind, pr.Scanned)) == parity.Unchecked
}

// told hears of the ids that an engine gave for a prompt that was refused here.
// Where that was for want of knowledge, they are it.
func (p *inProcess) told(pr *extproc.Prompt) {
	m := p.current.Load()
	if m == nil {
		return
	}
	shape := parity.ShapeOf(pr.Kind, pr.Scanned)
	if now := time.Now(); !m.gate.Open(shape) && p.cfg.Sampler.Take(now, true) {
		p.offer(&sample{model: m, at: now, engine: slices.Clone(pr.IDs)}, shape, pr)
	}
}

func (p *inProcess) refuse(reason string) string {
	p.refused.add(reason)
	return reason
}

// run works until ctx ends.
func (p *inProcess) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // told already
		}
	}
	group.Go(func() error { p.keep(ctx, changed); return nil })
	group.Go(func() error { p.compare(ctx); return nil })
	if d, ok := p.cfg.Source.(*modelfiles.Directory); ok {
		group.Go(func() error {
			for d.Watch(ctx, p.cfg.Poll) == nil {
				tell()
			}
			return nil
		})
	}
	if len(p.cfg.Beside) > 0 {
		group.Go(func() error { watchFiles(ctx, p.cfg.Beside, p.cfg.Poll, tell); return nil })
	}
	return group.Wait()
}

// waitFor says what a new picker waits for, empty for nothing. Once it waits for
// nothing it never waits again.
func (p *inProcess) waitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != "" {
		p.waiting = what
	}
}

// inProcessGrace is how long a new picker may wait for the model's files: engines
// can be asked without them.
const inProcessGrace = 30 * time.Second

// ready says what a new picker waits for.
func (p *inProcess) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == "" || time.Since(p.started) > inProcessGrace {
		return nil
	}
	return fmt.Errorf("tokenizer: %s", p.waiting)
}

// waitsFor is what is being waited for, empty for nothing.
func (p *inProcess) waitsFor() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}
