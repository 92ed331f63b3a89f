package modelfiles

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// cached returns a configuration with a cache that was filled by one fetch.
func cached(t *testing.T, hub *fakeHub) HubConfig {
	t.Helper()
	cfg, _ := hub.config()
	cfg.CacheDir = t.TempDir()
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if f.CacheError != nil {
		t.Fatal(f.CacheError)
	}
	hub.asked()
	return cfg
}

// folder is the folder of the repository in the cache.
func (h *fakeHub) folder(cfg HubConfig) string {
	return filepath.Join(cfg.CacheDir, strings.ReplaceAll(strings.TrimPrefix(h.URL, "http://"), ":", "_"), "models--org--model")
}

var down = status(http.StatusServiceUnavailable)

// allDown makes the hub answer nothing but 503.
func (h *fakeHub) allDown() {
	h.with(func() {
		h.hook = func(w http.ResponseWriter, r *http.Request, _ string) bool {
			down(w, r)
			return true
		}
	})
}

// TestCacheIsUsed: a new process asks which commit a branch is, and nothing for a
// commit.
func TestCacheIsUsed(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	for revision, requests := range map[string]int{"main": 1, "refs/pr/1": 1, commitA: 0} {
		cfg.Revision = revision
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		if asked := hub.asked(); len(asked) != requests {
			t.Errorf("%s: asked %v, want %d requests", revision, asked, requests)
		}
		if f.Revision != commitA || !f.Verified || f.Stale != nil || f.CacheError != nil || f.Source == "" {
			t.Errorf("%s: %+v", revision, f)
		}
	}
	// The branch moves.
	cfg.Revision = "main"
	moved := with(sample(), nameConfig, `{"moved":1}`)
	hub.with(func() { hub.commit, hub.files = commitB, moved })
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, moved)
	// The hub goes away: what main was last, and that it may no longer be.
	hub.allDown()
	hub.asked()
	f, err = newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, moved)
	wantError(t, f.Stale, Unavailable, "503", hub.URL)
	if asked := hub.asked(); f.Revision != commitB || len(asked) != attemptsWhenHeld {
		t.Errorf("revision %s after %v", f.Revision, asked)
	}
	// A revision that was asked for only once keeps its commit, another has none.
	cfg.Revision = "refs/pr/1"
	f, err = newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	wantError(t, f.Stale, Unavailable)
	cfg.Revision = "v1"
	_, err = newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, Unavailable)
}

// TestCacheWhenTheHubIsSlow: a deadline is as good as an answer that it is down; a
// caller who gives up wants nothing.
func TestCacheWhenTheHubIsSlow(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	cfg.Net = Net{Transport: transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f, err := newHub(t, cfg).Fetch(ctx)
		wantFiles(t, f, err, sample())
		wantError(t, f.Stale, Canceled, "deadline")
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = newHub(t, cfg).Fetch(ctx)
		wantError(t, err, Canceled)
		// Nobody gives up: the hub gets its time.
		start := time.Now()
		f, err = newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		wantError(t, f.Stale, Unavailable, "nothing came")
		if took := time.Since(start); took > 2*DefaultStall+DefaultPause {
			t.Errorf("took %v", took)
		}
	})
}

// TestCacheNotInsteadOfAnAnswer: a hub that refuses is not a hub that is down.
func TestCacheNotInsteadOfAnAnswer(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	hub.with(func() { hub.hook = times(always, "HEAD main "+nameConfig, status(401)) })
	_, err := newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, Unauthorized)
}

func TestOffline(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	cfg.Offline = true
	cfg.TokenFile = "/no/such/token" // of no use here
	for _, revision := range []string{"main", commitA} {
		cfg.Revision = revision
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		if f.Stale != nil {
			t.Errorf("offline is asked for, but stale is %v", f.Stale)
		}
	}
	for _, revision := range []string{"v1", commitB} {
		cfg.Revision = revision
		_, err := newHub(t, cfg).Fetch(t.Context())
		wantError(t, err, Offline, "offline off")
	}
	if asked := hub.asked(); len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
}

// TestCacheDamage: whatever happened to the cache, what comes out is what the hub
// has, or an error.
func TestCacheDamage(t *testing.T) {
	manifest := filepath.Join(commitA, manifestName)
	edit := func(path, old, text string) error {
		data, err := os.ReadFile(path)
		if !strings.Contains(string(data), old) {
			return fmt.Errorf("%s does not hold %q", path, old)
		}
		return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o644))
	}
	for name, damage := range map[string]func(dir string) error{
		"a file is gone":   func(dir string) error { return os.Remove(filepath.Join(dir, commitA, nameConfig)) },
		"a file is cut":    func(dir string) error { return os.Truncate(filepath.Join(dir, commitA, nameTokenizer), 5) },
		"a bit is flipped": func(dir string) error { return edit(filepath.Join(dir, commitA, nameTokenizer), "1.0", "1.1") },
		"a folder for a file": func(dir string) error {
			p := filepath.Join(dir, commitA, nameConfig)
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o755))
		},
		"no manifest":            func(dir string) error { return os.Remove(filepath.Join(dir, manifest)) },
		"manifest is cut":        func(dir string) error { return os.Truncate(filepath.Join(dir, manifest), 20) },
		"manifest is huge":       func(dir string) error { return os.Truncate(filepath.Join(dir, manifest), manifestBytes+1) },
		"of another commit":      func(dir string) error { return edit(filepath.Join(dir, manifest), commitA, commitB) },
		"the tokenizer unlisted": func(dir string) error { return edit(filepath.Join(dir, manifest), nameTokenizer, "../"+nameTokenizer) },
		"with another tiktoken":  func(dir string) error { return edit(filepath.Join(dir, manifest), nameTiktoken, "x.tiktoken") },
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			cfg := cached(t, hub)
			if err := damage(hub.folder(cfg)); err != nil {
				t.Fatal(err)
			}
			hub.allDown()
			_, err := newHub(t, cfg).Fetch(t.Context())
			wantError(t, err, Unavailable)
			hub.with(func() { hub.hook = nil })
			f, err := newHub(t, cfg).Fetch(t.Context())
			wantFiles(t, f, err, sample())
			if name == "a folder for a file" {
				wantError(t, f.CacheError, Unreadable, "cache")
				return
			}
			if f.CacheError != nil {
				t.Error(f.CacheError)
			}
			// And now it is whole.
			hub.allDown()
			f, err = newHub(t, cfg).Fetch(t.Context())
			wantFiles(t, f, err, sample())
		})
	}
}

