package eventplane

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
)

// Loads takes in what engines and other routers say about the load of workers.
// load.Engines does.
type Loads interface {
	State(fleet.Key, load.Occupancy)
	Step(fleet.Key, load.Step)
	Route(k fleet.Key, r load.Routed, now time.Time)

	RouterAlive(router, at uint64, now time.Time) (fresh bool)
	RouterState(s load.RouterState, now time.Time) (fresh bool)
	RouterGone(router, at uint64, now time.Time)
	RoutersSilent(now, listening time.Time) (n int, one uint64)
	Routers(now time.Time) (n int, oldest time.Duration)
}

// loadQueueSize bounds the load messages that wait for us. A figure that comes
// late is of little use, and the next one replaces it.
const loadQueueSize = 1 << 14

// LoadStats counts load messages. They are in no count of Stats.
type LoadStats struct {
	ByTopic       map[string]uint64 // messages that could be read; has every topic from the start
	OtherSpace    uint64            // of another namespace: ignored
	BadMessages   uint64            // that could not be read
	Misplaced     uint64            // of another topic than their subject: in ByTopic, but not used
	Own           uint64            // of this process, about its own requests: in ByTopic, but not used
	UnknownFields uint64            // fields that were skipped
	Dropped       uint64            // messages NATS dropped because we were too slow
}

// loadFeed is the load side of a plane: own queue, own goroutine, own lock, so
// that a flood of load messages holds up no KV event.
type loadFeed struct {
	mu       sync.Mutex // guards all below
	decoder  dynamo.LoadDecoder
	subjects map[string]subject
	subs     []*nats.Subscription
	stats    LoadStats // without those that the decoder counts

	// Starts of the current periods of silence about bad and about dropped messages.
	badSince, slowSince time.Time
}

func newLoadFeed() loadFeed { return loadFeed{subjects: map[string]subject{}} }

// subscribeLoads adds the subscriptions of the load topics.
func (p *Plane) subscribeLoads(conn *nats.Conn, queue chan *nats.Msg) error {
	for _, wildcard := range dynamo.LoadSubjects() {
		sub, err := conn.ChanSubscribe(wildcard, queue)
		if err != nil {
			return fmt.Errorf("eventplane: subscribe to %s: %w", wildcard, err)
		}
		p.loads.mu.Lock()
		p.loads.subs = append(p.loads.subs, sub)
		p.loads.mu.Unlock()
	}
	return nil
}

// LoadStats returns the counts of load messages.
func (p *Plane) LoadStats() LoadStats {
	f := &p.loads
	f.mu.Lock()
	defer f.mu.Unlock()
	f.countDropped()
	s, d := f.stats, f.decoder.Stats()
	s.BadMessages += d.BadMessages
	s.UnknownFields = d.UnknownFields
	s.ByTopic = map[string]uint64{
		dynamo.TopicKVMetrics: d.Metrics, dynamo.TopicForwardPassMetrics: d.Passes, dynamo.TopicActiveSequences: d.Sequences,
	}
	return s
}

// countDropped asks the subscriptions, as long as they are open. Its caller holds
// the lock.
func (f *loadFeed) countDropped() {
	n := uint64(0)
	for _, sub := range f.subs {
		dropped, err := sub.Dropped()
		if err != nil {
			return
		}
		n += uint64(dropped)
	}
	f.stats.Dropped = n
}

// receiveLoad handles one load message. Messages come one after the other: what is
// read of one is used before the next is read.
func (p *Plane) receiveLoad(m *nats.Msg) {
	now := p.cfg.Now()
	env, l, err := p.loads.read(m, p.cfg.Namespace)
	switch {
	case err != nil:
		p.sayBadLoad(m, err, now)
	case l == nil || p.heardMyself(l, m.Subject):
	default:
		deliver(p.cfg.Loads, env, l, now)
	}
}

// heardMyself says whether a message is one of our own: what it is about is in our
// own books already. From others it learns where workers are.
func (p *Plane) heardMyself(l *dynamo.Load, subject string) bool {
	a, e := p.announce, &l.Sequence
	if l.Kind == dynamo.LoadSequence && p.cfg.Siblings.have(e.RouterID) {
		p.loads.mu.Lock()
		p.loads.stats.Own++
		p.loads.mu.Unlock()
		return true
	}
	switch {
	case a == nil:
	case l.Kind == dynamo.LoadMetrics:
		a.places.heard(fleet.Key{ID: l.Metrics.WorkerID, Rank: l.Metrics.Rank}, subject)
	case l.Kind == dynamo.LoadForwardPass:
		a.places.heard(fleet.Key{ID: l.Pass.WorkerID, Rank: l.Pass.Rank}, subject)
	case e.RouterID == e.WorkerID:
		a.places.heard(fleet.Key{ID: e.WorkerID, Rank: e.Rank}, subject)
	default:
		a.places.mentioned(fleet.Key{ID: e.WorkerID, Rank: e.Rank}, subject)
	}
	return false
}

