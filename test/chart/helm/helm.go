// Package helm builds Helm and kustomize from their modules, for the tests that
// render the chart.
package helm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/filelock"
)

// Tools are the paths of the programs.
type Tools struct {
	Helm, Kustomize, Docs string
}

// packages are what is built, by the name of the program.
var packages = []string{
	"helm.sh/helm/v4/cmd/helm",
	"github.com/norwoodj/helm-docs/cmd/helm-docs",
	"sigs.k8s.io/kustomize/kustomize/v5",
}

// Install builds the programs of the versions in hack/helm/go.mod below root, the
// folder of this repository, unless they are in the cache folder already. Of
// several processes that call it at once one builds. progress is told of it.
func Install(ctx context.Context, root string, progress io.Writer) (Tools, error) {
	module := filepath.Join(root, "hack", "helm")
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return Tools{}, err
		}
		sum.Write(data)
	}
	cache, err := filepath.Abs(cachedir.Path())
	if err != nil {
		return Tools{}, err
	}
	dir := filepath.Join(cache, "helm-"+hex.EncodeToString(sum.Sum(nil))[:12])
	tools := Tools{Helm: filepath.Join(dir, "helm"), Docs: filepath.Join(dir, "helm-docs"), Kustomize: filepath.Join(dir, "kustomize")}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Tools{}, err
	}
	unlock, err := filelock.Take(ctx, dir+".lock", func() {
		fmt.Fprintln(progress, "waiting for another process that builds helm")
	})
	if err != nil {
		return Tools{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return tools, nil
	}
	fmt.Fprintln(progress, "building helm, helm-docs and kustomize: some minutes the first time")
	// A folder with the final name is always complete.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return Tools{}, err
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", partial + "/"}, packages...)...)
	build.Dir = module
	if err := os.Mkdir(partial, 0o755); err != nil {
		return Tools{}, err
	}
	if out, err := build.CombinedOutput(); err != nil {
		return Tools{}, fmt.Errorf("build helm: %w\n%s", err, out)
	}
	return tools, os.Rename(partial, dir)
}

// Template renders the chart below root as helm template does. The error holds what
// Helm said.
func (t Tools) Template(ctx context.Context, root, release, namespace string, args ...string) ([]byte, error) {
	return t.run(ctx, t.Helm, append([]string{"template", release, filepath.Join(root, "charts", "warmpath"), "--namespace", namespace}, args...)...)
}

// Notes are what helm install shows at its end. It asks no cluster.
func (t Tools) Notes(ctx context.Context, root, release, namespace string, args ...string) ([]byte, error) {
	return t.run(ctx, t.Helm, append([]string{"install", release, filepath.Join(root, "charts", "warmpath"), "--namespace", namespace, "--dry-run=client"}, args...)...)
}

// Lint checks the chart below root as helm lint --strict does.
func (t Tools) Lint(ctx context.Context, root string, args ...string) ([]byte, error) {
	return t.run(ctx, t.Helm, append([]string{"lint", "--strict", filepath.Join(root, "charts", "warmpath")}, args...)...)
}

// Build renders a folder as kustomize build does.
func (t Tools) Build(ctx context.Context, dir string) ([]byte, error) {
	return t.run(ctx, t.Kustomize, "build", dir)
}

func (t Tools) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", filepath.Base(program), err, stderr.Bytes(), stdout.Bytes())
	}
	return stdout.Bytes(), nil
}
