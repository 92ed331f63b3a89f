package app

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// prefillState is what the log last said about the prefill side of the pool.
type prefillState uint8

const (
	prefillUnknown prefillState = iota
	prefillPresent
	prefillMissing
)

// fleet is the pool, empty before it is known.
func (a *App) fleet() *fleet.Snapshot {
	if s := a.pool.Load(); s != nil {
		return s
	}
	return &fleet.Snapshot{}
}

// setFleet takes a new pool into use. Discovery calls it, one call at a time.
func (a *App) setFleet(s *fleet.Snapshot) {
	a.pooling.Lock()
	defer a.pooling.Unlock()
	for _, g := range a.generations {
		a.setPool(g, s)
	}
	a.pool.Store(s)
	a.extproc.Retain(s)
	prefill, decode, aggregated := s.Count(fleet.Prefill), s.Count(fleet.Decode), s.Count(fleet.Aggregated)
	a.log.Info("pool changed", "prefill", prefill, "decode", decode, "aggregated", aggregated)
	a.notePrefill(prefill, decode, aggregated)
	a.noteHandoff(s)
	if len(s.Workers) > 0 && decode == 0 && aggregated == 0 {
		a.log.Warn("the pool has no ready worker that can decode; every request is refused with 503")
	}
}

// setPool gives a generation a pool.
func (a *App) setPool(g *generation, s *fleet.Snapshot) {
	if err := g.picker.SetFleet(s); err != nil {
		a.log.Error("some workers are routed by load alone", "error", err)
	}
	g.events.engines.Retain(s)
	if g.metrics != nil {
		g.metrics.Update(s)
	}
}

// known says whether the pool has a worker.
func (a *App) known(k fleet.Key) bool {
	_, ok := a.fleet().Index(k)
	return ok
}

// restarted forgets what a worker held, whose process began anew.
func (a *App) restarted(k fleet.Key) {
	a.pooling.Lock()
	defer a.pooling.Unlock()
	for _, g := range a.generations {
		g.picker.Forget(k)
		g.events.index.Clear(k)
		g.events.engines.Drop(k)
	}
}

// notePrefill says once per change that a disaggregated pool lost its prefill
// side, or got it back. Requests go on without it, so nothing else would tell.
func (a *App) notePrefill(prefill, decode, aggregated int) {
	state := prefillUnknown
	switch {
	case prefill > 0:
		state = prefillPresent
	case decode > 0:
		state = prefillMissing
	}
	if state == a.prefill {
		return
	}
	switch {
	case state == prefillMissing && aggregated > 0:
		a.log.Warn("no prefill worker is ready; aggregated workers take all requests until one is", "decode", decode, "aggregated", aggregated)
	case state == prefillMissing:
		a.log.Warn("no prefill worker is ready; decode workers compute prompts themselves until one is", "decode", decode)
	case a.prefill == prefillMissing && state == prefillPresent:
		a.log.Info("prefill workers are ready again", "prefill", prefill)
	}
	a.prefill = state
}

// noteHandoff warns, once, of a pool to which the handoff headers do not fit: a
// pick that nobody is told of would cost its benefit without a sign.
func (a *App) noteHandoff(s *fleet.Snapshot) {
	if a.handoffNoted {
		return
	}
	handoff := a.current.Load().handoff
	if prefillUnnamed(handoff, s) {
		a.handoffNoted = true
		a.log.Warn("the pool has prefill workers, but no handoff header names the one that was picked; see spec.handoff")
	}
	if shared, ok := rankUnnamed(handoff, s); ok {
		a.handoffNoted = true
		a.log.Warn("several data-parallel ranks share an endpoint, but no handoff header names the one that was picked; see spec.handoff",
			"worker", shared.Name, "endpoint", shared.Endpoint.String())
	}
}

// sharedEndpoint returns a worker whose endpoint another rank has too.
func sharedEndpoint(s *fleet.Snapshot) (fleet.Worker, bool) {
	seen := make(map[netip.AddrPort]bool, len(s.Workers))
	for _, w := range s.Workers {
		if seen[w.Endpoint] {
			return w, true
		}
		seen[w.Endpoint] = true
	}
	return fleet.Worker{}, false
}

// ready says what is missing before requests are welcome.
func (a *App) ready() error {
	var missing []error
	if err := a.poolReady(); err != nil {
		missing = append(missing, fmt.Errorf("pool: %w", err))
	}
	return errors.Join(append(missing, a.current.Load().ready()...)...)
}

// poolReady says what is missing of the pool. In a cluster a pool may well be
// empty, scaled down to nothing: requests then get an answer that says so, which
// they would not from a picker that is not ready.
func (a *App) poolReady() error {
	if a.cluster != nil {
		return a.cluster.Synced()
	}
	if len(a.fleet().Workers) == 0 {
		return fmt.Errorf("no ready worker in %s", a.where)
	}
	return nil
}
