package kube

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

func testRules() rules {
	var spec v1alpha1.RoutingPolicySpec
	spec.Default()
	return rules{
		roles: fleet.RoleRules(spec.Roles), sites: siteRules(&spec.Topology), identity: v1alpha1.IdentityPod,
		activePorts: []string{"llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"},
	}
}

func testTarget(ports ...uint16) target {
	return target{selector: labels.SelectorFromSet(labels.Set{"app": "llm"}), ports: ports, where: "InferencePool ns/pool"}
}

// pod is a pod of the pool that is ready, at an address of its own.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name), Labels: map[string]string{"app": "llm"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 8000}}}}},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func annotate(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func ip(addresses ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "", nil
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		if len(addresses) > 0 {
			p.Status.PodIP = addresses[0]
		}
	}
}

func notReadyPod(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func env(container int, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[container].Env = []corev1.EnvVar{{Name: "DYN_COMPONENT", Value: value}}
	}
}

// two adds a second container, which serves port 8001 and is not ready.
func two(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "engine-1", Ports: []corev1.ContainerPort{{ContainerPort: 8001}}}, corev1.Container{Name: "proxy"})
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "engine-1", RestartCount: 4}, corev1.ContainerStatus{Name: "proxy", RestartCount: 9, Ready: true})
}

func saying(names []string, s *said) map[string]*workerMetadata {
	m := map[string]*workerMetadata{}
	for _, name := range names {
		m[name] = &workerMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}, said: s}
	}
	return m
}

// brief writes workers as name/rank@endpoint role.
func brief(workers []fleet.Worker) (list []string) {
	for _, w := range workers {
		list = append(list, fmt.Sprintf("%s/%d@%s %s", w.Name, w.Rank, w.Endpoint, w.Role))
	}
	return list
}

