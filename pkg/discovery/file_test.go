package discovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

const header = "apiVersion: routing.warmpath.dev/v1alpha1\nkind: WorkerList\n"

// worker is a file with one worker.
func worker(name string, port int, labels string) string {
	return header + fmt.Sprintf("workers:\n- {name: %s, address: 10.0.0.1, ports: [%d], labels: {%s}}\n", name, port, labels)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace writes a new file and renames it over path.
func replace(t *testing.T, path, content string) {
	t.Helper()
	tmp := path + ".new"
	write(t, tmp, content)
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// running is a File that runs until the test ends, and what it said.
type running struct {
	t         *testing.T
	mu        sync.Mutex
	published []string // names of the first worker
	last      *fleet.Snapshot
	log       bytes.Buffer
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func run(t *testing.T, path string, poll time.Duration) *running {
	t.Helper()
	r := &running{t: t}
	f := &File{
		Path: path, Rules: defaultRules(), Poll: poll,
		Log: slog.New(slog.NewTextHandler(r, nil)),
		Publish: func(s *fleet.Snapshot) {
			name := "none"
			if len(s.Workers) > 0 {
				name = s.Workers[0].Name
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.published = append(r.published, name)
			r.last = s
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *running) until(what string, cond func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s; published %v; log:\n%s", what, r.published, r.log.String())
		}
	}
}

func (r *running) snapshot() *fleet.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *running) untilPublished(name string) {
	r.t.Helper()
	r.until(name, func() bool { return len(r.published) > 0 && r.published[len(r.published)-1] == name })
}

func (r *running) untilLogged(text string) {
	r.t.Helper()
	r.until("the log line "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

func (r *running) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), text)
}

const (
	notUsable = "worker list not usable"
	goodAgain = "good again, unchanged"
)

func TestRunFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, worker("first", 1, ""))
	r := run(t, path, time.Hour)
	r.untilPublished("first")
	write(t, path, worker("in-place", 1, ""))
	r.untilPublished("in-place")
	replace(t, path, worker("renamed", 1, ""))
	r.untilPublished("renamed")
	replace(t, path, worker("renamed-again", 1, ""))
	r.untilPublished("renamed-again")
	write(t, path, header+"workers: []\n")
	r.untilPublished("none")
}

// A worker that comes back elsewhere under its name is asked at its new address.
func TestRunFollowsRecoveryEndpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	at := func(endpoint string) string {
		return header + fmt.Sprintf("workers:\n- {name: w, address: 10.0.0.1, ports: [1], recoveryEndpoints: [%q]}\n", endpoint)
	}
	write(t, path, at("10.0.0.1:40001/1/dp0"))
	r := run(t, path, time.Hour)
	r.untilPublished("w")
	first := r.snapshot()
	write(t, path, at("10.0.0.1:40002/2/dp0"))
	r.until("a second snapshot", func() bool { return len(r.published) > 1 })
	before, after := first.Workers[0], r.snapshot().Workers[0]
	if before.Recovery != "10.0.0.1:40001/1/dp0" || after.Recovery != "10.0.0.1:40002/2/dp0" {
		t.Errorf("asked at %q and then at %q", before.Recovery, after.Recovery)
	}
	if before == after {
		t.Error("the two workers are the same")
	}
}

// A mounted ConfigMap: workers.yaml -> ..data/workers.yaml, ..data -> a folder,
// and an update swaps the ..data link.
func TestRunFollowsConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		folder := filepath.Join(dir, fmt.Sprintf("..v%d", n))
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "workers.yaml"), worker(fmt.Sprintf("v%d", n), 1, ""))
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(filepath.Base(folder), link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..v%d", n-1))); err != nil {
			t.Fatal(err)
		}
	}
	version(1)
	path := filepath.Join(dir, "workers.yaml")
	if err := os.Symlink(filepath.Join("..data", "workers.yaml"), path); err != nil {
		t.Fatal(err)
	}
	r := run(t, path, time.Hour)
	for n := 1; n <= 4; n++ {
		if n > 1 {
			version(n)
		}
		r.untilPublished(fmt.Sprintf("v%d", n))
	}
}

// The file may be a link to a file that is changed in place, elsewhere.
func TestRunFollowsLinkTarget(t *testing.T) {
	target := filepath.Join(t.TempDir(), "real.yaml")
	write(t, target, worker("first", 1, ""))
	path := filepath.Join(t.TempDir(), "workers.yaml")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	r := run(t, path, time.Hour)
	r.untilPublished("first")
	write(t, target, worker("second", 1, ""))
	r.untilPublished("second")
}

func TestRunKeepsGoodSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	good := worker("good", 1, "")
	write(t, path, good)
	r := run(t, path, 2*time.Millisecond) // reads the bad file many times
	r.untilPublished("good")

	replace(t, path, "kind: [\n")
	r.untilLogged("not valid YAML")
	replace(t, path, worker("other", 0, ""))
	r.untilLogged("must be 1 to 65535")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.untilLogged("create it")
	if n := r.count(notUsable); n != 3 {
		t.Errorf("%d complaints, want one for each of 3 states", n)
	}
	replace(t, path, good)
	r.untilLogged(goodAgain)
	r.until("only one snapshot", func() bool { return len(r.published) == 1 })

	replace(t, path, worker("next", 1, ""))
	r.untilPublished("next")
	if n := r.count(notUsable); n != 3 {
		t.Errorf("%d complaints at the end, want 3", n)
	}
}

// A folder that is removed and made again is another folder to the system's
// watches.
func TestRunFollowsReplacedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	path := filepath.Join(dir, "workers.yaml")
	create := func(name string) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, worker(name, 1, ""))
	}
	create("first")
	r := run(t, path, 5*time.Millisecond)
	r.untilPublished("first")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.untilLogged(notUsable)
	create("second")
	r.untilPublished("second")
	replace(t, path, worker("third", 1, ""))
	r.untilPublished("third")
}

func TestRunNeedsGoodFileAtStart(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	write(t, bad, header)
	for path, want := range map[string]string{
		filepath.Join(dir, "absent.yaml"):         "create it",
		filepath.Join(dir, "absent", "file.yaml"): "create it",
		bad: "workers: required",
	} {
		f := &File{
			Path: path, Rules: defaultRules(), Log: slog.New(slog.DiscardHandler),
			Publish: func(*fleet.Snapshot) { t.Errorf("%s published", path) },
		}
		if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
