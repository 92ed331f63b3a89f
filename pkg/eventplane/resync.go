package eventplane

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Recoverer asks workers what they hold (dynamo.md 1.9).
type Recoverer interface {
	// Workers returns the workers that can be asked. The plane asks those that it
	// does not know. It is not ok while the pool is not known yet.
	Workers() (keys []fleet.Key, ok bool)
	// CanAsk says whether a worker can be asked. It is called with the plane's lock
	// held, and must not call the plane.
	CanAsk(fleet.Key) bool
	// Ask asks for the events of a worker from one on, or for all that it holds
	// when that is 0. The worker may answer with all anyway.
	Ask(ctx context.Context, k fleet.Key, from uint64) (Recovered, error)
}

// Recovered is what a worker answers.
type Recovered struct {
	All    bool            // Events are all that it holds, and their ids mean nothing
	Events []kvevent.Event // in order
	LastID uint64          // of the newest event that the answer covers
}

// Limits of asking. Dynamo's own routers try 8 times; we give up sooner, since a
// worker that is given up is routed to all the same, and asked again later.
const (
	askTries   = 5
	sureTries  = 2                      // only to make sure: what the worker removes waits meanwhile, and is credited
	askBackoff = 100 * time.Millisecond // doubling
	askAtOnce  = 16
	askAgain   = time.Minute // after it was given up
	// maxWaiting bounds the messages that wait for answers, bytes per worker. When
	// there are more, they are dropped and the worker is asked for all.
	maxWaiting = 16 << 20
)

// asking is a question to a worker.
type asking struct {
	from    uint64    // first event wanted; 0: all
	known   bool      // that events are missing; else to make sure
	before  State     // of the worker, for when it does not answer
	waiting []message // events of the worker that came meanwhile
	bytes   int       // of those
	events  uint64    // of those, of this worker
	short   bool      // the answer does not reach to what waits
	again   bool      // an answer may be older than what came meanwhile, or some of it was dropped: ask for all

	taken     bool // somebody asks
	replacing bool // the index has not all of the answer yet
}

// lose deals with events of a worker that did not come, the first of them with id
// from; 1 means that none did. m is the message that shows it, nil when it is of
// another rank. It reports whether the message waits for the worker's answer. Its
// caller holds the locks.
func (p *Plane) lose(key fleet.Key, c *cursor, from uint64, m *message, now time.Time) (waits bool) {
	id, was := c.stats.LastID, c.known
	if from > 1 {
		c.stats.LastID = from - 1
	} else {
		c.known, c.stats.LastID = false, 0
	}
	if c.source == 0 && p.unsure {
		from = 1 // nothing but its answer could tell a new process
	}
	if c.asking != nil { // catching up, and the answer was not enough
		c.asking.from, c.asking.short = from, true
		p.distrust(key, c.asking)
		return true
	}
	if !p.canAsk(key) {
		c.stats.LastID, c.known = id, was
		p.giveUp(key, c, now, "the worker names no recovery endpoint")
		c.retry = now // it may name one yet
		return false
	}
	p.ask(key, c, from, true, now)
	if m != nil {
		c.keepWaiting(m)
	}
	return true
}

// loseAll makes the other ranks of a worker unknown as well: in Dynamo 1.2 and 1.3
// an event that was lost of one rank may have cleared all.
func (p *Plane) loseAll(key fleet.Key, now time.Time) {
	for other, o := range p.workers {
		switch {
		case other.ID != key.ID || other == key:
		case o.asking != nil:
			o.asking.again = true
			p.distrust(other, o.asking)
		default:
			p.lose(other, o, 1, nil, now)
		}
	}
}

func (p *Plane) canAsk(key fleet.Key) bool { return p.cfg.Recover != nil && p.cfg.Recover.CanAsk(key) }

// ask begins to ask a worker. Its caller holds the locks.
func (p *Plane) ask(key fleet.Key, c *cursor, from uint64, known bool, now time.Time) {
	c.asking = &asking{from: from, before: c.stats.State}
	c.enter(Resyncing, now)
	if known {
		p.distrust(key, c.asking)
	}
	p.due = append(p.due, key)
	select {
	case p.asks <- struct{}{}:
	default:
	}
}

// distrust notes that events of a worker are missing while it is asked.
func (p *Plane) distrust(key fleet.Key, a *asking) {
	if !a.known {
		a.known = true
		p.hide(key, true)
	}
}

