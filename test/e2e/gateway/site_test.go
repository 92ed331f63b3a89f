package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/simengine"
)

const (
	release    = "llm" // of the chart; also the name of the pool, the route and the policy
	model      = "warmpath/demo"
	blockSize  = 16
	workerPort = 8000
)

// tree is a piece of YAML.
type tree = map[string]any

// site is one installation of the chart, in a namespace of its own, and its workers.
// Requests reach it by its host name.
type site struct {
	t       *testing.T
	ns      string
	values  tree
	workers []*worker
	started int // pickers so far
	pickers []*picker
}

// newSite makes a namespace. change (may be nil) changes the values of the chart;
// they take effect with deploy.
func newSite(t *testing.T, change func(values tree)) *site {
	t.Helper()
	s := &site{t: t, ns: mesh.cluster.Namespace(t)}
	s.values = tree{
		"crds":         tree{"enabled": false},
		"gateway":      tree{"preset": "istio"},
		"replicaCount": 1,
		"nats":         tree{"url": mesh.bus.ClientURL(), "namespace": s.ns},
		"inferencePool": tree{
			"create": true, "name": release, "matchLabels": tree{"app": "llm"},
			"targetPorts": []any{workerPort},
		},
		"httpRoute": tree{
			"create": true, "hostnames": []any{s.host()},
			"parentRefs": []any{tree{"name": edgeName, "namespace": edgeNamespace}},
		},
		"routingPolicy": tree{"create": true, "spec": tree{
			"blockSize": blockSize,
			// Without guesses affinity comes from the workers' events alone.
			"eventPlane": tree{"speculationTTL": "0s"},
		}},
		"config": tree{"server": tree{"drainTimeout": "1500ms"}}, // enough where nothing is under way
	}
	if change != nil {
		change(s.values)
	}
	return s
}

// host is the name in requests for this site.
func (s *site) host() string { return s.ns + ".test" }

// set changes one of the chart's values.
func set(values tree, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		next, ok := values[name].(tree)
		if !ok {
			next = tree{}
			values[name] = next
		}
		values = next
	}
	values[path[len(path)-1]] = value
}

// deploy renders the chart with the values and applies what it makes.
func (s *site) deploy() {
	s.t.Helper()
	text, err := yaml.Marshal(s.values)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	rendered, err := have.Helm.Template(s.t.Context(), root, release, s.ns, "-f", path)
	if err != nil {
		s.t.Fatal(err)
	}
	objects, err := decode(rendered)
	if err != nil {
		s.t.Fatal(err)
	}
	// Hooks are not applied with the rest.
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()["helm.sh/hook"] != ""
	})
	if err := mesh.apply(s.t.Context(), objects); err != nil {
		s.t.Fatal(err)
	}
}

// start deploys, runs as many pickers as the values say, and returns when requests
// are answered by way of them. Workers must be there.
func (s *site) start() {
	s.t.Helper()
	s.deploy()
	if err := mesh.publishPool(s.t.Context(), s.ns, release, workerPort, map[string]string{"app": "llm"}); err != nil {
		s.t.Fatal(err)
	}
	for range *s.deployment().Spec.Replicas {
		s.startPicker()
	}
	s.accepted()
	eventually(s.t, "requests are answered by way of a picker", func() error {
		r, err := s.send("/v1/completions", completion(tokens(999, 1)))
		if err != nil {
			return err
		}
		if r.status != http.StatusOK {
			return fmt.Errorf("answer %d %s", r.status, r.body)
		}
		for _, p := range s.pickers {
			if p.metric("warmpath_decisions_total") > 0 {
				return nil
			}
		}
		return errors.New("no picker was asked: the gateway failed open")
	})
	s.reachable()
}

// reachable waits until the gateway knows all workers. Until then it sends what a picker
// meant for one of them elsewhere.
func (s *site) reachable() {
	s.t.Helper()
	eventually(s.t, "the gateway knows all workers", func() error {
		clusters, err := fetch("http://" + at(envoyAdmin) + "/clusters")
		if err != nil {
			return err
		}
		for _, w := range s.workers {
			if !strings.Contains(clusters, w.addr.String()+"::") {
				return fmt.Errorf("it does not know %s at %s", w.name, w.addr)
			}
		}
		return nil
	})
}

