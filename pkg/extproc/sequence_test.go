package extproc

import (
	"fmt"
	"slices"
	"testing"
)

// step is one message of the gateway and the replies that must come at once,
// before any further message.
type step struct {
	send *request
	want []string
}

func on(send *request, want ...string) step { return step{send, want} }

// sequence is one HTTP request as ext-proc messages.
type sequence struct {
	name  string
	modes modes
	steps []step
}

var prompt16 = tokenBody(count(1, 16), "")

// sequences are those of envoy.md section 4 and endpoint-picker.md section 1.5.
func sequences() []sequence {
	size := len(prompt16)
	whole := fmt.Sprintf("request body %d", size)
	return slices.Concat(duplexSequences(size, whole), bodyless(), otherSequences())
}

func duplexSequences(size int, whole string) []sequence {
	return []sequence{
		{"POST over HTTP/1.1, end in a message of its own", duplexModes, []step{
			on(headersMsg("POST", completions, false, "content-length", fmt.Sprint(size))),
			on(bodyMsg(prompt16[:5], false)),
			on(bodyMsg(prompt16[5:], false)),
			on(bodyMsg("", true), "request headers routed", whole+" eos"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("data: 1\n\n", false), "response body 9"),
			on(answerBodyMsg("data: [DONE]\n\n", false), "response body 14"),
			on(answerBodyMsg("", true), "response body 0 eos"),
		}},
		{"POST over HTTP/2, end on the last chunk both ways", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(prompt16, true), "request headers routed", whole+" eos"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("{}", true), "response body 2 eos"),
		}},
		{"request trailers after a body", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(prompt16[:7], false)),
			on(bodyMsg(prompt16[7:], false)),
			on(trailersMsg(), "request headers routed", whole, "request trailers"),
			on(answerHeadersMsg("200", true), "response headers"),
		}},
		{"request trailers after a body on another path", duplexModes, []step{
			on(headersMsg("POST", otherPath, false), "request headers routed"),
			on(bodyMsg("abc", false), "request body 3"),
			on(trailersMsg(), "request trailers"),
		}},
		{"request trailers without a body", duplexModes, []step{
			on(headersMsg("POST", otherPath, false), "request headers routed"),
			on(trailersMsg(), "request trailers"),
		}},
		{"request trailers where a prompt must be", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(trailersMsg(), "immediate 400 empty_body"),
		}},
		{"response trailers", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(prompt16, true), "request headers routed", whole+" eos"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("ab", false), "response body 2"),
			on(answerTrailersMsg(), "response trailers"),
		}},
		{"an error of the gateway itself after the decision", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(prompt16, true), "request headers routed", whole+" eos"),
			on(answerHeadersMsg("503", false), "response headers"),
			on(answerBodyMsg("no healthy upstream", true), "response body 19 eos"),
		}},
		{"an error of the gateway itself before the decision", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg(prompt16[:9], false)),
			on(answerHeadersMsg("504", false), "response headers"),
			on(answerBodyMsg("stream timeout", true), "response body 14 eos"),
		}},
		{"chunks under way after an immediate response are ignored", duplexModes, []step{
			on(headersMsg("POST", completions, false)),
			on(bodyMsg("{]", true), "immediate 400 invalid_json"),
			on(bodyMsg("more", false)),
			on(trailersMsg()),
			on(answerHeadersMsg("400", false)),
			on(answerBodyMsg("{}", true)),
		}},
	}
}

// bodyless are requests whose body is not there, or not read.
func bodyless() []sequence {
	return []sequence{
		{"GET", duplexModes, []step{
			on(headersMsg("GET", otherPath, true), "request headers routed"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("{}", true), "response body 2 eos"),
		}},
		{"GET on the path of a prompt", duplexModes, []step{
			on(headersMsg("GET", completions, true), "request headers routed"),
			on(answerHeadersMsg("204", true), "response headers"),
		}},
		{"HEAD", duplexModes, []step{
			on(headersMsg("HEAD", otherPath, true), "request headers routed"),
			on(answerHeadersMsg("200", true), "response headers"),
		}},
		{"POST with an empty body", duplexModes, []step{
			on(headersMsg("POST", otherPath, true, "content-length", "0"), "request headers routed"),
			on(answerHeadersMsg("200", true), "response headers"),
		}},
		{"POST with an empty body where a prompt must be", duplexModes, []step{
			on(headersMsg("POST", completions, true, "content-length", "0"), "immediate 400 empty_body"),
		}},
		{"POST on another path streams through", duplexModes, []step{
			on(headersMsg("POST", "/v1/embeddings", false), "request headers routed"),
			on(bodyMsg("not json: ", false), "request body 10"),
			on(bodyMsg("", false), "request body 0"),
			on(bodyMsg("at all", false), "request body 6"),
			on(bodyMsg("", true), "request body 0 eos"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("", true), "response body 0 eos"),
		}},
	}
}

