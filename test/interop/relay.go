package interop

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// Relay stands between two NATS servers: it hears the event plane on one, where
// workers publish, and says it again on the other, where a picker listens. Bodies
// and subjects stay as they are, and so does their order. On demand it loses
// messages, as a network or a slow consumer does.
type Relay struct {
	URL string // of the server that the picker listens to

	mu   sync.Mutex
	lose func(Event) bool
	lost []Event
}

// StartRelay passes on what is published on the server at url until the test ends.
func StartRelay(t testing.TB, url string) *Relay {
	t.Helper()
	r := &Relay{URL: StartNATS(t)}
	from, to := mustConnect(t, url), mustConnect(t, r.URL)
	if _, err := from.Subscribe("namespace.>", func(m *nats.Msg) {
		if !r.pass(Event{Subject: m.Subject, Data: m.Data}) {
			return
		}
		if err := to.Publish(m.Subject, m.Data); err != nil {
			t.Errorf("relay: %v", err)
		}
	}); err != nil {
		t.Fatalf("relay: %v", err)
	}
	// The server has the subscription once it answers.
	if err := from.Flush(); err != nil {
		t.Fatalf("relay: %v", err)
	}
	return r
}

func mustConnect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("nats: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// pass says whether a message goes through.
func (r *Relay) pass(e Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lose != nil && r.lose(e) {
		r.lost = append(r.lost, e)
		return false
	}
	return true
}

// Lose loses the messages that a function picks, from now on; nil loses none. The
// function is called with one message at a time.
func (r *Relay) Lose(pick func(Event) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = pick
}

// Lost returns the messages that were lost so far, in order.
func (r *Relay) Lost() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.lost...)
}