// deployment is the pickers' Deployment, as the API server has it.
func (s *site) deployment() *deployment {
	s.t.Helper()
	var list appsv1.DeploymentList
	if err := mesh.cluster.Client().List(s.t.Context(), &list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	if len(list.Items) != 1 {
		s.t.Fatalf("%d Deployments, want 1", len(list.Items))
	}
	return &deployment{list.Items[0]}
}

// accepted waits until the gateway has taken pool and route.
func (s *site) accepted() {
	s.t.Helper()
	key := client.ObjectKey{Namespace: s.ns, Name: release}
	eventually(s.t, "the InferencePool is accepted", func() error {
		var pool inferencev1.InferencePool
		if err := mesh.cluster.Client().Get(s.t.Context(), key, &pool); err != nil {
			return err
		}
		if len(pool.Status.Parents) != 1 {
			return fmt.Errorf("%d parents", len(pool.Status.Parents))
		}
		return wantTrue(generic(s.t, pool.Status.Parents[0].Conditions), "Accepted", "ResolvedRefs")
	})
	eventually(s.t, "the HTTPRoute is accepted", func() error {
		var route gatewayv1.HTTPRoute
		if err := mesh.cluster.Client().Get(s.t.Context(), key, &route); err != nil {
			return err
		}
		if len(route.Status.Parents) != 1 {
			return fmt.Errorf("%d parents", len(route.Status.Parents))
		}
		return wantTrue(generic(s.t, route.Status.Parents[0].Conditions), "Accepted", "ResolvedRefs")
	})
}

// policy is the RoutingPolicy as it is now.
func (s *site) policy() *v1alpha1.RoutingPolicy {
	s.t.Helper()
	var p v1alpha1.RoutingPolicy
	if err := mesh.cluster.Client().Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: release}, &p); err != nil {
		s.t.Fatal(err)
	}
	return &p
}

// policyIs waits until the policy as it is now has conditions that are True.
func (s *site) policyIs(types ...string) {
	s.t.Helper()
	eventually(s.t, "the RoutingPolicy is "+strings.Join(types, ", "), func() error {
		p := s.policy()
		for _, c := range p.Status.Conditions {
			if c.ObservedGeneration != p.Generation {
				return fmt.Errorf("condition %s is about generation %d, not %d", c.Type, c.ObservedGeneration, p.Generation)
			}
		}
		return wantTrue(generic(s.t, p.Status.Conditions), types...)
	})
}

// generic turns a list of structs into what its YAML decodes to.
func generic(t *testing.T, list any) []any {
	t.Helper()
	text, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var out []any
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// worker is a simulated worker, and its pod.
type worker struct {
	*simengine.Engine
	name string
	role fleet.Role
	addr netip.AddrPort
	stop func() // as a crash would; the pod stays as it is
}

// labels that Dynamo's operator puts on the pods of workers.
var labels = map[fleet.Role]map[string]string{
	fleet.Aggregated: {"app": "llm", "nvidia.com/dynamo-component-type": "worker"},
	fleet.Prefill:    {"app": "llm", "nvidia.com/dynamo-component-type": "worker", "nvidia.com/dynamo-sub-component-type": "prefill"},
	fleet.Decode:     {"app": "llm", "nvidia.com/dynamo-component-type": "worker", "nvidia.com/dynamo-sub-component-type": "decode"},
}

// worker starts a worker, and reports its pod as ready.
func (s *site) worker(name string, role fleet.Role, change func(*simengine.Config)) *worker {
	s.t.Helper()
	w := &worker{name: name, role: role, addr: netip.AddrPortFrom(mesh.address(), workerPort)}
	cfg := simengine.Config{
		Name: name, Listen: w.addr.String(), Role: role, Model: model, BlockSize: blockSize,
		NATSURL: mesh.bus.ClientURL(), Namespace: s.ns, Generation: dynamo.Gen14,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.Engine, err = simengine.New(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	w.stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				s.t.Errorf("%s: %v", name, err)
			}
		}
	}
	s.t.Cleanup(w.stop)
	mesh.cluster.CreatePod(s.t, testcluster.Pod{
		Namespace: s.ns, Name: name, Labels: labels[role], IPs: []string{w.addr.Addr().String()},
	})
	s.workers = append(s.workers, w)
	return w
}
