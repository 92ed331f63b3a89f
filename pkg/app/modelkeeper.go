package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/render"
)

const (
	retryFirst = time.Second     // after the first failure; then twice as long each time
	retryLast  = 5 * time.Minute // at most
	lookEvery  = time.Second     // for engines that came
)

// keep loads the files and compares, as often as there is a reason to.
func (p *inProcess) keep(ctx context.Context, changed <-chan struct{}) {
	k := &keeper{inProcess: p, retry: retryFirst, pause: retryFirst, seen: map[string]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			k.load(ctx, timer)
		case <-timer.C:
			k.load(ctx, timer)
		case <-tick.C:
			k.look(ctx)
		}
	}
}

// keeper is the state of keep.
type keeper struct {
	*inProcess

	retry     time.Duration // how long after the next failure to load
	candidate *model        // loaded, and not taken into use yet
	due       time.Time     // when to compare again
	pause     time.Duration // until then, while engines are silent
	seen      map[string]bool
}

// load gets the files and makes them ready.
func (k *keeper) load(ctx context.Context, timer *time.Timer) {
	m, again, err := k.fetch(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		k.loads.add(codeOf(err))
		k.failed(err)
		timer.Reset(k.retry)
		k.retry = min(2*k.retry, retryLast)
		return
	}
	k.loads.add("ok")
	k.retry = retryFirst
	if again {
		timer.Reset(retryLast)
	}
	if m == nil { // the same as before: what waited in between was taken back
		k.candidate = nil
		return
	}
	k.candidate = m
	if k.current.Load() == nil {
		k.current.Store(m) // its gate is closed, and says more than nothing does
	}
	k.check(ctx)
}

// fetch returns a new model, nil when the files are those in use. again says that
// the files may be old, and should be asked for again.
func (p *inProcess) fetch(ctx context.Context) (m *model, again bool, err error) {
	start := time.Now()
	var files *modelfiles.Files
	if err := guarded(p.cfg.Log, func() error { files, err = p.cfg.Source.Fetch(ctx); return err }); err != nil {
		return nil, false, err
	}
	again = files.Stale != nil
	if now := p.current.Load(); now != nil && p.cfg.Fixed && now.files == files.Revision {
		p.works()
		return nil, again, nil
	}
	if err := guarded(p.cfg.Log, func() error { m, err = p.cfg.Build(files); return err }); err != nil {
		return nil, false, err
	}
	p.works()
	m.files = files.Revision
	if now := p.current.Load(); now != nil && now.revision == m.revision {
		return nil, again, nil
	}
	if again {
		p.cfg.Log.Warn("the hub cannot be asked for the model's files; those of the last time are used", "error", files.Stale)
	}
	if files.CacheError != nil {
		p.cfg.Log.Warn("the model's files cannot be kept in the cache", "error", files.CacheError)
	}
	p.cfg.Log.Info("the model's files are loaded", "source", m.source, "revision", m.revision, "verified", files.Verified,
		"took", time.Since(start).Round(time.Millisecond).String())
	if m.noChats != nil {
		p.cfg.Log.Warn("chats cannot be rendered in process; engines are asked for them", "error", m.noChats)
	}
	return m, again, nil
}

var errPanic = errors.New("it made the picker panic; please report this")

