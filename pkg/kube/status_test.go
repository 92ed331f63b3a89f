package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// replica is a picker as far as this package goes, with numbers that grow as in
// traffic.
type replica struct {
	*Watcher

	prompts atomic.Uint64
	applied atomic.Pointer[v1alpha1.RoutingPolicySpec]
	stop    func()

	mu  sync.Mutex
	out bytes.Buffer
}

func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *replica) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// observe is a pool that is used: each look comes after 30 prompts of ten blocks.
func (r *replica) observe() Observation {
	n := r.prompts.Add(30)
	o := counts(n, n, 10*n, 8*n, 9*n, n)
	o.IndexedBlocks = [3]int{fleet.Prefill: 100, fleet.Decode: 100}
	return o
}

var (
	// longLease is not lost because a machine does much else.
	longLease = leaseTimes{lasts: time.Minute, renew: 50 * time.Second, retry: 200 * time.Millisecond}
	// shortLease is for tests in which it is lost.
	shortLease = leaseTimes{lasts: 3 * time.Second, renew: 2 * time.Second, retry: 200 * time.Millisecond}
)

// replicaOf starts a replica of the picker for the pool of a namespace. It ends with
// the test, or with stop.
func replicaOf(t *testing.T, c *testcluster.Cluster, ns, name string, change ...func(*Config)) *replica {
	t.Helper()
	return replicaWith(t, longLease, c, ns, name, change...)
}

func replicaWith(t *testing.T, lease leaseTimes, c *testcluster.Cluster, ns, name string, change ...func(*Config)) *replica {
	t.Helper()
	t.Setenv("POD_NAME", name)
	r := &replica{}
	cfg := Config{
		Discovery: v1alpha1.KubernetesDiscovery{Pool: &v1alpha1.PoolReference{Name: "pool", Namespace: ns}},
		File:      fileWithNATS(), Rest: c.Config(), Observe: r.observe,
		Publish: func(*fleet.Snapshot) {}, Restarted: func(fleet.Key) {},
		Apply: func(_ context.Context, s *v1alpha1.RoutingPolicySpec) error { r.applied.Store(s); return nil },
		Log:   slog.New(slog.NewTextHandler(r, nil)).With("replica", name),
	}
	cfg.Discovery.Default()
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Watcher = w
	w.publisher.lease = lease
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run of %s: %v", name, err)
		}
		if t.Failed() {
			t.Log(r.logged())
		}
	})
	t.Cleanup(r.stop)
	return r
}

// newPool makes a pool with a picker's Service, one prefill and two decode workers.
func newPool(t *testing.T, c *testcluster.Cluster) (ns string) {
	t.Helper()
	ns = c.Namespace(t)
	service := pickerService("grpc", "")
	service.Namespace, service.Name = ns, "picker"
	create(t, c, service)
	create(t, c, testPool(ns, 8000))
	for i, role := range []string{"prefill", "decode", "decode"} {
		c.CreatePod(t, testcluster.Pod{
			Namespace: ns, Name: fmt.Sprintf("%s-%d", role, i), IPs: []string{fmt.Sprintf("10.1.0.%d", i+1)},
			Labels: map[string]string{"app": "llm", "llm-d.ai/role": role},
		})
	}
	return ns
}

func newPolicy(t *testing.T, c *testcluster.Cluster, ns, name string, change ...func(*v1alpha1.RoutingPolicySpec)) *v1alpha1.RoutingPolicy {
	t.Helper()
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	p.Spec.TargetRef.Name = "pool"
	p.Spec.Default()
	for _, f := range change {
		f(&p.Spec.RoutingPolicySpec)
	}
	create(t, c, p)
	return p
}

