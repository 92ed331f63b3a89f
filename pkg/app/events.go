package app

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// events is what workers and other routers tell, and the event plane on which they
// do.
type events struct {
	part

	app     *App
	index   *index.Index
	engines *load.Engines
	plane   *eventplane.Plane           // nil: nobody is heard
	picker  atomic.Pointer[pick.Picker] // over index: the one in use, or about to be

	started  time.Time
	wasReady atomic.Bool
}

// newEvents builds the part of a spec that hears events. It is not started.
func newEvents(a *App, spec *v1alpha1.RoutingPolicySpec) (*events, error) {
	x, err := index.NewBounded(index.Config{MaxBytes: a.server.MaxIndexBytes})
	if err != nil {
		return nil, err
	}
	e := &events{app: a, index: x, engines: load.NewEngines(), started: time.Now()}
	e.part = newPart(e.run)
	if !connects(spec) {
		return e, nil
	}
	var asks eventplane.Recoverer // stays nil, not a nil *recoverer
	if hears(spec) && spec.EventPlane.AsksWorkers() {
		client, err := a.recovery.open(&a.server, a.log)
		if err != nil {
			return nil, err
		}
		asks = &recoverer{Client: client, pool: &a.pool, timeout: spec.EventPlane.Recovery.Timeout.Duration}
	}
	e.plane, err = eventplane.New(eventplane.Config{
		URL:         spec.EventPlane.NATS.URL,
		Namespace:   spec.EventPlane.NATS.Namespace,
		Name:        spec.EventPlane.NATS.Name,
		Security:    security(&spec.EventPlane.NATS),
		AwaitFiles:  a.cluster != nil,
		Index:       e.index,
		Known:       a.known,
		Lost:        func(k fleet.Key) { e.picker.Load().Forget(k) },
		Drop:        e.drop,
		Restarted:   e.engines.Drop,
		Loads:       e.engines,
		LoadsOnly:   !hears(spec),
		ReplicaSync: spec.EventPlane.TellsRouters(),
		Siblings:    &a.planes,
		Recover:     asks,
		JetStream:   jetStream(&spec.EventPlane.JetStream),
		WarmUp:      warmUp(&spec.EventPlane.WarmUp),
		Log:         a.log,
	})
	return e, err
}

// connects says whether a spec has an event plane. One that names no server waits for
// a policy that does: until then requests are routed by what earlier decisions tell.
func connects(spec *v1alpha1.RoutingPolicySpec) bool {
	return !spec.EventPlane.Disabled && spec.EventPlane.NATS.URL != ""
}

// hears says whether a spec wants the KV events of workers. Figures of load are heard
// in any case.
func hears(spec *v1alpha1.RoutingPolicySpec) bool {
	return connects(spec) && !spec.Cost.LoadOnly() && !spec.Cost.Approximate()
}

func (e *events) run(ctx context.Context) error {
	e.engines.Feed(e.app.load)
	defer e.engines.Unfeed()
	if e.plane == nil {
		<-ctx.Done()
		return nil
	}
	return e.plane.Run(ctx)
}

// drop forgets a worker, unless the pool has it by now. Figures of one that comes
// back at this very moment are stated again soon enough.
func (e *events) drop(k fleet.Key) {
	a := e.app
	a.pooling.Lock() // or a picker of an older generation might list it already
	defer a.pooling.Unlock()
	if !a.known(k) {
		e.picker.Load().Drop(k)
		e.engines.Drop(k)
	}
}

// planeGrace is how long a new picker may wait for the event plane before it
// takes requests without cache knowledge: a NATS that is down must not take
// inference down with it.
const planeGrace = 10 * time.Second

// ready says what the event plane is waiting for. Once it was ready it stays so: a
// NATS that comes late must not take the picker out again.
func (e *events) ready() error {
	if e.wasReady.Load() {
		return nil
	}
	if err := e.connected(); err != nil {
		return err
	}
	if e.plane != nil && e.plane.Stats().EverListened {
		if warming := e.plane.Warming(); warming != "" {
			return errors.New("event plane: " + warming)
		}
	}
	e.wasReady.Store(true)
	return nil
}

// connected says that events are not heard yet, as long as it is worth to wait.
func (e *events) connected() error {
	if e.plane == nil {
		return nil
	}
	stats := e.plane.Stats()
	if !stats.EverListened && (stats.Connected || time.Since(e.started) < e.app.grace) {
		return errors.New("event plane: not connected yet")
	}
	return nil
}
