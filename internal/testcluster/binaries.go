package testcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/filelock"
)

// Binary is a program that is built from a module pinned in hack/assets. Its value
// is the name of the file.
type Binary string

// The programs, in the order in which they are built: later ones share most of
// what earlier ones compile.
const (
	Etcd           Binary = "etcd"
	APIServer      Binary = "kube-apiserver"
	EndpointSlices Binary = "endpointslices" // the controller that writes EndpointSlices
	Istiod         Binary = "pilot-discovery"
)

// recipe is how one program is built.
type recipe struct {
	binary Binary
	pkg    string
	cold   string // how long it takes when nothing is compiled yet
	// versioned programs are told the version of k8s.io/kubernetes, which their own
	// release builds are told too. What they serve depends on it.
	versioned bool
}

var recipes = []recipe{
	{binary: Etcd, pkg: "go.etcd.io/etcd/server/v3", cold: "1 minute"},
	{binary: APIServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", cold: "4 minutes", versioned: true},
	{binary: EndpointSlices, pkg: "./endpointslices", cold: "10 seconds"},
	{binary: Istiod, pkg: "istio.io/istio/pilot/cmd/pilot-discovery", cold: "4 minutes"},
}

// Binaries builds those of the programs that the cache does not hold and returns
// the folder they are in. progress (may be nil) is told what takes long. Several
// processes may call it at once: one builds, the others wait.
func Binaries(ctx context.Context, progress io.Writer, want ...Binary) (dir string, err error) {
	if progress == nil {
		progress = io.Discard
	}
	source, err := assetsModule(ctx)
	if err != nil {
		return "", err
	}
	sum, err := hashFiles(source)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", source, err)
	}
	cache, err := filepath.Abs(cachedir.Path())
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "assets", sum)
	if missing(dir, want) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Take(ctx, dir+".lock", func() {
		fmt.Fprintln(progress, "waiting for another process that builds the test cluster's programs")
	})
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	defer unlock()
	for _, r := range missing(dir, want) {
		if err := r.build(ctx, source, dir, progress); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// missing returns the recipes of the wanted programs that are not in dir.
func missing(dir string, want []Binary) (list []recipe) {
	for _, r := range recipes {
		for _, w := range want {
			if w != r.binary {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, string(w))); err != nil {
				list = append(list, r)
			}
			break
		}
	}
	return list
}

// build makes one program. A file with the final name is always complete.
func (r recipe) build(ctx context.Context, source, dir string, progress io.Writer) error {
	fmt.Fprintf(progress, "building %s, about %s the first time\n", r.binary, r.cold)
	start := time.Now()
	flags := "-s -w"
	if r.versioned {
		version, err := goCommand(ctx, source, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
		if len(parts) < 2 {
			return fmt.Errorf("hack/assets/go.mod asks for k8s.io/kubernetes %q, want a version", version)
		}
		const at = " -X k8s.io/component-base/version."
		flags += at + "gitVersion=" + version + at + "gitMajor=" + parts[0] + at + "gitMinor=" + parts[1]
	}
	final := filepath.Join(dir, string(r.binary))
	partial := final + ".partial"
	if _, err := goCommand(ctx, source, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", partial, r.pkg); err != nil {
		return fmt.Errorf("build %s: %w", r.binary, err)
	}
	if err := os.Rename(partial, final); err != nil {
		return err
	}
	fmt.Fprintf(progress, "built %s in %.0f s\n", r.binary, time.Since(start).Seconds())
	return nil
}

// assetsModule is the folder hack/assets of this repository.
func assetsModule(ctx context.Context) (string, error) {
	root, err := moduleDir(ctx, "", "github.com/warmpath/warmpath")
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "hack", "assets"), nil
}

// moduleDir is where the source of a module is, in the version that the module of
// folder main asks for: the root module where it is empty.
func moduleDir(ctx context.Context, main, module string) (string, error) {
	dir, err := goCommand(ctx, main, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	if dir == "" {
		return "", fmt.Errorf("the source of module %s is not here; run: go mod download %s", module, module)
	}
	return dir, nil
}

// goCommand runs the go command in a folder and returns what it printed.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// hashFiles returns a hash of the names and contents of all files below dir.
func hashFiles(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	h := sha256.New()
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root.FS(), path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n%s", path, len(content), content)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}
