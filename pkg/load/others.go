package load

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	// fadeTime is how long what an engine says of its queue counts, less and less:
	// stale figures become neutral, and never stop traffic.
	fadeTime = 5 * time.Second
	// useAge is how long the blocks that a worker says are in use count: it speaks of
	// them on change only.
	useAge = time.Minute
	// adapterAge is how long it counts which adapters a worker has.
	adapterAge = time.Minute
	// agePeriod is how often figures are aged at most: those of many workers in turns,
	// ageTurn at a time, so that no decision waits for all of them.
	agePeriod = 100 * time.Millisecond
	ageTurn   = 64
	// surePeriod is for how long an engine has to state less than is booked before it
	// is believed: requests under way to it are not in its figure yet.
	surePeriod = 50 * time.Millisecond
)

// others is what everybody but this picker says of a worker.
type others struct {
	from    *Engines // whose word it is, the last that was told; nil: nobody's
	foreign Foreign
	prompts int // of foreign, not known to be computed
	said    said
	queue   correction
	extra   extra
	settled bool // nothing of it changes with time (any more)
}

// said is what an engine says of itself.
type said struct {
	use      share     // as scraped
	used     Reading   // blocks, as the worker says
	kvBlocks int       // 0: not known
	waiting  Reading   // requests
	adapters *adapters // nil: not known
	scraped  time.Time // when adapters was
}

// share is a share of something, 0 to 1. Without a time it is not known.
type share struct {
	of float64
	at time.Time
}

// word is what an [Engines] knows of a worker.
type word struct {
	foreign Foreign
	prompts int       // of foreign, not known to be computed
	engine  *engine   // nil: it never spoke
	stated  statement // if it just stated its queue
}

// statement is how many prompt tokens are outstanding on a worker.
type statement struct {
	tokens int64
	engine bool // by the engine itself, of its queue; a router knows of its own requests only
	known  bool // all of them
}

// hear takes in what e knows of a worker.
func (t *Table) hear(e *Engines, k fleet.Key, x *word, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[k]
	if w == nil {
		return
	}
	o, before := &w.others, w.others.said
	o.from, o.foreign, o.prompts = e, x.foreign, x.prompts
	if x.engine == nil {
		o.said, o.queue, o.extra = said{}, correction{}, extra{}
	} else {
		o.said = x.engine.said
		o.said.used = x.engine.UsedBlocks
	}
	if s := x.stated; s.known {
		o.queue.state(s.tokens-w.booked(), s.engine, now)
	}
	if x.stated.engine {
		o.extra.stepped = now
	}
	w.compare(&before, t.prompt.read())
	t.rho.advance(now)
	if t.old(now) {
		t.age(now)
	}
	w.refresh(latest(now, time.Unix(0, t.aged.Load())))
}

// hears says whether the last word on a worker is e's.
func (t *Table) hears(e *Engines, k fleet.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[k]
	return w != nil && w.others.from == e
}

// feed adds to those who are asked about workers that are new here.
func (t *Table) feed(e *Engines) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feeders = append(slices.Clone(t.feeders), e)
}

// unfeed takes out what e told, and returns who else tells.
func (t *Table) unfeed(e *Engines) (left []*Engines) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feeders = slices.DeleteFunc(slices.Clone(t.feeders), func(o *Engines) bool { return o == e })
	for _, w := range t.workers {
		if w.others.from == e {
			w.others = others{}
			w.refresh(time.Time{})
		}
	}
	return t.feeders
}

// prefilled hears from a worker that it computed a prompt.
func (t *Table) prefilled(id []byte, k fleet.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.named[string(id)]; r != nil && (r.prefill.key == k || r.decode.key == k) {
		r.prefillDone()
	}
}

// Age lets what others said grow old. It may be called as often as one likes, and
// should be with every request, refused ones too: figures do not age by themselves.
func (t *Table) Age(now time.Time) {
	if !t.old(now) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old(now) {
		t.age(now)
	}
}

// old says whether it is time for a turn, or the clock was put back.
func (t *Table) old(now time.Time) bool {
	passed := time.Duration(now.UnixNano() - t.aged.Load())
	return passed >= time.Duration(t.turn.Load()) || passed < -fadeTime
}

// age ages as many workers as it is time for. The caller holds the lock.
func (t *Table) age(now time.Time) {
	passed := time.Duration(now.UnixNano() - t.aged.Load())
	t.aged.Store(now.UnixNano())
	t.endDue(now)
	t.rho.advance(now)
	n := len(t.rows)
	if passed > 0 && passed < agePeriod {
		n = int(int64(n)*int64(passed)/int64(agePeriod)) + 1
	}
	for range n {
		if t.last++; t.last >= len(t.rows) {
			t.last = 0
		}
		if w := t.rows[t.last]; w != nil && w.others.from != nil && !w.others.settled {
			w.refresh(now)
		}
	}
}

