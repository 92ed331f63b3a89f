package eventplane

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Config is what a Plane needs. Fields without a default are required.
type Config struct {
	URL       string // of one or more NATS servers, separated by commas
	Namespace string // Dynamo base namespace; empty hears all
	Name      string // connection name, default "warmpath"
	Security  Security
	// AwaitFiles lets Run wait for files of Security that cannot be used yet: a
	// Secret may be mounted later. Otherwise New refuses them.
	AwaitFiles bool

	Index *index.Index
	// Known, Lost and Drop may be called with the plane's lock held: none of them
	// may call the plane.

	// Known says whether a pool has a worker.
	Known func(fleet.Key) bool
	// Lost is called when all that a worker held is gone. The index still knows
	// the worker then.
	Lost func(fleet.Key)
	// Drop drops what is known of a worker, unless a pool has it by now; the pool
	// owner serialises this with pool changes.
	Drop func(fleet.Key)
	// Restarted, if set, is called when another process speaks for a worker, under
	// the same condition. Lost is called as well.
	Restarted func(fleet.Key)

	// Recover asks workers what they hold; nil: nobody can be asked.
	Recover Recoverer

	JetStream *JetStream // nil: events are heard as NATS delivers them
	WarmUp    WarmUp

	// Loads hears of the load of workers; nil listens to KV events alone. It is
	// called without a lock, by several goroutines.
	Loads Loads
	// LoadsOnly leaves KV events alone: nobody wants to know what workers hold. Then
	// Recover, JetStream and WarmUp have no effect.
	LoadsOnly bool

	ReplicaSync bool // tell other routers of the requests that are announced (Dynamo's --router-replica-sync)

	// Siblings are the other planes of the process, which share it; nil: there are
	// none.
	Siblings *Siblings

	Log *slog.Logger
	Now func() time.Time // default time.Now
}

// Plane is a connection to the event plane.
type Plane struct {
	cfg     Config
	secrets *secrets
	queue   chan *nats.Msg // from NATS itself; when it is full, NATS drops messages

	reconnectWait, rereadEvery, askBackoff, streamRetry, handover time.Duration
	beatEvery, stateEvery                                         time.Duration

	loads    loadFeed
	replicas replicaFeed
	lanes    []*lane
	announce *announcer // nil without replica sync

	stream     chan item // from the stream, which waits for us
	barriers   chan *barrier
	open       func() // lets messages into the lanes
	opened     chan struct{}
	warming    atomic.Pointer[string] // what a new plane waits for; empty: nothing
	id         string                 // of this replica
	started    time.Time
	dispatched atomic.Uint64        // sequence of the newest message of the stream that a lane has
	onMessage  func(subject string) // of tests: hears of messages that were taken in

	asks chan struct{} // something is due

	mu         sync.Mutex // guards all below; never held while the index takes an event in
	stats      Stats
	conn       *nats.Conn
	subscribed bool // the subscriptions are in effect, or will be with the connection
	subs       []*nats.Subscription
	// droppedBefore counts what subscriptions that were given up dropped.
	droppedBefore uint64

	workers   map[fleet.Key]*cursor
	homes     map[speaker]uint32      // rank that a publisher is the source of
	silent    map[fleet.Key]time.Time // in the index without a cursor: since when no pool has them
	strangers strangers
	due       []fleet.Key // workers to be asked
	unsure    bool        // events of any worker may have been lost
	doubted   bool        // for the same reason, all were made sure of before
	sure      uint64      // messages dropped when it was looked at last

	refusals map[string]int // since the last connection: as of which change of the secrets each was logged

	sayings  []saying  // to be logged when the lock is free
	badSince time.Time // start of the current period of silence about bad messages
}

