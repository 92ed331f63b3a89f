package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmodev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Messages as Envoy sends them (envoy.md section 4).

type (
	request  = extprocv3.ProcessingRequest
	response = extprocv3.ProcessingResponse
)

// Paths of requests.
const (
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
	otherPath   = "/v1/models"
)

// headerMap builds headers from name, value pairs, in raw_value as Envoy does.
func headerMap(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

func headersMsg(method, path string, eos bool, pairs ...string) *request {
	all := append([]string{
		":authority", "pool.test", ":method", method, ":path", path, ":scheme", "http",
		"content-type", "application/json", "x-forwarded-proto", "http", "x-request-id", "1",
	}, pairs...)
	return &request{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(all...), EndOfStream: eos},
	}}
}

func bodyMsg(data string, eos bool) *request {
	return &request{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(data), EndOfStream: eos},
	}}
}

func trailersMsg() *request {
	return &request{Request: &extprocv3.ProcessingRequest_RequestTrailers{
		RequestTrailers: &extprocv3.HttpTrailers{Trailers: headerMap("x-checksum", "1")},
	}}
}

func answerHeadersMsg(status string, eos bool) *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(":status", status, "content-type", "text/event-stream"), EndOfStream: eos},
	}}
}

func answerBodyMsg(data string, eos bool) *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(data), EndOfStream: eos},
	}}
}

func answerTrailersMsg() *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
		ResponseTrailers: &extprocv3.HttpTrailers{Trailers: headerMap("grpc-status", "0")},
	}}
}

// modes are the body modes that a gateway is configured with.
type modes struct {
	request, response procmodev3.ProcessingMode_BodySendMode
}

const (
	modeNone     = procmodev3.ProcessingMode_NONE
	modeStreamed = procmodev3.ProcessingMode_STREAMED
	modeBuffered = procmodev3.ProcessingMode_BUFFERED
	modeDuplex   = procmodev3.ProcessingMode_FULL_DUPLEX_STREAMED
)

var duplexModes = modes{modeDuplex, modeDuplex}

// first marks the first message of a stream: it says the modes.
func (m modes) first(r *request) *request {
	r.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: m.request, ResponseBodyMode: m.response}
	return r
}

// withSubset puts a subset hint on a message.
func withSubset(r *request, hint *structpb.Value) *request {
	r.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"envoy.lb.subset_hint": {Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": hint}},
	}}
	return r
}

// tokenBody is a completion request with a prompt of token ids. more is put in
// front of the prompt, such as `"cache_salt":"a",`.
func tokenBody(tokens []uint32, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":"m",%s"prompt":[`, more)
	for i, id := range tokens {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	b.WriteString("]}")
	return b.String()
}

// count returns the token ids from, from+1, … n of them.
func count(from uint32, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = from + uint32(i)
	}
	return ids
}

