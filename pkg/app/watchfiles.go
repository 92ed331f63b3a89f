package app

import (
	"context"
	"os"
	"time"
)

// watchFiles calls changed when files are others than at the last call, or than
// at the start, and have then stayed the same from one look to the next. It looks
// that often, asks only the file system, and works until ctx ends.
func watchFiles(ctx context.Context, names []string, every time.Duration, changed func()) {
	known := look(names)
	last := known
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := look(names)
		if sameFiles(now, last) && !sameFiles(now, known) {
			known = now
			changed()
		}
		last = now
	}
}

// look asks the file system about files; nil stands for one that is not there.
func look(names []string) []os.FileInfo {
	infos := make([]os.FileInfo, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			infos[i] = info
		}
	}
	return infos
}

func sameFiles(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime())) {
			return false
		}
	}
	return true
}
