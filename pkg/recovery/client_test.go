package recovery

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// one is a JSON answer of one stored block.
func one(worker, id uint64) string {
	return fmt.Sprintf(`{"data":{"Events":{"events":[{"worker_id":%d,"storage_tier":"device","event":{"event_id":%d,`+
		`"data":{"stored":{"parent_hash":null,"start_position":null,"blocks":[{"block_hash":%d,"tokens_hash":18446744073709551615,"mm_extra_info":null}]}},`+
		`"dp_rank":0}}],"last_event_id":%d}},"complete_final":false}`, worker, id, id+1, id)
}

var askOne = Request{WorkerID: 1}

// TestBadAnswers: whatever a worker sends instead of an answer is an error that
// says so, at once, and leaves nothing behind.
func TestBadAnswers(t *testing.T) {
	good := one(1, 7)
	prologue := appendFrame(nil, []byte(`{"error":null}`), nil)
	for _, c := range []struct {
		name  string
		bytes []byte
		is    error
		words string
	}{
		{"nothing", nil, io.ErrUnexpectedEOF, "prologue"},
		{"no answer", prologue, io.ErrUnexpectedEOF, "answer"},
		{"cut head", append(slices.Clip(prologue), 0, 0), io.ErrUnexpectedEOF, "answer"},
		{"refusal", appendFrame(nil, []byte(`{"error":"out of \u0041ir"}`), nil), nil, `worker says Refused: "out of Air"`},
		{"prologue that is no JSON", appendFrame(nil, []byte(`{`), nil), ErrProtocol, "prologue"},
		{"empty prologue", appendFrame(nil, nil, nil), ErrProtocol, "prologue"},
		{"prologue with a body", appendFrame(nil, []byte(`{"error":null}`), []byte("x")), ErrTooLarge, "prologue"},
		{"end at once", appendFrame(slices.Clip(prologue), []byte(controlEnd), nil), io.ErrUnexpectedEOF, "ended before"},
		{"control", appendFrame(slices.Clip(prologue), []byte(`"stop"`), nil), ErrProtocol, "stop"},
		{"random bytes", []byte(strings.Repeat("\x8f\x03\xc1z", 64)), ErrTooLarge, "frame"},
		{"huge header", binary.BigEndian.AppendUint64(nil, 1<<40), io.ErrUnexpectedEOF, "prologue"},
		{"empty body", stream(""), io.ErrUnexpectedEOF, "item"},
		{"no JSON", stream(`{"data":`), errNotJSON, "item"},
		{"no map", stream("\x93\x01\x02\x03"), ErrProtocol, "not a map"},
		{"only complete", stream(), ErrProtocol, "without an answer"},
		{"null", stream(`{"data":null,"complete_final":false}`), ErrProtocol, "without an answer"},
		{"two answers", stream(good, good), ErrProtocol, "second answer"},
		{"unknown kind", stream(`{"data":{"Weather":{}},"complete_final":false}`), ErrProtocol, "Weather"},
		{"two kinds", stream(`{"data":{"Error":"x","TooNew":{}}}`), ErrProtocol, "2 kinds"},
		{"an error", stream(`{"data":{"Error":"busy"}}`), nil, `worker says Error: "busy"`},
		{"long error", stream(`{"data":{"Error":"` + strings.Repeat("x", 9999) + `"}}`), nil, "x…"},
		{"failed dump", stream(`{"data":{"TreeDumpFailed":{"last_event_id":3,"message":"no"}}}`), nil, `worker says TreeDumpFailed: "no"`},
		{"part of a dump", stream(`{"data":{"TreeDump":{"events":[],"last_event_id":3,"reset_scope":"device"}}}`), ErrProtocol, "reset_scope"},
		{"no last id", stream(`{"data":{"Events":{"events":[]}}}`), ErrProtocol, "last_event_id"},
		{"no events", stream(`{"data":{"TreeDump":{"last_event_id":3}}}`), ErrProtocol, "events"},
		{"events that are none", stream(`{"data":{"Events":{"events":{},"last_event_id":3}}}`), ErrProtocol, "not an array"},
		{"last id of 1e3", stream(`{"data":{"Events":{"events":[],"last_event_id":1e3}}}`), ErrProtocol, "not an integer"},
		{"negative last id", stream(`{"data":{"Events":{"events":[],"last_event_id":-1}}}`), nil, "last_event_id"},
		{"last id of 65 bits", stream(`{"data":{"Events":{"events":[],"last_event_id":18446744073709551616}}}`), nil, "range"},
		{"hash of 65 bits", stream(strings.Replace(good, "18446744073709551615", "18446744073709551616", 1)), nil, "range"},
		{"hash with a fraction", stream(strings.Replace(good, "18446744073709551615", "1.0", 1)), ErrProtocol, "1 of 1 events cannot be read"},
		{"one bad event", stream(strings.Replace(good, `[{"worker_id"`, `[5,{"worker_id"`, 1)), ErrProtocol, "cannot be read"},
		{"another worker", stream(one(2, 7)), ErrOtherWorker, "1 was asked, 2 is in it"},
		{"too deep", stream(`{"data":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`), ErrTooLarge, "inside each other"},
		{"no new id", stream(`{"data":{"TooNew":{"requested_start":5}}}`), ErrProtocol, "newest_available"},
		{"bytes after msgpack", stream("\x80\x80"), ErrProtocol, "follow"},
		{"too large", stream(`{"data":{"Error":"` + strings.Repeat("x", 1<<20) + `"}}`), ErrTooLarge, "answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := startClient(t, Config{MaxResponseBytes: 1 << 18})
			killed := make(chan string, 1)
			w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
				say(conn, emptyAck)
				back := dial(t, h.info.Address, append(greeting(h.info.Subject), c.bytes...))
				if back == nil {
					return
				}
				defer back.Close()
				finish(back)
				f, err := readFrame(back, 100, 0)
				killed <- fmt.Sprintf("%s %v", f.header, err)
			})
			a, err := client.Query(t.Context(), w.target(JSON), askOne)
			wantError(t, err, c.words)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
			if _, remote := errors.AsType[*RemoteError](err); remote != strings.Contains(c.words, "x…") && remote != strings.Contains(c.words, "worker says") {
				t.Errorf("error %v is a RemoteError: %v", err, remote)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			if a.Kind != 0 || a.Events != nil {
				t.Errorf("an answer beside the error: %+v", a)
			}
			// The worker hears of it, by word or, where its bytes were not all read, by a
			// reset.
			if got := <-killed; got != controlKill+" <nil>" && !strings.Contains(got, "reset") {
				t.Errorf("the worker heard %q", got)
			}
			if s := client.Stats(); s.Queries != 1 || s.Failed != 1 || s.DialBacks != 1 || len(client.calls) != 0 {
				t.Errorf("stats %+v, %d calls", s, len(client.calls))
			}
		})
	}
}