// describe says in a few words what a reply is.
func describe(r *response) string {
	switch m := r.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return "request headers" + describeCommon(m.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return "request body" + describeCommon(m.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return "request trailers"
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return "response headers" + describeCommon(m.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "response body" + describeCommon(m.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return "response trailers"
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		return fmt.Sprintf("immediate %d %s", m.ImmediateResponse.GetStatus().GetCode(), m.ImmediateResponse.GetDetails())
	default:
		return fmt.Sprintf("%T", m)
	}
}

func describeCommon(c *extprocv3.CommonResponse) string {
	text := ""
	if c.GetHeaderMutation() != nil {
		text += " routed"
	}
	switch b := c.GetBodyMutation().GetMutation().(type) {
	case nil:
	case *extprocv3.BodyMutation_StreamedResponse:
		text += fmt.Sprintf(" %d", len(b.StreamedResponse.GetBody()))
		if b.StreamedResponse.GetEndOfStream() {
			text += " eos"
		}
	default:
		text += fmt.Sprintf(" %T", b)
	}
	return text
}

// streamedBody returns the chunk in a reply, in whichever direction.
func streamedBody(r *response) *extprocv3.StreamedBodyResponse {
	c := r.GetRequestBody().GetResponse()
	if r.GetResponseBody() != nil {
		c = r.GetResponseBody().GetResponse()
	}
	return c.GetBodyMutation().GetStreamedResponse()
}

// envoy is the gateway's end of one stream.
type envoy struct {
	t      *testing.T
	rpc    grpc.BidiStreamingClient[request, response]
	cancel context.CancelFunc
	in     chan *response
	err    error // of Recv, once in is closed
}

func (l *live) open(t *testing.T) *envoy {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	rpc, err := extprocv3.NewExternalProcessorClient(l.conn).Process(ctx, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &envoy{t: t, rpc: rpc, cancel: cancel, in: make(chan *response, 4096)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(e.in)
		for {
			m, err := rpc.Recv()
			if err != nil {
				e.err = err
				return
			}
			e.in <- m
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range e.in { // the reader may be waiting for room
		}
		<-done
	})
	return e
}

func (e *envoy) send(m *request) {
	e.t.Helper()
	if err := e.rpc.Send(m); err != nil {
		e.t.Fatalf("send: %v", err)
	}
}

// next waits for a reply.
func (e *envoy) next() *response {
	e.t.Helper()
	select {
	case m, ok := <-e.in:
		if !ok {
			e.t.Fatalf("the picker ended the stream: %v", e.err)
		}
		return m
	case <-time.After(deadline):
		e.t.Fatal("no reply came")
		return nil
	}
}

// want waits for replies and compares them with their descriptions.
func (e *envoy) want(descriptions ...string) (last *response) {
	e.t.Helper()
	for _, d := range descriptions {
		last = e.next()
		if got := describe(last); got != d {
			e.t.Fatalf("got %q, want %q", got, d)
		}
	}
	return last
}

// finish ends the stream from the gateway's side, and returns the error the
// picker ended it with, nil for a clean end. No reply may be left.
func (e *envoy) finish() error {
	e.t.Helper()
	if err := e.rpc.CloseSend(); err != nil {
		e.t.Fatal(err)
	}
	return e.ended()
}

// ended waits for the picker to end the stream.
func (e *envoy) ended() error {
	e.t.Helper()
	select {
	case m, ok := <-e.in:
		if ok {
			e.t.Fatalf("a reply too many: %q", describe(m))
		}
	case <-time.After(deadline):
		e.t.Fatal("the picker did not end the stream")
	}
	if errors.Is(e.err, io.EOF) {
		return nil
	}
	return e.err
}

// routed sends a whole request and returns the reply with the decision. The
// echoed body is read as well.
func (e *envoy) routed(head *request, body string) *response {
	e.t.Helper()
	e.send(duplexModes.first(head))
	e.send(bodyMsg(body, true))
	reply := e.next()
	if describe(reply) != "request headers routed" {
		e.t.Fatalf("got %q, want a decision", describe(reply))
	}
	for !streamedBody(e.next()).GetEndOfStream() {
	}
	return reply
}

// memory is a stream without a network: all that the gateway says is there from
// the start. It knows after which message each reply came.
type memory struct {
	grpc.ServerStream // nil: nothing else is called
	ctx               context.Context
	in                []*request
	at                int           // messages received
	out               [][]*response // by number of messages received before
}

func newMemory(ctx context.Context, in ...*request) *memory {
	return &memory{ctx: ctx, in: in, out: make([][]*response, len(in)+1)}
}

func (m *memory) Context() context.Context { return m.ctx }

func (m *memory) Recv() (*request, error) {
	if m.at == len(m.in) {
		return nil, io.EOF
	}
	m.at++
	return m.in[m.at-1], nil
}

func (m *memory) Send(r *response) error {
	m.out[m.at] = append(m.out[m.at], proto.Clone(r).(*response)) // the server reuses what it sends
	return nil
}

// all returns the replies in order.
func (m *memory) all() []*response {
	var all []*response
	for _, replies := range m.out {
		all = append(all, replies...)
	}
	return all
}
