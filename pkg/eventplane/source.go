package eventplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// JetStream keeps the events in a stream, so that a disconnect loses none, and a
// replica that starts reads what came before.
type JetStream struct {
	Stream   string // its name; it is made if no stream captures the events yet
	InMemory bool   // kept in memory, not in files
	Replicas int
	MaxAge   time.Duration
	MaxBytes int64
	// SnapshotInterval is how often what is known is archived beside the stream, so
	// that a replica need not read all of it; 0: never.
	SnapshotInterval time.Duration
}

// streamSubjects are what a stream of ours captures. It leaves alone the subjects
// of the streams that Dynamo 1.2 and 1.3 make in their JetStream mode, which are
// heard as they are published.
func streamSubjects() (captured, live []string) {
	for _, s := range dynamo.KVEventSubjects() {
		if strings.HasPrefix(s, "namespace.") {
			captured = append(captured, s)
		} else {
			live = append(live, s)
		}
	}
	return captured, live
}

// feed brings the events until ctx ends: from the stream while that serves, else as
// NATS delivers them. It opens the lanes once the plane knows what others do.
func (p *Plane) feed(ctx context.Context, conn *nats.Conn) error {
	defer p.open()
	if p.cfg.LoadsOnly {
		p.noteSubscribed(conn)
		p.open()
		<-ctx.Done()
		return nil
	}
	captured, live := streamSubjects()
	if p.cfg.JetStream == nil {
		live = append(live, captured...)
	}
	if _, err := p.subscribeAll(conn, live); err != nil {
		return err
	}
	if p.cfg.JetStream == nil {
		p.noteSubscribed(conn)
	}
	warm := p.beginWarmUp(ctx, conn)
	defer warm.end()
	if p.cfg.JetStream != nil {
		return newStreamFeed(p, conn, captured, warm).run(ctx)
	}
	warm.fromPeer(conn)
	p.open()
	warm.finish()
	<-ctx.Done()
	return nil
}

// subscribeAll subscribes to all of some subjects.
func (p *Plane) subscribeAll(conn *nats.Conn, subjects []string) ([]*nats.Subscription, error) {
	var subs []*nats.Subscription
	for _, wildcard := range subjects {
		sub, err := p.subscribe(conn, wildcard)
		if err != nil {
			return nil, fmt.Errorf("eventplane: subscribe to %s: %w", wildcard, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// connected waits for a connection.
func connected(ctx context.Context, conn *nats.Conn) bool {
	changes := conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(changes)
	for !conn.IsConnected() {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
		}
	}
	return true
}
