package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// deadline is how long a test waits for something that must happen.
const deadline = time.Minute

// Workers of the tests. Ids are given, so that events can name them.
const (
	prefillA   = `- {name: prefill-a, address: 10.0.1.1, ports: [8000], labels: {DYN_COMPONENT: prefill}, workerID: "11"}` + "\n"
	prefillB   = `- {name: prefill-b, address: 10.0.1.2, ports: [8000], labels: {DYN_COMPONENT: prefill}, workerID: "12"}` + "\n"
	decodeA    = `- {name: decode-a, address: 10.0.2.1, ports: [8000], labels: {DYN_COMPONENT: decode}, workerID: "21"}` + "\n"
	decodeB    = `- {name: decode-b, address: 10.0.2.2, ports: [8000], labels: {DYN_COMPONENT: decode}, workerID: "22"}` + "\n"
	aggregated = `- {name: agg-a, address: 10.0.3.1, ports: [8000], workerID: "31"}` + "\n"
)

const noEvents = "eventPlane: {disabled: true}"

// running is a picker that runs.
type running struct {
	*App
	dir    string
	log    *logBuffer
	stop   context.CancelFunc
	result chan error // of Run
}

// files writes a configuration with the given spec, and a list of workers, into
// a folder of the test's own.
func files(t *testing.T, spec, workers string) (dir, config string) {
	t.Helper()
	dir = t.TempDir()
	writeWorkers(t, dir, workers)
	config = filepath.Join(dir, "epp.yaml")
	text := `
apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
server: {extProcAddress: "127.0.0.1:0", healthAddress: "127.0.0.1:0", metricsAddress: "127.0.0.1:0", recoveryAddress: "127.0.0.1:0", drainTimeout: 1ms}
discovery: {file: {path: workers.yaml}}
spec:
  blockSize: 4
  ` + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, config
}

// writeWorkers replaces the list of workers in one step, as tools do.
func writeWorkers(t *testing.T, dir, workers string) {
	t.Helper()
	if workers == "" {
		workers = "  []"
	}
	text := "apiVersion: routing.warmpath.dev/v1alpha1\nkind: WorkerList\nworkers:\n" + workers
	next := filepath.Join(dir, "workers.next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "workers.yaml")); err != nil {
		t.Fatal(err)
	}
}

// build makes a picker from files, without running it.
func build(t *testing.T, spec, workers string) (a *App, dir string, log *logBuffer) {
	t.Helper()
	dir, config := files(t, spec, workers)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	log = &logBuffer{}
	a, err = New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return a, dir, log
}

func start(t *testing.T, spec, workers string) *running {
	t.Helper()
	a, dir, log := build(t, spec, workers)
	return run(t, a, dir, log)
}

// run runs a picker until the test ends. Run must then return nil.
func run(t *testing.T, a *App, dir string, log *logBuffer) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{App: a, dir: dir, log: log, stop: stop, result: make(chan error, 1)}
	go func() { r.result <- a.Run(ctx) }()
	t.Cleanup(func() { r.shutdown(t) })
	return r
}

// shutdown ends the picker, once.
func (r *running) shutdown(t *testing.T) {
	t.Helper()
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.result:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(deadline):
		t.Error("Run did not return")
	}
}

func (r *running) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually(t, r.log, what, ok)
}

// eventually polls until ok says so.
func eventually(t *testing.T, log *logBuffer, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s\nlog:\n%s", deadline, what, log)
		}
	}
}

// client keeps no connections, so that none outlives a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: deadline}

// get reads a page of the metrics port.
func (r *running) get(t *testing.T, path string) (status int, text string) {
	t.Helper()
	resp, err := client.Get("http://" + r.MetricsAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// metric returns a series of /metrics, written as Prometheus does; -1 when it is
// not there.
func (r *running) metric(t *testing.T, series string) float64 {
	t.Helper()
	_, text := r.get(t, "/metrics")
	return metricIn(t, text, series)
}

func metricIn(t *testing.T, text, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// shows says whether all series have these values at once.
func (r *running) shows(t *testing.T, want map[string]float64) bool {
	t.Helper()
	_, text := r.get(t, "/metrics")
	for series, value := range want {
		if got := metricIn(t, text, series); got != value {
			return false
		}
	}
	return true
}

func (r *running) waitMetric(t *testing.T, series string, want float64) {
	t.Helper()
	r.eventually(t, fmt.Sprintf("%s is %v", series, want), func() bool { return r.metric(t, series) == want })
}

// waitReady waits until requests are welcome.
func (r *running) waitReady(t *testing.T) {
	t.Helper()
	r.eventually(t, "/readyz says 200", func() bool {
		status, _ := r.get(t, "/readyz")
		return status == http.StatusOK
	})
}

// ask sends one request with a body and returns the headers that the picker
// sets, nil when it refuses.
func (r *running) ask(t *testing.T, path, body string) map[string]string {
	t.Helper()
	conn, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte(path)},
		}}}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if reply.GetImmediateResponse() != nil {
		return nil
	}
	set := map[string]string{}
	for _, o := range reply.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		set[o.GetHeader().GetKey()] = string(o.GetHeader().GetRawValue())
	}
	return set
}

// startNATS runs a NATS server; port 0 means any.
func startNATS(t *testing.T, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return startServer(t, &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true})
}

// startServer runs a NATS server until the test ends.
func startServer(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { stopNATS(s) })
	if !s.ReadyForConnections(deadline) {
		t.Fatal("the NATS server did not start")
	}
	return s
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// waitSubscribed waits until NATS knows what the picker listens to.
func (r *running) waitSubscribed(t *testing.T, s *server.Server) {
	t.Helper()
	const peers = 3 // subjects on which other replicas ask, and tell what they have under way
	subs := len(dynamo.KVEventSubjects()) + len(dynamo.LoadSubjects()) + peers
	r.eventually(t, "the picker has subscribed", func() bool {
		conns, err := s.Connz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(conns.Conns, func(c *server.ConnInfo) bool { return c.Name == "warmpath" && int(c.NumSubs) == subs })
	})
}

// publish sends events as a worker does.
func publish(t *testing.T, s *server.Server, gen dynamo.Generation, component string, events ...kvevent.Event) {
	t.Helper()
	data, err := dynamo.AppendMessage(nil, gen, dynamo.Envelope{PublisherID: events[0].WorkerID}, events)
	if err != nil {
		t.Fatal(err)
	}
	publishBytes(t, s, dynamo.EventSubject(gen, "ns", component, "generate"), data)
}

// publishLoad sends a load message as a worker or a router does.
func publishLoad(t *testing.T, s *server.Server, gen dynamo.Generation, component string, l dynamo.Load) {
	t.Helper()
	data, err := dynamo.AppendLoad(nil, dynamo.Envelope{PublisherID: 5}, &l)
	if err != nil {
		t.Fatal(err)
	}
	publishBytes(t, s, dynamo.LoadSubject(gen, l.Kind.String(), "ns", component, "generate"), data)
}

func publishBytes(t *testing.T, s *server.Server, subject string, data []byte) {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(s.ClientURL(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		conn.Close()
		<-closed
	}()
	if err := conn.Publish(subject, data); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// stored is the event that a worker stored a prompt's blocks.
func stored(worker, id uint64, tokens []uint32) kvevent.Event {
	ev := kvevent.Event{WorkerID: worker, ID: id, Kind: kvevent.Stored}
	for i, h := range (block.Layout{Size: 4}).AppendHashes(nil, tokens, block.NewSeed("", "")) {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(1000*id + uint64(i)), Hash: h})
	}
	return ev
}

// tokens returns n token ids and a completion request with them.
func tokens(from uint32, n int) (ids []uint32, body string) {
	text := make([]string, n)
	for i := range n {
		ids = append(ids, from+uint32(i))
		text[i] = strconv.FormatUint(uint64(ids[i]), 10)
	}
	return ids, `{"model":"m","prompt":[` + strings.Join(text, ",") + `]}`
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }
