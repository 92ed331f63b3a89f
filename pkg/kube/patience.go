package kube

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// retryDelay is the time between two attempts while the API server is away. The
// library doubles its own up to a minute, which is how long a pool would then lag
// behind after an API server that was away for half a minute.
const retryDelay = time.Second

// patient wraps how a kind is listed and watched: an API server that is away is
// asked again every second, and what it refuses is noted.
func (k *kind) patient(lw toolscache.ListerWatcher, out *outages) toolscache.ListerWatcher {
	inner := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return try(ctx, k, out, func() (runtime.Object, error) { return inner.ListWithContext(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := try(ctx, k, out, func() (watch.Interface, error) { return inner.WatchWithContext(ctx, o) })
			if _, ok := k.object.(*metav1.PartialObjectMetadata); ok && err == nil {
				w = drained{w}
			}
			return w, err
		},
	}
}

// try does something until the API server has an answer to it.
func try[T any](ctx context.Context, k *kind, out *outages, do func() (T, error)) (T, error) {
	for {
		result, err := do()
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		switch {
		case apierrors.IsForbidden(err):
			k.refused.Store(true)
			out.probe()
		case apierrors.IsNotFound(err):
			k.lost.Store(true)
			out.probe()
		}
		out.note(k.qualified(), err)
		if !away(err) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case <-time.After(retryDelay/2 + rand.N(retryDelay)):
		}
	}
}

// drained is a watch of metadata, which has a goroutine that hands events on. It would
// wait for ever for somebody to take the last one after the end.
type drained struct{ watch.Interface }

func (d drained) Stop() {
	d.Interface.Stop()
	for range d.ResultChan() { // closed as soon as nothing is in flight
	}
}

// away says whether an error is none of what was asked, but of the way to the API
// server or of its state. A kind that is not found may be on its way back.
func away(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// outages keeps track of what cannot be reached, and logs it once.
type outages struct {
	log   *slog.Logger
	probe func() // has access and kinds looked at soon

	mu     sync.Mutex
	failed map[string]error // by what was asked for
}

// note takes the outcome of one attempt.
func (o *outages) note(what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	were := len(o.failed)
	if away(err) && !apierrors.IsNotFound(err) {
		o.failed[what] = err
	} else {
		delete(o.failed, what)
	}
	switch {
	case were == 0 && len(o.failed) > 0:
		o.log.Warn("API server not usable; requests are routed on by what is known, and it is asked again every second", "asked_for", what, "error", err)
	case were > 0 && len(o.failed) == 0:
		o.log.Info("API server usable again", "asked_for", what)
	}
}

// err returns the error of something that cannot be reached, nil when all can.
func (o *outages) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, err := range o.failed {
		return err
	}
	return nil
}

// watchEnded takes the place of the library's handler, which would log every
// attempt. What matters was noted by try.
func (w *Watcher) watchEnded(_ context.Context, r *toolscache.Reflector, err error) {
	w.cfg.Log.Debug("watch ended", "kind", r.TypeDescription(), "error", err)
}
