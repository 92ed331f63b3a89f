package eventplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// startJetStream runs a NATS server that keeps its streams in dir.
func startJetStream(t testing.TB, port int, dir string) (address string, s *server.Server, stop func()) {
	t.Helper()
	s, stop = runServer(t, &server.Options{Port: port, MaxPayload: 16 << 20, MaxPending: 256 << 20, JetStream: true, StoreDir: dir})
	return s.ClientURL(), s, stop
}

// persistent is a connection that comes back as fast as it can, closed when the
// test ends.
func persistent(t testing.TB, address string, options ...nats.Option) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(address, append([]nats.Option{
		nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		<-closed
	})
	return conn
}

func jetStreamOf(t testing.TB, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func kvStream() streamConfig {
	return streamConfig{Name: "kv", Subjects: capturedSubjects(), Storage: jetstream.FileStorage}
}

// mustOpen opens a stream whose consumers are soon given up.
func mustOpen(t testing.TB, conn *nats.Conn, cfg streamConfig) *stream {
	t.Helper()
	var s *stream
	waitFor(t, "the stream is not opened", func() bool {
		var err error
		if s, err = openStream(t.Context(), jetStreamOf(t, conn), cfg); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	})
	s.heartbeat, s.patience = 100*time.Millisecond, time.Minute
	return s
}

// numbered publishes messages that hold their number, and returns when the server
// has them.
func numbered(t testing.TB, conn *nats.Conn, from, to uint64) {
	t.Helper()
	for n := from; n < to; n++ {
		subject := componentSubject
		if n%2 == 1 {
			subject = endpointSubject
		}
		publish(t, conn, subject, binary.LittleEndian.AppendUint64(nil, n))
	}
	flush(t, conn)
}

// holds waits until the stream has a message with that number.
func (s *stream) holds(t testing.TB, last uint64) {
	t.Helper()
	waitFor(t, "the stream does not take all", func() bool {
		info, err := s.info(t.Context())
		return err == nil && info.Last == last
	})
}

// streamListener notes what a stream delivers.
type streamListener struct {
	stop func() error // ends consume and returns its error
	done chan struct{}

	mu      sync.Mutex
	numbers []uint64
	places  []uint64
	lost    uint64
	block   chan struct{} // deliver waits for it
	stands  bool          // deliver does
}

func listen(t testing.TB, s *stream, from uint64) *streamListener {
	t.Helper()
	l := &streamListener{done: make(chan struct{})}
	l.start(t, s, from)
	return l
}

func (l *streamListener) start(t testing.TB, s *stream, from uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	go func() {
		defer close(l.done)
		err = s.consume(ctx, from, l.take, func(n uint64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lost += n
		})
	}()
	l.stop = func() error {
		cancel()
		<-l.done
		return err
	}
	t.Cleanup(func() { _ = l.stop() })
}

func (l *streamListener) take(m *nats.Msg, seq uint64, _ time.Time) {
	l.mu.Lock()
	block := l.block
	l.stands = block != nil
	l.mu.Unlock()
	if block != nil {
		<-block
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers = append(l.numbers, binary.LittleEndian.Uint64(m.Data))
	l.places = append(l.places, seq)
}

// hold makes the reader stand still at the next message, until goOn.
func (l *streamListener) hold(t testing.TB) (goOn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	block := make(chan struct{})
	l.block = block
	goOn = sync.OnceFunc(func() { close(block) })
	t.Cleanup(goOn)
	return goOn
}

func (l *streamListener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.numbers)
}

// want waits for the numbers from first to last-1 and checks that each came once,
// in order.
func (l *streamListener) want(t testing.TB, first, last uint64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the messages %d to %d do not come", first, last), func() bool { return l.count() >= int(last-first) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range l.numbers {
		if n != first+uint64(i) {
			t.Fatalf("message %d is number %d, want %d", i, n, first+uint64(i))
		}
		if i > 0 && l.places[i] <= l.places[i-1] {
			t.Fatalf("sequence %d after %d", l.places[i], l.places[i-1])
		}
	}
	if len(l.numbers) != int(last-first) {
		t.Fatalf("%d messages, want %d", len(l.numbers), last-first)
	}
}