// TestCacheManifestNames: a manifest opens no other files than those of a model.
func TestCacheManifestNames(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	outside := filepath.Join(cfg.CacheDir, "outside")
	writeFiles(t, cfg.CacheDir, map[string]string{"outside": "{}"})
	rel, err := filepath.Rel(filepath.Join(hub.folder(cfg), commitA), outside)
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, hub.folder(cfg), map[string]string{
		filepath.Join(commitA, manifestName): fmt.Sprintf(
			`{"commit":%q,"tiktoken":%q,"files":[{"name":%q,"sha256":%q}]}`, commitA, nameTiktoken, rel, sha256Hex([]byte("{}"))),
	})
	cfg.Offline = true
	_, err = newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, Offline)
}

func TestCacheBrokenRef(t *testing.T) {
	hub := newFakeHub(t)
	cfg := cached(t, hub)
	for _, ref := range []string{"", "../../x", commitA + "\n", commitB} {
		writeFiles(t, hub.folder(cfg), map[string]string{"refs/main": ref})
		cfg.Offline = true
		_, err := newHub(t, cfg).Fetch(t.Context())
		wantError(t, err, Offline)
		cfg.Offline = false
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		if asked := hub.asked(); len(asked) != 1 {
			t.Errorf("asked %v", asked)
		}
		cfg.Offline = true
		f, err = newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
	}
}

// TestCacheCannotBeWritten: the files are good all the same.
func TestCacheCannotBeWritten(t *testing.T) {
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.CacheDir = filepath.Join(t.TempDir(), "file")
	writeFiles(t, filepath.Dir(cfg.CacheDir), map[string]string{"file": ""})
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	wantError(t, f.CacheError, Unreadable, "disk")
}

// TestCacheKeepsFew: old commits go, so does what a dead process left.
func TestCacheKeepsFew(t *testing.T) {
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.CacheDir = t.TempDir()
	dir := hub.folder(cfg)
	old := time.Now().Add(-2 * partialLife)
	writeFiles(t, dir, map[string]string{"refs/" + partial + "old": "x", "refs/" + partial + "new": "x", "mine/notes": "x", commitA + "/x": "left", commitB + "/x": "new"})
	for _, path := range []string{"refs/" + partial + "old", commitA} {
		if err := os.Chtimes(filepath.Join(dir, path), old, old); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keepCommits + 2 {
		hub.with(func() { hub.commit = strings.Repeat(fmt.Sprint(i), 40) })
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		// Times of a file system may be coarse.
		at := old.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(filepath.Join(dir, hub.commit, manifestName), at, at); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, pattern := range []string{"*", "refs/*"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range paths {
			left = append(left, strings.TrimPrefix(path, dir+"/"))
		}
	}
	want := []string{strings.Repeat("2", 40), strings.Repeat("3", 40), strings.Repeat("4", 40), commitB, "mine", "refs", "refs/" + partial + "new", "refs/main"}
	if got := strings.Join(left, " "); got != strings.Join(want, " ") {
		t.Errorf("left %v, want %v", left, want)
	}
}

// TestCacheShared: several sources, as in several processes, fill one cache and
// read it at once.
func TestCacheShared(t *testing.T) {
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.CacheDir = t.TempDir()
	cfg.Net = Net{}
	one := newHub(t, cfg)
	var group errgroup.Group
	var mu sync.Mutex
	for i := range 16 {
		h := one
		if i%2 == 0 {
			h = newHub(t, cfg)
		}
		group.Go(func() error {
			f, err := h.Fetch(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				wantFiles(t, f, nil, sample())
				err = f.CacheError
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	hub.asked()
	if _, err := one.Fetch(t.Context()); err != nil || len(hub.asked()) != 1 {
		t.Errorf("after that: %v", err)
	}
}

// TestOneFetchAtATime: of many that want the same, one downloads.
func TestOneFetchAtATime(t *testing.T) {
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.CacheDir = t.TempDir()
	cfg.Net = Net{}
	h := newHub(t, cfg)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			_, err := h.Fetch(t.Context())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	downloads := 0
	for _, request := range hub.asked() {
		if request == "GET storage "+nameTokenizer {
			downloads++
		}
	}
	if downloads != 1 {
		t.Errorf("%d downloads", downloads)
	}
}
