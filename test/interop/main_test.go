package interop

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binaries is a folder for what tests build once for all of them.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "warmpath-interop-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(binaries); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

var buildPicker = sync.OnceValues(func() (string, error) { return BuildPicker(binaries) })

// pickerBinary returns the picker's binary.
func pickerBinary(t *testing.T) string {
	t.Helper()
	binary, err := buildPicker()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// contextWithDeadline bounds a wait for something that takes milliseconds on an
// idle machine. A machine that does much else may take a hundred times as long.
func contextWithDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), time.Minute)
}
