package extproc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// lifePool spreads streams over several workers.
func lifePool() []fleet.Worker {
	return []fleet.Worker{
		worker(11, fleet.Prefill, "10.0.1.1:8000"),
		worker(12, fleet.Prefill, "10.0.1.2:8000"),
		worker(21, fleet.Decode, "10.0.2.1:8000"),
		worker(22, fleet.Decode, "10.0.2.2:8000"),
		worker(23, fleet.Decode, "10.0.2.3:8000"),
	}
}

// ends are the ways in which a stream can end after the decision
// (envoy.md 4, "End of a stream").
var ends = []struct {
	name string
	end  func(e *envoy)
}{
	{"whole response, then gone", func(e *envoy) {
		e.send(answerHeadersMsg("200", false))
		e.send(answerBodyMsg("{}", true))
		e.want("response headers", "response body 2 eos")
		e.cancel()
	}},
	{"whole response, then half-closed", func(e *envoy) {
		e.send(answerHeadersMsg("200", false))
		e.send(answerBodyMsg("{}", true))
		e.want("response headers", "response body 2 eos")
		if err := e.finish(); err != nil {
			e.t.Error(err)
		}
	}},
	{"gone before the response", func(e *envoy) { e.cancel() }},
	{"half-closed before the response", func(e *envoy) {
		if err := e.finish(); err != nil {
			e.t.Error(err)
		}
	}},
	{"gone in mid-response", func(e *envoy) {
		e.send(answerHeadersMsg("200", false))
		e.send(answerBodyMsg("data: 1\n\n", false))
		e.want("response headers", "response body 9")
		e.cancel()
	}},
	{"gone with replies unread", func(e *envoy) {
		e.send(answerHeadersMsg("200", false))
		for range 10 {
			e.send(answerBodyMsg("data: 1\n\n", false))
		}
		e.cancel()
	}},
	{"protocol error", func(e *envoy) {
		e.send(headersMsg("GET", otherPath, true))
		if err := e.ended(); status.Code(err) != codes.FailedPrecondition {
			e.t.Errorf("ended with %v", err)
		}
	}},
}

func TestEveryEndFreesTheReservation(t *testing.T) {
	for _, tc := range ends {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, lifePool())
			e := l.open(t)
			e.routed(headersMsg("POST", completions, false), prompt16)
			if got, want := l.total(), (load.Figures{PrefillTokens: 16, DecodeBlocks: 4, Requests: 1}); got != want {
				t.Fatalf("booked %+v, want %+v", got, want)
			}
			tc.end(e)
			l.waitIdle(t)
		})
	}
}

// TestManyStreams holds many requests at once and ends them in all ways.
func TestManyStreams(t *testing.T) {
	for _, n := range []int{64, 256} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := startRig(t, lifePool())
			var decided, wg sync.WaitGroup
			endNow := make(chan struct{})
			decided.Add(n)
			for i := range n {
				e := l.open(t)
				wg.Go(func() {
					booked := func() bool {
						defer decided.Done()
						e.send(duplexModes.first(headersMsg("POST", completions, false)))
						e.send(bodyMsg(tokenBody(count(uint32(1000*i), 16), ""), true))
						return describe(e.next()) == "request headers routed" && streamedBody(e.next()).GetEndOfStream()
					}()
					if !booked {
						t.Errorf("stream %d: no decision", i)
						return
					}
					<-endNow
					ends[i%len(ends)].end(e)
				})
			}
			decided.Wait()
			if got, want := l.total(), (load.Figures{PrefillTokens: 16 * n, DecodeBlocks: 4 * n, Requests: n}); got != want {
				t.Errorf("booked %+v, want %+v", got, want)
			}
			if got := l.metric(t, "warmpath_streams"); got != float64(n) {
				t.Errorf("%v streams are open, want %d", got, n)
			}
			close(endNow)
			wg.Wait()
			l.waitIdle(t)
			if got := l.metric(t, "warmpath_decisions_total", "mode", "disaggregated"); got != float64(n) {
				t.Errorf("%v decisions, want %d", got, n)
			}
		})
	}
}

// TestEndBeforeTheDecision: nothing is booked, and nothing stays behind.
func TestEndBeforeTheDecision(t *testing.T) {
	for name, steps := range map[string][]step{
		"after the headers": {on(headersMsg("POST", completions, false))},
		"in the body":       {on(headersMsg("POST", completions, false)), on(bodyMsg(prompt16[:9], false))},
		"after a refusal":   {on(headersMsg("POST", completions, false)), on(bodyMsg("{", true), "immediate 400 invalid_json")},
	} {
		for _, way := range []string{"gone", "half-closed"} {
			t.Run(name+", "+way, func(t *testing.T) {
				l := startRig(t, lifePool())
				e := l.open(t)
				for i, s := range steps {
					if i == 0 {
						duplexModes.first(s.send)
					}
					e.send(s.send)
					e.want(s.want...)
				}
				eventually(t, "the stream is open", func() bool { return l.metric(t, "warmpath_streams") == 1 })
				if got := l.total(); got != (load.Figures{}) {
					t.Errorf("booked %+v", got)
				}
				if way == "gone" {
					e.cancel()
				} else if err := e.finish(); err != nil {
					t.Error(err)
				}
				l.waitIdle(t)
			})
		}
	}
}

