package extproc

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// withRules makes a routing send requests for models elsewhere: pairs of a model,
// or "*", and its target.
func withRules(tb testing.TB, pairs ...string) func(*Config) {
	tb.Helper()
	return func(c *Config) { c.Rewrites = rulesOf(tb, pairs...) }
}

func rulesOf(tb testing.TB, pairs ...string) *rewrite.Rules {
	tb.Helper()
	var rules []rewrite.Rule
	for i := 0; i < len(pairs); i += 2 {
		rule := rewrite.Rule{Targets: []rewrite.Target{{Model: pairs[i+1]}}}
		if pairs[i] != "*" {
			rule.Matches = []string{pairs[i]}
		}
		rules = append(rules, rule)
	}
	r, err := rewrite.New(rules)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func allowHeader(c *Config) { c.ModelHeader = true }

// exchange is what came of one request in memory.
type exchange struct {
	head   *response // the answer with the decision
	sent   string    // body of the request that goes on
	reply  *response // the answer to the headers of the response
	answer string    // body of the response that goes on
	chunks []int     // sizes of what was sent back
}

// exchange runs a request in full duplex. The pieces of the response come one a
// message; responseHeaders may be nil for no response.
func (r *rig) exchange(t *testing.T, m *request, body string, responseHeaders *request, pieces ...string) exchange {
	t.Helper()
	in := []*request{duplexModes.first(m), bodyMsg(body[:len(body)/2], false), bodyMsg(body[len(body)/2:], true)}
	if responseHeaders != nil {
		in = append(in, responseHeaders)
	}
	for i, p := range pieces {
		in = append(in, answerBodyMsg(p, i == len(pieces)-1))
	}
	mem := newMemory(t.Context(), in...)
	if err := r.server.Process(mem); err != nil {
		t.Error(err)
	}
	var e exchange
	for _, m := range mem.all() {
		switch {
		case m.GetRequestHeaders() != nil || m.GetImmediateResponse() != nil:
			e.head = m
		case m.GetResponseHeaders() != nil:
			e.reply = m
		case m.GetRequestBody() != nil:
			e.sent += string(streamedBody(m).GetBody())
			e.chunks = append(e.chunks, len(streamedBody(m).GetBody()))
		case m.GetResponseBody() != nil:
			e.answer += string(streamedBody(m).GetBody())
		}
	}
	return e
}

func removed(r *response) []string {
	c := r.GetRequestHeaders().GetResponse()
	if r.GetResponseHeaders() != nil {
		c = r.GetResponseHeaders().GetResponse()
	}
	return c.GetHeaderMutation().GetRemoveHeaders()
}

func answerHeaders(pairs ...string) *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(append([]string{":status", "200"}, pairs...)...)},
	}}
}

