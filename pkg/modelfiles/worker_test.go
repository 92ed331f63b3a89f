package modelfiles

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/blake3"
)

const metadata = "/v1/metadata/dynamo/backend/generate/model/_base/"

// fakeWorker serves files as a Dynamo worker does: no range, no ETag.
type fakeWorker struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	log   []string
	hook  func(http.ResponseWriter, *http.Request, string) bool
}

func newFakeWorker(t *testing.T) *fakeWorker {
	t.Helper()
	w := &fakeWorker{files: sample()}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *fakeWorker) serve(rw http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, metadata)
	w.mu.Lock()
	w.log = append(w.log, name)
	content, ok := w.files[name]
	hook := w.hook
	w.mu.Unlock()
	switch {
	case hook != nil && hook(rw, r, name):
	case ok:
		rw.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(rw, content)
	default:
		http.Error(rw, "Not found", http.StatusNotFound)
	}
}

func (w *fakeWorker) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

func sum(content string) string {
	s := blake3.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

// cardFor is the card for files that are at base.
func cardFor(base string, files map[string]string) Card {
	entry := func(name string) *CardFile {
		content, ok := files[name]
		if !ok {
			return nil
		}
		return &CardFile{Path: base + name, Blake3: sum(content), Size: int64(len(content))}
	}
	return Card{
		Name: "model", Tokenizer: entry(nameTokenizer), Tiktoken: entry(nameTiktoken), Config: entry(nameConfig),
		Template: entry(nameTemplate), GenerationConfig: entry(nameGenerationConfig), ModelConfig: entry(nameModelConfig),
	}
}

func newWorker(t *testing.T, cfg WorkerConfig) *Worker {
	t.Helper()
	w, err := NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// card reads a card that a real worker wrote.
func card(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseCard(t *testing.T) {
	const base = "http://127.0.0.1:42077/v1/metadata/dynamo/backend/generate/models_tiny/_base/"
	want := Card{
		Name:             "/models/tiny",
		Tokenizer:        &CardFile{base + nameTokenizer, "65f33a11efaae416512a7f962f3161c7a8a2186edf5e2b38deb98438ce5e94e9", 3539},
		Config:           &CardFile{base + nameConfig, "37829cee49f9c58efbc5af4428cf3cd29ff305b0d2f98becfec6cde6b124b8f3", 563},
		Template:         &CardFile{base + nameTemplate, "fab12c99daec4ba049faf722b83d620d588b5648de248748eb6ed2869ad31cf4", 149},
		GenerationConfig: &CardFile{base + nameGenerationConfig, "a757b9641be6706f5fb2883c83d1d14d5f0810573b60443d8858dbddcf9ad42c", 65},
		ModelConfig:      &CardFile{base + nameModelConfig, "7c05823b7e84ab57350c51eca1763ea44bb9925bb36f052a1a734c0a4726279d", 319},
		Since13:          true,
	}
	data := card(t, "card-1.6.1.json")
	got, err := ParseCard(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("card (-want +got):\n%s", diff)
	}
	var outer struct {
		Inner json.RawMessage `json:"card_json"`
	}
	if err := json.Unmarshal(data, &outer); err != nil {
		t.Fatal(err)
	}
	if inner, err := ParseCard(outer.Inner); err != nil || cmp.Diff(want, inner) != "" {
		t.Errorf("card_json alone: %+v, %v", inner, err)
	}
	got, err = ParseCard(card(t, "card-1.6.1-tiktoken.json"))
	if err != nil || got.Tokenizer != nil || got.Tiktoken == nil || got.Tiktoken.Size != 2194 || !strings.HasSuffix(got.Tiktoken.Path, "/_base/"+nameTiktoken) {
		t.Errorf("tiktoken: %+v, %v", got, err)
	}
}

// TestParseCardShapes: other shapes that cards have or may have.
func TestParseCardShapes(t *testing.T) {
	file := func(path string) string {
		return `{"path":"` + path + `","checksum":"blake3:` + strings.Repeat("0", 64) + `"}`
	}
	tokenizer := `"tokenizer":{"hf_tokenizer_json":` + file("hf://org/model/tokenizer.json") + `}`
	for name, tc := range map[string]struct {
		card string
		ok   func(Card) bool
	}{
		"only a tokenizer": {`{` + tokenizer + `,"model_info":null}`, func(c Card) bool { return c.Tokenizer.Size == -1 && c.Config == nil && c.Template == nil }},
		"template in the formatter": {
			`{` + tokenizer + `,"prompt_formatter":{"hf_chat_template_jinja":{"is_custom":true,"file":` + file("/x/custom") + `}},"extra_files":[` + file("/x/"+nameConfig) + `]}`,
			func(c Card) bool {
				return c.Template.Path == "/x/custom" && !c.TemplateIsJSON && c.Config.Path == "/x/"+nameConfig
			},
		},
		"template as JSON": {
			`{` + tokenizer + `,"chat_template_file":{"hf_chat_template_json":{"is_custom":false,"file":` + file("/x/c.json") + `}}}`,
			func(c Card) bool { return c.TemplateIsJSON && c.Template.Path == "/x/c.json" },
		},
		"template as an extra": {
			`{` + tokenizer + `,"extra_files":[` + file("/x/"+nameTemplate) + `,{"path":"/x/other","checksum":"md5:0"}]}`,
			func(c Card) bool { return c.Template.Path == "/x/"+nameTemplate },
		},
	} {
		c, err := ParseCard([]byte(tc.card))
		if err != nil || !tc.ok(c) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	const zeros = `"blake3:0000000000000000000000000000000000000000000000000000000000000000"`
	for text, code := range map[string]Code{
		`{`: BadContent, `[]`: BadContent, `"x"`: BadContent, `null`: NotServed, `{}`: NotServed,
		`{"tokenizer":null}`:                                                                          NotServed,
		`{"tokenizer":{"new_kind":{}}}`:                                                               BadContent,
		`{"tokenizer":{"hf_tokenizer_json":null}}`:                                                    BadContent,
		`{"tokenizer":{"hf_tokenizer_json":"x"}}`:                                                     BadContent,
		`{"tokenizer":{"hf_tokenizer_json":{"path":1}}}`:                                              BadContent,
		`{"tokenizer":{"hf_tokenizer_json":{"path":"/t","checksum":"sha256:00"}}}`:                    BadContent,
		`{"tokenizer":{"hf_tokenizer_json":{"path":"/t","checksum":"blake3:00"}}}`:                    BadContent,
		`{"tokenizer":{"hf_tokenizer_json":{"path":"/t","checksum":` + zeros + `,"size":-1}}}`:        BadContent,
		`{` + tokenizer + `,"prompt_formatter":{"hf_chat_template":"x"}}`:                             BadContent,
		`{` + tokenizer + `,"prompt_formatter":{"hf_chat_template":{}}}`:                              BadContent,
		`{` + tokenizer + `,"extra_files":[{"path":"/x/chat_template.jinja"}]}`:                       BadContent,
		`{"tokenizer":{"hf_tokenizer_json":` + file("/a") + `,"tik_token_model":` + file("/b") + `}}`: BadContent,
	} {
		_, err := ParseCard([]byte(text))
		t.Run(text, func(t *testing.T) { wantError(t, err, code, "card") })
	}
}

func FuzzParseCard(f *testing.F) {
	for _, name := range []string{"card-1.6.1.json", "card-1.6.1-tiktoken.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"tokenizer":{"hf_tokenizer_json":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCard(data)
		if err != nil {
			if CodeOf(err) != BadContent && CodeOf(err) != NotServed {
				t.Errorf("%v", err)
			}
			return
		}
		if (c.Tokenizer == nil) == (c.Tiktoken == nil) {
			t.Errorf("%+v has not one tokenizer", c)
		}
		// No address of such a card may do harm.
		if _, err := NewWorker(WorkerConfig{Cards: []Card{c}}); err != nil {
			t.Error(err)
		}
		c.source()
	})
}

func TestWorker(t *testing.T) {
	w := newFakeWorker(t)
	source := newWorker(t, WorkerConfig{Cards: []Card{cardFor(w.URL+metadata, w.files)}})
	f, err := source.Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if !f.Verified || !strings.HasPrefix(f.Revision, "sha256:") || f.Source != `worker of "model" at `+w.Listener.Addr().String() {
		t.Errorf("verified %v, revision %s, source %s", f.Verified, f.Revision, f.Source)
	}
	tiktoken := with(without(sample(), nameTokenizer, nameConfig, nameTemplate), nameTiktoken, "YQ== 0\n")
	w.files = tiktoken
	f, err = newWorker(t, WorkerConfig{Cards: []Card{cardFor(w.URL+metadata, tiktoken)}}).Fetch(t.Context())
	wantFiles(t, f, err, tiktoken)
	// A template as JSON keeps its kind, whatever the file is called.
	c := cardFor(w.URL+metadata, tiktoken)
	c.Template, c.TemplateIsJSON = &CardFile{w.URL + metadata + "custom", sum(`{"chat_template":"x"}`), -1}, true
	w.files = with(tiktoken, "custom", `{"chat_template":"x"}`)
	f, err = newWorker(t, WorkerConfig{Cards: []Card{c}}).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := f.TemplateSource(); err != nil || text != "x" {
		t.Errorf("template %q, %v", text, err)
	}
}

func TestWorkerErrors(t *testing.T) {
	const name = nameTokenizer
	content := sample()[name]
	at := func(path string) func(*Card) { return func(c *Card) { c.Tokenizer.Path = path } }
	for what, tc := range map[string]struct {
		card   func(*Card)
		answer http.HandlerFunc // of the tokenizer
		code   Code
		times  int // that the tokenizer is asked for
		parts  []string
	}{
		"another file": {nil, text(strings.Repeat("{", len(content))), BadChecksum, 1, []string{sum(content), "start it again"}},
		"shorter":      {nil, text("{}"), BadChecksum, 1, []string{"2 bytes", fmt.Sprint(len(content))}},
		"longer":       {nil, text(content + " "), BadChecksum, 1, []string{"more bytes"}},
		"longer, unsaid": {nil, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, content)
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, content)
		}, BadChecksum, 1, []string{"more bytes"}},
		"cut":           {nil, cut(content, 5), Unavailable, DefaultAttempts, []string{"cut short"}},
		"gone":          {nil, status(404), NotFound, 1, []string{"does not serve"}},
		"busy":          {nil, status(503, "Retry-After", "2"), Unavailable, DefaultAttempts, []string{"503"}},
		"redirect":      {nil, status(302, "Location", "/x"), BadAnswer, 1, []string{"redirected"}},
		"refused":       {nil, status(403), BadAnswer, 1, []string{"403"}},
		"git-lfs":       {func(c *Card) { c.Tokenizer.Blake3, c.Tokenizer.Size = sum(lfsPointer), -1 }, text(lfsPointer), BadContent, 1, nil},
		"too large":     {func(c *Card) { c.Tokenizer.Size = 10_000 }, nil, TooLarge, 0, []string{"1000"}},
		"on its disk":   {at("/models/tiny/tokenizer.json"), nil, NotServed, 0, []string{"DYN_SELF_HOST_METADATA"}},
		"on its disk 2": {at("file:///models/tiny/tokenizer.json"), nil, NotServed, 0, []string{"DYN_SYSTEM_PORT"}},
		"at a hub":      {at("hf://org/model/tokenizer.json"), nil, NotServed, 0, []string{"hub"}},
		"no address":    {at("http://%zz/"), nil, NotServed, 0, nil},
		"no host":       {at("http:///tokenizer.json"), nil, BadContent, 0, nil},
		"a password":    {at("http://u:" + secret + "@h/tokenizer.json"), nil, BadContent, 0, nil},
	} {
		t.Run(what, func(t *testing.T) {
			w := newFakeWorker(t)
			c := cardFor(w.URL+metadata, sample())
			if tc.card != nil {
				tc.card(&c)
			}
			if tc.answer != nil {
				w.hook = times(always, name, tc.answer)
			}
			n := quickNet(&clock{})
			n.MaxFileBytes = 1000
			_, err := newWorker(t, WorkerConfig{Cards: []Card{c}, Net: n}).Fetch(t.Context())
			wantError(t, err, tc.code, append(tc.parts, name, "worker of")...)
			if asked := w.asked(); len(asked) != tc.times || (tc.times > 0 && slices.Compact(asked)[0] != name) {
				t.Errorf("asked %v, want %d times", asked, tc.times)
			}
		})
	}
}

