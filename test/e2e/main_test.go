package e2e

import (
	"context"
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
	"github.com/warmpath/warmpath/pkg/gateway"
)

// Binaries that every test uses.
var eppBinary, warmpathBinary, envoyBinary string

// goleakWrap runs goleak after the cluster has ended and the binaries are removed:
// it ends the process.
type goleakWrap struct {
	m   *testing.M
	dir string
}

func (w goleakWrap) Run() int {
	return max(w.m.Run(), exitOn(closeCluster()), exitOn(os.RemoveAll(w.dir)))
}

func exitOn(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// parallel is how many tests run at once, unless -parallel says otherwise: they
// mostly wait for each other's processes.
const parallel = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(parallel) // a number always fits
	}
	dir, err := os.MkdirTemp("", "warmpath-e2e-")
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, os.RemoveAll(dir)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(goleakWrap{m, dir})
}

// prepare builds the commands with the race detector and installs Envoy.
func prepare(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", dir+string(filepath.Separator),
		"github.com/warmpath/warmpath/cmd/epp", "github.com/warmpath/warmpath/cmd/warmpath")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	eppBinary, warmpathBinary = filepath.Join(dir, "epp"), filepath.Join(dir, "warmpath")
	var err error
	envoyBinary, err = gateway.InstallEnvoy(ctx, cachedir.Path(), os.Stderr)
	return err
}