func otherSequences() []sequence {
	return []sequence{
		{"buffered both ways", modes{modeBuffered, modeBuffered}, []step{
			on(headersMsg("POST", completions, false), "request headers"),
			on(bodyMsg(prompt16, true), "request body routed"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("{}", true), "response body"),
		}},
		{"buffered with trailers", modes{modeBuffered, modeBuffered}, []step{
			on(headersMsg("POST", completions, false), "request headers"),
			on(bodyMsg(prompt16, false), "request body routed"),
			on(trailersMsg(), "request trailers"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("{}", false), "response body"),
			on(answerTrailersMsg(), "response trailers"),
		}},
		{"buffered GET", modes{modeBuffered, modeBuffered}, []step{
			on(headersMsg("GET", otherPath, true), "request headers routed"),
			on(answerHeadersMsg("200", true), "response headers"),
		}},
		{"buffered body on another path", modes{modeBuffered, modeBuffered}, []step{
			on(headersMsg("POST", otherPath, false), "request headers routed"),
			on(bodyMsg("not json", true), "request body"),
		}},
		{"buffered body that is refused", modes{modeBuffered, modeBuffered}, []step{
			on(headersMsg("POST", chat, false), "request headers"),
			on(bodyMsg("{}", true), "immediate 400 missing_model"),
		}},
		{"buffered request, streamed response", modes{modeBuffered, modeDuplex}, []step{
			on(headersMsg("POST", completions, false), "request headers"),
			on(bodyMsg(prompt16, true), "request body routed"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("abc", false), "response body 3"),
			on(answerBodyMsg("", true), "response body 0 eos"),
		}},
		{"streamed both ways", modes{modeStreamed, modeStreamed}, []step{
			on(headersMsg("POST", completions, false), "request headers routed"),
			on(bodyMsg(prompt16[:4], false), "request body"),
			on(bodyMsg(prompt16[4:], true), "request body"),
			on(answerHeadersMsg("200", false), "response headers"),
			on(answerBodyMsg("a", false), "response body"),
			on(answerBodyMsg("b", true), "response body"),
		}},
		{"no bodies, GET", modes{modeNone, modeNone}, []step{
			on(headersMsg("GET", otherPath, true), "request headers routed"),
			on(answerHeadersMsg("200", false), "response headers"),
		}},
		{"no bodies, POST", modes{modeNone, modeNone}, []step{
			on(headersMsg("POST", completions, false, "content-length", "100"), "request headers routed"),
			on(answerHeadersMsg("200", false), "response headers"),
		}},
	}
}

// TestSequences plays every sequence over a real connection.
func TestSequences(t *testing.T) {
	for _, s := range sequences() {
		t.Run(s.name, func(t *testing.T) {
			l := startRig(t, splitPool())
			e := l.open(t)
			for i, st := range s.steps {
				if i == 0 {
					s.modes.first(st.send)
				}
				e.send(st.send)
				e.want(st.want...)
			}
			if err := e.finish(); err != nil {
				t.Errorf("the stream ended with %v", err)
			}
			l.waitIdle(t)
		})
	}
}

// TestSequencesAnswerInTime plays every sequence in memory, where a reply that
// came too early or too late shows.
func TestSequencesAnswerInTime(t *testing.T) {
	for _, s := range sequences() {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, splitPool())
			m := newMemory(t.Context())
			for _, st := range s.steps {
				m.in = append(m.in, st.send)
			}
			s.modes.first(m.in[0])
			m.out = make([][]*response, len(m.in)+1)
			if err := r.server.Process(m); err != nil {
				t.Fatal(err)
			}
			for i, st := range s.steps {
				var got []string
				for _, reply := range m.out[i+1] {
					got = append(got, describe(reply))
				}
				if !slices.Equal(got, st.want) {
					t.Errorf("after message %d: got %q, want %q", i+1, got, st.want)
				}
			}
			r.waitIdle(t)
		})
	}
}

// TestModesDefaultToFullDuplex: a gateway that does not say how it sends bodies.
func TestModesDefaultToFullDuplex(t *testing.T) {
	l := startRig(t, splitPool())
	e := l.open(t)
	e.send(headersMsg("POST", completions, false))
	e.send(bodyMsg(prompt16, true))
	e.want("request headers routed", fmt.Sprintf("request body %d eos", len(prompt16)))
	e.send(answerHeadersMsg("200", false))
	e.send(answerBodyMsg("abc", true))
	e.want("response headers", "response body 3 eos")
	if err := e.finish(); err != nil {
		t.Error(err)
	}
}

// TestModesCountOnTheFirstMessageOnly: Envoy says them once.
func TestModesCountOnTheFirstMessageOnly(t *testing.T) {
	r := newRig(t, splitPool())
	body := (modes{modeNone, modeNone}).first(bodyMsg(prompt16, true))
	m := newMemory(t.Context(), duplexModes.first(headersMsg("POST", completions, false)), body)
	if err := r.server.Process(m); err != nil {
		t.Fatal(err)
	}
	if len(m.out[2]) != 2 || string(streamedBody(m.out[2][1]).GetBody()) != prompt16 {
		t.Errorf("got %v", m.all())
	}
}

// TestHeadersInValue: a gateway may give headers in value instead of raw_value.
func TestHeadersInValue(t *testing.T) {
	r := newRig(t, splitPool())
	head := duplexModes.first(headersMsg("POST", completions, false))
	for _, h := range head.GetRequestHeaders().GetHeaders().GetHeaders() {
		h.Value, h.RawValue = string(h.RawValue), nil
	}
	m := newMemory(t.Context(), head, bodyMsg(prompt16, true))
	if err := r.server.Process(m); err != nil {
		t.Fatal(err)
	}
	if len(m.out[1]) != 0 || len(m.out[2]) != 2 {
		t.Errorf("%d replies to the headers and %d to the body", len(m.out[1]), len(m.out[2]))
	}
	if n := r.metric(t, "warmpath_prompts_total", "source", "token_ids"); n != 1 {
		t.Errorf("%v prompts read, want 1", n)
	}
}
