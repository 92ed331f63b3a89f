package app

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func headerMessage(pairs ...string) *extprocv3.HttpHeaders {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: m}
}

// answered sends a request with a prompt of nine tokens, and a response of five that
// goes on. It waits until the picker has passed them.
func (r *running) answered(t *testing.T) (end func()) {
	t.Helper()
	conn, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, body := tokens(1, 9)
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headerMessage(":method", "POST", ":path", completions)}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headerMessage(":status", "200", "content-type", "text/event-stream")}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(strings.Repeat("data: {}\n\n", 5))}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if reply.GetResponseBody() != nil {
			return func() { conn.Close() }
		}
	}
}

// TestTrackOutputBlocks: the policy says whether the output of a response counts as
// it grows.
func TestTrackOutputBlocks(t *testing.T) {
	const blocks = `warmpath_worker_decode_blocks{rank="0",worker_id="31"}`
	for cost, want := range map[string]float64{
		"{}":                         3,
		"{model: Dynamo}":            3,
		"{trackOutputBlocks: false}": 3,
		"{trackOutputBlocks: true}":  4, // the prompt leaves room for three tokens
		"{model: Dynamo, trackOutputBlocks: true}": 4,
	} {
		t.Run(cost, func(t *testing.T) {
			r := start(t, noEvents+"\ntokenizer: {disabled: true}\ncost: "+cost, aggregated)
			r.waitReady(t)
			end := r.answered(t)
			if got := r.metric(t, blocks); got != want {
				t.Errorf("%v blocks, want %v", got, want)
			}
			end()
			r.waitMetric(t, blocks, 0)
		})
	}
}
