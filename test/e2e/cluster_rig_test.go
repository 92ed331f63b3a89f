package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/test/chart/helm"
)

const (
	repository = "../.." // the root of it
	release    = "llm"   // the chart's release, and the pool's name
	account    = release + "-warmpath"
	extProc    = 9002 // port of ext-proc in the chart
)

var (
	// sharedCluster starts the cluster of all tests that need none of their own.
	sharedCluster = sync.OnceValues(func() (*testcluster.Cluster, error) {
		log.SetLogger(logr.Discard()) // clients ask for it
		return testcluster.Start(context.Background(), testcluster.Options{})
	})
	// clusterUsed is set before it is started.
	clusterUsed bool
	clusterLock sync.Mutex

	installHelm = sync.OnceValues(func() (helm.Tools, error) {
		return helm.Install(context.Background(), repository, os.Stderr)
	})
)

// cluster returns the shared cluster.
func cluster(t *testing.T) *testcluster.Cluster {
	t.Helper()
	clusterLock.Lock()
	clusterUsed = true
	clusterLock.Unlock()
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// closeCluster ends the shared cluster, if a test used it.
func closeCluster() error {
	clusterLock.Lock()
	defer clusterLock.Unlock()
	if !clusterUsed {
		return nil
	}
	c, err := sharedCluster()
	if err != nil {
		return nil // the test said so
	}
	return c.Close()
}

// object is an object of the API, or what is in it.
type object = map[string]any

// deployment is a whole system whose picker was installed in a cluster with the
// chart, and runs with the chart's service account: what that may not do, it
// cannot. The test takes the part of controllers and kubelets.
type deployment struct {
	*stack

	c        *testcluster.Cluster
	ns       string
	rendered []object
	port     int    // of all workers
	network  string // whose addresses they have, such as 127.4.7.
	// denied says that the picker is meant to be refused something.
	denied bool
}

// install renders the chart for a pool of the pods with the label app=llm and has
// the API server take it. values are given to helm as --set-json.
func install(t *testing.T, c *testcluster.Cluster, values ...string) *deployment {
	t.Helper()
	s := newStack(t)
	return s.install(c, values...)
}

func (s *stack) install(c *testcluster.Cluster, values ...string) *deployment {
	t := s.t
	t.Helper()
	d := &deployment{
		stack: s, c: c, ns: c.Namespace(t), port: testport.Free(t),
		network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)),
	}
	d.rendered = d.render(values...)
	for _, o := range d.rendered {
		d.apply(o)
	}
	d.awaitRights("list", "watch")
	return d
}

func (d *deployment) render(values ...string) []object {
	d.t.Helper()
	tools, err := installHelm()
	if err != nil {
		d.t.Fatal(err)
	}
	args := []string{}
	for _, v := range append([]string{
		`replicaCount=1`,
		`crds.enabled=false`, // the cluster has it
		`nats.url="` + d.natsURL + `"`,
		`nats.namespace="` + namespace + `"`,
		`inferencePool.create=true`,
		`inferencePool.matchLabels={"app":"llm"}`,
		fmt.Sprintf(`inferencePool.targetPorts=[%d]`, d.port),
	}, values...) {
		args = append(args, "--set-json", v)
	}
	out, err := tools.Template(d.t.Context(), repository, release, d.ns, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	var all []object
	for doc := range strings.SplitSeq("\n"+string(out), "\n---") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			d.t.Fatalf("%v in\n%s", err, doc)
		}
		if o != nil && at(o, "metadata", "annotations", "helm.sh/hook") == nil {
			all = append(all, o)
		}
	}
	return all
}

// apply hands an object to the API server as kubectl apply --server-side does.
func (d *deployment) apply(o object) {
	d.t.Helper()
	if err := d.tryApply(o); err != nil {
		d.t.Fatalf("the API server refuses %s %s: %v", at(o, "kind"), at(o, "metadata", "name"), err)
	}
}

func (d *deployment) tryApply(o object) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return d.c.Client().Patch(d.t.Context(), &unstructured.Unstructured{Object: o}, client.RawPatch(types.ApplyPatchType, data),
		client.FieldOwner("test"), client.ForceOwnership, client.FieldValidation("Strict"))
}

// at returns what is at a path of an object, nil where there is nothing.
func at(o object, path ...string) any {
	var v any = o
	for _, name := range path {
		m, _ := v.(object)
		v = m[name]
	}
	return v
}

