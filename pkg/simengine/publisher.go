package simengine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const (
	// stepBlocks bounds the blocks of one stored event: the tokens of one chunk of
	// prefill, 8192, in blocks of 16.
	stepBlocks = 512
	// batchEvents and batchBlocks are Dynamo's flush limits (dynamo.md 1.4).
	batchEvents = 128
	batchBlocks = 8192
)

// publisher turns changes of the cache into Dynamo events, numbers them and
// sends them in order. Adding never waits for the network. Its methods may be
// called on nil, which is a worker that publishes nothing.
type publisher struct {
	gen     dynamo.Generation
	worker  fleet.Key
	id      uint64 // publisher id of the envelope
	subject string
	now     func() time.Time
	send    func(subject string, data []byte) error
	log     *slog.Logger

	mu      sync.Mutex
	pending []kvevent.Event
	lastID  uint64

	wake      chan struct{}
	sequence  uint64 // of run
	buf       []byte // of run
	failing   bool   // of run
	published atomic.Uint64
	lost      atomic.Uint64
}

// newPublisher returns the publisher of a worker. The random source gives newer
// releases their publisher id; up to 1.2 it is the worker's.
func newPublisher(cfg Config, send func(string, []byte) error, random *rand.Rand) *publisher {
	p := &publisher{
		gen:     cfg.Generation,
		worker:  fleet.Key{ID: cfg.WorkerID, Rank: cfg.Rank},
		id:      cfg.WorkerID,
		subject: dynamo.EventSubject(cfg.Generation, cfg.Namespace, cfg.Component, cfg.Endpoint),
		now:     cfg.Now,
		send:    send,
		log:     cfg.Log,
		wake:    make(chan struct{}, 1),
	}
	if cfg.Generation != dynamo.Gen12 {
		p.id = random.Uint64() >> 11
	}
	return p
}

// add queues what one step did to the cache: first what left, then what came.
// Callers add in the order in which the cache changed.
func (p *publisher) add(evicted []kvevent.EngineHash, came []stored) {
	if p == nil || len(evicted)+len(came) == 0 {
		return
	}
	p.mu.Lock()
	for len(evicted) > 0 {
		n := 1 // a 1.2 worker passes on each removal of the engine alone
		if p.gen != dynamo.Gen12 {
			n = min(len(evicted), batchEvents)
		}
		p.queue(kvevent.Event{Kind: kvevent.Removed, Gone: evicted[:n]})
		evicted = evicted[n:]
	}
	for len(came) > 0 {
		n := contiguous(came)
		ev := kvevent.Event{Kind: kvevent.Stored, Parent: came[0].parent, HasParent: came[0].hasParent}
		ev.Blocks = make([]kvevent.Block, n)
		for i := range n {
			ev.Blocks[i] = came[i].block
		}
		p.queue(ev)
		came = came[n:]
	}
	p.mu.Unlock()
	p.signal()
}

// cleared queues that the whole cache is gone.
func (p *publisher) cleared() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.queue(kvevent.Event{Kind: kvevent.Cleared, AllRanks: p.gen == dynamo.Gen12})
	p.mu.Unlock()
	p.signal()
}

// contiguous returns how many blocks from the start follow each other and fit
// into one event.
func contiguous(s []stored) int {
	n := 1
	for n < len(s) && n < stepBlocks && s[n].hasParent && s[n].parent == s[n-1].block.Engine {
		n++
	}
	return n
}

// queue numbers an event. The caller holds mu.
func (p *publisher) queue(ev kvevent.Event) {
	p.lastID++
	ev.WorkerID, ev.Rank, ev.ID = p.worker.ID, p.worker.Rank, p.lastID
	ev.Tier = kvevent.Device
	if p.gen == dynamo.Gen15 {
		ev.Residency = "worker"
	}
	p.pending = append(p.pending, ev)
}

func (p *publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run sends queued events until ctx ends, and then what is still queued.
func (p *publisher) run(ctx context.Context) {
	if p == nil {
		return
	}
	for {
		select {
		case <-p.wake:
			p.drain()
		case <-ctx.Done():
			p.drain()
			return
		}
	}
}

func (p *publisher) drain() {
	p.mu.Lock()
	events := p.pending
	p.pending = nil
	p.mu.Unlock()
	for len(events) > 0 {
		n := p.batch(events)
		p.message(events[:n])
		events = events[n:]
	}
}

// batch returns how many of the events go into the next message.
func (p *publisher) batch(events []kvevent.Event) int {
	if p.gen == dynamo.Gen12 {
		return 1
	}
	blocks := 0
	for i, ev := range events {
		blocks += len(ev.Blocks) + len(ev.Gone)
		if i > 0 && (i == batchEvents || blocks > batchBlocks) {
			return i
		}
	}
	return len(events)
}

// message sends one message. As in Dynamo a message that cannot be sent is lost,
// and only the gap in the event ids tells.
func (p *publisher) message(events []kvevent.Event) {
	envelope := dynamo.Envelope{
		PublisherID: p.id,
		Sequence:    p.sequence,
		PublishedAt: uint64(p.now().UnixMilli()),
		Topic:       dynamo.TopicKVEvents,
	}
	p.sequence++
	var err error
	p.buf, err = dynamo.AppendMessage(p.buf[:0], p.gen, envelope, events)
	if err == nil {
		err = p.send(p.subject, p.buf)
	}
	n := uint64(len(events))
	if err != nil {
		p.lost.Add(n)
		if !p.failing {
			p.log.Warn("kv events are being lost", "subject", p.subject, "error", err)
		}
		p.failing = true
		return
	}
	p.published.Add(n)
	if p.failing {
		p.log.Info("kv events are sent again", "subject", p.subject, "lost_events", p.lost.Load())
	}
	p.failing = false
}