// TestModelOfRequest: a rule counts before the header, and the header before the
// body (endpoint-picker.md 1.7).
func TestModelOfRequest(t *testing.T) {
	for _, tc := range []struct {
		name, body, want string
		headers          []string
		change           []func(*Config)
		model, target    string // labels of what is counted; empty for nothing
	}{
		{"no rules", `{"model":"m","prompt":"x"}`, `{"model":"m","prompt":"x"}`, nil, nil, "", ""},
		{"rule", `{ "model" : "m", "prompt":"x"}`, `{ "model" : "t/1", "prompt":"x"}`, nil, []func(*Config){withRules(t, "m", "t/1")}, "m", "t/1"},
		{"escaped name", `{"model":"\u006d","prompt":"x"}`, `{"model":"t","prompt":"x"}`, nil, []func(*Config){withRules(t, "m", "t")}, "m", "t"},
		{"rule for others", `{"model":"n","prompt":"x"}`, `{"model":"n","prompt":"x"}`, nil, []func(*Config){withRules(t, "m", "t")}, "", ""},
		{"rule for all", `{"model":"n","prompt":"x"}`, `{"model":"all","prompt":"x"}`, nil, []func(*Config){withRules(t, "m", "t", "*", "all")}, "*", "all"},
		{"no model", `{"prompt":"x"}`, `{"model":"all","prompt":"x"}`, nil, []func(*Config){withRules(t, "*", "all")}, "*", "all"},
		{"to itself", `{"model":"m","prompt":"x"}`, `{"model":"m","prompt":"x"}`, nil, []func(*Config){withRules(t, "m", "m", "*", "all")}, "m", "m"},
		{"header", `{"model":"m","prompt":"x"}`, `{"model":"h","prompt":"x"}`, []string{modelHeader, "h"}, []func(*Config){allowHeader}, "*", "*"},
		{"old header", `{"model":"m","prompt":"x"}`, `{"model":"h","prompt":"x"}`, []string{oldModelHeader, "h"}, []func(*Config){allowHeader}, "*", "*"},
		{"newer header first", `{"prompt":"x"}`, `{"model":"new","prompt":"x"}`, []string{oldModelHeader, "old", modelHeader, "new"}, []func(*Config){allowHeader}, "*", "*"},
		{"newer header last", `{"prompt":"x"}`, `{"model":"new","prompt":"x"}`, []string{modelHeader, "new", oldModelHeader, "old"}, []func(*Config){allowHeader}, "*", "*"},
		{"odd header", `{"model":"m","prompt":"x"}`, `{"model":"\"}<","prompt":"x"}`, []string{modelHeader, `"}<`}, []func(*Config){allowHeader}, "*", "*"},
		{"empty header", `{"model":"m","prompt":"x"}`, `{"model":"m","prompt":"x"}`, []string{modelHeader, ""}, []func(*Config){allowHeader}, "", ""},
		{"header that is not allowed", `{"model":"m","prompt":"x"}`, `{"model":"m","prompt":"x"}`, []string{"X-LLM-D-Model-Name-Rewrite", "h"}, nil, "", ""},
		{"rule before header", `{"model":"m","prompt":"x"}`, `{"model":"t","prompt":"x"}`, []string{modelHeader, "h"}, []func(*Config){allowHeader, withRules(t, "m", "t")}, "m", "t"},
		{"header where no rule is", `{"model":"n","prompt":"x"}`, `{"model":"h","prompt":"x"}`, []string{modelHeader, "h"}, []func(*Config){allowHeader, withRules(t, "m", "t")}, "*", "*"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, splitPool(), tc.change...)
			e := r.exchange(t, headersMsg("POST", completions, false, append(tc.headers, lengthHeader, fmt.Sprint(len(tc.body)))...), tc.body, nil)
			if e.sent != tc.want {
				t.Errorf("sent on %s, want %s", e.sent, tc.want)
			}
			wantLength := ""
			if tc.want != tc.body {
				wantLength = fmt.Sprint(len(tc.want))
			}
			if got := setHeaders(t, e.head)[lengthHeader]; got != wantLength {
				t.Errorf("content-length is set to %q, want %q", got, wantLength)
			}
			for i := 0; i < len(tc.headers); i += 2 {
				if !slices.Contains(removed(e.head), strings.ToLower(tc.headers[i])) {
					t.Errorf("%s goes on to the worker", tc.headers[i])
				}
			}
			wantCount := 1.0
			if tc.model == "" {
				tc.model, tc.target, wantCount = "*", "*", 0
			}
			if got := r.metric(t, "warmpath_model_rewrites_total", "model", tc.model, "target", tc.target); got != wantCount {
				t.Errorf("counted %v times, want %v", got, wantCount)
			}
		})
	}
}

