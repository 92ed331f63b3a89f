package eventplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
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
	warmed   func() // ends the warm-up, without the stream if need be
	tasks    sync.WaitGroup

	begun   bool                 // it is settled where the first events come from
	created time.Time            // of the stream that was read
	next    uint64               // what comes next of it; 0: the first that it holds
	left    atomic.Uint64        // messages that it held when it began to serve, and that did not come yet
	core    []*nats.Subscription // to NATS itself
	why     error                // what kept the stream from serving when it was tried last
}

func newStreamFeed(p *Plane, conn *nats.Conn, captured []string, warm *warmUp) *streamFeed {
	f := &streamFeed{plane: p, conn: conn, captured: captured, warm: warm}
	f.warmed = sync.OnceFunc(func() { f.tasks.Go(warm.finish) })
	return f
}

// run feeds until ctx ends.
func (f *streamFeed) run(ctx context.Context) error {
	defer f.tasks.Wait()
	for connected(ctx, f.conn) {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := f.fallBack(ctx, err); err != nil {
			return err
		}
		if pause(ctx, f.plane.streamRetry) != nil {
			return nil
		}
	}
	return nil
}

// fallBack listens to NATS itself.
func (f *streamFeed) fallBack(ctx context.Context, why error) error {
	p := f.plane
	f.sayWhy(ctx, withoutURL(why))
	if errors.Is(why, errStreamReset) {
		f.created = time.Time{} // its numbers mean nothing any more
	}
	fallen := f.core == nil
	if fallen {
		subs, err := p.subscribeAll(f.conn, f.captured)
		if err != nil {
			return err
		}
		f.core = subs
		p.noteSubscribed(f.conn)
	}
	p.mu.Lock()
	if fallen {
		p.unsure = p.unsure || f.begun // what came since the stream stopped is lost
		p.stats.Stream.Fallbacks++
	}
	p.stats.Stream.Name, p.stats.Stream.Lag = "", 0
	p.mu.Unlock()
	if !f.begun {
		f.begun = true
		f.warm.fromPeer(f.conn)
		p.open()
	}
	f.warmed()
	return nil
}

// sayWhy says once why the stream does not serve, and not every time that it is
// tried in vain.
func (f *streamFeed) sayWhy(ctx context.Context, why error) {
	level := slog.LevelWarn
	if f.core != nil && sameReason(why, f.why) {
		level = slog.LevelDebug
	}
	f.why = why
	f.plane.cfg.Log.Log(ctx, level, "events come from NATS itself, which keeps none; the stream is tried again",
		"stream", f.plane.cfg.JetStream.Stream, "after", f.plane.streamRetry, "error", why)
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
	} else if store != nil && store.note != "" {
		p.cfg.Log.Info("what is known is archived", "bucket", store.cfg.Bucket, "note", store.note)
	}
	if err := f.begin(ctx, store, s, info); err != nil {
		return err
	}
	return f.consume(ctx, store, s, info)
}

// begin settles from where on the stream is read.
func (f *streamFeed) begin(ctx context.Context, store *archive, s *stream, info streamInfo) error {
	p := f.plane
	switch {
	case !f.begun:
		f.begun = true
		f.next = f.loadArchive(store, s)
		p.open()
	case f.created.Equal(info.Created):
		return nil
	default:
		// What is still on its way is to be taken in before anything that is newer. All
		// that the new stream holds is read: what NATS itself brought comes once more,
		// which changes nothing, and with it what nobody was there to hear.
		if err := f.drain(ctx); err != nil {
			return err
		}
		f.next = 0
	}
	f.created = info.Created
	p.dispatched.Store(max(f.next, info.First) - 1) // numbers of another stream mean nothing
	return nil
}

// drainEvery is how often is looked whether all that waits was taken in.
const drainEvery = 2 * time.Millisecond