// TestBadAcknowledgements: a worker that does not take the request.
func TestBadAcknowledgements(t *testing.T) {
	for _, c := range []struct {
		name  string
		ack   string
		is    error
		words string
	}{
		{"closed", "", io.EOF, "acknowledgement"},
		{"cut", "\x00\x00", io.ErrUnexpectedEOF, "acknowledgement"},
		{"words", "\x00\x00\x00\x04busy", nil, `Refused: "busy"`},
		{"cut words", "\x00\x00\x00\x05busy", io.ErrUnexpectedEOF, "acknowledgement"},
		{"huge", "\xff\xff\xff\xff", ErrTooLarge, "acknowledgement"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := startClient(t, Config{})
			w := startWorker(t, func(_ context.Context, conn net.Conn, _ heardRequest) { say(conn, []byte(c.ack)) })
			_, err := client.Query(t.Context(), w.target(JSON), askOne)
			wantError(t, err, c.words)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
		})
	}
	client := startClient(t, Config{})
	w := startWorker(t, nil)
	target := w.target(JSON)
	w.l.Close()
	_, err := client.Query(t.Context(), target, askOne)
	wantError(t, err, "refused")
}

// hold is a handler that acknowledges and then waits for the client to leave.
func hold(_ context.Context, conn net.Conn, _ heardRequest) {
	say(conn, emptyAck)
	drain(conn)
}

// TestTimeouts: each stage has its own end.
func TestTimeouts(t *testing.T) {
	slowAnswer := func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		if back := dial(t, h.info.Address, append(greeting(h.info.Subject), stream(one(1, 1))[:200]...)); back != nil {
			defer back.Close()
			drain(back)
		}
	}
	for _, c := range []struct {
		name   string
		cfg    Config
		handle func(context.Context, net.Conn, heardRequest)
		is     error
		words  string
	}{
		{"acknowledgement", Config{DialTimeout: 50 * time.Millisecond}, func(_ context.Context, conn net.Conn, _ heardRequest) {
			drain(conn)
		}, context.DeadlineExceeded, "took no request within 50ms"},
		{"dial-back", Config{DialBackTimeout: 50 * time.Millisecond}, hold, ErrNoDialBack, "NetworkPolicy"},
		{"whole, before the dial-back", Config{Timeout: 50 * time.Millisecond}, hold, context.DeadlineExceeded, "timeout"},
		{"whole, within the answer", Config{Timeout: 200 * time.Millisecond}, slowAnswer, context.DeadlineExceeded, "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := startClient(t, c.cfg)
			_, err := client.Query(t.Context(), startWorker(t, c.handle).target(JSON), askOne)
			if !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
			wantError(t, err, c.words)
		})
	}
}

