package eventplane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const anyPort = server.RANDOM_PORT

// patience is how long a test waits for what takes milliseconds on an idle machine.
const patience = time.Minute

// startNATS runs a NATS server on a port of the loopback until the test ends or
// stop is called.
func startNATS(t testing.TB, port int) (address string, stop func()) {
	t.Helper()
	s, stop := runServer(t, &server.Options{Port: port, MaxPayload: 16 << 20, MaxPending: 256 << 20})
	return s.ClientURL(), stop
}

// runServer runs a NATS server until the test ends or stop is called.
func runServer(t testing.TB, o *server.Options) (s *server.Server, stop func()) {
	t.Helper()
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == anyPort {
		o.Port = freePort(t)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	stop = sync.OnceFunc(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	t.Cleanup(stop)
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server did not start")
	}
	return s, stop
}

// lastPort is the port that was handed out last.
var lastPort = 10000 + rand.IntN(10000)

// freePort is a port of the loopback that nobody listens on, each time another one. It
// is below those that the kernel gives to clients: while the server is down nobody else
// may get it, nor may who dials it reach itself.
func freePort(t testing.TB) int {
	t.Helper()
	for range 10000 {
		lastPort = 10000 + (lastPort+1)%10000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort))
		if err == nil {
			l.Close()
			return lastPort
		}
	}
	t.Fatal("no free port")
	return 0
}

func portOf(t testing.TB, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// connect opens a connection of a publisher, closed when the test ends.
func connect(t testing.TB, address string) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(address, nats.Timeout(patience), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		<-closed
	})
	return conn
}

// waitFor polls until a condition holds, and fails the test when it does not in time.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// rig is a plane with all that is around it.
type rig struct {
	t     testing.TB
	plane *Plane
	index *index.Index
	logs  *logs

	onKnown func() // called by Known, if set before the plane runs

	mu      sync.Mutex
	time    time.Time
	unknown map[fleet.Key]bool // all others are known
	lost    map[fleet.Key]int
	dropped map[fleet.Key]int
	marks   int             // barriers so far
	others  map[string]bool // subjects that were heard
}

// newRig builds a plane that is not running. Without an address it is fed by
// receive alone.
func newRig(t testing.TB, address, namespace string) *rig {
	t.Helper()
	r := &rig{
		t: t, index: index.New(), logs: &logs{},
		time:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		unknown: map[fleet.Key]bool{}, lost: map[fleet.Key]int{}, dropped: map[fleet.Key]int{}, others: map[string]bool{},
	}
	if address == "" {
		address = "nats://127.0.0.1:1"
	}
	var err error
	r.plane, err = New(Config{
		URL: address, Namespace: namespace, Index: r.index, Known: r.known, Lost: r.noteLost, Drop: r.drop,
		Log: slog.New(slog.NewTextHandler(r.logs, nil)), Now: r.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.plane.onMessage = r.noteMessage
	return r
}

// run starts the plane and returns what stops it and waits for its end.
func (r *rig) run() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.plane.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// startRig runs a plane on a server of its own, and returns once it hears all,
// with a connection to publish on.
func startRig(t testing.TB, namespace string) (*rig, *nats.Conn) {
	t.Helper()
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, namespace)
	r.run()
	conn := connect(t, address)
	r.listening(conn)
	return r, conn
}

// listening waits until the plane hears both of its subscriptions.
func (r *rig) listening(conn *nats.Conn) {
	r.t.Helper()
	for _, subject := range r.barriers() {
		waitFor(r.t, "the plane does not listen on "+subject, func() bool {
			if conn.Publish(subject, nil) != nil || conn.FlushTimeout(5*time.Second) != nil {
				return false // not connected again yet
			}
			return r.heard(subject)
		})
	}
	r.barrier(conn) // those before may have been sent more than once
}

// barrier returns when all that was published on conn before has been taken in:
// messages come in order. Its own are of a namespace that nobody else uses: the plane ignores them.
func (r *rig) barrier(conn *nats.Conn) {
	r.t.Helper()
	subjects := r.barriers()
	for _, subject := range subjects {
		publish(r.t, conn, subject, nil)
	}
	for _, subject := range subjects {
		waitFor(r.t, "no word of "+subject, func() bool { return r.heard(subject) })
	}
	r.plane.settle()
}

func (r *rig) barriers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks++
	return []string{
		fmt.Sprintf("namespace.mark%d.component.x.kv-events", r.marks),
		fmt.Sprintf("namespace.mark%d.component.x.endpoint.y.kv-events", r.marks),
	}
}

// heard says whether a message with a subject has been taken in.
func (r *rig) heard(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others[subject]
}

func (r *rig) noteMessage(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others[subject] = true
}

func publish(t testing.TB, conn *nats.Conn, subject string, data []byte) {
	t.Helper()
	if err := conn.Publish(subject, data); err != nil {
		t.Fatal(err)
	}
}