func TestPodsBecomeWorkers(t *testing.T) {
	const legacy, newer = "inference.networking.k8s.io/active-ports", "llm-d.ai/active-ports"
	for name, tc := range map[string]struct {
		ports    []uint16
		pods     []*corev1.Pod
		metadata map[string]*workerMetadata
		identity v1alpha1.WorkerIdentity
		want     []string
	}{
		"plain":          {pods: []*corev1.Pod{pod("a")}, want: []string{"a/0@10.0.0.1:8000 Aggregated"}},
		"other label":    {pods: []*corev1.Pod{pod("a", label("app", "web"))}},
		"no labels":      {pods: []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Labels = nil })}},
		"not ready":      {pods: []*corev1.Pod{pod("a", notReadyPod)}},
		"no conditions":  {pods: []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Conditions = nil })}},
		"terminating":    {pods: []*corev1.Pod{pod("a", terminating)}},
		"no address":     {pods: []*corev1.Pod{pod("a", ip())}},
		"bad address":    {pods: []*corev1.Pod{pod("a", ip("host"))}},
		"0.0.0.0":        {pods: []*corev1.Pod{pod("a", ip("0.0.0.0"))}},
		"address, zone":  {pods: []*corev1.Pod{pod("a", ip("fe80::1%eth0"))}},
		"IPv6":           {pods: []*corev1.Pod{pod("a", ip("fd00::7"))}, want: []string{"a/0@[fd00::7]:8000 Aggregated"}},
		"dual, 6 first":  {pods: []*corev1.Pod{pod("a", ip("fd00::7", "10.0.0.7"))}, want: []string{"a/0@[fd00::7]:8000 Aggregated"}},
		"dual, 4 first":  {pods: []*corev1.Pod{pod("a", ip("10.0.0.7", "fd00::7"))}, want: []string{"a/0@10.0.0.7:8000 Aggregated"}},
		"IPv4 in IPv6":   {pods: []*corev1.Pod{pod("a", ip("::ffff:10.0.0.7"))}, want: []string{"a/0@10.0.0.7:8000 Aggregated"}},
		"only in podIPs": {pods: []*corev1.Pod{pod("a", ip("10.0.0.7"), func(p *corev1.Pod) { p.Status.PodIP = "" })}, want: []string{"a/0@10.0.0.7:8000 Aggregated"}},
		"several ports": {
			ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a")},
			want: []string{"a/0@10.0.0.1:8000 Aggregated", "a/1@10.0.0.1:8001 Aggregated"},
		},
		"active port": {
			ports: []uint16{8000, 8001, 8002}, pods: []*corev1.Pod{pod("a", annotate(newer, " 8001 ,8002,"))},
			want: []string{"a/1@10.0.0.1:8001 Aggregated", "a/2@10.0.0.1:8002 Aggregated"},
		},
		"first annotation counts": {
			ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a", annotate(legacy, "8000"), annotate(newer, "8001"))},
			want: []string{"a/1@10.0.0.1:8001 Aggregated"},
		},
		"old annotation": {
			ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a", annotate(legacy, "8000"))},
			want: []string{"a/0@10.0.0.1:8000 Aggregated"},
		},
		"no active port": {ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a", annotate(newer, ""))}},
		"unknown active port": {
			ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a", annotate(newer, "9000,8000,x,99999999"))},
			want: []string{"a/0@10.0.0.1:8000 Aggregated"},
		},
		"ranks behind one port": {
			pods: []*corev1.Pod{pod("a")}, metadata: saying([]string{"a"}, &said{ranks: 2, startRank: 4}),
			want: []string{"a/4@10.0.0.1:8000 Aggregated", "a/5@10.0.0.1:8000 Aggregated"},
		},
		"ports win over ranks": {
			ports: []uint16{8000, 8001}, pods: []*corev1.Pod{pod("a")}, metadata: saying([]string{"a"}, &said{ranks: 8}),
			want: []string{"a/0@10.0.0.1:8000 Aggregated", "a/1@10.0.0.1:8001 Aggregated"},
		},
		"containers": {
			ports: []uint16{8000, 8001}, identity: v1alpha1.IdentityContainer, pods: []*corev1.Pod{pod("a", two)},
			want: []string{"a/0@10.0.0.1:8000 Aggregated"},
		},
		"containers, pod not Ready": {
			ports: []uint16{8000, 8001}, identity: v1alpha1.IdentityContainer,
			pods: []*corev1.Pod{pod("a", two, notReadyPod, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = true })},
			want: []string{"a/0@10.0.0.1:8000 Aggregated", "a-engine-1/0@10.0.0.1:8001 Aggregated"},
		},
		"containers with ranks": {
			ports: []uint16{8000, 8001}, identity: v1alpha1.IdentityContainer, pods: []*corev1.Pod{pod("a")},
			metadata: saying([]string{"a"}, &said{ranks: 2}),
			want:     []string{"a/0@10.0.0.1:8000 Aggregated", "a/1@10.0.0.1:8000 Aggregated"},
		},
		"containers without a port": {identity: v1alpha1.IdentityContainer, ports: []uint16{9999}, pods: []*corev1.Pod{pod("a", two)}},
		"environment": {
			pods: []*corev1.Pod{pod("a", env(0, "prefill")), pod("b", env(0, "prefill"), label("DYN_COMPONENT", "decode"))},
			want: []string{"a/0@10.0.0.1:8000 Prefill", "b/0@10.0.0.1:8000 Decode"},
		},
		"environment of its own container": {
			ports: []uint16{8000, 8001}, identity: v1alpha1.IdentityContainer,
			pods: []*corev1.Pod{pod("a", two, env(0, "prefill"), env(1, "decode"), func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = true })},
			want: []string{"a/0@10.0.0.1:8000 Prefill", "a-engine-1/0@10.0.0.1:8001 Decode"},
		},
		"unknown word": {pods: []*corev1.Pod{pod("a", label("llm-d.ai/role", "planner")), pod("b")}, want: []string{"b/0@10.0.0.1:8000 Aggregated"}},
		"one known word is enough": {
			pods: []*corev1.Pod{pod("a", label("llm-d.ai/role", "prefill"), label("DYN_COMPONENT", "VllmPrefillWorker"))},
			want: []string{"a/0@10.0.0.1:8000 Prefill"},
		},
		"conflict, first label wins": {
			pods: []*corev1.Pod{pod("a", label("llm-d.ai/role", "prefill"), label("nvidia.com/dynamo-component-type", "decode"))},
			want: []string{"a/0@10.0.0.1:8000 Decode"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.ports == nil {
				tc.ports = []uint16{8000}
			}
			r := testRules()
			if tc.identity != "" {
				r.identity = tc.identity
			}
			got := populate(testTarget(tc.ports...), tc.pods, tc.metadata, r)
			byName := map[string]bool{}
			for _, w := range brief(got.workers) {
				byName[w] = true
			}
			for _, w := range tc.want {
				if !byName[w] {
					t.Errorf("no worker %s", w)
				}
			}
			if len(got.workers) != len(tc.want) {
				t.Errorf("workers %v, want %v", brief(got.workers), tc.want)
			}
			if _, err := fleet.NewSnapshot(got.workers); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWorkersHaveDynamoIdentity(t *testing.T) {
	r := testRules()
	r.identity = v1alpha1.IdentityContainer
	ready := func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = true }
	got := populate(testTarget(8000, 8001), []*corev1.Pod{pod("worker-0", two, ready)}, nil, r).workers
	// Known answers: dynamo.md 3.1 and dynamo-live.md section 2.
	if len(got) != 2 || got[0].ID != 1186445869714687 || got[1].ID != 4054906713372226 {
		t.Errorf("ids of %v, want those of worker-0 and worker-0-engine-1", got)
	}
}

func TestWorkersCarryWhatTheySay(t *testing.T) {
	metadata := recorded(t, "1.2.1")
	one := pod("worker-0", func(p *corev1.Pod) { p.UID = "u-worker-0" })
	got := populate(testTarget(8000), []*corev1.Pod{one}, metadata, testRules()).workers
	want := []fleet.Worker{{
		Key: fleet.Key{ID: 1186445869714687}, Name: "worker-0", Endpoint: netip.MustParseAddrPort("10.0.0.1:8000"),
		Recovery: "127.0.0.1:39593/43710f49c0cff/worker_kv_indexer_query_dp0", Says: fleet.Say(metadata["worker-0"].said.Advertised),
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, fleet.Says{}, fleet.Site{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	one.UID = "another" // the pod came back; what is there is of the one before
	got = populate(testTarget(8000), []*corev1.Pod{one}, metadata, testRules()).workers
	if len(got) != 1 || got[0].Recovery != "" || got[0].Says != (fleet.Says{}) {
		t.Errorf("an older pod's metadata counts: %+v", got)
	}
}

func TestProblemsOfPods(t *testing.T) {
	many := []*corev1.Pod{pod("x")}
	for i := range 30 {
		many = append(many, pod(fmt.Sprintf("p%02d", i), label("llm-d.ai/role", "planner")))
	}
	for name, tc := range map[string]struct {
		pods   []*corev1.Pod
		reason string
		words  []string // in its message
	}{
		"none matches":  {[]*corev1.Pod{pod("a", label("app", "web"))}, reasonNoReadyPods, []string{"none of the 1 pods", `"app=llm"`, "ns/pool"}},
		"no pod at all": {nil, reasonNoReadyPods, []string{"none of the 0 pods"}},
		"none is ready": {
			[]*corev1.Pod{pod("a", notReadyPod), pod("b", notReadyPod), pod("c", terminating), pod("d", ip())},
			reasonNoReadyPods,
			[]string{"of 4 that match", "2 not Ready (a, b)", "1 terminating (c)", "1 without an IP address (d)"},
		},
		"no port":      {[]*corev1.Pod{pod("a", annotate("llm-d.ai/active-ports", ""))}, reasonNoReadyPods, []string{"1 without an active port (a)"}},
		"port":         {[]*corev1.Pod{pod("a", annotate("llm-d.ai/active-ports", "8000, 9000"))}, reasonUnknownPort, []string{"llm-d.ai/active-ports", `"9000"`, "these pods: a;"}},
		"word":         {[]*corev1.Pod{pod("a", label("llm-d.ai/role", "planner")), pod("b")}, reasonUnknownRole, []string{`llm-d.ai/role has "planner"`, ": a;", "spec.roles"}},
		"many":         {many, reasonUnknownRole, []string{"p00, p01", "p09 and 20 more"}},
		"conflict":     {[]*corev1.Pod{pod("x"), pod("a", label("llm-d.ai/role", "prefill"), label("DYN_COMPONENT", "decode"))}, reasonConflictingRoles, []string{`DYN_COMPONENT has "decode"`, `llm-d.ai/role has "prefill"`, ": a;"}},
		"no decode":    {[]*corev1.Pod{pod("a", label("llm-d.ai/role", "prefill"))}, reasonNoDecode, []string{"1 prefill", "refused"}},
		"no prefill":   {[]*corev1.Pod{pod("a", label("llm-d.ai/role", "decode"))}, reasonNoPrefill, []string{"1 decode", "spec.roles.aggregated"}},
		"decode waits": {[]*corev1.Pod{pod("a", label("llm-d.ai/role", "prefill")), pod("b", label("llm-d.ai/role", "decode"), notReadyPod)}, reasonNoDecode, []string{"1 prefill"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := populate(testTarget(8000), tc.pods, nil, testRules())
			all := append(p.refs, p.roles...)
			if len(all) != 1 || all[0].Reason != tc.reason {
				t.Fatalf("problems %+v, want one %s", all, tc.reason)
			}
			for _, word := range tc.words {
				if !strings.Contains(all[0].Message, word) {
					t.Errorf("message %q lacks %q", all[0].Message, word)
				}
			}
		})
	}
}

func TestSoundPoolsHaveNoProblem(t *testing.T) {
	prefill, decode := label("llm-d.ai/role", "prefill"), label("llm-d.ai/role", "decode")
	for name, pods := range map[string][]*corev1.Pod{
		"aggregated": {pod("a"), pod("b", notReadyPod)},
		"split":      {pod("a", prefill), pod("b", decode)},
		"mixed":      {pod("a", prefill), pod("b")},
		"type and sub-type": {
			pod("a", label("nvidia.com/dynamo-component-type", "worker"), label("nvidia.com/dynamo-sub-component-type", "prefill")),
			pod("b", label("nvidia.com/dynamo-component-type", "worker"), label("nvidia.com/dynamo-sub-component-type", "decode")),
		},
	} {
		p := populate(testTarget(8000), pods, nil, testRules())
		if len(p.refs)+len(p.roles) > 0 {
			t.Errorf("%s: %v %v", name, p.refs, p.roles)
		}
	}
}

// A pod a-b with container main and a pod a with container b have one id.
func TestOlderOfTwinsStays(t *testing.T) {
	r := testRules()
	r.identity = v1alpha1.IdentityContainer
	age := func(seconds int64, container string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.Unix(seconds, 0)
			p.Spec.Containers[0].Name, p.Status.ContainerStatuses[0].Name = container, container
		}
	}
	pods := []*corev1.Pod{pod("a", age(20, "b"), ip("10.0.0.2")), pod("a-b", age(10, "main"), ip("10.0.0.9")), pod("c", age(30, "main"))}
	for range 2 {
		p := populate(testTarget(8000), pods, nil, r)
		if len(p.workers) != 2 {
			t.Fatalf("workers %v", brief(p.workers))
		}
		if _, err := fleet.NewSnapshot(p.workers); err != nil {
			t.Fatal(err)
		}
		for _, w := range p.workers {
			if w.ID == fleet.WorkerID("a-b") && w.Endpoint.Addr().String() != "10.0.0.9" {
				t.Errorf("the younger pod at %s stays", w.Endpoint)
			}
		}
		if len(p.roles) != 1 || p.roles[0].Reason != reasonDuplicateWorker || !strings.Contains(p.roles[0].Message, "pod a)") {
			t.Errorf("problems %v", p.roles)
		}
		pods[0], pods[1] = pods[1], pods[0] // the order of the list does not count
	}
}

func TestComparesWorkersWithSpec(t *testing.T) {
	var spec v1alpha1.RoutingPolicySpec
	spec.Default()
	prefill := label("llm-d.ai/role", "prefill")
	for name, tc := range map[string]struct {
		said   said
		pod    *corev1.Pod
		reason string
		words  []string
	}{
		"all is well":      {said: said{Advertised: fleet.Advertised{BlockSize: 16, Component: "backend", Type: "aggregated"}, ids: []uint64{fleet.WorkerID("a")}}, pod: pod("a")},
		"silent":           {pod: pod("a")},
		"block size":       {said{Advertised: fleet.Advertised{BlockSize: 32}}, pod("a"), reasonBlockSize, []string{"blockSize is 16", "theirs is 32", ": a;", "set spec.blockSize to 32"}},
		"type":             {said{Advertised: fleet.Advertised{Type: "decode"}}, pod("a", prefill), reasonRole, []string{"role Prefill", "they are decode", ": a;"}},
		"component":        {said{Advertised: fleet.Advertised{Component: "prefill"}}, pod("a"), reasonRole, []string{"role Aggregated", "component prefill"}},
		"not of component": {said{Advertised: fleet.Advertised{Component: "backend"}}, pod("a", prefill), reasonRole, []string{"role Prefill", "component backend"}},
		"decode, old":      {said: said{Advertised: fleet.Advertised{Component: "backend"}}, pod: pod("a", label("llm-d.ai/role", "decode"))},
		"id":               {said{ids: []uint64{7}}, pod("a"), reasonWorkerID, []string{"workerIdentity", ": a;"}},
		"zmq":              {said{zmq: true}, pod("a"), reasonZMQ, []string{"DYN_EVENT_PLANE=nats", ": a;"}},
		"odd":              {said{faults: []string{"spec.data: x"}}, pod("a"), reasonBadMetadata, []string{"spec.data: x", ": a;"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := populate(testTarget(8000), []*corev1.Pod{tc.pod}, saying([]string{"a"}, &tc.said), testRules())
			got := compare(p.processes, &spec, testRules())
			if tc.reason == "" {
				if len(got) > 0 {
					t.Errorf("problems %v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Reason != tc.reason {
				t.Fatalf("problems %v, want one %s", got, tc.reason)
			}
			for _, word := range tc.words {
				if !strings.Contains(got[0].Message, word) {
					t.Errorf("message %q lacks %q", got[0].Message, word)
				}
			}
		})
	}
	spec.EventPlane.Disabled = true
	p := populate(testTarget(8000), []*corev1.Pod{pod("a")}, saying([]string{"a"}, &said{zmq: true}), testRules())
	if got := compare(p.processes, &spec, testRules()); len(got) > 0 {
		t.Errorf("events are off, but: %v", got)
	}
}

func TestRestartsAreFound(t *testing.T) {
	restarted := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = n }
	}
	uid := func(u types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = u } }
	var l lives
	now := time.Unix(0, 0)
	for i, step := range []struct {
		after time.Duration
		pods  []*corev1.Pod
		said  *said
		want  []uint32 // ranks of a that began anew
	}{
		{pods: []*corev1.Pod{pod("a", restarted(3))}},                                              // first sight
		{pods: []*corev1.Pod{pod("a", restarted(3))}},                                              // nothing new
		{pods: []*corev1.Pod{pod("a", restarted(4), notReadyPod)}, want: []uint32{0}},              // ready or not
		{pods: []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })}},  // no status for a moment
		{pods: []*corev1.Pod{pod("a", restarted(4))}},                                              // and back
		{pods: []*corev1.Pod{pod("a", restarted(4))}, said: &said{ranks: 2}},                       // now it says that it has two ranks
		{pods: []*corev1.Pod{pod("a", restarted(5))}, said: &said{ranks: 2}, want: []uint32{0, 1}}, // each
		{pods: nil}, // gone
		{after: time.Minute, pods: []*corev1.Pod{pod("a", uid("new"), ip())}, want: []uint32{1, 0}}, // back under its name, silent as yet
		{pods: []*corev1.Pod{pod("a", uid("new"), restarted(1), terminating)}, want: []uint32{0}},   // terminating
		{pods: nil},
		{after: 2 * remembered, pods: nil},
		{pods: []*corev1.Pod{pod("a", uid("newer"))}}, // long forgotten
		{after: 2 * remembered, pods: nil},            // it goes after hours in which nothing changed
		{pods: []*corev1.Pod{pod("a", uid("newest"))}, want: []uint32{0}},
	} {
		now = now.Add(step.after)
		p := populate(testTarget(8000), step.pods, saying([]string{"a"}, step.said), testRules())
		var want []fleet.Key
		for _, rank := range step.want {
			want = append(want, fleet.Key{ID: fleet.WorkerID("a"), Rank: rank})
		}
		if diff := cmp.Diff(want, l.see(p.processes, now)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// The restart of a container that serves no target port costs no cache.
func TestRestartsPerContainer(t *testing.T) {
	r := testRules()
	other := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses[2].RestartCount = n }
	}
	for identity, want := range map[v1alpha1.WorkerIdentity]int{v1alpha1.IdentityContainer: 0, v1alpha1.IdentityPod: 0} {
		var l lives
		r.identity = identity
		l.see(populate(testTarget(8000, 8001), []*corev1.Pod{pod("a", two, other(1))}, nil, r).processes, time.Unix(0, 0))
		got := l.see(populate(testTarget(8000, 8001), []*corev1.Pod{pod("a", two, other(2))}, nil, r).processes, time.Unix(0, 0))
		if len(got) != want {
			t.Errorf("%s: the proxy's restart is one of %v", identity, got)
		}
	}
}

