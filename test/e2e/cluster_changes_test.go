package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// picked sends a request that may go to one endpoint only, through a gateway with
// subset headers, and says which worker served it. ok is false when the picker
// knows no worker there: chance has no part in it.
func (d *deployment) picked(endpoint string) (worker string, ok bool) {
	d.t.Helper()
	r := d.post("/v1/completions", completion(tokens(1, 2*blockSize)), http.Header{gateway.SubsetListHeader: {endpoint}})
	switch {
	case r.status == http.StatusOK:
		return r.decode(), true
	case r.status == http.StatusServiceUnavailable && strings.Contains(r.body, "no_endpoint"):
		return "", false
	}
	d.t.Fatalf("a request for %s got %d %s", endpoint, r.status, r.body)
	return "", false
}

// changePool changes the InferencePool.
func (d *deployment) changePool(change func(*inferencev1.InferencePoolSpec)) {
	d.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pool := &inferencev1.InferencePool{}
		if err := d.c.Client().Get(d.t.Context(), client.ObjectKey{Namespace: d.ns, Name: release}, pool); err != nil {
			return err
		}
		change(&pool.Spec)
		return d.c.Client().Update(d.t.Context(), pool)
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// change is something that is written to the API server, and how a decision shows
// that the picker knows: the endpoint is, or is no longer, picked.
type change struct {
	what     string
	write    func()
	endpoint string
	in       bool
}

// TestClusterChangesReachDecisions measures how long the picker takes from the end
// of a write until a request is routed by it. What it may take is said in requests:
// that many take about a second, and longer where all else does.
func TestClusterChangesReachDecisions(t *testing.T) {
	t.Parallel()
	const rounds, most = 5, 100
	d := install(t, cluster(t))
	d.pods(false) // one that stays, and one that changes
	otherPort := testport.Free(t)
	moved := d.sim("agg-0-elsewhere", fleet.Aggregated, "--listen", fmt.Sprintf("%s:%d", d.ip(1), otherPort))
	d.sim("agg-1-elsewhere", fleet.Aggregated, "--listen", d.addr(d.ip(3)))
	d.sim("agg-2", fleet.Aggregated, "--listen", d.addr(d.ip(4)))
	d.sim("twin-0", fleet.Aggregated, "--listen", d.addr(d.ip(5)))
	d.createPod("twin-0", map[string]string{"app": "twin", roleLabel: "worker"}, d.ip(5))
	d.run("epp-0")
	d.startGateway(gateway.Config{SubsetHeader: true})

	selector := func(app inferencev1.LabelValue) func() {
		return func() {
			d.changePool(func(s *inferencev1.InferencePoolSpec) { s.Selector.MatchLabels["app"] = app })
		}
	}
	port := func(number int) func() {
		return func() {
			d.changePool(func(s *inferencev1.InferencePoolSpec) {
				s.TargetPorts = []inferencev1.Port{{Number: inferencev1.PortNumber(number)}}
			})
		}
	}
	changing := d.addr(d.ip(2))
	took, sent := map[string][]time.Duration{}, map[string][]int{}
	for range rounds {
		for _, c := range []change{
			{"pod not ready", func() { d.c.SetReady(t, d.ns, "agg-1", false) }, changing, false},
			{"pod ready again", func() { d.c.SetReady(t, d.ns, "agg-1", true) }, changing, true},
			{"another IP of a pod", func() { d.c.SetIPs(t, d.ns, "agg-1", d.ip(3)) }, d.addr(d.ip(3)), true},
			{"the IP of before", func() { d.c.SetIPs(t, d.ns, "agg-1", d.ip(2)) }, changing, true},
			{"new pod", func() { d.createPod("agg-2", labels(fleet.Aggregated), d.ip(4)) }, d.addr(d.ip(4)), true},
			{"pod about to end", func() { d.c.TerminatePod(t, d.ns, "agg-2") }, d.addr(d.ip(4)), false},
			{"another pod deleted", func() { d.c.DeletePod(t, d.ns, "agg-1") }, changing, false},
			{"pod made anew", func() { d.createPod("agg-1", labels(fleet.Aggregated), d.ip(2)) }, changing, true},
			{"another selector", selector("twin"), d.addr(d.ip(5)), true},
			{"the selector of before", selector("llm"), changing, true},
			{"another target port", port(otherPort), moved.addr(), true},
			{"the target port of before", port(d.port), changing, true},
		} {
			after, requests := d.measure(c)
			took[c.what], sent[c.what] = append(took[c.what], after), append(sent[c.what], requests)
		}
		d.c.DeletePod(t, d.ns, "agg-2")
	}
	for what, list := range sent {
		slices.Sort(list)
		slices.Sort(took[what])
		t.Logf("%-26s %v, %d requests", what, took[what], list)
		if median := list[rounds/2]; median > most {
			t.Errorf("%s: the %d. decision showed it in the median, want the %d. or one before", what, median, most)
		}
	}
}

// measure makes a change and returns how long it took until a decision showed it, and
// how many requests were sent until then.
func (d *deployment) measure(c change) (took time.Duration, requests int) {
	d.t.Helper()
	if _, in := d.picked(c.endpoint); in == c.in {
		d.t.Fatalf("%s: a decision shows it before it was written", c.what)
	}
	c.write()
	start := time.Now()
	eventually(d.t, c.what+" is seen by a decision", func() bool {
		requests++
		_, in := d.picked(c.endpoint)
		return in == c.in
	})
	return time.Since(start), requests
}

// TestClusterLeavesOldPlaces wants endpoints that the pool no longer has to be
// picked no more, and those that stay to be picked on.
func TestClusterLeavesOldPlaces(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t))
	agg, _ := d.pods(false)
	d.run("epp-0")
	d.startGateway(gateway.Config{SubsetHeader: true})
	want := func(endpoint, worker string) {
		t.Helper()
		if name, _ := d.picked(endpoint); name != worker {
			t.Errorf("%s: %q served, want %q", endpoint, name, worker)
		}
	}
	await := func(endpoint, worker string) {
		t.Helper()
		eventually(t, endpoint+" is "+worker, func() bool { name, _ := d.picked(endpoint); return name == worker })
	}
	want(agg[0].addr(), "agg-0")
	want(agg[1].addr(), "agg-1")

	// The pod is the same, at another address.
	d.sim("agg-0", fleet.Aggregated, "--listen", d.addr(d.ip(9)))
	d.c.SetIPs(t, d.ns, "agg-0", d.ip(9))
	await(d.addr(d.ip(9)), "agg-0")
	want(agg[0].addr(), "")
	want(agg[1].addr(), "agg-1")

	// All workers are restarted on another port.
	agg[1].stop(t)
	port := testport.Free(t)
	d.sim("agg-1", fleet.Aggregated, "--listen", fmt.Sprintf("%s:%d", d.ip(2), port))
	d.changePool(func(s *inferencev1.InferencePoolSpec) { s.TargetPorts[0].Number = inferencev1.PortNumber(port) })
	await(fmt.Sprintf("%s:%d", d.ip(2), port), "agg-1")
	want(agg[1].addr(), "")
	want(d.addr(d.ip(9)), "")
}

