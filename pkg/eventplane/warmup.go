package eventplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// WarmUp says how a plane that starts learns what workers hold.
type WarmUp struct {
	// Timeout is how long it may take, from when NATS is connected. 0 turns it off.
	Timeout time.Duration
	// Peers says whether another replica is asked, where no stream tells, and whether
	// others that ask are answered.
	Peers bool
}

// Warming says what a plane that starts is waiting for before it knows what
// workers hold; empty when it does, or has given up waiting.
func (p *Plane) Warming() string { return *p.warming.Load() }

// warmUp is the warm-up of a plane under way.
type warmUp struct {
	plane *Plane
	ctx   context.Context //nolint:containedctx // the time that it may take
	end   context.CancelFunc
	start time.Time
	off   bool
}

// beginWarmUp waits for the connection, and begins the time that warming up may
// take.
func (p *Plane) beginWarmUp(ctx context.Context, conn *nats.Conn) *warmUp {
	w := &warmUp{plane: p, off: p.cfg.WarmUp.Timeout <= 0}
	w.ctx, w.end = context.WithCancel(ctx)
	if !w.off && connected(ctx, conn) {
		w.end()
		w.ctx, w.end = context.WithTimeout(ctx, p.cfg.WarmUp.Timeout)
	}
	w.start = time.Now()
	return w
}

// step says what is being waited for. The warm-up may end meanwhile: then it has
// ended.
func (w *warmUp) step(what string, args ...any) {
	if before := w.plane.warming.Load(); !w.off && *before != "" {
		text := fmt.Sprintf(what, args...)
		w.plane.warming.CompareAndSwap(before, &text)
	}
}

// finish asks the workers that nobody told of, and ends the warm-up.
func (w *warmUp) finish() {
	p := w.plane
	if w.off {
		return
	}
	err := w.fromWorkers()
	s := p.cfg.Index.Stats()
	log := p.cfg.Log.With("blocks", s.Entries, "workers", s.Workers, "took", time.Since(w.start).Round(time.Millisecond).String())
	switch {
	case err == nil:
		log.Info("the event plane is warm")
	case errors.Is(err, context.DeadlineExceeded):
		log.Warn("warming up took too long; what is missing comes with the events", "waited_for", p.Warming())
	}
	done := ""
	p.warming.Store(&done)
}

// fromPeer loads what another replica knows, while live events wait.
func (w *warmUp) fromPeer(conn *nats.Conn) {
	p := w.plane
	if w.off || !p.cfg.WarmUp.Peers || w.ctx.Err() != nil {
		return
	}
	w.step("asking other replicas what workers hold")
	from, err := newPeerFetcher(p.peerPrefix(), p.id).fetch(w.ctx, conn, func(_ offer, r io.Reader) error { return p.restore(r, nil) })
	switch {
	case errors.Is(err, errNoPeers):
		p.cfg.Log.Info("no other replica is there to warm up from")
	case err != nil:
		p.cfg.Log.Warn("warming up from another replica failed", "error", withoutURL(err))
	default:
		p.cfg.Log.Info("warmed up from another replica", "replica", from.ID, "blocks", p.cfg.Index.Stats().Entries)
	}
}

// fromWorkers waits until the workers that can be asked have told what they hold.
func (w *warmUp) fromWorkers() error {
	p := w.plane
	if p.cfg.Recover == nil {
		return w.ctx.Err()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.askNew()
		left, all := p.untold()
		if left == 0 {
			return w.ctx.Err()
		}
		if all == 0 {
			w.step("waiting for the list of workers")
		} else {
			w.step("asking workers what they hold: %d of %d are left", left, all)
		}
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case <-tick.C:
		}
	}
}

func (p *Plane) peerPrefix() string { return peerPrefix(p.cfg.Namespace, "") }

