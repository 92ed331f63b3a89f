package load

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Foreign is the work that other routers placed on a worker and that is not
// finished yet.
type Foreign struct {
	Requests      uint64
	PrefillTokens uint64 // prompt tokens of theirs that are not known to be computed
	Blocks        uint64 // KV blocks of their prompts, as far as their routers say
}

// RoutedKind is what became of a request.
type RoutedKind uint8

// Kinds of Routed. The zero value is none of them, and ignored.
const (
	Placed      RoutedKind = iota + 1 // on the worker
	PrefillDone                       // its prompt is computed
	Finished
)

// Routed is what another router says about a request that it placed
// (active_sequences_events, dynamo.md 1.6). Words of one request may come in any
// order, and more than once (dynamo-live.md section 3).
type Routed struct {
	Kind RoutedKind
	// Request is its id, which is not kept beyond the call. One request may be on
	// several workers, and through several routers on one.
	Request []byte
	Router  uint64 // who says so. A worker speaks for itself, under its own id, of PrefillDone
	// PrefillTokens are the prompt tokens to compute; only of Placed.
	PrefillTokens uint64
	// Blocks are the KV blocks of the prompt; only of Placed, 0 when not stated.
	Blocks uint64
	// At is the router's own time of the word, in Unix milliseconds, 0 when not known:
	// how late it is heard, and whether a state that the router tells has it in it
	// already (see [RouterState]).
	At uint64
}

const (
	// placedTTL is how long a request counts whose end nobody tells, as in Dynamo's
	// own routers (dynamo.md 4.4).
	placedTTL = 300 * time.Second
	// rememberedTTL is how long a word that came before its Placed is remembered.
	rememberedTTL = 60 * time.Second

	maxPlaced     = 1 << 16 // requests that count, and
	maxRemembered = 1 << 16 // words remembered; beyond, the oldest are forgotten

	maxRouters       = 16      // of one request on one worker
	maxPrefillTokens = 1 << 32 // of one request: no sum of them overflows
	maxBlocks        = 1 << 32 // the same
)

// MaxRequestID bounds the id of a request, in bytes: longer ones are ignored.
const MaxRequestID = 256

// requestKey names a request on a worker.
type requestKey struct {
	worker  fleet.Key
	request string
}

// placement is what is known of a request on a worker through one router. It is
// either open, which means that it counts, or remembered, for the words that are
// still under way. What has been said of it is never unsaid, so the order of words
// does not matter.
type placement struct {
	key      requestKey
	router   uint64
	tokens   uint64
	blocks   uint64
	open     bool
	prefills bool // open, and the prompt counts
	done     bool // the prompt is computed
	finished bool
	at       uint64     // when its router placed it, by the router's time
	state    uint64     // the latest state of its router that names it, by its time; 0: none
	since    time.Time  // when it became open or remembered, or was last named in a state
	sibling  *placement // the same request through another router

	prev, next *placement // in its list
}

// ledger follows the requests of other routers. Its owner holds a lock.
type ledger struct {
	byRequest        map[requestKey]*placement
	open, remembered placements // oldest first
	placed           map[fleet.Key]Foreign
	prompts          map[fleet.Key]int  // of placed, those with tokens that are not known to be computed
	changed          []fleet.Key        // of placed, since it was last told; some more than once
	routers          map[uint64]*router // those that tell their state
	now              time.Time          // never goes back
}

func newLedger() ledger {
	return ledger{
		byRequest: map[requestKey]*placement{}, placed: map[fleet.Key]Foreign{}, prompts: map[fleet.Key]int{}, routers: map[uint64]*router{},
	}
}

// take takes in a word about a request.
func (l *ledger) take(k fleet.Key, r Routed, now time.Time, stats *EngineStats) {
	if len(r.Request) > MaxRequestID {
		stats.LongIDs++
		return
	}
	l.now = latest(l.now, now)
	p, routers := l.find(k, r)
	if p == nil && routers >= maxRouters {
		stats.Overflowed++
		return
	}
	told := l.routers[r.Router]
	if told != nil {
		told.hear(r.At, l.now)
	}
	switch r.Kind {
	case Placed:
		if told.covers(r.At) && (p == nil || !p.open && !p.finished) {
			stats.LateAdds++ // it has ended, or the state would name it
			return
		}
		l.place(p, k, r, stats)
	case PrefillDone:
		if p == nil {
			p = l.add(k, r)
			l.remember(p, stats)
		}
		l.prefillDone(p)
		if r.Router == k.ID { // the worker itself speaks for all routers
			for s := l.byRequest[p.key]; s != nil; s = s.sibling {
				l.prefillDone(s)
			}
		}
	case Finished:
		if p == nil {
			p = l.add(k, r)
		}
		if !p.finished {
			l.shut(p)
			p.finished = true
			l.remember(p, stats)
		}
	}
}