func getPolicy(t *testing.T, c *testcluster.Cluster, ns, name string) *v1alpha1.RoutingPolicy {
	t.Helper()
	p := &v1alpha1.RoutingPolicy{}
	if err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// changePolicy changes the spec of a policy.
func changePolicy(t *testing.T, c *testcluster.Cluster, ns, name string, change func(*v1alpha1.PoolRoutingSpec)) {
	t.Helper()
	p := getPolicy(t, c, ns, name)
	before := p.DeepCopy()
	change(&p.Spec)
	if err := c.Client().Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// expectCondition waits for a condition of a policy, for its present generation.
func expectCondition(t *testing.T, c *testcluster.Cluster, ns, name, kind string, status metav1.ConditionStatus, reason string) *v1alpha1.RoutingPolicy {
	t.Helper()
	var p *v1alpha1.RoutingPolicy
	until(t, fmt.Sprintf("%s of policy %s is %s/%s", kind, name, status, reason), func() bool {
		p = getPolicy(t, c, ns, name)
		got := meta.FindStatusCondition(p.Status.Conditions, kind)
		return got != nil && got.Status == status && got.Reason == reason && got.ObservedGeneration == p.Generation
	}, func() any { return p.Status })
	return p
}

// eventsOf returns what the picker's events say, by reason. The API server writes
// events of its own, such as of a Service's address.
func eventsOf(t *testing.T, c *testcluster.Cluster, ns string) map[string]string {
	t.Helper()
	var list corev1.EventList
	if err := c.Client().List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, e := range list.Items {
		if e.Source.Component != eventSource {
			continue
		}
		if o := e.InvolvedObject; o.Kind != "InferencePool" || o.Name != "pool" || o.APIVersion != "inference.networking.k8s.io/v1" {
			t.Errorf("an event %s about %s %s", e.Reason, o.Kind, o.Name)
		}
		said[e.Reason] = e.Type + " " + e.Message
	}
	return said
}

func expectEvent(t *testing.T, c *testcluster.Cluster, ns, reason, start string) {
	t.Helper()
	until(t, "there is an event "+reason, func() bool { return strings.HasPrefix(eventsOf(t, c, ns)[reason], start) },
		func() any { return eventsOf(t, c, ns) })
}

func TestStatusIsWritten(t *testing.T) {
	ns := newPool(t, shared)
	var pool inferencev1.InferencePool
	if err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pool"}, &pool); err != nil {
		t.Fatal(err)
	}
	r := replicaOf(t, shared, ns, "picker-a")
	newPolicy(t, shared, ns, "p", func(s *v1alpha1.RoutingPolicySpec) { s.BlockSize = 32 })
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	if s := r.applied.Load(); s == nil || s.BlockSize != 32 || s.EventPlane.NATS.URL != "nats://nats:4222" {
		t.Errorf("applied %+v", s)
	}
	var p *v1alpha1.RoutingPolicy
	until(t, "the hit rate is written", func() bool { p = getPolicy(t, shared, ns, "p"); return p.Status.HitRate != "" }, func() any { return p.Status })
	s := p.Status
	if s.HitRate != "80.0%" || s.Ceiling != "90.0%" || s.Replica != "picker-a" || *s.Workers != (v1alpha1.WorkerCounts{Prefill: 1, Decode: 2}) {
		t.Errorf("status %+v, workers %+v", s, s.Workers)
	}
	for _, kind := range []string{
		v1alpha1.ConditionAccepted, v1alpha1.ConditionResolvedRefs, v1alpha1.ConditionRolesResolved,
		v1alpha1.ConditionEventPlaneHealthy, v1alpha1.ConditionPrefixAware, v1alpha1.ConditionReady,
	} {
		if !meta.IsStatusConditionTrue(s.Conditions, kind) || !meta.IsStatusConditionTrue(r.Conditions(), kind) {
			t.Errorf("%s is not True: %+v, %+v", kind, s.Conditions, r.Conditions())
		}
	}
	columns := table(t, ns)
	for name, want := range map[string]string{
		"Name": "p", "Ready": "True", "Prefill": "1", "Decode": "2", "Events": "Flowing", "Hit": "80.0%", "Ceiling": "90.0%",
		"Aggregated": "0", "Pool": "pool", "Reason": "Ready",
	} {
		if columns[name] != want {
			t.Errorf("kubectl get shows %s %q, want %q", name, columns[name], want)
		}
	}
	if columns["Age"] == "" {
		t.Errorf("kubectl get shows no age: %v", columns)
	}
	expectEvent(t, shared, ns, "PolicyAccepted", "Normal RoutingPolicy p, generation 1")

	var after inferencev1.InferencePool
	if err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pool"}, &after); err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != pool.ResourceVersion {
		t.Error("the InferencePool was written")
	}
}

