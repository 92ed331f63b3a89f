package extproc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// openAIError is the shape of an error in OpenAI's API.
type openAIError struct {
	Error *struct {
		Message *string `json:"message"`
		Type    *string `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

// checkImmediate checks the whole immediate response.
func checkImmediate(t *testing.T, r *response, status int, kind, code, param string) {
	t.Helper()
	m := r.GetImmediateResponse()
	if m == nil {
		t.Fatalf("got %q, want an immediate response", describe(r))
	}
	if int(m.GetStatus().GetCode()) != status {
		t.Errorf("status %d, want %d", m.GetStatus().GetCode(), status)
	}
	if m.GetDetails() != code {
		t.Errorf("details %q, want %q", m.GetDetails(), code)
	}
	set := m.GetHeaders().GetSetHeaders()
	want := map[int]int{429: 3, 503: 2}[status] // headers: why, and when to try again
	if len(set) != max(1, want) || set[0].GetHeader().GetKey() != "content-type" || string(set[0].GetHeader().GetRawValue()) != "application/json" {
		t.Errorf("headers %v", set)
	}
	decoder := json.NewDecoder(strings.NewReader(string(m.GetBody())))
	decoder.DisallowUnknownFields()
	var body openAIError
	if err := decoder.Decode(&body); err != nil || body.Error == nil {
		t.Fatalf("body %s: %v", m.GetBody(), err)
	}
	e := body.Error
	if e.Message == nil || *e.Message == "" || e.Type == nil || *e.Type != kind || e.Code == nil || *e.Code != code {
		t.Errorf("body %s, want type %s and code %s", m.GetBody(), kind, code)
	}
	if !strings.Contains(string(m.GetBody()), `"param":`) {
		t.Errorf("body %s has no param", m.GetBody())
	}
	if got := e.Param; (got == nil) != (param == "") || got != nil && *got != param {
		t.Errorf("body %s, want param %q", m.GetBody(), param)
	}
}

func TestBadBodies(t *testing.T) {
	for _, tc := range []struct {
		name, path, body string
		code, param      string
	}{
		{"empty", completions, "", "empty_body", ""},
		{"white space", completions, " \n", "empty_body", ""},
		{"not JSON", chat, "hello", "invalid_json", ""},
		{"cut short", completions, `{"model":"m","prompt":[1,2`, "invalid_json", ""},
		{"more after the end", completions, `{"model":"m","prompt":"a"} x`, "invalid_json", ""},
		{"too deep", completions, strings.Repeat("[", 100_000), "invalid_json", ""},
		{"no object", completions, `[1]`, "invalid_type", ""},
		{"model of a wrong type", completions, `{"model":7,"prompt":"a"}`, "invalid_type", "model"},
		{"prompt of a wrong type", completions, `{"model":"m","prompt":{}}`, "invalid_type", "prompt"},
		{"token id out of range", completions, `{"model":"m","prompt":[4294967296]}`, "invalid_type", "prompt"},
		{"negative token id", completions, `{"model":"m","prompt":[-1]}`, "invalid_type", "prompt"},
		{"messages of a wrong type", chat, `{"model":"m","messages":"secret"}`, "invalid_type", "messages"},
		{"stream of a wrong type", chat, `{"model":"m","messages":[{"role":"user","content":"a"}],"stream":"yes"}`, "invalid_type", "stream"},
		{"no model", completions, `{"prompt":"a"}`, "missing_model", "model"},
		{"empty model", completions, `{"model":"","prompt":"a"}`, "missing_model", "model"},
		{"no prompt", completions, `{"model":"m"}`, "missing_prompt", "prompt"},
		{"empty prompt", completions, `{"model":"m","prompt":[]}`, "missing_prompt", "prompt"},
		{"no messages", chat, `{"model":"m"}`, "missing_prompt", "messages"},
	} {
		for _, m := range []modes{duplexModes, {modeBuffered, modeBuffered}} {
			t.Run(tc.name+" "+m.request.String(), func(t *testing.T) {
				l := startRig(t, splitPool())
				e := l.open(t)
				e.send(m.first(headersMsg("POST", tc.path, false)))
				e.send(bodyMsg(tc.body, true))
				if m.request == modeBuffered {
					e.want("request headers")
				}
				reply := e.next()
				checkImmediate(t, reply, 400, "invalid_request_error", tc.code, tc.param)
				if strings.Contains(string(reply.GetImmediateResponse().GetBody()), "secret") {
					t.Errorf("the error repeats the prompt: %s", reply.GetImmediateResponse().GetBody())
				}
				if err := e.finish(); err != nil {
					t.Error(err)
				}
				if n := l.metric(t, "warmpath_refusals_total", "status", "400", "code", tc.code); n != 1 {
					t.Errorf("counted %v times", n)
				}
				l.waitIdle(t)
			})
		}
	}
}

func TestBodyLimit(t *testing.T) {
	const limit = 1000
	fits := `{"model":"m","prompt":"` + strings.Repeat("x", limit-25) + `"}`
	if len(fits) != limit {
		t.Fatalf("the test's body has %d bytes", len(fits))
	}
	tooLarge := "immediate 413 body_too_large"
	for _, tc := range []struct {
		name  string
		modes modes
		steps []step
	}{
		{"fits", duplexModes, []step{
			on(headersMsg("POST", completions, false, "content-length", "1000")),
			on(bodyMsg(fits[:500], false)),
			on(bodyMsg(fits[500:], true), "request headers routed", "request body 1000 eos"),
		}},
		{"announced", duplexModes, []step{
			on(headersMsg("POST", completions, false, "content-length", "1001"), tooLarge),
			on(bodyMsg(fits, false)),
			on(bodyMsg("", true)),
		}},
		{"announced, buffered", modes{modeBuffered, modeNone}, []step{
			on(headersMsg("POST", completions, false, "content-length", "1001"), tooLarge),
		}},
		{"one chunk", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(fits+" ", true), tooLarge),
		}},
		{"several chunks", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(fits[:600], false)),
			on(bodyMsg(fits[:400], false)),
			on(bodyMsg(" ", false), tooLarge),
			on(bodyMsg(" ", true)),
		}},
		{"announced too small", duplexModes, []step{
			on(headersMsg("POST", completions, false, "content-length", "3")),
			on(bodyMsg(fits+" ", false), tooLarge),
		}},
		{"announced badly", duplexModes, []step{
			on(headersMsg("POST", completions, false, "content-length", "-7")),
			on(bodyMsg(fits, true), "request headers routed", "request body 1000 eos"),
		}},
		{"buffered", modes{modeBuffered, modeNone}, []step{
			on(headersMsg("POST", completions, false), "request headers"),
			on(bodyMsg(fits+" ", true), tooLarge),
		}},
		{"not read, so not limited", duplexModes, []step{
			on(headersMsg("POST", otherPath, false, "content-length", "1001"), "request headers routed"),
			on(bodyMsg(fits+" ", true), "request body 1001 eos"),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, splitPool(), func(c *Config) { c.MaxBodyBytes = limit })
			e := l.open(t)
			refused := false
			for i, s := range tc.steps {
				if i == 0 {
					tc.modes.first(s.send)
				}
				e.send(s.send)
				last := e.want(s.want...)
				if last.GetImmediateResponse() != nil {
					refused = true
					checkImmediate(t, last, 413, "invalid_request_error", "body_too_large", "")
				}
			}
			if err := e.finish(); err != nil {
				t.Error(err)
			}
			want := 0.0
			if refused {
				want = 1
			}
			if n := l.metric(t, "warmpath_refusals_total", "status", "413", "code", "body_too_large"); n != want {
				t.Errorf("counted %v times, want %v", n, want)
			}
			l.waitIdle(t)
		})
	}
}

func TestNoEndpoint(t *testing.T) {
	hint := structpb.NewStringValue("192.0.2.1:1")
	prefillOnly := splitPool()[:2]
	for _, tc := range []struct {
		name         string
		workers      []fleet.Worker
		head         *request
		code, reason string
	}{
		{"empty pool", nil, headersMsg("POST", completions, false), "no_endpoint", "no_endpoint"},
		{"empty pool, GET", nil, headersMsg("GET", otherPath, true), "no_endpoint", "no_endpoint"},
		{"prefill workers only", prefillOnly, headersMsg("POST", completions, false), "no_endpoint", "no_endpoint"},
		{"nobody in the subset", splitPool(), withSubset(headersMsg("POST", completions, false), hint), "no_endpoint_in_subset", "subset"},
		{"nobody in the subset, GET", splitPool(), withSubset(headersMsg("GET", otherPath, true), hint), "no_endpoint_in_subset", "subset"},
		{
			"a prefill worker alone in the subset", splitPool(),
			withSubset(headersMsg("POST", completions, false), structpb.NewStringValue("10.0.1.1:8000")), "no_endpoint_in_subset", "subset",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, tc.workers)
			e := l.open(t)
			e.send(duplexModes.first(tc.head))
			if !tc.head.GetRequestHeaders().GetEndOfStream() {
				e.send(bodyMsg(prompt16, true))
			}
			checkImmediate(t, e.next(), 503, "service_unavailable", tc.code, "")
			if err := e.finish(); err != nil {
				t.Error(err)
			}
			if n := l.metric(t, "warmpath_undecided_total", "reason", tc.reason); n != 1 {
				t.Errorf("counted %v times", n)
			}
			if n := l.metric(t, "warmpath_refusals_total", "status", "503", "code", tc.code); n != 1 {
				t.Errorf("refusal counted %v times", n)
			}
			l.waitIdle(t)
		})
	}
}

// What the options of decisions forbid is refused with a code of its own.
func TestRefusedByPolicy(t *testing.T) {
	for _, tc := range []struct {
		name               string
		workers            []fleet.Worker
		options            func(*pick.Options)
		status             int
		kind, code, reason string
	}{
		{
			"a split is required", decodePool(), func(o *pick.Options) { o.Split.Mode = pick.SplitRequired },
			503, "service_unavailable", "no_prefill_worker", "no_prefill",
		},
		{
			"all are busy", aggregatedPool(), func(o *pick.Options) { o.MaxPrefillTokens = 1 },
			429, "rate_limit_exceeded", "all_workers_busy", "busy",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, tc.workers)
			for _, w := range tc.workers { // somebody else's request
				busy := l.load.Worker(w.Key)
				l.load.Lock()
				r := l.load.Reserve(load.Booking{PrefillTokens: 100, PrefillKey: w.Key, Prefill: busy, DecodeKey: w.Key, Decode: busy})
				l.load.Unlock()
				defer r.Release()
			}
			o := pick.DefaultOptions()
			tc.options(&o)
			l.picker.SetOptions(o)
			e := l.open(t)
			e.send(duplexModes.first(headersMsg("POST", completions, false)))
			e.send(bodyMsg(prompt16, true))
			checkImmediate(t, e.next(), tc.status, tc.kind, tc.code, "")
			if err := e.finish(); err != nil {
				t.Error(err)
			}
			if n := l.metric(t, "warmpath_undecided_total", "reason", tc.reason); n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	}
}

// TestProtocolErrors: a gateway that breaks the protocol gets a gRPC error, and
// the next stream is served.
func TestProtocolErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []*request
		code codes.Code
	}{
		{"body before headers", []*request{bodyMsg("{}", true)}, codes.FailedPrecondition},
		{"trailers before headers", []*request{trailersMsg()}, codes.FailedPrecondition},
		{"headers twice", []*request{headersMsg("POST", completions, false), headersMsg("POST", completions, false)}, codes.FailedPrecondition},
		{"a message of no kind", []*request{{}}, codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, splitPool())
			e := l.open(t)
			for i, m := range tc.in {
				if i == 0 {
					duplexModes.first(m)
				}
				e.send(m)
			}
			if err := e.ended(); status.Code(err) != tc.code {
				t.Errorf("got %v, want %v", err, tc.code)
			}
			l.waitIdle(t)
			next := l.open(t)
			next.routed(headersMsg("POST", completions, false), prompt16)
		})
	}
}

// TestHalfMessages: messages whose parts are missing are no reason to panic.
func TestHalfMessages(t *testing.T) {
	for _, m := range []*request{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{}},
	} {
		l := startRig(t, splitPool())
		e := l.open(t)
		e.send(duplexModes.first(m))
		reply := e.next()
		if reply.GetImmediateResponse() != nil {
			t.Errorf("%v: %v", m, reply)
		}
		if err := e.finish(); err != nil {
			t.Errorf("%v: %v", m, err)
		}
		l.waitIdle(t)
	}
}

// TestMessageTooLarge: gRPC refuses what is over the limit by itself.
func TestMessageTooLarge(t *testing.T) {
	l := startRig(t, splitPool(), func(c *Config) { c.MaxBodyBytes = 1000 })
	e := l.open(t)
	e.send(modes{modeBuffered, modeNone}.first(headersMsg("POST", completions, false)))
	e.want("request headers")
	e.send(bodyMsg(strings.Repeat(" ", 2<<20), true))
	if err := e.ended(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want %v", err, codes.ResourceExhausted)
	}
	l.waitIdle(t)
}

func TestConfigIsChecked(t *testing.T) {
	for i, change := range []func(*Config){
		func(c *Config) { c.Picker = nil },
		func(c *Config) { c.Layout.Size = 0 },
		func(c *Config) { c.Log = nil },
		func(c *Config) { c.Registerer = nil },
		func(c *Config) { c.MaxBodyBytes = -1 },
		func(c *Config) { c.DrainTimeout = -1 },
		func(c *Config) { c.Handoff = Handoff{{"x-gateway-destination-endpoint", PrefillEndpoint}} },
		func(c *Config) { c.Handoff = Handoff{{"X-Upper", PrefillEndpoint}} },
		func(c *Config) { c.Handoff = Handoff{{"", PrefillEndpoint}} },
		func(c *Config) { c.Handoff = Handoff{{"a b", PrefillEndpoint}} },
		func(c *Config) { c.Handoff = Handoff{{":path", PrefillEndpoint}} },
		func(c *Config) { c.Handoff = Handoff{{"a", PrefillEndpoint}, {"a", PrefillRank}} },
		func(c *Config) { c.Handoff = Handoff{{"a", 0}} },
		func(c *Config) { c.Handoff = Handoff{{"a", RequestID + 1}} },
	} {
		var good Config
		newRig(t, splitPool(), func(c *Config) { good = *c })
		good.Registerer = prometheus.NewRegistry()
		change(&good)
		if _, err := New(good); err == nil {
			t.Errorf("change %d was accepted", i)
		} else if fmt.Sprint(err) == "" {
			t.Errorf("change %d: an error without words", i)
		}
	}
}