func TestNoModelIsRefusedWithoutARuleForAll(t *testing.T) {
	for name, change := range map[string]func(*Config){"no rule": func(*Config) {}, "rule for one": withRules(t, "m", "t"), "header not given": allowHeader} {
		r := newRig(t, splitPool(), change)
		e := r.exchange(t, headersMsg("POST", completions, false), `{"prompt":"x"}`, nil)
		if got := describe(e.head); got != "immediate 400 missing_model" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestRulesOfTheServer: those of the routing come first, and both go on being used
// when the other changes.
func TestRulesOfTheServer(t *testing.T) {
	r := newRig(t, splitPool(), withRules(t, "m", "routing"))
	r.server.UseRewrites(rulesOf(t, "m", "server", "n", "server"))
	for model, want := range map[string]string{"m": "routing", "n": "server", "o": "o"} {
		e := r.exchange(t, headersMsg("POST", completions, false), `{"model":"`+model+`","prompt":"x"}`, nil)
		if e.sent != `{"model":"`+want+`","prompt":"x"}` {
			t.Errorf("%s: %s", model, e.sent)
		}
	}
	r.server.UseRewrites(nil)
	if e := r.exchange(t, headersMsg("POST", completions, false), `{"model":"n","prompt":"x"}`, nil); e.sent != `{"model":"n","prompt":"x"}` {
		t.Error(e.sent)
	}
}

// TestTargetIsHashed: what a request is hashed with is what the engine hashes it
// with, the adapter that it is sent to.
func TestTargetIsHashed(t *testing.T) {
	ids := count(100, 13)
	for _, tc := range []struct {
		name, asked, target string
		held                block.Seed
		matched             float64
	}{
		{"model to adapter", "m", "lora", block.NewSeed("lora", ""), 3},
		{"adapter to model", "lora", "m", block.NewSeed("", ""), 3},
		{"adapter to adapter", "lora", "lora-2", block.NewSeed("lora-2", ""), 3},
		{"not the one asked for", "lora", "lora-2", block.NewSeed("lora", ""), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var announced []Placement
			r := newRig(t, splitPool(), withRules(t, tc.asked, tc.target), func(c *Config) {
				c.Adapters = map[string]bool{"lora": true, "lora-2": true}
				c.Announcer = announcerFunc(func(p Placement) Announcement {
					announced = append(announced, p)
					return nil
				})
			})
			r.hold(t, fleet.Key{ID: 12}, ids, tc.held)
			r.exchange(t, headersMsg("POST", completions, false), strings.Replace(tokenBody(ids, ""), `"m"`, `"`+tc.asked+`"`, 1), nil)
			if got := r.metric(t, "warmpath_prompt_blocks_total", "kind", "best"); got != tc.matched {
				t.Errorf("best match %v blocks, want %v", got, tc.matched)
			}
			if want := strings.TrimPrefix(tc.target, "m"); len(announced) != 1 || announced[0].Adapter != want {
				t.Errorf("announced %+v, want adapter %q", announced, want)
			}
		})
	}
}

type announcerFunc func(Placement) Announcement

func (f announcerFunc) Placed(p Placement) Announcement { return f(p) }

// TestTokenizerGetsTheTarget: an engine that is asked for token ids must know the
// model.
func TestTokenizerGetsTheTarget(t *testing.T) {
	long := strings.Repeat(`a long \"text\" `, 9)
	body := `{"messages":[{"role":"user","content":"` + long + `"}],"model":"m"}`
	want := strings.Replace(body, `"m"`, `"another/target"`, 1)
	for _, decode := range []bool{false, true} {
		var got prompt.Body
		seen := ""
		r := newRig(t, splitPool(), withRules(t, "m", "another/target"), func(c *Config) {
			c.DecodeTexts = decode
			c.Tokenizer = inProcess(func(p *Prompt) error {
				seen, got = string(p.Body), *p.Scanned
				return nil
			})
		})
		e := r.exchange(t, headersMsg("POST", chat, false), body, nil)
		if seen != want || e.sent != want || got.Model != "another/target" || want[got.Start] != '[' {
			t.Errorf("decode %v: tokenized %s, sent %s, want %s", decode, seen, e.sent, want)
		}
		if spans, _ := got.Strings(); len(spans) != 1 || want[spans[0].Start:spans[0].End] != long {
			t.Errorf("decode %v: long strings are at %v", decode, spans)
		}
	}
}

// TestUnchangedBodiesAreNotCopied: with rules for others, a body goes on as the
// very bytes that came.
func TestUnchangedBodiesAreNotCopied(t *testing.T) {
	var seen []byte
	r := newRig(t, splitPool(), withRules(t, "other", "t", "m", "m"), func(c *Config) {
		c.Tokenizer = inProcess(func(p *Prompt) error { seen = p.Body; return nil })
	})
	m := bodyMsg(helloChat, true)
	if err := r.server.Process(newMemory(t.Context(), duplexModes.first(headersMsg("POST", chat, false)), m)); err != nil {
		t.Fatal(err)
	}
	if sent := m.GetRequestBody().GetBody(); len(seen) != len(sent) || &seen[0] != &sent[0] {
		t.Error("the body was copied")
	}
}

func TestLargeChangedBodyGoesOnInChunks(t *testing.T) {
	body := `{"prompt":"` + strings.Repeat("x", 3*maxChunk) + `","model":"m"}`
	r := newRig(t, splitPool(), withRules(t, "m", "target"))
	e := r.exchange(t, headersMsg("POST", completions, false), body, nil)
	if e.sent != strings.Replace(body, `"m"`, `"target"`, 1) {
		t.Error("another body went on")
	}
	if slices.Max(e.chunks) > maxChunk || len(e.chunks) != 4 {
		t.Errorf("chunks of %v", e.chunks)
	}
}

const eventStream = "data: {\"id\":\"1\",\"model\":\"t\",\"choices\":[]}\n\ndata: {\"id\":\"1\",\"model\":\"t\",\"choices\":[]}\n\ndata: [DONE]\n\n"

func TestModelOfResponse(t *testing.T) {
	asked := strings.ReplaceAll
	for _, tc := range []struct {
		name, path    string
		headers       []string
		answer, want  string
		lengthRemoved bool
	}{
		{"events", chat, []string{"content-type", "text/event-stream; charset=utf-8"}, eventStream, asked(eventStream, `"t"`, `"m\u0021"`), true},
		{"JSON", chat, []string{"content-type", "application/json", "content-length", "30"}, `{"id":"1","model":"t","x":"t"}`, `{"id":"1","model":"m\u0021","x":"t"}`, true},
		{"identity", chat, []string{"Content-Type", "application/json", "Content-Encoding", "identity"}, `{"model":"t"}`, `{"model":"m\u0021"}`, true},
		{"compressed", chat, []string{"content-type", "application/json", "content-encoding", "gzip"}, `{"model":"t"}`, `{"model":"t"}`, false},
		{"text", chat, []string{"content-type", "text/plain"}, `{"model":"t"}`, `{"model":"t"}`, false},
		{"no type", chat, nil, `{"model":"t"}`, `{"model":"t"}`, false},
		{"Anthropic events", "/v1/messages", []string{"content-type", "text/event-stream"}, "event: message_start\ndata: {\"message\":{\"model\":\"t\"}}\n\n", "event: message_start\ndata: {\"message\":{\"model\":\"m\\u0021\"}}\n\n", true},
		{"Anthropic JSON", "/v1/messages", []string{"content-type", "application/json"}, `{"model":"t","message":{"model":"t"}}`, `{"model":"m\u0021","message":{"model":"t"}}`, true},
		{"Responses events", "/v1/responses", []string{"content-type", "text/event-stream"}, "data: {\"response\":{\"model\":\"t\"}}\n\n", "data: {\"response\":{\"model\":\"m\\u0021\"}}\n\n", true},
		{"chat events have no inner response", chat, []string{"content-type", "text/event-stream"}, "data: {\"response\":{\"model\":\"t\"}}\n\n", "data: {\"response\":{\"model\":\"t\"}}\n\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, splitPool(), withRules(t, "m!", "t"))
			body := `{"model":"m\u0021","messages":[{"role":"user","content":"x"}],"input":"x"}`
			for _, size := range []int{1, 7, 1000} {
				e := r.exchange(t, headersMsg("POST", tc.path, false), body, answerHeaders(tc.headers...), cutInto(tc.answer, size)...)
				if e.answer != tc.want {
					t.Errorf("pieces of %d: %q, want %q", size, e.answer, tc.want)
				}
				if got := slices.Contains(removed(e.reply), lengthHeader); got != tc.lengthRemoved {
					t.Errorf("content-length removed: %v", got)
				}
			}
			want := 0
			if tc.name == "compressed" {
				want = 1
			}
			if got := r.log.count("a response is compressed"); got != want {
				t.Errorf("logged %d times, want %d", got, want)
			}
		})
	}
}

