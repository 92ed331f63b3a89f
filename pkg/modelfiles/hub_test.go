package modelfiles

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tokenFile writes a token where a Secret would be mounted.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHub(t *testing.T) {
	hub := newFakeHub(t)
	hub.token = secret
	cfg, clock := hub.config()
	cfg.TokenFile = tokenFile(t, secret+"\n")
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if f.Revision != commitA || !f.Verified || f.Stale != nil || f.CacheError != nil || len(clock.pauses) > 0 {
		t.Errorf("revision %s, verified %v, stale %v, cache %v, pauses %v", f.Revision, f.Verified, f.Stale, f.CacheError, clock.pauses)
	}
	if want := "hub " + hub.URL + ", repository org/model@main"; f.Source != want {
		t.Errorf("source %q, want %q", f.Source, want)
	}
	for i, request := range hub.log {
		want := "Bearer " + secret
		if strings.Contains(request, "storage") {
			want = ""
		}
		if hub.auth[i] != want {
			t.Errorf("%s came with Authorization %q, want %q", request, hub.auth[i], want)
		}
	}
	want := []string{
		"HEAD main " + nameConfig,
		"GET " + commitA + " " + nameTokenizer, "GET storage " + nameTokenizer,
		"GET " + commitA + " " + nameConfig, "GET " + commitA + " " + nameTemplate,
		"GET " + commitA + " " + nameGenerationConfig, "GET " + commitA + " " + nameModelConfig,
	}
	if diff := cmp.Diff(want, hub.asked()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestHubRevisions(t *testing.T) {
	hub := newFakeHub(t)
	for _, revision := range []string{"main", "v1", "refs/pr/1", commitA} {
		cfg, _ := hub.config()
		cfg.Revision = revision
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		if f.Revision != commitA {
			t.Errorf("%s is %s", revision, f.Revision)
		}
	}
}

// TestHubBehindAPath: a mirror need not be the root of its server.
func TestHubBehindAPath(t *testing.T) {
	hub := newFakeHub(t)
	mirror := httptest.NewServer(http.StripPrefix("/api/hub", hub.Config.Handler))
	t.Cleanup(mirror.Close)
	for _, address := range []string{mirror.URL + "/api/hub", mirror.URL + "/api/hub/"} {
		cfg, _ := hub.config()
		cfg.Address, cfg.Revision, cfg.CacheDir = address, "refs/pr/1", t.TempDir()
		f, err := newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
		cfg.Offline = true
		f, err = newHub(t, cfg).Fetch(t.Context())
		wantFiles(t, f, err, sample())
	}
}

func TestHubMissingFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		code  Code
	}{
		"no options":       {map[string]string{nameTokenizer: "{}"}, ""},
		"tiktoken":         {with(without(sample(), nameTokenizer), nameTiktoken, "YQ== 0\n"), ""},
		"template as JSON": {with(without(sample(), nameTemplate), nameTemplateJSON, "{}"), ""},
		"no tokenizer":     {without(sample(), nameTokenizer), NotFound},
		"a git-lfs mirror": {with(sample(), nameTokenizer, lfsPointer+".github.com/spec/v1\n"), BadContent},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.files = tc.files
			cfg, _ := hub.config()
			f, err := newHub(t, cfg).Fetch(t.Context())
			if tc.code != "" {
				wantError(t, err, tc.code, "org/model@main")
				return
			}
			wantFiles(t, f, err, tc.files)
		})
	}
}

// TestHubRetries: what may pass is tried again, at the time that is asked for.
func TestHubRetries(t *testing.T) {
	const file = "GET " + commitA + " " + nameConfig
	const stored = "GET storage " + nameTokenizer
	date := time.Date(2026, 5, 4, 3, 2, 11, 0, time.UTC).Format(http.TimeFormat)
	second := time.Second
	for name, tc := range map[string]struct {
		hook   func(http.ResponseWriter, *http.Request, string) bool
		pauses []time.Duration
	}{
		"busy":              {times(3, file, status(503)), []time.Duration{second, 2 * second, 4 * second}},
		"when resolved":     {times(1, "HEAD main "+nameConfig, status(500)), []time.Duration{second}},
		"too many":          {times(2, file, status(429, "Retry-After", "7")), []time.Duration{7 * second, 7 * second}},
		"too many, a date":  {times(1, file, status(429, "Retry-After", date)), []time.Duration{10 * second}},
		"too many, a limit": {times(1, file, status(429, "RateLimit", `"resolvers";r=0;t=55`)), []time.Duration{55 * second}},
		"too many, no time": {times(1, file, status(429, "Retry-After", "soon")), []time.Duration{second}},
		"at once":           {times(1, file, status(429, "Retry-After", "0")), []time.Duration{second}},
		"storage refuses":   {times(1, stored, status(403)), []time.Duration{second}},
		"storage has lost":  {times(1, stored, status(404)), []time.Duration{second}},
		"connection":        {times(4, file, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), []time.Duration{second, 2 * second, 4 * second, 8 * second}},
		"small file cut":    {times(1, file, cut(sample()[nameConfig], 3)), []time.Duration{second}},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.hook = tc.hook
			cfg, clock := hub.config()
			f, err := newHub(t, cfg).Fetch(t.Context())
			wantFiles(t, f, err, sample())
			if !slices.Equal(clock.pauses, tc.pauses) {
				t.Errorf("pauses %v, want %v", clock.pauses, tc.pauses)
			}
		})
	}
}