func (l *streamListener) wantLost(t testing.TB, n uint64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != n {
		t.Errorf("%d messages are said to be lost, want %d", l.lost, n)
	}
}

// TestStreamFromTheStart: what was published before, and what is later, each once,
// from any sequence on.
func TestStreamFromTheStart(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	numbered(t, conn, 1, 101)
	s.holds(t, 100)
	all, some := listen(t, s, 0), listen(t, s, 41)
	all.want(t, 1, 101)
	some.want(t, 41, 101)
	numbered(t, conn, 101, 201)
	all.want(t, 1, 201)
	some.want(t, 41, 201)
	all.wantLost(t, 0)
	info, err := s.info(t.Context())
	if err != nil || info.First != 1 || info.Last != 200 || info.Messages != 200 || info.Bytes == 0 || !info.Created.Equal(s.created) {
		t.Errorf("%+v, %v", info, err)
	}
	if err := all.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("consume ends with %v", err)
	}
}

// TestStreamIsInvisible: who publishes with a reply subject gets no answer from it.
func TestStreamIsInvisible(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	l := listen(t, s, 0)
	answers, err := conn.SubscribeSync("answers")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.PublishRequest(componentSubject, "answers", binary.LittleEndian.AppendUint64(nil, 1)); err != nil {
		t.Fatal(err)
	}
	l.want(t, 1, 2)
	if n, _, err := answers.Pending(); n != 0 || err != nil {
		t.Errorf("%d answers, %v", n, err)
	}
}

// TestStreamResumes: connections that break, again and again, lose and repeat
// nothing.
func TestStreamResumes(t *testing.T) {
	address, srv, _ := startJetStream(t, anyPort, t.TempDir())
	conn, publisher := persistent(t, address), persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	l := listen(t, s, 0)
	id, err := conn.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		numbered(t, publisher, 1+400*i, 201+400*i)
		before := l.count()
		if err := srv.DisconnectClientByID(id); err != nil {
			t.Fatal(err)
		}
		numbered(t, publisher, 201+400*i, 401+400*i)
		waitFor(t, "the connection does not come back", func() bool {
			now, err := conn.GetClientID()
			changed := err == nil && now != id
			if changed {
				id = now
			}
			return changed
		})
		waitFor(t, "nothing comes after the break", func() bool { return l.count() > before })
	}
	l.want(t, 1, 2001)
	l.wantLost(t, 0)
}

// TestStreamOverServerRestart: the server forgets the consumer, not the stream.
func TestStreamOverServerRestart(t *testing.T) {
	dir := t.TempDir()
	address, _, stop := startJetStream(t, anyPort, dir)
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	l := listen(t, s, 0)
	numbered(t, conn, 1, 101)
	l.want(t, 1, 101)
	stop()
	startJetStream(t, portOf(t, address), dir)
	publisher := persistent(t, address)
	numbered(t, publisher, 101, 201)
	l.want(t, 1, 201)
	l.wantLost(t, 0)
}

// TestStreamReplacesItsConsumer: one that is deleted under the reader is made anew.
func TestStreamReplacesItsConsumer(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	l := listen(t, s, 0)
	numbered(t, conn, 1, 11)
	l.want(t, 1, 11)
	for range 3 {
		deleteConsumers(t, s)
	}
	numbered(t, conn, 11, 21)
	l.want(t, 1, 21)
}

