package gateway

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/internal/testcluster"
)

// patience is how long a test waits for something that takes milliseconds to a few
// seconds on an idle machine.
const patience = 90 * time.Second

// Names and addresses of the shared parts.
const (
	edgeNamespace = "edge" // of the Gateway
	edgeName      = "edge"
	edgePort      = 8080
)

var (
	subnet   = netip.MustParsePrefix("10.88.0.0/16")
	mainAddr = netip.MustParseAddr("10.88.0.1") // of everything that is no pod of a test
)

// at is a port of the main address.
func at(port uint16) string { return netip.AddrPortFrom(mainAddr, port).String() }

// Ports of the shared parts.
const (
	istiodHTTP    = 15080
	istiodXDS     = 15010
	istiodMetrics = 15014
	envoyAdmin    = 15000
)

// controlPlane is what all tests share: an API server, Istio, one Envoy that is the
// Gateway, and NATS.
type controlPlane struct {
	dir     string
	cluster *testcluster.Cluster
	bus     *server.Server
	slices  *testcluster.Process
	istiod  *testcluster.Process
	envoy   *testcluster.Process

	lastAddr atomic.Uint32 // the newest address of a pod, counted from the subnet's first
}

// startControlPlane starts everything and returns when the Gateway is programmed.
func startControlPlane(ctx context.Context) (*controlPlane, error) {
	p := &controlPlane{}
	p.lastAddr.Store(255) // pods are at 10.88.1.0 and up
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := p.start(ctx); err != nil {
		p.explain(os.Stderr)
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *controlPlane) start(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "warmpath-mesh-"); err != nil {
		return err
	}
	if p.bus, err = server.NewServer(&server.Options{Host: mainAddr.String(), Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}); err != nil {
		return err
	}
	p.bus.Start()
	if p.cluster, err = testcluster.Start(ctx, testcluster.Options{
		Address: mainAddr,
		CRDs:    append([]testcluster.CRDs{testcluster.GatewayAPI, testcluster.IstioNetworking}, testcluster.DefaultCRDs...),
	}); err != nil {
		return err
	}
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	file := testcluster.KubeconfigOf(p.cluster.Config(), edgeNamespace)
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		return err
	}
	for _, ns := range []string{"istio-system", edgeNamespace} {
		if err := p.cluster.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			return err
		}
	}
	if !loopback {
		if p.slices, err = testcluster.StartProcess("endpointslices", nil,
			filepath.Join(have.Assets, string(testcluster.EndpointSlices)), "-kubeconfig", kubeconfig); err != nil {
			return err
		}
	}
	if err := p.startIstiod(ctx, kubeconfig); err != nil {
		return err
	}
	if err := p.applyGateway(ctx); err != nil {
		return err
	}
	return p.startEnvoy(ctx)
}

// startIstiod runs Istio's control plane, told to expect an Envoy without Istio's
// own extensions.
func (p *controlPlane) startIstiod(ctx context.Context, kubeconfig string) (err error) {
	meshConfig := filepath.Join(p.dir, "mesh")
	if err := os.WriteFile(meshConfig, []byte("enableAutoMtls: false\n"), 0o600); err != nil {
		return err
	}
	p.istiod, err = testcluster.StartProcess("istiod", []string{
		"POD_NAME=istiod-0", "POD_NAMESPACE=istio-system", "ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true",
		"PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false",
	}, filepath.Join(have.Assets, string(testcluster.Istiod)), "discovery", "--kubeconfig", kubeconfig,
		"--meshConfig", meshConfig, "--clusterID", "Kubernetes", "--httpAddr", at(istiodHTTP), "--grpcAddr", at(istiodXDS),
		"--httpsAddr", "", "--secureGRPCAddr", "", "--monitoringAddr", at(istiodMetrics), "--ctrlz_port", "0")
	if err != nil {
		return err
	}
	return await(ctx, "istiod is ready", p.istiod, func() error { return ok("http://" + at(istiodHTTP) + "/ready") })
}

//go:embed testdata/gateway.yaml
var gatewayObjects []byte

// applyGateway makes the Gateway, and what a cluster would have made for its pod.
func (p *controlPlane) applyGateway(ctx context.Context) error {
	objects, err := decode(gatewayObjects)
	if err != nil {
		return err
	}
	if err := p.apply(ctx, objects); err != nil {
		return err
	}
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: edgeNamespace, Name: edgeName + "-0"}
	if err := p.cluster.Client().Get(ctx, key, pod); err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: mainAddr.String(), PodIPs: []corev1.PodIP{{IP: mainAddr.String()}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if err := p.cluster.Client().Status().Update(ctx, pod); err != nil {
		return err
	}
	if err := p.bindGateway(ctx); err != nil {
		return err
	}
	return p.publish(ctx, pod.Namespace, pod.Name, mainAddr, pod.Labels, nil)
}

