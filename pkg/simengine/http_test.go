package simengine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

func TestAnswers(t *testing.T) {
	e := start(t, Config{BlockSize: 4})
	text, header := complete(t, e, completions, object{"model": testModel, "prompt": "hello", "max_tokens": 7})
	if text.Object != "text_completion" || len(text.Choices[0].Text) != 7 || *text.Choices[0].FinishReason != "length" {
		t.Errorf("completion %+v", text)
	}
	if u := text.Usage; u.PromptTokens != 5 || u.CompletionTokens != 7 || u.TotalTokens != 12 || u.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("usage %+v", u)
	}
	for _, name := range []string{headerWorker, headerPrefillWorker, headerDecodeWorker} {
		if header.Get(name) != "worker-0" {
			t.Errorf("%s: %q", name, header.Get(name))
		}
	}
	body := object{"messages": []object{
		{"role": "system", "content": "be brief"},
		{"role": "user", "content": []object{{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}}},
	}}
	natural, _ := complete(t, e, chat, body, "x-request-id", "r1")
	if natural.Object != "chat.completion" || natural.ID != "chatcmpl-r1" || *natural.Choices[0].FinishReason != "stop" {
		t.Errorf("chat %+v", natural)
	}
	if n := natural.Usage.CompletionTokens; n < 65 || n > 128 || len(natural.Choices[0].Message.Content) != n-1 {
		t.Errorf("%d tokens, text %q", n, natural.Choices[0].Message.Content)
	}
	again, _ := complete(t, e, chat, body)
	if again.Choices[0].Message.Content != natural.Choices[0].Message.Content {
		t.Error("the same prompt got another answer")
	}
	if got, want := again.Usage.PromptTokensDetails.CachedTokens, (again.Usage.PromptTokens-1)/4*4; got != want {
		t.Errorf("%d tokens cached, want %d", got, want)
	}
}

func TestNextTurnFindsThePreviousAnswer(t *testing.T) {
	e := start(t, Config{BlockSize: 4})
	messages := []object{{"role": "user", "content": "hello"}}
	first, _ := complete(t, e, chat, object{"messages": messages})
	messages = append(messages, object{"role": "assistant", "content": first.Choices[0].Message.Content},
		object{"role": "user", "content": "more"})
	second, _ := complete(t, e, chat, object{"messages": messages, "max_tokens": 1})
	// All but the answer's last token has KV by then.
	if got, want := second.Usage.PromptTokensDetails.CachedTokens, (first.Usage.TotalTokens-1)/4*4; got != want {
		t.Errorf("%d tokens cached of %d, want %d", got, second.Usage.PromptTokens, want)
	}
}

func TestWholePromptIsNeverCached(t *testing.T) {
	e := start(t, Config{BlockSize: 4})
	for _, n := range []int{1, 3, 4, 5, 8, 9} {
		complete(t, e, completions, object{"prompt": ids(n, n), "max_tokens": 1})
		a, _ := complete(t, e, completions, object{"prompt": ids(n, n), "max_tokens": 1})
		if got, want := a.Usage.PromptTokensDetails.CachedTokens, (n-1)/4*4; got != want {
			t.Errorf("%d of %d tokens cached, want %d", got, n, want)
		}
	}
}

// events reads a stream of server-sent events and checks its form.
func events(t *testing.T, data []byte) []string {
	t.Helper()
	var out []string
	for part := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n\n"), "\n\n") {
		text, ok := strings.CutPrefix(part, "data: ")
		if !ok || strings.Contains(text, "\n") {
			t.Fatalf("not an event: %q", part)
		}
		out = append(out, text)
	}
	return out
}

