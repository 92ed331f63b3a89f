package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// shared is the cluster of all tests that do not need one of their own.
var shared *testcluster.Cluster

// closing ends the cluster before goleak looks for what is left: that ends the
// process.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	adoptLog(slog.New(slog.DiscardHandler)) // tests look at what we log, not at what the libraries do
	var err error
	shared, err = testcluster.Start(context.Background(), testcluster.Options{
		CRDs: append([]testcluster.CRDs{testcluster.DynamoWorkerMetadatas, testcluster.InferenceObjectives, testcluster.ModelRewrites, testcluster.OldModelRewrites}, testcluster.DefaultCRDs...),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(closing{m})
}

// rig is a watcher at work, and what it did.
type rig struct {
	*Watcher

	t  *testing.T
	c  *testcluster.Cluster
	ns string

	mu        sync.Mutex
	published []*fleet.Snapshot
	restarted []fleet.Key
	restartAt []int // how many snapshots had been published before each
	out       bytes.Buffer
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

// start runs a watcher of the pool "pool" in a namespace until the test ends.
func start(t *testing.T, c *testcluster.Cluster, ns string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, c: c, ns: ns}
	var file v1alpha1.RoutingPolicySpec
	file.Default()
	cfg := Config{
		Discovery: v1alpha1.KubernetesDiscovery{
			Pool: &v1alpha1.PoolReference{Name: "pool", Namespace: ns}, WorkerIdentity: v1alpha1.IdentityPod,
			ActivePortsAnnotations: testRules().activePorts,
		},
		File: &file, Rest: c.Config(),
		Publish: func(s *fleet.Snapshot) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.published = append(r.published, s)
		},
		Restarted: func(k fleet.Key) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.restarted, r.restartAt = append(r.restarted, k), append(r.restartAt, len(r.published))
		},
		Apply:   func(context.Context, *v1alpha1.RoutingPolicySpec) error { return nil },
		Observe: func() Observation { return Observation{} },
		Log:     slog.New(slog.NewTextHandler(r, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Watcher = w
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if t.Failed() {
			t.Log(r.logged())
		}
	})
	return r
}

// workers are those published last, as brief writes them, in order.
func (r *rig) workers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.published) == 0 {
		return []string{"nothing published"}
	}
	list := brief(r.published[len(r.published)-1].Workers)
	slices.Sort(list)
	return list
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func (r *rig) restarts() []fleet.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.restarted)
}

// patience is how long something may take that takes milliseconds on an idle
// machine.
const patience = time.Minute

// until waits for a condition; state says what is there instead.
func until(t *testing.T, what string, ok func() bool, state func() any) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s; there is %v", patience, what, state())
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// expect waits until these workers, and no others, are published.
func (r *rig) expect(when string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	began := time.Now()
	until(r.t, when, func() bool { return slices.Equal(r.workers(), want) }, func() any { return r.workers() })
	r.t.Logf("%s: %s", when, time.Since(began).Round(time.Millisecond))
}

func (r *rig) problems() []Problem {
	v := r.View()
	return slices.Concat(v.Refs, v.Roles, v.Advertised)
}

// expectProblem waits until there is a problem with all these words.
func (r *rig) expectProblem(reason string, words ...string) {
	r.t.Helper()
	until(r.t, "there is a "+reason, func() bool {
		return slices.ContainsFunc(r.problems(), func(p Problem) bool {
			return p.Reason == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(p.Message, word) })
		})
	}, func() any { return r.problems() })
}

// expectMended waits until there is no such problem.
func (r *rig) expectMended(reason string) {
	r.t.Helper()
	until(r.t, "there is no "+reason, func() bool {
		return !slices.ContainsFunc(r.problems(), func(p Problem) bool { return p.Reason == reason })
	}, func() any { return r.problems() })
}

// create makes an object.
func create(t *testing.T, c *testcluster.Cluster, o client.Object) {
	t.Helper()
	if err := c.Client().Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// testPool is an InferencePool of the pods with app=llm.
func testPool(ns string, ports ...int) *inferencev1.InferencePool {
	pool := &inferencev1.InferencePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"},
		Spec: inferencev1.InferencePoolSpec{
			Selector:          inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "llm"}},
			EndpointPickerRef: pickerRef(9002),
		},
	}
	setPorts(pool, ports...)
	return pool
}

func setPorts(pool *inferencev1.InferencePool, ports ...int) {
	pool.Spec.TargetPorts = nil
	for _, port := range ports {
		pool.Spec.TargetPorts = append(pool.Spec.TargetPorts, inferencev1.Port{Number: inferencev1.PortNumber(port)})
	}
}

// changePool changes the pool.
func (r *rig) changePool(change func(*inferencev1.InferencePool)) {
	r.t.Helper()
	pool := &inferencev1.InferencePool{}
	if err := r.c.Client().Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "pool"}, pool); err != nil {
		r.t.Fatal(err)
	}
	change(pool)
	if err := r.c.Client().Update(r.t.Context(), pool); err != nil {
		r.t.Fatal(err)
	}
}

// addPod makes a ready pod of the pool.
func (r *rig) addPod(name, ip string, change ...func(*testcluster.Pod)) {
	r.t.Helper()
	p := testcluster.Pod{Namespace: r.ns, Name: name, Labels: map[string]string{"app": "llm"}, IPs: []string{ip}}
	for _, f := range change {
		f(&p)
	}
	r.c.CreatePod(r.t, p)
}

// changePod changes what a pod's owner may change.
func (r *rig) changePod(name string, change func(*corev1.Pod)) {
	r.t.Helper()
	pod := &corev1.Pod{}
	if err := r.c.Client().Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: name}, pod); err != nil {
		r.t.Fatal(err)
	}
	change(pod)
	if err := r.c.Client().Update(r.t.Context(), pod); err != nil {
		r.t.Fatal(err)
	}
}
