package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/warmpath/warmpath/internal/testport"
)

// patience bounds waits for what takes milliseconds on an idle machine.
const patience = time.Minute

// script names what the scripted picker does with a request; the request header
// x-script carries it. The default answers at once and sends every chunk back.
const scriptHeader = "x-script"

const (
	scriptHold         = "hold"          // answer the request only when its body is complete
	scriptNoDest       = "no-dest"       // name no destination
	scriptRefused      = "refused"       // name a port on which nobody listens
	scriptGarbage      = "garbage"       // name something that is no address
	scriptImmediate    = "immediate"     // immediate response to the headers
	scriptImmediateEnd = "immediate-end" // immediate response to the end of the body
	scriptImmediateRsp = "immediate-rsp" // immediate response to the response headers
	scriptError        = "error"         // end the stream with an error
	scriptErrorRsp     = "error-rsp"     // the same on the response headers
	scriptSilent       = "silent"        // never answer
	scriptSilentBody   = "silent-body"   // answer the headers, never the body
	scriptPlainBody    = "plain-body"    // answer the body with an empty CommonResponse
	scriptBodyFirst    = "body-first"    // answer the body before the headers
	scriptTwice        = "twice"         // a second chunk after the last
	scriptBodyless     = "bodyless"      // a body answer to a request without a body
	scriptMutate       = "mutate"        // set, replace and remove headers
	scriptRewrite      = "rewrite"       // another body in both directions
	scriptClose        = "close"         // close cleanly once the request was passed on
)

// seen is what the picker saw of one stream.
type seen struct {
	messages []string          // type and eos; runs of body chunks without eos are one
	headers  map[string]string // of the request
	response map[string]string // headers of the response
	protocol string
	hint     string // subset hint of the first message
	served   string // served endpoint of the response headers
	upstream string // attribute upstream.address of the response headers
	chosen   string // the choice in the metadata of the response headers
	bytes    int    // of the request's body
	ended    error  // why the stream's context ended
}

// scriptedPicker is an ext-proc server for the tests.
type scriptedPicker struct {
	addr    netip.AddrPort
	worker  string
	refused string

	mu    sync.Mutex
	calls map[string]*seen // by header x-case
	news  chan struct{}    // closed and replaced on every change
	srv   *grpc.Server
}

// startPicker starts a picker that sends every request to worker.
func startPicker(t *testing.T, worker string) *scriptedPicker {
	t.Helper()
	lis, err := net.Listen("tcp", closedPort(t).String()) // a port that it can take again
	if err != nil {
		t.Fatal(err)
	}
	p := &scriptedPicker{
		addr: lis.Addr().(*net.TCPAddr).AddrPort(), worker: worker, refused: closedPort(t).String(),
		calls: map[string]*seen{}, news: make(chan struct{}),
	}
	p.serve(t, lis)
	return p
}

func (p *scriptedPicker) serve(t *testing.T, lis net.Listener) {
	p.srv = grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(p.srv, p)
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.srv.Serve(lis) })
	srv := p.srv
	t.Cleanup(func() { srv.Stop(); wg.Wait() })
}

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(testport.Free(t)))
}

// update changes what was seen of a case and wakes those who wait.
func (p *scriptedPicker) update(name string, change func(*seen)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.calls[name]
	if s == nil {
		s = &seen{}
		p.calls[name] = s
	}
	change(s)
	close(p.news)
	p.news = make(chan struct{})
}

// wait returns what was seen of a case once cond holds.
func (p *scriptedPicker) wait(t *testing.T, name string, cond func(seen) bool) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		p.mu.Lock()
		var s seen
		if got := p.calls[name]; got != nil {
			s = *got
			s.messages = slices.Clone(got.messages)
		}
		news := p.news
		p.mu.Unlock()
		if cond(s) {
			return s
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("case %s: the picker has seen %+v", name, s)
		}
	}
}

// ended waits for the end of a case's stream.
func (p *scriptedPicker) end(t *testing.T, name string) seen {
	t.Helper()
	return p.wait(t, name, func(s seen) bool { return s.ended != nil })
}