// refresh works out the figures that others have a part in.
func (w *Worker) refresh(now time.Time) {
	o := &w.others
	o.queue.fade(now, fadeTime)
	_, _, counts := o.said.blocksInUse()
	o.extra.fade(now, counts)
	w.putNews(now)
	grew := w.putPrefill()
	grew = w.putBlocks() || grew
	grew = w.putRequests() || grew
	use, waiting := o.said.useAt(now), int64(0)
	if fresh(o.said.waiting.At, now, fadeTime) {
		waiting = int64(o.said.waiting.N)
	}
	if was := math.Float64frombits(w.kvUse.Load()); use != was {
		w.kvUse.Store(math.Float64bits(use))
		grew = grew || use > was
	}
	grew = put(&w.waiting, waiting) || grew
	put(&w.kvBlocks, int64(o.said.kvBlocks))
	var a *adapters
	if fresh(o.said.scraped, now, adapterAge) {
		a = o.said.adapters
	}
	if w.adapters.Load() != a {
		w.adapters.Store(a)
	}
	o.settled = o.queue.now == 0 && o.extra.waits.now == 0 && o.extra.blocks.now == 0 && w.coming.Load() == 0 && use == 0 && waiting == 0 && a == nil // time only takes away
	if grew {
		w.version.Add(1)
	}
}

// useAt returns the share of KV blocks in use by the latest word on it, 0 when it is
// not known (any more).
func (s *said) useAt(now time.Time) float64 {
	switch {
	case s.kvBlocks > 0 && s.used.Known() && !s.used.At.Before(s.use.at):
		if fresh(s.used.At, now, useAge) {
			return min(1, float64(s.used.N)/float64(s.kvBlocks))
		}
	case fresh(s.use.at, now, fadeTime):
		return s.use.of
	}
	return 0
}

// fresh says whether something was said, and recently.
func fresh(at, now time.Time, age time.Duration) bool { return !at.IsZero() && now.Sub(at) < age }

// booked is how many prompt tokens are booked and not known to be computed, whoever
// booked them. What is learned goes by it, not by what an engine says of its queue:
// that may be wrong, and is not about a request's place in it.
func (w *Worker) booked() int64 { return w.own.prefill + int64(w.others.foreign.PrefillTokens) }

func (w *Worker) putPrefill() (grew bool) {
	x := &w.others.extra
	n := max(0, w.booked()+x.tokens(w.others.queue.now))
	if !w.forgotten {
		w.rho.change(w.prefill.Load(), n)
	}
	if n := int32(min(math.MaxInt32, max(0, w.own.prompts+int64(w.others.prompts)+x.prompts()))); n != w.prompts.Load() {
		w.prompts.Store(n)
	}
	return put(&w.prefill, n)
}

func (w *Worker) putBlocks() (grew bool) {
	return put(&w.blocks, w.own.blocks+int64(w.others.foreign.Blocks)+w.others.extra.blocks.now)
}

func (w *Worker) putRequests() (grew bool) {
	return put(&w.requests, w.own.requests+int64(w.others.foreign.Requests))
}

// put writes a figure, only if it changes: writing costs more than reading.
func put(figure *atomic.Int64, n int64) (grew bool) {
	n = max(0, n)
	was := figure.Load()
	if n != was {
		figure.Store(n)
	}
	return n > was
}

// correction is by how much an engine's own figure differs from what is booked there.
type correction struct {
	by  int64 // as stated
	at  time.Time
	now int64 // what is left of it

	low   int64 // nearest to 0 of those below 0 since then
	since time.Time
}

// state takes in a difference. One below 0 counts when all have been for a while,
// and then the one nearest to 0: requests under way are not in the engine's figure
// yet. A router's own figure never takes off what others booked.
func (c *correction) state(by int64, engine bool, now time.Time) {
	if by < 0 && !engine {
		by = 0
	}
	if by >= 0 {
		*c = correction{by: by, at: now}
		return
	}
	age := now.Sub(c.since)
	switch {
	case c.since.IsZero() || age < 0 || age >= fadeTime:
		*c = correction{low: by, since: now}
	case age < surePeriod:
		c.low = max(c.low, by)
		c.by = min(0, max(c.by, by))
	default:
		*c = correction{by: max(c.low, by), at: now, low: by, since: now}
	}
}

// fade works out what is left of the correction: all of it when it was stated, and
// nothing once it is old.
func (c *correction) fade(now time.Time, over time.Duration) {
	if c.by == 0 {
		c.now = 0
		return
	}
	left := 1 - float64(now.Sub(c.at))/float64(over)
	c.now = int64(float64(c.by) * min(1, max(0, left)))
}

// maxStated bounds the prompt tokens that others say are outstanding on a worker:
// hours of work for any engine, so a figure above it is taken for it.
const maxStated = 1 << 26

// clampTokens keeps nonsense that others say from spoiling sums.
func clampTokens(n uint64) int64 { return int64(min(n, maxStated)) }
