package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

const (
	// firstWait is how long the first spec may take before workers are routed to by
	// that of the file: longer than a NATS server that is away keeps it.
	firstWait  = 15 * time.Second
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Reasons of the condition Accepted.
const (
	reasonAccepted          = "Accepted"
	reasonApplying          = "Applying"
	reasonConfigurationFile = "ConfigurationFile"
	reasonConflicted        = "Conflicted"
	reasonInvalid           = "Invalid"
	reasonNotApplied        = "NotApplied"
)

// fromFile is what the spec of the configuration file is called in messages.
const fromFile = "the configuration file"

// policyState is what is known of the policies of the pool at one moment. It is
// immutable, and so is what it points to.
type policyState struct {
	// Chosen is the policy that counts; nil when none targets the pool.
	Chosen *v1alpha1.RoutingPolicy
	// Conflicted are the others that target the pool.
	Conflicted []*v1alpha1.RoutingPolicy

	// Accepted, Reason and Message say whether Chosen is in use, and why not.
	Accepted metav1.ConditionStatus
	Reason   string
	Message  string

	// Spec is what is in use, since Since.
	Spec  *v1alpha1.RoutingPolicySpec
	Since time.Time
}

// policies decides which spec is in use. One goroutine calls step; state may be
// called by any.
type policies struct {
	cfg   *Config
	now   func() time.Time
	wake  chan struct{} // never blocks: holds one
	tasks sync.WaitGroup

	mu      sync.Mutex
	last    policyState
	stepped bool     // step was called
	source  string   // where the spec in use is from, for messages
	attempt *attempt // in flight
	failed  *failure // of the last attempt, nil when it was good
}

// attempt is a call of Apply.
type attempt struct {
	spec   *v1alpha1.RoutingPolicySpec
	source string
	cancel context.CancelFunc
}

// failure is an attempt that did not work out.
type failure struct {
	spec  *v1alpha1.RoutingPolicySpec
	err   error
	count int
	again time.Time
}

func newPolicies(cfg *Config) *policies {
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	return &policies{
		cfg: cfg, now: now, wake: make(chan struct{}, 1), source: fromFile,
		last: policyState{
			Accepted: metav1.ConditionUnknown, Reason: reasonApplying,
			Message: "The policies of the pool were not read yet.",
			Spec:    cfg.File, Since: now(),
		},
	}
}

// woken says when step should be called again although no policy changed: a spec
// was taken into use, or could not be and it is time to try again.
func (p *policies) woken() <-chan struct{} { return p.wake }

// wait returns when no call of Apply is in flight any more. Call it when the
// context given to step has ended.
func (p *policies) wait() { p.tasks.Wait() }

// state is what is known now.
func (p *policies) state() policyState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// step takes the policies of the pool's namespace, starts to take a spec into use
// when another should be, and returns the one in use. The first call waits for it,
// up to firstWait: nothing should be routed by a spec that was never meant. Later ones do not, since a
// new event plane may take long to warm up while pods come and go; woken then tells
// when it is done. What step was given must not be changed later.
func (p *policies) step(ctx context.Context, all []v1alpha1.RoutingPolicy) *v1alpha1.RoutingPolicySpec {
	mine := p.targeting(all)
	p.mu.Lock()
	first := !p.stepped
	p.stepped = true
	p.last.Chosen, p.last.Conflicted = nil, nil
	want, source := p.cfg.File, fromFile
	var invalid error
	if len(mine) > 0 {
		p.last.Chosen, p.last.Conflicted = mine[0], mine[1:]
		source = "RoutingPolicy " + mine[0].Name
		want, invalid = effective(mine[0], p.cfg)
	}
	p.mu.Unlock()

	if invalid != nil {
		p.refuse(invalid)
	} else {
		p.use(ctx, want, source, first)
	}
	return p.state().Spec
}

// targeting returns the policies for the pool, the one that counts first.
func (p *policies) targeting(all []v1alpha1.RoutingPolicy) []*v1alpha1.RoutingPolicy {
	pool := p.cfg.Discovery.Pool
	if pool == nil {
		return nil
	}
	var mine []*v1alpha1.RoutingPolicy
	for i := range all {
		r := &all[i].Spec.TargetRef
		group, kind := cmp.Or(r.Group, inferencev1.GroupName), cmp.Or(r.Kind, "InferencePool")
		if r.Name == pool.Name && group == inferencev1.GroupName && kind == "InferencePool" && all[i].DeletionTimestamp.IsZero() {
			mine = append(mine, &all[i])
		}
	}
	slices.SortFunc(mine, func(a, b *v1alpha1.RoutingPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return mine
}

// effective is what a policy means, with what it leaves to the environment and to the
// configuration file, and its defaults.
func effective(policy *v1alpha1.RoutingPolicy, cfg *Config) (*v1alpha1.RoutingPolicySpec, error) {
	s := policy.Spec.RoutingPolicySpec.DeepCopy()
	if cfg.Environment != nil {
		s.FillFrom(cfg.Environment)
	}
	s.Default()
	own := s.CheckPolicy(cfg.Discovery.PolicyFileFolders)
	s.Inherit(cfg.File.DeepCopy()) // a copy: the two must not share lists
	return s, errors.Join(own, s.Validate())
}

// refuse leaves what is in use as it is. It also ends an attempt with what the
// policy said before: nobody wants that any more.
func (p *policies) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveUp(nil)
	p.failed = nil
	var fields []string
	for _, e := range unjoin(err) {
		fields = append(fields, "spec."+e.Error())
	}
	p.tell(metav1.ConditionFalse, reasonInvalid, "The policy is refused: %s. The spec of %s stays in use.",
		strings.Join(fields, "; "), p.source)
}

// use takes a spec into use, unless it is, or it is too early to try again.
func (p *policies) use(ctx context.Context, want *v1alpha1.RoutingPolicySpec, source string, block bool) {
	p.mu.Lock()
	p.giveUp(want)
	switch {
	case p.attempt != nil: // with the same spec, or about to end
		if reflect.DeepEqual(want, p.attempt.spec) {
			p.attempt.source = source
		}
		p.tellApplying(source)
	case reflect.DeepEqual(want, p.last.Spec):
		p.failed = nil
		p.inUse(source)
	case p.failed != nil && reflect.DeepEqual(want, p.failed.spec) && p.now().Before(p.failed.again):
		p.tellFailed()
	default:
		p.begin(ctx, want, source)
	}
	running := p.attempt != nil
	p.mu.Unlock()
	if block && running {
		p.waitAtMost(ctx, firstWait)
	}
}

// waitAtMost waits until no attempt is in flight.
func (p *policies) waitAtMost(ctx context.Context, most time.Duration) {
	done := make(chan struct{})
	go func() { // ends with the attempt
		p.tasks.Wait()
		close(done)
	}()
	enough := time.NewTimer(most)
	defer enough.Stop()
	select {
	case <-done:
	case <-enough.C:
	case <-ctx.Done():
	}
}

// giveUp ends an attempt with a spec other than the one that is wanted now.
func (p *policies) giveUp(want *v1alpha1.RoutingPolicySpec) {
	if p.attempt != nil && (want == nil || !reflect.DeepEqual(want, p.attempt.spec)) {
		p.attempt.cancel()
	}
}

// begin starts an attempt.
func (p *policies) begin(ctx context.Context, want *v1alpha1.RoutingPolicySpec, source string) {
	ctx, cancel := context.WithCancel(ctx)
	p.attempt = &attempt{spec: want, source: source, cancel: cancel}
	p.tellApplying(source)
	p.tasks.Go(func() {
		defer cancel()
		err := p.cfg.Apply(ctx, want.DeepCopy()) // a copy: what is compared with must stay
		p.end(ctx, err)
	})
}

// end notes how an attempt went.
func (p *policies) end(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.attempt
	p.attempt = nil
	defer p.ring()
	given := ctx.Err() != nil // up, for another one, which is next, or the end
	switch {
	case err == nil:
		p.failed = nil
		p.last.Spec, p.last.Since, p.source = a.spec, p.now(), a.source
		if !given {
			p.inUse(a.source)
		}
		p.cfg.Log.Info("the spec in use has changed", "source", a.source)
	case given:
	default:
		f := failure{spec: a.spec, err: err, count: 1}
		if p.failed != nil && reflect.DeepEqual(p.failed.spec, a.spec) {
			f.count = p.failed.count + 1
		}
		pause := min(retryFirst<<min(f.count-1, 10), retryMost)
		f.again = p.now().Add(pause)
		p.failed = &f
		p.cfg.Log.Error("a spec could not be taken into use; the one before stays", "source", a.source, "stays", p.source, "error", err, "retry_in", pause)
		p.tellFailed()
		time.AfterFunc(pause, p.ring)
	}
}

// ring makes woken tell.
func (p *policies) ring() {
	select {
	case p.wake <- struct{}{}:
	default: // it is told already
	}
}

// inUse notes where the spec in use is from, which is the one that is wanted.
func (p *policies) inUse(source string) {
	p.source = source
	if p.last.Chosen == nil {
		p.tell(metav1.ConditionTrue, reasonConfigurationFile, "No RoutingPolicy targets the pool; the spec of %s is in use.", fromFile)
		return
	}
	p.tell(metav1.ConditionTrue, reasonAccepted, "The policy is in use.")
}

func (p *policies) tellApplying(source string) {
	p.tell(metav1.ConditionUnknown, reasonApplying, "The spec of %s is being taken into use; until then the one of %s is.", source, p.source)
}

func (p *policies) tellFailed() {
	p.tell(metav1.ConditionFalse, reasonNotApplied, "The spec could not be taken into use: %s. The spec of %s stays in use; it is tried again.", p.failed.err, p.source)
}

func (p *policies) tell(status metav1.ConditionStatus, reason, format string, args ...any) {
	p.last.Accepted, p.last.Reason, p.last.Message = status, reason, bounded(fmt.Sprintf(format, args...))
}

// unjoin returns the errors of a list of errors, which may hold such lists, or of
// anything else the one that it is.
func unjoin(err error) (all []error) {
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		return []error{err}
	}
	for _, e := range list.Unwrap() {
		all = append(all, unjoin(e)...)
	}
	return all
}