// hide makes lookups credit a worker with nothing, or again with what it holds.
func (p *Plane) hide(key fleet.Key, hidden bool) {
	if !hidden {
		p.cfg.Index.Show(key)
		return
	}
	if err := p.cfg.Index.Hide(key); err != nil {
		p.say(slog.LevelError, "a worker's events cannot be kept", "worker_id", key.ID, "rank", key.Rank, "error", err)
	}
}

// overtakes says whether an event makes the question to its worker superfluous, and
// ends that: the worker holds nothing any more, or its process is another.
func (p *Plane) overtakes(c *cursor, ev *kvevent.Event, m *message) bool {
	key, o := keyOf(ev), m.origin(ev.WorkerID)
	if p.strayed(key, c, o.source) || c.heard && o.source != c.source && c.outlived(o) {
		return false
	}
	switch {
	case c.heard && o.source != c.source, c.heard && c.startsOver(ev.ID, o):
	case ev.Kind == kvevent.Cleared && (!c.known || ev.ID > c.stats.LastID):
		c.stats.LastID = ev.ID - 1 // all between was counted, and is void
	default:
		return false
	}
	c.stats.Stale += c.asking.events
	p.endAsking(key, c)
	return true
}

func (p *Plane) endAsking(key fleet.Key, c *cursor) {
	c.asking = nil
	p.hide(key, false)
}

// wait keeps a message until the worker has answered. Where only to make sure was
// wanted, it may show that events are missing indeed.
func (p *Plane) wait(key fleet.Key, c *cursor, ev *kvevent.Event, m *message, keep bool) {
	if !keep {
		c.stats.Refused++
		c.skipped = true
		return
	}
	o := m.origin(ev.WorkerID)
	if !c.heard && !p.strayed(key, c, o.source) {
		c.heard, c.source, c.born = true, o.source, o.published
		p.settleIn(key, o.source)
	}
	if c.heard && o.source == c.source {
		if newest := max(c.live, c.stats.LastID); c.known && ev.ID > newest && ev.ID-1 > newest {
			p.distrust(key, c.asking)
		}
		c.hear(ev.ID, o)
	}
	if !c.keepWaiting(m) {
		p.distrust(key, c.asking)
	}
}

// keepWaiting keeps the event of a message that is under way, or drops all that
// waits when it is too much.
func (c *cursor) keepWaiting(m *message) bool {
	a := c.asking
	a.events++
	if n := len(a.waiting); n > 0 && &a.waiting[n-1].data[0] == &m.data[0] {
		a.waiting[n-1].last = m.event
		return true
	}
	if a.bytes += len(m.data); a.bytes > maxWaiting {
		c.dropWaiting()
		return false
	}
	a.waiting = append(a.waiting, *m)
	a.waiting[len(a.waiting)-1].last = m.event
	return true
}

// dropWaiting drops what waits: the answer to another question has it.
func (c *cursor) dropWaiting() {
	a := c.asking
	c.stats.Stale += a.events
	a.waiting, a.bytes, a.events, a.again = nil, 0, 0, true
}

// resync asks the workers that are due, until ctx ends.
func (p *Plane) resync(ctx context.Context) {
	slots := make(chan struct{}, askAtOnce)
	var asks sync.WaitGroup
	defer asks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		key, ok := p.nextDue(ctx)
		if !ok {
			return
		}
		asks.Go(func() {
			p.resyncWorker(ctx, key)
			<-slots
		})
	}
}

// nextDue waits until a worker is due, and returns the one to be asked first. It is
// not ok when ctx has ended.
func (p *Plane) nextDue(ctx context.Context) (key fleet.Key, ok bool) {
	for {
		if key, ok = p.takeDue(); ok {
			return key, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return key, false
		case <-p.asks:
		}
	}
}

// takeDue takes a worker that is due: one that held something and is credited with
// nothing meanwhile goes before all others, however many of those do not answer.
func (p *Plane) takeDue() (key fleet.Key, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.due) == 0 {
		return key, false
	}
	i := max(0, slices.IndexFunc(p.due, func(k fleet.Key) bool {
		c := p.workers[k]
		return c != nil && c.asking != nil && c.asking.known && c.known
	}))
	key = p.due[i]
	p.due = slices.Delete(p.due, i, i+1)
	return key, true
}

// errBehind is the error of a worker that answers with fewer events than it told
// before: its process is another one.
var errBehind = errors.New("the worker has fewer events than it told of")

