package modelfiles

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	manifestName  = "warmpath-files.json"
	manifestBytes = 64 << 10
	partial       = ".partial-" // begins the name of a file that is being written
	partialLife   = time.Hour   // one that is older was left by a process that died
	keepCommits   = 3
)

// cache is a folder for the files of one repository:
//
//	<cache>/<hub>/models--org--name/refs/<revision>    the commit last seen for it
//	<cache>/<hub>/models--org--name/<commit>/<file>
//	<cache>/<hub>/models--org--name/<commit>/warmpath-files.json
//
// Every file appears whole, by renaming. The manifest comes last and tells the
// checksums, so what a broken disk or a dead process left is never used. Several
// processes may read and write at once: for one commit all write the same.
type cache struct {
	dir   string
	limit int64 // bytes of one file
}

// manifest tells what a commit's folder holds.
type manifest struct {
	Commit   string       `json:"commit"`
	Tiktoken string       `json:"tiktoken"` // what the file of ranks is called that was asked for
	Verified bool         `json:"verified"`
	Files    []cachedFile `json:"files"`
}

type cachedFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

func newCache(dir string, home *url.URL, repository string, limit int64) *cache {
	hub := url.PathEscape(strings.TrimSuffix(home.Host+home.Path, "/"))
	hub = strings.ReplaceAll(hub, ":", "_")
	return &cache{dir: filepath.Join(dir, hub, "models--"+strings.ReplaceAll(repository, "/", "--")), limit: limit}
}

func (c *cache) refFile(revision string) string {
	return filepath.Join(c.dir, "refs", url.PathEscape(revision))
}

// ref returns the commit last seen for a revision, "" when none was.
func (c *cache) ref(revision string) string {
	data, err := readFile(c.refFile(revision), 1<<10)
	if err != nil || !isCommit(string(data)) {
		return ""
	}
	return string(data)
}

// point notes which commit a revision is.
func (c *cache) point(revision, commit string) error {
	if isCommit(revision) || c.ref(revision) == commit {
		return nil
	}
	return cacheError(replaceFile(c.refFile(revision), []byte(commit)))
}

// load returns the files of a commit, nil when they are not there, whole and as
// they were written.
func (c *cache) load(commit, tiktoken string) *Files {
	dir := filepath.Join(c.dir, commit)
	data, err := readFile(filepath.Join(dir, manifestName), manifestBytes)
	if err != nil {
		return nil
	}
	var m manifest
	if json.Unmarshal(data, &m) != nil || m.Commit != commit || m.Tiktoken != tiktoken {
		return nil
	}
	held := map[string]string{}
	for _, one := range m.Files {
		held[one.Name] = one.SHA256
	}
	// Only names that are asked for are opened, whatever the manifest says.
	f, err := collect(func(name string) ([]byte, error) {
		sum, ok := held[name]
		if !ok {
			return nil, errAbsent
		}
		data, err := readFile(filepath.Join(dir, name), c.limit)
		if err == nil && sha256Hex(data) != sum {
			err = &Error{Code: BadChecksum}
		}
		if errors.Is(err, errAbsent) {
			err = &Error{Code: Unreadable} // it was there
		}
		return data, err
	}, tiktoken)
	if err != nil {
		return nil
	}
	f.Revision, f.Verified = commit, m.Verified
	return f
}

// store keeps the files of a commit, notes that the revision is this commit, and
// drops commits that were written long ago.
func (c *cache) store(revision, commit string, f *Files, tiktoken string) error {
	dir := filepath.Join(c.dir, commit)
	m := manifest{Commit: commit, Tiktoken: tiktoken, Verified: f.Verified}
	for _, one := range f.list() {
		if err := replaceFile(filepath.Join(dir, one.name), one.data); err != nil {
			return cacheError(err)
		}
		m.Files = append(m.Files, cachedFile{Name: one.name, SHA256: sha256Hex(one.data)})
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return cacheError(err)
	}
	if err := replaceFile(filepath.Join(dir, manifestName), append(data, '\n')); err != nil {
		return cacheError(err)
	}
	c.prune()
	return c.point(revision, commit)
}

// prune keeps the commits that were written last, and drops those that a dead
// process left without a manifest.
func (c *cache) prune() {
	type held struct {
		dir string
		at  time.Time
	}
	var commits []held
	entries, _ := os.ReadDir(c.dir) // what cannot be read cannot be pruned
	for _, e := range entries {
		dir := filepath.Join(c.dir, e.Name())
		if !isCommit(e.Name()) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
			commits = append(commits, held{dir, info.ModTime()})
		} else if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > partialLife {
			_ = os.RemoveAll(dir) // tried again next time
		}
	}
	slices.SortFunc(commits, func(a, b held) int { return b.at.Compare(a.at) })
	for _, old := range commits[min(keepCommits, len(commits)):] {
		_ = os.RemoveAll(old.dir) // tried again next time
	}
}

// replaceFile writes a file so that it is seen whole or not at all.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dropPartial(dir)
	tmp, err := os.CreateTemp(dir, partial+"*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails when all went well: it is renamed
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// dropPartial removes what processes left that died while they wrote.
func dropPartial(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, partial+"*")) // fails for no pattern of ours
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > partialLife {
			_ = os.Remove(path) // tried again next time
		}
	}
}

func cacheError(err error) error {
	if err == nil {
		return nil
	}
	fix := "check the disk of the cache"
	if errors.Is(err, fs.ErrPermission) {
		fix = "let the picker's user write the cache's folder"
	}
	return &Error{Code: Unreadable, Msg: "cannot be kept in the cache", Fix: fix, Err: err}
}
