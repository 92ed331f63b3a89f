package testmodels

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReal(t *testing.T) {
	for _, name := range Names() {
		for _, file := range files {
			if data := Read(t, name, file); !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
				t.Errorf("%s of %s is no JSON object", file, name)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	if _, err := Fetch(t.Context(), t.TempDir(), "gpt2", io.Discard); err == nil || !strings.Contains(err.Error(), "qwen3") {
		t.Errorf("error %v, want one that names the models there are", err)
	}
}

// TestNpm has an npm that fails, and one whose archive is not the one that is
// meant: the error says what to do, and nothing is left behind.
func TestNpm(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"fails": {"echo 'network unreachable' >&2; exit 1", "network unreachable"},
		"other": {`for d; do last=$prev; prev=$d; done; echo x > "$last/a.tgz"`, "SHA-512"},
		"none":  {"exit 0", "0 archives"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, cache := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := Fetch(t.Context(), cache, "qwen3", io.Discard)
					if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "offline") {
						t.Errorf("error %v, want %q and what to do", err, c.want)
					}
				})
			}
			wg.Wait()
			left, err := os.ReadDir(filepath.Join(cache, "tokenizers-"+version))
			if err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v; want only the lock", left, err)
			}
		})
	}
}
