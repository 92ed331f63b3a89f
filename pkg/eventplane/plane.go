package eventplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Config is what a Plane needs. Fields without a default are required.
type Config struct {
	URL       string // of one or more NATS servers, separated by commas
	Namespace string // Dynamo base namespace; empty hears all
	Name      string // connection name, default "warmpath"

	Index *index.Index
	// Known says whether a pool has a worker.
	Known func(fleet.Key) bool
	// Lost is called when all that a worker held is gone. The index still knows
	// the worker then.
	Lost func(fleet.Key)

	Log *slog.Logger
	Now func() time.Time // default time.Now
}

// Plane is a connection to the event plane.
type Plane struct {
	cfg        Config
	maxPending int // bytes that wait for us before NATS drops messages

	mu       sync.Mutex // one message at a time; guards all below
	decoder  dynamo.Decoder
	subjects map[string]subject
	workers  map[fleet.Key]*cursor
	stats    Stats
	conn     *nats.Conn
	subs     []*nats.Subscription
	badSince time.Time // start of the current period of silence about bad messages
}

// Stats counts what the event plane as a whole did.
type Stats struct {
	Messages     uint64            // in our namespace, on a subject that can be read
	OtherSpace   uint64            // of another namespace: ignored
	BadMessages  uint64            // that no event, or not all, could be read from, or not even the subject
	Dropped      uint64            // messages NATS dropped because we were too slow
	Disconnects  uint64            // connection losses
	ByComponent  map[string]uint64 // messages by component of the subject
	Decode       dynamo.DecodeStats
	Connected    bool
	EverListened bool // was connected at least once
}

// subject is the cached reading of a subject.
type subject struct {
	scope     dynamo.Scope
	component string
	ours      bool
	err       error // why it cannot be read
}

// maxSubjects bounds the cache of subjects.
const maxSubjects = 4096

// maxPending bounds what waits for us. It is far above any burst of a healthy
// fleet.
const maxPending = 512 << 20

// New returns a plane that is not connected yet.
func New(cfg Config) (*Plane, error) {
	if cfg.URL == "" || cfg.Index == nil || cfg.Known == nil || cfg.Lost == nil || cfg.Log == nil {
		return nil, errors.New("eventplane: a required field of the config is missing")
	}
	if cfg.Name == "" {
		cfg.Name = "warmpath"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Plane{
		cfg: cfg, maxPending: maxPending, subjects: map[string]subject{}, workers: map[fleet.Key]*cursor{},
		stats: Stats{ByComponent: map[string]uint64{}},
	}, nil
}

// Run listens until ctx ends. A NATS server that is not there yet, or goes away,
// is no error: the plane keeps trying, and what it misses shows as gaps.
func (p *Plane) Run(ctx context.Context) error {
	closed := make(chan struct{})
	conn, err := nats.Connect(p.cfg.URL,
		nats.Name(p.cfg.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Second),
		nats.ReconnectJitter(500*time.Millisecond, 500*time.Millisecond),
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(p.connected),
		nats.ReconnectHandler(p.connected),
		nats.DisconnectErrHandler(p.disconnected),
		nats.ErrorHandler(p.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	)
	if err != nil {
		return fmt.Errorf("eventplane: connect to NATS: %w", err)
	}
	p.mu.Lock()
	p.conn = conn
	p.mu.Unlock()
	var receiving sync.WaitGroup
	defer func() {
		p.Stats() // notes what was dropped: a closed subscription does not tell
		conn.Close()
		<-closed
		receiving.Wait()
	}()
	if !conn.IsConnected() {
		p.cfg.Log.Warn("the event plane is not reachable yet; requests are routed without cache knowledge until it is", "error", cmp.Or(conn.LastError(), nats.ErrNoServers))
	}
	for _, wildcard := range dynamo.KVEventSubjects() {
		if err := p.subscribe(conn, wildcard, &receiving); err != nil {
			return fmt.Errorf("eventplane: subscribe to %s: %w", wildcard, err)
		}
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.sweep()
		}
	}
}

// subscribe adds a subscription. receiving waits until its last message is done,
// which may be after the connection is closed.
func (p *Plane) subscribe(conn *nats.Conn, wildcard string, receiving *sync.WaitGroup) error {
	sub, err := conn.Subscribe(wildcard, p.receive)
	if err != nil {
		return err
	}
	receiving.Add(1)
	sub.SetClosedHandler(func(string) { receiving.Done() })
	p.mu.Lock()
	p.subs = append(p.subs, sub)
	p.mu.Unlock()
	return sub.SetPendingLimits(-1, p.maxPending)
}

// sweepEvery is how often workers that no pool has are looked for.
const sweepEvery = time.Minute

// sweep drops what the index holds of workers that no pool has had for long, and
// that have fallen silent: whoever speaks is dropped when it does.
func (p *Plane) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	for key, c := range p.workers {
		if _, _, givenUp := c.admit(p.cfg.Known(key), now); givenUp {
			p.forget(key)
		}
	}
}

// forget drops what the index holds of a worker that no pool has.
func (p *Plane) forget(key fleet.Key) {
	p.cfg.Lost(key)
	p.cfg.Index.Drop(key)
}

func (p *Plane) connected(c *nats.Conn) {
	p.mu.Lock()
	again := p.stats.EverListened
	p.stats.EverListened = true
	p.mu.Unlock()
	log := p.cfg.Log.With("server", c.ConnectedUrlRedacted(), "namespace", p.cfg.Namespace)
	if again {
		log.Info("connected to the event plane again")
	} else {
		log.Info("connected to the event plane")
	}
}

func (p *Plane) disconnected(c *nats.Conn, err error) {
	if c.IsClosed() {
		return
	}
	p.mu.Lock()
	p.stats.Disconnects++
	p.mu.Unlock()
	p.cfg.Log.Warn("lost the connection to the event plane; events until it is back are missed", "error", err)
}

// asyncError hears of dropped messages only when dropping starts: Stats asks for
// their number.
func (p *Plane) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	p.cfg.Log.Warn("the event plane reports an error", "error", err)
}

// receive handles one NATS message. Messages of one subscription come one after
// the other, so the events of a worker stay in order.
func (p *Plane) receive(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.subject(m.Subject)
	if s.err != nil {
		p.stats.BadMessages++
		p.logBad(m.Subject, len(m.Data), s.err)
		return
	}
	if !s.ours {
		p.stats.OtherSpace++
		return
	}
	p.stats.Messages++
	p.stats.ByComponent[s.component]++
	skipped := p.decoder.Stats().BadEvents
	_, err := p.decoder.Decode(m.Data, s.scope, p.apply)
	if err == nil && p.decoder.Stats().BadEvents > skipped {
		err = p.decoder.LastSkip()
	}
	if err != nil {
		p.stats.BadMessages++
		p.logBad(m.Subject, len(m.Data), err)
	}
}

// logBad says at most once a minute that messages cannot be read.
func (p *Plane) logBad(subject string, size int, err error) {
	now := p.cfg.Now()
	if now.Sub(p.badSince) < time.Minute {
		return
	}
	p.badSince = now
	p.cfg.Log.Warn("an event could not be read and was skipped; more within a minute are only counted",
		"subject", subject, "bytes", size, "error", err, "bad_messages", p.stats.BadMessages)
}

func (p *Plane) subject(text string) subject {
	if s, ok := p.subjects[text]; ok {
		return s
	}
	var s subject
	if parsed, err := dynamo.ParseSubject(text); err != nil {
		s.err = err
	} else {
		s.scope, s.component = parsed.Scope, parsed.Component
		s.ours = dynamo.InNamespace(parsed.Namespace, p.cfg.Namespace)
	}
	if len(p.subjects) >= maxSubjects {
		clear(p.subjects)
	}
	p.subjects[text] = s
	return s
}

// apply takes one event into the index. Its caller holds the lock.
func (p *Plane) apply(ev *kvevent.Event) {
	key := keyOf(ev)
	c := p.cursor(key)
	keep, stranger, givenUp := c.admit(p.cfg.Known(key), p.cfg.Now())
	if stranger {
		p.cfg.Log.Warn("events come from a worker that is in no pool; they are kept for a while",
			"worker_id", key.ID, "rank", key.Rank, "kept_for", unknownGrace)
	}
	if givenUp {
		p.forget(key)
	}
	switch c.advance(ev.ID) {
	case duplicate:
		return
	case restart:
		p.cfg.Log.Info("a worker started over; what it held is forgotten", "worker_id", key.ID, "rank", key.Rank)
		p.cfg.Index.Clear(key)
		p.cfg.Lost(key)
	case gap:
		if c.stats.Gaps == 1 {
			p.cfg.Log.Warn("events of a worker are missing; further gaps of it are only counted",
				"worker_id", key.ID, "rank", key.Rank, "missed", c.stats.Missed)
		}
	case next:
	}
	if !keep {
		c.stats.Refused++
		return
	}
	if err := p.cfg.Index.Apply(ev); err != nil {
		if c.stats.Refused++; c.stats.Refused == 1 {
			p.cfg.Log.Error("a worker's events cannot be kept", "worker_id", key.ID, "rank", key.Rank, "error", err)
		}
		return
	}
	c.stats.Events++
	if ev.Kind == kvevent.Cleared {
		p.cleared(key, ev.AllRanks)
	}
}

// maxCursors bounds the workers whose event ids are followed. Ids of processes
// that come and go would add up over the months.
const maxCursors = 4 * index.MaxWorkers

func (p *Plane) cursor(key fleet.Key) *cursor {
	c := p.workers[key]
	if c != nil {
		return c
	}
	if len(p.workers) >= maxCursors {
		maps.DeleteFunc(p.workers, func(k fleet.Key, _ *cursor) bool {
			if p.cfg.Known(k) {
				return false
			}
			p.forget(k) // nobody else would: the sweep follows cursors
			return true
		})
	}
	c = &cursor{}
	p.workers[key] = c
	return c
}

func (p *Plane) cleared(key fleet.Key, allRanks bool) {
	if !allRanks {
		p.cfg.Lost(key)
		return
	}
	for other := range p.workers {
		if other.ID == key.ID {
			p.cfg.Lost(other)
		}
	}
}

// Connected says whether the plane is connected now.
func (p *Plane) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil && p.conn.IsConnected()
}

// Stats returns the plane's counters.
func (p *Plane) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countDropped()
	s := p.stats
	s.ByComponent = maps.Clone(s.ByComponent)
	s.Decode = p.decoder.Stats()
	s.Connected = p.conn != nil && p.conn.IsConnected()
	return s
}

// countDropped asks the subscriptions, as long as they are open. Its caller holds
// the lock.
func (p *Plane) countDropped() {
	n := uint64(0)
	for _, sub := range p.subs {
		dropped, err := sub.Dropped()
		if err != nil {
			return
		}
		n += uint64(dropped)
	}
	p.stats.Dropped = n
}

// Workers returns the counters of every worker that was heard.
func (p *Plane) Workers() map[fleet.Key]WorkerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[fleet.Key]WorkerStats, len(p.workers))
	for k, c := range p.workers {
		all[k] = c.stats
	}
	return all
}
