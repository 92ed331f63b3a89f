package app

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// recoverer asks the workers of the pool what they hold.
type recoverer struct {
	*recovery.Client

	picker *pick.Picker
	listed atomic.Bool // the pool is known
}

func newRecoverer(cfg *v1alpha1.EndpointPickerConfig, picker *pick.Picker, base recovery.Config) (*recoverer, error) {
	base.Listen, base.Advertise = cfg.Server.RecoveryAddress, cfg.Server.RecoveryAdvertise
	base.Timeout = cfg.Spec.EventPlane.Recovery.Timeout.Duration
	client, err := recovery.New(base)
	if err != nil {
		return nil, err
	}
	return &recoverer{Client: client, picker: picker}, nil
}

// Workers returns the workers of the pool that say where to ask them.
func (r *recoverer) Workers() (keys []fleet.Key, ok bool) {
	for _, w := range r.picker.Fleet().Workers {
		if w.Recovery != "" {
			keys = append(keys, w.Key)
		}
	}
	return keys, r.listed.Load()
}

// CanAsk says whether a worker is in the pool and says where to ask it.
func (r *recoverer) CanAsk(k fleet.Key) bool { return r.endpoint(k) != "" }

func (r *recoverer) endpoint(k fleet.Key) string {
	s := r.picker.Fleet()
	i, ok := s.Index(k)
	if !ok {
		return ""
	}
	return s.Workers[i].Recovery
}

// Ask asks a worker for its events from one on, or for all that it holds.
func (r *recoverer) Ask(ctx context.Context, k fleet.Key, from uint64) (eventplane.Recovered, error) {
	object, err := json.Marshal(map[string]string{"tcp": r.endpoint(k)})
	if err != nil {
		return eventplane.Recovered{}, err
	}
	target, err := recovery.ParseTransport(object)
	if err != nil {
		return eventplane.Recovered{}, err
	}
	request := recovery.Request{WorkerID: k.ID, Rank: k.Rank}
	if from > 0 {
		request.From = &from
	}
	a, err := r.Query(ctx, target, request)
	if err != nil {
		return eventplane.Recovered{}, err
	}
	switch a.Kind {
	case recovery.TreeDump:
		return eventplane.Recovered{All: true, Events: a.Events, LastID: a.LastEventID}, nil
	case recovery.Events, recovery.TooNew:
		return eventplane.Recovered{Events: a.Events, LastID: a.LastEventID}, nil
	case recovery.InvalidRange:
	}
	return eventplane.Recovered{}, fmt.Errorf("the worker answers %s", a.Kind)
}
