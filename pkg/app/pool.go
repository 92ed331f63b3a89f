package app

import (
	"errors"
	"fmt"
	"time"

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
	prefill, decode, aggregated := s.Count(fleet.Prefill), s.Count(fleet.Decode), s.Count(fleet.Aggregated)
	a.log.Info("pool changed", "prefill", prefill, "decode", decode, "aggregated", aggregated)
	a.notePrefill(prefill, decode)
	if len(s.Workers) > 0 && decode == 0 && aggregated == 0 {
		a.log.Warn("the pool has no ready worker that can decode; every request is refused with 503")
	}
}

// notePrefill says once per change that a disaggregated pool lost its prefill
// side, or got it back. Requests go on, on the decode workers, so nothing else
// would tell.
func (a *App) notePrefill(prefill, decode int) {
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
	if state == prefillMissing {
		a.log.Warn("no prefill worker is ready; decode workers compute prompts themselves until one is", "decode", decode)
	} else if a.prefill == prefillMissing && state == prefillPresent {
		a.log.Info("prefill workers are ready again", "prefill", prefill)
	}
	a.prefill = state
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
	if a.plane != nil && time.Since(a.started) < planeGrace && !a.plane.Stats().EverListened {
		missing = append(missing, errors.New("event plane: not connected yet"))
	}
	return errors.Join(missing...)
}