// guarded turns a panic into an error. There should be none; if there is, only the
// model may pay for it, not the requests under way.
func guarded(log *slog.Logger, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("a model made the picker panic; please report this", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// works forgets why the files could not be loaded.
func (p *inProcess) works() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = ""
}

// failed tells of a reason once.
func (p *inProcess) failed(err error) {
	p.mu.Lock()
	again := p.failure == err.Error()
	p.failure = err.Error()
	p.mu.Unlock()
	if !again {
		meanwhile := "engines are asked for token ids"
		if p.current.Load() != nil {
			meanwhile = "those that are loaded stay in use"
		}
		p.cfg.Log.Warn("the model's files cannot be loaded", "error", err, "meanwhile", meanwhile)
	}
	p.waitFor("")
}

// look compares when it is time to, or when engines came.
func (k *keeper) look(ctx context.Context) {
	if k.latest() == nil || k.cfg.Policy == parity.Off {
		return
	}
	now := time.Now()
	if soon := now.Add(k.cfg.Recheck); k.differed.Swap(false) && k.due.After(soon) {
		k.due = soon
	}
	came := slices.ContainsFunc(k.cfg.Engines.Engines(), func(url string) bool { return !k.seen[url] })
	if came || !now.Before(k.due) {
		k.check(ctx)
	}
}

// latest is the model that waits to be used, else the one in use.
func (k *keeper) latest() *model {
	if k.candidate != nil {
		return k.candidate
	}
	return k.current.Load()
}

// check compares with the engines, and takes a candidate into use if that is no
// step back.
func (k *keeper) check(ctx context.Context) {
	now := k.current.Load()
	waits := ""
	if k.cfg.Policy != parity.Off {
		reports := k.judge(ctx, k.latest())
		if k.latest() != now {
			k.judge(ctx, now) // it may have become the worse one
		}
		if ctx.Err() != nil {
			return
		}
		k.plan(k.latest(), reports)
		if len(reports) == 0 {
			waits = "no engine to compare with yet"
		}
	}
	if k.candidate != nil && k.candidate.gate.Covers(now.gate) {
		k.current.Store(k.candidate)
		if k.candidate != now {
			k.cfg.Log.Info("the model's new files are in use", "revision", k.candidate.revision)
		}
		k.candidate = nil
	}
	k.waitFor(waits)
}

// judge compares one model with the engines.
func (k *keeper) judge(ctx context.Context, m *model) []parity.Report {
	reports := k.ask(ctx, m)
	if ctx.Err() == nil {
		k.tell(m, m.gate.Checked(reports))
	}
	return reports
}

// maxEngines are asked in one comparison.
const maxEngines = 64

// ask renders all cases here and by the engines.
func (k *keeper) ask(ctx context.Context, m *model) (reports []parity.Report) {
	urls := k.cfg.Engines.Engines()
	here, suspect := map[string]bool{}, map[string]bool{}
	for _, url := range urls {
		here[url] = true
	}
	maps.DeleteFunc(k.seen, func(url string, _ bool) bool { return !here[url] })
	for _, s := range m.gate.Status() {
		if s.State == parity.Mismatch && s.Last != nil {
			suspect[s.Last.Engine] = true
		}
	}
	// Where there are more than can be asked: those that differed first, or they
	// would be acquitted by others; then those that never were.
	rank := func(url string) int { return 2 - 2*boolInt(suspect[url]) - boolInt(!k.seen[url]) }
	slices.SortStableFunc(urls, func(a, b string) int { return rank(a) - rank(b) })
	cases := m.gate.Cases("")
	local := k.local(m, time.Now())
	for i, url := range urls {
		k.seen[url] = true
		if i >= maxEngines {
			continue
		}
		r := parity.Run(url, cases, local, k.engine(ctx, url), k.cfg.Special, m.gate.Special())
		if ctx.Err() != nil {
			return nil
		}
		for _, one := range r.Results {
			k.checks[originCanned][one.Outcome].Add(1)
		}
		reports = append(reports, r)
	}
	return reports
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// engine asks one engine as the gate wants it.
func (p *inProcess) engine(ctx context.Context, url string) parity.Engine {
	return func(c *parity.Case) ([]uint32, parity.Outcome) {
		ids, err := p.cfg.Engines.TokensFrom(ctx, url, nil, c.Kind, c.Body)
		return ids, outcomeOf(err)
	}
}

// outcomeOf says what an engine's answer is worth.
func outcomeOf(err error) parity.Outcome {
	switch {
	case err == nil:
		return parity.Agree
	case errors.Is(err, render.ErrRejected), errors.Is(err, render.ErrTooLarge):
		return parity.Refused
	case errors.Is(err, render.ErrUnsupported):
		return parity.NoEndpoint
	default:
		return parity.Unavailable
	}
}

// plan says when to compare again.
func (k *keeper) plan(m *model, reports []parity.Report) {
	wait := 10 * k.cfg.Recheck
	switch {
	case len(reports) == 0 || slices.ContainsFunc(reports, silent):
		wait = min(k.pause, k.cfg.Recheck) // an engine may have just started
		k.pause = min(2*k.pause, k.cfg.Recheck)
	case m.gate.Differs():
		wait = k.cfg.Recheck
		fallthrough
	default:
		k.pause = retryFirst
	}
	k.due = time.Now().Add(wait)
}

// silent says whether an engine did not answer.
func silent(r parity.Report) bool {
	return slices.ContainsFunc(r.Results, func(one parity.Result) bool { return one.Outcome == parity.Unavailable })
}

// tell logs what changed.
func (p *inProcess) tell(m *model, changes []parity.Change) {
	by := map[parity.State][]string{}
	for _, c := range changes {
		if c.To == parity.Mismatch && c.Why != nil && c.Shape != parity.Other {
			p.tellDifference(m, &c)
			continue
		}
		by[c.To] = append(by[c.To], c.Shape.String())
	}
	for _, state := range []parity.State{parity.Verified, parity.Unchecked, parity.Unverified} {
		if len(by[state]) > 0 {
			p.cfg.Log.Info("prompts and token ids in process", "state", state.String(), "shapes", by[state], "revision", m.revision)
		}
	}
}

// tellDifference logs where the ids of an engine part from those of a model that
// is in use, or that may be next.
func (p *inProcess) tellDifference(m *model, c *parity.Change) {
	where := []any{
		"shape", c.Shape.String(), "case", c.Why.Case, "engine", c.Why.Engine,
		"token", c.Why.Diff.Token, "tokens_here", c.Why.Diff.Local, "tokens_engine", c.Why.Diff.Engine, "revision", m.revision,
	}
	if m != p.current.Load() {
		p.cfg.Log.Warn("the model's new files give other token ids than the engine; those before them stay in use until they agree", where...)
		return
	}
	p.cfg.Log.Warn("prompts come to other token ids here than in the engine, which is asked for them until they agree", where...)
}
