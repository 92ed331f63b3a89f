package render

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/pkg/prompt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "sesame"

var (
	chatBody = []byte(`{"model":"m","messages":[{"role":"user","content":"` + secret + `"}],"stream":true}`)
	textBody = []byte(`{"model":"m","prompt":"` + secret + `"}`)
)

// fakeEngine answers as vLLM does, or as it is told.
type fakeEngine struct {
	*httptest.Server
	calls  atomic.Int64
	mu     sync.Mutex
	paths  []string
	bodies [][]byte
	answer http.HandlerFunc
}

func newFake(t *testing.T, answer http.HandlerFunc) *fakeEngine {
	t.Helper()
	f := &fakeEngine{answer: answer}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		f.calls.Add(1)
		f.mu.Lock()
		f.paths = append(f.paths, r.Method+" "+r.URL.Path)
		f.bodies = append(f.bodies, body)
		answer := f.answer
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeEngine) set(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fakeEngine) seen() (paths []string, last []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.bodies) > 0 {
		last = f.bodies[len(f.bodies)-1]
	}
	return slices.Clone(f.paths), last
}

// vllm answers every endpoint; sglang only /tokenize.
func vllm(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/chat/completions/render":
		fmt.Fprint(w, `{"request_id":"r","token_ids":[1,2,3],"features":null,"sampling_params":{"n":1}}`)
	case "/v1/completions/render":
		fmt.Fprint(w, `[{"request_id":"r","token_ids":[4,5]},{"token_ids":[6]}]`)
	default:
		sglang(w, r)
	}
}

func sglang(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/tokenize" {
		http.Error(w, `{"detail":"Not Found"}`, http.StatusNotFound)
		return
	}
	fmt.Fprint(w, `{"count":2,"max_model_len":4096,"tokens":[7,8],"token_strs":null}`)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error":"`+secret+`"}`, code) }
}

func text(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }
}

// hang waits for the client to give up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func wantTokens(t *testing.T, c *Client, kind prompt.Kind, body []byte, want ...uint32) {
	t.Helper()
	got, err := c.Tokens(t.Context(), nil, kind, body)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func wantError(t *testing.T, c *Client, target error, reason string) {
	t.Helper()
	got, err := c.Tokens(t.Context(), []uint32{9}, prompt.Chat, chatBody)
	if !errors.Is(err, target) || Reason(err) != reason || len(got) != 0 {
		t.Errorf("got %v, %v (%s), want %v (%s)", got, err, Reason(err), target, reason)
	}
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error holds the prompt: %v", err)
	}
}

