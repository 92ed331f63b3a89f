package kube

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	manyPods = 2000
	// maxGrowth is what following them may cost, at its peak.
	maxGrowth = 200 << 20

	// childVariable makes the test binary a picker that follows the namespace named
	// in it, through the kubeconfig of KUBECONFIG, until there are so many workers as
	// workersVariable says. With nodesVariable it follows nodes, too, and each of the
	// workers must be in a rack.
	childVariable   = "WARMPATH_KUBE_CHILD"
	workersVariable = "WARMPATH_KUBE_WORKERS"
	nodesVariable   = "WARMPATH_KUBE_NODES"
)

// manyNodes are a fifth of what Kubernetes is made for: to make all takes most of a
// minute.
var manyNodes = flag.Int("nodes", 1000, "nodes that are followed")

// A process of its own follows 2,000 pods as vLLM deployments have them. What
// counts is the peak of its resident memory over what it had before it began.
func TestManyPodsFitInMemory(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	size := createMany(t, ns)
	m := runChild(t, ns, workersVariable+"="+strconv.Itoa(manyPods))
	t.Logf("%d pods of %d KiB: %s", manyPods, size>>10, m)
	if m.growth() > maxGrowth {
		t.Errorf("grew by %d MiB, want at most %d", m.growth()>>20, maxGrowth>>20)
	}
}

// The same with the nodes of a large cluster, and hardly any pods. What nodes cost is
// the difference to a picker that does not follow them.
func TestManyNodesFitInMemory(t *testing.T) {
	ns := shared.Namespace(t)
	create(t, shared, testPool(ns, 8000))
	name := func(i int) string { return fmt.Sprintf("%s-%04d.compute.internal", ns, i) }
	ours := map[string]string{"example.com/test": ns}
	ctx := context.WithoutCancel(t.Context()) // the test's own is over by then
	t.Cleanup(func() {
		if err := shared.Client().DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels(ours)); err != nil {
			t.Error(err)
		}
	})
	together(t, *manyNodes, func(i int) error { return shared.Client().Create(t.Context(), bigNode(name(i), ours)) })
	one := &corev1.Node{}
	if err := shared.Client().Get(t.Context(), client.ObjectKey{Name: name(1)}, one); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, c: shared, ns: ns}
	r.addPod("a", "10.0.0.1", onNode(name(1)))
	without := runChild(t, ns, workersVariable+"=1")
	with := runChild(t, ns, workersVariable+"=1", nodesVariable+"=yes")
	t.Logf("%d nodes of %d KiB: %s; without them %s", *manyNodes, one.Size()>>10, with, without)
	maxPeak, maxKept := int64(*manyNodes)*20<<10+60<<20, int64(*manyNodes)*5<<10
	if n := with.growth() - without.growth(); n > maxPeak {
		t.Errorf("nodes take %d MiB at the peak, want at most %d", n>>20, maxPeak>>20)
	}
	if n := with.live - without.live; n > maxKept {
		t.Errorf("nodes take %d MiB, want at most %d", n>>20, maxKept>>20)
	}
}

// memory is that of a child, in bytes: resident before it followed anything and at the
// peak, and what is live on its heap after a collection. The race detector doubles what
// is resident, but not that.
type memory struct{ before, peak, live int64 }

func (m memory) growth() int64 { return m.peak - m.before }

func (m memory) String() string {
	return fmt.Sprintf("%d MiB before, %d MiB at the peak, %d MiB live", m.before>>20, m.peak>>20, m.live>>20)
}

// runChild runs a child of a namespace until it has seen all that it was made for.
func runChild(t *testing.T, ns string, env ...string) (m memory) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+ns, "KUBECONFIG="+testcluster.Kubeconfig(t, shared.Config(), ns))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := fmt.Sscan(string(out), &m.before, &m.peak, &m.live); err != nil {
		t.Fatalf("child says %q: %v", out, err)
	}
	return m
}

