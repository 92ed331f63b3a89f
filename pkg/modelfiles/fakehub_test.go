package modelfiles

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeHub answers as Hugging Face does: small files itself, large ones by a
// redirect to a storage with a signed address.
type fakeHub struct {
	*httptest.Server
	storage *httptest.Server

	mu     sync.Mutex
	files  map[string]string // of commit
	large  map[string]bool   // names of files that are in the storage
	commit string            // what main, v1 and refs/pr/1 are
	token  string            // what is asked for; empty: nothing
	log    []string          // what both were asked: "HEAD main config.json", "GET storage config.json"
	auth   []string          // Authorization of those
	ranges []string          // Range of those
	// hook may answer instead, for the hub or for the storage.
	hook func(w http.ResponseWriter, r *http.Request, request string) bool
}

func newFakeHub(t *testing.T) *fakeHub {
	t.Helper()
	h := &fakeHub{files: sample(), large: map[string]bool{nameTokenizer: true}, commit: commitA}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serveHub))
	t.Cleanup(h.Close)
	h.storage = httptest.NewServer(http.HandlerFunc(h.serveStorage))
	t.Cleanup(h.storage.Close)
	return h
}

// note keeps what was asked, and gives the hook its chance.
func (h *fakeHub) note(w http.ResponseWriter, r *http.Request, request string) (answered bool) {
	h.mu.Lock()
	h.log = append(h.log, request)
	h.auth = append(h.auth, r.Header.Get("Authorization"))
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	hook := h.hook
	h.mu.Unlock()
	return hook != nil && hook(w, r, request)
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/org/model/resolve/")
	escaped, name, _ := strings.Cut(rest, "/")
	revision, err := url.PathUnescape(escaped)
	if h.note(w, r, r.Method+" "+revision+" "+name) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	fail := func(status int, code string) {
		w.Header().Set(headerErrorCode, code)
		http.Error(w, code, status)
	}
	known := slices.Contains([]string{"main", "v1", "refs/pr/1", h.commit}, revision)
	content, have := h.files[name]
	switch {
	case !ok || err != nil:
		fail(http.StatusNotFound, repoNotFound)
	case h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token:
		fail(http.StatusUnauthorized, gatedRepo)
	case !known:
		fail(http.StatusNotFound, revisionNotFound)
	case !have:
		w.Header().Set(headerCommit, h.commit)
		fail(http.StatusNotFound, entryNotFound)
	case h.large[name]:
		w.Header().Set(headerCommit, h.commit)
		w.Header().Set(headerLinkedETag, strconv.Quote(sha256Hex([]byte(content))))
		w.Header().Set(headerLinkedSize, strconv.Itoa(len(content)))
		w.Header().Set("Etag", `"not-of-the-content"`)
		http.Redirect(w, r, h.storage.URL+"/"+name+"?signature=hidden", http.StatusFound)
	default:
		w.Header().Set(headerCommit, h.commit)
		w.Header().Set("Etag", `"`+gitHash([]byte(content))+`"`)
		fmt.Fprint(w, content)
	}
}

func (h *fakeHub) serveStorage(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if h.note(w, r, r.Method+" storage "+name) {
		return
	}
	h.mu.Lock()
	content := h.files[name]
	h.mu.Unlock()
	// An ETag of 64 digits that is no SHA-256 of the content, as some storages have.
	w.Header().Set("Etag", `"`+strings.Repeat("ab", 32)+`"`)
	servePart(w, r, content)
}

// servePart serves what Range asks for.
func servePart(w http.ResponseWriter, r *http.Request, content string) {
	if from, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		at, err := strconv.Atoi(strings.TrimSuffix(from, "-"))
		if err != nil || at >= len(content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(content)-1, len(content)))
		w.Header().Set("Content-Length", strconv.Itoa(len(content)-at))
		w.WriteHeader(http.StatusPartialContent)
		fmt.Fprint(w, content[at:])
		return
	}
	fmt.Fprint(w, content)
}

// asked returns what was asked since the last call.
func (h *fakeHub) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	log := h.log
	h.log = nil
	return log
}

// with changes the hub under its lock.
func (h *fakeHub) with(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// config returns a configuration for the repository, whose waits are counted.
func (h *fakeHub) config() (HubConfig, *clock) {
	c := &clock{}
	return HubConfig{Address: h.URL, Repository: "org/model", Net: quickNet(c)}, c
}

func newHub(t *testing.T, cfg HubConfig) *Hub {
	t.Helper()
	h, err := NewHub(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// times answers so many requests with this before all goes well.
func times(n int, request string, answer http.HandlerFunc) func(http.ResponseWriter, *http.Request, string) bool {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, got string) bool {
		mu.Lock()
		if got != request || n == 0 {
			mu.Unlock()
			return false
		}
		n--
		mu.Unlock()
		answer(w, r)
		return true
	}
}

const always = -1

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// cut promises all of content and ends the connection after some of it.
func cut(content string, after int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		fmt.Fprint(w, content[:after])
		// Sends what there is, then ends the connection.
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
