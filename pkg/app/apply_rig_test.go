package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/nats-io/nats-server/v2/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// noText turns tokenizers off.
const noText = "tokenizer: {disabled: true}\n"

// heardFrom is a spec that hears a NATS server.
func heardFrom(ns *server.Server) string {
	return "eventPlane: {nats: {url: \"" + ns.ClientURL() + "\"}}"
}

// changed is the spec in use with a change.
func (r *running) changed(change func(*v1alpha1.RoutingPolicySpec)) *v1alpha1.RoutingPolicySpec {
	spec := r.current.Load().spec.DeepCopy()
	change(spec)
	return spec
}

// alive is the number of generations that are not over.
func (r *running) alive() int {
	r.pooling.Lock()
	defer r.pooling.Unlock()
	return len(r.generations)
}

// apply changes the policy.
func (r *running) apply(t *testing.T, change func(*v1alpha1.RoutingPolicySpec)) {
	t.Helper()
	if err := r.Apply(t.Context(), r.changed(change)); err != nil {
		t.Fatalf("Apply: %v\nlog:\n%s", err, r.log)
	}
}

// caller has a connection to the picker, as a gateway does.
type caller struct {
	t      *testing.T
	client extprocv3.ExternalProcessorClient
}

func (r *running) call(t *testing.T) caller {
	t.Helper()
	conn, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return caller{t, extprocv3.NewExternalProcessorClient(conn)}
}

// request is one request under way.
type request struct {
	t      *testing.T
	stream extprocv3.ExternalProcessor_ProcessClient
	end    context.CancelFunc
}

// begin sends the headers of a request.
func (c caller) begin(path string) *request {
	c.t.Helper()
	ctx, end := context.WithTimeout(context.Background(), deadline)
	stream, err := c.client.Process(ctx)
	if err != nil {
		end()
		c.t.Fatal(err)
	}
	q := &request{c.t, stream, end}
	c.t.Cleanup(end)
	q.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte(path)}}},
	}}})
	return q
}

func (q *request) send(m *extprocv3.ProcessingRequest) {
	q.t.Helper()
	if err := q.stream.Send(m); err != nil {
		q.t.Error(err)
	}
}

// routed sends the body and returns the headers that the picker sets; nil, and an
// error of the test, when the request is lost.
func (q *request) routed(body string) map[string]string {
	q.t.Helper()
	q.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true},
	}})
	reply, err := q.stream.Recv()
	if err != nil {
		q.t.Errorf("the request is lost: %v", err)
		return nil
	}
	if reply.GetRequestHeaders() == nil {
		q.t.Errorf("not routed: %v", reply)
	}
	set := map[string]string{}
	for _, o := range reply.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		set[o.GetHeader().GetKey()] = string(o.GetHeader().GetRawValue())
	}
	if _, err := q.stream.Recv(); err != nil {
		q.t.Errorf("the body is lost: %v", err)
	}
	return set
}

// finish ends the request as a gateway does, and waits for the picker.
func (q *request) finish() {
	q.t.Helper()
	defer q.end()
	if err := q.stream.CloseSend(); err != nil {
		q.t.Error(err)
	}
	if m, err := q.stream.Recv(); !errors.Is(err, io.EOF) {
		q.t.Errorf("the end: %v, %v", m, err)
	}
}

// wantIdle waits until no request is open, and wants no load to be left then.
func (r *running) wantIdle(t *testing.T) {
	t.Helper()
	r.waitMetric(t, "warmpath_streams", 0)
	r.load.Read(func(k fleet.Key, f load.Figures) {
		if f != (load.Figures{}) {
			t.Errorf("worker %s has %+v with no request under way", k, f)
		}
	})
}

// counters reads all counters.
func (r *running) counters(t *testing.T) map[string]float64 {
	t.Helper()
	_, text := r.get(t, "/metrics")
	all := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^(warmpath_[a-z_]+_total(?:\{[^}]*\})?) (\S+)$`).FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = v
	}
	if len(all) == 0 {
		t.Fatal("no counters")
	}
	return all
}

// connections counts the pickers that are connected to a NATS server.
func connections(t *testing.T, s *server.Server) int {
	t.Helper()
	conns, err := s.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range conns.Conns {
		if c.Name == "warmpath" {
			n++
		}
	}
	return n
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
