package eventplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamConfig is what a stream of ours keeps. Another one that captures the same
// subjects is used as it is.
type streamConfig struct {
	Name     string
	Subjects []string
	Storage  jetstream.StorageType
	Replicas int           // 0 is 1
	MaxAge   time.Duration // 0 is for ever
	MaxBytes int64         // 0 is without a limit
}

// stream is a JetStream stream that captures the KV events. Publishers need to know
// nothing of it: it hears what they publish as any subscriber does.
type stream struct {
	js       jetstream.JetStream
	conn     *nats.Conn
	name     string
	created  time.Time // tells it from a later one of the same name
	subjects []string  // that we want of it
	filtered bool      // it captures other subjects as well
	note     string    // what is not as configured, for the log; empty when all is

	heartbeat, patience time.Duration

	// onRound, if set, hears from consume, before any message comes of it, that the
	// stream serves a new consumer, and how many messages it has for that.
	onRound func(left uint64)
}

const (
	// streamHeartbeat is how often a stream shows that it is there.
	streamHeartbeat = 2 * time.Second
	// streamPatience is how long it may fail to, while there is a connection, before
	// something else has to do.
	streamPatience = 20 * time.Second
)

// openStream makes sure that a stream captures the subjects: ours, which it creates
// or brings up to date, or one of somebody else that captures all of them, which it
// leaves alone. It fails with one of the errors of stream_errors.go, or of ctx and
// the connection.
func openStream(ctx context.Context, js jetstream.JetStream, cfg streamConfig) (*stream, error) {
	s := &stream{
		js: js, conn: js.Conn(), name: cfg.Name, subjects: cfg.Subjects,
		heartbeat: streamHeartbeat, patience: streamPatience,
	}
	info, err := s.lookUp(ctx, cfg.Name)
	switch {
	case err == nil:
		info, err = s.adjust(ctx, cfg, info)
	case errors.Is(err, errStreamGone):
		info, err = s.create(ctx, cfg)
		if errors.Is(err, errStreamOverlap) {
			info, err = s.borrow(ctx, err)
		}
	case errors.Is(err, errStreamDenied):
		if other, otherErr := s.borrow(ctx, err); otherErr == nil {
			info, err = other, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %q: %w", cfg.Name, err)
	}
	s.name, s.created = info.Config.Name, info.Created
	s.filtered = !coverAll(cfg.Subjects, info.Config.Subjects)
	return s, nil
}

// lookUp asks for a stream's configuration and state.
func (s *stream) lookUp(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	return ask(ctx, s.conn, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return infoOf(s.js.Stream(ctx, name))
	})
}

func infoOf(s jetstream.Stream, err error) (*jetstream.StreamInfo, error) {
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

func (s *stream) create(ctx context.Context, cfg streamConfig) (*jetstream.StreamInfo, error) {
	want := jetstream.StreamConfig{
		Name: cfg.Name, Description: "KV-cache events of the workers, kept by warmpath",
		Subjects: cfg.Subjects, Storage: cfg.Storage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
	}
	limit(&want, cfg)
	info, err := ask(ctx, s.conn, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return infoOf(s.js.CreateStream(ctx, want))
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		// Another replica was faster.
		if info, err = s.lookUp(ctx, cfg.Name); err == nil {
			return s.adjust(ctx, cfg, info)
		}
	}
	return info, err
}

// limit sets what may change in the life of a stream. Nobody who publishes with a
// reply subject is to get an answer from the stream instead.
func limit(want *jetstream.StreamConfig, cfg streamConfig) {
	want.NoAck = true
	want.MaxAge = cfg.MaxAge
	if want.MaxAge > 0 {
		want.Duplicates = min(want.Duplicates, want.MaxAge) // more is refused
	}
	want.Replicas = max(cfg.Replicas, 1)
	if want.MaxBytes = cfg.MaxBytes; want.MaxBytes == 0 {
		want.MaxBytes = -1
	}
}

// adjust brings a stream of ours up to date. One that may not be changed is used as
// it is, as long as it captures all.
func (s *stream) adjust(ctx context.Context, cfg streamConfig, info *jetstream.StreamInfo) (*jetstream.StreamInfo, error) {
	if err := usable(&info.Config); err != nil {
		return nil, err
	}
	want := info.Config
	limit(&want, cfg)
	captured := coverAll(info.Config.Subjects, cfg.Subjects)
	if !captured {
		if !coverAll(cfg.Subjects, info.Config.Subjects) {
			return nil, fmt.Errorf("%w: it captures %s", errStreamTaken, strings.Join(info.Config.Subjects, ", "))
		}
		want.Subjects = cfg.Subjects
	}
	if info.Config.Storage != cfg.Storage {
		s.note = fmt.Sprintf("it is kept in %s storage, which cannot be changed; delete it to have it made anew", info.Config.Storage)
	}
	if captured && sameLimits(&want, &info.Config) {
		return info, nil
	}
	updated, err := ask(ctx, s.conn, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return infoOf(s.js.UpdateStream(ctx, want))
	})
	switch {
	case err == nil:
		return updated, nil
	case !captured, ctx.Err() != nil:
		return nil, err
	}
	s.note = fmt.Sprintf("its limits cannot be changed to those configured, and it is used as it is: %v", err)
	return info, nil
}

