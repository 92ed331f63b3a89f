package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"
)

// requestState is the request's half of an exchange.
type requestState struct {
	fields   fields // as they stand, after the picker's mutations
	bodyless bool   // the headers were the end of the request
	reading  bool   // the body's reader was started
	answered bool   // the picker answered the headers
	eosSent  bool   // the picker was given the last of the body
	eosBack  bool   // the picker gave the last of the body back
	queue    *bodyQueue
	buffer   []byte // mode Buffered: the body so far
	trailers http.Header
	promised []string // names of trailers the client announced
	sentOn   bool     // the worker's request was started, or failed to
}

// prepareRequest fills in the header block that the picker will see, and the
// subset hint.
func (x *exchange) prepareRequest() {
	r := x.r
	fs := fields{{":authority", r.Host}, {":path", r.RequestURI}, {":method", r.Method}, {":scheme", "http"}}
	fs = fs.appendHeader(r.Header)
	for name := range strings.SplitSeq(r.Header.Get("Connection"), ",") {
		fs = fs.without(strings.ToLower(strings.TrimSpace(name)))
	}
	fs = fs.without(hopByHop...)
	if !fs.has("content-length") && r.ContentLength >= 0 && r.Header.Get("Content-Length") != "" {
		fs = append(fs, field{"content-length", strconv.FormatInt(r.ContentLength, 10)})
	}
	fs = fs.appendTrailer(r.Trailer)
	if !fs.has("x-forwarded-proto") {
		fs = append(fs, field{"x-forwarded-proto", "http"})
	}
	if !fs.has("x-request-id") {
		fs = append(fs, field{"x-request-id", uuid.NewString()})
	}
	if x.b.cfg.SubsetHeader {
		fs = x.takeSubset(fs)
	}
	x.id = fs.get("x-request-id")
	x.request = requestState{
		fields: fs, bodyless: r.Body == http.NoBody || r.ContentLength == 0, queue: newBodyQueue(),
		promised: slices.Collect(maps.Keys(r.Trailer)),
	} // read now: net/http adds to the map later
}

// takeSubset turns the test-aid headers into the subset hint and removes them.
func (x *exchange) takeSubset(fs fields) fields {
	if fs.has(SubsetListHeader) {
		var list []*structpb.Value
		for element := range strings.SplitSeq(fs.get(SubsetListHeader), ",") {
			if element != "" {
				list = append(list, structpb.NewStringValue(element))
			}
		}
		hint := structpb.NewListValue(&structpb.ListValue{Values: list})
		if len(list) == 0 {
			// Envoy's Lua cannot tell an empty list from an empty map, and sends a map.
			hint = structpb.NewStructValue(&structpb.Struct{})
		}
		x.setMetadata(subsetNamespace, map[string]*structpb.Value{subsetKey: hint})
	}
	if fs.has(SubsetStringHeader) {
		x.setMetadata(subsetNamespace, map[string]*structpb.Value{
			subsetKey: structpb.NewStringValue(fs.get(SubsetStringHeader)),
		})
	}
	return fs.without(SubsetListHeader, SubsetStringHeader)
}

// sendRequestHeaders opens the conversation. Only in full duplex does the body
// follow without waiting for the answer.
func (x *exchange) sendRequestHeaders() {
	x.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: x.request.fields.message(), EndOfStream: x.request.bodyless},
	}})
	if x.b.cfg.RequestBodyMode == FullDuplex {
		x.startReading()
	}
}

// startReading starts the reader of the client's body, once.
func (x *exchange) startReading() {
	if x.request.bodyless || x.request.reading {
		return
	}
	x.request.reading = true
	emit := func(ev bodyEvent) bool {
		if ev.eos {
			ev.trailers = appendTrailers(x.r.Trailer)
		}
		select {
		case x.client <- ev:
		case <-x.ctx.Done():
			// The request is over; lingerBody bounds how long we drain.
		}
		return true
	}
	x.wg.Go(func() {
		defer close(x.bodyDone)
		readBody(x.r.Body, x.r.ProtoMajor, x.r.ContentLength, emit)
	})
}

