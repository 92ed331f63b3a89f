package testcluster

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience is how long something may take that takes seconds on an idle machine.
	patience = 2 * time.Minute
	// Node is the name of the one node, which pods of [Cluster.CreatePod] are on that name no other.
	Node = "node-a"
)

// Options are what clusters differ in. The zero value is a cluster on the loopback
// with the CRDs of InferencePool and RoutingPolicy.
type Options struct {
	// CRDs are the kinds that are installed. Nil means DefaultCRDs, an empty slice none.
	CRDs []CRDs
	// Address is where the API server listens. Default 127.0.0.1.
	Address netip.Addr
}

// Cluster is a running etcd and API server.
type Cluster struct {
	dir, binaries string
	address       netip.Addr
	etcdPort      int
	apiPort       int
	etcd, api     *Process
	config        *rest.Config
	client        client.Client
}

// Start builds what is missing, runs a cluster and returns when it serves the CRDs.
// The caller must call [Cluster.Close].
func Start(ctx context.Context, o Options) (*Cluster, error) {
	binaries, err := Binaries(ctx, os.Stderr, Etcd, APIServer)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "warmpath-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, binaries: binaries, address: o.Address}
	if !c.address.IsValid() {
		c.address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if o.CRDs == nil {
		o.CRDs = DefaultCRDs
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// StartFor runs a cluster for one test, which needs one of its own.
func StartFor(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	if err := c.writeKeys(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.installCRDs(ctx, o.CRDs); err != nil {
		return err
	}
	// Pods name a node, and the EndpointSlice controller looks it up.
	return c.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Node}})
}

// Close ends the cluster and removes what it stored.
func (c *Cluster) Close() error {
	// Nothing is kept, so there is no reason to let them end in order, which takes
	// an API server that is being watched a while.
	for _, p := range []*Process{c.api, c.etcd} {
		if p != nil {
			p.Kill()
		}
	}
	if c.config != nil {
		closeIdle(c.config)
	}
	return os.RemoveAll(c.dir)
}

// StopAPI takes the API server away, as a crash would. Etcd keeps the objects.
func (c *Cluster) StopAPI() { c.api.Kill() }

// StartAPI brings the API server back, at the address it had, and returns when it
// is ready.
func (c *Cluster) StartAPI(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.launchAPI(ctx); err != nil {
		t.Fatal(err)
	}
}

// Config returns a copy of the configuration that reaches the API server as its
// administrator.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client is the administrator's client. It knows the kinds of Kubernetes, of the
// gateway and inference APIs, and ours.
func (c *Cluster) Client() client.Client { return c.client }

// Address is where the API server listens.
func (c *Cluster) Address() netip.Addr { return c.address }

// file is a path in the cluster's folder.
func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// program is the path of a program.
func (c *Cluster) program(b Binary) string { return filepath.Join(c.binaries, string(b)) }