func TestRender(t *testing.T) {
	f := newFake(t, vllm)
	c := newClient(t, Config{URLs: []string{f.URL + "/"}, Protocol: Render})
	dst := make([]uint32, 5, 10)
	got, err := c.Tokens(t.Context(), dst, prompt.Chat, chatBody)
	if err != nil || !slices.Equal(got, []uint32{1, 2, 3}) || &got[0] != &dst[0] {
		t.Errorf("chat: %v, %v, in dst: %v", got, err, &got[0] == &dst[0])
	}
	if _, body := f.seen(); !bytes.Equal(body, chatBody) {
		t.Errorf("the engine got %s", body)
	}
	wantTokens(t, c, prompt.Completion, textBody, 4, 5)
	paths, _ := f.seen()
	if want := []string{"POST /v1/chat/completions/render", "POST /v1/completions/render"}; !slices.Equal(paths, want) {
		t.Errorf("asked %v", paths)
	}
	if s := c.Stats(); s.Calls != 2 || len(s.Failures) != 0 || s.Engines[0].Calls != 2 || s.Engines[0].Breaker != "closed" || s.Engines[0].Busy <= 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestTokenizeBody(t *testing.T) {
	f := newFake(t, sglang)
	c := newClient(t, Config{URLs: []string{f.URL}, Protocol: Tokenize})
	for _, tc := range []struct {
		kind     prompt.Kind
		in, want string
	}{
		{
			prompt.Chat, `{"model":"m","messages":[{"role":"user","content":"<a>"}],"stream":true,"temperature":1}`,
			`{"add_generation_prompt":true,"model":"m","messages":[{"role":"user","content":"<a>"}]}`,
		},
		{
			prompt.Chat, `{"tools":[{"z":1,"a":1.0}],"model":"m","messages":[{}],"add_generation_prompt":false,"continue_final_message":true,"chat_template_kwargs":{"b":1,"a":2},"chat_template":null}`,
			`{"model":"m","messages":[{}],"tools":[{"z":1,"a":1.0}],"chat_template_kwargs":{"b":1,"a":2},"continue_final_message":true,"add_generation_prompt":false}`,
		},
		{prompt.Completion, `{"model":"m","prompt":"a","add_special_tokens":false,"messages":[]}`, `{"prompt":"a","model":"m","add_special_tokens":false}`},
		{prompt.Completion, `{"model":"m","prompt":["a","b"]}`, `{"prompt":"a","model":"m"}`},
	} {
		wantTokens(t, c, tc.kind, []byte(tc.in), 7, 8)
		_, body := f.seen()
		if string(body) != tc.want || !json.Valid(body) {
			t.Errorf("for %s\n got  %s\n want %s", tc.in, body, tc.want)
		}
	}
	calls := f.calls.Load()
	for _, bad := range []string{``, `[]`, `{"prompt":[1,2]}`, `{"prompt":[]}`, `{"model":"m"}`, `{"prompt":"a"`} {
		if _, err := c.Tokens(t.Context(), nil, prompt.Completion, []byte(bad)); !errors.Is(err, ErrRejected) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if f.calls.Load() != calls {
		t.Error("a hopeless request was sent")
	}
}

func TestAuto(t *testing.T) {
	for _, code := range []int{404, 405, 501} {
		f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				sglang(w, r)
				return
			}
			status(code)(w, r)
		})
		c := newClient(t, Config{URLs: []string{f.URL}})
		wantTokens(t, c, prompt.Chat, chatBody, 7, 8)
		wantTokens(t, c, prompt.Chat, chatBody, 7, 8)
		if paths, _ := f.seen(); len(paths) != 3 {
			t.Errorf("%d was not remembered: %v", code, paths)
		}
		if !c.Stats().Engines[0].Tokenize {
			t.Error("stats do not show it")
		}
		// The engine is replaced by one that renders and does not tokenize.
		f.set(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				status(404)(w, r)
				return
			}
			vllm(w, r)
		})
		wantError(t, c, ErrUnsupported, "unsupported")
		wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
	}
}

// A client that names an unknown model gets 404 from both endpoints. That must
// neither pause the engine nor change how it is asked.
func TestUnknownModel(t *testing.T) {
	f := newFake(t, status(404))
	c := newClient(t, Config{URLs: []string{f.URL}, BreakerFailures: 1})
	wantError(t, c, ErrUnsupported, "unsupported")
	f.set(vllm)
	wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
}

func TestRejected(t *testing.T) {
	for _, code := range []int{400, 413, 422} {
		a, b := newFake(t, status(code)), newFake(t, status(code))
		c := newClient(t, Config{URLs: []string{a.URL, b.URL}, BreakerFailures: 1})
		for range 4 {
			wantError(t, c, ErrRejected, "rejected")
		}
		if a.calls.Load() != 2 || b.calls.Load() != 2 {
			t.Errorf("%d: %d and %d calls, want each request sent once and spread", code, a.calls.Load(), b.calls.Load())
		}
	}
	c := newClient(t, Config{URLs: []string{"http://127.0.0.1:1"}})
	for _, kind := range []prompt.Kind{prompt.Other, prompt.Responses, prompt.AnthropicMessages} {
		if _, err := c.Tokens(t.Context(), nil, kind, nil); !errors.Is(err, ErrRejected) {
			t.Errorf("kind %s: %v", kind, err)
		}
	}
}

