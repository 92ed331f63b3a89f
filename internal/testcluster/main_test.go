package testcluster

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// shared is the cluster of all tests that do not need one of their own.
var shared *Cluster

// closing ends the cluster before goleak looks for what is left: that ends the
// process.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	var err error
	shared, err = Start(context.Background(), Options{CRDs: append([]CRDs{DynamoWorkerMetadatas, GatewayAPI, IstioNetworking}, DefaultCRDs...)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(closing{m})
}
