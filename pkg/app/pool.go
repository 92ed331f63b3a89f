package app

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// prefillState is what the log last said about the prefill side of the pool.
type prefillState uint8

const (
	prefillUnknown prefillState = iota
	prefillPresent
	prefillMissing
)

// setFleet takes a new pool into use. Discovery calls it, one call at a time.
func (a *App) setFleet(s *fleet.Snapshot) {
	if err := a.picker.SetFleet(s); err != nil {
		a.log.Error("some workers are routed by load alone", "error", err)
	}
	a.extproc.Retain(s)
	if a.recoverer != nil {
		a.recoverer.listed.Store(true)
	}
	a.engines.Retain(s)
	prefill, decode, aggregated := s.Count(fleet.Prefill), s.Count(fleet.Decode), s.Count(fleet.Aggregated)
	a.log.Info("pool changed", "prefill", prefill, "decode", decode, "aggregated", aggregated)
	a.notePrefill(prefill, decode, aggregated)
	a.noteHandoff(s)
	if len(s.Workers) > 0 && decode == 0 && aggregated == 0 {
		a.log.Warn("the pool has no ready worker that can decode; every request is refused with 503")
	}
}

// known says whether the pool has a worker.
func (a *App) known(k fleet.Key) bool {
	_, ok := a.picker.Fleet().Index(k)
	return ok
}

// drop forgets a worker, unless the pool has it by now. Figures of one that comes
// back at this very moment are stated again soon enough.
func (a *App) drop(k fleet.Key) {
	a.picker.Drop(k)
	if !a.known(k) {
		a.engines.Drop(k)
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
	if s.Count(fleet.Prefill) > 0 && !a.handoff.Names(extproc.PrefillEndpoint, extproc.PrefillInstanceID) {
		a.handoffNoted = true
		a.log.Warn("the pool has prefill workers, but no handoff header names the one that was picked; see spec.handoff")
	}
	if shared, ok := sharedEndpoint(s); ok && !a.handoff.Names(extproc.DecodeRank, extproc.PrefillRank) {
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

// planeGrace is how long a new picker may wait for the event plane before it
// takes requests without cache knowledge: a NATS that is down must not take
// inference down with it.
const planeGrace = 10 * time.Second

// ready says what is missing before requests are welcome.
func (a *App) ready() error {
	var missing []error
	if len(a.picker.Fleet().Workers) == 0 {
		missing = append(missing, fmt.Errorf("pool: no ready worker in %s", a.workers.Path))
	}
	if err := a.planeReady(); err != nil {
		missing = append(missing, err)
	}
	if a.tokenizer != nil && a.tokenizer.inProcess != nil {
		if err := a.tokenizer.inProcess.ready(); err != nil {
			missing = append(missing, err)
		}
	}
	return errors.Join(missing...)
}

// planeReady says what the event plane is waiting for. Once it was ready it stays
// so: a NATS that comes late must not take the picker out again.
func (a *App) planeReady() error {
	if a.plane == nil || a.planeWasReady.Load() {
		return nil
	}
	stats := a.plane.Stats()
	switch warming := a.plane.Warming(); {
	case !stats.EverListened:
		if stats.Connected || time.Since(a.started) < planeGrace {
			return errors.New("event plane: not connected yet")
		}
	case warming != "":
		return errors.New("event plane: " + warming)
	}
	a.planeWasReady.Store(true)
	return nil
}