// table is the row that kubectl get -o wide shows of the one policy of a namespace.
func table(t *testing.T, ns string) map[string]string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := clients.RESTClient().Get().AbsPath("/apis/routing.warmpath.dev/v1alpha1/namespaces/"+ns+"/routingpolicies").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown metav1.Table
	if err := json.Unmarshal(raw, &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Rows) != 1 {
		t.Fatalf("%d rows", len(shown.Rows))
	}
	row := map[string]string{}
	for i, c := range shown.ColumnDefinitions {
		row[c.Name] = fmt.Sprint(shown.Rows[0].Cells[i])
	}
	return row
}

func TestSeveralPoliciesForOnePool(t *testing.T) {
	ns := newPool(t, shared)
	newPolicy(t, shared, ns, "a-first", func(s *v1alpha1.RoutingPolicySpec) { s.BlockSize = 32 })
	// Times of creation are whole seconds; among equals the name counts.
	newPolicy(t, shared, ns, "b-second", func(s *v1alpha1.RoutingPolicySpec) { s.BlockSize = 64 })
	other := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}}
	other.Spec.TargetRef.Name = "another-pool"
	create(t, shared, other)

	r := replicaOf(t, shared, ns, "picker-a")
	expectCondition(t, shared, ns, "a-first", v1alpha1.ConditionReady, yes, "Ready")
	p := expectCondition(t, shared, ns, "b-second", v1alpha1.ConditionAccepted, no, "Conflicted")
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != no || !strings.Contains(c.Message, "RoutingPolicy a-first, which is older, is in use") {
		t.Errorf("Ready of b-second: %+v", c)
	}
	if p.Status.Workers != nil || len(p.Status.Conditions) != 2 {
		t.Errorf("status of b-second: %+v", p.Status)
	}
	if err := shared.Client().Delete(t.Context(), getPolicy(t, shared, ns, "a-first")); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, shared, ns, "b-second", v1alpha1.ConditionReady, yes, "Ready")
	if s := r.applied.Load(); s.BlockSize != 64 {
		t.Errorf("block size %d is in use", s.BlockSize)
	}
	if s := getPolicy(t, shared, ns, "other").Status; len(s.Conditions) > 0 {
		t.Errorf("the policy of another pool has a status: %+v", s)
	}
}

func TestARefusedPolicySaysWhy(t *testing.T) {
	ns := newPool(t, shared)
	r := replicaOf(t, shared, ns, "picker-a")
	newPolicy(t, shared, ns, "p", func(s *v1alpha1.RoutingPolicySpec) { s.BlockSize = 32 })
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")

	changePolicy(t, shared, ns, "p", func(s *v1alpha1.PoolRoutingSpec) {
		s.BlockSize, s.Tokenizer.InProcess.ChatTemplate.TimeZone = 64, "Mars/Olympus"
	})
	p := expectCondition(t, shared, ns, "p", v1alpha1.ConditionAccepted, no, "Invalid")
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	if !strings.Contains(c.Message, "spec.tokenizer.inProcess.chatTemplate.timeZone") || !strings.Contains(c.Message, "The spec of RoutingPolicy p stays in use") {
		t.Errorf("message %q", c.Message)
	}
	if s := r.applied.Load(); s.BlockSize != 32 {
		t.Errorf("block size %d is in use", s.BlockSize)
	}
	expectEvent(t, shared, ns, "PolicyRefused", "Warning RoutingPolicy p, generation 2")

	changePolicy(t, shared, ns, "p", func(s *v1alpha1.PoolRoutingSpec) { s.Tokenizer.InProcess.ChatTemplate.TimeZone = "UTC" })
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	if s := r.applied.Load(); s.BlockSize != 64 {
		t.Errorf("block size %d is in use", s.BlockSize)
	}
}

func TestChangesOfThePoolAreTold(t *testing.T) {
	ns := newPool(t, shared)
	replicaOf(t, shared, ns, "picker-a")
	newPolicy(t, shared, ns, "p")
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	for _, pod := range []string{"prefill-0", "decode-1", "decode-2"} {
		shared.SetReady(t, ns, pod, false)
	}
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, no, "NoReadyPods")
	expectEvent(t, shared, ns, "PoolEmpty", "Warning ")
	for _, pod := range []string{"prefill-0", "decode-1", "decode-2"} {
		shared.SetReady(t, ns, pod, true)
	}
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	expectEvent(t, shared, ns, "RolesResolved", "Normal ")
}