// onClient handles a piece of the client's body.
func (x *exchange) onClient(ev bodyEvent) error {
	q := &x.request
	switch {
	case ev.err != nil:
		return errClientGone
	case x.detached, x.b.cfg.RequestBodyMode == None:
		q.queue.push(ev.data)
		if ev.eos {
			q.trailers = ev.trailers.header()
			x.finishRequestBody()
		}
	case x.b.cfg.RequestBodyMode == Buffered:
		if q.sentOn {
			return nil // too large already: the rest is dropped
		}
		if len(q.buffer)+len(ev.data) > bufferLimit {
			x.localReply(&reply{
				code: http.StatusRequestEntityTooLarge, details: "request_payload_too_large",
				fields: fields{{"content-type", "text/plain"}}, body: []byte("Payload Too Large"),
			})
			return nil
		}
		q.buffer = append(q.buffer, ev.data...)
		if ev.eos {
			q.eosSent = true
			q.trailers = ev.trailers.header()
			x.sendRequestBody(q.buffer, true)
		}
	case ev.eos && ev.trailers != nil:
		q.eosSent = true
		if len(ev.data) > 0 {
			x.sendRequestBody(ev.data, false)
		}
		q.trailers = ev.trailers.header()
		x.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
			RequestTrailers: &extprocv3.HttpTrailers{Trailers: ev.trailers.message()},
		}})
	default:
		q.eosSent = ev.eos
		x.sendRequestBody(ev.data, ev.eos)
	}
	return nil
}

func (x *exchange) sendRequestBody(data []byte, eos bool) {
	x.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: data, EndOfStream: eos},
	}})
}

// onRequestHeadersAnswer lets the request go on, or its body come in.
func (x *exchange) onRequestHeadersAnswer(c *extprocv3.CommonResponse) error {
	q := &x.request
	if q.answered {
		return spurious("second answer to the request headers")
	}
	if c.GetStatus() != extprocv3.CommonResponse_CONTINUE {
		return spurious("status other than CONTINUE")
	}
	q.answered = true
	q.fields = q.fields.mutate(c.GetHeaderMutation())
	x.startReading()
	if x.b.cfg.RequestBodyMode != Buffered || q.bodyless {
		x.sendOn()
	}
	return nil
}

// onRequestBodyAnswer passes on what the picker gave back of the body.
func (x *exchange) onRequestBodyAnswer(c *extprocv3.CommonResponse) error {
	q := &x.request
	if x.b.cfg.RequestBodyMode == Buffered {
		if !q.eosSent || q.sentOn {
			return spurious("answer to a request body that was not sent")
		}
		q.fields = q.fields.mutate(c.GetHeaderMutation())
		q.buffer = mutateBody(q.buffer, c.GetBodyMutation())
		q.queue.push(q.buffer)
		q.eosBack = true
		x.sendOn()
		x.finishRequestBody()
		return nil
	}
	streamed := c.GetBodyMutation().GetStreamedResponse()
	switch {
	case streamed == nil:
		return spurious("request body answer without a streamed response")
	case x.b.cfg.RequestBodyMode == None, !q.answered, q.bodyless, q.eosBack:
		return spurious("request body answer out of order")
	}
	q.queue.push(streamed.GetBody())
	// With trailers to come the body's own end does not count.
	if streamed.GetEndOfStream() && q.trailers == nil {
		q.eosBack = true
		x.finishRequestBody()
	}
	return nil
}

// onRequestTrailersAnswer ends a body that has trailers.
func (x *exchange) onRequestTrailersAnswer(m *extprocv3.HeaderMutation) error {
	q := &x.request
	if !q.answered || !q.eosSent || q.trailers == nil || q.eosBack {
		return spurious("request trailers answer out of order")
	}
	q.eosBack = true
	q.trailers = fields{}.appendHeader(q.trailers).mutate(m).header()
	x.finishRequestBody()
	return nil
}

