package modelfiles

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestHubChecksums: what is not what the hub says is refused at once.
func TestHubChecksums(t *testing.T) {
	for name, hook := range map[string]func(http.ResponseWriter, *http.Request, string) bool{
		"SHA-256": times(always, "GET storage "+nameTokenizer, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"2.0"}`) }),
		"git": times(always, "GET "+commitA+" "+nameTokenizer, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"`+gitHash([]byte("{}"))+`"`)
			fmt.Fprint(w, "{ }")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.hook = hook
			cfg, clock := hub.config()
			cfg.CacheDir = t.TempDir()
			_, err := newHub(t, cfg).Fetch(t.Context())
			wantError(t, err, BadChecksum, nameTokenizer, "proxy")
			if len(clock.pauses) > 0 {
				t.Errorf("pauses %v", clock.pauses)
			}
			if left, _ := os.ReadDir(cfg.CacheDir); len(left) > 0 {
				t.Errorf("the cache holds %v", left)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		hub := newFakeHub(t)
		hub.hook = times(always, "GET "+commitA+" "+nameConfig, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
		cfg, _ := hub.config()
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, with(sample(), nameConfig, "{}"))
		if f.Verified {
			t.Error("a file without a checksum counts as verified")
		}
	})
}

// unlinked redirects to the storage without saying what the file must be.
func (h *fakeHub) unlinked(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, h.storage.URL+"/"+nameTokenizer, http.StatusFound)
}

// TestHubStorageETag: a storage's ETag is no checksum, though it may look like one.
func TestHubStorageETag(t *testing.T) {
	hub := newFakeHub(t)
	hub.hook = times(always, "GET "+commitA+" "+nameTokenizer, hub.unlinked)
	cfg, _ := hub.config()
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if f.Verified {
		t.Error("verified by the ETag of a storage")
	}
}

// TestHubResumesOnlyTheSame: a part is not put to another that cannot be checked.
func TestHubResumesOnlyTheSame(t *testing.T) {
	hub := newFakeHub(t)
	content := `{"x":"` + strings.Repeat("0123456789", 1000) + `"}`
	hub.files[nameTokenizer] = content
	asked, served := 0, 0
	hub.hook = func(w http.ResponseWriter, r *http.Request, request string) bool {
		switch request {
		case "GET " + commitA + " " + nameTokenizer:
			if asked++; asked == 2 {
				hub.unlinked(w, r)
				return true
			}
		case "GET storage " + nameTokenizer:
			switch served++; served {
			case 1:
				cut(content, 4000)(w, r)
			case 2:
				w.Header().Set("Content-Range", "bytes 4000-10007/10008")
				w.WriteHeader(http.StatusPartialContent)
				fmt.Fprint(w, strings.Repeat("?", len(content)-4000))
				return true
			}
		}
		return false
	}
	cfg, _ := hub.config()
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, hub.files)
	if served != 3 {
		t.Errorf("%d downloads", served)
	}
}

func TestHubTooLarge(t *testing.T) {
	big := "{" + strings.Repeat(" ", 1<<20) + "}"
	for name, answer := range map[string]http.HandlerFunc{
		"by its length": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000000000000") },
		"without end": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := fmt.Fprint(w, big); err != nil {
					return
				}
			}
		},
		"by what is said":    status(200, headerLinkedSize, "2000"),
		"after decompressed": func(w http.ResponseWriter, _ *http.Request) { writeGzip(w, big) },
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.hook = times(always, "GET "+commitA+" "+nameTokenizer, answer)
			cfg, clock := hub.config()
			cfg.Net.MaxFileBytes = 1000
			_, err := newHub(t, cfg).Fetch(t.Context())
			wantError(t, err, TooLarge, nameTokenizer, "1000")
			if len(clock.pauses) > 0 {
				t.Errorf("pauses %v", clock.pauses)
			}
		})
	}
}

func writeGzip(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	fmt.Fprint(z, content)
	z.Close()
}