// note records a message.
func (s *seen) note(m *extprocv3.ProcessingRequest) {
	kind, eos := "", ""
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		kind, eos = "RequestHeaders", fmt.Sprint(r.RequestHeaders.GetEndOfStream())
		s.headers = plain(r.RequestHeaders.GetHeaders())
		c := m.GetProtocolConfig()
		s.protocol = fmt.Sprint(c.GetRequestBodyMode(), " ", c.GetResponseBodyMode())
		s.hint = fmt.Sprint(m.GetMetadataContext().GetFilterMetadata()[subsetNamespace].AsMap())
	case *extprocv3.ProcessingRequest_RequestBody:
		kind, eos = "RequestBody", fmt.Sprint(r.RequestBody.GetEndOfStream())
		s.bytes += len(r.RequestBody.GetBody())
		eos += emptyMark(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		kind = "RequestTrailers"
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		kind, eos = "ResponseHeaders", fmt.Sprint(r.ResponseHeaders.GetEndOfStream())
		s.response = plain(r.ResponseHeaders.GetHeaders())
		lb := m.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()
		s.served, s.chosen = lb[servedKey].GetStringValue(), lb[destinationKey].GetStringValue()
		s.upstream = m.GetAttributes()["envoy.filters.http.ext_proc"].GetFields()["upstream.address"].GetStringValue()
	case *extprocv3.ProcessingRequest_ResponseBody:
		kind, eos = "ResponseBody", fmt.Sprint(r.ResponseBody.GetEndOfStream())
		eos += emptyMark(r.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		kind = "ResponseTrailers"
	}
	text := strings.TrimSpace(kind + " " + eos)
	if n := len(s.messages); n > 0 && s.messages[n-1] == text && strings.HasSuffix(text, "Body false") {
		return
	}
	s.messages = append(s.messages, text)
}

// emptyMark tells an end of stream of its own from one on the last data.
func emptyMark(b *extprocv3.HttpBody) string {
	if b.GetEndOfStream() && len(b.GetBody()) == 0 {
		return " empty"
	}
	return ""
}

// plain returns the raw values of headers, of one name joined.
func plain(m *corev3.HeaderMap) map[string]string {
	out := map[string]string{}
	for _, h := range m.GetHeaders() {
		if have, ok := out[h.GetKey()]; ok {
			out[h.GetKey()] = have + "," + string(h.GetRawValue())
			continue
		}
		out[h.GetKey()] = string(h.GetRawValue())
	}
	return out
}

// Process implements the ext-proc service.
func (p *scriptedPicker) Process(stream extprocv3.ExternalProcessor_ProcessServer) (err error) {
	var name string
	c := &conversation{p: p, stream: stream}
	defer func() {
		p.update(name, func(s *seen) {
			if s.ended = stream.Context().Err(); s.ended == nil {
				s.ended = fmt.Errorf("the picker ended it: %w", cmpErr(err))
			}
		})
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			<-stream.Context().Done() // Envoy half-closes and then resets
			return err
		}
		if h := m.GetRequestHeaders(); h != nil {
			fs := plain(h.GetHeaders())
			name, c.script = fs["x-case"], fs[scriptHeader]
			c.mode = m.GetProtocolConfig()
		}
		p.update(name, func(s *seen) { s.note(m) })
		stop, err := c.answer(m)
		if stop || err != nil {
			return err
		}
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("clean")
	}
	return err
}

// conversation is one stream of the scripted picker.
type conversation struct {
	p      *scriptedPicker
	stream extprocv3.ExternalProcessor_ProcessServer
	script string
	mode   *extprocv3.ProtocolConfiguration
	held   []byte
}

// answer handles one message; stop ends the stream.
func (c *conversation) answer(m *extprocv3.ProcessingRequest) (stop bool, err error) {
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return c.onRequestHeaders(r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		return c.onRequestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return false, c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{},
		}})
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return c.onResponseHeaders()
	case *extprocv3.ProcessingRequest_ResponseBody:
		data := r.ResponseBody.GetBody()
		if c.script == scriptRewrite {
			data = []byte(strings.ToUpper(string(data)))
		}
		return false, c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: c.body(c.mode.GetResponseBodyMode(), data, r.ResponseBody.GetEndOfStream()),
		}})
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return false, c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{},
		}})
	}
	return false, nil
}

func (c *conversation) onRequestHeaders(h *extprocv3.HttpHeaders) (stop bool, err error) {
	switch c.script {
	case scriptSilent:
		return false, nil
	case scriptError:
		return false, status.Error(codes.Internal, "scripted")
	case scriptImmediate:
		return false, c.sendImmediate()
	case scriptImmediateEnd, scriptBodyFirst:
		if !h.GetEndOfStream() {
			return false, nil
		}
	}
	if c.holds() && !h.GetEndOfStream() {
		return false, nil
	}
	if err := c.sendRequestHeaders(); err != nil {
		return false, err
	}
	if c.script == scriptBodyless {
		return false, c.sendRequestBody(nil, true)
	}
	return c.script == scriptClose && h.GetEndOfStream(), nil
}