// finishRequestBody ends the worker's body.
func (x *exchange) finishRequestBody() { x.request.queue.finish(io.EOF) }

// detachRequest lets the request go on as it is after a clean close.
func (x *exchange) detachRequest() {
	q := &x.request
	q.answered = true
	x.startReading()
	x.sendOn()
	if q.eosSent {
		x.finishRequestBody()
	}
}

// mutateBody applies a mutation of a buffered body.
func mutateBody(body []byte, m *extprocv3.BodyMutation) []byte {
	switch m := m.GetMutation().(type) {
	case *extprocv3.BodyMutation_Body:
		return m.Body
	case *extprocv3.BodyMutation_ClearBody:
		if m.ClearBody {
			return nil
		}
	}
	return body
}

// sendOn starts the worker's request, once.
func (x *exchange) sendOn() {
	q := &x.request
	if q.sentOn {
		return
	}
	q.sentOn = true
	dest, err := x.destination()
	if err != nil {
		x.localReply(&reply{
			code: http.StatusServiceUnavailable, details: "no_healthy_upstream",
			fields: fields{{"content-type", "text/plain"}}, body: []byte("no healthy upstream"),
		})
		return
	}
	x.upstreamAddr = dest.String()
	ctx, cancel := context.WithCancel(x.ctx)
	x.cancelUpstream = cancel
	req, err := x.upstreamRequest(ctx, dest)
	if err != nil { // the picker set a path that is none
		cancel()
		x.localReply(upstreamFailed(err))
		return
	}
	events := make(chan upstreamEvent)
	x.upstream = events
	x.wg.Go(func() {
		defer cancel()
		roundTrip(ctx, x.b.transport, req, events)
	})
}

// destination is the picker's choice, where the follow mode looks for it.
func (x *exchange) destination() (netip.AddrPort, error) {
	if x.b.cfg.Follow == ByMetadata {
		return netip.ParseAddrPort(x.meta[lbNamespace].GetFields()[destinationKey].GetStringValue())
	}
	return netip.ParseAddrPort(x.request.fields.get(destinationKey))
}

// upstreamRequest builds the worker's request.
func (x *exchange) upstreamRequest(ctx context.Context, dest netip.AddrPort) (*http.Request, error) {
	q := &x.request
	target, err := url.ParseRequestURI(q.fields.get(":path"))
	if err != nil {
		return nil, err
	}
	target.Scheme, target.Host = "http", dest.String()
	req := (&http.Request{
		Method: x.r.Method, URL: target, Host: x.r.Host, Header: q.fields.header(),
		ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if !q.fields.has("user-agent") {
		req.Header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	if q.bodyless {
		return req, nil
	}
	req.Body = q.queue
	req.ContentLength = x.upstreamLength()
	// net/http wants the trailers' names now and their values at the end.
	if len(q.promised) > 0 {
		req.Trailer = http.Header{}
		for _, name := range q.promised {
			req.Trailer[name] = nil
		}
		req.Body = &trailerBody{queue: q.queue, fill: func() {
			maps.Copy(req.Trailer, q.trailers)
		}}
	}
	return req, nil
}

// upstreamLength is the content-length of the worker's request, -1 for chunked.
func (x *exchange) upstreamLength() int64 {
	n, err := strconv.ParseInt(x.request.fields.get("content-length"), 10, 64)
	switch {
	case err != nil, x.b.cfg.RequestBodyMode == FullDuplex && !x.b.cfg.KeepContentLength:
		return -1
	case x.b.cfg.RequestBodyMode == Buffered:
		return int64(len(x.request.buffer)) // the picker may have changed the body
	}
	return n
}

// trailerBody is a body whose trailers are filled in at its end.
type trailerBody struct {
	queue *bodyQueue
	fill  func()
}

func (t *trailerBody) Read(p []byte) (int, error) {
	n, err := t.queue.Read(p)
	if errors.Is(err, io.EOF) {
		t.fill() // the queue's lock orders this after the loop's last write
	}
	return n, err
}

func (t *trailerBody) Close() error { return t.queue.Close() }