// together does something n times, a few at once.
func together(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	const writers = 8
	for worker := range writers {
		group.Go(func() {
			for i := worker; i < n && !t.Failed(); i += writers {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// createMany makes the pods, and returns the size of one.
func createMany(t *testing.T, ns string) int {
	t.Helper()
	together(t, manyPods, func(i int) error {
		pod := realisticPod(ns, i)
		if err := shared.Client().Create(t.Context(), pod); err != nil {
			return err
		}
		pod.Status = realisticStatus(i)
		return shared.Client().Status().Update(t.Context(), pod)
	})
	one := &corev1.Pod{}
	if err := shared.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: podName(1)}, one); err != nil {
		t.Fatal(err)
	}
	return one.Size()
}

func podName(i int) string { return fmt.Sprintf("vllm-agg-vllmworker-7d9f8c6b5-%05d", i) }

// realisticPod is a pod as operators write them: with volumes, variables, probes,
// annotations and labels that nobody here reads.
func realisticPod(ns string, i int) *corev1.Pod {
	container := func(name string, port int32) corev1.Container {
		c := corev1.Container{
			Name: name, Image: "registry.example.com/team/vllm-runtime:1.6.1@sha256:" + strings.Repeat("ab", 32),
			Command: []string{"python3", "-m", "dynamo.vllm"}, Args: strings.Fields(strings.Repeat("--some-option some-value ", 20)),
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port}, {Name: "system", ContainerPort: 9090 + port}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("64Gi")},
			},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}},
		}
		for n := range 40 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("%s_VARIABLE_%d", strings.ToUpper(name), n), Value: strings.Repeat("value ", 5)})
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: "DYN_COMPONENT", Value: "worker"})
		for n := range 6 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint("volume-", n), MountPath: fmt.Sprint("/mnt/volume/", name, n)})
		}
		return c
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: podName(i),
			Labels:      map[string]string{"app": "llm", "pod-template-hash": "7d9f8c6b5", "apps.kubernetes.io/pod-index": strconv.Itoa(i)},
			Annotations: map[string]string{"example.com/config": strings.Repeat("configuration ", 150)},
		},
		Spec: corev1.PodSpec{NodeName: testcluster.Node, Containers: []corev1.Container{container("main", 8000), container("proxy", 8001)}},
	}
	for n := range 12 {
		pod.Labels[fmt.Sprintf("nvidia.com/dynamo-label-%d", n)] = fmt.Sprintf("value-of-label-%d", n)
	}
	for n := range 6 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", n), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return pod
}

func realisticStatus(i int) corev1.PodStatus {
	ip := fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255)
	s := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	for _, name := range []string{"main", "proxy"} {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example.com/team/vllm-runtime:1.6.1", ImageID: "sha256:" + strings.Repeat("ab", 32),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return s
}

// child follows a pool until all its workers are there, and prints its memory.
func child() int {
	workers, err := strconv.Atoi(os.Getenv(workersVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, workersVariable, err)
		return 1
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	debug.FreeOSMemory()
	before := resident("VmRSS")
	all := make(chan struct{})
	found := sync.OnceFunc(func() { close(all) })
	var file v1alpha1.RoutingPolicySpec
	file.Default()
	nodes := os.Getenv(nodesVariable) != ""
	if nodes {
		file.Topology.LabelsFrom = v1alpha1.LabelsFromPodsAndNodes
	}
	w, err := New(Config{
		Discovery: v1alpha1.KubernetesDiscovery{
			Pool:       &v1alpha1.PoolReference{Name: "pool", Namespace: os.Getenv(childVariable)},
			Kubeconfig: os.Getenv("KUBECONFIG"), WorkerIdentity: v1alpha1.IdentityPod,
		},
		File: &file,
		Publish: func(s *fleet.Snapshot) {
			placed := !slices.ContainsFunc(s.Workers, func(w fleet.Worker) bool { return w.Site.Location().Rack == "" })
			if len(s.Workers) == workers && (placed || !nodes) {
				found()
			}
		},
		Restarted: func(fleet.Key) {},
		Apply:     func(context.Context, *v1alpha1.RoutingPolicySpec) error { return nil },
		Observe:   func() Observation { return Observation{} },
		Log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	select {
	case <-all:
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "the pods do not come:", w.Synced())
		return 1
	}
	peak := resident("VmHWM")
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	fmt.Println(before, peak, heap.HeapAlloc)
	stop()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// resident reads a figure of this process, in bytes.
func resident(name string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// BenchmarkPopulate is one new pool of 2,000 pods, as after any change of one.
func BenchmarkPopulate(b *testing.B) {
	pods := make([]*corev1.Pod, manyPods)
	for i := range pods {
		p := realisticPod("ns", i)
		p.Status = realisticStatus(i)
		trimmed, err := trimPod(nil)(p)
		if err != nil {
			b.Fatal(err)
		}
		pods[i] = trimmed.(*corev1.Pod)
	}
	var l lives
	b.ReportAllocs()
	for b.Loop() {
		p := populate(testTarget(8000), pods, nil, testRules())
		l.see(p.processes, time.Time{})
		if len(p.workers) != manyPods {
			b.Fatal(len(p.workers))
		}
	}
}
