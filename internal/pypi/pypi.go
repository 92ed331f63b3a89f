// Package pypi installs pinned Python packages into a folder of their own, for
// tests and tools that run the real thing.
package pypi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/warmpath/warmpath/internal/filelock"
)

// MarkerFile is a file in a finished installation that tells what was installed.
const MarkerFile = "warmpath-installed.txt"

// Install makes the packages pinned in requirements importable from dir, and
// returns the absolute path of the interpreter they were installed for. It does
// nothing when they are there already. Several processes may call it at once: one
// installs, the others wait.
func Install(ctx context.Context, dir string, requirements []byte) (python string, err error) {
	python, tag, err := findPython(ctx)
	if err != nil {
		return "", err
	}
	// Compiled packages fit one interpreter version only, so the tag counts.
	marker := append([]byte("# "+tag+"\n"), requirements...)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Take(ctx, dir+".lock", func() {})
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	defer unlock()
	if have, err := os.ReadFile(filepath.Join(dir, MarkerFile)); err == nil && bytes.Equal(have, marker) {
		return python, nil
	}
	return python, install(ctx, python, dir, marker)
}

// install fills a temporary folder and renames it, so that a folder with the
// final name is always complete.
func install(ctx context.Context, python, dir string, marker []byte) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, MarkerFile)
	if err := os.WriteFile(file, marker, 0o644); err != nil {
		return err
	}
	pip := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--no-input",
		"--disable-pip-version-check", "--root-user-action", "ignore",
		"--no-deps", "--only-binary", ":all:", "--target", tmp, "--requirement", file)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("pip: %w\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// findPython returns the interpreter behind "python3" (which may be a wrapper
// that needs the user's environment) and the tag of its version.
func findPython(ctx context.Context) (path, tag string, err error) {
	out, err := exec.CommandContext(ctx, "python3", "-c",
		"import sys; print(sys.executable); print(sys.implementation.cache_tag)").Output()
	if err != nil {
		return "", "", fmt.Errorf("run python3 (3.10 or newer with pip is needed): %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return "", "", fmt.Errorf("python3 describes itself as %q, want a path without blanks and a version tag", out)
	}
	return lines[0], lines[1], nil
}
