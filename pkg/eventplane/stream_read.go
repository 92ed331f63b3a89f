package eventplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Messages wait in the connection for a reader that is slow, as many as the server
// sends before it asks whether they were read: 32 MiB.
const streamQueue = 1 << 18

// missedHeartbeats of a consumer in a row mean that it is not there any more.
const missedHeartbeats = 3

// consume delivers the messages of the stream in order, from a sequence on (0: from
// the first that is kept), until ctx ends. Each comes once. deliver may block: what
// waits is kept by the server, as long as the stream's limits let it.
//
// lost is told how many messages were gone before they could be delivered; where
// the stream captures other subjects too, it is how many at most, and only of
// those that went while nobody read.
//
// A connection that is lost, a server that restarts or a consumer that is deleted
// is no error: reading goes on where it was. Errors other than ctx's mean that the
// stream does not serve any more: errStreamGone, errStreamReset, errStreamDenied,
// or errStreamSilent together with the reason, once nothing was heard for a while
// over a connection that stands.
func (s *stream) consume(ctx context.Context, from uint64, deliver func(m *nats.Msg, seq uint64, at time.Time), lost func(n uint64)) error {
	r := streamReader{stream: s, deliver: deliver, lost: lost, next: from, heard: time.Now()}
	r.changes = s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(r.changes)
	for pause := time.Duration(0); ; {
		err := r.connected(ctx, pause)
		if err == nil {
			err = r.round(ctx)
		}
		r.noteChanges()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errStreamGone), errors.Is(err, errStreamReset), errors.Is(err, errStreamDenied),
			errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("stream %q: %w", s.name, err)
		case s.conn.IsConnected() && time.Since(r.heard) > s.patience:
			return fmt.Errorf("stream %q: %w: %w", s.name, errStreamSilent, err)
		}
		pause = s.heartbeat / 4
		if errors.Is(err, errResume) && r.delivered > 0 {
			pause = 0
		}
	}
}

// errResume makes a reader go on with a new consumer.
var errResume = errors.New("the consumer of the stream has to be replaced")

// streamReader is one call of consume.
type streamReader struct {
	stream  *stream
	deliver func(m *nats.Msg, seq uint64, at time.Time)
	lost    func(n uint64)
	changes chan nats.Status

	next      uint64    // the sequence that comes next; 0 before the first round from the first
	delivered uint64    // by the consumer of this round, by its own count
	heard     time.Time // last word of the stream, or start of the connection
}

// connected waits for a pause and for a connection.
func (r *streamReader) connected(ctx context.Context, pause time.Duration) error {
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	for !r.stream.conn.IsConnected() {
		if r.stream.conn.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.changes:
		}
		r.heard = time.Now()
	}
	return nil
}

// noteChanges makes patience begin anew when the connection broke meanwhile: no word
// could come.
func (r *streamReader) noteChanges() {
	for len(r.changes) > 0 {
		<-r.changes
		r.heard = time.Now()
	}
}

// round reads through one consumer until that has to be replaced.
func (r *streamReader) round(ctx context.Context) error {
	r.delivered = 0
	r.noteChanges()
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	s := r.stream
	queue := make(chan *nats.Msg, streamQueue)
	inbox := s.conn.NewInbox()
	sub, err := s.conn.ChanSubscribe(inbox, queue)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed, which is as good
	cfg := jetstream.ConsumerConfig{
		Description: "warmpath", DeliverSubject: inbox, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next,
		AckPolicy: jetstream.AckNonePolicy, FlowControl: true, IdleHeartbeat: s.heartbeat, MemoryStorage: true, Replicas: 1,
	}
	if s.filtered {
		cfg.FilterSubjects = s.subjects
	}
	// The server removes it by itself soon after nobody listens to the inbox any more.
	c, err := ask(ctx, s.conn, func(ctx context.Context) (jetstream.PushConsumer, error) {
		return s.js.CreatePushConsumer(ctx, s.name, cfg)
	})
	if err != nil {
		return err
	}
	if info := c.CachedInfo(); s.onRound != nil {
		s.onRound(info.Delivered.Consumer + info.NumPending) // it may be at work already
	}
	return r.read(ctx, queue)
}

// catchUp finds out whether the stream still holds what comes next.
func (r *streamReader) catchUp(ctx context.Context) error {
	info, err := r.stream.info(ctx)
	switch {
	case err != nil:
		return err
	case !info.Created.Equal(r.stream.created):
		return fmt.Errorf("%w: it was created at %s", errStreamReset, info.Created)
	case r.next > info.Last+1:
		return fmt.Errorf("%w: its last message is number %d, and %d was read", errStreamReset, info.Last, r.next-1)
	case r.next == 0:
		r.next = info.First
	case r.next < info.First:
		r.lost(info.First - r.next)
		r.next = info.First
	}
	return nil
}

// read delivers what a consumer sends.
func (r *streamReader) read(ctx context.Context, queue <-chan *nats.Msg) error {
	tick := time.NewTicker(r.stream.heartbeat)
	defer tick.Stop()
	quiet, word := 0, false
	defer func() {
		if word {
			r.heard = time.Now()
		}
	}()
	for {
		select {
		case m := <-queue:
			word = true
			if err := r.take(m); err != nil {
				return err
			}
		case <-tick.C:
			if !word {
				if quiet++; quiet == missedHeartbeats {
					return errResume
				}
				continue
			}
			quiet, word, r.heard = 0, false, time.Now()
		case <-r.changes:
			r.heard = time.Now()
			return errResume // there was another connection meanwhile, or there is none for good
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take handles one message of a consumer.
func (r *streamReader) take(m *nats.Msg) error {
	at, ok := parsePlace(m.Reply)
	if !ok {
		return r.control(m)
	}
	if at.delivered != r.delivered+1 || at.sequence < r.next {
		return errResume // something between the server and us dropped messages
	}
	if !r.stream.filtered && at.sequence > r.next {
		r.lost(at.sequence - r.next)
	}
	r.deliver(m, at.sequence, time.Unix(0, at.time))
	r.delivered, r.next = at.delivered, at.sequence+1
	return nil
}

// control handles what a server says about its consumer.
func (r *streamReader) control(m *nats.Msg) error {
	if m.Header.Get("Status") != "100" {
		return errResume // it is deleted, or its leader has moved
	}
	answer := m.Reply // the server asks whether all before was read
	if answer == "" {
		answer = m.Header.Get("Nats-Consumer-Stalled")
	}
	if answer != "" {
		return r.stream.conn.Publish(answer, nil)
	}
	if last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && last > r.delivered {
		return errResume
	}
	return nil
}

// place says where in a stream a message stands, and where among those of its
// consumer.
type place struct {
	sequence, delivered uint64
	time                int64 // when the stream took it in, nanoseconds since 1970
}

// parsePlace reads the reply subject of a message from a consumer: "$JS.ACK", with
// or without domain and account, stream, consumer, attempts, sequence, count, time
// and how many more there are.
func parsePlace(reply string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return p, false
	}
	skip := 3
	switch strings.Count(rest, ".") {
	case 6:
	case 8, 9: // with a token at the end that means nothing
		skip = 5
	default:
		return p, false
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var numbers [3]uint64
	for i := range numbers {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			return p, false
		}
		numbers[i] = n
	}
	return place{sequence: numbers[0], delivered: numbers[1], time: int64(numbers[2])}, true
}
