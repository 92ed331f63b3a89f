package gateway

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// responseState is the response's half of an exchange.
type responseState struct {
	started  bool // there is a response
	shown    bool // the picker was told of it
	fields   fields
	bodyless bool // the headers were the end of the response
	answered bool // the picker answered the headers
	written  bool // the client has the headers
	eosSent  bool // the picker was given the last of the body
	complete bool // the client has everything
	buffer   []byte
	trailers fields
	code     int
	local    string // details of a reply made here; "" for a worker's
}

// upstreamEvent is a step of the worker's response: its headers, a piece of its
// body, or a failure.
type upstreamEvent struct {
	head     fields
	bodyless bool
	local    string
	bodyEvent
}

// upstreamFailed is the reply when a worker gave no response.
func upstreamFailed(err error) *reply {
	reason := "remote connection failure, transport failure reason: "
	return &reply{
		code: http.StatusServiceUnavailable, details: "upstream_reset_before_response_started",
		fields: fields{{"content-type", "text/plain"}},
		body:   []byte("upstream connect error or disconnect/reset before headers. reset reason: " + reason + err.Error()),
	}
}

// roundTrip sends the worker's request and turns the response into events.
func roundTrip(ctx context.Context, transport http.RoundTripper, req *http.Request, events chan<- upstreamEvent) {
	emit := func(ev upstreamEvent) bool {
		select {
		case events <- ev:
			return true
		case <-ctx.Done():
			return false
		}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		emit(upstreamEvent{bodyEvent: bodyEvent{err: err}})
		return
	}
	defer resp.Body.Close()
	fs := fields{{":status", strconv.Itoa(resp.StatusCode)}}.appendHeader(resp.Header).without("connection", "keep-alive", "proxy-connection").appendTrailer(resp.Trailer)
	fs = append(fs, chunkedField(resp)...)
	// Envoy sees no body in these; net/http says so with the same value.
	bodyless := resp.Body == http.NoBody
	if !emit(upstreamEvent{head: fs, bodyless: bodyless}) || bodyless {
		return
	}
	readBody(resp.Body, resp.ProtoMajor, resp.ContentLength, func(ev bodyEvent) bool {
		if ev.eos {
			ev.trailers = appendTrailers(resp.Trailer)
		}
		return emit(upstreamEvent{bodyEvent: ev})
	})
}

// chunkedField restores the header that net/http consumes and Envoy shows.
func chunkedField(resp *http.Response) fields {
	if slices.Contains(resp.TransferEncoding, "chunked") {
		return fields{{"transfer-encoding", "chunked"}}
	}
	return nil
}

// localReply sends a reply of the gateway's own through the response phase: the
// picker sees it as if a worker had sent it, and must answer it (envoy.md
// section 4). A response under way is dropped.
func (x *exchange) localReply(r *reply) {
	x.cancelUpstream()
	x.request.sentOn = true // no worker any more
	events := make(chan upstreamEvent, 2)
	head := slices.Concat(fields{{":status", strconv.Itoa(r.code)}, {"content-length", strconv.Itoa(len(r.body))}}, r.fields)
	bodyless := x.r.Method == http.MethodHead
	events <- upstreamEvent{head: head, bodyless: bodyless, local: r.details}
	if !bodyless {
		events <- upstreamEvent{bodyEvent: bodyEvent{data: r.body, eos: true}}
	}
	x.upstream = events
}

// mayReadUpstream reports whether the next step of the worker's response can be
// taken now: outside of full duplex a body waits for the answer to its headers.
func (x *exchange) mayReadUpstream() bool {
	s := &x.response
	return !s.started || s.answered || x.detached || x.b.cfg.ResponseBodyMode == FullDuplex
}

