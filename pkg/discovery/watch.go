package discovery

import (
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch tells when something happens in the folder of a file, and in the folder
// that the file is a link into. Folders are watched rather than files: a rename
// over the file, or the swap of the ..data link of a mounted ConfigMap, would
// leave a watched file behind.
type watch struct {
	path   string
	w      *fsnotify.Watcher // nil: there is only polling
	target string            // folder that the file is a link into
}

// newWatch starts to watch. Where that is not possible it says so once and
// watches nothing.
func newWatch(path string, log *slog.Logger) *watch {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(filepath.Dir(path)); err != nil {
			_ = w.Close() // the first error tells more
		}
	}
	if err != nil {
		log.Warn("worker list cannot be watched, polling it", "path", path, "error", err)
		return &watch{path: path}
	}
	t := &watch{path: path, w: w}
	t.renew()
	return t
}

// renew watches again what may have been replaced: a folder that was removed and
// made again, a link that now points elsewhere. Failing to is no news: polling
// goes on.
func (t *watch) renew() {
	if t.w == nil {
		return
	}
	dir := filepath.Dir(t.path)
	if file, err := filepath.EvalSymlinks(t.path); err == nil && filepath.Dir(file) != t.target {
		// Remove before adding: both names can be the same folder.
		if t.target != "" {
			_ = t.w.Remove(t.target)
		}
		t.target = filepath.Dir(file)
	}
	_ = t.w.Add(dir)
	if t.target != "" {
		_ = t.w.Add(t.target)
	}
}

func (t *watch) events() <-chan fsnotify.Event {
	if t.w == nil {
		return nil
	}
	return t.w.Events
}

func (t *watch) errors() <-chan error {
	if t.w == nil {
		return nil
	}
	return t.w.Errors
}

func (t *watch) close() {
	if t.w != nil {
		_ = t.w.Close()
	}
}
