package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	chunkSize = 64 << 10
	// bufferLimit is the longest body in mode Buffered: Envoy's default
	// per_connection_buffer_limit_bytes.
	bufferLimit = 1 << 20
	// lingerTime is how long a client may go on sending after its reply. Closing
	// at once would reset the connection and could take the reply with it.
	lingerTime = 500 * time.Millisecond
)

// exchange is one HTTP request and its ext-proc stream. All state belongs to the
// goroutine of serve; three others only feed its loop: the client's body, the
// picker's messages and the worker's response.
type exchange struct {
	b   *Builtin
	w   http.ResponseWriter
	r   *http.Request
	rc  *http.ResponseController
	id  string
	ctx context.Context //nolint:containedctx // of the stream and the worker's request: an exchange is one request

	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
	wg     sync.WaitGroup

	picker   *mailbox[pickerMessage]
	client   chan bodyEvent     // the client's body
	bodyDone chan struct{}      // closed when the body's reader has ended
	upstream chan upstreamEvent // the worker's response; nil until there is one
	idle     *time.Timer

	spoken   bool // the first message, which carries the protocol, was sent
	detached bool // the picker closed the stream cleanly: go on without it
	idleOnce bool // the idle timer has run out before
	meta     map[string]*structpb.Struct

	request  requestState
	response responseState

	upstreamAddr   string
	cancelUpstream context.CancelFunc
}

// pickerMessage is one result of Recv.
type pickerMessage struct {
	resp *extprocv3.ProcessingResponse
	err  error
}

// bodyEvent is a piece of a body. With eos it is the last; with trailers too,
// the trailers come after it.
type bodyEvent struct {
	data     []byte
	eos      bool
	trailers fields
	err      error
}

// result says how a request ended.
type result struct {
	code    int    // the status the client saw; 0 when it saw none
	details string // why, for the access log
	abort   bool   // cut the connection
}

// reply is the error that ends the loop with a reply of the gateway's own, which
// the picker does not see.
type reply struct {
	code    int
	fields  fields
	body    []byte
	details string
	// lengthless leaves content-length out: the reply has already been through
	// the response phase, where ext_proc drops it.
	lengthless bool
}

func (r *reply) Error() string { return r.details }

var (
	errClientGone   = errors.New("downstream_remote_disconnect")
	errUpstreamGone = errors.New("upstream_reset_after_response_started")
	errIdle         = errors.New("stream_idle_timeout")
)

// pickerError is the reply when the picker failed or broke the protocol.
func pickerError(details string) error {
	return &reply{code: http.StatusInternalServerError, details: details}
}

// spurious is the reply to a message that the protocol does not allow now.
func spurious(what string) error { return pickerError("ext_proc_error_spurious_message: " + what) }

func newExchange(b *Builtin, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{
		b: b, w: w, r: r,
		rc:       http.NewResponseController(w),
		picker:   newMailbox[pickerMessage](),
		client:   make(chan bodyEvent),
		bodyDone: make(chan struct{}),
		meta:     map[string]*structpb.Struct{},
	}
	x.ctx, x.cancel = context.WithCancel(r.Context())
	x.cancelUpstream = func() {}
	return x
}

// serve runs the request to its end and writes the reply. It returns after every
// goroutine of the request.
func (x *exchange) serve() result {
	defer x.wg.Wait()
	defer x.cancel()
	// Only HTTP/1 needs to be told, and only it knows the call.
	_ = x.rc.EnableFullDuplex()
	x.idle = time.NewTimer(x.b.cfg.StreamIdleTimeout)
	defer x.idle.Stop()
	x.prepareRequest()

	err := x.open()
	if err == nil {
		err = x.loop()
	}
	res := x.conclude(err)
	x.cancel()
	x.request.queue.finish(context.Canceled)
	x.lingerBody(res.abort)
	return res
}

// open starts the stream and sends the request's headers.
func (x *exchange) open() error {
	x.b.awaitPicker(x.ctx)
	stream, err := x.b.picker.Process(x.ctx)
	if err != nil {
		return x.pickerFailed(err)
	}
	x.stream = stream
	x.wg.Go(func() {
		for {
			resp, err := stream.Recv()
			x.picker.put(pickerMessage{resp, err})
			if err != nil {
				return
			}
		}
	})
	x.sendRequestHeaders()
	return nil
}