func text(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }
}

// TestWorkerTruncatedOnce: what was cut is asked for again, from its beginning.
func TestWorkerTruncatedOnce(t *testing.T) {
	w := newFakeWorker(t)
	w.hook = times(1, nameTokenizer, cut(w.files[nameTokenizer], 5))
	f, err := newWorker(t, WorkerConfig{Cards: []Card{cardFor(w.URL+metadata, w.files)}, Net: quickNet(&clock{})}).Fetch(t.Context())
	wantFiles(t, f, err, sample())
}

// TestWorkers: one of several that serve the same is enough; they must agree.
func TestWorkers(t *testing.T) {
	gone, other, good := newFakeWorker(t), newFakeWorker(t), newFakeWorker(t)
	gone.Close()
	other.files = with(sample(), nameConfig, `{"restarted":1}`) // with other files than its card says
	cards := []Card{cardFor(gone.URL+metadata, sample()), cardFor(other.URL+metadata, sample()), cardFor(good.URL+metadata, sample())}
	f, err := newWorker(t, WorkerConfig{Cards: cards, Net: quickNet(&clock{})}).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if !strings.HasSuffix(f.Source, good.Listener.Addr().String()) {
		t.Errorf("from %s", f.Source)
	}
	for _, two := range [][]Card{{cards[0], cards[1]}, {cards[1], cards[0]}} {
		_, err = newWorker(t, WorkerConfig{Cards: two, Net: quickNet(&clock{})}).Fetch(t.Context())
		wantError(t, err, BadChecksum, "none", gone.Listener.Addr().String(), other.Listener.Addr().String(), nameConfig)
	}
	_, err = newWorker(t, WorkerConfig{Cards: []Card{cards[0], cards[0]}, Net: quickNet(&clock{})}).Fetch(t.Context())
	wantError(t, err, Unavailable, "none")

	for _, cards := range [][]Card{nil, {{}}, {cardFor("http://w/", with(sample(), nameTiktoken, "x"))}} {
		_, err = NewWorker(WorkerConfig{Cards: cards})
		wantError(t, err, BadConfig)
	}
	for _, name := range []string{nameTokenizer, nameConfig, nameTemplate} {
		for _, files := range []map[string]string{with(sample(), name, "{ }"), without(sample(), name)} {
			if files[nameTokenizer] == "" {
				files = with(files, nameTiktoken, "x")
			}
			_, err := NewWorker(WorkerConfig{Cards: []Card{cards[0], cardFor(good.URL+metadata, files)}})
			wantError(t, err, Conflict, name)
		}
	}
	if _, err := NewWorker(WorkerConfig{Cards: []Card{cards[0], cardFor(good.URL+metadata, with(sample(), nameGenerationConfig, "{ }"))}}); err != nil {
		t.Errorf("another generation_config: %v", err)
	}
}

