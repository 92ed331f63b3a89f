package modelfiles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDirectory(t *testing.T) {
	all := sample()
	for name, tc := range map[string]struct{ have, want map[string]string }{
		"all":                      {all, all},
		"only a tokenizer":         {map[string]string{nameTokenizer: "{}"}, map[string]string{nameTokenizer: "{}"}},
		"tiktoken":                 {with(without(all, nameTokenizer), nameTiktoken, "YQ== 0\n"), with(without(all, nameTokenizer), nameTiktoken, "YQ== 0\n")},
		"tiktoken of another name": {map[string]string{"qwen.tiktoken": "YQ== 0\n"}, map[string]string{"qwen.tiktoken": "YQ== 0\n"}},
		"tiktoken.model of two":    {map[string]string{"qwen.tiktoken": "a", nameTiktoken: "YQ== 0\n"}, map[string]string{nameTiktoken: "YQ== 0\n"}},
		"tokenizer.json of two":    {with(all, nameTiktoken, "YQ== 0\n"), all},
		"jinja of two":             {with(all, nameTemplateJSON, "{}"), all},
		"template as JSON":         {with(without(all, nameTemplate), nameTemplateJSON, "{}"), with(without(all, nameTemplate), nameTemplateJSON, "{}")},
		"others":                   {with(all, "model.safetensors", "x"), all},
		"an empty template":        {with(all, nameTemplate, ""), with(all, nameTemplate, "")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, tc.have)
			d := &Directory{Path: dir}
			f, err := d.Fetch(t.Context())
			wantFiles(t, f, err, tc.want)
			if f.Source != "directory "+dir || !strings.HasPrefix(f.Revision, "sha256:") || f.Stale != nil {
				t.Errorf("from %q, revision %q, stale %v", f.Source, f.Revision, f.Stale)
			}
			writeFiles(t, dir, map[string]string{nameConfig: `{"other":1}`})
			if g, err := d.Fetch(t.Context()); err != nil || g.Revision == f.Revision {
				t.Errorf("another content, %v, has the same revision %q", err, f.Revision)
			}
		})
	}
}

func TestDirectoryErrors(t *testing.T) {
	all := sample()
	for name, tc := range map[string]struct {
		have  map[string]string
		code  Code
		parts []string
	}{
		"nothing":       {map[string]string{"x": ""}, NotFound, []string{nameTokenizer, nameTiktoken}},
		"no tokenizer":  {without(all, nameTokenizer), NotFound, []string{nameTokenizer}},
		"git-lfs":       {with(all, nameTokenizer, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), BadContent, []string{nameTokenizer, "git lfs pull"}},
		"empty":         {with(all, nameTokenizer, ""), BadContent, []string{nameTokenizer, "empty"}},
		"a page":        {with(all, nameConfig, "<html>"), BadContent, []string{nameConfig, "JSON"}},
		"a mark":        {with(all, nameConfig, "\ufeff{}"), BadContent, []string{nameConfig}},
		"a list":        {with(all, nameModelConfig, "[]"), BadContent, []string{nameModelConfig}},
		"too large":     {with(all, nameTokenizer, "{"+strings.Repeat(" ", 100)+"}"), TooLarge, []string{nameTokenizer, "100"}},
		"two tiktokens": {map[string]string{"a.tiktoken": "a", "b.tiktoken": "b"}, BadContent, []string{"2 files"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, tc.have)
			_, err := (&Directory{Path: dir, MaxFileBytes: 100}).Fetch(t.Context())
			wantError(t, err, tc.code, append(tc.parts, "directory "+dir)...)
		})
	}
	_, err := (&Directory{}).Fetch(t.Context())
	wantError(t, err, BadConfig, "path")
	_, err = (&Directory{Path: filepath.Join(t.TempDir(), "no")}).Fetch(t.Context())
	wantError(t, err, NotFound, "volume")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&Directory{Path: t.TempDir()}).Fetch(ctx)
	wantError(t, err, Canceled)
}

// TestDirectoryOddFiles: what is not a file must not be opened, which could hang.
func TestDirectoryOddFiles(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"pipe":           func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"folder":         func(path string) error { return os.Mkdir(path, 0o755) },
		"device":         func(path string) error { return os.Symlink("/dev/zero", path) },
		"link to itself": func(path string) error { return os.Symlink(nameTokenizer, path) },
		"dangling link":  func(path string) error { return os.Symlink("../blobs/x", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := create(filepath.Join(dir, nameTokenizer)); err != nil {
				t.Fatal(err)
			}
			_, err := (&Directory{Path: dir}).Fetch(t.Context())
			wantError(t, err, Unreadable, nameTokenizer)
		})
	}
}

const (
	commitA = "0123456789abcdef0123456789abcdef01234567"
	commitB = "fedcba9876543210fedcba9876543210fedcba98"
)

