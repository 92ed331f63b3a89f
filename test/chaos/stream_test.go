package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestStream holds what the transport itself keeps with a JetStream stream on the
// workers' subjects: a reader that resumes by sequence loses nothing to a
// partition, and to a crash of the server only what is published until it is back.
func TestStream(t *testing.T) {
	t.Parallel()
	s, w := startServer(t, serverOptions{jetStream: true}), newWitness()
	bindStream(t, s.url())
	p := startProxy(t, strings.TrimPrefix(s.url(), "nats://"), w)
	c := startCrew(t, s.url(), w, *seed)
	reader := startReader(t, p.url())
	c.speak()
	c.goOn(300)

	p.cut()
	eventually(t, "the reader is off", func() bool { return !reader.IsConnected() })
	c.goOn(300)
	p.heal()
	if lost := c.lost(); len(lost) != 0 {
		t.Errorf("a partition lost messages %v", lost)
	}

	from := c.sent()
	s.kill()
	c.speak()
	eventually(t, "the workers see that the server is gone", func() bool { return c.refused() >= 50 })
	c.rest()
	until := c.sent()
	s.start()
	c.reconnect()
	c.speak()
	c.goOn(300)
	lost := c.lost()
	if len(lost) == 0 || lost[0] <= from || lost[len(lost)-1] > until {
		t.Errorf("a crash after message %d lost messages %v; the server was back at %d", from, lost, until)
	}
}

// bindStream binds a stream to the subjects of all workers.
func bindStream(t *testing.T, url string) {
	t.Helper()
	conn := connect(t, url)
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: dynamo.KVEventSubjects(), NoAck: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startReader reads the stream from its start until the test ends, and goes on
// where it was after a disconnect.
func startReader(t *testing.T, url string) *nats.Conn {
	t.Helper()
	conn := connect(t, url)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(t.Context(), "events", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	reading, err := consumer.Consume(func(jetstream.Msg) {}, jetstream.PullExpiry(time.Second), jetstream.PullHeartbeat(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reading.Stop)
	return conn
}

// reconnect returns when the server has heard of every worker.
func (c *crew) reconnect() {
	c.t.Helper()
	for _, w := range c.workers {
		eventually(c.t, "a worker is connected", func() bool { return w.conn.FlushTimeout(time.Second) == nil })
	}
}

// lost returns the numbers of the messages that did not go through, though a
// later one of every rank did.
func (c *crew) lost() (serials []uint64) {
	c.t.Helper()
	c.rest()
	c.say(c.workers, (*worker).speak)
	each(c.workers, func(w *worker) {
		for _, m := range w.ledger {
			if !c.witness.sees(m) {
				serials = append(serials, m.serial)
			}
		}
	})
	slices.Sort(serials)
	return serials
}
