package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// applier stands in for the picker.
type applier struct {
	mu      sync.Mutex
	applied []*v1alpha1.RoutingPolicySpec
	apply   func(context.Context, *v1alpha1.RoutingPolicySpec) error // nil: always good
	inside  int
	twice   bool // two calls at a time
}

func (a *applier) Apply(ctx context.Context, s *v1alpha1.RoutingPolicySpec) error {
	a.mu.Lock()
	a.inside++
	a.twice = a.twice || a.inside > 1
	f := a.apply
	a.mu.Unlock()
	var err error
	if f != nil {
		err = f(ctx, s)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
	if err == nil {
		a.applied = append(a.applied, s)
	}
	return err
}

// sizes are the block sizes that were applied.
func (a *applier) sizes() (list []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.applied {
		list = append(list, s.BlockSize)
	}
	return list
}

func (a *applier) set(f func(context.Context, *v1alpha1.RoutingPolicySpec) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.apply = f
}

var quietLog = slog.New(slog.DiscardHandler)

// testPolicies decides for the pool llm. The file says a block size of 8, and where
// NATS is.
func testPolicies(a *applier) *policies {
	file := &v1alpha1.RoutingPolicySpec{BlockSize: 8}
	file.EventPlane.NATS.URL = "nats://file:4222"
	file.Default()
	return newPolicies(&Config{
		Discovery: v1alpha1.KubernetesDiscovery{Pool: &v1alpha1.PoolReference{Name: "llm"}},
		File:      file, Apply: a.Apply, Log: quietLog,
	})
}

// policyNamed makes a policy for the pool llm, as old as age.
func policyNamed(name string, age time.Duration, blockSize int) v1alpha1.RoutingPolicy {
	p := v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(epoch.Add(-age)),
	}}
	p.Spec.TargetRef.Name = "llm"
	p.Spec.BlockSize = blockSize
	return p
}

func wantState(t *testing.T, p *policies, status metav1.ConditionStatus, reason string, blockSize int, says ...string) policyState {
	t.Helper()
	s := p.state()
	if s.Accepted != status || s.Reason != reason || s.Spec.BlockSize != blockSize {
		t.Errorf("Accepted = %s/%s (%s) with block size %d, want %s/%s with %d",
			s.Accepted, s.Reason, s.Message, s.Spec.BlockSize, status, reason, blockSize)
	}
	for _, part := range says {
		if !strings.Contains(s.Message, part) {
			t.Errorf("message %q lacks %q", s.Message, part)
		}
	}
	return s
}

func TestPoliciesWithoutAny(t *testing.T) {
	a := &applier{}
	p := testPolicies(a)
	wantState(t, p, dim, "Applying", 8)
	other := policyNamed("other", 0, 64)
	other.Spec.TargetRef.Name = "other"
	kind := policyNamed("kind", 0, 64)
	kind.Spec.TargetRef.Kind = "Service"
	group := policyNamed("group", 0, 64)
	group.Spec.TargetRef.Group = "inference.networking.x-k8s.io"
	going := policyNamed("going", 0, 64)
	going.DeletionTimestamp = &metav1.Time{Time: epoch}
	if s := p.step(t.Context(), []v1alpha1.RoutingPolicy{other, kind, group, going}); s.BlockSize != 8 {
		t.Errorf("block size %d, want the file's", s.BlockSize)
	}
	if s := wantState(t, p, yes, "ConfigurationFile", 8); s.Chosen != nil || len(s.Conflicted) > 0 {
		t.Errorf("state %+v", s)
	}
	if len(a.sizes()) > 0 {
		t.Error("the file's spec was applied, which is in use from the start")
	}
}

