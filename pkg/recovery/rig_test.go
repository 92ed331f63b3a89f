package recovery

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds waits for what takes milliseconds.
const patience = time.Minute

var versions = []string{"1.2.1", "1.6.1"}

// recording is one captured exchange with a real worker.
type recording struct {
	Query    json.RawMessage `json:"query"`
	Codec    string          `json:"codec"`
	Request  []byte          `json:"request_b64"`
	Ack      []byte          `json:"ack_b64"`
	Response []byte          `json:"response_b64"`
	Frames   []struct {
		Header json.RawMessage `json:"header"`
		Body   json.RawMessage `json:"body"`
	} `json:"frames"`

	asked struct {
		WorkerID uint64  `json:"worker_id"`
		Rank     uint32  `json:"dp_rank"`
		From     *uint64 `json:"start_event_id"`
		To       *uint64 `json:"end_event_id"`
	}
	heard heardRequest
}

func (r *recording) request() Request {
	return Request{WorkerID: r.asked.WorkerID, Rank: r.asked.Rank, From: r.asked.From, To: r.asked.To}
}

// record reads a capture: what it was recorded from, and the exchanges.
func record(t testing.TB, version string) (Source, []*recording) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "captures", "dynamo", version+"-recovery.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	var source Source
	var all []*recording
	for lines.Scan() {
		if source.Path == "" {
			var first struct{ Instance json.RawMessage }
			must(t, json.Unmarshal(lines.Bytes(), &first))
			// The recorded object is an endpoint's, also of 1.6.1: the worker is known
			// from it, the rank there is 0.
			if source.Target, err = ParseTransport(first.Instance); err != nil {
				t.Fatal(err)
			}
			var instance struct {
				ID uint64 `json:"instance_id"`
			}
			must(t, json.Unmarshal(first.Instance, &instance))
			source.WorkerID = instance.ID
			continue
		}
		r := &recording{}
		must(t, json.Unmarshal(lines.Bytes(), r))
		must(t, json.Unmarshal(r.Query, &r.asked))
		if r.heard, err = hear(bytes.NewReader(r.Request)); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	must(t, lines.Err())
	if len(all) != 7 {
		t.Fatalf("%d exchanges of %s, want 7", len(all), version)
	}
	return source, all
}

// heardRequest is a request as a worker reads it.
type heardRequest struct {
	raw     []byte // all of it
	path    string
	headers map[string]string
	header  struct {
		ID           string `json:"id"`
		PayloadCodec string `json:"payload_codec"`
		Connection   struct {
			Transport string `json:"transport"`
			Info      string `json:"info"`
		} `json:"connection_info"`
	}
	info struct {
		Address    string `json:"address"`
		Subject    string `json:"subject"`
		Context    string `json:"context"`
		StreamType string `json:"stream_type"`
	}
	body []byte
}

// hear reads a request. It shares no code with what writes one.
func hear(r io.Reader) (h heardRequest, err error) {
	var raw bytes.Buffer
	r = io.TeeReader(r, &raw)
	take := func(n uint64) []byte {
		b := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		return b
	}
	h.path = string(take(uint64(binary.BigEndian.Uint16(take(2)))))
	headers := take(uint64(binary.BigEndian.Uint16(take(2))))
	payload := take(uint64(binary.BigEndian.Uint32(take(4))))
	if err != nil {
		return h, err
	}
	h.raw = raw.Bytes()
	n := binary.BigEndian.Uint64(payload[:8])
	for _, part := range []struct {
		b    []byte
		into any
	}{{headers, &h.headers}, {payload[24 : 24+n], &h.header}} {
		if err := json.Unmarshal(part.b, part.into); err != nil {
			return h, err
		}
	}
	h.body = payload[24+n:]
	return h, json.Unmarshal([]byte(h.header.Connection.Info), &h.info)
}

// fakeWorker takes requests and does with them what a test says.
type fakeWorker struct {
	t testing.TB
	l net.Listener
}

// startWorker serves requests, each on its own connection, until the test ends.
// Handle must return then.
func startWorker(t testing.TB, handle func(ctx context.Context, conn net.Conn, h heardRequest)) *fakeWorker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorker{t: t, l: l}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		running := make(chan struct{}, 1024)
		defer func() {
			for range cap(running) {
				running <- struct{}{}
			}
		}()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running <- struct{}{}
			go func() {
				defer func() { <-running }()
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				h, err := hear(conn)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("request: %v", err)
					}
					return
				}
				handle(ctx, conn, h)
			}()
		}
	}()
	t.Cleanup(func() {
		cancel()
		l.Close()
		<-done
	})
	return w
}

// target is the fake worker's endpoint, of Dynamo 1.2 for JSON.
func (w *fakeWorker) target(c Codec) Target {
	path := "1/dynamo/backend/worker_kv_query_source_1"
	if c == JSON {
		path = "1/" + oldEndpoint + "0"
	}
	return Target{Address: w.l.Addr().String(), Path: path, Codec: c}
}

var emptyAck = []byte{0, 0, 0, 0}

// say, drain and finish are what a worker does with a connection, whatever
// becomes of it.
func say(conn net.Conn, b []byte) { _, _ = conn.Write(b) }
func drain(conn net.Conn)         { _, _ = io.Copy(io.Discard, conn) }
func finish(conn net.Conn)        { _ = conn.(*net.TCPConn).CloseWrite() }

// greeting is the first frame of a dial-back.
func greeting(subject string) []byte {
	return appendFrame(nil, []byte(`{"subject":"`+subject+`","stream_type":"response"}`), nil)
}

// dial dials back to a client and sends bytes.
func dial(t testing.TB, address string, b []byte) net.Conn {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Errorf("dial back: %v", err)
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	say(conn, b)
	return conn
}

// stream is a whole answer after the greeting, as workers of 1.2 send it.
func stream(bodies ...string) []byte {
	b := appendFrame(nil, []byte(`{"error":null}`), nil)
	for _, body := range bodies {
		b = appendFrame(b, nil, []byte(body))
	}
	b = appendFrame(b, nil, []byte(`{"complete_final":true}`))
	return appendFrame(b, []byte(`"sentinel"`), nil)
}

// answerTo is a handler that acknowledges and sends an answer the right way.
func answerTo(t testing.TB, stream func(h heardRequest) []byte) func(context.Context, net.Conn, heardRequest) {
	return func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		back := dial(t, h.info.Address, append(greeting(h.info.Subject), stream(h)...))
		if back == nil {
			return
		}
		defer back.Close()
		drain(back)
	}
}

// startClient starts a client until the test ends.
func startClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, _ := startClientStop(t, cfg)
	return c
}

// startClientStop also returns what stops the client and waits.
func startClientStop(t testing.TB, cfg Config) (*Client, func()) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.DialTimeout, cfg.DialBackTimeout = cmp.Or(cfg.DialTimeout, patience), cmp.Or(cfg.DialBackTimeout, patience)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*patience)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.greetTimeout = patience
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("start: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-c.up:
	case <-time.After(patience):
		t.Fatal("the client does not listen")
	}
	return c, stop
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks that an error has words in it.
func wantError(t testing.TB, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
}