func TestStreams(t *testing.T) {
	e := start(t, Config{BlockSize: 4})
	for _, ep := range []endpoint{completions, chat} {
		for _, include := range []bool{false, true} {
			body := object{"max_tokens": 5, "prompt": "hello", "messages": []object{{"role": "user", "content": "hello"}}}
			whole, _ := complete(t, e, ep, body)
			body["stream"] = true
			if include {
				body["stream_options"] = object{"include_usage": true}
			}
			data, _ := json.Marshal(body)
			r := call(t, e, http.MethodPost, ep.path(), string(data))
			if r.status != http.StatusOK || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
				t.Fatalf("%d %v", r.status, r.header)
			}
			got := events(t, r.body)
			if got[len(got)-1] != "[DONE]" {
				t.Fatalf("last event %q", got[len(got)-1])
			}
			var text, finish string
			var total *usage
			for _, ev := range got[:len(got)-1] {
				c := decode[completion](t, []byte(ev))
				if total != nil {
					t.Fatalf("event after the usage: %s", ev)
				}
				if c.Usage != nil {
					total = c.Usage
					if len(c.Choices) != 0 {
						t.Errorf("usage with choices: %s", ev)
					}
					continue
				}
				text += c.Choices[0].Text + c.Choices[0].Delta.Content
				if c.Choices[0].FinishReason != nil {
					finish += *c.Choices[0].FinishReason
				}
			}
			if want := whole.Choices[0].Text + whole.Choices[0].Message.Content; text != want || finish != "length" {
				t.Errorf("%s: streamed %q %q, whole %q", ep.path(), text, finish, want)
			}
			if include != (total != nil) || (include && (total.CompletionTokens != 5 || total.PromptTokens != whole.Usage.PromptTokens)) {
				t.Errorf("%s: usage %+v, asked for %v", ep.path(), total, include)
			}
			if ep == chat {
				if first := decode[completion](t, []byte(got[0])); first.Choices[0].Delta.Role != "assistant" {
					t.Errorf("first chunk %s", got[0])
				}
			}
		}
	}
}

// open sends a streaming request and returns once its headers are there.
func open(t *testing.T, e *Engine, body string) (events *bufio.Reader, hangUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.Addr()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	hangUp = func() {
		cancel()
		_ = resp.Body.Close()
	}
	t.Cleanup(hangUp)
	return bufio.NewReader(resp.Body), hangUp
}

// The next token is hours away: whatever arrives was not waiting for it.
func TestTokensAreFlushedOneByOne(t *testing.T) {
	e := start(t, Config{Timing: Timing{DecodePerToken: time.Hour}})
	stream, hangUp := open(t, e, `{"prompt":"hello","stream":true}`)
	line, err := stream.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("%q, %v", line, err)
	}
	if s := e.Stats(); s.Running != 1 || s.GeneratedTokens != 1 {
		t.Errorf("stats %+v", s)
	}
	hangUp()
	eventually(t, "the request is given up", func() bool { s := e.Stats(); return s.Running == 0 && s.Aborted == 1 && s.BlocksInUse == 0 })
}