// TestHubGivesUp: each failure has its code, its number of requests, and says what
// to do.
func TestHubGivesUp(t *testing.T) {
	const file = "GET " + commitA + " " + nameConfig
	const head = "HEAD main " + nameConfig
	for name, tc := range map[string]struct {
		request string
		answer  http.HandlerFunc
		code    Code
		times   int
		parts   []string
	}{
		"down":               {file, status(502), Unavailable, DefaultAttempts, []string{nameConfig, "502 Bad Gateway", "proxy"}},
		"too many":           {file, status(429), Unavailable, DefaultAttempts, []string{"too many", "token"}},
		"too many, for long": {file, status(429, "Retry-After", "3600"), Unavailable, 1, []string{"1h0m0s"}},
		"no token":           {head, status(401), Unauthorized, 1, []string{"token", "name"}},
		"gated":              {head, status(401, headerErrorCode, gatedRepo), Unauthorized, 1, []string{"gated", "terms"}},
		"gated, a file":      {file, status(403, headerErrorCode, gatedRepo), Forbidden, 1, []string{nameConfig, "gated"}},
		"forbidden":          {file, status(403), Forbidden, 1, nil},
		"no repository":      {head, status(404, headerErrorCode, repoNotFound), NotFound, 1, []string{"no such repository", "token"}},
		"no revision":        {head, status(404, headerErrorCode, revisionNotFound), NotFound, 1, []string{"revision"}},
		"no hub at all":      {head, status(404), BadAnswer, 1, []string{"address", "40 digits"}},
		"no commit":          {head, status(200), BadAnswer, 1, []string{"40 digits"}},
		"odd commit":         {head, status(200, headerCommit, "main"), BadAnswer, 1, nil},
		"no HEAD":            {head, status(405), BadAnswer, 1, []string{"405"}},
		"another commit":     {file, status(200, headerCommit, commitB), BadAnswer, 1, []string{commitB, "mirror"}},
		"a part unasked":     {file, status(206), BadAnswer, 1, []string{"206"}},
		"teapot":             {file, status(418), BadAnswer, 1, []string{"418"}},
		"encoding":           {file, status(200, "Content-Encoding", "br"), BadAnswer, 1, []string{"br", "proxy"}},
		"loop":               {file, status(302, "Location", "/org/model/resolve/"+commitA+"/"+nameConfig), BadAnswer, maxHops, []string{"circles"}},
		"to nowhere":         {file, status(302), BadAnswer, 1, nil},
		"to a wrong address": {file, status(302, "Location", "http://[::1"), BadAnswer, 1, nil},
		"to a file":          {file, status(302, "Location", "file:///etc/passwd"), BadAnswer, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			hub.hook = times(always, tc.request, tc.answer)
			cfg, _ := hub.config()
			_, err := newHub(t, cfg).Fetch(t.Context())
			wantError(t, err, tc.code, append(tc.parts, "hub "+hub.URL)...)
			n := 0
			for _, request := range hub.asked() {
				if request == tc.request {
					n++
				}
			}
			if n != tc.times {
				t.Errorf("asked %d times, want %d", n, tc.times)
			}
		})
	}
}

// TestHubToken: what is wrong with the token, and that no error shows it.
func TestHubToken(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		answer  http.HandlerFunc
		code    Code
		parts   []string
	}{
		"empty":        {" \n", nil, BadConfig, []string{"Secret"}},
		"two lines":    {secret + "\n" + secret, nil, BadConfig, []string{"Secret"}},
		"too much":     {strings.Repeat(secret, 10_000), nil, BadConfig, []string{"larger"}},
		"not ASCII":    {secret + "é", nil, BadConfig, nil},
		"not taken":    {secret, status(401), Unauthorized, []string{"renew"}},
		"gated":        {secret, status(403, headerErrorCode, gatedRepo), Forbidden, []string{"account"}},
		"gated as 401": {secret, status(401, headerErrorCode, gatedRepo), Forbidden, []string{"account"}},
		"not allowed":  {secret, status(403), Forbidden, []string{"token may not"}},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t)
			if tc.answer != nil {
				hub.hook = times(always, "HEAD main "+nameConfig, tc.answer)
			}
			cfg, _ := hub.config()
			cfg.TokenFile = tokenFile(t, tc.content)
			_, err := newHub(t, cfg).Fetch(t.Context())
			wantError(t, err, tc.code, tc.parts...)
		})
	}
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.TokenFile = filepath.Join(t.TempDir(), "no")
	h := newHub(t, cfg)
	_, err := h.Fetch(t.Context())
	wantError(t, err, BadConfig, "missing", "Secret")
	// The Secret is mounted later, and renewed.
	for _, token := range []string{"one", "two"} {
		hub.with(func() { hub.token = token })
		writeFiles(t, filepath.Dir(cfg.TokenFile), map[string]string{"no": token})
		f, err := h.Fetch(t.Context())
		wantFiles(t, f, err, sample())
	}
}