func deleteConsumers(t *testing.T, s *stream) {
	t.Helper()
	str, err := s.js.Stream(t.Context(), s.name)
	if err != nil {
		t.Fatal(err)
	}
	names := str.ConsumerNames(t.Context())
	for name := range names.Name() {
		if err := s.js.DeleteConsumer(t.Context(), s.name, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestStreamWaitsForTheReader: a reader that stands still misses nothing, though
// far more is published than the connection takes.
func TestStreamWaitsForTheReader(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn, publisher := persistent(t, address), persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	l := &streamListener{done: make(chan struct{}), block: make(chan struct{})}
	l.start(t, s, 0)
	const messages, size = 1500, 64 << 10 // about 94 MiB
	body := make([]byte, size)
	for n := range uint64(messages) {
		binary.LittleEndian.PutUint64(body, n+1)
		publish(t, publisher, componentSubject, body)
	}
	flush(t, publisher)
	s.holds(t, messages)
	close(l.block)
	l.want(t, 1, messages+1)
	l.wantLost(t, 0)
}

// TestStreamDropsWhatIsOld: what the limits take away before it is read is counted.
func TestStreamDropsWhatIsOld(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	numbered(t, conn, 1, 101)
	s.holds(t, 100)
	str, err := s.js.Stream(t.Context(), s.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := str.Purge(t.Context(), jetstream.WithPurgeSequence(61)); err != nil {
		t.Fatal(err)
	}
	resumed, fresh := listen(t, s, 21), listen(t, s, 0)
	resumed.want(t, 61, 101)
	resumed.wantLost(t, 40)
	fresh.want(t, 61, 101)
	fresh.wantLost(t, 0) // it asked for what there is
	// And under the eyes of a reader.
	if err := str.DeleteMsg(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	late := listen(t, s, 99)
	numbered(t, conn, 101, 102)
	waitFor(t, "the message after the hole does not come", func() bool { return late.count() == 2 })
	late.wantLost(t, 1)
}

// TestStreamThatGoesAway ends reading, with what happened.
func TestStreamThatGoesAway(t *testing.T) {
	deleted := func(t *testing.T, s *stream) {
		if err := s.js.DeleteStream(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		happens func(*testing.T, *stream)
		want    error
	}{
		"deleted": {deleted, errStreamGone},
		"made anew": {func(t *testing.T, s *stream) {
			deleted(t, s)
			mustOpen(t, s.conn, kvStream())
			numbered(t, s.conn, 1, 30) // more than there were
		}, errStreamReset},
	} {
		t.Run(name, func(t *testing.T) {
			address, _, _ := startJetStream(t, anyPort, t.TempDir())
			conn := persistent(t, address)
			s := mustOpen(t, conn, kvStream())
			l := listen(t, s, 0)
			numbered(t, conn, 1, 11)
			l.want(t, 1, 11)
			goOn := l.hold(t)
			numbered(t, conn, 11, 12)
			waitFor(t, "the reader goes on", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.stands
			})
			c.happens(t, s)
			goOn()
			waitFor(t, "reading goes on", func() bool {
				select {
				case <-l.done:
					return true
				default:
					return false
				}
			})
			if err := l.stop(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			l.want(t, 1, 12)
		})
	}
	t.Run("ends before", func(t *testing.T) {
		address, _, _ := startJetStream(t, anyPort, t.TempDir())
		s := mustOpen(t, persistent(t, address), kvStream())
		if err := s.consume(t.Context(), 7, nil, nil); !errors.Is(err, errStreamReset) {
			t.Errorf("%v, want %v", err, errStreamReset)
		}
	})
}

// TestStreamWithoutJetStream: a server that has lost JetStream, and one that never
// had it.
func TestStreamWithoutJetStream(t *testing.T) {
	address, _, stop := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	s := mustOpen(t, conn, kvStream())
	s.patience = 4 * time.Second
	l := listen(t, s, 0)
	numbered(t, conn, 1, 11)
	l.want(t, 1, 11)
	stop()
	startNATS(t, portOf(t, address))
	<-l.done
	if err := l.stop(); !errors.Is(err, errStreamOff) || !errors.Is(err, errStreamSilent) {
		t.Errorf("consume: %v", err)
	}
	if _, err := openStream(t.Context(), jetStreamOf(t, conn), kvStream()); !errors.Is(err, errStreamOff) {
		t.Errorf("open: %v", err)
	}
	if _, err := s.info(t.Context()); !errors.Is(err, errStreamOff) {
		t.Errorf("info: %v", err)
	}
}

// TestStreamAlreadyThere: streams that capture the subjects before we come.
func TestStreamAlreadyThere(t *testing.T) {
	wide := []string{"namespace.>"}
	for name, c := range map[string]struct {
		there  jetstream.StreamConfig
		want   error
		bound  string   // name of the stream that is used
		keeps  []string // its subjects then
		hint   string   // in the error or the note
		maxAge time.Duration
	}{
		"ours": {
			there: jetstream.StreamConfig{Name: "kv", Subjects: capturedSubjects(), MaxAge: time.Hour},
			bound: "kv", keeps: capturedSubjects(), maxAge: time.Minute,
		},
		"ours, with fewer subjects": {
			there: jetstream.StreamConfig{Name: "kv", Subjects: capturedSubjects()[:1]},
			bound: "kv", keeps: capturedSubjects(), maxAge: time.Minute,
		},
		"ours, in memory": {
			there: jetstream.StreamConfig{Name: "kv", Subjects: capturedSubjects(), Storage: jetstream.MemoryStorage},
			bound: "kv", keeps: capturedSubjects(), maxAge: time.Minute, hint: "storage",
		},
		"ours, with other settings": {
			there: jetstream.StreamConfig{Name: "kv", Subjects: capturedSubjects(), MaxAge: time.Hour, MaxMsgs: 5, DenyDelete: true},
			bound: "kv", keeps: capturedSubjects(), maxAge: time.Minute,
		},
		"of others, all": {
			there: jetstream.StreamConfig{Name: "audit", Subjects: wide, MaxAge: time.Hour},
			bound: "audit", keeps: wide, maxAge: time.Hour,
		},
		"of others, a part": {
			there: jetstream.StreamConfig{Name: "audit", Subjects: []string{"namespace.dynamo.>"}},
			want:  errStreamOverlap, hint: "audit",
		},
		"our name": {
			there: jetstream.StreamConfig{Name: "kv", Subjects: []string{"orders.*"}},
			want:  errStreamTaken, hint: "orders.*",
		},
		"a queue": {
			there: jetstream.StreamConfig{Name: "jobs", Subjects: wide, Retention: jetstream.WorkQueuePolicy},
			want:  errStreamTaken, hint: "jobs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, _, _ := startJetStream(t, anyPort, t.TempDir())
			conn := persistent(t, address)
			js := jetStreamOf(t, conn)
			if _, err := js.CreateStream(t.Context(), c.there); err != nil {
				t.Fatal(err)
			}
			cfg := kvStream()
			cfg.MaxAge = time.Minute
			s, err := openStream(t.Context(), js, cfg)
			if c.want != nil {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.hint) {
					t.Fatalf("%v, want %v about %s", err, c.want, c.hint)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := s.lookUp(t.Context(), s.name)
			if err != nil {
				t.Fatal(err)
			}
			if s.name != c.bound || !slices.Equal(info.Config.Subjects, c.keeps) || info.Config.MaxAge != c.maxAge {
				t.Errorf("uses %s, which captures %v for %v", s.name, info.Config.Subjects, info.Config.MaxAge)
			}
			if (s.note == "") != (c.hint == "") || !strings.Contains(s.note, c.hint) {
				t.Errorf("note %q, want one about %q", s.note, c.hint)
			}
			// Only our subjects come of it.
			s.heartbeat = 100 * time.Millisecond
			l := listen(t, s, 0)
			numbered(t, conn, 1, 2)
			publish(t, conn, "namespace.dynamo.component.backend.other", make([]byte, 8))
			numbered(t, conn, 2, 4)
			l.want(t, 1, 4)
			l.wantLost(t, 0)
		})
	}
}

// TestStreamPermissions: what a user may not do is told from what does not work.
func TestStreamPermissions(t *testing.T) {
	config := func(allow string) string {
		return fmt.Sprintf(`jetstream: {store_dir: %q}
authorization: { users: [
  {user: all, password: x},
  {user: some, password: x, permissions: {publish: {allow: [%s]}, subscribe: ">"}},
]}`, t.TempDir(), allow)
	}
	const reads = `"$JS.API.STREAM.INFO.>", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.CREATE.>", "$JS.FC.>"`
	for name, c := range map[string]struct {
		allow string
		there bool // the stream, with other limits
		want  error
		note  string
	}{
		"nothing":              {allow: `"other"`, want: errStreamDenied},
		"nothing, it is there": {allow: `"other"`, there: true, want: errStreamDenied},
		"to read":              {allow: reads, want: errStreamDenied},
		"to read what is":      {allow: reads, there: true, note: "used as it is"},
		"all":                  {allow: `"$JS.API.>", "$JS.FC.>"`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := startSecure(t, freePort(t), config(c.allow))
			admin := persistent(t, srv.address(), nats.UserInfo("all", "x"))
			if c.there {
				other := kvStream()
				other.MaxAge = time.Hour
				mustOpen(t, admin, other)
			}
			conn := persistent(t, srv.address(), nats.UserInfo("some", "x"))
			s, err := openStream(t.Context(), jetStreamOf(t, conn), kvStream())
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			if !strings.Contains(s.note, c.note) {
				t.Errorf("note %q, want one with %q", s.note, c.note)
			}
			l := listen(t, s, 0)
			numbered(t, admin, 1, 11)
			l.want(t, 1, 11)
		})
	}
}

// TestStreamThatMayNotBeReadAnyMore: permissions that are taken away end reading.
func TestStreamThatMayNotBeReadAnyMore(t *testing.T) {
	dir := t.TempDir()
	config := func(allow string) string {
		return fmt.Sprintf("jetstream: {store_dir: %q}\nauthorization: { users: [{user: some, password: x, permissions: {publish: {allow: [%s]}}}] }", dir, allow)
	}
	srv := startSecure(t, freePort(t), config(`">"`))
	conn := persistent(t, srv.address(), nats.UserInfo("some", "x"))
	s := mustOpen(t, conn, kvStream())
	l := listen(t, s, 0)
	numbered(t, conn, 1, 11)
	l.want(t, 1, 11)
	// What a consumer has to send still comes; the next one is refused.
	srv.reload(config(`"namespace.>"`))
	id, err := conn.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	_ = srv.server.DisconnectClientByID(id) // it may be gone already, by the reload
	<-l.done
	if err := l.stop(); !errors.Is(err, errStreamDenied) {
		t.Errorf("%v, want %v", err, errStreamDenied)
	}
}

// TestStreamLimits: what the account does not allow is refused, not silently less.
func TestStreamLimits(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	cfg := kvStream()
	cfg.Replicas = 3 // on one server
	if _, err := openStream(t.Context(), jetStreamOf(t, conn), cfg); !errors.Is(err, errStreamRefused) {
		t.Errorf("%v, want %v", err, errStreamRefused)
	}
}

// TestParsePlace agrees with the library's own reading.
func TestParsePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(what string) uint64 { return rapid.Uint64Range(0, 1<<62).Draw(t, what) }
		seq, count, at := n("sequence"), n("delivered"), n("time")
		middle := rapid.SampledFrom([]string{"", "_.hash.", "domain.hash."}).Draw(t, "domain")
		reply := fmt.Sprintf("$JS.ACK.%sstream.consumer.1.%d.%d.%d.%d", middle, seq, count, at, n("pending"))
		if middle != "" && rapid.Bool().Draw(t, "token") {
			reply += ".token"
		}
		got, ok := parsePlace(reply)
		if want := (place{sequence: seq, delivered: count, time: int64(at)}); !ok || got != want {
			t.Fatalf("%q is %+v, %v", reply, got, ok)
		}
	})
	for _, bad := range []string{
		"", "_INBOX.x", "$JS.ACK.", "$JS.ACK.s.c.1.x.2.3.4", "$JS.ACK.s.c.1.2.3.4", "$JS.ACK.a.s.c.1.2.3.4.5", "$JS.FC.s.c.x",
		"$JS.ACK.s.c.1.99999999999999999999.2.3.4",
	} {
		if got, ok := parsePlace(bad); ok {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

// TestCovers: which subjects are within which.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{">", "a", true},
		{">", ">", true},
		{"*", "a", true},
		{"*", "*", true},
		{"a", "a", true},
		{"a.*", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a.*", true},
		{"a.>", "a.>", true},
		{"a", "*", false},
		{"a", ">", false},
		{"*", ">", false},
		{"a.>", "a", false},
		{"a.*", "a", false},
		{"a", "a.b", false},
		{"a.*", "a.>", false},
		{"*.b", "a.c", false},
		{"namespace.a.>", "namespace.*.b", false},
	} {
		if got := covers(c.wide, c.narrow); got != c.want {
			t.Errorf("%q covers %q: %v", c.wide, c.narrow, got)
		}
	}
}
