package interop

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// StartNATS runs a NATS server inside the test, on a free TCP port of
// 127.0.0.1, until the test ends. It returns the URL for clients.
func StartNATS(t testing.TB) string {
	t.Helper()
	return startNATS(t, &server.Options{})
}

// StartJetStream is StartNATS with JetStream.
func StartJetStream(t testing.TB) string {
	t.Helper()
	return startNATS(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
}

func startNATS(t testing.TB, options *server.Options) string {
	t.Helper()
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatalf("nats server: %v", err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats server: no connections after 10 s")
	}
	return s.ClientURL()
}

// Event is one message of the event plane, as it came.
type Event struct {
	Subject string
	Data    []byte
}

// Recorder keeps every message of some event-plane topics.
type Recorder struct {
	mu     sync.Mutex
	events []Event
}

// Record keeps every message of the topics ("kv-events"), whatever its scope, from
// now until the test ends.
func Record(t testing.TB, url string, topics ...string) *Recorder {
	t.Helper()
	conn := mustConnect(t, url)
	r := &Recorder{}
	_, err := conn.Subscribe(">", func(m *nats.Msg) {
		if !slices.Contains(topics, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]) {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, Event{Subject: m.Subject, Data: m.Data})
	})
	if err != nil {
		t.Fatalf("nats: %v", err)
	}
	// The server has the subscription once it answers.
	if err := conn.Flush(); err != nil {
		t.Fatalf("nats: %v", err)
	}
	return r
}

// Events returns what has come so far, in order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events...)
}