// One replica writes; the other goes on when it ends.
func TestOneReplicaWrites(t *testing.T) {
	ns := newPool(t, shared)
	a := replicaOf(t, shared, ns, "picker-a")
	newPolicy(t, shared, ns, "p")
	first := expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	b := replicaOf(t, shared, ns, "picker-b")
	until(t, "the second knows how things are", func() bool { return meta.IsStatusConditionTrue(b.Conditions(), v1alpha1.ConditionReady) },
		func() any { return b.Conditions() })
	if holder := leaseHolder(t, shared, ns); holder != "picker-a" {
		t.Errorf("%q has the lease", holder)
	}
	if p := getPolicy(t, shared, ns, "p"); p.Status.Replica != "picker-a" {
		t.Errorf("%s wrote the status", p.Status.Replica)
	}
	a.stop()
	var p *v1alpha1.RoutingPolicy
	until(t, "the second writes", func() bool { p = getPolicy(t, shared, ns, "p"); return p.Status.Replica == "picker-b" }, func() any { return p.Status })
	if holder := leaseHolder(t, shared, ns); holder != "picker-b" {
		t.Errorf("%q has the lease", holder)
	}
	for _, c := range first.Status.Conditions {
		if now := meta.FindStatusCondition(p.Status.Conditions, c.Type); !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
			t.Errorf("%s since %s, and before since %s", c.Type, now.LastTransitionTime, c.LastTransitionTime)
		}
	}
}

func leaseHolder(t *testing.T, c *testcluster.Cluster, ns string) string {
	t.Helper()
	var l coordinationv1.Lease
	if err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pool-warmpath"}, &l); err != nil {
		t.Fatal(err)
	}
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// A replica that loses the lease goes on, and takes it again.
func TestALostLeaseEndsNothing(t *testing.T) {
	ns := newPool(t, shared)
	replicaWith(t, shortLease, shared, ns, "picker-a")
	newPolicy(t, shared, ns, "p")
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	until(t, "the lease is another's", func() bool {
		var l coordinationv1.Lease
		if err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pool-warmpath"}, &l); err != nil {
			t.Fatal(err)
		}
		thief, now := "thief", metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.RenewTime = &thief, &now
		return shared.Client().Update(t.Context(), &l) == nil
	}, func() any { return "a conflict each time" })
	until(t, "it is back", func() bool { return leaseHolder(t, shared, ns) == "picker-a" }, func() any { return leaseHolder(t, shared, ns) })
	changePolicy(t, shared, ns, "p", func(s *v1alpha1.PoolRoutingSpec) { s.BlockSize = 64 })
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
}

// Without the CRD of policies, and while the API server is away, all goes on.
func TestWithoutPoliciesAndWithoutAPI(t *testing.T) {
	c := testcluster.StartFor(t, testcluster.Options{CRDs: []testcluster.CRDs{testcluster.InferencePools}})
	ns := newPool(t, c)
	var bad atomic.Bool
	r := replicaWith(t, shortLease, c, ns, "picker-a", func(cfg *Config) {
		good := cfg.Observe
		cfg.Observe = func() Observation {
			o := good()
			o.Events.NoServer = bad.Load()
			return o
		}
	})
	until(t, "all is well", func() bool { return meta.IsStatusConditionTrue(r.Conditions(), v1alpha1.ConditionReady) }, func() any { return r.Conditions() })
	// A machine that does much else loses it at other times, too.
	again := func(what, text string, before int) {
		t.Helper()
		until(t, what, func() bool { return strings.Count(r.logged(), text) > before }, func() any { return r.logged() })
	}
	const leads, lost = "this_one=true", "the lease is lost"
	again("it has the lease", leads, 0)
	bad.Store(true)
	expectEvent(t, c, ns, "NoServer", "Warning ")

	c.StopAPI()
	led := strings.Count(r.logged(), leads)
	again("the lease is lost", lost, strings.Count(r.logged(), lost))
	bad.Store(false)
	until(t, "conditions are still found", func() bool { return meta.IsStatusConditionTrue(r.Conditions(), v1alpha1.ConditionReady) },
		func() any { return r.Conditions() })
	c.StartAPI(t)
	again("it has the lease again", leads, led)
	// An API server that has just started may refuse an event, and one that it refused
	// is not told again: the next change is.
	until(t, "what changes is told again", func() bool {
		bad.Store(true)
		until(t, "trouble", func() bool { return !meta.IsStatusConditionTrue(r.Conditions(), v1alpha1.ConditionReady) }, func() any { return r.Conditions() })
		bad.Store(false)
		until(t, "its end", func() bool { return meta.IsStatusConditionTrue(r.Conditions(), v1alpha1.ConditionReady) }, func() any { return r.Conditions() })
		return strings.HasPrefix(eventsOf(t, c, ns)["Flowing"], "Normal ")
	}, func() any { return eventsOf(t, c, ns) })
	if n := strings.Count(r.logged(), "the API server does not answer as it should"); n < 1 || n > 4 {
		t.Errorf("that the API server is away was logged %d times", n)
	}
}

