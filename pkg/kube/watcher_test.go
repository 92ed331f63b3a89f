package kube

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

func TestFollowsPods(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	r.expect("an empty pool is a pool")
	r.expectProblem(reasonNoReadyPods, "none of the 0 pods", ns+"/pool")
	if err := r.Synced(); err != nil {
		t.Errorf("pool and pods were read, but: %v", err)
	}

	r.addPod("a", "10.0.0.1")
	r.expect("a pod comes", "a/0@10.0.0.1:8000 Aggregated")
	r.expectMended(reasonNoReadyPods)
	r.addPod("b", "fd00::2", func(p *testcluster.Pod) { p.NotReady = true })
	r.addPod("web", "10.0.0.3", func(p *testcluster.Pod) { p.Labels = map[string]string{"app": "web"} })
	shared.SetReady(t, ns, "b", true)
	r.expect("a pod becomes ready", "a/0@10.0.0.1:8000 Aggregated", "b/0@[fd00::2]:8000 Aggregated")
	shared.SetIPs(t, ns, "a", "10.0.0.9", "fd00::9")
	r.expect("another address", "a/0@10.0.0.9:8000 Aggregated", "b/0@[fd00::2]:8000 Aggregated")
	shared.SetReady(t, ns, "a", false)
	r.expect("not ready", "b/0@[fd00::2]:8000 Aggregated")
	shared.SetReady(t, ns, "a", true)
	r.expect("ready again", "a/0@10.0.0.9:8000 Aggregated", "b/0@[fd00::2]:8000 Aggregated")
	shared.TerminatePod(t, ns, "a")
	r.expect("it terminates", "b/0@[fd00::2]:8000 Aggregated")
	shared.DeletePod(t, ns, "a")
	r.changePod("web", func(p *corev1.Pod) { p.Labels["app"] = "llm" })
	r.expect("a label joins", "b/0@[fd00::2]:8000 Aggregated", "web/0@10.0.0.3:8000 Aggregated")
	r.changePod("web", func(p *corev1.Pod) { p.Labels["llm-d.ai/role"] = "prefill" })
	r.expect("a role", "b/0@[fd00::2]:8000 Aggregated", "web/0@10.0.0.3:8000 Prefill")
	r.changePod("web", func(p *corev1.Pod) { p.Labels["llm-d.ai/role"] = "router" })
	r.expect("a role that is none", "b/0@[fd00::2]:8000 Aggregated")
	r.expectProblem(reasonUnknownRole, `"router"`, "web")
	shared.DeletePod(t, ns, "b")
	r.expect("all are gone")
}

func TestFollowsPool(t *testing.T) {
	ns := shared.Namespace(t)
	r := start(t, shared, ns)
	r.addPod("a", "10.0.0.1", func(p *testcluster.Pod) { p.Annotations = map[string]string{"llm-d.ai/active-ports": "8001"} })
	r.expectProblem(reasonPoolNotFound, ns+"/pool", "the namespace has none")
	if err := r.Synced(); err == nil || !strings.Contains(err.Error(), ns+"/pool") {
		t.Errorf("without a pool Synced says %v", err)
	}
	other := testPool(ns, 9000)
	other.Name = "pools"
	create(t, shared, other)
	r.expectProblem(reasonPoolNotFound, "the namespace has pools")

	create(t, shared, testPool(ns, 8000, 8001))
	r.expect("the pool comes", "a/1@10.0.0.1:8001 Aggregated")
	r.expectMended(reasonPoolNotFound)
	r.changePool(func(p *inferencev1.InferencePool) { setPorts(p, 8001) })
	r.expect("other ports", "a/0@10.0.0.1:8001 Aggregated")
	r.changePool(func(p *inferencev1.InferencePool) { p.Spec.Selector.MatchLabels["app"] = "web" })
	r.expect("another selector")
	r.changePool(func(p *inferencev1.InferencePool) { p.Spec.Selector.MatchLabels["app"] = "llm" })
	r.expect("and back", "a/0@10.0.0.1:8001 Aggregated")

	if err := shared.Client().Delete(t.Context(), testPool(ns)); err != nil {
		t.Fatal(err)
	}
	r.expect("the pool is gone")
	r.expectProblem(reasonPoolNotFound, ns+"/pool")
	if err := r.Synced(); err != nil {
		t.Errorf("the pool was read once, but: %v", err)
	}
	until(t, "it is logged", func() bool { return strings.Contains(r.logged(), "InferencePool is gone") }, func() any { return r.logged() })
	create(t, shared, testPool(ns, 8001))
	r.expect("the pool is back", "a/0@10.0.0.1:8001 Aggregated")
	if len(r.restarts()) > 0 {
		t.Errorf("workers %v began anew, though nothing restarted", r.restarts())
	}
}