// Stats counts what the event plane as a whole did.
type Stats struct {
	Messages     uint64            // in our namespace, on a subject that can be read
	OtherSpace   uint64            // of another namespace: ignored
	BadMessages  uint64            // that no event, or not all, could be read from, or not even the subject
	Dropped      uint64            // messages NATS dropped because we were too slow
	Disconnects  uint64            // connection losses
	ByComponent  map[string]uint64 // messages that could be decoded, by component; valid UTF-8, few
	Decode       dynamo.DecodeStats
	Stream       StreamStats
	Strangers    uint64 // events of workers that no pool ever had
	Waiting      int    // messages that wait to be taken in
	Capacity     int    // how many may, before NATS drops others or its stream is read slower
	Connected    bool
	EverListened bool // was connected at least once, with its subscriptions in effect
}

// queueSize bounds the messages that wait for us. It is far above any burst of a
// healthy fleet.
const queueSize = 1 << 16

// New returns a plane that is not connected yet. A file of its security that is
// missing or broken is an error.
func New(cfg Config) (*Plane, error) {
	if cfg.URL == "" || cfg.Index == nil || cfg.Known == nil || cfg.Lost == nil || cfg.Drop == nil || cfg.Log == nil {
		return nil, errors.New("eventplane: a required field of the config is missing")
	}
	if cfg.Name == "" {
		cfg.Name = "warmpath"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.LoadsOnly {
		cfg.Recover, cfg.JetStream, cfg.WarmUp = nil, nil, WarmUp{}
	}
	if cfg.Siblings == nil {
		cfg.Siblings = &Siblings{}
	}
	secrets, err := newSecrets(cfg.Security, cfg.Log)
	if err != nil && (!cfg.AwaitFiles || secrets == nil) {
		return nil, fmt.Errorf("eventplane: %w", err)
	}
	p := &Plane{
		cfg: cfg, secrets: secrets, queue: make(chan *nats.Msg, queueSize), loads: newLoadFeed(), announce: newAnnouncer(&cfg),
		reconnectWait: reconnectWait, rereadEvery: rereadEvery, askBackoff: askBackoff, streamRetry: streamRetry, handover: handover,
		beatEvery: beatEvery, stateEvery: stateEvery,
		refusals: map[string]int{}, stats: Stats{ByComponent: map[string]uint64{}},
		workers: map[fleet.Key]*cursor{}, asks: make(chan struct{}, 1), barriers: make(chan *barrier), opened: make(chan struct{}),
		id: rand.Text(), started: cfg.Now(),
		homes: map[speaker]uint32{}, silent: map[fleet.Key]time.Time{},
	}
	p.lanes = newLanes(p)
	p.open = sync.OnceFunc(func() { close(p.opened) })
	if cfg.JetStream != nil {
		p.stream = make(chan item, streamQueueSize)
	}
	warming := ""
	if cfg.WarmUp.Timeout > 0 {
		warming = "waiting for NATS"
	}
	p.warming.Store(&warming)
	return p, nil
}

// Connected says whether the plane is connected now.
func (p *Plane) Connected() bool {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	return conn != nil && conn.IsConnected() // which may wait for the network
}

// LastError says why the plane is not connected, as far as that is known. It may be
// there while the plane is connected again.
func (p *Plane) LastError() error {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn == nil {
		return p.secrets.trouble()
	}
	return withoutURL(cmp.Or(conn.LastError(), nats.ErrNoServers))
}

// Stats returns the plane's counters.
func (p *Plane) Stats() Stats {
	connected := p.Connected()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countDropped()
	s := p.stats
	s.ByComponent = maps.Clone(s.ByComponent)
	for _, l := range p.lanes {
		s.Decode.Add(l.decoded)
	}
	s.Waiting = p.waiting()
	s.Capacity = cap(p.queue)
	s.Connected = connected
	s.EverListened = s.EverListened && p.subscribed
	return s
}

// countDropped asks the subscriptions, as long as they are open. Its caller holds
// the lock.
func (p *Plane) countDropped() {
	n := p.droppedBefore
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
