package app

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchFiles: a change is told once, when it has ended.
func TestWatchFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "1")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told atomic.Int64
		go watchFiles(ctx, []string{a, b}, time.Second, func() { told.Add(1) })
		want := func(looks int, n int64) {
			t.Helper()
			time.Sleep(time.Duration(looks) * time.Second)
			synctest.Wait()
			if told.Load() != n {
				t.Errorf("told %d times, want %d", told.Load(), n)
			}
		}
		synctest.Wait()
		want(3, 0)
		write(a, "12")
		want(1, 0) // it may go on
		write(a, "123")
		want(1, 0)
		want(1, 1)
		want(3, 1)
		write(b, "it came")
		want(2, 2)
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		want(2, 3)
		if err := os.Rename(a, b); err != nil { // both change
			t.Fatal(err)
		}
		want(2, 4)
		cancel()
		synctest.Wait()
	})
}
