package app

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
	"github.com/warmpath/warmpath/pkg/render"
)

// byteTokenizer has a token for every byte, and 1000 before a text with special
// tokens.
type byteTokenizer struct{}

func (byteTokenizer) AppendSegment(dst []uint32, text string, from int) ([]uint32, int) {
	for _, c := range []byte(text[from:]) {
		dst = append(dst, uint32(c))
	}
	return dst, len(text)
}

func (byteTokenizer) Prefix(special bool) []uint32 {
	if special {
		return []uint32{1000}
	}
	return nil
}

func (byteTokenizer) Suffix(bool) []uint32           { return nil }
func (byteTokenizer) ID(string) (id uint32, ok bool) { return 0, false }

// bodyTemplate renders a body as its own text, up to an image. It has no way to
// render tools that are called "strange".
type bodyTemplate struct{ end string }

var errStrange = &chat.Error{Code: "unsupported_request", Msg: "a strange tool"}

func (t bodyTemplate) Render(_ prompt.Kind, body []byte, _ time.Time) (chat.Prompt, error) {
	if bytes.Contains(body, []byte(`"panic"`)) {
		panic("a strange request")
	}
	if bytes.Contains(body, []byte(`"strange"`)) {
		return chat.Prompt{}, errStrange
	}
	text := textOf(body) + t.end
	usable := len(text)
	if i := strings.Index(text, "image_url"); i >= 0 {
		usable = i
	}
	return chat.Prompt{Text: text, Usable: usable}, nil
}

// textOf is the text of a body's prompt: the prompt of a completion, the whole
// body of a chat, but for a model that stands in for none.
func textOf(body []byte) string {
	var fields struct {
		Prompt any `json:"prompt"`
	}
	if json.Unmarshal(body, &fields) == nil {
		switch p := fields.Prompt.(type) {
		case string:
			return p
		case []any:
			return p[0].(string)
		}
	}
	return strings.Replace(string(body), `"model":"-",`, "", 1)
}

// fakeEngines are engines that render as a fakeModel does, or as they are told.
type fakeEngines struct {
	mu    sync.Mutex
	by    map[string]func(kind prompt.Kind, body []byte) ([]uint32, error)
	calls atomic.Int64
}

// honest computes what the model with the given end of prompts does. It adds no
// special tokens.
func honest(end string) func(prompt.Kind, []byte) ([]uint32, error) {
	return func(_ prompt.Kind, body []byte) ([]uint32, error) {
		return bytesOf(textOf(body) + end), nil
	}
}

func failing(err error) func(prompt.Kind, []byte) ([]uint32, error) {
	return func(prompt.Kind, []byte) ([]uint32, error) { return nil, err }
}

func (f *fakeEngines) set(url string, engine func(prompt.Kind, []byte) ([]uint32, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]func(prompt.Kind, []byte) ([]uint32, error){}
	}
	f.by[url] = engine
}

func (f *fakeEngines) Engines() (urls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for url := range f.by {
		urls = append(urls, url)
	}
	slices.Sort(urls)
	return urls
}

func (f *fakeEngines) TokensFrom(_ context.Context, url string, _ []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
	f.calls.Add(1)
	f.mu.Lock()
	engine := f.by[url]
	f.mu.Unlock()
	if engine == nil {
		return nil, render.ErrNoEngine
	}
	return engine(kind, body)
}

// fakeSource gives files with the given end of prompts as template, or an error.
type fakeSource struct {
	mu    sync.Mutex
	end   string
	err   error
	stale error
	calls int
}

func (s *fakeSource) set(end string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end, s.err = end, err
}

func (s *fakeSource) Fetch(context.Context) (*modelfiles.Files, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.err != nil {
		return nil, s.err
	}
	if s.end == "panic of the source" {
		panic(s.end)
	}
	return &modelfiles.Files{Template: []byte(s.end), Source: "fake", Revision: "r" + s.end, Stale: s.stale}, nil
}

// local is an inProcess that runs in a bubble of synctest.
type local struct {
	*inProcess
	source  *fakeSource
	engines *fakeEngines
	log     *logBuffer
	changed chan struct{}
}

var testLayout = block.Layout{Size: 4}

func startLocal(t *testing.T, change func(*inProcessConfig)) *local {
	t.Helper()
	l := &local{source: &fakeSource{}, engines: &fakeEngines{}, log: &logBuffer{}, changed: make(chan struct{}, 1)}
	cfg := inProcessConfig{
		Source: l.source, Engines: l.engines, Layout: testLayout,
		Sampler: parity.NewSampler(1, time.Nanosecond), Recheck: time.Minute,
		Log: slog.New(slog.NewTextHandler(l.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	cfg.Build = func(f *modelfiles.Files) (*model, error) {
		tmpl := bodyTemplate{string(f.Template)}
		if tmpl.end == "panic" {
			panic("a strange file")
		}
		e, err := encoder.New(encoder.Config{Tokenizer: byteTokenizer{}, Template: tmpl, Layout: testLayout, MemoBytes: 1 << 20})
		if err != nil {
			return nil, err
		}
		return &model{source: f.Source, revision: f.Revision, zone: time.UTC, encoder: e, gate: parity.NewGate(cfg.Policy, true)}, nil
	}
	l.inProcess = newInProcess(cfg)
	return l
}

// start runs it until the test ends.
func (l *local) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { l.keep(ctx, l.changed) })
	wg.Go(func() { l.compare(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	synctest.Wait()
}

// ask turns one request into chains, and returns why it could not.
func (l *local) ask(t *testing.T, kind prompt.Kind, body string) (p extproc.Prompt, reason string) {
	t.Helper()
	var scanned prompt.Body
	if err := scanned.Scan(kind, []byte(body)); err != nil {
		t.Fatal(err)
	}
	p = extproc.Prompt{Kind: kind, Body: []byte(body), Scanned: &scanned, Seed: block.NewSeed("", "")}
	reason = l.tokenize(&p)
	synctest.Wait()              // for the sample to be compared
	time.Sleep(time.Millisecond) // no two requests come at the same nanosecond
	return p, reason
}

// want asks and checks why it could not.
func (l *local) want(t *testing.T, body, reason string) {
	t.Helper()
	p, got := l.ask(t, prompt.Chat, body)
	if got != reason {
		t.Errorf("%.60s: refused as %q, want %q\nlog:\n%s", body, got, reason, l.log)
	}
	if reason != "" {
		return
	}
	want := extproc.Prompt{IDs: bytesOf(body + l.source.end), Seed: p.Seed}
	want.Hash(testLayout)
	if p.Source != extproc.InProcess || p.Tokens != want.Tokens || !slices.Equal(p.Chains, want.Chains) {
		t.Errorf("%.60s: %d tokens, %d chains; want %d and %d", body, p.Tokens, len(p.Chains), want.Tokens, len(want.Chains))
	}
}

func bytesOf(text string) []uint32 {
	ids, _ := byteTokenizer{}.AppendSegment(nil, text, 0)
	return ids
}

const (
	sesame    = `{"model":"m","messages":[{"role":"user","content":"sesame"}]}`
	withTools = `{"model":"m","tools":[],"messages":[{"role":"user","content":"sesame"}]}`
	withImage = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"sesame, sesame, sesame"},{"type":"image_url"}]}]}`
)
