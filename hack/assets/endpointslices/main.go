// Command endpointslices runs the one controller of Kubernetes that a gateway
// cannot do without: it writes the EndpointSlices of Services. The test cluster has
// no controller manager. It ends on SIGTERM.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
)

// maxEndpoints per slice is the controller manager's default.
const maxEndpoints = 100

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the `file` that says how to reach the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	// The pods of a test come and go faster than the default of 5 a second allows.
	cfg.QPS, cfg.Burst = 100, 200
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		log.Fatal(err)
	}
	shared := informers.NewSharedInformerFactory(client, 10*time.Hour)
	// No batching: a pod that became ready is to be in its slice at once.
	controller := endpointslice.NewController(ctx, shared.Core().V1().Pods(), shared.Core().V1().Services(),
		shared.Core().V1().Nodes(), shared.Discovery().V1().EndpointSlices(), maxEndpoints, client, 0)
	shared.Start(ctx.Done())
	controller.Run(ctx, 2)
}