// read reads a message, nil when it is of another namespace.
func (f *loadFeed) read(m *nats.Msg, namespace string) (dynamo.Envelope, *dynamo.Load, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.subjects[m.Subject]
	if !ok {
		s = readSubject(m.Subject, namespace)
		if len(f.subjects) >= maxSubjects {
			clear(f.subjects)
		}
		f.subjects[m.Subject] = s
	}
	if s.err != nil {
		f.stats.BadMessages++
		return dynamo.Envelope{}, nil, s.err
	}
	if !s.ours {
		f.stats.OtherSpace++
		return dynamo.Envelope{}, nil, nil
	}
	env, l, err := f.decoder.Decode(m.Data)
	if err == nil && l.Kind.String() != s.topic {
		f.stats.Misplaced++
		return env, nil, fmt.Errorf("message of topic %s on a subject of topic %s", l.Kind, s.topic)
	}
	return env, l, err
}

// sayBadLoad says at most once a minute that messages cannot be read.
func (p *Plane) sayBadLoad(m *nats.Msg, err error, now time.Time) {
	f := &p.loads
	f.mu.Lock()
	quiet := now.Sub(f.badSince) < time.Minute
	if !quiet {
		f.badSince = now
	}
	f.mu.Unlock()
	if !quiet {
		p.cfg.Log.Warn("a load message could not be read and was skipped; more within a minute are only counted",
			"subject", m.Subject, "bytes", len(m.Data), "error", err)
	}
}

// loadsDropped says at most once a minute that load messages are dropped, if that
// is what an error of a subscription is about. In a flood NATS reports one for
// every time that dropping starts again.
func (p *Plane) loadsDropped(sub *nats.Subscription, err error) bool {
	if !errors.Is(err, nats.ErrSlowConsumer) {
		return false
	}
	now := p.cfg.Now()
	f := &p.loads
	f.mu.Lock()
	ours, quiet := slices.Contains(f.subs, sub), now.Sub(f.slowSince) < time.Minute
	if ours && !quiet {
		f.slowSince = now
	}
	f.mu.Unlock()
	if ours && !quiet {
		p.cfg.Log.Warn("load messages come faster than they are taken in; some are dropped, more within a minute are only counted")
	}
	return ours
}

// deliver hands a message to the sink.
func deliver(to Loads, env dynamo.Envelope, l *dynamo.Load, now time.Time) {
	switch l.Kind {
	case dynamo.LoadMetrics:
		m := &l.Metrics
		to.State(fleet.Key{ID: m.WorkerID, Rank: m.Rank}, load.Occupancy{
			DecodeBlocks: reading(m.DecodeBlocks, now), PrefillTokens: reading(m.PrefillTokens, now), UsedBlocks: reading(m.UsedBlocks, now),
		})
	case dynamo.LoadForwardPass:
		s := &l.Pass
		to.Step(fleet.Key{ID: s.WorkerID, Rank: s.Rank}, load.Step{
			Counter: s.Counter, Scheduled: batch(s.Scheduled, now), Queued: batch(s.Queued, now),
		})
	case dynamo.LoadSequence:
		e := &l.Sequence
		r := routed(e)
		r.At = env.PublishedAt
		to.Route(fleet.Key{ID: e.WorkerID, Rank: e.Rank}, r, now)
	}
}

func reading(o dynamo.Optional[uint64], now time.Time) load.Reading {
	if !o.Set {
		return load.Reading{}
	}
	return load.Reading{N: o.Value, At: now}
}

func batch(o dynamo.Optional[dynamo.Requests], now time.Time) load.Batch {
	if !o.Set {
		return load.Batch{}
	}
	r := &o.Value
	return load.Batch{
		Prefills: r.Prefills, PrefillTokens: r.PrefillTokens, PrefillKVTokens: r.PrefillKVTokens,
		Decodes: r.Decodes, DecodeKVTokens: r.DecodeKVTokens, At: now,
	}
}

// routed translates the word of a router. A router that gives no hint has nothing
// to compute on the worker, or does not know: the tokens of its prompt are not in
// the message.
func routed(e *dynamo.SequenceEvent) load.Routed {
	r := load.Routed{Request: e.RequestID, Router: e.RouterID}
	switch e.Kind {
	case dynamo.AddRequest:
		r.Kind = load.Placed
		if e.Added.TrackPrefill && e.Added.Hint.Set {
			r.PrefillTokens = e.Added.Hint.Value.Tokens
		}
		r.Blocks = uint64(len(e.Added.Sequence.Value))
	case dynamo.MarkPrefillCompleted:
		r.Kind = load.PrefillDone
	case dynamo.Free:
		r.Kind = load.Finished
	}
	return r
}