// servePeers hands what this replica knows to others that start, until ctx ends. It
// begins when this replica has asked itself: where nobody listens, NATS says so at
// once.
func (p *Plane) servePeers(ctx context.Context, conn *nats.Conn) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.opened:
	}
	server := peerServer{
		Prefix: p.peerPrefix(), ID: p.id,
		Ready: func() (offer, bool) {
			return offer{Entries: uint64(p.cfg.Index.Stats().Entries), Age: p.cfg.Now().Sub(p.started)}, p.Warming() == ""
		},
		Snapshot: func(w io.Writer) error { return p.writeState(w, stateHeader{}) },
		Done: func(to string, bytes uint64, err error) {
			if err != nil {
				p.cfg.Log.Warn("another replica could not be warmed up", "replica", to, "bytes", bytes, "error", err)
				return
			}
			p.cfg.Log.Info("warmed up another replica", "replica", to, "bytes", bytes)
		},
	}
	return server.serve(ctx, conn)
}

// untold counts the workers that can be asked and are being asked.
func (p *Plane) untold() (left, all int) {
	keys, ok := p.cfg.Recover.Workers()
	if !ok {
		return 1, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if c := p.workers[key]; c == nil || c.asking != nil {
			left++
		}
	}
	return left, len(keys)
}

// writeState writes all that the plane knows. Events may go on: what is written of
// a worker may be newer than its cursor, never older, and an event that is taken in
// again changes nothing.
func (p *Plane) writeState(w io.Writer, h stateHeader) error {
	h.Made, h.Namespace = p.cfg.Now(), p.cfg.Namespace
	return writeState(w, h, p.cursors(), p.cfg.Index.Snapshot)
}

// cursors returns how far the events of all workers are known, with no event on
// its way into the index.
func (p *Plane) cursors() []cursorState {
	for _, l := range p.lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]cursorState, 0, len(p.workers))
	for key, c := range p.workers {
		if c.known || c.asking != nil {
			all = append(all, c.save(key))
		}
	}
	return all
}

func (c *cursor) save(key fleet.Key) cursorState {
	return cursorState{
		Key: key, LastID: c.stats.LastID, Live: c.live, Source: c.source, Replaced: c.replaced, Changed: c.changed,
		Published: millis(c.published), Born: millis(c.born),
		Partial: c.stats.State == Partial || c.asking != nil && c.asking.before == Partial,
		Unsure:  c.skipped || c.asking != nil && (c.asking.known || c.asking.replacing), Heard: c.heard,
	}
}

// millis is a time that a publisher told. Some that is none is none.
func millis(ms uint64) time.Time {
	if ms == 0 || ms > math.MaxInt64/uint64(time.Millisecond) {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

func unmillis(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMilli())
}

// errOtherNamespace is returned for a state of another deployment.
var errOtherNamespace = errors.New("it is of another namespace")

// restore takes in what another replica knew. The plane must have taken in nothing
// yet; after an error it still has not. check, if set, may refuse by the header.
func (p *Plane) restore(r io.Reader, check func(stateHeader) error) error {
	h, cursors, rest, err := readState(r)
	if err != nil {
		return err
	}
	if h.Namespace != p.cfg.Namespace {
		return fmt.Errorf("%w: %q", errOtherNamespace, h.Namespace)
	}
	if check != nil {
		if err := check(h); err != nil {
			return err
		}
	}
	if err := p.cfg.Index.Load(rest); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	for i := range cursors {
		p.resume(&cursors[i], now)
	}
	return nil
}

// resume goes on where another replica was with a worker. Its caller holds the
// lock, and no lane takes anything in yet.
func (p *Plane) resume(s *cursorState, now time.Time) {
	c := p.cursor(s.Key)
	c.known, c.heard = true, s.Heard
	c.stats.LastID, c.live = s.LastID, s.Live
	c.source, c.replaced, c.changed = s.Source, s.Replaced, s.Changed
	c.published, c.born = unmillis(s.Published), unmillis(s.Born)
	if s.Heard && s.Source != 0 {
		p.homes[speaker{s.Key.ID, s.Source}] = s.Key.Rank
	}
	switch {
	case s.Unsure:
		p.giveUp(s.Key, c, now, "the other replica was not sure either")
		c.known, c.retry = false, now
	case s.Partial:
		c.enter(Partial, now)
	}
}