// hubCache lays out a repository as the Hugging Face cache does: snapshots are
// links to blobs.
func hubCache(t *testing.T, dir, commit string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		blob := gitHash([]byte(content))
		writeFiles(t, dir, map[string]string{"blobs/" + blob: content, "snapshots/" + commit + "/.keep": ""})
		if err := os.Symlink("../../blobs/"+blob, filepath.Join(dir, "snapshots", commit, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectoryHubCache(t *testing.T) {
	dir := t.TempDir()
	a, b := sample(), with(sample(), nameConfig, `{"b":1}`)
	hubCache(t, dir, commitA, a)
	hubCache(t, dir, commitB, b)
	writeFiles(t, dir, map[string]string{"refs/main": commitA, "refs/refs/pr/1": commitB + "\n", "refs/broken": "x"})
	for _, tc := range []struct {
		path, revision, commit string
		want                   map[string]string
	}{
		{dir, "", commitA, a},
		{dir, "main", commitA, a},
		{dir, "refs/pr/1", commitB, b},
		{dir, commitB, commitB, b},
		{filepath.Join(dir, "snapshots", commitB), "", commitB, b},
	} {
		f, err := (&Directory{Path: tc.path, Revision: tc.revision}).Fetch(t.Context())
		wantFiles(t, f, err, tc.want)
		if f.Revision != tc.commit {
			t.Errorf("%s@%s: revision %s, want %s", tc.path, tc.revision, f.Revision, tc.commit)
		}
	}
	for revision, code := range map[string]Code{
		"broken": BadContent, "no": NotFound, "../main": BadConfig, "/etc/passwd": BadConfig, strings.Repeat("0", 40): NotFound,
	} {
		_, err := (&Directory{Path: dir, Revision: revision}).Fetch(t.Context())
		wantError(t, err, code)
	}
}

// TestDirectoryOfOneVersion changes a file while files are read.
func TestDirectoryOfOneVersion(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, sample())
	d := &Directory{Path: dir}
	times, upTo := 0, 2
	read := func(path string) (*Files, error) {
		f, err := d.read(path)
		if times++; times <= upTo {
			writeFiles(t, dir, map[string]string{nameConfig: `{"n":` + strings.Repeat("1", times) + `}`})
		}
		return f, err
	}
	f, err := d.settle(t.Context(), read)
	wantFiles(t, f, err, with(sample(), nameConfig, `{"n":11}`))
	if times != 3 {
		t.Errorf("read %d times", times)
	}
	times, upTo = 0, 100
	_, err = d.settle(t.Context(), read)
	wantError(t, err, Changing)
	if times != readAttempts {
		t.Errorf("read %d times", times)
	}
}

// TestWatch runs on synctest's clock: time.Sleep waits for nothing.
func TestWatch(t *testing.T) {
	swap := func(dir, target string) error {
		tmp := filepath.Join(dir, "tmp")
		return errors.Join(os.Symlink(target, tmp), os.Rename(tmp, filepath.Join(dir, "data")))
	}
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a", nameConfig), []byte("{ }"), 0o644)
		},
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "a", nameConfig)) },
		"added": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a", nameTiktoken), []byte("x"), 0o644)
		},
		"another file": func(dir string) error {
			path := filepath.Join(dir, "a", nameTokenizer)
			// Of the same content and times: only the file is another.
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", data, 0o644),
				os.Chtimes(path+".new", info.ModTime(), info.ModTime()), os.Rename(path+".new", path))
		},
		"link swapped": func(dir string) error { return swap(dir, "b") },
		"folder gone":  func(dir string) error { return os.Remove(filepath.Join(dir, "data")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, filepath.Join(dir, "a"), sample())
			writeFiles(t, filepath.Join(dir, "b"), sample())
			if err := swap(dir, "a"); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { checkWatch(t, dir, change) })
		})
	}
}

func checkWatch(t *testing.T, dir string, change func(string) error) {
	t.Helper()
	d := &Directory{Path: filepath.Join(dir, "data")}
	if _, err := d.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.Watch(ctx, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing changed, Watch: %v", err)
	}
	start, done := time.Now(), make(chan error)
	go func() { done <- d.Watch(t.Context(), time.Second) }()
	time.Sleep(10*time.Second + time.Second/2)
	if err := change(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took != 12*time.Second {
		t.Errorf("noticed after %v, want two looks after the change", took)
	}
	_, _ = d.Fetch(t.Context()) // an error is as good: it was told
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.Watch(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the change was fetched, Watch: %v", err)
	}
}

// TestWatchWaitsForTheEndOfACopy grows a file between looks.
func TestWatchWaitsForTheEndOfACopy(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, sample())
	synctest.Test(t, func(t *testing.T) {
		d := &Directory{Path: dir}
		if _, err := d.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		start, done := time.Now(), make(chan error)
		go func() { done <- d.Watch(t.Context(), time.Second) }()
		time.Sleep(time.Second / 2)
		for n := range 5 {
			writeFiles(t, dir, map[string]string{nameTokenizer: "{" + strings.Repeat(" ", n)})
			time.Sleep(time.Second)
		}
		if err := <-done; err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("%v after %v, want 6s: the last write is seen at 5s and has not changed at 6s", err, time.Since(start))
		}
	})
}
