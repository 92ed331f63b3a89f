//go:build !linux

package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func childAttributes() *syscall.SysProcAttr { return nil }

// commandLines returns the command lines of all processes.
func commandLines(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-A", "-ww", "-o", "command").Output()
	if err != nil {
		t.Fatalf("list of processes: %v", err)
	}
	return strings.Split(string(out), "\n")
}