func (c *conversation) onRequestBody(b *extprocv3.HttpBody) (stop bool, err error) {
	switch c.script {
	case scriptSilent, scriptSilentBody:
		return false, nil
	case scriptImmediateEnd:
		if b.GetEndOfStream() {
			return false, c.sendImmediate()
		}
		return false, nil
	case scriptPlainBody:
		return false, c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{}},
		}})
	}
	if c.holds() {
		c.held = append(c.held, b.GetBody()...)
		if !b.GetEndOfStream() {
			return false, nil
		}
		if err := c.sendRequestHeaders(); err != nil {
			return false, err
		}
		for len(c.held) > 62_000 {
			if err := c.sendRequestBody(c.held[:62_000], false); err != nil {
				return false, err
			}
			c.held = c.held[62_000:]
		}
		return false, c.sendRequestBody(c.held, true)
	}
	data := b.GetBody()
	if c.script == scriptRewrite {
		data = []byte(strings.ToUpper(string(data)))
	}
	err = c.sendRequestBody(data, b.GetEndOfStream())
	if err == nil && c.script == scriptTwice && b.GetEndOfStream() {
		err = c.sendRequestBody([]byte("more"), true)
	}
	return c.script == scriptClose && b.GetEndOfStream(), err
}

// holds reports whether the request is answered at its end only. Those that the
// gateway must refuse are: its reply could overtake the body otherwise.
func (c *conversation) holds() bool {
	return c.mode.GetRequestBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED &&
		slices.Contains([]string{scriptHold, scriptNoDest, scriptRefused, scriptGarbage}, c.script)
}

func (c *conversation) onResponseHeaders() (stop bool, err error) {
	switch c.script {
	case scriptErrorRsp:
		return false, status.Error(codes.Internal, "scripted")
	case scriptImmediateRsp:
		return false, c.sendImmediate()
	}
	mutation := &extprocv3.HeaderMutation{}
	if c.script == scriptMutate {
		mutation = &extprocv3.HeaderMutation{
			RemoveHeaders: []string{"X-Worker"},
			SetHeaders:    []*corev3.HeaderValueOption{set("x-from-picker", "yes"), set("content-type", "text/scripted")},
		}
	}
	return false, c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{HeaderMutation: mutation}},
	}})
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)}}
}

func (c *conversation) sendRequestHeaders() error {
	dest := c.p.worker
	switch c.script {
	case scriptRefused:
		dest = c.p.refused
	case scriptGarbage:
		dest = "not an address"
	case scriptNoDest:
		dest = ""
	}
	m := &extprocv3.HeaderMutation{}
	resp := &extprocv3.ProcessingResponse{}
	if dest != "" {
		m.SetHeaders = append(m.SetHeaders, set(destinationKey, dest))
		resp.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			lbNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				destinationKey: structpb.NewStringValue(dest),
			}}),
		}}
	}
	if c.script == scriptMutate {
		m.RemoveHeaders = []string{"x-remove", "x-removed-and-set"}
		m.SetHeaders = append(m.SetHeaders, set("x-set", "new"), set("x-replace", "new"), set("x-removed-and-set", "new"),
			set(":authority", "other.test"), set(":path", "/echo?mutated=1"), set("x-envoy-thing", "new"),
			&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "x-value-only", Value: "text"}},
			&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "x-append", RawValue: []byte("new")}, Append: wrapperspb.Bool(true)}, //nolint:staticcheck // gateways still read the old field
			&corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: "x-action", RawValue: []byte("new")},
				AppendAction: corev3.HeaderValueOption_ADD_IF_ABSENT,
			})
	}
	resp.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: m, ClearRouteCache: true},
	}}
	return c.stream.Send(resp)
}

func (c *conversation) sendRequestBody(data []byte, eos bool) error {
	return c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: c.body(c.mode.GetRequestBodyMode(), data, eos),
	}})
}

// body returns a body answer in the form that a mode asks for.
func (c *conversation) body(mode modev3.ProcessingMode_BodySendMode, data []byte, eos bool) *extprocv3.BodyResponse {
	m := &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: data, EndOfStream: eos},
	}}
	if mode == modev3.ProcessingMode_BUFFERED {
		m = nil
		if c.script == scriptRewrite {
			m = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: data}}
		}
	}
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}
}

func (c *conversation) sendImmediate() error {
	return c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests},
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{set("content-type", "application/json"), set("x-reason", "full")}},
			Body:    []byte(`{"error":"full"}`),
			Details: "scripted",
		},
	}})
}

// listenAgain opens a port that was just closed.
func listenAgain(t *testing.T, addr netip.AddrPort) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return lis
}