// What the picker may not do it says once, and does once it may.
func TestMissingRightsAreNamed(t *testing.T) {
	ns := newPool(t, shared)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "picker"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
			{APIGroups: []string{"inference.networking.k8s.io"}, Resources: []string{"inferencepools"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"llm-d.ai"}, Resources: []string{"inferenceobjectives"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"llm-d.ai", "inference.networking.x-k8s.io"}, Resources: []string{"inferencemodelrewrites"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"nvidia.com"}, Resources: []string{"dynamoworkermetadatas"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"routing.warmpath.dev"}, Resources: []string{"routingpolicies"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		},
	}
	create(t, shared, role)
	create(t, shared, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "picker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "picker"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "picker"}},
	})
	account := shared.ServiceAccountConfig(t, ns, "picker")
	r := replicaOf(t, shared, ns, "picker-a", func(cfg *Config) { cfg.Rest = account })
	newPolicy(t, shared, ns, "p")
	refused := func() int { return strings.Count(r.logged(), "resource=routingpolicies/status.routing.warmpath.dev") }
	until(t, "it says what it may not do", func() bool {
		return refused() > 0 && strings.Contains(r.logged(), "verb=create resource=events namespace="+ns)
	}, func() any { return r.logged() })

	role.Rules = append(role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{"routing.warmpath.dev"}, Resources: []string{"routingpolicies/status"}, Verbs: []string{"update"},
	}, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"},
	})
	if err := shared.Client().Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, shared, ns, "p", v1alpha1.ConditionReady, yes, "Ready")
	changePolicy(t, shared, ns, "p", func(s *v1alpha1.PoolRoutingSpec) { s.BlockSize = 64 })
	expectEvent(t, shared, ns, "PolicyAccepted", "Normal ")
	until(t, "it says that it may", func() bool { return refused() == 2 }, func() any { return r.logged() })
	if log := r.logged(); !strings.Contains(log, "verb=update resource=routingpolicies/status.routing.warmpath.dev namespace="+ns) {
		t.Errorf("verb, resource and namespace are not in %s", log)
	}
}

func TestPublishStatusOff(t *testing.T) {
	ns := newPool(t, shared)
	off := false
	r := replicaOf(t, shared, ns, "picker-a", func(cfg *Config) { cfg.Discovery.PublishStatus = &off })
	newPolicy(t, shared, ns, "p")
	until(t, "all is well", func() bool { return meta.IsStatusConditionTrue(r.Conditions(), v1alpha1.ConditionReady) }, func() any { return r.Conditions() })
	until(t, "that is logged", func() bool { return strings.Contains(r.logged(), "condition=Ready status=True reason=Ready") }, func() any { return r.logged() })
	r.stop()
	if s := getPolicy(t, shared, ns, "p").Status; len(s.Conditions) > 0 {
		t.Errorf("a status was written: %+v", s)
	}
	var leases coordinationv1.LeaseList
	if err := shared.Client().List(t.Context(), &leases, client.InNamespace(ns)); err != nil || len(leases.Items) > 0 {
		t.Errorf("%d leases, %v", len(leases.Items), err)
	}
	if events := eventsOf(t, shared, ns); len(events) > 0 {
		t.Errorf("events %v", slices.Collect(maps.Keys(events)))
	}
}

