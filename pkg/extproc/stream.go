package extproc

import (
	"errors"
	"io"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmodev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// phase is how far a stream has come. It only grows.
type phase uint8

const (
	beforeHeaders phase = iota // nothing was received yet
	readingBody                // the body is collected; nothing was answered in full duplex
	routedPhase                // the decision is made and sent
	ended                      // an immediate response was sent; the rest is ignored
)

// stream serves one HTTP request. All of it runs on one goroutine.
type stream struct {
	srv     *Server
	rpc     extprocv3.ExternalProcessor_ProcessServer
	phase   phase
	routing *routing // as of the request headers; nil before, and once it is not needed any more
	duplex  bodyMode // of the request
	reply   bodyMode // of the response
	head    head
	subset  pick.Subset
	body    body

	decision  pick.Decision
	fallback  fallback     // of the decision
	sent      time.Time    // when the decision was made
	announced Announcement // of the decision; nil for none
	firstSeen bool         // the first byte of output was seen
	streamed  bool         // the response is a success that comes as it is produced
	good      bool         // the status of the response is 2xx
	renamed   renamed      // what became of the model's name
	output    output       // of the response

	// One message and one chunk serve all body messages: gRPC has encoded a
	// message when Send returns.
	out   extprocv3.ProcessingResponse
	chunk chunkMessages
}

// bodyMode is how a gateway sends a body.
type bodyMode uint8

const (
	fullDuplex bodyMode = iota // chunks, which only go on if they are sent back
	buffered                   // one message
	streamed                   // chunks, each to be acknowledged
	notSent
)

func modeOf(m procmodev3.ProcessingMode_BodySendMode) bodyMode {
	switch m {
	case procmodev3.ProcessingMode_FULL_DUPLEX_STREAMED:
		return fullDuplex
	case procmodev3.ProcessingMode_BUFFERED:
		return buffered
	case procmodev3.ProcessingMode_STREAMED, procmodev3.ProcessingMode_BUFFERED_PARTIAL:
		return streamed
	default:
		return notSent
	}
}

// Process serves one stream. It implements the ExternalProcessor service.
func (s *Server) Process(rpc extprocv3.ExternalProcessor_ProcessServer) error {
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	st := &stream{srv: s, rpc: rpc}
	// However the stream ends, its load ends with it.
	defer st.release()
	for first := true; ; first = false {
		msg, err := rpc.Recv()
		if err != nil {
			// Envoy ends every stream, good or bad, by going away (envoy.md 4).
			if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
				return nil
			}
			return err
		}
		if first {
			st.modes(msg)
		}
		if st.phase == ended {
			continue
		}
		readSubset(&st.subset, msg)
		if err := st.receive(msg); err != nil {
			return err
		}
	}
}

// modes reads how the gateway sends bodies. One that does not say is taken for
// full duplex, the mode the protocol asks for.
func (st *stream) modes(msg *extprocv3.ProcessingRequest) {
	if c := msg.GetProtocolConfig(); c != nil {
		st.duplex, st.reply = modeOf(c.GetRequestBodyMode()), modeOf(c.GetResponseBodyMode())
	}
}

func (st *stream) receive(msg *extprocv3.ProcessingRequest) error {
	switch m := msg.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return st.requestHeaders(m.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		return st.requestBody(m.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return st.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		st.noteServed(msg)
		return st.responseHeaders(msg, m.ResponseHeaders)
	case *extprocv3.ProcessingRequest_ResponseBody:
		return st.responseBody(m.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{},
		}})
	default:
		return status.Error(codes.InvalidArgument, "a message of a kind this picker does not know")
	}
}

// requestHeaders decides at once when no body will be read, and otherwise waits
// for it.
func (st *stream) requestHeaders(m *extprocv3.HttpHeaders) error {
	if st.phase != beforeHeaders {
		return status.Error(codes.FailedPrecondition, "request headers came twice")
	}
	st.routing = st.srv.acquire()
	st.head.read(m.GetHeaders().GetHeaders(), st.routing)
	st.phase = readingBody
	empty := m.GetEndOfStream()
	readable := st.duplex == fullDuplex || st.duplex == buffered
	if !empty && readable && st.head.kind != prompt.Other {
		if st.head.length > st.srv.cfg.MaxBodyBytes {
			return st.refuse(bodyTooLargeError{st.srv.cfg.MaxBodyBytes})
		}
		if st.duplex == fullDuplex {
			return nil // the answer to the headers carries the decision
		}
		return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extprocv3.HeadersResponse{},
		}})
	}
	var none []byte
	if empty {
		none = []byte{}
	}
	return st.route(none, st.sendRoutedHeaders)
}

// route decides and sends what the decision changes.
func (st *stream) route(body []byte, send func(*extprocv3.CommonResponse, *structpb.Struct) error) error {
	err := st.decide(st.rpc.Context(), body)
	st.body.lent = st.head.lent
	if st.rpc.Context().Err() != nil {
		return nil //nolint:nilerr // the client is gone: nobody reads an answer
	}
	if err != nil {
		return st.refuse(err)
	}
	st.phase = routedPhase
	change, metadata := st.routed()
	st.nameModel(change)
	if st.announced == nil { // else whoever was told must hear of the end
		st.leave()
	}
	return send(change, metadata)
}