func TestTheOldestPolicyCounts(t *testing.T) {
	a := &applier{}
	p := testPolicies(a)
	all := []v1alpha1.RoutingPolicy{policyNamed("c", time.Hour, 32), policyNamed("b", time.Hour, 64), policyNamed("a", time.Minute, 128)}
	p.step(t.Context(), all)
	s := wantState(t, p, yes, "Accepted", 64)
	if s.Chosen.Name != "b" || len(s.Conflicted) != 2 || s.Conflicted[0].Name != "c" || s.Conflicted[1].Name != "a" {
		t.Errorf("chosen %v, conflicted %v", s.Chosen, s.Conflicted)
	}
	if s.Spec.EventPlane.NATS.URL != "nats://file:4222" || s.Spec.CacheSalt != v1alpha1.CacheSaltHash {
		t.Error("the spec lacks what the file says, or its defaults")
	}
	if all[1].Spec.CacheSalt != "" {
		t.Error("the policy itself was changed")
	}
}

func TestAPolicyComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		step := func(all ...v1alpha1.RoutingPolicy) { p.step(t.Context(), all); synctest.Wait() }
		step()
		step(policyNamed("p", 0, 32))
		s := wantState(t, p, yes, "Accepted", 32)
		step(policyNamed("p", 0, 32)) // again: nothing to do
		if !p.state().Since.Equal(s.Since) {
			t.Error("the same spec counts as a new one")
		}
		step()
		wantState(t, p, yes, "ConfigurationFile", 8)
		if got := a.sizes(); len(got) != 2 || got[0] != 32 || got[1] != 8 {
			t.Errorf("applied %v, want 32 and then the file's 8", got)
		}
	})
}

func TestABadPolicyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		bad := policyNamed("p", 0, -1)
		bad.Spec.EventPlane.Recovery.Timeout = v1alpha1.Duration{Duration: time.Hour}
		p.step(t.Context(), []v1alpha1.RoutingPolicy{bad})
		wantState(t, p, no, "Invalid", 8, "spec.blockSize: ", "spec.eventPlane.recovery.timeout: ", "The spec of the configuration file stays in use")

		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		synctest.Wait()
		wantState(t, p, yes, "Accepted", 32)
		p.step(t.Context(), []v1alpha1.RoutingPolicy{bad})
		wantState(t, p, no, "Invalid", 32, "The spec of RoutingPolicy p stays in use")
		if got := a.sizes(); len(got) != 1 {
			t.Errorf("applied %v", got)
		}
	})
}

func TestAFailureIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{apply: func(context.Context, *v1alpha1.RoutingPolicySpec) error { return errors.New("no room") }}
		p := testPolicies(a)
		all := []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)}
		begun := time.Now()
		p.step(t.Context(), all)
		wantState(t, p, no, "NotApplied", 8, "no room", "The spec of the configuration file stays in use")

		var waits []time.Duration
		for range 9 {
			before := time.Now()
			<-p.woken() // that it failed
			p.step(t.Context(), all)
			wantState(t, p, no, "NotApplied", 8)
			<-p.woken() // that it is time
			waits = append(waits, time.Since(before))
			p.step(t.Context(), all)
			synctest.Wait()
		}
		if waits[0] != retryFirst || waits[1] != 2*retryFirst || waits[8] != retryMost {
			t.Errorf("waited %v", waits)
		}
		a.set(nil)
		p.step(t.Context(), all)
		if wantState(t, p, no, "NotApplied", 8); time.Since(begun) > time.Hour {
			t.Error("waits grow without end")
		}
		<-p.woken()
		<-p.woken()
		p.step(t.Context(), all)
		synctest.Wait()
		wantState(t, p, yes, "Accepted", 32)
		p.wait()
	})
}

// Another spec does not wait for the pause of one that failed.
func TestAnotherSpecIsTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{apply: func(_ context.Context, s *v1alpha1.RoutingPolicySpec) error {
			if s.BlockSize == 32 {
				return errors.New("no")
			}
			return nil
		}}
		p := testPolicies(a)
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		wantState(t, p, no, "NotApplied", 8)
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 64)})
		synctest.Wait()
		wantState(t, p, yes, "Accepted", 64)
	})
}