func cutInto(text string, size int) []string {
	var pieces []string
	for c := range slices.Chunk([]byte(text), size) {
		pieces = append(pieces, string(c))
	}
	return append(pieces, "")
}

// TestResponseStaysAsItIs: where the request was not changed, or the client named
// no model, or one of a length that is out of all reason.
func TestResponseStaysAsItIs(t *testing.T) {
	for name, body := range map[string]string{
		"not changed": `{"model":"t","prompt":"x"}`, "other model": `{"model":"o","prompt":"x"}`,
	} {
		r := newRig(t, splitPool(), withRules(t, "m", "t", "t", "t"))
		if e := r.exchange(t, headersMsg("POST", completions, false), body, answerHeaders("content-type", "text/event-stream"), eventStream, ""); e.answer != eventStream || len(removed(e.reply)) > 0 {
			t.Errorf("%s: %s", name, e.answer)
		}
	}
	for name, body := range map[string]string{
		"no model": `{"prompt":"x"}`, "null": `{"model":null,"prompt":"x"}`, "long": `{"model":"` + strings.Repeat("m", maxAskedName+1) + `","prompt":"x"}`,
	} {
		r := newRig(t, splitPool(), withRules(t, "*", "t"))
		e := r.exchange(t, headersMsg("POST", completions, false), body, answerHeaders("content-type", "text/event-stream"), eventStream, "")
		if e.answer != eventStream || len(removed(e.reply)) > 0 || !strings.Contains(e.sent, `"model":"t"`) {
			t.Errorf("%s: sent %s, answered %s", name, e.sent, e.answer)
		}
	}
}

