package interop

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Versions are the Dynamo releases that the tests run, oldest first.
var Versions = []string{"1.2.1", "1.3.1", "1.4.2", "1.5.1", "1.6.1"}

//go:embed requirements-*.txt
var requirements embed.FS

// markerFile tells in a finished installation what was installed.
const markerFile = "warmpath-installed.txt"

// Installation is a Dynamo release that can be run.
type Installation struct {
	Version string
	Python  string // absolute path of the interpreter
	Dir     string // the folder to import from
}

// Install makes a Dynamo release runnable and says where it is. It downloads
// the packages pinned in requirements-<version>.txt into
// $WARMPATH_CACHE/dynamo-<version> (the user's cache folder when WARMPATH_CACHE
// is not set) and does nothing when they are there already. Several processes
// may call it at once.
func Install(ctx context.Context, version string) (Installation, error) {
	pins, err := requirements.ReadFile("requirements-" + version + ".txt")
	if err != nil {
		return Installation{}, fmt.Errorf("dynamo %s: no pinned requirements; have %s", version, strings.Join(Versions, ", "))
	}
	python, tag, err := findPython(ctx)
	if err != nil {
		return Installation{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Installation{}, err
	}
	inst := Installation{Version: version, Python: python, Dir: filepath.Join(cache, "dynamo-"+version)}
	// Compiled packages fit one interpreter version only, so the tag counts.
	marker := append([]byte("# "+tag+"\n"), pins...)

	unlock, err := lock(inst.Dir + ".lock")
	if err != nil {
		return Installation{}, err
	}
	defer unlock()
	if have, err := os.ReadFile(filepath.Join(inst.Dir, markerFile)); err == nil && bytes.Equal(have, marker) {
		return inst, nil
	}
	if err := install(ctx, inst, marker); err != nil {
		return Installation{}, fmt.Errorf("install dynamo %s: %w", version, err)
	}
	return inst, nil
}

// install fills a temporary folder and renames it, so that a folder with the
// final name is always complete.
func install(ctx context.Context, inst Installation, marker []byte) error {
	tmp, err := os.MkdirTemp(filepath.Dir(inst.Dir), "dynamo-"+inst.Version+"-partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, markerFile)
	if err := os.WriteFile(file, marker, 0o644); err != nil {
		return err
	}
	pip := exec.CommandContext(ctx, inst.Python, "-m", "pip", "install", "--quiet", "--no-input",
		"--disable-pip-version-check", "--root-user-action", "ignore",
		"--no-deps", "--only-binary", ":all:", "--target", tmp, "--requirement", file)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("pip: %w\n%s", err, out)
	}
	if err := os.RemoveAll(inst.Dir); err != nil {
		return err
	}
	return os.Rename(tmp, inst.Dir)
}

// findPython returns the interpreter behind "python3" (which may be a wrapper
// that needs the user's environment) and the tag of its version.
func findPython(ctx context.Context) (path, tag string, err error) {
	out, err := exec.CommandContext(ctx, "python3", "-c",
		"import sys; print(sys.executable); print(sys.implementation.cache_tag)").Output()
	if err != nil {
		return "", "", fmt.Errorf("run python3 (the interop tests need it, 3.10 or newer, with pip): %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return "", "", fmt.Errorf("python3 describes itself as %q, want a path without blanks and a version tag", out)
	}
	return lines[0], lines[1], nil
}

func cacheDir() (string, error) {
	dir := os.Getenv("WARMPATH_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a folder to keep dynamo in (set WARMPATH_CACHE): %w", err)
		}
		dir = filepath.Join(user, "warmpath")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// lock takes a lock between processes; the kernel drops it when the holder dies.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
