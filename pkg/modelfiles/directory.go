package modelfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Directory reads a model's files from a folder: a volume, an unpacked image, a
// clone, or a folder of the Hugging Face cache. It is safe for concurrent use.
type Directory struct {
	// Path is a folder with the files, or a repository's folder in the Hugging
	// Face cache (models--org--name, with refs and snapshots).
	Path string
	// Revision is the name under refs in the second case. Default "main".
	Revision string
	// MaxFileBytes bounds one file. Default [DefaultMaxFileBytes].
	MaxFileBytes int64

	mu   sync.Mutex
	seen fingerprint // of the files that Fetch returned last
}

// readAttempts is how often files are read that change meanwhile.
const readAttempts = 3

// Fetch reads the files. Files of different versions are never mixed: when they
// change while they are read they are read again.
func (d *Directory) Fetch(ctx context.Context) (*Files, error) {
	f, err := d.fetch(ctx)
	if err != nil {
		return nil, from(err, "directory "+d.Path)
	}
	return f, nil
}

func (d *Directory) fetch(ctx context.Context) (*Files, error) {
	if d.Path == "" {
		return nil, &Error{Code: BadConfig, Msg: "no path is set", Fix: "name the folder of the tokenizer's files"}
	}
	return d.settle(ctx, d.read)
}

// settle reads until the files are the same before and after.
func (d *Directory) settle(ctx context.Context, read func(dir string) (*Files, error)) (*Files, error) {
	for range readAttempts {
		if ctx.Err() != nil {
			return nil, canceled(ctx)
		}
		before, dir, err := d.look()
		if err != nil {
			d.saw(nil)
			return nil, err
		}
		f, err := read(dir)
		after, _, lookErr := d.look()
		if lookErr != nil || !before.equal(after) {
			continue
		}
		d.saw(after) // also when they are bad: Watch must not report them again
		return f, err
	}
	return nil, &Error{Code: Changing, Msg: "the files change while they are read", Fix: "try again when they are copied"}
}

func (d *Directory) saw(seen fingerprint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = seen
}

// read reads the files in a folder.
func (d *Directory) read(dir string) (*Files, error) {
	tiktoken, err := tiktokenIn(dir)
	if err != nil {
		return nil, err
	}
	f, err := collect(func(name string) ([]byte, error) {
		return readFile(filepath.Join(dir, name), d.limit())
	}, tiktoken)
	if err != nil {
		return nil, err
	}
	f.Source = "directory " + d.Path
	f.Revision = contentDigest(f)
	if name := filepath.Base(dir); filepath.Base(filepath.Dir(dir)) == "snapshots" && isCommit(name) {
		f.Revision = name
	}
	return f, nil
}

func (d *Directory) limit() int64 {
	if d.MaxFileBytes > 0 {
		return d.MaxFileBytes
	}
	return DefaultMaxFileBytes
}

// folder returns the folder that the files are in now.
func (d *Directory) folder() (string, error) {
	snapshots := filepath.Join(d.Path, "snapshots")
	if !isFolder(snapshots) {
		return d.Path, nil
	}
	revision := d.Revision
	if revision == "" {
		revision = "main"
	}
	commit := revision
	if !isCommit(revision) {
		if !filepath.IsLocal(revision) {
			return "", &Error{Code: BadConfig, Msg: "the revision is no name below refs", Fix: "name a branch, a tag or a commit"}
		}
		data, err := readFile(filepath.Join(d.Path, "refs", revision), 1<<10)
		if errors.Is(err, errAbsent) {
			return "", &Error{Code: NotFound, Msg: "the cache has no revision " + revision, Fix: "name the folder of a snapshot instead"}
		}
		if err != nil {
			return "", err
		}
		if commit = strings.TrimSpace(string(data)); !isCommit(commit) {
			return "", &Error{Code: BadContent, File: "refs/" + revision, Msg: "is not the name of a commit", Fix: "name the folder of a snapshot instead"}
		}
	}
	return filepath.Join(snapshots, commit), nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// tiktokenIn returns the name of the file with ranks that a folder holds, or
// would.
func tiktokenIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &Error{Code: NotFound, Msg: "there is no such folder", Fix: "check the path, and that the volume is mounted"}
	}
	if err != nil {
		return "", unreadable(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() == nameTiktoken {
			return nameTiktoken, nil
		}
		if isTiktoken(e.Name()) {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 0:
		return nameTiktoken, nil
	case 1:
		return names[0], nil
	default:
		return "", &Error{Code: BadContent, Msg: fmt.Sprintf("there are %d files *%s", len(names), tiktokenSuffix), Fix: "leave the right one"}
	}
}

// readFile reads a regular file, or what a link to one leads to.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr == nil {
			return nil, &Error{Code: Unreadable, Msg: "is a link to nothing", Fix: "mount what it leads to as well (in the Hugging Face cache: blobs)"}
		}
		return nil, errAbsent
	}
	if err != nil {
		return nil, unreadable(err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{Code: Unreadable, Msg: "is not a file", Fix: "look what is there"}
	}
	if info.Size() > limit {
		return nil, tooLarge(limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(err)
	}
	defer f.Close()
	data := make([]byte, 0, info.Size()+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) > limit {
			return nil, tooLarge(limit)
		}
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, unreadable(err)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

func unreadable(err error) *Error {
	fix := "look at the disk"
	if errors.Is(err, fs.ErrPermission) {
		fix = "let the picker's user read it"
	}
	// Not the path: the source and the file's name are in the error already.
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &Error{Code: Unreadable, Msg: "cannot be read", Fix: fix, Err: err}
}

// contentDigest is a version for files that have none.
func contentDigest(f *Files) string {
	h := sha256.New()
	for _, one := range f.list() {
		sum := sha256.Sum256(one.data)
		fmt.Fprintf(h, "%s %x\n", one.name, sum)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// isCommit reports whether this is the whole name of a git commit.
func isCommit(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }
