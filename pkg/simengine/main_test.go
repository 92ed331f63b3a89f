package simengine

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testModel = "tiny"

// patience is how long a test waits for what takes milliseconds on an idle machine.
const patience = time.Minute

// start runs a worker until the test ends.
func start(t *testing.T, cfg Config) *Engine {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "worker-0"
	}
	if cfg.Model == "" {
		cfg.Model = testModel
	}
	if cfg.Generation == 0 {
		cfg.Generation = dynamo.Gen12
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return e
}

// startNATS runs a NATS server until the test ends and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server did not start")
	}
	return s.ClientURL()
}

// connect opens a NATS connection until the test ends.
func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(url, nats.Timeout(patience), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		<-closed
	})
	return conn
}

// client does not keep connections, so that none outlives a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func call(t *testing.T, e *Engine, method, path, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.Addr()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, data}
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// completion is what tests look at in an answer.
type completion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage            *usage          `json:"usage"`
	KVTransferParams *transferParams `json:"kv_transfer_params"`
}

// complete sends a request that must be answered well.
func complete(t *testing.T, e *Engine, ep endpoint, body any, headers ...string) (completion, http.Header) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := call(t, e, http.MethodPost, ep.path(), string(data), headers...)
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return decode[completion](t, r.body), r.header
}

// eventually waits until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// ids returns n token ids that depend on seed.
func ids(seed, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(1000*seed + i)
	}
	return out
}

type object = map[string]any
