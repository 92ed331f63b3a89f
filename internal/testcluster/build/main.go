// Command build builds the programs of the test cluster into the cache folder, so
// that no test has to: those of a bare cluster, or with -gateway also those that a
// gateway needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/warmpath/warmpath/internal/testcluster"
)

func main() {
	gateway := flag.Bool("gateway", false, "also build Istio's control plane and the EndpointSlice controller")
	flag.Parse()
	want := []testcluster.Binary{testcluster.Etcd, testcluster.APIServer}
	if *gateway {
		want = append(want, testcluster.EndpointSlices, testcluster.Istiod)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	dir, err := testcluster.Binaries(ctx, os.Stderr, want...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
