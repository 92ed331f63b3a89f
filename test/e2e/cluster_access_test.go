package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestClusterRightMissing takes rights to pods out of the Role. A picker that starts
// then says which it lacks, and what to do; with them back it gets ready by itself.
// Without watch alone it lists again and again, and serves.
func TestClusterRightMissing(t *testing.T) {
	for name, c := range map[string]struct {
		left  []string // verbs
		ready bool
		lacks string
	}{
		"watch":          {[]string{"get", "list"}, true, "watch pods"},
		"list and watch": {[]string{"get"}, false, "list pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := install(t, cluster(t), `routingPolicy.create=true`, `routingPolicy.spec={}`)
			d.denied = true
			d.pods(false)
			d.grantPods(c.left...)
			d.runUnready("epp-0")
			want := func(where, text string) {
				t.Helper()
				for _, part := range []string{"system:serviceaccount:" + d.ns + ":" + account, c.lacks, d.ns, "Role", "rbac.create=true"} {
					if !strings.Contains(text, part) {
						t.Errorf("%s does not name %q: %s", where, part, text)
					}
				}
			}
			said := ""
			eventually(t, "the log tells of what is missing", func() bool {
				for _, r := range d.picker.logged("problem with the pool") { // it may not be the only one
					if text := r.text("message"); strings.Contains(text, c.lacks) {
						said = text
					}
				}
				return said != ""
			})
			want("the log", said)
			want("the condition", d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionFalse, "Forbidden"))
			if c.ready {
				eventually(t, "the picker is ready", func() bool { return get(t, d.admin+"/readyz").status == http.StatusOK })
				d.startGateway(gateway.Config{})
				d.complete(tokens(1, 40))
			} else if r := get(t, d.admin+"/readyz"); r.status != http.StatusServiceUnavailable {
				t.Errorf("/readyz says %d %s", r.status, r.body)
			} else {
				want("/readyz", r.body)
			}
			d.grantPods("get", "list", "watch")
			eventually(t, "the picker is ready", func() bool { return get(t, d.admin+"/readyz").status == http.StatusOK })
			d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionTrue, "ResolvedRefs")
		})
	}
}

// grantPods changes the verbs for pods in the chart's Role.
func (d *deployment) grantPods(verbs ...string) {
	d.t.Helper()
	role := &rbacv1.Role{}
	if err := d.c.Client().Get(d.t.Context(), client.ObjectKey{Namespace: d.ns, Name: account}, role); err != nil {
		d.t.Fatal(err)
	}
	rule := &role.Rules[0]
	if len(rule.Resources) != 1 || rule.Resources[0] != "pods" {
		d.t.Fatalf("the first rule of the Role is about %v, not pods", rule.Resources)
	}
	rule.Verbs = verbs
	if err := d.c.Client().Update(d.t.Context(), role); err != nil {
		d.t.Fatal(err)
	}
	d.awaitRights(verbs...)
}

// awaitRights waits until the API server goes by the chart's Role, of which verbs is
// what it says of pods.
func (d *deployment) awaitRights(verbs ...string) {
	d.t.Helper()
	for _, verb := range []string{"list", "watch"} {
		eventually(d.t, "the API server goes by the Role for "+verb, func() bool {
			return d.c.May(d.t, d.ns, account, verb, "", "pods") == slices.Contains(verbs, verb)
		})
	}
}

// TestClusterNodes has a policy ask for the labels of nodes under traffic, first
// without the chart's ClusterRole: that is said, and costs no request. A label that
// changes then shows in decisions.
func TestClusterNodes(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t), `rbac.nodes=true`, `routingPolicy.create=true`, `routingPolicy.spec={"topology":{"labelsFrom":"PodsAndNodes"}}`)
	d.denied = true
	bindings := d.takeAway("ClusterRoleBinding")
	near, far := d.ns+"-near", d.ns+"-far"
	for name, rack := range map[string]string{near: "r1", far: "r2"} {
		d.apply(object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name, "labels": object{rackLabel: rack}}})
	}
	for i, role := range []fleet.Role{fleet.Prefill, fleet.Decode} {
		name, ip := strings.ToLower(role.String())+"-0", d.ip(i+1)
		d.sim(name, role, "--listen", d.addr(ip))
		d.c.CreatePod(t, testcluster.Pod{Namespace: d.ns, Name: name, Labels: labels(role), IPs: []string{ip}, Node: []string{near, far}[i]})
	}
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	load := d.traffic(2)
	message := d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionFalse, "Forbidden")
	for _, part := range []string{"system:serviceaccount:" + d.ns + ":" + account, "list nodes", "watch nodes", "rbac.nodes=true"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not name %q: %s", part, message)
		}
	}
	if got := d.pairDistance(); got != "elsewhere" {
		t.Errorf("the pair is %s, though nobody could know", got)
	}

	for _, o := range bindings {
		d.apply(o)
	}
	d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionTrue, "ResolvedRefs")
	for _, c := range []struct{ rack, want string }{{"r1", "rack"}, {"r3", "elsewhere"}, {"r1", "rack"}} {
		d.apply(object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": far, "labels": object{rackLabel: c.rack}}})
		eventually(t, "decisions know of rack "+c.rack, func() bool { return d.pairDistance() == c.want })
	}
	load.settle(t)
	load.stop(t)
}