// TestRewriteWhereTheGatewayKeepsBodies: the modes in which bodies are not sent
// back, but replaced.
func TestRewriteWhereTheGatewayKeepsBodies(t *testing.T) {
	body, want := `{"model":"m","prompt":"x"}`, `{"model":"target","prompt":"x"}`
	answer, wantAnswer := `{"model":"target"}`, `{"model":"m"}`
	r := newRig(t, splitPool(), withRules(t, "m", "target"))
	run := func(m modes, in ...*request) []*response {
		mem := newMemory(t.Context(), append([]*request{m.first(headersMsg("POST", completions, false, lengthHeader, "26"))}, in...)...)
		if err := r.server.Process(mem); err != nil {
			t.Fatal(err)
		}
		return mem.all()
	}
	jsonHeaders := func() *request { return answerHeaders("content-type", "application/json", lengthHeader, "18") }

	all := run(modes{modeBuffered, modeBuffered}, bodyMsg(body, true), jsonHeaders(), answerBodyMsg(answer, true))
	sent, reply := all[1].GetRequestBody().GetResponse(), all[3].GetResponseBody().GetResponse()
	if got := string(sent.GetBodyMutation().GetBody()); got != want || setHeaders(t, all[1])[lengthHeader] != fmt.Sprint(len(want)) {
		t.Errorf("buffered: sent %s with %v", got, setHeaders(t, all[1]))
	}
	if got := string(reply.GetBodyMutation().GetBody()); got != wantAnswer || string(reply.GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue()) != fmt.Sprint(len(wantAnswer)) {
		t.Errorf("buffered: answered %s with %v", got, reply.GetHeaderMutation())
	}
	if len(removed(all[2])) > 0 {
		t.Errorf("buffered: %v removed", removed(all[2]))
	}

	all = run(modes{modeBuffered, modeStreamed}, bodyMsg(body, true), jsonHeaders(), answerBodyMsg(answer[:12], false), answerBodyMsg(answer[12:14], false), answerBodyMsg(answer[14:], false), answerBodyMsg("", true))
	got := ""
	for i, came := range []string{answer[:12], answer[12:14], answer[14:], ""} {
		c := all[3+i].GetResponseBody().GetResponse()
		if c != nil {
			came = string(c.GetBodyMutation().GetBody())
		}
		got += came
	}
	if got != wantAnswer || !slices.Contains(removed(all[2]), lengthHeader) {
		t.Errorf("streamed: answered %s, %v removed", got, removed(all[2]))
	}

	all = run(modes{modeBuffered, modeNone}, bodyMsg(body, true), jsonHeaders())
	if len(removed(all[2])) > 0 {
		t.Errorf("not sent: %v removed", removed(all[2]))
	}
}