// resyncWorker asks a worker until it is known what it holds, or gives it up.
func (p *Plane) resyncWorker(ctx context.Context, key fleet.Key) {
	c, a, from := p.question(key)
	if a == nil {
		return
	}
	defer p.flushSayings() //nolint:contextcheck // it only logs
	var err error
	for try := 0; try < p.tries(a); try++ { //nolint:intrange // the number may grow meanwhile
		if try > 0 && pause(ctx, p.askBackoff<<(try-1)) != nil {
			return
		}
		var answer Recovered
		if answer, err = p.cfg.Recover.Ask(ctx, key, from); err == nil {
			from, err = p.install(key, c, a, from, answer)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, errBehind) || from == 1 {
			from = 0
		}
	}
	p.fail(key, c, a, err) //nolint:contextcheck // it only logs
}

// question returns what is to be asked about a worker; a nil one when that is no
// longer wanted, or under way: a worker is due twice when its question was overtaken
// before it was asked.
func (p *Plane) question(key fleet.Key) (c *cursor, a *asking, from uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c = p.workers[key]; c == nil || c.asking == nil || c.asking.taken {
		return nil, nil, 0
	}
	c.asking.taken = true
	if c.asking.from > 1 {
		from = c.asking.from
	}
	return c, c.asking, from
}

// tries is how often a worker is asked before it is given up.
func (p *Plane) tries(a *asking) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.known {
		return askTries
	}
	return sureTries
}

// current says whether a question still stands. Its caller holds the lock.
func (p *Plane) current(key fleet.Key, c *cursor, a *asking) bool {
	return c.asking == a && p.workers[key] == c
}

// errAgain is the error of an answer that is not enough.
var errAgain = errors.New("the answer does not reach to the events that came after it")

// install takes an answer into the index, and then what waited for it. The error
// says why the worker is to be asked again, and from where.
func (p *Plane) install(key fleet.Key, c *cursor, a *asking, from uint64, r Recovered) (uint64, error) {
	l := p.laneOf(key.ID)
	if !r.All && r.LastID+1 < from {
		return 0, errBehind
	}
	if r.All && !p.under(l, key, c, a, func() { p.replace(key, a) }) {
		return 0, nil
	}
	told := uint64(0)
	var failed error
	for i := range r.Events {
		ev := &r.Events[i]
		if !r.All && ev.ID < from {
			continue
		}
		ev.AllRanks = false // the other ranks are told of it on their own
		if !p.under(l, key, c, a, func() { failed = p.applyTold(ev) }) {
			return 0, nil
		}
		if failed != nil {
			return 0, failed
		}
		told++
	}
	p.noteAnswer(key, c, a, r, told)
	return p.catchUp(l, key, c, a)
}

// replace makes room for an answer that has all that a worker holds. Until that is
// taken in, the index has less.
func (p *Plane) replace(key fleet.Key, a *asking) {
	p.mu.Lock()
	a.replacing = true
	p.mu.Unlock()
	p.cfg.Index.Clear(key)
}

// applyTold applies an event of an answer.
func (p *Plane) applyTold(ev *kvevent.Event) error {
	if ev.Tier >= kvevent.NumTiers {
		return nil
	}
	return p.cfg.Index.Apply(ev)
}

// under calls f with the lane of a worker at rest, if a question still stands.
func (p *Plane) under(l *lane, key fleet.Key, c *cursor, a *asking, f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.mu.Lock()
	ok := p.current(key, c, a)
	p.mu.Unlock()
	if ok {
		f()
	}
	return ok
}

func (p *Plane) noteAnswer(key fleet.Key, c *cursor, a *asking, r Recovered, told uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.current(key, c, a) {
		return
	}
	if r.All {
		c.stats.Resyncs++
	} else {
		c.stats.Recovered += told
	}
	c.known, c.stats.LastID, a.replacing = true, r.LastID, false
	c.turning, c.skipped = 0, false
	if a.known && c.stats.Gaps > 0 && !c.toldAgain {
		c.toldAgain = true
		how := "the events that were missing"
		if r.All {
			how = "all that it holds"
		}
		p.say(slog.LevelInfo, "a worker told again what was lost of it; further times are only counted",
			"worker_id", key.ID, "rank", key.Rank, "told", how, "events", told)
	}
}