// config is the configuration that the chart makes, with addresses that are free
// here, and changed further.
func (d *deployment) config(change ...func(config object)) string {
	d.t.Helper()
	for _, o := range d.rendered {
		text, ok := at(o, "data", "config.yaml").(string)
		if !ok {
			continue
		}
		config := object{}
		if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
			d.t.Fatal(err)
		}
		config["server"] = object{
			"extProcAddress": "127.0.0.1:0", "healthAddress": "127.0.0.1:0", "metricsAddress": "127.0.0.1:0",
			"recoveryAddress": "127.0.0.1:0", "drainTimeout": "1500ms",
		}
		as := d.c.ServiceAccountConfig(d.t, d.ns, account)
		config["discovery"].(object)["kubernetes"].(object)["kubeconfig"] = testcluster.Kubeconfig(d.t, as, d.ns)
		for _, f := range change {
			f(config)
		}
		out, err := yaml.Marshal(config)
		if err != nil {
			d.t.Fatal(err)
		}
		return strings.ReplaceAll(string(out), "/etc/warmpath/secrets", d.secrets())
	}
	d.t.Fatal("the chart makes no configuration")
	return ""
}

// secrets is where Secrets are mounted, each as a folder.
func (d *deployment) secrets() string { return filepath.Join(d.dir, "secrets") }

// run runs a picker as a pod would, and returns when it is ready.
func (d *deployment) run(pod string, change ...func(config object)) {
	d.t.Helper()
	d.runUnready(pod, change...)
	eventually(d.t, "the picker is ready", func() bool { return get(d.t, d.admin+"/readyz").status == 200 })
}

// runUnready returns as soon as the picker serves.
func (d *deployment) runUnready(pod string, change ...func(config object)) {
	d.t.Helper()
	d.runPicker(pod, d.config(change...), []string{"POD_NAME=" + pod, "POD_NAMESPACE=" + d.ns})
	picker := d.picker
	d.t.Cleanup(func() {
		if !d.denied {
			wantNothingRefused(d.t, picker)
		}
	})
}

// wantNothingRefused wants the Role to have been enough for all that the picker did.
func wantNothingRefused(t *testing.T, picker *process) {
	t.Helper()
	text := picker.stderr.String()
	if i := strings.Index(strings.ToLower(text), "forbidden"); i >= 0 {
		t.Errorf("%s was refused something:\n%s", picker.name, text[max(0, i-500):min(len(text), i+500)])
	}
}

// another returns a second picker's view of the same system. It has no picker yet.
func (d *deployment) another() *deployment {
	s := *d.stack
	other := *d
	other.stack = &s
	return &other
}

// ip is an address of the workers' network.
func (d *deployment) ip(host int) string { return fmt.Sprint(d.network, host) }

// addr is where a worker of this address serves.
func (d *deployment) addr(ip string) string { return fmt.Sprintf("%s:%d", ip, d.port) }

// roleLabels are the labels that Dynamo's operator gives to the pods of a role.
var roleLabels = map[fleet.Role]string{fleet.Aggregated: "worker", fleet.Prefill: "prefill", fleet.Decode: "decode"}

const roleLabel = "nvidia.com/dynamo-component-type"

// labels are those of a pod of the pool.
func labels(role fleet.Role) map[string]string {
	return map[string]string{"app": "llm", roleLabel: roleLabels[role]}
}

// pod starts a simulated worker in a ready pod of the pool.
func (d *deployment) pod(name string, role fleet.Role, host int, flags ...string) *worker {
	d.t.Helper()
	w := d.sim(name, role, append([]string{"--listen", d.addr(d.ip(host))}, flags...)...)
	d.createPod(name, labels(role), d.ip(host))
	return w
}

// createPod is a kubelet that reports a ready pod.
func (d *deployment) createPod(name string, labels map[string]string, ip string) {
	d.t.Helper()
	d.c.CreatePod(d.t, testcluster.Pod{Namespace: d.ns, Name: name, Labels: labels, IPs: []string{ip}})
}

// pods starts two aggregated workers in pods, or two prefill and two decode workers.
// The first list has those that compute prompts.
func (d *deployment) pods(split bool) (prefill, decode []*worker) {
	d.t.Helper()
	if !split {
		return []*worker{d.pod("agg-0", fleet.Aggregated, 1), d.pod("agg-1", fleet.Aggregated, 2)}, nil
	}
	return []*worker{d.pod("prefill-0", fleet.Prefill, 1), d.pod("prefill-1", fleet.Prefill, 2)},
		[]*worker{d.pod("decode-0", fleet.Decode, 3), d.pod("decode-1", fleet.Decode, 4)}
}
