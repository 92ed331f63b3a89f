package extproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// TestStatusIsAnyBytes: what the gateway calls a status becomes one of a few
// labels, whatever its bytes are.
func TestStatusIsAnyBytes(t *testing.T) {
	r := newRig(t, splitPool())
	for _, status := range []string{"\xff00", "999", "099", "20", "2000", "-20", "+20", "", "20\x00", "600"} {
		m := newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true)), answerHeadersMsg(status, true))
		if err := r.server.Process(m); err != nil {
			t.Fatalf("status %q: %v", status, err)
		}
	}
	if got := r.metric(t, "warmpath_responses_total", "class", "unknown"); got != 10 {
		t.Errorf("%v responses without a usable status, want 10", got)
	}
	if _, err := r.registry.Gather(); err != nil {
		t.Errorf("the metrics cannot be read any more: %v", err)
	}
}

// TestPanicEndsOneStream: a panic is an error of its stream, and the others go on.
func TestPanicEndsOneStream(t *testing.T) {
	broken := withTokenizer(func(context.Context, []uint32, prompt.Kind, []byte) ([]uint32, error) { panic("of the test") })
	l := startRig(t, splitPool(), broken)
	e := l.open(t)
	e.send(duplexModes.first(headersMsg("POST", chat, false)))
	e.send(bodyMsg(helloChat, true))
	if err := e.ended(); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("the stream ended with %v, want an internal error", err)
	}
	if set := setHeaders(t, l.open(t).routed(headersMsg("POST", completions, false), tokenBody(count(1, 8), ""))); set[destinationHeader] == "" {
		t.Error("the next request was not routed")
	}
	if got := l.metric(t, "warmpath_panics_total"); got != 1 {
		t.Errorf("%v panics counted, want 1", got)
	}
	if n := l.log.count("of the test"); n != 1 {
		t.Errorf("%d lines about the panic, want 1", n)
	}
}

// TestClientsDoNotWriteTheLog: a prompt that the engine refuses is counted by
// reason. Only a tokenizer that fails by itself is news.
func TestClientsDoNotWriteTheLog(t *testing.T) {
	var result error
	r := newRig(t, splitPool(), withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return dst, result
	}))
	refused := &TokenizeError{Reason: "rejected", Request: true, Err: errors.New("refused")}
	broken := &TokenizeError{Reason: "timeout", Err: errors.New("late")}
	for _, result = range []error{nil, refused, nil, fmt.Errorf("wrapped: %w", refused), nil, refused} {
		r.serve(t, chat, helloChat)
	}
	if text := r.log.String(); text != "" {
		t.Errorf("clients made the picker log: %s", text)
	}
	for _, result = range []error{broken, broken, refused, nil} {
		r.serve(t, chat, helloChat)
	}
	if r.log.count("level=WARN") != 1 || r.log.count("level=INFO") != 1 {
		t.Errorf("want one line when it breaks and one when it works again: %s", r.log.String())
	}
	for reason, want := range map[string]float64{"rejected": 4, "timeout": 2, "other": 0} {
		if got := r.metric(t, "warmpath_tokenizer_errors_total", "reason", reason); got != want {
			t.Errorf("%v errors of reason %s, want %v", got, reason, want)
		}
	}
	var cause *TokenizeError
	if err := error(broken); !errors.As(err, &cause) || errors.Unwrap(err).Error() != "late" || err.Error() != "late" {
		t.Errorf("%v does not show its cause", err)
	}
}

// TestBufferedBodyIsGivenBack: a buffered body is of no use once it is answered,
// and must not be kept for as long as the response takes.
func TestBufferedBodyIsGivenBack(t *testing.T) {
	r := newRig(t, splitPool())
	st := &stream{srv: r.server, rpc: newMemory(t.Context())}
	st.modes(modes{modeBuffered, modeBuffered}.first(headersMsg("POST", completions, false)))
	for _, m := range []*request{headersMsg("POST", completions, false), bodyMsg(tokenBody(count(1, 64), ""), true)} {
		if err := st.receive(m); err != nil {
			t.Fatal(err)
		}
	}
	defer st.release()
	if st.phase != routedPhase || st.body.len() != 0 {
		t.Errorf("phase %d, and %d bytes of the body are kept", st.phase, st.body.len())
	}
}

// TestNoPromptNoPair: a GET has nothing to prefill.
func TestNoPromptNoPair(t *testing.T) {
	r := newRig(t, splitPool())
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		m := newMemory(t.Context(), duplexModes.first(headersMsg(method, "/v1/models", true)))
		if err := r.server.Process(m); err != nil {
			t.Fatal(err)
		}
		set := setHeaders(t, m.out[1][0])
		if _, named := set["x-prefiller-host-port"]; named || set[destinationHeader] != "10.0.2.1:8000" {
			t.Errorf("%s: %v, want the decode worker alone", method, set)
		}
	}
	if got := r.metric(t, "warmpath_decisions_total", "mode", pick.PromptLess.String()); got != 3 {
		t.Errorf("%v decisions without a prompt, want 3", got)
	}
}

// TestMediaIsNotText: an image is a few hundred tokens, not its bytes over four.
func TestMediaIsNotText(t *testing.T) {
	r := newRig(t, splitPool())
	image := strings.Repeat("A", 1<<20)
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}]}`
	w := r.load.Worker(r.picker.Fleet().Workers[2].Key)
	st := &stream{srv: r.server, rpc: newMemory(t.Context())}
	for _, m := range []*request{headersMsg("POST", chat, false), bodyMsg(body, true)} {
		if err := st.receive(m); err != nil {
			t.Fatal(err)
		}
	}
	booked := w.Figures()
	if want := (load.Figures{DecodeBlocks: maxMediaTokens / blockSize, Requests: 1}); booked != want {
		t.Errorf("booked %+v on the decode worker, want %+v", booked, want)
	}
	st.release()
}

// TestLargeWorkIsNotPooled: what one giant request needed is not kept.
func TestLargeWorkIsNotPooled(t *testing.T) {
	r := newRig(t, splitPool())
	giant := &work{prompt: Prompt{IDs: make([]uint32, 0, maxPooled/4+1)}}
	r.server.putWork(giant)
	for range 100 {
		if w := r.server.works.Get().(*work); w == giant {
			t.Fatal("a work beyond the bound was pooled")
		}
	}
	var b prompt.Body
	list := "[" + strings.Repeat("1,", 1<<16) + "1]"
	if err := b.Scan(prompt.Completion, []byte(`{"model":"m","prompt":[1],"nvext":{"token_data":`+list+`}}`)); err != nil {
		t.Fatal(err)
	}
	if b.Room() < 4<<16 {
		t.Errorf("Room is %d bytes; token_data alone has %d", b.Room(), 4<<16)
	}
}
