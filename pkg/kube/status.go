package kube

import (
	"context"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	// evaluateEvery is how often conditions are found out, and written if they
	// changed.
	evaluateEvery = time.Second
	// figuresEvery is how often a status is written in which only numbers changed.
	figuresEvery = 10 * time.Second
	// pauseAfterFailure is how long a status is let be that could not be written.
	pauseAfterFailure = 5 * time.Second
	// requestTimeout bounds one call of the API server.
	requestTimeout = 5 * time.Second
)

// publisher finds out, in every replica, how the pool is, and tells it in the status
// of policies and in events on the pool from the one that holds the lease.
type publisher struct {
	cfg       *Config
	view      func() View
	policies  func() policyState
	rest      *rest.Config
	mapper    meta.RESTMapper // nil: one of its own
	namespace string          // of the pool
	identity  string          // of this replica
	now       func() time.Time
	log       *slog.Logger
	lease     leaseTimes

	latest atomic.Pointer[report]

	// Of the goroutine that evaluates.
	window  window
	since   time.Time // the spec of the window is in use
	sampled time.Time

	// Of the goroutine that writes.
	client     client.Client
	complaints *complaints
	written    map[types.UID]*writing
}

// report is how things are at one moment. It is immutable.
type report struct {
	at         time.Time
	view       View
	policies   policyState
	conditions []metav1.Condition
	figures    figures
}

// writing is what happened when the status of a policy was written last.
type writing struct {
	status  v1alpha1.RoutingPolicyStatus // that was wanted
	version string                       // of the policy as it was known
	at      time.Time                    // of the last success
	failed  time.Time                    // of the last failure
}

func newPublisher(cfg *Config, w *Watcher) *publisher {
	return &publisher{
		cfg: cfg, view: w.View, policies: w.policies.state,
		rest: w.cluster.GetConfig(), mapper: w.cluster.GetRESTMapper(), namespace: w.namespace,
		identity: identity(), now: cfg.Now, log: cfg.Log, lease: usualLease,
	}
}

// Conditions returns how the pool and its policy are, as found last, whether this
// replica publishes it or not. It is nil before the first time.
func (w *Watcher) Conditions() []metav1.Condition { return w.publisher.status() }

// Verdict is a condition that is true or false.
type Verdict struct {
	Value  float64 // 1 or 0
	Reason string
}

// Verdicts returns the conditions that are known, by type. It is what
// [Watcher.Conditions] returns, for those who do not speak Kubernetes.
func (w *Watcher) Verdicts() map[string]Verdict {
	known := map[string]Verdict{}
	for _, c := range w.Conditions() {
		switch c.Status {
		case metav1.ConditionTrue:
			known[c.Type] = Verdict{1, c.Reason}
		case metav1.ConditionFalse:
			known[c.Type] = Verdict{0, c.Reason}
		case metav1.ConditionUnknown:
		}
	}
	return known
}

// status returns the conditions that were found last, nil before the first time.
func (p *publisher) status() []metav1.Condition {
	if r := p.latest.Load(); r != nil {
		return r.conditions
	}
	return nil
}

// run evaluates and publishes until ctx ends.
func (p *publisher) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		every(ctx, evaluateEvery, p.evaluate)
		return nil
	})
	if d := &p.cfg.Discovery; d.Pool != nil && (d.PublishStatus == nil || *d.PublishStatus) {
		if err := p.publish(ctx, group); err != nil {
			return err
		}
	}
	return group.Wait()
}

// every calls f at once and then once per step until ctx ends.
func every(ctx context.Context, step time.Duration, f func()) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// publish starts what writes.
func (p *publisher) publish(ctx context.Context, group *errgroup.Group) error {
	cfg := rest.CopyConfig(p.rest)
	cfg.Timeout = requestTimeout
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if p.client, err = client.New(cfg, client.Options{Scheme: scheme, Mapper: p.mapper}); err != nil {
		return err
	}
	p.complaints = &complaints{log: p.log, namespace: p.namespace}
	p.written = map[types.UID]*writing{}
	l := &lease{
		name: p.cfg.Discovery.Pool.Name + "-warmpath", namespace: p.namespace, identity: p.identity,
		client: clients, times: p.lease, log: p.log, complaints: p.complaints,
	}
	a := &announcer{recorder: newRecorder(ctx, clients, p.namespace, p.complaints)}
	group.Go(func() error { return l.run(ctx) })
	group.Go(func() error {
		every(ctx, evaluateEvery, func() {
			if r := p.latest.Load(); r != nil {
				held := l.held()
				a.follow(r, held)
				if held {
					p.write(ctx, r)
				}
			}
		})
		return nil
	})
	return nil
}

