package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// childAttributes makes the kernel end a child when the test binary dies, also
// when it dies of a timeout.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// commandLines returns the command lines of all processes.
func commandLines(t *testing.T) (list []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no list of processes: %v", err)
	}
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil { // else it has just ended
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}