func (st *stream) sendRoutedHeaders(c *extprocv3.CommonResponse, metadata *structpb.Struct) error {
	return st.send(&extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: c}},
		DynamicMetadata: metadata,
	})
}

// sendRoutedBody puts the decision into the answer to a buffered body: the
// gateway still holds the headers then.
func (st *stream) sendRoutedBody(c *extprocv3.CommonResponse, metadata *structpb.Struct) error {
	return st.send(&extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: c}},
		DynamicMetadata: metadata,
	})
}

func (st *stream) requestBody(m *extprocv3.HttpBody) error {
	switch {
	case st.phase == beforeHeaders:
		return status.Error(codes.FailedPrecondition, "a request body came before its headers")
	case st.phase == routedPhase && st.duplex == fullDuplex:
		return st.echo(m.GetBody(), m.GetEndOfStream(), requestSide)
	case st.phase == routedPhase:
		return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}})
	}
	if st.body.len()+len(m.GetBody()) > st.srv.cfg.MaxBodyBytes {
		return st.refuse(bodyTooLargeError{st.srv.cfg.MaxBodyBytes})
	}
	st.body.add(m.GetBody())
	if st.duplex == buffered {
		err := st.route(st.body.bytes(), st.sendRoutedBody)
		st.body.free()
		return err
	}
	if !m.GetEndOfStream() {
		return nil
	}
	return st.routeDuplex(true)
}

// routeDuplex answers a body that is complete: headers first, then the body as
// it came. last says that nothing follows it, no trailers either.
func (st *stream) routeDuplex(last bool) error {
	if err := st.route(st.body.bytes(), st.sendRoutedHeaders); err != nil || st.phase != routedPhase {
		return err
	}
	err := st.echo(st.body.bytes(), last, requestSide)
	st.body.free()
	return err
}

// requestTrailers end a body that had no end of its own. They must be answered,
// or the request hangs (envoy.md 4).
func (st *stream) requestTrailers() error {
	if st.phase == beforeHeaders {
		return status.Error(codes.FailedPrecondition, "request trailers came before their headers")
	}
	if st.phase == readingBody {
		if err := st.routeDuplex(false); err != nil || st.phase != routedPhase {
			return err
		}
	}
	return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{},
	}})
}

func (st *stream) responseHeaders(msg *extprocv3.ProcessingRequest, m *extprocv3.HttpHeaders) error {
	code := statusOf(m.GetHeaders().GetHeaders())
	st.srv.metrics.answered(code)
	st.noteAnswer(msg, code)
	st.good = len(code) == 3 && code[0] == '2'
	st.streamed = st.reply != buffered && st.good && formatOf(m.GetHeaders().GetHeaders()).events
	st.output.begin(m.GetHeaders().GetHeaders())
	return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: st.replyHeaders(m)},
	}})
}

// responseBody passes output on. Its first bytes mean that the prompt has been
// computed.
func (st *stream) responseBody(m *extprocv3.HttpBody) error {
	if !st.firstSeen && len(m.GetBody()) > 0 {
		st.firstSeen = true
		st.firstOutput(m.GetEndOfStream())
	}
	st.countOutput(m.GetBody())
	if st.reply == fullDuplex {
		return st.echo(st.renamed.next(m.GetBody()), m.GetEndOfStream(), responseSide)
	}
	return st.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: st.replyBody(m)}}})
}

// firstOutput takes the prompt off its worker. How long that took is the time of the
// prompt only where the output comes as it is produced: an error says nothing of it, and
// a whole response, or one of which the gateway kept all to the end, took longer.
func (st *stream) firstOutput(last bool) {
	if st.decision.Reservation != nil {
		now := st.srv.cfg.Now()
		switch {
		case st.streamed && !last:
			st.decision.PrefillDone(now)
		case st.good:
			st.decision.Prefilled(now)
		default: // nobody computed it
			st.decision.Reservation.PrefillEnded()
		}
		st.srv.loadFell()
	}
	if st.announced != nil {
		st.announced.PrefillDone()
	}
}

// refuse ends the request with an error.
func (st *stream) refuse(err error) error {
	r := refusal(err)
	st.srv.metrics.refused(r)
	st.phase = ended
	st.leave()
	st.body.free()
	return st.send(r.immediate())
}

func (st *stream) release() {
	st.unbook()
	st.leave()
	st.body.lent = st.body.lent || st.head.lent // should a decision have panicked
	st.body.free()
}

// leave lets go of the routing. A response may take minutes, and needs none.
func (st *stream) leave() {
	if r := st.routing; r != nil {
		st.routing = nil
		r.release()
	}
}

func (st *stream) send(m *extprocv3.ProcessingResponse) error { return st.rpc.Send(m) }

// statusOf returns the value of the pseudo header :status.
func statusOf(headers []*corev3.HeaderValue) string {
	for _, h := range headers {
		if h.Key == ":status" {
			return headerValue(h)
		}
	}
	return ""
}
