package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/testcluster"
	"github.com/warmpath/warmpath/pkg/gateway"
	"github.com/warmpath/warmpath/test/chart/helm"
)

const root = "../../.."

// parts are the programs that the tests run. They are made where there is a network,
// and handed to the process that has none.
type parts struct {
	EPP, Envoy string
	Assets     string // folder of the programs of testcluster
	Helm       helm.Tools
}

// partsEnv tells the process in the network namespace where the parts are. Its
// presence says which of the two processes this is.
const partsEnv = "WARMPATH_TEST_GATEWAY_PARTS"

var (
	have parts
	mesh *controlPlane // of all tests
)

// parallel is how many tests run at once, unless -parallel says otherwise: they
// mostly wait for others.
const parallel = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if text := os.Getenv(partsEnv); text != "" {
		os.Exit(inside(m, text))
	}
	dir, err := os.MkdirTemp("", "warmpath-gateway-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err == nil {
		code, err = enter(have)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// prepare makes all parts.
func prepare(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	var err error
	if have.Assets, err = testcluster.Binaries(ctx, os.Stderr, testcluster.Etcd, testcluster.APIServer,
		testcluster.EndpointSlices, testcluster.Istiod); err != nil {
		return err
	}
	if have.Helm, err = helm.Install(ctx, root, os.Stderr); err != nil {
		return err
	}
	if have.Envoy, err = gateway.InstallEnvoy(ctx, cachedir.Path(), os.Stderr); err != nil {
		return err
	}
	have.EPP = filepath.Join(dir, "epp")
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", have.EPP, "github.com/warmpath/warmpath/cmd/epp")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build epp: %w\n%s", err, out)
	}
	return nil
}

// inside runs the tests, in the network namespace.
func inside(m *testing.M, text string) int {
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(parallel) // a number always fits
	}
	err := json.Unmarshal([]byte(text), &have)
	if err == nil {
		err = setUpNetwork()
	}
	if err == nil {
		mesh, err = startControlPlane(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	goleak.VerifyTestMain(closing{m}) // ends the process
	return 1
}

// closing ends the shared parts before goleak looks for what is left.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if code != 0 {
		mesh.explain(os.Stderr)
	}
	if err := mesh.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
