package discovery

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	// An editor or a copy makes several events of one change: wait until the
	// folder has been quiet this long, but in a busy folder for no more than
	// maxQuiets events.
	quiet     = 50 * time.Millisecond
	maxQuiets = 40

	defaultPoll = 10 * time.Second
)

// File publishes the workers listed in a file, again on every change of it.
type File struct {
	Path    string                // file of kind WorkerList
	Rules   Rules                 // how labels become roles and places
	Publish func(*fleet.Snapshot) // called by Run, one call at a time
	Log     *slog.Logger

	// Poll is how often the file is read even without a sign of change, for file
	// systems that give none. Default 10s.
	Poll time.Duration

	good   []byte // content that is published
	failed string // error that was logged last, empty when the file is good
}

// Run publishes the file's workers and then every good change until ctx ends,
// when it returns nil. A file that is missing or wrong at the start is an error.
// Later a bad version is logged, once, and the last good one stays; so does it
// when the file goes away.
func (f *File) Run(ctx context.Context) error {
	// Watch first and read then, so that no change falls in between.
	w := newWatch(f.Path, f.Log)
	defer w.close()
	data, err := read(f.Path)
	if err != nil {
		return err
	}
	snapshot, err := decode(data, f.Path, f.Rules)
	if err != nil {
		return err
	}
	f.publish(data, snapshot)
	f.watch(ctx, w)
	return nil
}

func (f *File) watch(ctx context.Context, w *watch) {
	every := f.Poll
	if every <= 0 {
		every = defaultPoll
	}
	poll := time.NewTicker(every)
	defer poll.Stop()
	settle := time.NewTimer(0)
	settle.Stop()
	events := 0
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events():
			if e.Op == fsnotify.Chmod {
				continue // says nothing about the content
			}
			if events++; events <= maxQuiets {
				settle.Reset(quiet)
			}
		case err := <-w.errors():
			// Events may be lost (a full queue): read the file now.
			f.Log.Warn("watching the worker list", "path", f.Path, "error", err)
			settle.Reset(quiet)
		case <-settle.C:
			events = 0
			w.renew()
			f.reload()
		case <-poll.C:
			w.renew()
			f.reload()
		}
	}
}

// reload publishes the file if it is good and differs from what is published.
func (f *File) reload() {
	data, err := read(f.Path)
	if err == nil && bytes.Equal(data, f.good) {
		if f.failed != "" {
			f.failed = ""
			f.Log.Info("worker list is good again, unchanged", "path", f.Path)
		}
		return
	}
	var snapshot *fleet.Snapshot
	if err == nil {
		snapshot, err = decode(data, f.Path, f.Rules)
	}
	if err == nil {
		f.publish(data, snapshot)
		return
	}
	if text := err.Error(); text != f.failed {
		f.failed = text
		f.Log.Error("worker list not usable, keeping the last good one", "path", f.Path, "error", err)
	}
}

func (f *File) publish(data []byte, s *fleet.Snapshot) {
	f.good, f.failed = data, ""
	f.Log.Info("worker list loaded", "path", f.Path, "aggregated", s.Count(fleet.Aggregated),
		"prefill", s.Count(fleet.Prefill), "decode", s.Count(fleet.Decode))
	f.Publish(s)
}