// tardy is a context whose deadline has passed, and that ends when that is waited for.
type tardy struct {
	context.Context
	end func()
}

func (tardy) Deadline() (time.Time, bool) { return time.Now(), true }

func (c tardy) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

// TestDeadlineSeenEarly: an error of the network that sees a deadline before its
// context does is that of the context.
func TestDeadlineSeenEarly(t *testing.T) {
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if err := causeOr(tardy{ctx, func() { cancel(over) }}, os.ErrDeadlineExceeded); !errors.Is(err, over) {
		t.Errorf("error %v, want %v", err, over)
	}
}

// TestCancel: a caller that leaves makes the worker stop.
func TestCancel(t *testing.T) {
	client := startClient(t, Config{})
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	heard := make(chan string, 1)
	w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		back := dial(t, h.info.Address, append(greeting(h.info.Subject), stream(one(1, 1))[:100]...))
		if back == nil {
			return
		}
		defer back.Close()
		eventually(t, "the dial-back is taken", func() bool { return client.Stats().DialBacks == 1 })
		cancel(gone)
		f, err := readFrame(back, 100, 0)
		heard <- fmt.Sprintf("%s %v", f.header, err)
	})
	_, err := client.Query(ctx, w.target(JSON), askOne)
	if !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
	// Where some of its bytes are not read yet, a reset may come before the word.
	if got := <-heard; got != controlKill+" <nil>" && !strings.Contains(got, "reset") {
		t.Errorf("the worker heard %q", got)
	}
	if n := len(client.calls); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// TestStrangers: only the dial-back that is waited for, and it only once, gets in.
func TestStrangers(t *testing.T) {
	client := startClient(t, Config{})
	closed := func(what, address string, b []byte) {
		conn := dial(t, address, b)
		if conn == nil {
			return
		}
		defer conn.Close()
		finish(conn)
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%s is answered", what)
		} else if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
			t.Errorf("%s is not closed", what)
		}
	}
	var late sync.WaitGroup
	bad := uint64(0)
	w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		for what, b := range map[string][]byte{
			"an unknown id":      greeting("00000000-0000-4000-8000-000000000001"),
			"no id":              greeting(""),
			"a request stream":   appendFrame(nil, []byte(`{"subject":"`+h.info.Subject+`","stream_type":"request"}`), nil),
			"garbage":            []byte(strings.Repeat("\x00", 20) + "garbage garbage"),
			"a bare connection":  nil,
			"a greeting, cut":    greeting(h.info.Subject)[:40],
			"a long greeting":    appendFrame(nil, make([]byte, maxGreeting+1), nil),
			"a greeting as body": appendFrame(nil, nil, []byte(`{"subject":"`+h.info.Subject+`","stream_type":"response"}`)),
			"a number":           appendFrame(nil, []byte("7"), nil),
		} {
			bad++
			closed(what, h.info.Address, b)
		}
		back := dial(t, h.info.Address, greeting(h.info.Subject))
		if back == nil {
			return
		}
		defer back.Close()
		eventually(t, "the dial-back is taken", func() bool { return client.Stats().DialBacks == 1 })
		closed("a second dial-back", h.info.Address, append(greeting(h.info.Subject), stream(one(1, 666))...))
		say(back, stream(one(1, 5)))
		drain(back)
		late.Go(func() {
			closed("a late dial-back", h.info.Address, append(greeting(h.info.Subject), stream(one(1, 666))...))
		})
	})
	a, err := client.Query(t.Context(), w.target(JSON), askOne)
	must(t, err)
	if a.Kind != Events || a.LastEventID != 5 || len(a.Events) != 1 || a.Events[0].Blocks[0].Hash != 1<<64-1 {
		t.Errorf("answer %+v", a)
	}
	eventually(t, "all others are refused", func() bool { return client.Stats().Refused == bad+2 })
	late.Wait()
}