// onUpstream handles a step of the worker's response.
func (x *exchange) onUpstream(ev upstreamEvent) error {
	s := &x.response
	switch {
	case ev.err != nil && !s.started:
		x.localReply(upstreamFailed(ev.err))
		return nil
	case ev.err != nil:
		return errUpstreamGone
	case ev.head != nil:
		s.started = true
		s.local = ev.local
		s.fields, s.bodyless = ev.head, ev.bodyless
		return x.sendResponseHeaders()
	case x.detached, x.b.cfg.ResponseBodyMode == None:
		return x.writeBody(ev.data, ev.eos, ev.trailers)
	case x.b.cfg.ResponseBodyMode == Buffered:
		return x.bufferResponse(ev.bodyEvent)
	case ev.eos && ev.trailers != nil:
		if len(ev.data) > 0 {
			x.sendResponseBody(ev.data, false)
		}
		s.eosSent = true
		s.trailers = ev.trailers
		x.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
			ResponseTrailers: &extprocv3.HttpTrailers{Trailers: ev.trailers.message()},
		}})
		return nil
	}
	x.sendResponseBody(ev.data, ev.eos)
	return nil
}

// sendResponseHeaders tells the picker of the response and of who served.
func (x *exchange) sendResponseHeaders() error {
	s := &x.response
	if x.detached {
		return x.writeHead()
	}
	if s.local == "" {
		x.setMetadata(lbNamespace, map[string]*structpb.Value{servedKey: structpb.NewStringValue(x.upstreamAddr)})
	}
	attributes := map[string]*structpb.Value{}
	if x.upstreamAddr != "" {
		attributes["upstream.address"] = structpb.NewStringValue(x.upstreamAddr)
		attributes["upstream.request_attempt_count"] = structpb.NewNumberValue(1)
	}
	s.shown, s.eosSent = true, s.bodyless
	x.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extprocv3.HttpHeaders{Headers: s.fields.message(), EndOfStream: s.bodyless},
		},
		Attributes: map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: attributes}},
	})
	return nil
}

func (x *exchange) sendResponseBody(data []byte, eos bool) {
	x.response.eosSent = x.response.eosSent || eos
	x.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: data, EndOfStream: eos},
	}})
}

// bufferResponse collects a response for mode Buffered.
func (x *exchange) bufferResponse(ev bodyEvent) error {
	s := &x.response
	if len(s.buffer)+len(ev.data) > bufferLimit {
		return &reply{
			code: http.StatusInternalServerError, details: "response_payload_too_large",
			fields: fields{{"content-type", "text/plain"}}, body: []byte("Internal Server Error"),
		}
	}
	s.buffer = append(s.buffer, ev.data...)
	if ev.eos {
		s.trailers = ev.trailers
		x.sendResponseBody(s.buffer, true)
	}
	return nil
}

// onResponseHeadersAnswer gives the headers to the client.
func (x *exchange) onResponseHeadersAnswer(c *extprocv3.CommonResponse) error {
	s := &x.response
	switch {
	case !s.started:
		return spurious("answer to response headers that were not sent")
	case s.answered:
		return spurious("second answer to the response headers")
	case c.GetStatus() != extprocv3.CommonResponse_CONTINUE:
		return spurious("status other than CONTINUE")
	}
	s.answered = true
	s.fields = s.fields.mutate(c.GetHeaderMutation())
	if x.b.cfg.ResponseBodyMode == Buffered && !s.bodyless {
		return nil // the answer to the body may change them again
	}
	return x.writeHead()
}

// onResponseBodyAnswer gives a piece of the body to the client.
func (x *exchange) onResponseBodyAnswer(c *extprocv3.CommonResponse) error {
	s := &x.response
	if x.b.cfg.ResponseBodyMode == Buffered {
		if !s.eosSent || s.bodyless {
			return spurious("answer to a response body that was not sent")
		}
		s.fields = s.fields.mutate(c.GetHeaderMutation())
		s.buffer = mutateBody(s.buffer, c.GetBodyMutation())
		return x.writeBuffered()
	}
	streamed := c.GetBodyMutation().GetStreamedResponse()
	switch {
	case streamed == nil:
		return spurious("response body answer without a streamed response")
	case x.b.cfg.ResponseBodyMode == None, !s.answered, s.bodyless:
		return spurious("response body answer out of order")
	}
	// With trailers to come the body's own end does not count.
	return x.writeBody(streamed.GetBody(), streamed.GetEndOfStream() && s.trailers == nil, nil)
}