// TestRulesChangeUnderTraffic: every request is of one rule or the other, and both
// halves of it agree.
func TestRulesChangeUnderTraffic(t *testing.T) {
	r := newRig(t, splitPool())
	one, two := rulesOf(t, "m", "one"), rulesOf(t, "m", "two")
	r.server.UseRewrites(one)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.server.UseRewrites([]*rewrite.Rules{one, two}[i%2])
			}
		}
	}()
	var streams sync.WaitGroup
	for range 4 {
		streams.Go(func() {
			for range 50 {
				e := r.exchange(t, headersMsg("POST", completions, false), `{"model":"m","prompt":"x"}`, answerHeaders("content-type", "application/json"), `{"model":"`, `x"}`, "")
				if sent := e.sent; sent != `{"model":"one","prompt":"x"}` && sent != `{"model":"two","prompt":"x"}` || e.answer != `{"model":"m"}` {
					t.Errorf("sent %s, answered %s", sent, e.answer)
				}
			}
		})
	}
	streams.Wait()
	close(stop)
	<-stopped
}

// BenchmarkProcessRewritten is a request whose model is replaced, and its response of
// four events, beside the same request left as it is.
func BenchmarkProcessRewritten(b *testing.B) {
	for _, kib := range []int{1, 128} {
		for _, rule := range []string{"other", "m"} {
			b.Run(fmt.Sprintf("%dKiB/rule for %s", kib, rule), func(b *testing.B) {
				r := newRig(b, splitPool(), withRules(b, rule, "target"))
				body := bodyOfSize(kib << 10)
				in := []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(body, true), answerHeadersMsg("200", false)}
				for range 4 {
					in = append(in, answerBodyMsg(eventStream, false))
				}
				stream := &replayed{ctx: b.Context(), in: in}
				b.ReportAllocs()
				for b.Loop() {
					stream.at = 0
					if err := r.server.Process(stream); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestBodyPathOfChangedBodies: however a body is cut, what goes on is the whole of it
// with another name. One server serves all: pooled memory of one request must not
// show in the next.
func TestBodyPathOfChangedBodies(t *testing.T) {
	r := newRig(t, splitPool(), withRules(t, "m", "a longer name", "long-long-long-name", "s"), withTextBlocks)
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.SampledFrom([]string{"m", "long-long-long-name", "other"}).Draw(t, "model")
		want := map[string]string{"m": "a longer name", "long-long-long-name": "s", "other": "other"}[model]
		before := strings.Repeat("x", rapid.IntRange(0, 2000).Draw(t, "before"))
		after := rapid.SliceOfN(rapid.Uint32(), 1, 300).Draw(t, "after")
		body := `{"user":"` + before + `",` + strings.Replace(tokenBody(after, ""), `{"model":"m"`, `"model":"`+model+`"`, 1)
		cuts := rapid.SliceOf(rapid.Byte()).Draw(t, "cuts")
		end := rapid.IntRange(0, numEnds-1).Draw(t, "end")
		m := rapid.SampledFrom(fuzzModes).Draw(t, "modes")
		stream := newMemory(t.Context(), bodyMessages(m, completions, []byte(body), cuts, end)...)
		if err := r.server.Process(stream); err != nil {
			t.Fatal(err)
		}
		expected := strings.Replace(body, `"model":"`+model+`"`, `"model":"`+want+`"`, 1)
		if m.request == modeDuplex {
			checkBodyReplies(t, stream.all(), m, completions, []byte(expected), end)
			return
		}
		for _, reply := range stream.all() {
			if c := reply.GetRequestBody().GetResponse(); c != nil {
				if got := string(c.GetBodyMutation().GetBody()); got != expected && (got != "" || want != model) {
					t.Fatalf("sent %s, want %s", got, expected)
				}
			}
		}
	})
	r.waitIdle(t)
}

// TestExplainOfARewrite: it is about the model that would be asked, and counts nothing.
func TestExplainOfARewrite(t *testing.T) {
	ids := count(100, 13)
	r := newRig(t, splitPool(), withRules(t, "m", "lora"), func(c *Config) { c.Adapters = map[string]bool{"lora": true} })
	r.hold(t, fleet.Key{ID: 12}, ids, block.NewSeed("lora", ""))
	body := []byte(tokenBody(ids, ""))
	e, source, err := r.server.Explain(t.Context(), completions, nil, body)
	if err != nil || source != FromBody || e.Err != nil || e.Matched != 3 {
		t.Errorf("%+v, from %v, %v; want 3 blocks", e, source, err)
	}
	if string(body) != tokenBody(ids, "") {
		t.Error("the body was changed")
	}
	if got := r.metric(t, "warmpath_model_rewrites_total", "model", "m", "target", "lora"); got != 0 {
		t.Errorf("counted %v times", got)
	}
}
