package eventplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// streamRetry is how long the plane does without a stream that did not serve.
	streamRetry = 30 * time.Second
	// streamQueueSize is how many messages of the stream wait to be dispatched. When
	// there are more, the server keeps them.
	streamQueueSize = 1 << 10
	// infoEvery is how often the stream is asked how far it is.
	infoEvery = time.Second
	// handover is how long NATS itself is listened to after the stream serves again.
	handover = 5 * time.Second
	// archiveTTL is how long an archived state may be read: what is older is of no use.
	archiveTTL = 24 * time.Hour
)

// streamFeed brings the events from a stream, and from NATS itself while that does
// not serve.
type streamFeed struct {
	plane    *Plane
	conn     *nats.Conn
	captured []string // subjects of the stream
	warm     *warmUp

	begun   bool                 // it is settled where the first events come from
	created time.Time            // of the stream that was read
	next    uint64               // what comes next of it
	core    []*nats.Subscription // to NATS itself
	tasks   sync.WaitGroup
}

// run feeds until ctx ends.
func (f *streamFeed) run(ctx context.Context) error {
	defer f.tasks.Wait()
	for connected(ctx, f.conn) {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := f.fallBack(err); err != nil {
			return err
		}
		if pause(ctx, streamRetry) != nil {
			return nil
		}
	}
	return nil
}

// fallBack listens to NATS itself.
func (f *streamFeed) fallBack(why error) error {
	p := f.plane
	p.cfg.Log.Warn("events come from NATS itself, which keeps none; the stream is tried again",
		"stream", p.cfg.JetStream.Stream, "after", streamRetry, "error", withoutURL(why))
	if errors.Is(why, errStreamReset) {
		f.created = time.Time{} // its numbers mean nothing any more
	}
	if f.core == nil {
		subs, err := p.subscribeAll(f.conn, f.captured)
		if err != nil {
			return err
		}
		f.core = subs
		p.noteSubscribed(f.conn)
		p.mu.Lock()
		p.unsure = p.unsure || f.begun // what came since the stream stopped is lost
		p.stats.Stream = StreamStats{Fallbacks: p.stats.Stream.Fallbacks + 1, Lost: p.stats.Stream.Lost}
		p.mu.Unlock()
	}
	if !f.begun {
		f.begun = true
		f.warm.fromPeer(f.conn)
		p.open()
		f.tasks.Go(f.warm.finish)
	}
	return nil
}

// read reads the stream until ctx ends, or it does not serve.
func (f *streamFeed) read(ctx context.Context) error {
	p := f.plane
	f.warm.step("opening the stream")
	js, err := jetstream.New(f.conn)
	if err != nil {
		return err
	}
	s, err := openStream(ctx, js, f.config())
	if err != nil {
		return err
	}
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	store, err := f.openArchive(ctx, js)
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.Warn("what is known cannot be archived: a new replica reads the whole stream", "error", withoutURL(err))
	}
	first := !f.begun
	switch {
	case first:
		f.begun = true
		f.next = f.loadArchive(store, s)
	case !f.created.Equal(info.Created):
		f.next = info.Last + 1 // what came before was heard from NATS, or shows as missing
	}
	f.created = info.Created
	p.open()
	p.noteStream(s, info)
	p.cfg.Log.Info("events come from the stream", "stream", s.name, "from", f.next, "last", info.Last, "note", s.note)

	reading, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	if first {
		// It outlives the stream: workers may be slow to answer.
		f.tasks.Go(func() { f.catchUp(reading, info.Last) })
	}
	tasks.Go(func() { f.look(reading, s) })
	if store != nil {
		tasks.Go(func() { f.keep(reading, store, s) })
	}
	return s.consume(reading, f.next, func(m *nats.Msg, seq uint64, at time.Time) {
		select {
		case p.stream <- item{msg: m, seq: seq, at: at}:
			f.next = seq + 1
		case <-reading.Done():
		}
	}, p.streamLost)
}

func (f *streamFeed) config() streamConfig {
	c := f.plane.cfg.JetStream
	return streamConfig{
		Name: c.Stream, Subjects: f.captured, Storage: c.storage(), Replicas: c.Replicas, MaxAge: c.MaxAge, MaxBytes: c.MaxBytes,
	}
}