func TestBadAnswers(t *testing.T) {
	for _, answer := range []string{``, `{`, `{}`, `[]`, `null`, `{"token_ids":"` + secret + `"}`, `{"token_ids":[-1]}`, `{"token_ids":[1,2]`, `<html>` + secret, `{"token_ids":[` + strings.Repeat("1,", 600) + `1]}`} {
		f := newFake(t, text(answer))
		c := newClient(t, Config{URLs: []string{f.URL}, MaxResponseBytes: 1000, BreakerFailures: 1})
		wantError(t, c, ErrBadAnswer, "bad_answer")
		wantError(t, c, ErrOpen, "breaker_open")
	}
	f := newFake(t, text(`{"token_ids":[1]}`+strings.Repeat(" ", 983)))
	c := newClient(t, Config{URLs: []string{f.URL}, MaxResponseBytes: 1000})
	wantTokens(t, c, prompt.Chat, chatBody, 1)
}

func TestUnavailable(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `{"token_ids":[1`)
	}
	redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	for name, answer := range map[string]http.HandlerFunc{"500": status(500), "429": status(429), "401": status(401), "cut short": cut, "redirect": redirect} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answer)
			c := newClient(t, Config{URLs: []string{f.URL}, BreakerFailures: 1})
			wantError(t, c, ErrUnavailable, "unavailable")
			wantError(t, c, ErrOpen, "breaker_open")
			if n := f.calls.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
	f := newFake(t, vllm)
	f.Close()
	wantError(t, newClient(t, Config{URLs: []string{f.URL}}), ErrUnavailable, "unavailable")
}

func TestNoEngine(t *testing.T) {
	wantError(t, newClient(t, Config{}), ErrNoEngine, "no_engine")
	wantError(t, newClient(t, Config{Pool: func() []string { return nil }}), ErrNoEngine, "no_engine")
}