// TestClusterRoles labels pods in ways that no role has, and mends them.
func TestClusterRoles(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t), `routingPolicy.create=true`, `routingPolicy.spec={}`)
	d.pods(true)
	d.run("epp-0")
	d.startGateway(gateway.Config{SubsetHeader: true})
	d.awaitCondition(v1alpha1.ConditionRolesResolved, metav1.ConditionTrue, "RolesResolved")

	odd := d.sim("odd-0", fleet.Decode, "--listen", d.addr(d.ip(7)))
	d.createPod("odd-0", map[string]string{"app": "llm", roleLabel: "decoder"}, d.ip(7))
	message := d.awaitCondition(v1alpha1.ConditionRolesResolved, metav1.ConditionFalse, "UnknownRole")
	for _, part := range []string{roleLabel, `"decoder"`, "odd-0", "spec.roles", "correct the label"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not name %s: %s", part, message)
		}
	}
	d.awaitColumns(map[string]string{"READY": "False", "PREFILL": "2", "DECODE": "2"})
	if name, ok := d.picked(odd.addr()); ok {
		t.Errorf("a pod of no role got a request as %q", name)
	}
	if _, ok := d.picked(d.addr(d.ip(3))); !ok {
		t.Error("a pod whose label is right gets no request")
	}

	d.relabel("odd-0", roleLabel, "decode")
	d.awaitCondition(v1alpha1.ConditionRolesResolved, metav1.ConditionTrue, "RolesResolved")
	d.awaitColumns(map[string]string{"READY": "True", "PREFILL": "2", "DECODE": "3"})
	if name, _ := d.picked(odd.addr()); name != "odd-0" {
		t.Errorf("%q served, want odd-0", name)
	}

	// Two labels that disagree: the first counts.
	const second = "nvidia.com/dynamo-sub-component-type"
	d.relabel("odd-0", second, "prefill")
	message = d.awaitCondition(v1alpha1.ConditionRolesResolved, metav1.ConditionFalse, "ConflictingRoles")
	for _, part := range []string{roleLabel, `"decode"`, second, `"prefill"`, "odd-0", "correct the other label"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not name %s: %s", part, message)
		}
	}
	d.awaitColumns(map[string]string{"PREFILL": "2", "DECODE": "3"})
	if name, _ := d.picked(odd.addr()); name != "odd-0" {
		t.Errorf("%q served, want odd-0", name)
	}
	d.relabel("odd-0", second, "decode")
	d.awaitCondition(v1alpha1.ConditionRolesResolved, metav1.ConditionTrue, "RolesResolved")
}

// relabel sets one label of a pod.
func (d *deployment) relabel(pod, label, value string) {
	d.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value)
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: pod}}
	if err := d.c.Client().Patch(d.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		d.t.Fatal(err)
	}
}
