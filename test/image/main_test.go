// Package image holds the tests of the picker's container image: what make image
// writes, what make sbom lists, and what the Dockerfile copies.
package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// sourceDate is SOURCE_DATE_EPOCH of the images here, and sourceTime the same.
	sourceDate = "1700000000"
	sourceTime = "2023-11-14T22:13:20Z"

	version  = "v0.0.0-test"
	revision = "0123456789abcdef0123456789abcdef01234567"
	imageRef = "registry.example/team/epp:v0.0.0-test"
)

var (
	root string // of the repository
	dist string // what make image and make sbom wrote
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	if dist, err = os.MkdirTemp("", "warmpath-test-image-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(dist)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // a cold build on a busy machine
	defer cancel()
	if err := runMake(ctx, root, "sbom", "DIST="+dist, "IMG="+imageRef); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// runMake runs a target of the Makefile in dir.
func runMake(ctx context.Context, dir string, args ...string) error {
	args = append([]string{"--no-print-directory", "VERSION=" + version, "REVISION=" + revision}, args...)
	cmd := exec.CommandContext(ctx, "make", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+sourceDate)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %v in %s: %w\n%s", args, dir, err, out)
	}
	return nil
}