// catchUp takes in what waited for an answer, and ends the question when nothing
// does.
func (p *Plane) catchUp(l *lane, key fleet.Key, c *cursor, a *asking) (uint64, error) {
	d := &dynamo.Decoder{}
	for {
		done, from, err := p.catchUpOne(l, d, key, c, a)
		if done || err != nil {
			return from, err
		}
	}
}

func (p *Plane) catchUpOne(l *lane, d *dynamo.Decoder, key fleet.Key, c *cursor, a *asking) (done bool, from uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.mu.Lock()
	switch {
	case !p.current(key, c, a):
		done = true
	case a.again:
		c.dropWaiting()
		a.again = false
		err = errAgain
	case len(a.waiting) == 0:
		done = true
		p.endAsking(key, c)
		c.enter(Synced, p.cfg.Now())
		c.retry = time.Time{}
	}
	if done || err != nil {
		p.mu.Unlock()
		return done, 0, err
	}
	m := a.waiting[0]
	a.waiting, a.bytes = a.waiting[1:], a.bytes-len(m.data)
	p.mu.Unlock()

	if p.retake(d, key, c, a, &m) {
		return false, 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.waiting, a.bytes = append([]message{m}, a.waiting...), a.bytes+len(m.data)
	return false, a.from, errAgain
}

// retake takes in the events of a worker in a message that waited, and reports
// whether it could: not when events before them are missing. Then the message waits
// from that event on. Its caller holds the lock of the worker's lane.
func (p *Plane) retake(d *dynamo.Decoder, key fleet.Key, c *cursor, a *asking, m *message) bool {
	a.short, c.replaying = false, true
	defer func() { c.replaying = false }()
	again(d, key, m, func(ev *kvevent.Event) bool {
		p.mu.Lock()
		use := false
		if p.voided(key, c, ev, m) {
			c.stats.Stale++
		} else {
			use = p.decide(c, ev, m, true)
		}
		if !a.short {
			a.events--
		}
		p.mu.Unlock()
		p.use(ev, use)
		return !a.short
	})
	return !a.short
}

// again reads a message that waited, and calls take with each event of a worker that
// did, until that returns false. Those before them were taken in as they came, and
// those after them come only now.
func again(d *dynamo.Decoder, key fleet.Key, m *message, take func(*kvevent.Event) bool) {
	first, event, more := m.event, 0, true
	// A message that waits was read before: its errors are counted.
	_, _ = d.Decode(m.data, m.scope, func(ev *kvevent.Event) {
		event++
		if !more || event < first || event > m.last || keyOf(ev) != key {
			return
		}
		e := d.Envelope()
		m.event, m.publisher, m.published, m.tier = event, e.PublisherID, e.PublishedAt, d.LastTier()
		more = take(ev)
	})
}

// voided says whether an event in a message that waited was not waited with: one
// that clears a worker ends the question, unless another rank's publisher sent it.
// Its caller holds the locks.
func (p *Plane) voided(key fleet.Key, c *cursor, ev *kvevent.Event, m *message) bool {
	return ev.Kind == kvevent.Cleared && !p.strayed(key, c, m.origin(key.ID).source)
}

// fail ends a question that the worker did not answer. A worker of which no event
// is known to be missing keeps its blocks.
func (p *Plane) fail(key fleet.Key, c *cursor, a *asking, err error) {
	l := p.laneOf(key.ID)
	l.mu.Lock()
	p.mu.Lock()
	if p.current(key, c, a) {
		now := p.cfg.Now()
		p.endAsking(key, c)
		p.sayUnanswered(key, c, err)
		switch {
		case a.known:
			p.giveUp(key, c, now, "the worker does not answer")
			c.known = false // the next event begins anew
		case a.before == Partial:
			c.enter(Partial, now)
		default:
			c.enter(Suspect, now)
		}
		c.retry = now.Add(askAgain)
		p.mu.Unlock()
		p.applyWaiting(key, c, a.waiting)
		p.mu.Lock()
	}
	said := p.takeSayings()
	p.mu.Unlock()
	l.mu.Unlock()
	p.log(said)
}

// applyWaiting takes in the events of a worker in messages that waited in vain. Its
// caller holds the lock of the worker's lane.
func (p *Plane) applyWaiting(key fleet.Key, c *cursor, waiting []message) {
	d := &dynamo.Decoder{}
	for _, m := range waiting {
		again(d, key, &m, func(ev *kvevent.Event) bool {
			p.mu.Lock()
			voided := p.voided(key, c, ev, &m)
			if voided {
				c.stats.Stale++
			}
			p.mu.Unlock()
			if !voided {
				p.apply(ev, &m)
			}
			return true
		})
	}
}

// sayUnanswered says once per worker that it does not answer.
func (p *Plane) sayUnanswered(key fleet.Key, c *cursor, err error) {
	if !c.toldUnanswered {
		c.toldUnanswered = true
		p.say(slog.LevelWarn, "a worker could not be asked what it holds; it is asked again every minute",
			"worker_id", key.ID, "rank", key.Rank, "error", err)
	}
}

// giveUp forgets what a worker held, because it cannot be known what it does now.
// What it stores from here on counts. Its caller holds the locks.
func (p *Plane) giveUp(key fleet.Key, c *cursor, now time.Time, why string) {
	held := p.held(key)
	c.turning, c.familiar = held, 0
	if held > 0 {
		c.stats.GivenUp++
		p.cfg.Index.Clear(key)
		p.cfg.Lost(key)
	}
	c.enter(Partial, now)
	if c.stats.Gaps > 0 && !c.toldPartial {
		c.toldPartial = true
		p.say(slog.LevelWarn, "what a worker holds is not known; it is credited with what it stores from now on, until its cache has turned over",
			"worker_id", key.ID, "rank", key.Rank, "forgotten_blocks", held, "reason", why)
	}
}

// turnSample is how many blocks in a row a partial worker must remove that are all
// known, until its cache has turned over.
const turnSample = 256

// watchRemoval applies an event by which a partial worker removes blocks. As long as
// some are not known, it still holds some of those before.
func (p *Plane) watchRemoval(c *cursor, ev *kvevent.Event) {
	key := keyOf(ev)
	before := p.held(key)
	p.use(ev, true)
	known := before-p.held(key) == len(ev.Gone)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !known {
		c.familiar = 0
		return
	}
	if c.familiar += len(ev.Gone); c.familiar >= turnSample && c.stats.State == Partial {
		c.turning, c.familiar = 0, 0
		c.enter(Synced, p.cfg.Now())
	}
}

// held is the number of blocks that a worker holds on all tiers.
func (p *Plane) held(key fleet.Key) (n int) {
	for _, tier := range p.cfg.Index.Held(key) {
		n += tier
	}
	return n
}

// turn follows a partial worker's cache as it turns over: once it has stored as
// many blocks as it held, what is left of those before does not count for much.
func (p *Plane) turn(c *cursor, ev *kvevent.Event, now time.Time) {
	if c.stats.State != Partial || ev.Kind != kvevent.Stored || c.turning == 0 {
		return
	}
	if c.turning -= len(ev.Blocks); c.turning <= 0 {
		c.turning = 0
		c.enter(Synced, now)
	}
}

// suspectAll makes sure of all workers, since events of any may have been lost: it
// asks those that answer, unless that was done, and waits for the next event of the
// others. Its caller holds the lock.
func (p *Plane) suspectAll(asked bool) {
	now := p.cfg.Now()
	for key, c := range p.workers {
		switch {
		case c.asking != nil || !c.known || c.stats.State == Partial:
		case p.cfg.Known(key) && p.canAsk(key):
			if asked {
				continue
			}
			p.ask(key, c, c.sureUpTo()+1, false, now)
		default:
			c.enter(Suspect, now)
			c.retry = now // as soon as it can be asked
		}
	}
}

// sureUpTo is the newest event that is of a worker's present process for sure when
// nothing was heard for a while. Where another process shows by its event ids alone,
// as in Dynamo 1.2, it may have told as many by now.
func (c *cursor) sureUpTo() uint64 {
	if c.source == 0 {
		return 0
	}
	return c.stats.LastID
}

// askNew asks the workers that were not heard of yet, and again those that did not
// answer a while ago: of these, no more is missing than was then.
func (p *Plane) askNew() {
	if p.cfg.Recover == nil {
		return
	}
	keys, _ := p.cfg.Recover.Workers()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	for _, key := range keys {
		c := p.cursor(key)
		switch {
		case c.asking != nil, now.Before(c.retry):
		case !c.retry.IsZero():
			c.retry = time.Time{}
			p.ask(key, c, 1, false, now)
		case !c.known:
			p.ask(key, c, 1, true, now)
		}
	}
}