// TestSitesOfPods: where a pod runs is what its labels say, and its node where they
// name no host. Trimming a pod loses none of it.
func TestSitesOfPods(t *testing.T) {
	node := func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want fleet.Location
	}{
		"nothing known": {pod("a"), fleet.Location{}},
		"node":          {pod("a", node), fleet.Location{Host: "node-1"}},
		"no labels":     {pod("a", node, func(p *corev1.Pod) { p.Labels = nil }), fleet.Location{Host: "node-1"}},
		"labels": {
			pod("a", node, label("topology.kubernetes.io/zone", "z1"), label("topology.kubernetes.io/region", "eu"), label("kubernetes.io/hostname", "h1"),
				label("topology.kubernetes.io/rack", "r1"), label("nvidia.com/gpu.clique", "c1"), label("llm-d.ai/engine-type", "vllm")),
			fleet.Location{Zone: "z1", Host: "h1", Rack: "r1", Fabric: "c1", Connector: "vllm"},
		},
		"labels of Dynamo": {
			pod("a", label("dynamo.topology/zone", "z1"), label("dynamo.topology/rack", "r1"), label("dynamo.topology/host", "h1"), label("dynamo.topology/fabric", "f1"),
				label("inference.networking.k8s.io/engine-type", "sglang")),
			fleet.Location{Zone: "z1", Host: "h1", Rack: "r1", Fabric: "f1", Connector: "sglang"},
		},
	} {
		trimmed, err := trimPod(nil)(tc.pod)
		if err != nil {
			t.Fatal(err)
		}
		r := testRules()
		if got := siteOf(&r, trimmed.(*corev1.Pod)).Location(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	p := populate(testTarget(8000, 8001), []*corev1.Pod{pod("a", node)}, nil, testRules())
	if len(p.workers) != 2 || p.workers[0].Site != p.workers[1].Site || p.workers[1].Site.Location().Host != "node-1" {
		t.Errorf("%+v", p.workers)
	}
}