// drain waits until nothing waits for the lanes. From NATS itself more comes all the
// time: it is waited for only so long.
func (f *streamFeed) drain(ctx context.Context) error {
	p := f.plane
	for until := time.Now().Add(p.handover); len(p.stream) > 0 || len(p.queue) > 0 && time.Now().Before(until); {
		if err := pause(ctx, drainEvery); err != nil {
			return err
		}
	}
	p.settle()
	return nil
}

// consume reads the stream, with all that goes with it, until ctx ends or it does
// not serve.
func (f *streamFeed) consume(ctx context.Context, store *archive, s *stream, info streamInfo) error {
	p := f.plane
	reading, stop := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop(nil)
	caughtUp := make(chan uint64, 1)
	all := sync.OnceFunc(func() { caughtUp <- max(f.next, 1) - 1 })
	f.tasks.Go(func() { f.catchUp(reading, caughtUp, info.Last) })
	serves := sync.OnceFunc(func() {
		f.note(s, info)
		p.cfg.Log.Info("events come from the stream", "stream", s.name, "from", f.next, "last", info.Last, "note", s.note)
		tasks.Go(func() {
			if err := f.look(reading, s); err != nil {
				stop(err)
			}
		})
		if store != nil {
			tasks.Go(func() { f.keep(reading, store, s) })
		}
	})
	s.onRound = func(left uint64) {
		f.left.Store(left)
		serves()
		if left == 0 {
			all()
		}
	}
	err := s.consume(reading, f.next, func(m *nats.Msg, seq uint64, at time.Time) {
		select {
		case p.stream <- item{msg: m, seq: seq, at: at}:
			f.next = seq + 1
		case <-reading.Done():
			return
		}
		if left := f.left.Load(); left > 0 {
			f.left.Store(left - 1)
			if left == 1 {
				all()
			}
		}
	}, p.streamLost)
	if reading.Err() != nil {
		return context.Cause(reading)
	}
	return err
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

// catchUp waits until all is taken in that the stream held when it began to serve,
// and ends the warm-up. caughtUp tells the sequence of the newest of it once that is
// known; until then it is about last.
func (f *streamFeed) catchUp(ctx context.Context, caughtUp <-chan uint64, last uint64) {
	p := f.plane
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for known := false; !known || p.dispatched.Load() < last; {
		f.warm.step("reading the stream: %d messages are left", last-min(last, p.dispatched.Load()))
		select {
		case <-ctx.Done():
			return // something else has to do
		case <-f.warm.ctx.Done():
			f.warmed()
			return
		case last = <-caughtUp:
			known = true
		case <-tick.C:
		}
	}
	p.settle()
	f.warmed()
}

// look asks the stream from time to time how far it is, and stops to listen to NATS
// itself. It returns an error when the stream is gone: its consumer goes silently,
// which takes longer to notice.
func (f *streamFeed) look(ctx context.Context, s *stream) error {
	until := time.Now().Add(f.plane.handover)
	for pause(ctx, infoEvery) == nil {
		info, err := s.info(ctx)
		switch {
		case err == nil && !info.Created.Equal(s.created):
			return fmt.Errorf("stream %q: %w: it was created at %s", s.name, errStreamReset, info.Created)
		case err == nil:
			f.note(s, info)
		case errors.Is(err, errStreamGone):
			return err
		}
		if f.core != nil && time.Now().After(until) {
			f.plane.unsubscribe(f.core)
			f.core = nil
		}
	}
	return nil
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
		case errors.Is(err, errArchiveClaimed):
			p.cfg.Log.Debug("another replica was faster to archive what is known")
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

// note notes that the stream serves, and how far it is ahead. Of one that captures
// other subjects too, its sequences do not tell: what came since it was caught up with
// counts only once it is here.
func (f *streamFeed) note(s *stream, info streamInfo) {
	p := f.plane
	lag := info.Last - min(info.Last, max(p.dispatched.Load(), info.First-1))
	if s.filtered {
		lag = f.left.Load() + uint64(len(p.stream))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Stream.Name, p.stats.Stream.Lag = s.name, lag
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