// TestHubGzip: a proxy may compress though it is asked not to. Cut short, it is
// fetched anew.
func TestHubGzip(t *testing.T) {
	hub := newFakeHub(t)
	hub.files[nameConfig] = `{"a":"` + strings.Repeat("x", 100_000) + `"}`
	var whole []byte
	{
		w := httptest.NewRecorder()
		writeGzip(w, hub.files[nameConfig])
		whole = w.Body.Bytes()
	}
	n := 0
	hub.hook = func(w http.ResponseWriter, r *http.Request, request string) bool {
		if request != "GET "+commitA+" "+nameConfig {
			return false
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Etag", `W/"`+gitHash([]byte(hub.files[nameConfig]))+`"`)
		if n++; n == 1 {
			cut(string(whole), len(whole)/2)(w, r)
		}
		if r.Header.Get("Range") != "" {
			t.Errorf("a part of what is compressed is asked for: %s", r.Header.Get("Range"))
		}
		_, _ = w.Write(whole)
		return true
	}
	cfg, clock := hub.config()
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, hub.files)
	if len(clock.pauses) != 1 || !f.Verified {
		t.Errorf("pauses %v, verified %v", clock.pauses, f.Verified)
	}
}

// transport answers in place of the network, so that a test can run on synctest's
// clock.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// drip gives a byte at a time, with a pause before each. It ends with the context,
// as the body of a real answer does.
type drip struct {
	ctx   context.Context
	rest  string
	pause time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.rest == "" {
		return 0, io.EOF
	}
	if err := wait(d.ctx, d.pause); err != nil {
		return 0, err
	}
	p[0], d.rest = d.rest[0], d.rest[1:]
	return 1, nil
}

func (d *drip) Close() error { return nil }

// TestHubStalls: a hub that sends nothing for long counts as down, but a slow one
// may take its time.
func TestHubStalls(t *testing.T) {
	for name, tc := range map[string]struct {
		head, pause time.Duration // before the head of an answer, and before each byte
		ok          bool
	}{
		"slow":         {DefaultStall - 1, DefaultStall - 1, true},
		"in the body":  {0, DefaultStall + 1, false},
		"head is late": {DefaultStall + 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				answer := func(r *http.Request) (*http.Response, error) {
					tries++
					if err := wait(r.Context(), tc.head); err != nil {
						return nil, err
					}
					body := &drip{ctx: r.Context(), rest: "{}", pause: tc.pause}
					return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: 2, Body: body, Request: r}, nil
				}
				h := newHub(t, HubConfig{Repository: "org/model", Revision: commitA, Net: Net{Transport: transport(answer), Attempts: 3}})
				f, err := h.Fetch(t.Context())
				if tc.ok {
					wantFiles(t, f, err, map[string]string{
						nameTokenizer: "{}", nameConfig: "{}", nameTemplate: "{}", nameGenerationConfig: "{}", nameModelConfig: "{}",
					})
					return
				}
				wantError(t, err, Unavailable, nameTokenizer, "nothing came for 30s")
				if tries != 3 {
					t.Errorf("%d tries", tries)
				}
			})
		})
	}
}

func TestHubCanceled(t *testing.T) {
	hub := newFakeHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	hub.hook = func(_ http.ResponseWriter, r *http.Request, request string) bool {
		if request == "GET storage "+nameTokenizer {
			cancel()
			<-r.Context().Done()
		}
		return false
	}
	cfg, clock := hub.config()
	h := newHub(t, cfg)
	_, err := h.Fetch(ctx)
	wantError(t, err, Canceled)
	if len(clock.pauses) > 0 {
		t.Errorf("pauses %v", clock.pauses)
	}
	// While it waits, and before it begins.
	hub.with(func() { hub.hook = times(always, "HEAD main "+nameConfig, status(500)) })
	ctx, cancel = context.WithCancel(t.Context())
	cfg.Net.Wait = func(ctx context.Context, _ time.Duration) error { cancel(); return wait(ctx, time.Hour) }
	_, err = newHub(t, cfg).Fetch(ctx)
	wantError(t, err, Canceled)
	h.busy <- struct{}{}
	_, err = h.Fetch(ctx)
	wantError(t, err, Canceled)
}