// place makes a request count, unless it does or has ended.
func (l *ledger) place(p *placement, k fleet.Key, r Routed, stats *EngineStats) {
	switch {
	case p == nil:
		p = l.add(k, r)
	case p.finished:
		stats.LateAdds++
		return
	case p.open:
		return
	default:
		l.remembered.remove(p)
	}
	for s := l.byRequest[p.key]; s != nil; s = s.sibling {
		p.done = p.done || s.router == k.ID && s.done
	}
	p.tokens, p.blocks, p.at = min(r.PrefillTokens, maxPrefillTokens), min(r.Blocks, maxBlocks), r.At
	p.open, p.prefills, p.since = true, !p.done, l.now
	f := l.placed[k]
	f.Requests++
	f.Blocks += p.blocks
	if p.prefills {
		f.PrefillTokens += p.tokens
		if p.tokens > 0 {
			l.prompts[k]++
		}
	}
	l.placed[k] = f
	l.touch(k)
	l.open.push(p)
	if l.open.n > maxPlaced {
		stats.Overflowed++
		l.delete(l.open.first)
	}
}

// remember keeps a placement that does not count.
func (l *ledger) remember(p *placement, stats *EngineStats) {
	if p.since.IsZero() { // in no list
		p.since = l.now
		l.remembered.push(p)
	}
	if l.remembered.n > maxRemembered {
		stats.Overflowed++
		l.delete(l.remembered.first)
	}
}

func (l *ledger) prefillDone(p *placement) {
	p.done = true
	l.takePrefill(p)
}

// takePrefill takes a prompt off the worker, if it counts there.
func (l *ledger) takePrefill(p *placement) {
	if !p.prefills {
		return
	}
	p.prefills = false
	f := l.placed[p.key.worker]
	f.PrefillTokens -= p.tokens
	if p.tokens > 0 {
		if l.prompts[p.key.worker]--; l.prompts[p.key.worker] == 0 {
			delete(l.prompts, p.key.worker)
		}
	}
	l.placed[p.key.worker] = f
	l.touch(p.key.worker)
}

// touch remembers that what is placed on a worker changed.
func (l *ledger) touch(k fleet.Key) {
	if n := len(l.changed); n == 0 || l.changed[n-1] != k {
		l.changed = append(l.changed, k)
	}
}

// shut takes a placement out of its list and, if it was open, off its worker.
func (l *ledger) shut(p *placement) {
	switch {
	case p.open:
		l.takePrefill(p)
		f := l.placed[p.key.worker]
		f.Blocks -= p.blocks
		if f.Requests--; f.Requests == 0 {
			delete(l.placed, p.key.worker)
		} else {
			l.placed[p.key.worker] = f
		}
		l.touch(p.key.worker)
		p.open = false
		l.open.remove(p)
	case !p.since.IsZero():
		l.remembered.remove(p)
	}
	p.since = time.Time{}
}

// expire forgets what is too old.
func (l *ledger) expire(now time.Time, stats *EngineStats) {
	l.now = latest(l.now, now)
	for p := l.open.first; p != nil && l.now.Sub(p.since) >= placedTTL; p = l.open.first {
		stats.Expired++
		l.delete(p)
	}
	for p := l.remembered.first; p != nil && l.now.Sub(p.since) >= rememberedTTL; p = l.remembered.first {
		l.delete(p)
	}
}

// drop forgets the requests that count on a worker.
func (l *ledger) drop(k fleet.Key) {
	if l.placed[k].Requests == 0 {
		return
	}
	for p := l.open.first; p != nil; {
		next := p.next
		if p.key.worker == k {
			l.delete(p)
		}
		p = next
	}
}

// find returns the placement that a word is about, nil when there is none, and
// the number of those that it is not about.
func (l *ledger) find(k fleet.Key, r Routed) (p *placement, others int) {
	p = l.byRequest[requestKey{k, string(r.Request)}]
	for p != nil && p.router != r.Router {
		p = p.sibling
		others++
	}
	return p, others
}

// add makes a placement that is in no list yet.
func (l *ledger) add(k fleet.Key, r Routed) *placement {
	key := requestKey{k, string(r.Request)}
	p := &placement{key: key, router: r.Router, sibling: l.byRequest[key]}
	l.byRequest[key] = p
	return p
}

// delete forgets a placement.
func (l *ledger) delete(p *placement) {
	l.shut(p)
	first := l.byRequest[p.key]
	if first == p {
		if p.sibling == nil {
			delete(l.byRequest, p.key)
		} else {
			l.byRequest[p.key] = p.sibling
		}
		return
	}
	for first.sibling != p {
		first = first.sibling
	}
	first.sibling = p.sibling
}

// placements is a list, oldest first.
type placements struct {
	first, last *placement
	n           int
}

func (l *placements) push(p *placement) {
	p.prev, p.next = l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
	l.n++
}

func (l *placements) remove(p *placement) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	l.n--
}