// TestDialBackBound: silent connections fill their places and no more, and give
// them back when the client stops.
func TestDialBackBound(t *testing.T) {
	const most, more = 3, 7
	client, stop := startClientStop(t, Config{MaxDialBacks: most})
	var silent []net.Conn
	for range most + more {
		conn := dial(t, client.listener.Addr().String(), nil)
		if conn == nil {
			t.FailNow()
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	for _, conn := range silent[most:] {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one too many is not refused: %v", err)
		}
	}
	for _, conn := range silent[:most] { // those that came first
		must(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond))) // its end would be there at once
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one that had a place is refused: %v", err)
		}
		must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	}
	stop()
	for _, conn := range silent[:most] {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a silent connection is answered")
		}
	}
	if s := client.Stats(); s.Refused != most+more || s.DialBacks != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestStop: queries end when the client does, whatever they wait for.
func TestStop(t *testing.T) {
	client, stop := startClientStop(t, Config{MaxQueries: 2})
	waiting := atomic.Int32{}
	w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		if waiting.Add(1) == 1 {
			if back := dial(t, h.info.Address, greeting(h.info.Subject)); back != nil {
				defer back.Close()
				drain(back)
			}
		}
		drain(conn)
	})
	results := make(chan error, 5)
	for range cap(results) {
		go func() {
			_, err := client.Query(context.WithoutCancel(t.Context()), w.target(JSON), askOne)
			results <- err
		}()
	}
	eventually(t, "two run, three wait", func() bool {
		return waiting.Load() == 2 && client.Stats().Queries == 5 && client.Stats().DialBacks == 1
	})
	stop()
	for range cap(results) {
		if err := <-results; !errors.Is(err, ErrStopped) {
			t.Errorf("error %v, want %v", err, ErrStopped)
		}
	}
	if _, err := client.Query(t.Context(), w.target(JSON), askOne); !errors.Is(err, ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	wantError(t, client.Start(t.Context()), "twice")
}

// TestStartFails: without a listener no query waits.
func TestStartFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := New(Config{Listen: l.Addr().String(), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	wantError(t, c.Start(t.Context()), "listen for dial-backs")
	if _, err := c.Query(t.Context(), Target{Address: "127.0.0.1:1", Path: "x", Codec: Msgpack}, askOne); !errors.Is(err, ErrStopped) {
		t.Errorf("error %v, want %v", err, ErrStopped)
	}
}

// TestConcurrentQueries: many at once, answered out of order, each gets its own.
func TestConcurrentQueries(t *testing.T) {
	const queries, together = 64, 8
	client := startClient(t, Config{MaxQueries: together})
	ready := make(chan func(), together)
	w := startWorker(t, func(ctx context.Context, conn net.Conn, h heardRequest) {
		var asked struct {
			ID   uint64  `json:"worker_id"`
			From *uint64 `json:"start_event_id"`
		}
		must(t, json.Unmarshal(h.body, &asked))
		done := make(chan struct{})
		send := func() {
			defer close(done)
			answerTo(t, func(heardRequest) []byte { return stream(one(asked.ID, *asked.From)) })(ctx, conn, h)
		}
		select {
		case ready <- send:
			<-done
		case <-ctx.Done():
		}
	})
	// Answers go out when all places are taken, the last request first.
	var order sync.WaitGroup
	defer order.Wait()
	order.Go(func() {
		for range queries / together {
			var sends []func()
			for range together {
				sends = append(sends, <-ready)
			}
			for i := range sends {
				sends[len(sends)-1-i]()
			}
		}
	})
	var g errgroup.Group
	for i := range uint64(queries) {
		g.Go(func() error {
			from := 1<<63 + i
			a, err := client.Query(t.Context(), w.target(JSON), Request{WorkerID: i, From: &from})
			if err == nil && (a.LastEventID != from || len(a.Events) != 1 || a.Events[0].WorkerID != i ||
				a.Events[0].ID != from || a.Events[0].Blocks[0].Engine != kvevent.EngineHash(from+1)) {
				err = fmt.Errorf("query %d is answered %+v", i, a)
			}
			return err
		})
	}
	must(t, g.Wait())
	if s := client.Stats(); s.Queries != queries || s.DialBacks != queries || s.Failed+s.Refused != 0 || len(client.calls) != 0 {
		t.Errorf("stats %+v, %d calls", s, len(client.calls))
	}
}

// TestIDsAreRandom: an id is a UUID of version 4, and no two are equal.
func TestIDsAreRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id, err := randomID()
		must(t, err)
		if len(id) != 36 || id[14] != '4' || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}
