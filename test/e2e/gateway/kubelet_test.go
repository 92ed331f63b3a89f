package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// deployment is a Deployment of pickers.
type deployment struct{ appsv1.Deployment }

// container is the one container of the pods.
func (d *deployment) container() *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }

// port is the number of a named port.
func (d *deployment) port(name string) (uint16, error) {
	for _, p := range d.container().Ports {
		if p.Name == name {
			return uint16(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("the chart's container has no port %s", name)
}

// picker is a pod of the Deployment: the object, and the process of its container.
type picker struct {
	*testcluster.Process
	site     *site
	pod      string
	addr     netip.Addr
	admin    string // base URL of metrics
	checksum string // of the configuration, by the chart
}

// startPicker does what the controllers and a kubelet do for one replica: it makes
// the pod, runs the command that the Deployment says, as the service account that it
// says, and reports the pod as ready when its readiness probe succeeds.
func (s *site) startPicker() *picker {
	s.t.Helper()
	p := s.launchPicker()
	p.awaitReady()
	return p
}

// launchPicker returns before the picker is ready.
func (s *site) launchPicker() *picker {
	s.t.Helper()
	d := s.deployment()
	s.started++
	p := &picker{
		site: s, pod: fmt.Sprintf("%s-%d", d.Name, s.started), addr: mesh.address(),
		checksum: d.Spec.Template.Annotations["checksum/config"],
	}
	port, err := d.port("http-metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	account := d.Spec.Template.Spec.ServiceAccountName
	eventually(s.t, "the API server goes by the chart's Role", func() error {
		if !mesh.cluster.May(s.t, s.ns, account, "list", "", "pods") {
			return fmt.Errorf("%s may not list pods yet", account)
		}
		return nil
	})
	p.admin = "http://" + netip.AddrPortFrom(p.addr, port).String()
	mesh.cluster.CreatePod(s.t, testcluster.Pod{
		Namespace: s.ns, Name: p.pod, Labels: d.Spec.Template.Labels, Annotations: d.Spec.Template.Annotations,
		IPs: []string{p.addr.String()}, NotReady: true,
		Containers: []corev1.Container{{Name: d.container().Name, Image: d.container().Image, Ports: d.container().Ports}},
	})
	p.run(d)
	s.pickers = append(s.pickers, p)
	return p
}

// run starts the process of the container.
func (p *picker) run(d *deployment) {
	t := p.site.t
	t.Helper()
	args, err := p.mount(d)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=50"}
	for _, e := range d.container().Env {
		value, err := p.resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, e.Name+"="+value)
	}
	if p.Process, err = testcluster.StartProcess(p.pod, env, append([]string{have.EPP}, args...)...); err != nil {
		t.Fatal(err)
	}
	process := p.Process
	t.Cleanup(func() {
		for _, other := range p.site.pickers { // all at once: each takes some time to drain
			other.Terminate()
		}
		if err := process.Stop(); err != nil && !killed(process) {
			t.Error(err)
		}
		out := process.Output()
		if i := strings.Index(out, "WARNING: DATA RACE"); i >= 0 {
			t.Errorf("data race in %s:\n%s", p.pod, out[i:])
		}
		if strings.Contains(strings.ToLower(out), "forbidden") {
			t.Errorf("%s lacks rights that the chart's Role should give", p.pod)
			t.Log(tail(out))
		}
		if t.Failed() {
			t.Logf("end of what %s wrote:\n%s", p.pod, tail(out))
		}
	})
}

// resolve is the value of an environment variable.
func (p *picker) resolve(e corev1.EnvVar) (string, error) {
	if e.ValueFrom == nil {
		return e.Value, nil
	}
	if e.ValueFrom.FieldRef != nil {
		switch e.ValueFrom.FieldRef.FieldPath {
		case "metadata.name":
			return p.pod, nil
		case "metadata.namespace":
			return p.site.ns, nil
		case "status.podIP":
			return p.addr.String(), nil
		}
	}
	return "", fmt.Errorf("the test's kubelet does not know where %s comes from", e.Name)
}

// mount writes the ConfigMaps of the pod to folders, and returns the arguments of the
// container with the paths of these.
func (p *picker) mount(d *deployment) ([]string, error) {
	t := p.site.t
	args := d.container().Args
	for _, m := range d.container().VolumeMounts {
		name := configMap(&d.Spec.Template.Spec, m.Name)
		if name == "" {
			return nil, fmt.Errorf("the test's kubelet mounts ConfigMaps, and volume %s is none", m.Name)
		}
		var cm corev1.ConfigMap
		if err := mesh.cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: p.site.ns, Name: name}, &cm); err != nil {
			return nil, err
		}
		dir := t.TempDir()
		for file, text := range cm.Data {
			adapted, err := p.adapt(d, text)
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(dir, file), adapted, 0o600); err != nil {
				return nil, err
			}
		}
		replaced := make([]string, len(args))
		for i, a := range args {
			replaced[i] = strings.ReplaceAll(a, m.MountPath, dir)
		}
		args = replaced
	}
	return args, nil
}

