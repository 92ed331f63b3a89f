package eventplane

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// subject is the cached reading of a subject.
type subject struct {
	scope     dynamo.Scope
	component string
	topic     string
	ours      bool
	err       error // why it cannot be read
}

// maxSubjects bounds the cache of subjects.
const maxSubjects = 4096

// maxComponents bounds the components that are counted by name: they become
// labels of a metric. All others are otherComponents.
const (
	maxComponents   = 64
	otherComponents = "other"
)

// message is a message whose events are being taken in.
type message struct {
	subject string
	data    []byte
	scope   dynamo.Scope
	at      time.Time // when NATS brought it, or its stream took it in

	event int // which of its events is under way, from 1; of a message that waits the first that does
	last  int // of a message that waits: the last that does

	publisher, published uint64 // of its envelope
	tier                 string // unknown one that it names
}

// origin is where an event of a worker in the message comes from.
func (m *message) origin(worker uint64) origin {
	return origin{source: sourceOf(worker, m.publisher), published: m.published, at: m.at}
}

// receive handles one message.
func (p *Plane) receive(m *nats.Msg) { p.lanes[0].receive(item{msg: m}) }

// receive handles one message. The messages of a worker come one after the other,
// so its events stay in order.
func (l *lane) receive(it item) {
	p := l.plane
	s := l.subject(it.msg.Subject)
	before := l.decoder.Stats()
	var err error
	if s.err == nil && s.ours {
		if it.at.IsZero() {
			it.at = p.cfg.Now()
		}
		l.now = message{subject: it.msg.Subject, data: it.msg.Data, scope: s.scope, at: it.at}
		_, err = l.decoder.Decode(it.msg.Data, s.scope, l.take)
	}
	decoded := err == nil
	if after := l.decoder.Stats(); decoded && after.BadEvents > before.BadEvents {
		decoded = after.Events > before.Events
		err = l.decoder.LastSkip()
	}
	p.mu.Lock()
	p.count(l, it, s, decoded, err)
	said := p.takeSayings()
	p.mu.Unlock()
	p.log(said)
	if p.onMessage != nil {
		p.onMessage(it.msg.Subject)
	}
}

// count counts a message. Its caller holds the lock.
func (p *Plane) count(l *lane, it item, s subject, decoded bool, err error) {
	l.decoded = l.decoder.Stats()
	switch {
	case s.err != nil:
		err = s.err
	case !s.ours:
		p.stats.OtherSpace++
		return
	default:
		p.stats.Messages++
		if decoded {
			p.countComponent(s.component)
		}
	}
	if err != nil {
		p.stats.BadMessages++
		p.sayBad(it.msg.Subject, len(it.msg.Data), err)
	}
}

func (p *Plane) countComponent(name string) {
	if _, known := p.stats.ByComponent[name]; !known && len(p.stats.ByComponent) >= maxComponents {
		name = otherComponents
	}
	p.stats.ByComponent[name]++
}

func (l *lane) subject(text string) subject {
	if s, ok := l.subjects[text]; ok {
		return s
	}
	s := readSubject(text, l.plane.cfg.Namespace)
	if len(l.subjects) >= maxSubjects {
		clear(l.subjects)
	}
	l.subjects[text] = s
	return s
}

// readSubject reads a subject; base is the namespace that is ours.
func readSubject(text, base string) subject {
	parsed, err := dynamo.ParseSubject(text)
	if err != nil {
		return subject{err: err}
	}
	return subject{
		scope:     parsed.Scope,
		component: strings.ToValidUTF8(parsed.Component, "\uFFFD"),
		topic:     parsed.Topic,
		ours:      parsed.In(base),
	}
}

// take takes in one event of the message under way.
func (l *lane) take(ev *kvevent.Event) {
	e := l.decoder.Envelope()
	if p := l.plane; p.announce != nil {
		p.announce.places.heard(keyOf(ev), l.now.subject)
	}
	l.now.event++
	l.now.publisher, l.now.published, l.now.tier = e.PublisherID, e.PublishedAt, l.decoder.LastTier()
	home := l.plane.laneOf(ev.WorkerID)
	home.mu.Lock()
	defer home.mu.Unlock()
	l.plane.apply(ev, &l.now)
}

// apply takes one event into the index. Its caller holds the lock of the worker's
// lane.
func (p *Plane) apply(ev *kvevent.Event, m *message) {
	p.mu.Lock()
	c := p.cursor(keyOf(ev))
	keep := p.admit(keyOf(ev), c, p.cfg.Now())
	if c.asking != nil && !p.overtakes(c, ev, m) {
		p.wait(keyOf(ev), c, ev, m, keep)
		p.mu.Unlock()
		return
	}
	use := p.decide(c, ev, m, keep)
	watch := use && c.stats.State == Partial && ev.Kind == kvevent.Removed
	p.mu.Unlock()
	if watch {
		p.watchRemoval(c, ev)
		return
	}
	p.use(ev, use)
}

// jumped says that events before one are missing. They may be about all ranks.
func (p *Plane) jumped(key fleet.Key, c *cursor, m *message, now time.Time) {
	p.sayGap(key, c)
	if m.scope != dynamo.EndpointScope && c.asking == nil {
		p.loseAll(key, now)
	}
}