//go:embed testdata/bootstrap.json.tmpl
var bootstrapText string

var bootstrap = template.Must(template.New("bootstrap").Parse(bootstrapText))

func (p *controlPlane) startEnvoy(ctx context.Context) (err error) {
	var text bytes.Buffer
	if err := bootstrap.Execute(&text, map[string]any{
		"Address": mainAddr, "Name": edgeName, "Namespace": edgeNamespace,
		"AdminPort": envoyAdmin, "XDSPort": istiodXDS,
	}); err != nil {
		return err
	}
	path := filepath.Join(p.dir, "bootstrap.json")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return err
	}
	p.envoy, err = testcluster.StartProcess("envoy", nil, have.Envoy, "-c", path, "--concurrency", "1",
		"--disable-hot-restart", "-l", "warn")
	if err != nil {
		return err
	}
	if err := await(ctx, "Envoy is ready", p.envoy, func() error { return ok("http://" + at(envoyAdmin) + "/ready") }); err != nil {
		return err
	}
	return await(ctx, "the Gateway is programmed", p.envoy, func() error {
		var gw unstructured.Unstructured
		gw.SetAPIVersion("gateway.networking.k8s.io/v1")
		gw.SetKind("Gateway")
		if err := p.cluster.Client().Get(ctx, client.ObjectKey{Namespace: edgeNamespace, Name: edgeName}, &gw); err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(gw.Object, "status", "conditions")
		return wantTrue(list, "Accepted", "Programmed")
	})
}

// close ends everything.
func (p *controlPlane) close() error {
	for _, process := range []*testcluster.Process{p.envoy, p.istiod, p.slices} {
		if process != nil {
			process.Kill()
		}
	}
	var err error
	if p.cluster != nil {
		err = p.cluster.Close()
	}
	if p.bus != nil {
		p.bus.Shutdown()
		p.bus.WaitForShutdown()
	}
	probes.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(p.dir))
}

// explain writes what the shared parts said last.
func (p *controlPlane) explain(w io.Writer) {
	for _, process := range []*testcluster.Process{p.slices, p.istiod, p.envoy} {
		if process != nil {
			fmt.Fprintf(w, "%s:\n%s\n", process.Name(), tail(process.Output()))
		}
	}
}

// address is one that no pod had before.
func (p *controlPlane) address() netip.Addr {
	n := p.lastAddr.Add(1)
	a := subnet.Addr().As4()
	a[2], a[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(a)
}

// apply applies objects as their owner, as helm does.
func (p *controlPlane) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		err := p.cluster.Client().Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("helm"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// decode reads the objects of a YAML stream.
func decode(text []byte) (list []*unstructured.Unstructured, err error) {
	for doc := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		o := map[string]any{}
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
		if len(o) > 0 {
			list = append(list, &unstructured.Unstructured{Object: o})
		}
	}
	return list, nil
}

// wantTrue is an error unless the conditions are there and True.
func wantTrue(conditions []any, types ...string) error {
	status := map[string]string{}
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		name, _ := m["type"].(string)
		state, _ := m["status"].(string)
		reason, _ := m["reason"].(string)
		message, _ := m["message"].(string)
		status[name] = state
		if state != "True" {
			status[name] += " (" + reason + ": " + message + ")"
		}
	}
	for _, name := range types {
		if status[name] != "True" {
			return fmt.Errorf("condition %s is %q", name, status[name])
		}
	}
	return nil
}

// probes makes a connection per request. Only what hangs for good takes that long.
var probes = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

// ok is an error unless a URL answers 200.
func ok(url string) error {
	resp, err := probes.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // it is for the message only
		return fmt.Errorf("%s: %s %s", url, resp.Status, text)
	}
	return nil
}

// await waits until check succeeds, while a process runs.
func await(ctx context.Context, what string, p *testcluster.Process, check func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended while waiting until %s", p.Name(), what)
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		case <-tick.C:
		}
	}
}

// eventually waits until check succeeds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s: %v", patience, what, err)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

func tail(s string) string { return s[max(0, len(s)-6000):] }
