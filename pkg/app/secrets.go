package app

import (
	"context"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// secretsPoll is how often files that are missing are looked for.
const secretsPoll = 2 * time.Second

// missingSecrets says what is wrong with the files that the connection to NATS needs.
// In a cluster they are Secrets, which may be mounted later than the picker starts;
// elsewhere they must be there from the start.
func (a *App) missingSecrets(spec *v1alpha1.RoutingPolicySpec) error {
	if a.cluster == nil {
		return nil
	}
	return (&v1alpha1.RoutingPolicySpec{EventPlane: spec.EventPlane}).CheckFiles()
}

// awaitSecrets begins to hear events once the files are there that were missing.
// Until then requests are routed by load alone.
func (a *App) awaitSecrets(ctx context.Context) error {
	tick := time.NewTicker(secretsPoll)
	defer tick.Stop()
	told := ""
	for {
		lacks := a.current.Load().events.lacks
		if lacks != nil && lacks.Error() != told {
			told = lacks.Error()
			a.log.Warn("files of the event plane are missing; requests are routed without cache knowledge until they are there", "error", lacks)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if lacks == nil {
			told = ""
			continue
		}
		if err := a.hearAgain(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the event plane cannot be used; it is tried again", "error", err)
		}
	}
}

// hearAgain builds the event plane of the spec in use, if its files are there now.
func (a *App) hearAgain(ctx context.Context) error {
	select {
	case a.applying <- struct{}{}:
		defer func() { <-a.applying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now := a.current.Load()
	if now.events.lacks == nil || a.missingSecrets(now.spec) != nil {
		return nil
	}
	next, err := newGeneration(a, now.spec, now)
	if err != nil {
		return err
	}
	return a.replace(ctx, now, next)
}