// evaluate finds out how things are.
func (p *publisher) evaluate() {
	now, obs, pol, view := p.now(), p.cfg.Observe(), p.policies(), p.view()
	if !pol.Since.Equal(p.since) { // what was seen with another spec says nothing of this one
		p.window, p.since, p.sampled = window{}, pol.Since, time.Time{}
	}
	if now.Sub(p.sampled) >= sampleEvery {
		p.window.add(now, obs)
		p.sampled = now
	}
	var generation int64
	if pol.Chosen != nil {
		generation = pol.Chosen.Generation
	}
	before := p.status()
	r := &report{at: now, view: view, policies: pol, figures: p.window.figures()}
	r.conditions = merge(before, conditions(view, obs, p.window, pol, now, generation))
	p.logChanges(before, r.conditions)
	p.latest.Store(r)
}

func (p *publisher) logChanges(before, after []metav1.Condition) {
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		level := slog.LevelInfo
		switch {
		case old != nil && old.Status == c.Status && old.Reason == c.Reason:
			continue
		case old == nil && c.Status == metav1.ConditionUnknown: // as at every start
			continue
		case c.Status == metav1.ConditionFalse:
			level = slog.LevelWarn
		}
		p.log.Log(context.Background(), level, "a condition has changed",
			"condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
	}
}

// write brings the status of all policies of the pool up to date.
func (p *publisher) write(ctx context.Context, r *report) {
	seen := map[types.UID]bool{}
	if c := r.policies.Chosen; c != nil {
		seen[c.UID] = true
		p.update(ctx, c, p.statusOf(r))
	}
	for _, other := range r.policies.Conflicted {
		seen[other.UID] = true
		p.update(ctx, other, v1alpha1.RoutingPolicyStatus{
			Conditions: conflicted(other, r.policies.Chosen, r.at), Replica: p.identity,
		})
	}
	for uid := range p.written {
		if !seen[uid] {
			delete(p.written, uid)
		}
	}
}

func (p *publisher) statusOf(r *report) v1alpha1.RoutingPolicyStatus {
	s := v1alpha1.RoutingPolicyStatus{
		Conditions: append([]metav1.Condition(nil), r.conditions...), // merged with those that are there
		HitRate:    r.figures.hit(), Ceiling: r.figures.ceiling(), Replica: p.identity,
	}
	if f := r.view.Snapshot; f != nil {
		s.Workers = &v1alpha1.WorkerCounts{
			Aggregated: int32(f.Count(fleet.Aggregated)), Prefill: int32(f.Count(fleet.Prefill)), Decode: int32(f.Count(fleet.Decode)),
		}
	}
	return s
}

// update writes the status of one policy if it is worth it.
func (p *publisher) update(ctx context.Context, policy *v1alpha1.RoutingPolicy, want v1alpha1.RoutingPolicyStatus) {
	last := p.written[policy.UID]
	if last == nil {
		last = &writing{}
		p.written[policy.UID] = last
	}
	now := p.now()
	have := policy.Status
	if policy.ResourceVersion == last.version { // nothing was heard since: what was written counts
		have = last.status
	}
	change := differ(have, want)
	if change == same || change == figuresOnly && now.Sub(last.at) < figuresEvery || now.Sub(last.failed) < pauseAfterFailure {
		return
	}
	if err := p.put(ctx, policy, want); err != nil {
		last.failed = now
		return
	}
	*last = writing{status: want, version: policy.ResourceVersion, at: now}
}

// put writes a status over what is there now.
func (p *publisher) put(ctx context.Context, policy *v1alpha1.RoutingPolicy, want v1alpha1.RoutingPolicyStatus) error {
	const resource = "routingpolicies.routing.warmpath.dev"
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var live v1alpha1.RoutingPolicy
		err := p.client.Get(ctx, client.ObjectKeyFromObject(policy), &live)
		p.complaints.about("get", resource, err)
		switch {
		case err != nil:
			return client.IgnoreNotFound(err)
		case live.UID != policy.UID: // another one of the same name; it will be heard of
			return nil
		}
		want.Conditions = merge(live.Status.Conditions, want.Conditions)
		if differ(live.Status, want) == same {
			return nil
		}
		live.Status = want
		err = p.client.Status().Update(ctx, &live)
		p.complaints.about("update", "routingpolicies/status.routing.warmpath.dev", err)
		return client.IgnoreNotFound(err)
	})
}

// difference is how much two statuses differ.
type difference int

const (
	same        difference = iota
	figuresOnly            // numbers, and messages that hold them
	meaningful
)

func differ(a, b v1alpha1.RoutingPolicyStatus) difference {
	if len(a.Conditions) != len(b.Conditions) {
		return meaningful
	}
	result := same
	for _, c := range b.Conditions {
		old := meta.FindStatusCondition(a.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.ObservedGeneration != c.ObservedGeneration {
			return meaningful
		}
		if old.Message != c.Message {
			result = figuresOnly
		}
	}
	a.Conditions, b.Conditions = nil, nil
	if !reflect.DeepEqual(a, b) {
		result = figuresOnly
	}
	return result
}