func TestChecksReferenceToPicker(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	r.expectProblem(reasonPickerNotFound, ns+"/picker")
	service := pickerService("http-picker", "")
	service.Namespace, service.Name = ns, "picker"
	create(t, shared, service)
	r.expectProblem(reasonPickerNotHTTP2, "kubernetes.io/h2c")
	h2c := "kubernetes.io/h2c"
	service.Spec.Ports[1].AppProtocol = &h2c
	if err := shared.Client().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	r.expectMended(reasonPickerNotHTTP2)
	r.changePool(func(p *inferencev1.InferencePool) { p.Spec.EndpointPickerRef.Port.Number = 9003 })
	r.expectProblem(reasonPickerPort, "9003")
	r.changePool(func(p *inferencev1.InferencePool) { p.Spec.EndpointPickerRef = nil })
	r.expectProblem(reasonPickerRefMissing)
}

func TestRestartsReachTheIndex(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	key := fleet.Key{ID: fleet.WorkerID("a")}
	count := func(n int) {
		t.Helper()
		until(t, fmt.Sprintf("%d restarts are told", n), func() bool { return len(r.restarts()) == n }, func() any { return r.restarts() })
		if got := r.restarts()[n-1]; got != key {
			t.Errorf("%v began anew, want %v", got, key)
		}
	}
	r.addPod("a", "10.0.0.1")
	r.addPod("b", "10.0.0.2")
	r.expect("two pods", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	shared.SetReady(t, ns, "a", false)
	r.expect("not ready", "b/0@10.0.0.2:8000 Aggregated")
	shared.Restart(t, ns, "a", "")
	count(1)
	shared.SetReady(t, ns, "a", true)
	r.expect("ready", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	shared.DeletePod(t, ns, "a")
	r.expect("gone", "b/0@10.0.0.2:8000 Aggregated")
	r.addPod("a", "10.0.0.3") // as a StatefulSet does
	r.expect("back", "a/0@10.0.0.3:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	count(2)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.restartAt[1]; len(r.published[at-1].Workers) != 1 || len(r.published[at].Workers) != 2 {
		t.Error("the worker was in the pool again before its cache was told to be gone")
	}
}

// dynamo is a DynamoWorkerMetadata.
func dynamo(ns, name string, data any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata",
		"metadata": map[string]any{"namespace": ns, "name": name},
		"spec":     map[string]any{"data": data},
	}}
}

func dynamoData(blockSize int64) map[string]any {
	return map[string]any{
		"endpoints": map[string]any{
			"one": map[string]any{"component": "backend", "endpoint": "worker_kv_indexer_query_dp0", "transport": map[string]any{"tcp": "10.0.0.1:9000/x/dp0"}},
			"two": map[string]any{"component": "backend", "endpoint": "worker_kv_indexer_query_dp1", "transport": map[string]any{"tcp": "10.0.0.1:9000/x/dp1"}},
		},
		"model_cards": map[string]any{"card": map[string]any{"card_json": map[string]any{
			"kv_cache_block_size": blockSize, "runtime_config": map[string]any{"data_parallel_size": int64(2)},
		}}},
		"event_channels": nil,
	}
}

