package extproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// tokenizer is a Tokenizer made of a function that returns ids, as an engine
// does.
type tokenizer func(ctx context.Context, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error)

func (f tokenizer) Tokenize(ctx context.Context, p *Prompt) (err error) {
	p.Source, p.Lent = Engine, true
	if p.IDs, err = f(ctx, p.IDs[:0], p.Kind, p.Body); err != nil {
		return err
	}
	p.Hash(block.Layout{Size: blockSize})
	return nil
}

// inProcess is a Tokenizer made of a function that fills in a prompt.
type inProcess func(p *Prompt) error

func (f inProcess) Tokenize(_ context.Context, p *Prompt) error {
	p.Source = InProcess
	return f(p)
}

func withTokenizer(f tokenizer) func(*Config) { return func(c *Config) { c.Tokenizer = f } }

// serve runs one request in memory and returns the reply to its body.
func (r *rig) serve(t *testing.T, path, body string, headers ...string) *response {
	t.Helper()
	m := newMemory(t.Context(), duplexModes.first(headersMsg("POST", path, false, headers...)), bodyMsg(body, true))
	if err := r.server.Process(m); err != nil {
		t.Fatal(err)
	}
	if len(m.out[2]) == 0 {
		t.Fatal("no reply")
	}
	return m.out[2][0]
}

const helloChat = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

