package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// answers is where workers connect to with their answers: opened when a spec first
// asks them, and from then on for as long as the picker runs, since policies come
// and go while answers are under way.
type answers struct {
	client   *recovery.Client
	listener net.Listener
	serving  bool
}

// maxAnswer is the most time that any spec gives a worker to answer.
const maxAnswer = 10 * time.Minute

// open returns the client that asks. One call at a time.
func (o *answers) open(cfg *v1alpha1.ServerConfig, log *slog.Logger) (*recovery.Client, error) {
	if o.client != nil {
		return o.client, nil
	}
	client, err := recovery.New(recovery.Config{
		Listen: cfg.RecoveryAddress, Advertise: cfg.RecoveryAdvertise, Timeout: maxAnswer, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if o.listener, err = net.Listen("tcp", cfg.RecoveryAddress); err != nil {
		return nil, fmt.Errorf("server.recoveryAddress: %w", err)
	}
	o.client = client
	return client, nil
}

// serve begins to take answers, once there is anybody to ask. One call at a time.
func (o *answers) serve(l *life) error {
	if o.client == nil || o.serving {
		return nil
	}
	o.serving = true
	return l.start(func(ctx context.Context) {
		if err := o.client.Serve(ctx, o.listener); err != nil {
			l.fail(err)
		}
	})
}

// recoverer asks the workers of the pool what they hold.
type recoverer struct {
	*recovery.Client

	pool    *atomic.Pointer[fleet.Snapshot] // nil inside: not known yet
	timeout time.Duration
}

var errAnswer = fmt.Errorf("took longer than eventPlane.recovery.timeout: %w", context.DeadlineExceeded)

// Workers returns the workers of the pool that say where to ask them.
func (r *recoverer) Workers() (keys []fleet.Key, ok bool) {
	s := r.pool.Load()
	if s == nil {
		return nil, false
	}
	for _, w := range s.Workers {
		if w.Recovery != "" {
			keys = append(keys, w.Key)
		}
	}
	return keys, true
}

// CanAsk says whether a worker is in the pool and says where to ask it.
func (r *recoverer) CanAsk(k fleet.Key) bool { return r.endpoint(k) != "" }

func (r *recoverer) endpoint(k fleet.Key) string {
	s := r.pool.Load()
	if s == nil {
		return ""
	}
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
	ctx, stop := context.WithTimeoutCause(ctx, r.timeout, errAnswer)
	defer stop()
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