// TestHubRedirects: within the hub the token goes along; elsewhere never, and not
// again after that.
func TestHubRedirects(t *testing.T) {
	hub := newFakeHub(t)
	hub.token = secret
	moved := "GET " + commitA + " " + nameModelConfig
	hub.hook = func(w http.ResponseWriter, r *http.Request, request string) bool {
		switch {
		case request == moved && r.URL.RawQuery == "":
			http.Redirect(w, r, r.URL.Path+"?again=1", http.StatusTemporaryRedirect)
		case request == "GET storage "+nameTokenizer && r.URL.Query().Get("back") == "":
			// The storage sends back to the hub.
			http.Redirect(w, r, hub.URL+"/org/model/resolve/"+commitA+"/"+nameConfig, http.StatusFound)
		default:
			return false
		}
		return true
	}
	cfg, _ := hub.config()
	cfg.TokenFile = tokenFile(t, secret)
	_, err := newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, Unavailable, nameTokenizer, "storage answers 401")
	hub.large = nil
	f, err := newHub(t, cfg).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	for i, request := range hub.log {
		back := i > 0 && strings.Contains(hub.log[i-1], "storage") // the request that the storage caused
		if leaked := hub.auth[i] != ""; leaked != (!back && !strings.Contains(request, "storage")) {
			t.Errorf("%s came with Authorization %q", request, hub.auth[i])
		}
	}
}

// TestHubStaysWithTLS: a redirect from https to http is refused.
func TestHubStaysWithTLS(t *testing.T) {
	plain := newFakeHub(t)
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusFound)
	}))
	hub.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	hub.StartTLS()
	t.Cleanup(hub.Close)
	cfg, clock := plain.config()
	cfg.Address, cfg.Net.Transport = hub.URL, hub.Client().Transport
	_, err := newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, BadAnswer, "https")
	if asked := plain.asked(); len(asked) > 0 {
		t.Errorf("asked over http: %v", asked)
	}
	// A certificate of an unknown authority, which is what happens behind a proxy.
	cfg.Net.Transport = nil
	_, err = newHub(t, cfg).Fetch(t.Context())
	wantError(t, err, Unavailable, "certificate", "SSL_CERT_FILE")
	if len(clock.pauses) > 0 {
		t.Errorf("pauses %v", clock.pauses)
	}
}

func TestHubConfig(t *testing.T) {
	good := HubConfig{Repository: "org/model"}
	if _, err := NewHub(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*HubConfig){
		"no repository":     func(c *HubConfig) { c.Repository = "" },
		"three parts":       func(c *HubConfig) { c.Repository = "a/b/c" },
		"up":                func(c *HubConfig) { c.Repository = "../x" },
		"dots":              func(c *HubConfig) { c.Repository = "a/b..c" },
		"hidden":            func(c *HubConfig) { c.Repository = "a/.b" },
		"query":             func(c *HubConfig) { c.Repository = "a/b?c" },
		"revision up":       func(c *HubConfig) { c.Revision = "../../etc" },
		"revision blank":    func(c *HubConfig) { c.Revision = "a b" },
		"revision line":     func(c *HubConfig) { c.Revision = "a\nb" },
		"revision option":   func(c *HubConfig) { c.Revision = "-x" },
		"revision absolute": func(c *HubConfig) { c.Revision = "/x" },
		"tiktoken up":       func(c *HubConfig) { c.TiktokenName = "../a.tiktoken" },
		"tiktoken":          func(c *HubConfig) { c.TiktokenName = "config.json" },
		"address":           func(c *HubConfig) { c.Address = "huggingface.co" },
		"password":          func(c *HubConfig) { c.Address = "https://u:" + secret + "@h" },
		"address query":     func(c *HubConfig) { c.Address = "https://h?x=" + secret },
		"no address":        func(c *HubConfig) { c.Address = "http://[" },
		"file":              func(c *HubConfig) { c.Address = "file:///x" },
		"offline, no cache": func(c *HubConfig) { c.Offline = true },
		"token in clear":    func(c *HubConfig) { c.Address, c.TokenFile = "http://hub.example", "/token" },
	} {
		cfg := good
		change(&cfg)
		_, err := NewHub(cfg)
		t.Run(name, func(t *testing.T) { wantError(t, err, BadConfig) })
	}
}

func TestPauses(t *testing.T) {
	n := Net{Chance: func() float64 { return 0.5 }}.withDefaults()
	got := []time.Duration{}
	for attempt := 1; attempt <= 8; attempt++ {
		got = append(got, n.pause(attempt))
	}
	s := time.Second
	want := []time.Duration{s * 3 / 4, s * 3 / 2, 3 * s, 6 * s, 12 * s, 24 * s, 45 * s, 45 * s}
	if !slices.Equal(got, want) || n.pause(1000) != 45*s {
		t.Errorf("pauses %v, want %v", got, want)
	}
}