// TestPromptMeetsIndex: the prompt's chains are those of the worker's events.
// Seeds are dynamo.md 2.1: adapter and salt each change every hash.
func TestPromptMeetsIndex(t *testing.T) {
	ids := count(100, 13) // three full blocks of 4 and a rest
	holder := fleet.Key{ID: 12}
	adapters := func(c *Config) { c.Adapters = map[string]bool{"lora": true} }
	engine := withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return append(dst, ids...), nil
	})
	for _, tc := range []struct {
		name    string
		held    block.Seed
		path    string
		body    string
		headers []string
		change  []func(*Config)
		matched float64
	}{
		{"token ids", block.NewSeed("", ""), completions, tokenBody(ids, ""), nil, nil, 3},
		{"token ids of a chat", block.NewSeed("", ""), chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"nvext":{"token_data":` + strings.TrimSuffix(strings.SplitAfter(tokenBody(ids, ""), `"prompt":`)[1], "}") + `}}`, nil, nil, 3},
		{"salt in the body", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, `"cache_salt":"tenant-a",`), nil, nil, 3},
		{"salt in nvext", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, `"nvext":{"cache_salt":"tenant-a"},`), nil, nil, 3},
		{"salt in the header", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, ""), []string{"x-tenant-id", "tenant-a"}, nil, 3},
		{"header before body", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, `"cache_salt":"tenant-b",`), []string{"x-tenant-id", "tenant-a"}, nil, 3},
		{"salt ignored", block.NewSeed("", ""), completions, tokenBody(ids, `"cache_salt":"tenant-a",`), []string{"x-tenant-id", "b"}, []func(*Config){func(c *Config) { c.IgnoreSalt = true }}, 3},
		{"another salt", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, `"cache_salt":"tenant-b",`), nil, nil, 0},
		{"no salt", block.NewSeed("", "tenant-a"), completions, tokenBody(ids, ""), nil, nil, 0},
		{"salt that is not held", block.NewSeed("", ""), completions, tokenBody(ids, `"cache_salt":"tenant-a",`), nil, nil, 0},
		{"adapter", block.NewSeed("lora", ""), completions, strings.Replace(tokenBody(ids, ""), `"m"`, `"lora"`, 1), nil, []func(*Config){adapters}, 3},
		{"adapter and salt", block.NewSeed("lora", "s"), completions, strings.Replace(tokenBody(ids, `"cache_salt":"s",`), `"m"`, `"lora"`, 1), nil, []func(*Config){adapters}, 3},
		{"model that is no adapter", block.NewSeed("lora", ""), completions, tokenBody(ids, ""), nil, []func(*Config){adapters}, 0},
		{"adapter nobody declared", block.NewSeed("", ""), completions, strings.Replace(tokenBody(ids, ""), `"m"`, `"lora"`, 1), nil, nil, 3},
		{"tokenizer, chat", block.NewSeed("", ""), chat, helloChat, nil, []func(*Config){engine}, 3},
		{"tokenizer, text", block.NewSeed("", ""), completions, `{"model":"m","prompt":"hello"}`, nil, []func(*Config){engine}, 3},
		{"tokenizer and salt", block.NewSeed("", "s"), chat, helloChat, []string{"x-tenant-id", "s"}, []func(*Config){engine}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, splitPool(), tc.change...)
			r.hold(t, holder, ids, tc.held)
			reply := r.serve(t, tc.path, tc.body, tc.headers...)
			if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "best"); got != tc.matched {
				t.Errorf("best match %v blocks, want %v", got, tc.matched)
			}
			if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "total"); got != 3 {
				t.Errorf("the prompt has %v blocks, want 3", got)
			}
			if prefill := setHeaders(t, reply)["x-prefiller-host-port"]; tc.matched > 0 && prefill != "10.0.1.2:8000" {
				t.Errorf("prefill goes to %s, not to the holder", prefill)
			}
		})
	}
}

// TestKnownHashes: the index is fed with the numbers that real Dynamo computed
// (dynamo.md 2.6), for token ids 1 to 4 or 1 to 12 in blocks of 4.
func TestKnownHashes(t *testing.T) {
	adapter := func(c *Config) { c.Adapters = map[string]bool{"my-adapter": true} }
	plain := []block.Hash{14643705804678351452, 16777012769546811212, 483935686894639516}
	for _, tc := range []struct {
		name, model, more string
		hashes            []block.Hash
	}{
		{"plain", "m", "", plain},
		{"adapter", "my-adapter", "", []block.Hash{15633847640104431966}},
		{"salt", "m", `"cache_salt":"tenant-a",`, []block.Hash{5738685477468498325}},
		{"adapter and salt", "my-adapter", `"cache_salt":"tenant-a",`, []block.Hash{15344109623294177393}},
	} {
		r := newRig(t, splitPool(), adapter)
		ev := kvevent.Event{WorkerID: 12, ID: 1, Kind: kvevent.Stored}
		for i, h := range tc.hashes {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(i), Hash: h})
		}
		if err := r.index.Apply(&ev); err != nil {
			t.Fatal(err)
		}
		body := strings.Replace(tokenBody(count(1, 4*len(tc.hashes)), tc.more), `"m"`, `"`+tc.model+`"`, 1)
		reply := r.serve(t, completions, body)
		if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "matched"); got != float64(len(tc.hashes)) {
			t.Errorf("%s: matched %v blocks, want %d", tc.name, got, len(tc.hashes))
		}
		if prefill := setHeaders(t, reply)["x-prefiller-host-port"]; prefill != "10.0.1.2:8000" {
			t.Errorf("%s: prefill goes to %s", tc.name, prefill)
		}
	}
}

// TestEagle: with a draft model a block hash covers one token more.
func TestEagle(t *testing.T) {
	ids := count(100, 13)
	r := newRig(t, splitPool(), func(c *Config) { c.Layout.Eagle = true })
	r.hold(t, fleet.Key{ID: 11}, ids, block.NewSeed("", ""))
	if prefill := setHeaders(t, r.serve(t, completions, tokenBody(ids, "")))["x-prefiller-host-port"]; prefill != "10.0.1.1:8000" {
		t.Errorf("prefill goes to %s, not to the holder", prefill)
	}
	if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "matched"); got != 3 {
		t.Errorf("matched %v blocks, want 3", got)
	}
}

// TestGuesses: a decision counts as a cached prompt until events come, unless
// the worker will hash the prompt differently.
func TestGuesses(t *testing.T) {
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`
	engine := withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return append(dst, count(1, 12)...), nil
	})
	for _, tc := range []struct {
		name, body string
		workers    []fleet.Worker
		best       float64
	}{
		{"text on a pair", helloChat, splitPool(), 3},
		{"text on an aggregated worker", helloChat, aggregatedPool(), 3},
		{"text on a decode worker alone", helloChat, decodePool(), 0},
		{"image", image, splitPool(), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.workers, engine)
			r.serve(t, chat, tc.body)
			if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "best"); got != 0 {
				t.Fatalf("the first request finds %v blocks", got)
			}
			r.serve(t, chat, helloChat)
			if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "best"); got != tc.best {
				t.Errorf("the second request finds %v blocks, want %v", got, tc.best)
			}
		})
	}
}