// TestClientLeavesWhileTokenizing: the wait ends with the stream, nothing is
// booked, and the tokenizer is not blamed.
func TestClientLeavesWhileTokenizing(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	l := startRig(t, lifePool(), withTokenizer(func(ctx context.Context, _ []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		close(asked)
		<-ctx.Done()
		close(left)
		return nil, ctx.Err()
	}))
	e := l.open(t)
	e.send(duplexModes.first(headersMsg("POST", chat, false)))
	e.send(bodyMsg(helloChat, true))
	wait(t, asked, "the tokenizer is asked")
	e.cancel()
	wait(t, left, "the tokenizer's context ends")
	l.waitIdle(t)
	if n := l.metric(t, "warmpath_tokenizer_errors_total"); n != 0 {
		t.Errorf("%v tokenizer errors counted", n)
	}
	if n := l.metric(t, "warmpath_decisions_total", "mode", "disaggregated"); n != 0 {
		t.Errorf("%v decisions counted for nobody", n)
	}
	if text := l.log.String(); text != "" {
		t.Errorf("log:\n%s", text)
	}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("waited in vain: %s", what)
	}
}

// TestSlowReader: a gateway that does not read is not waited for after it left.
func TestSlowReader(t *testing.T) {
	l := startRig(t, lifePool())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rpc, err := extprocv3.NewExternalProcessorClient(l.conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	body := tokenBody(count(0, 200_000), "") // far above gRPC's windows
	for _, m := range []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(body, true)} {
		if err := rpc.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the request is booked", func() bool { return l.total().Requests == 1 })
	cancel()
	l.waitIdle(t)
}

func TestPrefillIsDoneAtTheFirstByte(t *testing.T) {
	for _, m := range []modes{duplexModes, {modeDuplex, modeBuffered}, {modeDuplex, modeStreamed}} {
		t.Run(m.response.String(), func(t *testing.T) {
			l := startRig(t, lifePool())
			e := l.open(t)
			e.send(m.first(headersMsg("POST", completions, false)))
			e.send(bodyMsg(prompt16, true))
			e.next()
			e.next()
			check := func(when string, prefill int) {
				t.Helper()
				if got, want := l.total(), (load.Figures{PrefillTokens: prefill, DecodeBlocks: 4, Requests: 1}); got != want {
					t.Errorf("%s: %+v, want %+v", when, got, want)
				}
			}
			check("after the decision", 16)
			e.send(answerHeadersMsg("200", false))
			e.next()
			check("after the response headers", 16)
			e.send(answerBodyMsg("", false))
			e.next()
			check("after an empty chunk", 16)
			e.send(answerBodyMsg("d", false))
			e.next()
			check("after the first byte", 0)
			e.send(answerBodyMsg("ata", false))
			e.next()
			check("after the second chunk", 0)
			e.cancel()
			l.waitIdle(t)
		})
	}
}

// TestLeavingWorker: a worker that leaves the pool takes its load along when its
// requests end.
func TestLeavingWorker(t *testing.T) {
	l := startRig(t, lifePool())
	e := l.open(t)
	e.routed(headersMsg("POST", completions, false), prompt16)
	empty, err := fleet.NewSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.picker.SetFleet(empty); err != nil {
		t.Fatal(err)
	}
	if got := l.total(); got.Requests != 1 {
		t.Errorf("booked %+v", got)
	}
	e.cancel()
	l.waitIdle(t)
	l.load.Read(func(k fleet.Key, _ load.Figures) { t.Errorf("worker %s is still in the table", k) })
}

// TestReceiveErrors: what a stream ends with.
func TestReceiveErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct{ err, want error }{
		{status.Error(codes.Canceled, "gone"), nil},
		{status.Error(codes.Unavailable, "gone"), status.Error(codes.Unavailable, "gone")},
		{broken, broken},
	} {
		r := newRig(t, lifePool())
		m := &failing{memory: newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true))), err: tc.err}
		if err := r.server.Process(m); !errors.Is(err, tc.want) {
			t.Errorf("%v: the stream ends with %v", tc.err, err)
		}
		r.waitIdle(t)
	}
}

// TestSendFails: the reservation goes when the reply cannot be sent.
func TestSendFails(t *testing.T) {
	r := newRig(t, lifePool())
	m := &failing{memory: newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true))), sendErr: errors.New("broken")}
	if err := r.server.Process(m); !errors.Is(err, m.sendErr) {
		t.Errorf("the stream ends with %v", err)
	}
	r.waitIdle(t)
}

// failing is a stream in memory that ends with an error.
type failing struct {
	*memory
	err, sendErr error
}

func (f *failing) Recv() (*request, error) {
	if f.at == len(f.in) {
		return nil, f.err
	}
	return f.memory.Recv()
}

func (f *failing) Send(r *response) error {
	if f.sendErr != nil {
		return f.sendErr
	}
	return f.memory.Send(r)
}

// TestTokenizerMayReadOn: an HTTP transport may still read a request body when
// its call has returned, so no other request may be written over it.
func TestTokenizerMayReadOn(t *testing.T) {
	type kept struct {
		body []byte
		want string
	}
	var all []kept
	r := newRig(t, lifePool(), withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, body []byte) ([]uint32, error) {
		all = append(all, kept{body, string(body)})
		if len(all)%2 == 0 {
			return nil, errors.New("timeout")
		}
		return append(dst, 1, 2, 3), nil
	}))
	for i := range 50 {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"tenant %d"}]}`, i)
		m := newMemory(t.Context(), duplexModes.first(headersMsg("POST", chat, false)), bodyMsg(body[:10], false), bodyMsg(body[10:], true))
		if err := r.server.Process(m); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) != 50 {
		t.Fatalf("asked %d times", len(all))
	}
	for _, k := range all {
		if string(k.body) != k.want {
			t.Fatalf("body %q became %q while the tokenizer may still read it", k.want, k.body)
		}
	}
}