func TestPrefillsWaitInLineAndHangingUpFreesTheirPlace(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Blocks: 100, Timing: Timing{PrefillTokensPerSecond: 0.001}})
	_, hangUpFirst := open(t, e, `{"prompt":"the first prompt","stream":true}`)
	eventually(t, "the first runs", func() bool { return e.Stats().Running == 1 })
	_, hangUpSecond := open(t, e, `{"prompt":"the second prompt","stream":true}`)
	_, hangUpThird := open(t, e, `{"prompt":"the third prompt","stream":true}`)
	eventually(t, "two wait", func() bool { return e.Stats().Waiting == 2 })
	metric := func(name string) string { return metricValue(t, e, name) }
	if metric("vllm:num_requests_running") != "1" || metric("vllm:num_requests_waiting") != "2" || metric("vllm:kv_cache_usage_perc") != "0.04" {
		t.Errorf("running %s, waiting %s, usage %s", metric("vllm:num_requests_running"),
			metric("vllm:num_requests_waiting"), metric("vllm:kv_cache_usage_perc"))
	}
	hangUpThird()
	eventually(t, "one waits", func() bool { return e.Stats().Waiting == 1 })
	hangUpFirst()
	eventually(t, "the second runs", func() bool { s := e.Stats(); return s.Running == 1 && s.Waiting == 0 && s.Aborted == 2 })
	if err := e.Clear(); !errors.Is(err, ErrInUse) {
		t.Errorf("clear while a request runs: %v", err)
	}
	hangUpSecond()
	eventually(t, "nothing runs", func() bool { s := e.Stats(); return s.Running == 0 && s.Aborted == 3 && s.CachedBlocks == 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache.reserved != 0 {
		t.Errorf("%d blocks stay reserved", e.cache.reserved)
	}
}

func TestARequestWaitsForRoom(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Blocks: 4, Timing: Timing{DecodePerToken: time.Hour}})
	stream, hangUp := open(t, e, `{"prompt":"0123456789ab","stream":true,"max_tokens":2}`)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	other, _ := open(t, e, `{"prompt":"ba9876543210","stream":true,"max_tokens":2}`)
	eventually(t, "the other waits", func() bool { return e.Stats().Waiting == 1 })
	hangUp()
	if line, err := other.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestAStoppingWorkerBreaksStreams(t *testing.T) {
	e, err := New(Config{Name: "a", Model: testModel, Generation: dynamo.Gen12, Timing: Timing{DecodePerToken: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stream, _ := open(t, e, `{"prompt":"hello","stream":true}`)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	if rest, err := io.ReadAll(stream); err == nil {
		t.Errorf("the stream ended as if complete: %q", rest)
	}
}

func TestErrorsHaveTheShapeOfOpenAI(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Blocks: 8})
	long := strings.Repeat("x", 32)
	for _, tc := range []struct {
		path, body string
		status     int
		param, say string
	}{
		{"/v1/completions", `{"prompt":`, 400, "", "not JSON"},
		{"/v1/completions", `[]`, 400, "", "does not fit"},
		{"/v1/completions", `null`, 400, "prompt", "required"},
		{"/v1/completions", `{"model":3,"prompt":"a"}`, 400, "model", "number"},
		{"/v1/completions", `{"model":"other","prompt":"a"}`, 404, "model", "`other` does not exist"},
		{"/v1/completions", `{"prompt":""}`, 400, "prompt", "empty"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", "empty"},
		{"/v1/completions", `{"prompt":[[]]}`, 400, "prompt", "empty"},
		{"/v1/completions", `{"prompt":5}`, 400, "prompt", "neither"},
		{"/v1/completions", `{"prompt":[1,-2]}`, 400, "prompt", "from 0 to 4294967295"},
		{"/v1/completions", `{"prompt":[1,null]}`, 400, "prompt", "integers"},
		{"/v1/completions", `{"prompt":[4294967296]}`, 400, "prompt", "integers"},
		{"/v1/completions", `{"prompt":["a","b"]}`, 400, "prompt", "one prompt per request"},
		{"/v1/completions", `{"prompt":["a",3]}`, 400, "prompt", "one prompt per request"},
		{"/v1/completions", `{"prompt":"a","n":2}`, 400, "n", "one choice"},
		{"/v1/completions", `{"prompt":"a","max_tokens":0}`, 400, "max_tokens", "at least 1"},
		{"/v1/completions", `{"prompt":"a","max_tokens":32}`, 400, "max_tokens", "maximum context length is 32"},
		{"/v1/completions", `{"prompt":"` + long + `"}`, 400, "prompt", "maximum context length is 32"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "at least one"},
		{"/v1/chat/completions", `{"messages":[{"content":"a"}]}`, 400, "messages", "role"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":3}]}`, 400, "messages", "neither"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages", "image_url"},
		{"/v1/chat/completions/render", `{"messages":[]}`, 400, "messages", "at least one"},
		{"/v1/completions/render", `{"prompt":`, 400, "", "not JSON"},
		{"/tokenize", `{"model":"other","prompt":"a"}`, 404, "model", "does not exist"},
		{"/tokenize", `{}`, 400, "prompt", "required"},
		{"/v1/responses", `{}`, 404, "", "Not Found"},
	} {
		r := call(t, e, http.MethodPost, tc.path, tc.body)
		got := decode[struct {
			Error struct {
				Message, Type string
				Param         *string
				Code          int
			}
		}](t, r.body).Error
		param := ""
		if got.Param != nil {
			param = *got.Param
		}
		if r.status != tc.status || got.Code != tc.status || got.Type == "" || param != tc.param || !strings.Contains(got.Message, tc.say) {
			t.Errorf("%s %s: %d %s; want %d, param %q, %q", tc.path, tc.body, r.status, r.body, tc.status, tc.param, tc.say)
		}
	}
	if s := e.Stats(); s.Requests != 0 || s.Failed != 22 {
		t.Errorf("stats %+v", s)
	}
}

func TestTooLargeABodyIsRefused(t *testing.T) {
	e := start(t, Config{})
	for name, length := range map[string]int64{"announced": maxBody + 1, "unknown length": -1} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tokenize", io.LimitReader(spaces{}, maxBody+1))
		req.ContentLength = length
		w := httptest.NewRecorder()
		e.routes().ServeHTTP(w, req)
		if w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// spaces is a body without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// What render and tokenize answer is what the engine caches under.
func TestRenderEqualsWhatTheEngineComputes(t *testing.T) {
	e := start(t, Config{BlockSize: 4})
	const said = `"messages":[{"role":"user","content":"héllo <|im_end|> wörld"},{"role":"assistant","content":null},{"role":"user","content":"日本"}]`
	for _, tc := range []struct {
		ep   endpoint
		body string
		want []uint32
	}{
		{completions, `"prompt":"a<|im_start|>é<|im_x"`, []uint32{'a', 256, 0xc3, 0xa9, '<', '|', 'i', 'm', '_', 'x'}},
		{completions, `"prompt":["ab<|endoftext|>"]`, []uint32{'a', 'b', 258}},
		{completions, `"prompt":[7,140000,4294967295,1,2,3,4,5,6]`, []uint32{7, 140000, 4294967295, 1, 2, 3, 4, 5, 6}},
		{completions, `"prompt":[[1,2,3,4,5]]`, []uint32{1, 2, 3, 4, 5}},
		{
			chat, `"messages":[{"role":"user","content":"hi"}]`,
			append(append([]uint32{256}, bytesOf("user\nhi")...), append([]uint32{257, '\n', 256}, bytesOf("assistant\n")...)...),
		},
		{chat, `"add_generation_prompt":false,"messages":[{"role":"u","content":"hi"}]`, []uint32{256, 'u', '\n', 'h', 'i', 257, '\n'}},
		{chat, said, nil},
	} {
		if err := e.Clear(); err != nil {
			t.Fatal(err)
		}
		r := call(t, e, http.MethodPost, tc.ep.path()+"/render", "{"+tc.body+"}")
		type rendered struct {
			RequestID string   `json:"request_id"`
			TokenIDs  []uint32 `json:"token_ids"`
		}
		var got rendered
		if tc.ep == chat {
			got = decode[rendered](t, r.body)
		} else {
			got = decode[[]rendered](t, r.body)[0]
		}
		if tc.want != nil && !slices.Equal(got.TokenIDs, tc.want) {
			t.Errorf("%s: %v, want %v", tc.body, got.TokenIDs, tc.want)
		}
		tok := decode[struct {
			Count       int      `json:"count"`
			MaxModelLen int      `json:"max_model_len"`
			Tokens      []uint32 `json:"tokens"`
		}](t, call(t, e, http.MethodPost, "/tokenize", "{"+tc.body+"}").body)
		if tok.Count != len(got.TokenIDs) || tok.MaxModelLen != 4096 || !slices.Equal(tok.Tokens, got.TokenIDs) {
			t.Errorf("%s: tokenize %+v, render %v", tc.body, tok, got.TokenIDs)
		}
		c, _ := complete(t, e, tc.ep, json.RawMessage(`{"max_tokens":1,`+tc.body+"}"))
		if c.Usage.PromptTokens != len(got.TokenIDs) {
			t.Errorf("%s: usage %+v, render %d tokens", tc.body, c.Usage, len(got.TokenIDs))
		}
		hashes := block.Layout{Size: 4}.AppendHashes(nil, got.TokenIDs, block.NewSeed("", ""))
		e.mu.Lock()
		if len(e.cache.entries) != len(hashes) {
			t.Errorf("%s: %d blocks cached, want %d", tc.body, len(e.cache.entries), len(hashes))
		}
		for _, chain := range block.AppendChains(nil, hashes) {
			if e.cache.entries[chain] == nil {
				t.Errorf("%s: block %x is not cached", tc.body, chain)
			}
		}
		e.mu.Unlock()
	}
}

func bytesOf(s string) []uint32 {
	var out []uint32
	for _, b := range []byte(s) {
		out = append(out, uint32(b))
	}
	return out
}

func TestPlainEndpoints(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Blocks: 10, Role: fleet.Prefill})
	if r := call(t, e, http.MethodGet, "/health", ""); r.status != http.StatusOK || len(r.body) != 0 {
		t.Errorf("health: %d %q", r.status, r.body)
	}
	if v := decode[map[string]string](t, call(t, e, http.MethodGet, "/version", "").body); v["version"] == "" {
		t.Errorf("version: %v", v)
	}
	models := decode[struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}](t, call(t, e, http.MethodGet, "/v1/models", "").body)
	if len(models.Data) != 1 || models.Data[0].ID != testModel || models.Data[0].MaxModelLen != 40 {
		t.Errorf("models: %+v", models)
	}
	complete(t, e, completions, object{"prompt": "hello", "max_tokens": 1})
	s := decode[Stats](t, call(t, e, http.MethodGet, "/sim/stats", "").body)
	if s != e.Stats() || s.Misdirected != 1 || s.PrefilledTokens != 5 || s.WorkerID != 1186445869714687 || s.Role != "Prefill" {
		t.Errorf("stats %+v", s)
	}
	strs := decode[map[string]any](t, call(t, e, http.MethodPost, "/tokenize", `{"prompt":"a<|im_end|>","return_token_strs":true}`).body)
	if fmt.Sprint(strs["token_strs"]) != "[a <|im_end|>]" {
		t.Errorf("tokenize %v", strs)
	}
	r := call(t, e, http.MethodPost, "/v1/completions", `{"prompt":"a"}`, "x-dynamo-request-id", "8c6f9f4e-3b53-4a53-9b5e-0b8a5a8a7b11", "x-request-id", "r")
	if id := decode[completion](t, r.body).ID; id != "cmpl-8c6f9f4e-3b53-4a53-9b5e-0b8a5a8a7b11" {
		t.Errorf("id %q", id)
	}
}