// use puts an event into the index, if so decided.
func (p *Plane) use(ev *kvevent.Event, decided bool) {
	if !decided {
		return
	}
	if err := p.cfg.Index.Apply(ev); err != nil {
		p.unkept(keyOf(ev), err)
	}
}

// decide says whether an event goes into the index, and does all else that it
// means. Its caller holds the locks.
func (p *Plane) decide(c *cursor, ev *kvevent.Event, m *message, keep bool) bool {
	key, now := keyOf(ev), p.cfg.Now()
	missing := uint64(0) // first of the ids that are missing; 0: none, 1: all before
	switch from := c.stats.LastID + 1; p.follow(key, c, ev.ID, m.origin(key.ID)) {
	case duplicate, stale:
		return false
	case restart:
		p.startedOver(key, c, now)
		if ev.ID > 1 {
			p.jumped(key, c, m, now)
			missing = 1
		}
	case midway:
		switch {
		case !p.canAsk(key): // what strays told of it stays true
			c.enter(Partial, now)
			c.retry = now // as soon as it can be asked
		case c.retry.IsZero(): // else it did not tell what was before
			missing = 1
		}
	case gap:
		p.jumped(key, c, m, now)
		missing = from
	case next:
		if c.stats.State == Suspect {
			c.enter(Synced, now)
		}
	case stray:
	}
	if !keep {
		c.stats.Refused++
		c.skipped = true
		return false
	}
	if c.skipped {
		c.skipped, missing = false, 1
	}
	if missing > 0 && ev.Kind != kvevent.Cleared && p.lose(key, c, missing, m, now) {
		return false
	}
	if ev.Tier >= kvevent.NumTiers {
		if c.stats.Ignored++; c.stats.Ignored == 1 {
			p.say(slog.LevelWarn, "events of a worker about an unknown storage tier are ignored; further ones are only counted",
				"worker_id", key.ID, "rank", key.Rank, "tier", m.tier)
		}
		return false
	}
	c.stats.Events++
	p.turn(c, ev, now)
	if ev.Kind == kvevent.Cleared {
		p.cleared(key, c, ev.AllRanks, now)
	}
	return true
}

// unkept notes that the index refused an event that was counted as applied.
func (p *Plane) unkept(key fleet.Key, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.workers[key]
	if c == nil {
		return
	}
	c.stats.Events--
	if c.stats.Refused++; c.stats.Refused == 1 {
		p.say(slog.LevelError, "a worker's events cannot be kept", "worker_id", key.ID, "rank", key.Rank, "error", err)
	}
}

// startedOver forgets what a worker held whose process is another one now.
func (p *Plane) startedOver(key fleet.Key, c *cursor, now time.Time) {
	p.say(slog.LevelInfo, "a worker started over; what it held is forgotten", "worker_id", key.ID, "rank", key.Rank)
	p.cfg.Index.Clear(key)
	p.cfg.Lost(key)
	if p.cfg.Restarted != nil {
		p.cfg.Restarted(key)
	}
	if c.asking == nil {
		c.enter(Synced, now)
	}
}

// cleared spreads the word that a rank, or every rank of its worker, holds nothing
// any more. The index may know ranks that never spoke.
func (p *Plane) cleared(key fleet.Key, c *cursor, allRanks bool, now time.Time) {
	c.enter(Synced, now)
	p.cfg.Lost(key)
	if !allRanks {
		return
	}
	for _, other := range p.cfg.Index.Workers() {
		if other.ID == key.ID && other != key {
			p.cfg.Lost(other)
		}
	}
	for other, o := range p.workers {
		switch {
		case other.ID != key.ID || other == key:
		case o.asking != nil:
			o.dropWaiting() // the answer may be older, and so may what waits for it
		case o.stats.State == Partial:
			o.enter(Synced, now) // it holds nothing, and that is known
		}
	}
}

// sayGap says once per worker that events of it were lost.
func (p *Plane) sayGap(key fleet.Key, c *cursor) {
	if c.stats.Gaps == 1 {
		p.say(slog.LevelWarn, "events of a worker are missing; further gaps of it are only counted",
			"worker_id", key.ID, "rank", key.Rank, "missed", c.stats.Missed)
	}
}

// sayBad says at most once a minute that messages cannot be read.
func (p *Plane) sayBad(subject string, size int, err error) {
	now := p.cfg.Now()
	if now.Sub(p.badSince) < time.Minute {
		return
	}
	p.badSince = now
	p.say(slog.LevelWarn, "an event could not be read and was skipped; more within a minute are only counted",
		"subject", subject, "bytes", size, "error", err, "bad_messages", p.stats.BadMessages)
}

// saying is a line of the log that waits for the lock to be free.
type saying struct {
	level slog.Level
	text  string
	args  []any
}

func (p *Plane) say(level slog.Level, text string, args ...any) {
	p.sayings = append(p.sayings, saying{level, text, args})
}

// takeSayings hands over what is to be logged. Its caller holds the lock.
func (p *Plane) takeSayings() []saying {
	said := p.sayings
	p.sayings = nil
	return said
}

// flushSayings logs what waits.
func (p *Plane) flushSayings() {
	p.mu.Lock()
	said := p.takeSayings()
	p.mu.Unlock()
	p.log(said)
}

func (p *Plane) log(said []saying) {
	for _, s := range said {
		p.cfg.Log.Log(context.Background(), s.level, s.text, s.args...) //nolint:sloglint // every caller of say passes a constant
	}
}
