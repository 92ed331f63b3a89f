package eventplane

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
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

// receive handles one NATS message. Messages come one after the other, so the
// events of a worker stay in order.
func (p *Plane) receive(m *nats.Msg) {
	p.mu.Lock()
	p.take(m)
	said := p.takeSayings()
	p.mu.Unlock()
	p.log(said)
}

// take handles one NATS message under the lock.
func (p *Plane) take(m *nats.Msg) {
	s := p.subject(m.Subject)
	if s.err != nil {
		p.stats.BadMessages++
		p.sayBad(m.Subject, len(m.Data), s.err)
		return
	}
	if !s.ours {
		p.stats.OtherSpace++
		return
	}
	p.stats.Messages++
	skipped := p.decoder.Stats().BadEvents
	apply := p.apply
	if p.announce != nil {
		p.announce.speaking, apply = m.Subject, p.applyFrom
	}
	_, err := p.decoder.Decode(m.Data, s.scope, apply)
	if err == nil {
		p.countComponent(s.component)
		if p.decoder.Stats().BadEvents > skipped {
			err = p.decoder.LastSkip()
		}
	}
	if err != nil {
		p.stats.BadMessages++
		p.sayBad(m.Subject, len(m.Data), err)
	}
}

func (p *Plane) countComponent(name string) {
	if _, known := p.stats.ByComponent[name]; !known && len(p.stats.ByComponent) >= maxComponents {
		name = otherComponents
	}
	p.stats.ByComponent[name]++
}

func (p *Plane) subject(text string) subject {
	if s, ok := p.subjects[text]; ok {
		return s
	}
	s := readSubject(text, p.cfg.Namespace)
	if len(p.subjects) >= maxSubjects {
		clear(p.subjects)
	}
	p.subjects[text] = s
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
		ours:      dynamo.InNamespace(parsed.Namespace, base),
	}
}

// apply takes one event into the index. Its caller holds the lock.
func (p *Plane) apply(ev *kvevent.Event) {
	key, now := keyOf(ev), p.cfg.Now()
	c := p.cursor(key)
	keep := p.admit(key, c, now)
	switch p.follow(key, c, ev.ID, now) {
	case duplicate, stale:
		return
	case restart:
		p.say(slog.LevelInfo, "a worker started over; what it held is forgotten", "worker_id", key.ID, "rank", key.Rank)
		p.cfg.Index.Clear(key)
		p.cfg.Lost(key)
		if p.cfg.Restarted != nil {
			p.cfg.Restarted(key)
		}
	case gap:
		p.sayGap(key, c)
	case next, stray:
	}
	if !keep {
		c.stats.Refused++
		return
	}
	switch err := p.cfg.Index.Apply(ev); {
	case errors.Is(err, index.ErrTier):
		if c.stats.Ignored++; c.stats.Ignored == 1 {
			p.say(slog.LevelWarn, "events of a worker about an unknown storage tier are ignored; further ones are only counted",
				"worker_id", key.ID, "rank", key.Rank, "tier", p.decoder.LastTier())
		}
	case err != nil:
		if c.stats.Refused++; c.stats.Refused == 1 {
			p.say(slog.LevelError, "a worker's events cannot be kept", "worker_id", key.ID, "rank", key.Rank, "error", err)
		}
	default:
		c.stats.Events++
		if ev.Kind == kvevent.Cleared {
			p.cleared(key, ev.AllRanks)
		}
	}
}

// cleared spreads the word that a rank, or every rank of its worker, holds nothing
// any more. The index may know ranks that never spoke.
func (p *Plane) cleared(key fleet.Key, allRanks bool) {
	if !allRanks {
		p.cfg.Lost(key)
		return
	}
	for _, other := range p.cfg.Index.Workers() {
		if other.ID == key.ID {
			p.cfg.Lost(other)
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

func (p *Plane) log(said []saying) {
	for _, s := range said {
		p.cfg.Log.Log(context.Background(), s.level, s.text, s.args...) //nolint:sloglint // every caller of say passes a constant
	}
}