// metricValue returns the value of the one series of a metric.
func metricValue(t *testing.T, e *Engine, name string) string {
	t.Helper()
	for line := range strings.Lines(string(call(t, e, http.MethodGet, "/metrics", "").body)) {
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return ""
}

func TestMetricsHaveTheNamesOfVLLM(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Blocks: 100, Rank: 2})
	for range 2 {
		complete(t, e, completions, object{"prompt": ids(1, 10), "max_tokens": 3})
	}
	for name, want := range map[string]string{
		"vllm:num_requests_running":              "0",
		"vllm:num_requests_waiting":              "0",
		"vllm:kv_cache_usage_perc":               "0",
		"vllm:prefix_cache_queries_total":        "20",
		"vllm:prefix_cache_hits_total":           "8",
		"vllm:external_prefix_cache_hits_total":  "0",
		"vllm:prompt_tokens_total":               "20",
		"vllm:generation_tokens_total":           "6",
		"vllm:request_success_total":             "2",
		"vllm:time_to_first_token_seconds_count": "2",
		"vllm:cache_config_info":                 "1",
	} {
		if got := metricValue(t, e, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	page := string(call(t, e, http.MethodGet, "/metrics", "").body)
	for _, want := range []string{
		`vllm:num_requests_running{engine="2",model_name="tiny"} 0`,
		`block_size="4"`, `num_gpu_blocks="100"`, "# TYPE vllm:prefix_cache_hits_total counter",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Name: "a", Model: "m", Generation: dynamo.Gen14}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for say, change := range map[string]func(*Config){
		"name:":       func(c *Config) { c.Name = "" },
		"model:":      func(c *Config) { c.Model = "" },
		"role:":       func(c *Config) { c.Role = 9 },
		"block size:": func(c *Config) { c.BlockSize = -1 },
		"blocks:":     func(c *Config) { c.Blocks = -1 },
		"more than":   func(c *Config) { c.MaxModelLen = 1 << 30 },
		"generation:": func(c *Config) { c.Generation = 0 },
		"speedup:":    func(c *Config) { c.Timing.Speedup = -1 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
		if e, err := New(c); err == nil {
			t.Errorf("%s: New takes it: %v", say, e.Addr())
		}
	}
	if e, err := New(Config{Name: "a", Model: "m", Generation: dynamo.Gen12, Listen: "127.0.0.1:-1"}); err == nil {
		t.Errorf("listens on %s", e.Addr())
	}
}

func TestTiming(t *testing.T) {
	tm := Timing{
		PrefillTokensPerSecond: 1000, DecodePerToken: 10 * time.Millisecond,
		TransferBytesPerToken: 1000, TransferBandwidth: 500_000, TransferFixed: 5 * time.Millisecond, Speedup: 2,
	}
	for name, d := range map[string][2]time.Duration{
		"prefill":                   {tm.prefill(2000), time.Second},
		"third token":               {tm.decode(2), 10 * time.Millisecond},
		"transfer, nothing overlap": {tm.transfer(1000, 0), 1002500 * time.Microsecond},
		"transfer, half overlapped": {tm.transfer(1000, 1000), 502500 * time.Microsecond},
		"transfer, all overlapped":  {tm.transfer(1000, 3000), 2500 * time.Microsecond},
		"zero is instant":           {Timing{Speedup: 1}.transfer(1000, 0) + Timing{Speedup: 1}.prefill(9), 0},
	} {
		if d[0] != d[1] {
			t.Errorf("%s: %v, want %v", name, d[0], d[1])
		}
	}
}