// TestPartialPrompt: chains of a prompt that ends before its image are matched
// and guessed like any; its length is estimated.
func TestPartialPrompt(t *testing.T) {
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 4000) + `"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`
	ids := count(1, 13)
	partial := func(c *Config) {
		c.Tokenizer = inProcess(func(p *Prompt) error {
			if !p.Scanned.HasMedia || p.Kind != prompt.Chat || string(p.Body) != image {
				t.Errorf("got %+v", p)
			}
			p.IDs = append(p.IDs, ids...)
			p.Hash(block.Layout{Size: blockSize})
			p.Partial = true
			return nil
		})
	}
	r := newRig(t, splitPool(), partial)
	r.hold(t, fleet.Key{ID: 12}, ids[:8], block.NewSeed("", ""))
	for i, want := range []float64{2, 5} { // 2 of events; then 3 more of the guess
		if prefill := setHeaders(t, r.serve(t, chat, image))["x-prefiller-host-port"]; prefill != "10.0.1.2:8000" {
			t.Errorf("prefill goes to %s, not to the holder", prefill)
		}
		if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "best"); got != want {
			t.Errorf("request %d: best matches %v blocks in all, want %v", i, got, want)
		}
	}
	if n := r.metric(t, "warmpath_prompts_total", "source", "in_process"); n != 2 {
		t.Errorf("%v prompts in process, want 2", n)
	}
}

// TestPartialLength: what follows the chains still has to be computed.
func TestPartialLength(t *testing.T) {
	l := startRig(t, splitPool(), func(c *Config) {
		c.Tokenizer = inProcess(func(p *Prompt) error {
			p.IDs = append(p.IDs, count(1, 8)...)
			p.Hash(block.Layout{Size: blockSize})
			p.Partial = true
			return nil
		})
	})
	e := l.open(t)
	e.routed(headersMsg("POST", completions, false), `{"model":"m","prompt":"`+strings.Repeat("x", 398)+`"}`)
	if got := l.total(); got.PrefillTokens != 100 || got.DecodeBlocks != 25 {
		t.Errorf("400 bytes of prompt are booked as %+v", got)
	}
}

// TestFailureLeavesNothing: chains of an attempt that failed do not count, nor
// those of the request before it.
func TestFailureLeavesNothing(t *testing.T) {
	fail := false
	r := newRig(t, splitPool(), func(c *Config) {
		c.Tokenizer = inProcess(func(p *Prompt) error {
			if len(p.IDs) > 0 || len(p.Hashes) > 0 || len(p.Chains) > 0 || p.Tokens != 0 || p.Partial {
				t.Errorf("a prompt starts with %+v", p)
			}
			p.IDs = append(p.IDs, count(1, 8)...)
			p.Hash(block.Layout{Size: blockSize})
			p.Partial = true
			if fail {
				return errors.New("half way")
			}
			return nil
		})
	})
	r.serve(t, chat, helloChat)
	fail = true
	for range 2 {
		r.serve(t, chat, helloChat)
	}
	if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "total"); got != 2 {
		t.Errorf("%v blocks counted, want the 2 of the first request", got)
	}
	if n := r.metric(t, "warmpath_prompts_total", "source", "unknown"); n != 2 {
		t.Errorf("%v unknown prompts, want 2", n)
	}
}