func TestReadsMetadata(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	r.addPod("a", "10.0.0.1")
	r.expect("silent", "a/0@10.0.0.1:8000 Aggregated")
	m := dynamo(ns, "a", dynamoData(16))
	create(t, shared, m)
	r.expect("it says that it has two ranks", "a/0@10.0.0.1:8000 Aggregated", "a/1@10.0.0.1:8000 Aggregated")
	for rank, w := range r.View().Snapshot.Workers {
		if want := fmt.Sprintf("10.0.0.1:9000/x/dp%d", rank); w.Recovery != want || w.Says.Advertised().BlockSize != 16 {
			t.Errorf("rank %d: recovery %q, block size %d", rank, w.Recovery, w.Says.Advertised().BlockSize)
		}
	}
	if err := unstructured.SetNestedField(m.Object, dynamoData(32), "spec", "data"); err != nil {
		t.Fatal(err)
	}
	if err := shared.Client().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.expectProblem(reasonBlockSize, "16", "32", ": a;")
	create(t, shared, dynamo(ns, "b", map[string]any{"endpoints": "odd", "model_cards": map[string]any{}}))
	r.addPod("b", "10.0.0.2")
	r.expectProblem(reasonBadMetadata, "spec.data", ": b;")
	if err := shared.Client().Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.expect("silent again", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	r.expectMended(reasonBlockSize)
}

func TestContainerMode(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000, 8001))
	r := start(t, shared, ns, func(c *Config) { c.Discovery.WorkerIdentity = v1alpha1.IdentityContainer })
	container := func(name string, port int32) corev1.Container {
		c := corev1.Container{Name: name, Image: "none"}
		if port > 0 {
			c.Ports = []corev1.ContainerPort{{ContainerPort: port}}
		}
		return c
	}
	r.addPod("worker-0", "10.0.0.1", func(p *testcluster.Pod) {
		p.NotReady = true
		p.Containers = []corev1.Container{container("main", 8000), container("engine-1", 8001), container("proxy", 0)}
		p.Containers[1].Env = []corev1.EnvVar{{Name: "DYN_COMPONENT", Value: "prefill"}}
	})
	r.expect("none is ready")
	shared.SetContainerReady(t, ns, "worker-0", "engine-1", true)
	r.expect("one container", "worker-0-engine-1/0@10.0.0.1:8001 Prefill")
	if got := r.View().Snapshot.Workers[0].ID; got != 4054906713372226 { // dynamo-live.md section 2
		t.Errorf("id %d", got)
	}
	shared.SetContainerReady(t, ns, "worker-0", "main", true)
	r.expect("two containers", "worker-0-engine-1/0@10.0.0.1:8001 Prefill", "worker-0/0@10.0.0.1:8000 Aggregated")
	shared.Restart(t, ns, "worker-0", "proxy")
	shared.Restart(t, ns, "worker-0", "engine-1")
	until(t, "a restart is told", func() bool { return len(r.restarts()) > 0 }, func() any { return nil })
	if got := r.restarts(); len(got) != 1 || got[0].ID != 4054906713372226 {
		t.Errorf("%v began anew, want the one container", got)
	}
}

func TestSelectorMode(t *testing.T) {
	ns := shared.Namespace(t)
	t.Setenv("POD_NAMESPACE", ns)
	r := start(t, shared, ns, func(c *Config) {
		c.Discovery.Pool = nil
		c.Discovery.Selector = &v1alpha1.PodSelector{LabelSelector: "app in (llm,chat),tier!=test", TargetPorts: []int{8000}}
	})
	r.expect("no pods yet")
	r.addPod("a", "10.0.0.1")
	r.addPod("b", "10.0.0.2", func(p *testcluster.Pod) { p.Labels = map[string]string{"app": "chat"} })
	r.addPod("c", "10.0.0.3", func(p *testcluster.Pod) { p.Labels["tier"] = "test" })
	r.expect("pods by their labels", "a/0@10.0.0.1:8000 Aggregated", "b/0@10.0.0.2:8000 Aggregated")
	if v := r.View(); v.Pool != nil || len(r.problems()) > 0 {
		t.Errorf("pool %v, problems %v", v.Pool, r.problems())
	}
}

// Every snapshot is of one state of the pool: all pods with the old ports, or all
// with the new.
func TestPortsChangeUnderLoad(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	r := start(t, shared, ns)
	const pods = 6
	for i := range pods {
		r.addPod(fmt.Sprint("p", i), fmt.Sprintf("10.0.0.%d", i+1))
	}
	until(t, "all pods are there", func() bool { return len(r.workers()) == pods }, func() any { return r.workers() })
	var load sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		load.Go(func() {
			for ready := false; ; ready = !ready {
				shared.SetReady(t, ns, fmt.Sprint("p", i), ready)
				select {
				case <-stop:
					shared.SetReady(t, ns, fmt.Sprint("p", i), true)
					return
				default:
				}
			}
		})
	}
	ports := [][]int{{8000, 8001}, {9000}, {8001, 8000}, {8000}}
	for range 5 {
		for _, p := range ports {
			r.changePool(func(pool *inferencev1.InferencePool) { setPorts(pool, p...) })
		}
	}
	close(stop)
	load.Wait()
	var want []string
	for i := range pods {
		want = append(want, fmt.Sprintf("p%d/0@10.0.0.%d:8000 Aggregated", i, i+1))
	}
	r.expect("the last ports count", want...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.published {
		by := map[string]string{}
		for _, w := range s.Workers {
			by[w.Name] += fmt.Sprint(" ", w.Rank, ":", w.Endpoint.Port())
		}
		seen := map[string]bool{}
		for _, list := range by {
			seen[list] = true
		}
		if len(seen) > 1 {
			t.Fatalf("a snapshot mixes %v", seen)
		}
	}
	t.Logf("%d snapshots", len(r.published))
}