// loop handles what happens until the response is complete (nil) or cannot be.
func (x *exchange) loop() error {
	for !x.response.complete {
		upstream := x.upstream
		if !x.mayReadUpstream() {
			upstream = nil
		}
		var err error
		select {
		case <-x.picker.ready:
			for _, m := range x.picker.take() {
				if err = x.onPicker(m); err != nil || x.response.complete {
					break
				}
			}
		case ev := <-x.client:
			x.touch()
			err = x.onClient(ev)
		case ev := <-upstream:
			err = x.onUpstream(ev)
		case <-x.idle.C:
			err = x.onIdle()
		case <-x.ctx.Done():
			err = errClientGone
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// conclude turns the loop's end into what the client sees.
func (x *exchange) conclude(err error) result {
	var own *reply
	switch {
	case err == nil:
		details := "via_upstream"
		if x.response.local != "" {
			details = x.response.local
		}
		return result{code: x.response.code, details: details}
	case errors.As(err, &own) && !x.response.written:
		x.writeReply(own)
		return result{code: own.code, details: own.details}
	}
	return result{code: x.response.code, details: err.Error(), abort: true}
}

// lingerBody makes the body's reader end: at once, or after the client had a
// moment to notice its reply.
func (x *exchange) lingerBody(now bool) {
	if !x.request.reading {
		return
	}
	select {
	case <-x.bodyDone:
		return
	default:
	}
	deadline := time.Now()
	if !now {
		deadline = deadline.Add(lingerTime)
	}
	_ = x.rc.SetReadDeadline(deadline) // both protocols of net/http have it
	<-x.bodyDone
}

// touch notes that the client side moved.
func (x *exchange) touch() { x.idle.Reset(x.b.cfg.StreamIdleTimeout) }

// onIdle acts on a stream on which nothing moved: a 504 that goes through the
// response phase, and is sent without the picker when that does not move either.
func (x *exchange) onIdle() error {
	if x.response.written {
		return errIdle
	}
	timeout := &reply{
		code: http.StatusGatewayTimeout, details: errIdle.Error(),
		fields: fields{{"content-type", "text/plain"}}, body: []byte("stream timeout"),
	}
	if x.idleOnce || x.detached {
		timeout.lengthless = x.dropsLength()
		return timeout
	}
	x.idleOnce = true
	x.touch()
	if !x.response.started {
		x.upstreamAddr = "" // Envoy names no worker here
		x.localReply(timeout)
	}
	return nil
}

// pickerFailed is the end of a stream that did not end well.
func (x *exchange) pickerFailed(err error) error {
	if x.ctx.Err() != nil {
		return errClientGone
	}
	x.b.cfg.Log.Debug("picker stream failed", "error", err)
	return pickerError("ext_proc_error_gRPC: " + err.Error())
}

// onPicker handles one message of the picker, or the end of its stream.
func (x *exchange) onPicker(m pickerMessage) error {
	switch {
	case x.detached:
		return nil
	case errors.Is(m.err, io.EOF):
		return x.detach()
	case m.err != nil:
		return x.pickerFailed(m.err)
	}
	// receiving_namespaces of the Envoy configuration: others are dropped.
	if lb := m.resp.GetDynamicMetadata().GetFields()[lbNamespace].GetStructValue(); lb != nil {
		x.setMetadata(lbNamespace, lb.GetFields())
	}
	switch r := m.resp.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		return immediate(r.ImmediateResponse)
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return x.onRequestHeadersAnswer(r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return x.onRequestBodyAnswer(r.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return x.onRequestTrailersAnswer(r.RequestTrailers.GetHeaderMutation())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return x.onResponseHeadersAnswer(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return x.onResponseBodyAnswer(r.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return x.onResponseTrailersAnswer(r.ResponseTrailers.GetHeaderMutation())
	}
	return spurious("no known response in the message")
}

// detach goes on without the picker after a clean close. What it was sent and
// did not send back is lost (envoy.md section 5).
func (x *exchange) detach() error {
	x.detached = true
	x.detachRequest()
	return x.detachResponse()
}

// immediate is the reply the picker asked for.
func immediate(r *extprocv3.ImmediateResponse) error {
	fs := fields{{"content-type", "text/plain"}}
	if len(r.GetBody()) == 0 {
		fs = nil
	}
	details := r.GetDetails()
	if details == "" {
		details = "ext_proc_immediate_response"
	}
	code := int(r.GetStatus().GetCode())
	if code < 200 { // Envoy never lets an unset or informational status out
		code = http.StatusOK
	}
	return &reply{code: code, fields: fs.mutate(r.GetHeaders()), body: r.GetBody(), details: details}
}

// setMetadata merges values into a namespace of the stream's metadata. Messages
// already sent keep what they had.
func (x *exchange) setMetadata(namespace string, values map[string]*structpb.Value) {
	merged := maps.Clone(x.meta[namespace].GetFields())
	if merged == nil {
		merged = map[string]*structpb.Value{}
	}
	maps.Copy(merged, values)
	x.meta[namespace] = &structpb.Struct{Fields: merged}
}

// send sends one message with what every message carries. A broken stream is
// reported by Recv, so its error is not looked at here.
func (x *exchange) send(m *extprocv3.ProcessingRequest) {
	if x.detached {
		return
	}
	if !x.spoken {
		x.spoken = true
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  modev3.ProcessingMode_BodySendMode(modev3.ProcessingMode_BodySendMode_value[x.b.cfg.RequestBodyMode.String()]),
			ResponseBodyMode: modev3.ProcessingMode_BodySendMode(modev3.ProcessingMode_BodySendMode_value[x.b.cfg.ResponseBodyMode.String()]),
		}
	}
	m.MetadataContext = &corev3.Metadata{FilterMetadata: maps.Clone(x.meta)}
	_ = x.stream.Send(m)
}

// readBody feeds a body to emit, which reports whether it wants more. An
// HTTP/1.1 body ends with an event of its own, as with Envoy; an HTTP/2 body of
// known length ends with its last data.
func readBody(body io.Reader, proto int, length int64, emit func(bodyEvent) bool) {
	var total int64
	for {
		buf := make([]byte, chunkSize)
		n, err := body.Read(buf)
		total += int64(n)
		if n > 0 {
			eos := proto >= 2 && total == length
			if !emit(bodyEvent{data: buf[:n:n], eos: eos}) || eos {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			emit(bodyEvent{eos: true})
			return
		}
		if err != nil {
			emit(bodyEvent{err: err})
			return
		}
	}
}

// appendTrailers returns h as trailers; declared names without a value are none.
func appendTrailers(h http.Header) fields {
	if len(h) == 0 {
		return nil
	}
	fs := fields{}.appendHeader(h)
	if len(fs) == 0 {
		return nil
	}
	return fs
}
