package modelfiles

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// Watch returns nil once the files differ from those that Fetch saw last, and
// have then stayed the same from one look to the next, so that a copy can end. It
// looks that often (default 10 s). It returns the cause when ctx ends.
//
// A look asks the file system about each file and reads none: another file of
// the same name, size or time of change counts, so do links that lead elsewhere.
func (d *Directory) Watch(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		every = 10 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	d.mu.Lock()
	last := d.seen
	d.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		// A folder that is gone is a change; Fetch says what is wrong.
		now, _, _ := d.look()
		d.mu.Lock()
		changed := !now.equal(d.seen)
		d.mu.Unlock()
		if changed && now.equal(last) {
			return nil
		}
		last = now
	}
}

// fingerprint is what the file system says of files, by their paths.
type fingerprint map[string]os.FileInfo

// look returns the fingerprint of the files and the folder they are in.
func (d *Directory) look() (fingerprint, string, error) {
	dir, err := d.folder()
	if err != nil {
		return nil, "", err
	}
	names := []string{nameTokenizer, nameConfig, nameTemplate, nameTemplateJSON, nameGenerationConfig, nameModelConfig}
	tiktoken, err := tiktokenIn(dir)
	if err != nil {
		return nil, dir, err
	}
	seen := fingerprint{}
	for _, name := range append(names, tiktoken) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil {
			seen[path] = info
		}
	}
	return seen, dir, nil
}

func (f fingerprint) equal(g fingerprint) bool {
	return maps.EqualFunc(f, g, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}