// onResponseTrailersAnswer ends a response that has trailers.
func (x *exchange) onResponseTrailersAnswer(m *extprocv3.HeaderMutation) error {
	s := &x.response
	if !s.answered || s.trailers == nil {
		return spurious("response trailers answer out of order")
	}
	return x.writeBody(nil, true, s.trailers.mutate(m))
}

// detachResponse lets the response go on as it is after a clean close.
func (x *exchange) detachResponse() error {
	s := &x.response
	if !s.started {
		return nil
	}
	s.answered = true
	if !s.written {
		if err := x.writeHead(); err != nil || s.complete {
			return err
		}
	}
	if s.eosSent {
		return x.writeBody(nil, true, s.trailers)
	}
	return nil
}

// writeBuffered writes a whole response.
func (x *exchange) writeBuffered() error {
	s := &x.response
	if s.fields.has("content-length") { // the picker may have changed the body
		s.fields = append(s.fields.without("content-length"), field{"content-length", strconv.Itoa(len(s.buffer))})
	}
	if err := x.writeHead(); err != nil {
		return err
	}
	return x.writeBody(s.buffer, true, s.trailers)
}

// writeHead writes status and headers and, for a response without a body, ends
// it. The client has them at once, however long the body takes.
func (x *exchange) writeHead() error {
	s := &x.response
	code, err := strconv.Atoi(s.fields.get(":status"))
	if err != nil || code < 200 || code > 999 {
		return pickerError("ext_proc_error_invalid_status")
	}
	s.code, s.written = code, true
	fs := s.fields.without(hopByHop...)
	if x.dropsLength() {
		fs = fs.without("content-length")
	}
	x.setHeader(fs)
	x.touch()
	x.w.WriteHeader(code)
	s.complete = s.bodyless
	if s.bodyless {
		return nil // net/http sends it when the handler returns
	}
	return x.flush()
}

// dropsLength reports whether the response's content-length is dropped: ext_proc
// does so when it shows the headers to a picker that may change the body.
func (x *exchange) dropsLength() bool {
	return x.response.shown && x.b.cfg.ResponseBodyMode == FullDuplex && !x.b.cfg.KeepContentLength
}

// writeBody writes a piece of the body and flushes it: events of a stream must
// not wait for each other.
func (x *exchange) writeBody(data []byte, eos bool, trailers fields) error {
	if len(data) > 0 {
		x.touch()
		if _, err := x.w.Write(data); err != nil {
			return errClientGone
		}
		if err := x.flush(); err != nil {
			return err
		}
	}
	if eos {
		for _, f := range trailers {
			x.w.Header().Add(http.TrailerPrefix+f.name, f.value)
		}
		x.response.complete = true
	}
	return nil
}

// writeReply writes a reply of the gateway's own.
func (x *exchange) writeReply(r *reply) {
	fs := r.fields.without(hopByHop...).without("content-length")
	if !r.lengthless {
		fs = append(fs, field{"content-length", strconv.Itoa(len(r.body))})
	}
	x.setHeader(fs)
	x.response.code, x.response.written = r.code, true
	x.w.WriteHeader(r.code)
	_, _ = x.w.Write(r.body) // a client that is gone sees nothing either way
	_ = x.flush()
}

// setHeader makes fs the response's headers.
func (x *exchange) setHeader(fs fields) {
	h := x.w.Header()
	maps.Copy(h, fs.header())
	if !fs.has("content-type") {
		h["Content-Type"] = nil // keeps net/http from guessing
	}
	if x.request.reading && x.r.ProtoMajor == 1 {
		select {
		case <-x.bodyDone:
		default:
			// What the client still sends is not the next request.
			h.Set("Connection", "close")
		}
	}
}

// flush sends what was written.
func (x *exchange) flush() error {
	if err := x.rc.Flush(); err != nil {
		return errClientGone
	}
	return nil
}