// What takes long does not hold up step, and gives way to a newer spec.
func TestASlowSpecGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		p.step(t.Context(), nil)
		a.set(func(ctx context.Context, s *v1alpha1.RoutingPolicySpec) error {
			if s.BlockSize != 32 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		synctest.Wait()
		wantState(t, p, dim, "Applying", 8, "RoutingPolicy p is being taken into use; until then the one of the configuration file is")
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 64)})
		<-p.woken() // the slow one has ended
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 64)})
		<-p.woken()
		wantState(t, p, yes, "Accepted", 64)
		if a.twice {
			t.Error("two calls of Apply at a time")
		}
	})
}

// A bad edit ends an attempt that nobody wants any more.
func TestABadEditGivesUpASlowSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		p.step(t.Context(), nil)
		a.set(func(ctx context.Context, _ *v1alpha1.RoutingPolicySpec) error { <-ctx.Done(); return ctx.Err() })
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		synctest.Wait()
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, -1)})
		synctest.Wait()
		wantState(t, p, no, "Invalid", 8)
	})
}

// One that ends well although it was given up is in use; what is wanted comes next.
func TestGivenUpTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		p.step(t.Context(), nil)
		a.set(func(ctx context.Context, s *v1alpha1.RoutingPolicySpec) error {
			if s.BlockSize == 32 {
				<-ctx.Done()
			}
			return nil
		})
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		synctest.Wait()
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, -1)})
		synctest.Wait()
		wantState(t, p, no, "Invalid", 32)
		p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, -1)})
		wantState(t, p, no, "Invalid", 32, "The spec of RoutingPolicy p stays in use")
		p.step(t.Context(), nil)
		synctest.Wait()
		wantState(t, p, yes, "ConfigurationFile", 8)
	})
}

// The first spec is in use before anything is published.
func TestTheFirstStepWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{apply: func(context.Context, *v1alpha1.RoutingPolicySpec) error { time.Sleep(10 * time.Second); return nil }}
		p := testPolicies(a)
		if s := p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)}); s.BlockSize != 32 {
			t.Errorf("the first step returned a block size of %d", s.BlockSize)
		}
	})
}

func TestTheEndStopsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{}
		p := testPolicies(a)
		ctx, cancel := context.WithCancel(t.Context())
		p.step(ctx, nil)
		a.set(func(ctx context.Context, _ *v1alpha1.RoutingPolicySpec) error { <-ctx.Done(); return ctx.Err() })
		p.step(ctx, []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)})
		cancel()
		p.wait()
		wantState(t, p, dim, "Applying", 8)
	})
}

func TestStepAndStateConcurrently(t *testing.T) {
	a := &applier{}
	p := testPolicies(a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			size := 16 << (i % 3)
			if i%7 == 0 {
				size = -1
			}
			p.step(t.Context(), []v1alpha1.RoutingPolicy{policyNamed("p", 0, size), policyNamed("q", time.Hour, 8)}[i%2:])
		}
		p.wait()
	}()
	for {
		select {
		case <-done:
			if a.twice {
				t.Error("two calls of Apply at a time")
			}
			return
		default:
			if s := p.state(); s.Spec == nil || s.Reason == "" {
				t.Fatalf("state %+v", s)
			}
		}
	}
}

