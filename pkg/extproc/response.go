package extproc

import (
	"encoding/json"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// maxChunk is the most body bytes in one message. The protocol allows 62,000,
// since gateways may limit a message to 64 KiB (endpoint-picker.md 1.5). We stay
// under 32 KiB: gRPC has pooled buffers of that size, and takes, and clears, one
// of 1 MiB for anything larger.
const maxChunk = 32_000

// bodyTooLargeError: the body is over the configured limit.
type bodyTooLargeError struct{ limit int }

func (e bodyTooLargeError) Error() string {
	return fmt.Sprintf("the request body is larger than the limit of %d bytes", e.limit)
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// routed is the change that a decision makes to the request headers: it says
// where to go, tells the decode worker about the prefill worker, and removes
// what the client had no right to say.
func (st *stream) routed() (*extprocv3.CommonResponse, *structpb.Struct) {
	s, r, d, h := st.srv, st.routing, &st.decision, &st.head
	destination := st.destination()
	set := make([]*corev3.HeaderValueOption, 0, 1+len(r.Handoff))
	set = append(set, overwrite(destinationHeader, destination))
	set = r.Handoff.appendTo(set, d, func() string { return s.requestID(h) })
	common := &extprocv3.CommonResponse{
		ClearRouteCache: true,
		HeaderMutation:  &extprocv3.HeaderMutation{SetHeaders: set, RemoveHeaders: s.unsaid(h, set)},
	}
	return common, s.metadata(destination)
}

// unsaid returns the routing headers of the client that are not overwritten
// anyway. A header that is both set and removed would depend on the order in
// which a gateway does the two.
func (s *Server) unsaid(h *head, set []*corev3.HeaderValueOption) []string {
	var remove []string
next:
	for _, name := range h.strip {
		for _, o := range set {
			if o.Header.Key == name {
				continue next
			}
		}
		remove = append(remove, name)
	}
	return remove
}

// maxDestinations bounds the remembered metadata.
const maxDestinations = 8192

// metadata is the decision as dynamic metadata, the same string as the header.
func (s *Server) metadata(destination string) *structpb.Struct {
	if m, ok := s.destinations.Load(destination); ok {
		return m.(*structpb.Struct)
	}
	m := &structpb.Struct{Fields: map[string]*structpb.Value{
		destinationSpace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			destinationHeader: structpb.NewStringValue(destination),
		}}),
	}}
	if s.cached.Add(1) > maxDestinations { // pods come and go; theirs stay until then
		s.destinations.Clear()
		s.cached.Store(0)
	}
	s.destinations.Store(destination, m)
	return m
}

// refused is an error as the client sees it: status, code and type in the shape
// of OpenAI's API.
type refused struct {
	status  typev3.StatusCode
	kind    string // error.type
	code    string // error.code
	message string
	param   string
	dropped string // why it was dropped, for the header; empty where there is another reason
}

// dropHeader says why a request was dropped (endpoint-picker.md 1.2, 1.6). All of
// ours begin with "rejected": none of these requests reached a worker.
const dropHeader = "x-llm-d-request-dropped-reason"

// Drop reasons.
const (
	droppedBusy    = "rejected-saturated"
	droppedExpired = "rejected-ttl-expired"
	droppedNowhere = "rejected-no-endpoints"
)

// retryAfter is what a client is told to wait, in seconds: load changes within that.
const retryAfter = "1"

func refusal(err error) refused {
	var bad *prompt.Error
	var large bodyTooLargeError
	switch {
	case errors.As(err, &bad):
		return refused{typev3.StatusCode_BadRequest, "invalid_request_error", bad.Code, bad.Error(), bad.Param, ""}
	case errors.As(err, &large):
		return refused{typev3.StatusCode_PayloadTooLarge, "invalid_request_error", "body_too_large", err.Error(), "", ""}
	case errors.Is(err, pick.ErrBusy):
		return tooBusy(err)
	}
	r := refused{typev3.StatusCode_ServiceUnavailable, "service_unavailable", "no_endpoint", err.Error(), "", droppedNowhere}
	switch {
	case errors.Is(err, pick.ErrSubset):
		r.code = "no_endpoint_in_subset"
	case errors.Is(err, pick.ErrNoPrefill):
		r.code = "no_prefill_worker"
	}
	return r
}

// tooBusy refuses a request because all workers are busy.
func tooBusy(err error) refused {
	r := refused{typev3.StatusCode_TooManyRequests, "rate_limit_exceeded", "all_workers_busy", err.Error(), "", droppedBusy}
	switch {
	case errors.Is(err, errShed):
		r.code = "shed"
	case errors.Is(err, errQueueFull):
		r.code = "queue_full"
	case errors.Is(err, errDisplaced):
		r.code = "displaced"
	case errors.Is(err, errExpired):
		r.code, r.dropped = "queue_timeout", droppedExpired
	}
	return r
}

// immediate is the message that ends a request with a refusal.
func (r refused) immediate() *extprocv3.ProcessingResponse {
	var param any
	if r.param != "" {
		param = r.param
	}
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": r.message, "type": r.kind, "param": param, "code": r.code,
	}})
	if err != nil {
		body = []byte(`{"error":{"message":"the error itself could not be written","type":"internal","param":null,"code":null}}`)
	}
	set := []*corev3.HeaderValueOption{overwrite("content-type", "application/json")}
	if r.dropped != "" {
		set = append(set, overwrite(dropHeader, r.dropped))
	}
	if r.status == typev3.StatusCode_TooManyRequests {
		set = append(set, overwrite("retry-after", retryAfter))
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: r.status},
			Headers: &extprocv3.HeaderMutation{SetHeaders: set},
			Body:    body,
			Details: r.code,
		},
	}}
}
