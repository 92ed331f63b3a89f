package kube

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

const (
	// Looks at the API server, while something is missing or refused and when all
	// is well.
	probeSoon = 3 * time.Second
	probeCalm = 30 * time.Second
	// probeTimeout bounds one look, so that a silent API server cannot hold it.
	probeTimeout = 15 * time.Second
	// enoughMisses is how often in a row a kind that is followed must be missing
	// before it counts as gone: an API server that starts may not know it yet.
	enoughMisses = 2
)

// prober asks the API server for what no watch tells: which kinds it has, what it
// refuses, and whether the picker's Service is as gateways need it.
type prober struct {
	w         *Watcher
	discovery discovery.DiscoveryInterfaceWithContext
	access    *access
	wake      chan struct{}

	nodeLabels []string // that are followed

	synced    int                        // kinds that were read, as last seen
	noService bool                       // refused to read Services; logged
	pool      *inferencev1.InferencePool // whose reference was checked
	checked   time.Time                  // when that was
	refs      []Problem                  // what was wrong with it
}

// findings are what the prober found. They are immutable.
type findings struct {
	problems []Problem
	err      error // why the API server could not be asked
}

func (p *prober) run(ctx context.Context) error {
	for {
		soon := p.probe(ctx)
		delay := probeCalm
		if soon {
			delay = probeSoon
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// probe looks once. It says whether to look again soon.
func (p *prober) probe(ctx context.Context) (soon bool) {
	ask, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := errors.Join(p.nodes(ctx), p.kinds(ctx, ask), p.rights(ctx, ask))
	problems, searchErr := p.search(ask)
	err = errors.Join(err, searchErr, p.picker(ask))
	if ctx.Err() != nil {
		return false
	}
	p.w.outages.note("discovery", err)
	found := &findings{problems: slices.Concat(p.access.problems(p.w.kinds), problems, p.refs), err: err}
	if old := p.w.found.Swap(found); old == nil || !slices.Equal(old.problems, found.problems) || (old.err == nil) != (err == nil) {
		p.w.log.changes(found.problems)
		p.w.changed()
	}
	if n := p.countSynced(); n != p.synced {
		p.synced = n
		p.w.changed() // an empty list gives no other sign
	}
	return err != nil || p.unsettled()
}

func (p *prober) countSynced() (n int) {
	for _, k := range p.w.kinds {
		if k.synced() {
			n++
		}
	}
	return n
}

// unsettled says whether something is missing or refused that may be mended any
// moment.
func (p *prober) unsettled() bool {
	if len(p.access.problems(p.w.kinds)) > 0 || len(p.refs) > 0 {
		return true
	}
	for _, k := range p.w.kinds {
		if k.idle.Load() || k.optional && k.state.Load() == kindMissing {
			continue
		}
		if !k.synced() || k.lost.Load() || k.refused.Load() {
			return true
		}
	}
	return p.w.kinds.pool() != nil && p.w.currentPool() == nil
}

// kinds follows the kinds that have come, and lets go of those that are gone. ask
// bounds the questions; what is followed lives as long as ctx.
func (p *prober) kinds(ctx, ask context.Context) error {
	var errs []error
	for _, k := range p.w.kinds {
		if k.idle.Load() || k.state.Load() == kindFollowed && !k.lost.Load() {
			continue
		}
		there, err := exists(ask, p.discovery, k.gvk)
		switch {
		case err != nil:
		case there && k.state.Load() == kindFollowed:
			k.misses = 0
			k.lost.Store(false)
		case there:
			if err = k.follow(ctx, p.w.cluster.GetCache(), p.w.changedKind(k)); err == nil {
				p.w.cfg.Log.Info("following", "kind", k.qualified())
			}
		case k.state.Load() == kindFollowed:
			if k.misses++; k.misses >= enoughMisses {
				k.misses = 0
				p.w.cfg.Log.Warn("the API server does not have this kind any more; is its CRD deleted?", "kind", k.qualified())
				err = k.drop(ctx, p.w.cluster.GetCache(), kindMissing)
				p.w.changedKind(k)()
			}
		case k.state.Load() == kindUnknown:
			k.state.Store(kindMissing)
			p.w.cfg.Log.Info("the API server does not have this kind, which is followed once it has", "kind", k.qualified())
			p.w.changedKind(k)()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// rights reviews what is refused, and begins again to follow what no longer is.
func (p *prober) rights(ctx, ask context.Context) error {
	var errs []error
	for _, k := range p.w.kinds {
		if k.state.Load() != kindFollowed || !p.access.pending(k) {
			continue
		}
		if err := p.access.review(ask, p.w.cluster.GetClient(), k); err != nil {
			errs = append(errs, err)
			continue
		}
		if k.refused.Load() && len(p.access.refused[k]) == 0 {
			p.w.cfg.Log.Info("allowed now, following again", "kind", k.qualified())
			errs = append(errs, k.restart(ctx, p.w.cluster.GetCache(), p.w.changedKind(k)))
		}
	}
	return errors.Join(errs...)
}

// picker checks the Service that the pool names as its picker.
func (p *prober) picker(ask context.Context) error {
	pool := p.w.currentPool()
	if pool == p.pool && len(p.refs) == 0 && time.Since(p.checked) < probeCalm {
		return nil
	}
	if pool == nil {
		p.pool, p.refs = nil, nil
		return nil
	}
	problems, look := checkPickerRef(pool)
	if !look {
		p.note(pool, problems)
		return nil
	}
	service := &corev1.Service{}
	err := p.w.cluster.GetAPIReader().Get(ask, types.NamespacedName{Namespace: pool.Namespace, Name: string(pool.Spec.EndpointPickerRef.Name)}, service)
	switch {
	case apierrors.IsForbidden(err):
		p.note(pool, nil)
		if !p.noService {
			p.noService = true
			p.access.whoAmI(ask, p.w.cluster.GetClient())
			p.w.cfg.Log.Info("the pool's reference to its picker is not checked", "message", p.access.message("get", "services"))
		}
		return nil
	case apierrors.IsNotFound(err):
		service = nil
	case err != nil:
		return err // what was seen before stays
	}
	p.noService = false
	p.note(pool, checkPickerService(pool, service))
	return nil
}

func (p *prober) note(pool *inferencev1.InferencePool, problems []Problem) {
	p.pool, p.checked, p.refs = pool, time.Now(), problems
}