// configMap is the ConfigMap that a volume consists of.
func configMap(spec *corev1.PodSpec, volume string) string {
	for _, v := range spec.Volumes {
		if v.Name == volume && v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// adapt changes a configuration file in what a pod has and a process on a shared
// network has not: an address of its own, and the files of its service account.
func (p *picker) adapt(d *deployment, text string) ([]byte, error) {
	config := tree{}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return nil, err
	}
	for field, name := range map[string]string{
		"extProcAddress": "grpc-ext-proc", "healthAddress": "grpc-health",
		"metricsAddress": "http-metrics", "recoveryAddress": "recovery",
	} {
		port, err := d.port(name)
		if err != nil {
			return nil, err
		}
		set(config, netip.AddrPortFrom(p.addr, port).String(), "server", field)
	}
	t := p.site.t
	account := d.Spec.Template.Spec.ServiceAccountName
	if err := mesh.cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: p.site.ns, Name: account}, new(corev1.ServiceAccount)); err != nil {
		return nil, err
	}
	rest := mesh.cluster.ServiceAccountConfig(t, p.site.ns, account)
	set(config, testcluster.Kubeconfig(t, rest, p.site.ns), "discovery", "kubernetes", "kubeconfig")
	return yaml.Marshal(config)
}

// awaitReady waits for the readiness probe and reports the pod as ready.
func (p *picker) awaitReady() {
	t := p.site.t
	t.Helper()
	path := p.site.deployment().container().ReadinessProbe.HTTPGet.Path
	eventually(t, p.pod+" is ready", func() error {
		if !p.Running() {
			t.Fatalf("%s ended:\n%s", p.pod, tail(p.Output()))
		}
		return ok(p.admin + path)
	})
	mesh.cluster.SetReady(t, p.site.ns, p.pod, true)
	d := p.site.deployment()
	ports := tree{}
	for _, port := range d.container().Ports {
		ports[port.Name] = int64(port.ContainerPort)
	}
	if err := mesh.publish(t.Context(), p.site.ns, p.pod, p.addr, d.Spec.Template.Labels, ports); err != nil {
		t.Fatal(err)
	}
}

// crash ends the process at once. The pod stays as it is, as it does for some time
// when a node dies.
func (p *picker) crash() { p.Kill() }

// killed says whether the test has ended the process as a crash would.
func killed(p *testcluster.Process) bool { return strings.Contains(p.State(), "killed") }

// restart runs the container of the pod once more.
func (p *picker) restart() {
	t := p.site.t
	t.Helper()
	p.run(p.site.deployment())
	mesh.cluster.Restart(t, p.site.ns, p.pod, "")
	p.awaitReady()
}

// retire does what happens to a pod that a roll-out replaces: it leaves the Service,
// gets SIGTERM when the gateway has noticed (what preStop's sleep is for), and is gone
// when the process has ended.
func (p *picker) retire() {
	t := p.site.t
	t.Helper()
	mesh.cluster.TerminatePod(t, p.site.ns, p.pod)
	if err := mesh.withdraw(t.Context(), p.site.ns, p.pod); err != nil {
		t.Fatal(err)
	}
	port, err := p.site.deployment().port("grpc-ext-proc")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := netip.AddrPortFrom(p.addr, port).String()
	eventually(t, "the gateway no longer uses "+p.pod, func() error {
		clusters, err := fetch("http://" + at(envoyAdmin) + "/clusters")
		if err == nil && strings.Contains(clusters, endpoint+"::") {
			err = fmt.Errorf("Envoy has the endpoint %s", endpoint)
		}
		return err
	})
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	mesh.cluster.DeletePod(t, p.site.ns, p.pod)
}

// metric is the sum of a metric's series that have all of the labels.
func (p *picker) metric(name string, labels ...string) float64 {
	p.site.t.Helper()
	text, err := fetch(p.admin + "/metrics")
	if err != nil {
		p.site.t.Fatal(err)
	}
	return sum(p.site.t, text, name, labels...)
}

// isAsked waits until the picker has decided something.
func (p *picker) isAsked() {
	p.site.t.Helper()
	eventually(p.site.t, p.pod+" is asked", func() error {
		if p.metric("warmpath_decisions_total") == 0 {
			return errors.New("it has decided nothing")
		}
		return nil
	})
}

// sees waits until the picker knows a number of workers.
func (p *picker) sees(workers int) {
	p.site.t.Helper()
	eventually(p.site.t, fmt.Sprintf("%s knows %d workers", p.pod, workers), func() error {
		if n := p.metric("warmpath_pool_workers"); n != float64(workers) {
			return fmt.Errorf("it knows %v", n)
		}
		return nil
	})
}

// knowsAll waits until the picker knows all blocks that the workers hold.
func (p *picker) knowsAll() {
	p.site.t.Helper()
	eventually(p.site.t, p.pod+" knows what the workers hold", func() error {
		held := 0
		for _, w := range p.site.workers {
			if w.role != fleet.Decode { // these announce nothing
				held += w.Stats().CachedBlocks
			}
		}
		if n := p.metric("warmpath_worker_blocks"); n != float64(held) {
			return fmt.Errorf("it knows of %v blocks, and they hold %d", n, held)
		}
		return nil
	})
}

// idle waits until no picker has a request under way: one whose end it has not seen
// yet counts as load, and may send the next one to another worker.
func (s *site) idle() {
	s.t.Helper()
	for _, p := range s.pickers {
		eventually(s.t, p.pod+" has no request under way", func() error {
			text, err := fetch(p.admin + "/metrics")
			if err != nil {
				return err
			}
			for _, name := range []string{"streams", "worker_requests", "worker_prefill_tokens", "worker_decode_blocks", "foreign_requests"} {
				if n := sum(s.t, text, "warmpath_"+name); n != 0 {
					return fmt.Errorf("%s is %v", name, n)
				}
			}
			return nil
		})
	}
}
