package bench

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmodev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

const destination = "x-gateway-destination-endpoint"

func headers(pairs ...string) *extprocv3.HttpHeaders {
	h := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: h}
}

// The messages of a gateway in full duplex mode that are the same every time.
var (
	requestHeaders = &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(
			":authority", "bench.test", ":method", "POST", ":path", "/v1/completions", ":scheme", "http",
			"content-type", "application/json", "user-agent", "bench", "accept", "*/*", "x-forwarded-proto", "http",
			"x-request-id", "4a0ff0a6-2f4f-4b64-b1b7-6ac7a6bdbd7d")},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  procmodev3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: procmodev3.ProcessingMode_FULL_DUPLEX_STREAMED,
		},
	}
	responseHeaders = &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(
			":status", "200", "content-type", "text/event-stream")},
	}
	responseBody = &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{
			Body:        []byte("data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\ndata: [DONE]\n\n"),
			EndOfStream: true,
		}},
	}
)

func requestChunk(data []byte, last bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: data, EndOfStream: last},
	}}
}

// What the floor server answers.

func fixedDestination(endpoint string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
				Header: &corev3.HeaderValue{Key: destination, RawValue: []byte(endpoint)},
			}}},
		}},
	}}
}

func echo(b *extprocv3.HttpBody) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body: b.GetBody(), EndOfStream: b.GetEndOfStream(),
		}},
	}}}
}

func echoRequest(b *extprocv3.HttpBody) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: echo(b)}}
}

func echoResponse(b *extprocv3.HttpBody) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: echo(b)}}
}
