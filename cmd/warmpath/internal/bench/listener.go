package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// listener is an event plane with its index, as in the picker.
type listener struct {
	index *index.Index
	plane *eventplane.Plane
	stop  func() error // ends it, once
}

// listen starts a plane and returns when it hears what is published.
func listen(ctx context.Context, url string, jetStream bool) (*listener, error) {
	l := &listener{index: index.New()}
	cfg := planeConfig(url, l.index)
	if jetStream {
		if err := forgetStream(ctx, url); err != nil {
			return nil, fmt.Errorf("JetStream: %w", err)
		}
		cfg.JetStream = &eventplane.JetStream{Stream: streamName, Replicas: 1, MaxAge: time.Hour, MaxBytes: 4 << 30}
	}
	var err error
	if l.plane, err = eventplane.New(cfg); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.plane.Run(running) }()
	l.stop = func() error {
		cancel()
		return <-done
	}
	err = poll(ctx, 10*time.Second, func() (bool, error) {
		s := l.plane.Stats()
		return s.EverListened && (s.Stream.Name != "") == jetStream, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the event plane does not listen: %w", err), l.stop())
	}
	return l, nil
}

// streamName is of the stream that the plane makes.
const streamName = "warmpath-bench"

// forgetStream deletes what an earlier measurement left, or a plane would read it.
func forgetStream(ctx context.Context, url string) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, streamName); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// planeConfig is a plane's of the product where every worker is in a pool.
func planeConfig(url string, x *index.Index) eventplane.Config {
	return eventplane.Config{
		URL: url, Namespace: "dynamo", Index: x,
		Known: func(fleet.Key) bool { return true },
		Lost:  func(fleet.Key) {},
		Drop:  func(fleet.Key) {},
		Log:   slog.New(slog.DiscardHandler),
	}
}

// heard is what a listener counted.
type heard struct {
	blocks                   uint64 // stored
	events                   uint64 // taken in
	dropped, missed, trouble uint64 // messages, events, and what must not happen on a sound wire
}

func (l *listener) heard() heard {
	s, x := l.plane.Stats(), l.index.Stats()
	h := heard{blocks: x.Stored, dropped: s.Dropped, trouble: s.BadMessages}
	for _, w := range l.plane.Workers() {
		h.events += w.Events
		h.missed += w.Missed
		h.trouble += w.Restarts + w.Duplicates + w.Stale + w.Strays + w.Refused + w.Ignored
	}
	if h.missed == 0 {
		h.trouble += x.UnknownParents + x.UnknownRemovals + x.Duplicates + x.Replaced
	}
	return h
}

// settle waits until so many blocks are stored, or until none has come for a
// while, and returns when the last one came.
func (l *listener) settle(ctx context.Context, blocks uint64) (time.Time, error) {
	const patience = time.Second
	last, at := l.index.Stats().Stored, time.Now()
	err := poll(ctx, 5*time.Minute, func() (bool, error) {
		if now := l.index.Stats().Stored; now != last {
			last, at = now, time.Now()
		}
		return last >= blocks || time.Since(at) > patience, nil
	})
	return at, err
}

// pollEvery is the time between two looks at something that others change. The
// kernel makes it some 60 us more.
const pollEvery = 10 * time.Microsecond

// poll waits until ok, at most so long.
func poll(ctx context.Context, limit time.Duration, ok func() (bool, error)) error {
	for start := time.Now(); ; time.Sleep(pollEvery) {
		switch done, err := ok(); {
		case err != nil || done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Since(start) > limit:
			return fmt.Errorf("not within %v", limit)
		}
	}
}