const rackLabel = "topology.kubernetes.io/rack"

// takeAway deletes what the chart made of a kind, and returns it.
func (d *deployment) takeAway(kind string) (all []object) {
	d.t.Helper()
	for _, o := range d.rendered {
		if at(o, "kind") != kind {
			continue
		}
		if err := d.c.Client().Delete(d.t.Context(), &unstructured.Unstructured{Object: o}); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		d.t.Fatalf("the chart makes no %s", kind)
	}
	return all
}

// pairDistance asks how far the workers of the pair are from each other.
func (d *deployment) pairDistance() string {
	d.t.Helper()
	r := post(d.t, d.admin+"/explain?path=/v1/completions", completion(tokens(1, 40)), nil)
	var answer struct{ Pair struct{ Distance string } }
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.status != http.StatusOK {
		d.t.Fatalf("/explain says %d %s: %v", r.status, r.body, err)
	}
	return answer.Pair.Distance
}

// TestClusterSecretComesLater starts a picker whose Secret for NATS is not there,
// as an optional volume allows.
func TestClusterSecretComesLater(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, dir: t.TempDir(), client: newClient(t, false)}
	var err error
	s.bus, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Username: "warmpath", Password: "s3cret",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.bus.Start()
	t.Cleanup(func() { stopNATS(s.bus) })
	if !s.bus.ReadyForConnections(patience) {
		t.Fatal("NATS is not ready")
	}
	s.natsURL = s.bus.ClientURL()
	d := s.install(cluster(t), `nats.existingSecret="nats-auth"`, `nats.userKey="username"`, `nats.passwordKey="password"`,
		`routingPolicy.create=true`, `routingPolicy.spec={"eventPlane":{"speculationTTL":"0s"}}`)
	mounted := filepath.Join(d.secrets(), "nats-auth")
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	d.natsURL = strings.Replace(d.natsURL, "://", "://warmpath:s3cret@", 1) // the workers'
	agg, _ := d.pods(false)
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	d.complete(tokens(1, 100))
	message := d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionFalse, "FileNotFound")
	for _, part := range []string{"spec.eventPlane.nats.userFile", filepath.Join(mounted, "username"), "Secret"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not name %s: %s", part, message)
		}
	}
	for name, content := range map[string]string{"username": "warmpath", "password": "s3cret"} {
		if err := writeFile(mounted, name, content); err != nil {
			t.Fatal(err)
		}
	}
	d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionTrue, "ResolvedRefs")
	d.awaitMetric(1, "warmpath_event_plane_connected")
	d.awaitMetric(1, "warmpath_policy_condition", `type="ResolvedRefs"`)
	d.sticks(tokens(2, 20*blockSize), agg)
	d.awaitCondition(v1alpha1.ConditionEventPlaneHealthy, metav1.ConditionTrue, "Flowing")
	if strings.Contains(d.picker.stderr.String(), "s3cret") {
		t.Error("the log has the password")
	}
}

// TestClusterAPIServerAway takes the API server away for half a minute under
// traffic.
func TestClusterAPIServerAway(t *testing.T) {
	t.Parallel()
	const outage = 30 * time.Second
	cluster(t) // sets up logs of clients
	c := testcluster.StartFor(t, testcluster.Options{})
	d := install(t, c, `routingPolicy.create=true`, `routingPolicy.spec={}`)
	d.pods(false)
	d.run("epp-0")
	d.startGateway(gateway.Config{SubsetHeader: true})
	d.awaitCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	load := d.traffic(2)
	load.settle(t)
	wantNothingRefused(t, d.picker)
	d.denied = true // for a moment: an API server that starts refuses all until it has read the Roles
	const unusable = "API server not usable; requests are routed on by what is known, and it is asked again every second"
	before := len(d.picker.logged(unusable)) // it may have been slow
	c.StopAPI()
	from, back := d.metric("warmpath_decisions_total"), time.Now().Add(outage)
	for time.Now().Before(back) {
		if r := get(t, d.admin+"/readyz"); r.status != http.StatusOK {
			t.Fatalf("/readyz says %d %s", r.status, r.body)
		}
		load.settle(t) // requests are routed
	}
	t.Logf("%v requests were routed while the API server was away", d.metric("warmpath_decisions_total")-from)
	d.picker.wantLogged(t, before+1, unusable)
	c.StartAPI(t)
	d.sim("agg-2", fleet.Aggregated, "--listen", d.addr(d.ip(3)))
	d.createPod("agg-2", labels(fleet.Aggregated), d.ip(3))
	eventually(t, "a pod that is new after the outage gets requests", func() bool {
		name, _ := d.picked(d.addr(d.ip(3)))
		return name == "agg-2"
	})
	d.c.SetReady(t, d.ns, "agg-0", false)
	eventually(t, "a pod that is not ready any more gets none", func() bool {
		_, ok := d.picked(d.addr(d.ip(1)))
		return !ok
	})
	load.stop(t)
	if r := get(t, d.admin+"/readyz"); r.status != http.StatusOK {
		t.Errorf("/readyz says %d %s", r.status, r.body)
	}
	d.awaitColumns(map[string]string{"READY": "True"})
	d.awaitCondition(v1alpha1.ConditionResolvedRefs, metav1.ConditionTrue, "ResolvedRefs")
}
