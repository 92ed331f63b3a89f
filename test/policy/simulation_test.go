package policy_test

import (
	"container/heap"
	"slices"
	"time"
)

// router decides where requests go, and is told what happens, in the order of
// simulated time.
type router interface {
	// place returns the worker that computes the prompt.
	place(now time.Duration, r *request) int
	// prefilled and finished tell of the first output of a request and of its end.
	prefilled(now time.Duration, r *request)
	finished(now time.Duration, r *request)
	// stored and removed tell of a worker's cache: blocks that follow parent, -1 for
	// none, and blocks that are gone.
	stored(now time.Duration, worker int, parent int32, ids []int32)
	removed(now time.Duration, worker int, ids []int32)
}

// setting is what a simulation is about.
type setting struct {
	trace   *trace
	workers int
	load    float64   // prefill utilisation of a router with an infinite cache
	cache   float64   // all caches together, as a share of the trace's distinct blocks
	speeds  []float64 // of the workers, of the same mean work done as all 1; nil: all 1
	decodes bool      // blocks stay in use while output is generated
}

// secondsPerToken is what a prompt token takes on a worker of speed 1.
func (s *setting) secondsPerToken() float64 {
	seen, tokens := int32(-1), 0
	for i := range s.trace.requests {
		r := &s.trace.requests[i]
		hit := 0
		for hit < len(r.ids) && r.ids[hit] <= seen {
			hit++
		}
		seen = max(seen, r.ids[len(r.ids)-1])
		tokens += max(0, r.input-hit*blockSize)
	}
	span := s.trace.requests[len(s.trace.requests)-1].at.Seconds()
	return s.load * float64(s.workers) * span / float64(tokens)
}

// perOutputToken is how long a token of output takes.
const perOutputToken = 20 * time.Millisecond

// outcome is what a simulation gave.
type outcome struct {
	ttft []time.Duration // of all requests, shortest first
	hits int             // blocks that were reused
	// ceiling is hits with an infinite cache.
	ceiling int
}

func (o *outcome) quantile(q float64) time.Duration { return o.ttft[int(q*float64(len(o.ttft)-1))] }

// share is the part of the ceiling that was reached.
func (o *outcome) share() float64 { return float64(o.hits) / float64(o.ceiling) }

// engine is one worker: it computes prompts one after the other.
type engine struct {
	cache   *cache
	perTok  float64 // seconds
	waiting []*request
	busy    bool
}

// simulation is a pool under a trace.
type simulation struct {
	setting
	*clock
	router  router
	engines []engine
	gone    []int32
	outcome outcome
}

// simulate runs a trace. The router may plan on the clock as well.
func simulate(s setting, c *clock, r router) outcome {
	sim := &simulation{setting: s, clock: c, router: r}
	perTok, distinct := s.secondsPerToken(), s.trace.distinct()
	sim.engines = make([]engine, s.workers)
	for i := range sim.engines {
		e := &sim.engines[i]
		e.cache = newCache(int(s.cache*float64(distinct))/s.workers, distinct)
		e.perTok = perTok
		if s.speeds != nil {
			e.perTok /= s.speeds[i]
		}
	}
	for i := range s.trace.requests {
		r := &s.trace.requests[i]
		c.runUntil(r.at)
		w := sim.router.place(c.now, r)
		e := &sim.engines[w]
		if e.waiting = append(e.waiting, r); !e.busy {
			sim.begin(w)
		}
	}
	c.finish()
	slices.Sort(sim.outcome.ttft)
	sim.outcome.ceiling = s.trace.references() - distinct
	return sim.outcome
}

// begin computes the next prompt on a worker.
func (s *simulation) begin(w int) {
	e := &s.engines[w]
	e.busy = len(e.waiting) > 0
	if !e.busy {
		return
	}
	r := e.waiting[0]
	e.waiting = e.waiting[1:]
	var hit int
	if hit, s.gone = e.cache.use(r.ids, s.gone[:0]); len(s.gone) > 0 {
		s.router.removed(s.now, w, s.gone)
	}
	s.outcome.hits += hit
	tokens := max(1, r.input-hit*blockSize)
	s.after(time.Duration(float64(tokens)*e.perTok*float64(time.Second)), func() { s.end(w, r, hit) })
}

// end is the end of a prompt that found hit blocks, and the first output.
func (s *simulation) end(w int, r *request, hit int) {
	s.outcome.ttft = append(s.outcome.ttft, s.now-r.at)
	if hit < len(r.ids) {
		parent := int32(-1)
		if hit > 0 {
			parent = r.ids[hit-1]
		}
		s.router.stored(s.now, w, parent, r.ids[hit:])
	}
	s.router.prefilled(s.now, r)
	decode := time.Duration(r.output) * perOutputToken
	if !s.decodes {
		s.engines[w].cache.release(r.ids)
	}
	s.after(decode, func() {
		if s.decodes {
			s.engines[w].cache.release(r.ids)
		}
		s.router.finished(s.now, r)
	})
	s.begin(w)
}

// clock is simulated time, and what is to be done in it.
type clock struct {
	now   time.Duration
	todo  tasks
	count int
}

// task is something to do at a time. Of several at one time the first that was
// planned is the first.
type task struct {
	at    time.Duration
	order int
	do    func()
}

// tasks is a heap.
type tasks []task

func (t tasks) Len() int { return len(t) }
func (t tasks) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].order < t[j].order
}
func (t tasks) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *tasks) Push(x any)   { *t = append(*t, x.(task)) }
func (t *tasks) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// after plans do. Without a delay it is done at once.
func (c *clock) after(d time.Duration, do func()) {
	if d <= 0 {
		do()
		return
	}
	c.count++
	heap.Push(&c.todo, task{c.now + d, c.count, do})
}

// runUntil does what is planned up to and including a time.
func (c *clock) runUntil(t time.Duration) {
	for len(c.todo) > 0 && c.todo[0].at <= t {
		next := heap.Pop(&c.todo).(task)
		c.now = next.at
		next.do()
	}
	c.now = t
}

// finish does all that is planned.
func (c *clock) finish() {
	for len(c.todo) > 0 {
		c.runUntil(c.todo[0].at)
	}
}