// writer is the half of a publisher that writes, with a clock that the test moves.
type writer struct {
	*publisher

	t   *testing.T
	ns  string
	at  time.Time
	req atomic.Int64 // requests to the API server
}

func newWriter(t *testing.T, ns string) *writer {
	t.Helper()
	w := &writer{t: t, ns: ns, at: epoch}
	config := shared.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &w.req} })
	c, err := client.New(config, client.Options{Scheme: shared.Client().Scheme(), Mapper: shared.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	w.publisher = &publisher{
		identity: "picker-a", now: func() time.Time { return w.at }, client: c, log: quietLog,
		complaints: &complaints{log: quietLog}, written: map[types.UID]*writing{},
	}
	return w
}

// tell writes a report of a scene as of now, of the policy as it is known, and
// returns how many requests that took.
func (w *writer) tell(policy *v1alpha1.RoutingPolicy, s *scene) int64 {
	before := w.req.Load()
	s.policy.Chosen = policy
	w.write(w.t.Context(), &report{
		at: w.at, view: s.view, policies: s.policy, figures: s.window.figures(),
		conditions: conditions(s.view, s.obs, s.window, s.policy, w.at, policy.Generation),
	})
	return w.req.Load() - before
}

func TestStatusIsWrittenWhenItIsWorthIt(t *testing.T) {
	ns := shared.Namespace(t)
	w := newWriter(t, ns)
	policy := newPolicy(t, shared, ns, "p")
	s := calm(t)
	const nothing, readAndWrite = 0, 2
	step := func(what string, after time.Duration, want int64) {
		t.Helper()
		w.at = w.at.Add(after)
		if got := w.tell(policy, s); got != want {
			t.Errorf("%s: %d requests, want %d", what, got, want)
		}
	}
	step("first", 0, readAndWrite)
	step("again", time.Hour, nothing)
	policy = getPolicy(t, shared, ns, "p")
	step("heard of it", time.Hour, nothing)

	s.traffic(counts(100, 100, 1000, 835, 910, 50))
	step("another rate", time.Second, readAndWrite) // the last was long ago
	s.traffic(counts(100, 100, 1000, 836, 910, 50))
	step("another rate, soon after", time.Second, nothing)
	step("another rate, later", figuresEvery, readAndWrite)
	s.traffic(counts(200, 200, 10_000, 8360, 9100, 50))
	step("the same rate", time.Hour, nothing)

	s.view.Roles = []Problem{{"UnknownRole", "pod x is odd"}}
	step("another condition", time.Millisecond, readAndWrite)
	s.view.Roles = nil
	step("and back", time.Millisecond, readAndWrite)

	policy = getPolicy(t, shared, ns, "p")
	foreign := policy.DeepCopy()
	foreign.Status.Conditions = nil
	if err := shared.Client().Status().Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	step("not heard that somebody else wrote", time.Hour, nothing)
	policy = getPolicy(t, shared, ns, "p")
	step("heard of it", time.Millisecond, readAndWrite)

	if err := shared.Client().Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.view.Roles = []Problem{{"UnknownRole", "pod x is odd"}}
	step("deleted", time.Hour, 1)
}

// What cannot be written is tried again after a while.
func TestAFailedWriteWaits(t *testing.T) {
	w := newWriter(t, "ns")
	away := shared.Config()
	away.Host = "https://127.0.0.1:1"
	c, err := client.New(away, client.Options{Scheme: shared.Client().Scheme(), Mapper: shared.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	w.client = c
	policy := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	w.tell(policy, calm(t))
	failed := w.written["u"].failed
	if !failed.Equal(w.at) {
		t.Fatalf("failed at %s", failed)
	}
	w.at = w.at.Add(time.Second)
	if w.tell(policy, calm(t)); !w.written["u"].failed.Equal(failed) {
		t.Error("it was tried again at once")
	}
	w.at = w.at.Add(pauseAfterFailure)
	if w.tell(policy, calm(t)); !w.written["u"].failed.Equal(w.at) {
		t.Error("it was not tried again")
	}
}

// counting counts requests.
type counting struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(r)
}
