package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// Apply takes a spec into use while requests run. spec has its defaults and is
// valid; it is not kept.
//
// What the change does not concern goes on. A new event plane or tokenizer is
// started and warms up first, for as long as a picker that starts would wait for
// it, while requests are routed as before. Requests that have begun end under the
// spec that they began under.
//
// After an error, which may be that of ctx, the spec before stays in use.
func (a *App) Apply(ctx context.Context, spec *v1alpha1.RoutingPolicySpec) error {
	select {
	case a.applying <- struct{}{}:
		defer func() { <-a.applying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now := a.current.Load()
	if same(now.spec, spec) {
		return nil
	}
	if err := lackingFiles(now, spec); err != nil {
		return err
	}
	next, err := newGeneration(a, spec.DeepCopy(), now)
	if err != nil {
		return err
	}
	a.join(next)
	fresh := slices.DeleteFunc(next.parts(), func(p *part) bool { return slices.Contains(now.parts(), p) })
	if err = a.warm(ctx, next, fresh); err == nil {
		err = a.extproc.Use(next.routing())
	}
	if err != nil {
		a.leave(next)
		return err
	}
	a.replaced(now, next) //nolint:contextcheck // what is applied outlives the call
	return nil
}

// lackingFiles says which files a new event plane would wait for, in a picker that
// hears one: what is known is not given up for a Secret that may never come.
func lackingFiles(now *generation, spec *v1alpha1.RoutingPolicySpec) error {
	if now.events.plane == nil || !connects(spec) || sameEvents(now.spec, spec) {
		return nil
	}
	if s := now.events.plane.Stats(); !s.Connected && !s.EverListened {
		return nil // nothing is known yet that could be lost
	}
	return (&v1alpha1.RoutingPolicySpec{EventPlane: spec.EventPlane}).CheckFiles()
}

// warm starts the parts of a generation that are new, and waits until they are as
// ready as those of a picker that starts must be.
func (a *App) warm(ctx context.Context, g *generation, fresh []*part) error {
	if err := a.start(fresh); err != nil { //nolint:contextcheck // what is applied outlives the call
		return err
	}
	if len(fresh) == 0 {
		return nil
	}
	a.log.Info("the policy changed; it is applied as soon as what is new is ready",
		"new_event_plane", slices.Contains(fresh, &g.events.part), "new_tokenizer", g.tokenizer != nil && slices.Contains(fresh, &g.tokenizer.part))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, p := range fresh {
			if err := p.failure(); err != nil {
				return err
			}
		}
		if a.warmEnough(g) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("apply the policy: %w", context.Cause(ctx))
		case <-a.life.ended():
			return errNotRunning
		case <-tick.C:
		}
	}
}

// warmEnough says whether a generation may take over. Before there is a pool, no
// request can be routed, and workers cannot be asked: then it is enough that the
// event plane did not fail at once, and readiness waits for the rest.
func (a *App) warmEnough(g *generation) bool {
	if a.pool.Load() == nil {
		return g.events.connected() == nil
	}
	return len(g.ready()) == 0
}

// replaced does what is left when requests begin under another generation.
func (a *App) replaced(old, next *generation) {
	for _, p := range next.parts() {
		p.use(a.life)
	}
	a.pooling.Lock()
	next.events.picker.Store(next.picker)
	a.current.Store(next)
	if a.pool.Load() != nil && !same(old.spec.Handoff, next.spec.Handoff) {
		a.handoffNoted = false
		a.noteHandoff(a.pool.Load())
	}
	a.pooling.Unlock()
	a.log.Info("the policy is in use")
	// It fails only when all ends, and then so does the old one.
	_ = a.life.start(func(ctx context.Context) {
		select {
		case <-old.unused:
			a.leave(old)
		case <-ctx.Done():
		}
	})
}

// start starts parts, and counts what they count.
func (a *App) start(parts []*part) error {
	if err := a.recovery.serve(a.life); err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.start(a.life); err != nil {
			return err
		}
	}
	return nil
}

// join makes a generation hear of changes of the pool, and use its parts.
func (a *App) join(g *generation) {
	a.totals.join(g)
	a.pooling.Lock()
	defer a.pooling.Unlock()
	a.generations = append(a.generations, g)
	if s := a.pool.Load(); s != nil {
		a.setPool(g, s)
	}
	for _, p := range g.parts() {
		p.users++
	}
}

// leave is the end of a generation. Parts that no other one uses are stopped.
func (a *App) leave(g *generation) {
	a.pooling.Lock()
	a.generations = slices.DeleteFunc(a.generations, func(other *generation) bool { return other == g })
	var last []*part
	for _, p := range g.parts() {
		if p.users--; p.users == 0 {
			last = append(last, p)
		}
	}
	a.pooling.Unlock()
	for _, p := range last {
		p.end()
	}
	a.totals.leave(g, last, a.fleet())
}