func sameLimits(a, b *jetstream.StreamConfig) bool {
	return a.NoAck == b.NoAck && a.MaxAge == b.MaxAge && a.MaxBytes == b.MaxBytes && a.Replicas == b.Replicas
}

// borrow looks for a stream of somebody else that captures all. why is the error
// that made it necessary.
func (s *stream) borrow(ctx context.Context, why error) (*jetstream.StreamInfo, error) {
	var partial []string
	for _, subject := range s.subjects {
		names, err := ask(ctx, s.conn, func(ctx context.Context) ([]string, error) {
			list := s.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
			var names []string
			for name := range list.Name() {
				names = append(names, name)
			}
			return names, list.Err()
		})
		if err != nil {
			return nil, errors.Join(why, err)
		}
		for _, name := range names {
			if slices.Contains(partial, name) {
				continue
			}
			info, err := s.lookUp(ctx, name)
			if err != nil {
				return nil, errors.Join(why, err)
			}
			if coverAll(info.Config.Subjects, s.subjects) {
				return info, usable(&info.Config)
			}
			partial = append(partial, name)
		}
	}
	if len(partial) > 0 {
		return nil, fmt.Errorf("%w: %s", errStreamOverlap, strings.Join(partial, ", "))
	}
	return nil, why
}

// usable says whether a stream can be read by many, again and again.
func usable(c *jetstream.StreamConfig) error {
	if c.Retention != jetstream.LimitsPolicy {
		return fmt.Errorf("%w: %s has %s retention, under which reading takes messages away", errStreamTaken, c.Name, c.Retention)
	}
	return nil
}

// coverAll says whether each of the narrow subjects is within one of the wide ones.
func coverAll(wide, narrow []string) bool {
	return !slices.ContainsFunc(narrow, func(n string) bool {
		return !slices.ContainsFunc(wide, func(w string) bool { return covers(w, n) })
	})
}

// covers says whether all that subject narrow matches, wide matches as well.
func covers(wide, narrow string) bool {
	for {
		w, wideRest, wideMore := strings.Cut(wide, ".")
		n, narrowRest, narrowMore := strings.Cut(narrow, ".")
		switch {
		case w == ">":
			return true
		case n == ">", w != "*" && w != n:
			return false
		case !wideMore || !narrowMore:
			return wideMore == narrowMore
		}
		wide, narrow = wideRest, narrowRest
	}
}

// streamInfo is the state of a stream.
type streamInfo struct {
	Created         time.Time
	First, Last     uint64 // sequences; First is Last+1 when it holds nothing
	Messages, Bytes uint64
}

// info asks for the stream's state.
func (s *stream) info(ctx context.Context) (streamInfo, error) {
	info, err := s.lookUp(ctx, s.name)
	if err != nil {
		return streamInfo{}, fmt.Errorf("stream %q: %w", s.name, err)
	}
	return streamInfo{
		Created: info.Created, First: max(info.State.FirstSeq, 1), Last: info.State.LastSeq,
		Messages: info.State.Msgs, Bytes: info.State.Bytes,
	}, nil
}