func (c *JetStream) storage() jetstream.StorageType {
	if c.InMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

func (f *streamFeed) openArchive(ctx context.Context, js jetstream.JetStream) (*archive, error) {
	c := f.plane.cfg.JetStream
	if c.SnapshotInterval <= 0 {
		return nil, nil //nolint:nilnil // none is wanted
	}
	return openArchive(ctx, js, archiveConfig{
		Bucket: archiveBucket(c.Stream), Storage: c.storage(), Replicas: c.Replicas, MaxBytes: c.MaxBytes,
		TTL: archiveTTL, Every: c.SnapshotInterval,
	})
}

// loadArchive takes over what was archived, and returns the sequence to go on from;
// 0 is the first that the stream holds.
func (f *streamFeed) loadArchive(store *archive, s *stream) (from uint64) {
	p := f.plane
	if store == nil || f.warm.off {
		return 0
	}
	f.warm.step("reading the archived state")
	saved, err := store.load(f.warm.ctx, func(r io.Reader) error {
		return p.restore(r, func(h stateHeader) error {
			if h.Stream != s.name || !h.Created.Equal(s.created) {
				return fmt.Errorf("%w: it goes with stream %q of %s", errOtherStream, h.Stream, h.Created)
			}
			from = h.Sequence + 1
			return nil
		})
	})
	switch {
	case err == nil:
		p.cfg.Log.Info("took over the archived state", "saved", saved, "sequence", from-1, "blocks", p.cfg.Index.Stats().Entries)
		return from
	case !errors.Is(err, errArchiveEmpty):
		p.cfg.Log.Warn("the archived state cannot be used; the whole stream is read instead", "error", withoutURL(err))
	}
	return 0
}

// errOtherStream is returned for a state that does not go with the stream.
var errOtherStream = errors.New("it goes with another stream")

// catchUp waits until the stream is read up to a sequence, and ends the warm-up.
func (f *streamFeed) catchUp(ctx context.Context, last uint64) {
	p := f.plane
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.dispatched.Load() < last && ctx.Err() == nil && f.warm.ctx.Err() == nil {
		f.warm.step("reading the stream: %d messages are left", last-p.dispatched.Load())
		select {
		case <-ctx.Done():
		case <-f.warm.ctx.Done():
		case <-tick.C:
		}
	}
	if f.warm.ctx.Err() == nil && ctx.Err() == nil {
		p.settle()
	}
	f.warm.finish()
}

// look asks the stream from time to time how far it is, and stops to listen to NATS
// itself.
func (f *streamFeed) look(ctx context.Context, s *stream) {
	until := time.Now().Add(handover)
	for pause(ctx, infoEvery) == nil {
		if info, err := s.info(ctx); err == nil {
			f.plane.noteStream(s, info)
		}
		if f.core != nil && time.Now().After(until) {
			f.plane.unsubscribe(f.core)
			f.core = nil
		}
	}
}

// keep archives what is known from time to time.
func (f *streamFeed) keep(ctx context.Context, store *archive, s *stream) {
	p := f.plane
	every := p.cfg.JetStream.SnapshotInterval
	for pause(ctx, every) == nil {
		if p.Warming() != "" {
			continue
		}
		saved, err := store.save(ctx, func(w io.Writer) error {
			return p.writeState(w, stateHeader{Stream: s.name, Created: s.created, Sequence: p.settle()})
		})
		switch {
		case err != nil && ctx.Err() == nil:
			p.cfg.Log.Warn("what is known could not be archived", "error", withoutURL(err))
		case saved:
			p.cfg.Log.Debug("archived what is known", "blocks", p.cfg.Index.Stats().Entries)
		}
	}
}

// StreamStats is about the stream that the events are read from.
type StreamStats struct {
	Name      string // empty while events come from NATS itself
	Lag       uint64 // messages that it has and that are not taken in yet, as of a second ago
	Lost      uint64 // messages that its limits removed before they could be read
	Fallbacks uint64 // times that NATS itself had to do instead
}

func (p *Plane) noteStream(s *stream, info streamInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Stream.Name = s.name
	p.stats.Stream.Lag = info.Last - min(info.Last, max(p.dispatched.Load(), info.First-1))
	p.subscribed = true
}

// streamLost notes that messages were gone before they could be read.
func (p *Plane) streamLost(n uint64) {
	p.mu.Lock()
	p.stats.Stream.Lost += n
	p.unsure = true
	p.mu.Unlock()
	p.cfg.Log.Warn("the stream removed messages before they could be read; its limits are too small", "messages", n)
}