// A policy reads what is mounted for it, and nothing else of the pod.
func TestFilesOfPolicies(t *testing.T) {
	file := &v1alpha1.RoutingPolicySpec{}
	file.EventPlane.NATS = v1alpha1.NATSSpec{URL: "nats://nats:4222", TokenFile: "of-the-file"} // became relative to the process when it was loaded
	file.Default()
	policy := &v1alpha1.RoutingPolicy{}
	if _, err := effective(policy, configOf(file, []string{"/etc/warmpath"})); err != nil {
		t.Errorf("paths of the file: %v", err)
	}
	policy.Spec.EventPlane.NATS = v1alpha1.NATSSpec{URL: "nats://nats:4222", TokenFile: "token"}
	policy.Spec.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: "/etc/warmpath/../passwd"}
	_, err := effective(policy, configOf(file, []string{"/etc/warmpath"}))
	if got := len(unjoin(err)); err == nil || got != 2 || !strings.Contains(err.Error(), `tokenFile: "token" is in none of the folders`) {
		t.Errorf("%d errors: %v", got, err)
	}
	for _, bad := range []v1alpha1.NATSSpec{
		{URL: "nats://evil:1", TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		{URL: "nats://evil:1", TokenFile: "/etc/warmpathology/token"},
		{TokenFile: "/etc/warmpath/token"}, // without a server of its own
		{TLS: &v1alpha1.NATSTLSSpec{}},
	} {
		policy := &v1alpha1.RoutingPolicy{}
		policy.Spec.EventPlane.NATS = bad
		if _, err := effective(policy, configOf(file, []string{"/etc/warmpath"})); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	policy = &v1alpha1.RoutingPolicy{}
	policy.Spec.EventPlane.NATS = v1alpha1.NATSSpec{URL: "nats://nats:4222", TokenFile: "/etc/warmpath/secrets/nats/token", TLS: &v1alpha1.NATSTLSSpec{}}
	if _, err := effective(policy, configOf(file, []string{"/etc/warmpath/"})); err != nil {
		t.Error(err)
	}
}

// A first spec that takes for ever keeps nobody from being routed to.
func TestTheFirstStepWaitsNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &applier{apply: func(ctx context.Context, _ *v1alpha1.RoutingPolicySpec) error { <-ctx.Done(); return ctx.Err() }}
		p := testPolicies(a)
		ctx, cancel := context.WithCancel(t.Context())
		if s := p.step(ctx, []v1alpha1.RoutingPolicy{policyNamed("p", 0, 32)}); s.BlockSize == 32 {
			t.Error("the spec is in use although it was never applied")
		}
		cancel()
		p.wait()
	})
}

// What a policy leaves out is what the environment of the picker says; what it says
// counts.
func TestEnvironmentFillsPolicies(t *testing.T) {
	cfg := configOf(fileWithNATS(), nil)
	cfg.Environment = &v1alpha1.RoutingPolicySpec{Cost: v1alpha1.CostSpec{Temperature: new(0.5), PrefillLoadScale: new(2.0)}}
	cfg.Environment.Disaggregation.Mode = v1alpha1.DisaggregationRequired
	policy := &v1alpha1.RoutingPolicy{}
	policy.Spec.Cost.PrefillLoadScale = new(3.0)
	got, err := effective(policy, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c := &got.Cost; c.Model != v1alpha1.ModelDynamo || *c.Temperature != 0.5 || *c.PrefillLoadScale != 3 {
		t.Errorf("model %s, temperature %v, scale %v", c.Model, *c.Temperature, *c.PrefillLoadScale)
	}
	if got.Disaggregation.Mode != v1alpha1.DisaggregationRequired {
		t.Errorf("mode %s", got.Disaggregation.Mode)
	}
	if policy.Spec.Cost.Temperature != nil {
		t.Error("the policy itself was changed")
	}
	for _, on := range []bool{true, false} {
		cfg.Environment.EventPlane.ReplicaSync, policy.Spec.EventPlane.ReplicaSync = new(on), new(!on)
		if got, err = effective(policy, cfg); err != nil || got.EventPlane.TellsRouters() == on {
			t.Errorf("replicaSync %t in the policy, %t in the environment: %v, %v", !on, on, got.EventPlane.TellsRouters(), err)
		}
		policy.Spec.EventPlane.ReplicaSync = nil
		if got, err = effective(policy, cfg); err != nil || got.EventPlane.TellsRouters() != on {
			t.Errorf("replicaSync %t in the environment alone: %v, %v", on, got.EventPlane.TellsRouters(), err)
		}
	}
	policy.Spec.Cost = v1alpha1.CostSpec{Model: v1alpha1.ModelCongestion}
	if got, err = effective(policy, cfg); err != nil || got.Cost.Model != v1alpha1.ModelCongestion || got.Cost.Temperature != nil {
		t.Errorf("a policy that asks for Congestion: %+v, %v", got.Cost, err)
	}
}