// TestTokenizerIsAsked with what the client sent, and not at all for token ids.
func TestTokenizerIsAsked(t *testing.T) {
	var asked []string
	r := newRig(t, splitPool(), withTokenizer(func(_ context.Context, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
		asked = append(asked, kind.String()+" "+string(body))
		return append(dst, 1, 2, 3, 4), nil
	}))
	text := `{"model":"m","prompt":"hello"}`
	r.serve(t, chat, helloChat)
	r.serve(t, completions, text)
	r.serve(t, completions, prompt16)
	r.serve(t, otherPath, helloChat)
	r.serve(t, prompt.ResponsesPath, `{"input":"hello"}`)
	r.serve(t, prompt.AnthropicPath, `{"messages":5}`)
	want := []string{"chat " + helloChat, "completion " + text, `responses {"input":"hello"}`, `anthropic {"messages":5}`}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for source, want := range map[string]float64{"engine": 4, "token_ids": 1, "unknown": 0} {
		if got := r.metric(t, "warmpath_prompts_total", "source", source); got != want {
			t.Errorf("%v prompts from %s, want %v", got, source, want)
		}
	}
}

// TestTokenizerFails: such a request is routed by load, counted, and the log
// says so once per run of failures, without the prompt.
func TestTokenizerFails(t *testing.T) {
	failing := true
	r := newRig(t, splitPool(), withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		if failing {
			return nil, errors.New("engine is asleep")
		}
		return append(dst, 1, 2, 3, 4), nil
	}))
	const lost, back = "cannot be turned into token ids", "turned into token ids again"
	for range 3 {
		if reply := r.serve(t, chat, helloChat); destination(t, reply) != "10.0.2.1:8000" {
			t.Errorf("got %q", describe(reply))
		}
	}
	if n := r.metric(t, "warmpath_tokenizer_errors_total"); n != 3 {
		t.Errorf("%v errors counted, want 3", n)
	}
	if n := r.metric(t, "warmpath_prompts_total", "source", "unknown"); n != 3 {
		t.Errorf("%v unknown prompts, want 3", n)
	}
	if r.log.count(lost) != 1 || r.log.count("engine is asleep") != 1 || r.log.count(back) != 0 {
		t.Errorf("log:\n%s", r.log)
	}
	failing = false
	r.serve(t, chat, helloChat)
	r.serve(t, chat, helloChat)
	if r.log.count(back) != 1 {
		t.Errorf("log:\n%s", r.log)
	}
	failing = true
	r.serve(t, chat, helloChat)
	if r.log.count(lost) != 2 || r.log.count("hello") != 0 {
		t.Errorf("log:\n%s", r.log)
	}
	r.waitIdle(t)
}

// TestLogOfEngines: prompts that are done in process do not end a run of failures,
// which are of those that engines are asked for. The log would change its mind
// with every request.
func TestLogOfEngines(t *testing.T) {
	source, failure := Engine, errors.New("engine is asleep")
	r := newRig(t, splitPool(), func(c *Config) {
		c.Tokenizer = inProcess(func(p *Prompt) error { p.Source = source; return failure })
	})
	r.serve(t, chat, helloChat)
	source, failure = InProcess, nil
	r.serve(t, chat, helloChat)
	if n := r.log.count("turned into token ids again"); n != 0 {
		t.Errorf("log:\n%s", r.log)
	}
	source = Engine
	r.serve(t, chat, helloChat)
	if n := r.log.count("turned into token ids again"); n != 1 {
		t.Errorf("log:\n%s", r.log)
	}
}

// TestNoTokenizer: text is routed by load, with a length that is estimated at 4
// bytes per token.
func TestNoTokenizer(t *testing.T) {
	l := startRig(t, splitPool())
	e := l.open(t)
	e.routed(headersMsg("POST", completions, false), `{"model":"m","prompt":"`+strings.Repeat("x", 398)+`"}`)
	if got := l.total(); got.PrefillTokens != 100 || got.DecodeBlocks != 25 || got.Requests != 1 {
		t.Errorf("400 bytes of prompt are booked as %+v", got)
	}
	if n := l.metric(t, "warmpath_prompts_total", "source", "unknown"); n != 1 {
		t.Errorf("%v unknown prompts, want 1", n)
	}
	if n := l.metric(t, "warmpath_tokenizer_errors_total"); n != 0 {
		t.Errorf("%v tokenizer errors", n)
	}
}