// TestWorkerAtHub: a worker that serves no files says where it has them from, and
// what they must be.
func TestWorkerAtHub(t *testing.T) {
	hub := newFakeHub(t)
	cfg, _ := hub.config()
	cfg.Repository = "" // is the card's
	card := cardFor("hf://org/model/", sample())
	f, err := newWorker(t, WorkerConfig{Cards: []Card{card}, Hub: &cfg}).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if f.Revision != commitA || !f.Verified {
		t.Errorf("revision %s, verified %v", f.Revision, f.Verified)
	}
	f, err = newWorker(t, WorkerConfig{Cards: []Card{cardFor("hf://org/model@v1/", sample())}, Hub: &cfg}).Fetch(t.Context())
	wantFiles(t, f, err, sample())
	if !strings.Contains(f.Source, "org/model@v1") {
		t.Errorf("from %s", f.Source)
	}
	// The branch has moved since the worker was started.
	hub.with(func() { hub.files = with(sample(), nameTemplate, "{{ other }}") })
	_, err = newWorker(t, WorkerConfig{Cards: []Card{card}, Hub: &cfg}).Fetch(t.Context())
	wantError(t, err, BadChecksum, nameTemplate, "revision", "hub "+hub.URL)
	_, err = NewWorker(WorkerConfig{Cards: []Card{cardFor("hf://a/b/c/d/", sample())}, Hub: &cfg})
	wantError(t, err, BadConfig)
	hub.allDown()
	_, err = newWorker(t, WorkerConfig{Cards: []Card{card}, Hub: &cfg}).Fetch(t.Context())
	wantError(t, err, Unavailable)
}

// TestVerify compares a directory with a worker's card.
func TestVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		have map[string]string
		ok   bool
	}{
		"same":                     {sample(), true},
		"another config.json":      {with(sample(), nameModelConfig, "{ }"), true},
		"no generation_config":     {without(sample(), nameGenerationConfig), true},
		"another tokenizer":        {with(sample(), nameTokenizer, "{ }"), false},
		"another tokenizer_config": {with(sample(), nameConfig, "{ }"), false},
		"no tokenizer_config":      {without(sample(), nameConfig), false},
		"another template":         {with(sample(), nameTemplate, "{{ x }}"), false},
		"no template":              {without(sample(), nameTemplate), false},
		"tiktoken":                 {with(without(sample(), nameTokenizer), nameTiktoken, "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, tc.have)
			f, err := (&Directory{Path: dir}).Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = cardFor("http://w/", sample()).Verify(f)
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, BadChecksum, "directory "+dir)
		})
	}
	f := &Files{Tokenizer: []byte("{}"), Template: []byte("x")}
	wantError(t, cardFor("http://w/", map[string]string{nameTokenizer: "{}"}).Verify(f), BadChecksum, "worker has none")
}