// TestHubResumes: a large file goes on where it was cut.
func TestHubResumes(t *testing.T) {
	content := `{"x":"` + strings.Repeat("0123456789", 1000) + `"}`
	const stored = "GET storage " + nameTokenizer
	for name, tc := range map[string]struct {
		second http.HandlerFunc // answers the request after the cut
		ranges []string         // what the storage is asked
	}{
		"goes on":      {nil, []string{"", "bytes=4000-"}},
		"starts again": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content) }, []string{"", "bytes=4000-"}},
		"has no part":  {status(416), []string{"", "bytes=4000-", ""}},
		"another part": {status(206, "Content-Range", "bytes 0-4/10008"), []string{"", "bytes=4000-", ""}},
		"is busy":      {status(503), []string{"", "bytes=4000-", "bytes=4000-"}},
		"gives nonsense": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 4000-10007/10008")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, strings.Repeat("?", len(content)-4000))
		}, []string{"", "bytes=4000-", ""}},
		"gives too much": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 4000-20000/20001")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, strings.Repeat("?", len(content)))
		}, []string{"", "bytes=4000-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.files[nameTokenizer] = content
			n := 0
			var ranges []string
			hub.hook = func(w http.ResponseWriter, r *http.Request, request string) bool {
				if request != stored {
					return false
				}
				ranges = append(ranges, r.Header.Get("Range"))
				if n++; n == 1 {
					cut(content, 4000)(w, r)
				}
				if n == 2 && tc.second != nil {
					tc.second(w, r)
					return true
				}
				return false
			}
			cfg, _ := hub.config()
			f, err := newHub(t, cfg).Fetch(t.Context())
			wantFiles(t, f, err, hub.files)
			if !slices.Equal(ranges, tc.ranges) {
				t.Errorf("asked for %q, want %q", ranges, tc.ranges)
			}
		})
	}
}

// TestHubOverABadNetwork: whatever happens on the way, what comes out is right, or
// an error.
func TestHubOverABadNetwork(t *testing.T) {
	hub := newFakeHub(t)
	content := `{"x":"` + strings.Repeat("0123456789", 20) + `"}`
	hub.files[nameTokenizer] = content
	rapid.Check(t, func(rt *rapid.T) {
		plan := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 6).Draw(rt, "plan")
		at := rapid.IntRange(1, len(content)-1).Draw(rt, "at")
		next := 0
		hub.with(func() {
			hub.hook = func(w http.ResponseWriter, r *http.Request, request string) bool {
				if request != "GET storage "+nameTokenizer || next == len(plan) {
					return false
				}
				next++
				switch plan[next-1] {
				case 0:
					status(503)(w, r)
				case 1:
					cut(content, at)(w, r)
				case 2: // what Range asked for is ignored
					fmt.Fprint(w, content)
				case 3: // short, and says so
					fmt.Fprint(w, content[:at])
				case 4:
					fmt.Fprint(w, strings.ToUpper(content))
				case 5:
					status(206, "Content-Range", fmt.Sprintf("bytes %d-", at))(w, r)
				default:
					return false
				}
				return true
			}
		})
		cfg, _ := hub.config()
		f, err := newHub(t, cfg).Fetch(t.Context())
		if err == nil && string(f.Tokenizer) != content {
			rt.Fatalf("got %q", f.Tokenizer)
		}
		if err != nil && !slices.Contains([]Code{Unavailable, BadChecksum, BadAnswer}, CodeOf(err)) {
			rt.Fatal(err)
		}
		if len(plan) < 3 && !slices.Contains(plan, 4) && !slices.Contains(plan, 5) && err != nil {
			rt.Fatalf("fewer failures than attempts: %v", err)
		}
	})
}