// flush returns when the server has all that was published on conn.
func flush(t testing.TB, conn *nats.Conn) {
	t.Helper()
	if err := conn.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
}

// give hands a message to the plane as NATS would, without a network.
func (r *rig) give(subject string, data []byte) {
	r.plane.receive(&nats.Msg{Subject: subject, Data: data})
}

func (r *rig) known(k fleet.Key) bool {
	if r.onKnown != nil {
		r.onKnown()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unknown[k]
}

func (r *rig) setKnown(known bool, keys ...fleet.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.unknown[k] = !known
	}
}

func (r *rig) noteLost(k fleet.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[k]++
}

// drop does what a pool owner does.
func (r *rig) drop(k fleet.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped[k]++
	if r.unknown[k] {
		r.index.Drop(k)
	}
}

// wantDropped checks how often Drop was called per worker.
func (r *rig) wantDropped(want map[fleet.Key]int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !maps.Equal(r.dropped, want) {
		r.t.Errorf("dropped %v, want %v", r.dropped, want)
	}
}

// takeLost returns how often Lost was called per worker since the last time.
func (r *rig) takeLost() map[fleet.Key]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.lost
	r.lost = map[fleet.Key]int{}
	return lost
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.time
}

func (r *rig) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.time = r.time.Add(d)
}

// logs keeps what is logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines hold all words.
func (l *logs) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// Subjects of the two generations, in namespace "dynamo".
var (
	componentSubject = dynamo.EventSubject(dynamo.Gen12, "dynamo", "backend", "generate")
	endpointSubject  = dynamo.EventSubject(dynamo.Gen15, "dynamo", "backend", "generate")
)

// publisherOf is the publisher of a rank: the worker id in the older releases, and
// an id of 53 bits, other for each rank, in the newer ones.
func publisherOf(gen dynamo.Generation, k fleet.Key) uint64 {
	if gen == dynamo.Gen12 {
		return k.ID
	}
	return ((k.ID+1)*0x9e3779b97f4a7c15^(uint64(k.Rank)+1)*0xbf58476d1ce4e5b9)>>11 | 1
}

// encode returns the body of a message with events, all of one worker and rank.
func encode(t testing.TB, gen dynamo.Generation, events ...kvevent.Event) []byte {
	t.Helper()
	for i := range events {
		if keyOf(&events[i]) != keyOf(&events[0]) {
			t.Fatal("a message has one publisher, and that one rank")
		}
	}
	return encodeFrom(t, publisherOf(gen, keyOf(&events[0])), gen, events...)
}

// clock is when messages are sent: later from one to the next.
var clock atomic.Uint64

// encodeFrom is encode for any publisher.
func encodeFrom(t testing.TB, publisher uint64, gen dynamo.Generation, events ...kvevent.Event) []byte {
	t.Helper()
	msg, err := dynamo.AppendMessage(nil, gen, dynamo.Envelope{PublisherID: publisher, Sequence: 5, PublishedAt: clock.Add(1)}, events)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// cleared and stored build events. The engine hash of a block is 1000 more than
// its content, so the two cannot be confused.
func cleared(k fleet.Key, id uint64) kvevent.Event {
	return kvevent.Event{WorkerID: k.ID, Rank: k.Rank, ID: id, Kind: kvevent.Cleared}
}

func stored(k fleet.Key, id uint64, hashes ...uint64) kvevent.Event {
	ev := kvevent.Event{WorkerID: k.ID, Rank: k.Rank, ID: id, Kind: kvevent.Stored}
	for _, h := range hashes {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(1000 + h), Hash: block.Hash(h)})
	}
	return ev
}

func removed(k fleet.Key, id uint64, hashes ...uint64) kvevent.Event {
	ev := kvevent.Event{WorkerID: k.ID, Rank: k.Rank, ID: id, Kind: kvevent.Removed}
	for _, h := range hashes {
		ev.Gone = append(ev.Gone, kvevent.EngineHash(1000+h))
	}
	return ev
}

// wantHeld checks how many blocks a worker holds on the device.
func (r *rig) wantHeld(k fleet.Key, n int) {
	r.t.Helper()
	if got := r.index.Held(k)[kvevent.Device]; got != n {
		r.t.Errorf("worker %v holds %d blocks, want %d", k, got, n)
	}
}

// counted is what a worker's events count, without the state that they lead to.
func counted(w WorkerStats) WorkerStats {
	w.State, w.Since = Synced, time.Time{}
	return w
}

// wantWorker checks all counters of one worker.
func (r *rig) wantWorker(k fleet.Key, want WorkerStats) {
	r.t.Helper()
	if got := counted(r.plane.Workers()[k]); got != want {
		r.t.Errorf("worker %v: %+v, want %+v", k, got, want)
	}
}

// wantLost checks how often Lost was called per worker since the last time.
func (r *rig) wantLost(want map[fleet.Key]int) {
	r.t.Helper()
	if got := r.takeLost(); !maps.Equal(got, want) {
		r.t.Errorf("lost %v, want %v", got, want)
	}
}