func TestTimeout(t *testing.T) {
	f := newFake(t, hang)
	c := newClient(t, Config{URLs: []string{f.URL}, Timeout: 20 * time.Millisecond, BreakerFailures: 1})
	wantError(t, c, ErrTimeout, "timeout")
	wantError(t, c, ErrOpen, "breaker_open")
	// The answer starts in time and does not end in time.
	f.set(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"token_ids":[1`)
		w.(http.Flusher).Flush()
		hang(w, r)
	})
	wantError(t, newClient(t, Config{URLs: []string{f.URL}, Timeout: 20 * time.Millisecond}), ErrTimeout, "timeout")
}

// A caller that gives up, or brings too little time, says nothing about the
// engine.
func TestCallerGivesUp(t *testing.T) {
	f := newFake(t, hang)
	c := newClient(t, Config{URLs: []string{f.URL}, BreakerFailures: 1})
	ctx, cancel := context.WithCancel(t.Context())
	f.set(func(w http.ResponseWriter, r *http.Request) { cancel(); hang(w, r) })
	if _, err := c.Tokens(ctx, nil, prompt.Chat, chatBody); !errors.Is(err, context.Canceled) || Reason(err) != "canceled" {
		t.Errorf("canceled: %v (%s)", err, Reason(err))
	}
	f.set(hang)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Tokens(ctx, nil, prompt.Chat, chatBody); !errors.Is(err, ErrTimeout) {
		t.Errorf("short of time: %v", err)
	}
	f.set(vllm)
	wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
}

func TestNextEngineIsTried(t *testing.T) {
	bad, good := newFake(t, status(500)), newFake(t, vllm)
	c := newClient(t, Config{URLs: []string{bad.URL, good.URL}, BreakerFailures: 3})
	for range 20 {
		wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
	}
	if n := bad.calls.Load(); n != 3 {
		t.Errorf("the bad engine got %d calls, want 3", n)
	}
	s := c.Stats()
	if s.Engines[0].Breaker != "open" || s.Engines[0].Failures["unavailable"] != 3 || s.Engines[1].Breaker != "closed" || len(s.Failures) != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPoolChanges(t *testing.T) {
	a, b := newFake(t, status(500)), newFake(t, vllm)
	var pool atomic.Pointer[[]string]
	pool.Store(&[]string{a.URL, a.URL})
	c := newClient(t, Config{Pool: func() []string { return *pool.Load() }, BreakerFailures: 1})
	wantError(t, c, ErrUnavailable, "unavailable")
	if s := c.Stats(); len(s.Engines) != 1 || s.Engines[0].Breaker != "open" {
		t.Errorf("stats %+v", s)
	}
	pool.Store(&[]string{b.URL, a.URL})
	wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
	if s := c.Stats(); len(s.Engines) != 2 || s.Engines[1].Breaker != "open" {
		t.Errorf("an engine that stayed lost its state: %+v", s)
	}
	pool.Store(&[]string{b.URL})
	wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3)
	a.set(vllm)
	pool.Store(&[]string{a.URL})
	wantTokens(t, c, prompt.Chat, chatBody, 1, 2, 3) // back, with a new breaker
}

func TestConcurrentUse(t *testing.T) {
	a, b, gone := newFake(t, vllm), newFake(t, sglang), newFake(t, vllm)
	gone.Close()
	var turn atomic.Int64
	pools := [][]string{{a.URL, b.URL, gone.URL}, {a.URL, b.URL}, {b.URL, a.URL}}
	c := newClient(t, Config{Pool: func() []string { return pools[turn.Add(1)%3] }})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var dst []uint32
			for range 40 {
				var err error
				dst, err = c.Tokens(t.Context(), dst, prompt.Chat, chatBody)
				if err != nil || !slices.Equal(dst, []uint32{1, 2, 3}) && !slices.Equal(dst, []uint32{7, 8}) {
					t.Errorf("%v, %v", dst, err)
				}
				c.Stats()
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.Calls != 320 {
		t.Errorf("%d calls counted", s.Calls)
	}
}

func TestValidate(t *testing.T) {
	for _, bad := range []Config{
		{URLs: []string{"host:8000"}},
		{URLs: []string{"http://"}},
		{URLs: []string{"http://a/?x=1"}},
		{URLs: []string{"ftp://a"}},
		{URLs: []string{"http://me:word@a"}},
		{URLs: []string{"http://a b"}},
		{Protocol: 9},
		{Timeout: -1},
		{BreakerFailures: -1},
		{BreakerCooldown: -1},
		{MaxResponseBytes: -1},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v accepted", bad)
		} else if strings.Contains(err.Error(), "word") && !strings.Contains(err.Error(), "password") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// A client that names a model nobody has must not have its body sent to every
// engine.
func TestUnknownModelAsksOneEngine(t *testing.T) {
	engines := []*fakeEngine{newFake(t, status(404)), newFake(t, status(404)), newFake(t, status(404))}
	c := newClient(t, Config{URLs: []string{engines[0].URL, engines[1].URL, engines[2].URL}})
	wantError(t, c, ErrUnsupported, "unsupported")
	total := 0
	for _, e := range engines {
		paths, _ := e.seen()
		total += len(paths)
	}
	if total != 2 { // Auto asks for both endpoints of the one engine
		t.Errorf("%d requests were made, want 2", total)
	}
}

func TestTooLarge(t *testing.T) {
	e := newFake(t, vllm)
	c := newClient(t, Config{URLs: []string{e.URL}, MaxRequestBytes: int64(len(chatBody)) - 1})
	wantError(t, c, ErrTooLarge, "too_large")
	if paths, _ := e.seen(); len(paths) != 0 {
		t.Errorf("the engine was asked: %v", paths)
	}
}
