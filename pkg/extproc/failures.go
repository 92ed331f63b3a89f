package extproc

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// How long an endpoint that fails requests is avoided: twice as long with each further
// failure, until a request to it succeeds. Without this, a worker that fails fast has
// always the least load, and attracts all requests.
const (
	firstPause = 5 * time.Second
	maxPause   = 30 * time.Second
	// refusalsWithin is how close together the refusals of a worker itself must be:
	// one now and then is what a full queue says.
	refusalsWithin = 10 * time.Second
	// refusalsApart is how far apart the failures of an endpoint must be that has other
	// requests under way: they may have come at once, while its queue was full.
	refusalsApart = time.Second
	// maxFailures bounds how many endpoints are remembered.
	maxFailures = 256
)

// severity is how much a failure says against an endpoint.
type severity int

const (
	noFailure     severity = 0
	internalError severity = 2 // the request may be the cause
	unserved      severity = 3 // refused, or nobody answered
	// enough of them in a row, without a success, make an endpoint avoided.
	enough = 2 * unserved
)

// failures are the endpoints that failed lately. The zero value is ready.
//
// A request with a prefill worker fails for two, and does not say whose fault it was. It
// counts against both. The culprit is who has failed with two partners, or more often than
// its partner, which worked with others meanwhile. Where the same two go on failing, the
// prefill worker is avoided for a while, to see the other one with another partner.
type failures struct {
	n  atomic.Int32 // of them: most of the time there are none
	mu sync.Mutex
	of map[netip.AddrPort]*failure

	roles roleSizes
}

// failure is what an endpoint did since it last worked.
type failure struct {
	at      time.Time // the last one that counted
	points  severity  // of all
	times   int
	partner netip.AddrPort // the first one
	alone   bool           // it failed without a partner, or with two
	sure    bool           // that it is to blame
	pause   time.Duration  // from at on; 0: it was not avoided yet
}

// over says whether a failure is so long ago that it says nothing any more.
func (f *failure) over(now time.Time) bool { return now.Sub(f.at) > 2*maxPause }

func (f *failure) paused(now time.Time) bool { return now.Sub(f.at) < f.pause }

// outcome is what a response says of who worked for it.
type outcome struct {
	sent     time.Time // when the request was
	endpoint party
	prefill  party // another worker than endpoint; the zero value: there was none
	severity severity
	own      bool // the endpoint answered itself, not the gateway in its place
}

// party is one that worked for a request.
type party struct {
	at   netip.AddrPort
	busy bool // other requests are under way there
}

// fail notes a request that failed.
func (f *failures) fail(o outcome, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.n.Store(int32(len(f.of))) }()
	var none netip.AddrPort
	if f.foreseen(o.endpoint, o.sent, now) || f.foreseen(o.prefill, o.sent, now) {
		return
	}
	sureE, sureP := f.sure(o.endpoint, now), f.sure(o.prefill, now)
	switch {
	case o.prefill.at == none:
		f.entry(o.endpoint, o.own, now).add(o.endpoint, none, o.severity, now, true)
	case sureE && !sureP: // and has not worked since
		f.entry(o.endpoint, false, now).add(o.endpoint, o.prefill.at, o.severity, now, true)
	case sureP && !sureE:
		f.entry(o.prefill, false, now).add(o.prefill, o.endpoint.at, o.severity, now, true)
	default:
		f.failBoth(o, now)
	}
	f.forgivePartners(o.endpoint.at)
	f.forgivePartners(o.prefill.at)
}

// failBoth counts a failure that may be either one's.
func (f *failures) failBoth(o outcome, now time.Time) {
	e, p := f.entry(o.endpoint, false, now), f.entry(o.prefill, false, now)
	more := e.points - p.points
	// A prefill worker that is taken though it is avoided has no other in its place: then
	// it is the turn of the other side.
	e.add(o.endpoint, o.prefill.at, o.severity, now, more > 0 || p.paused(now))
	p.add(o.prefill, o.endpoint.at, o.severity, now, more < 0)
	if e.pause == 0 && p.pause == 0 && e.points >= enough && p.points >= enough {
		p.pause = firstPause
	}
}

// foreseen says whether a request was sent before a pause of one that worked for it: it
// tells nothing new.
func (f *failures) foreseen(p party, sent, now time.Time) bool {
	last := f.of[p.at]
	return last != nil && last.paused(now) && !sent.After(last.at)
}

// sure says whether an endpoint was to blame before, and has not worked since.
func (f *failures) sure(p party, now time.Time) bool {
	last := f.of[p.at]
	return last != nil && last.pause > 0 && last.sure && !last.over(now)
}

// entry returns what is known of an endpoint. What is over is forgotten; so are refusals
// of one that is a suspect only, when they are too far apart.
func (f *failures) entry(p party, own bool, now time.Time) *failure {
	last := f.of[p.at]
	switch {
	case last != nil:
		if last.over(now) || own && last.pause == 0 && now.Sub(last.at) > refusalsWithin {
			*last = failure{}
		}
		return last
	case len(f.of) >= maxFailures && !f.makeRoom(now):
		return &failure{} // not kept
	case f.of == nil:
		f.of = map[netip.AddrPort]*failure{}
	}
	last = &failure{}
	f.of[p.at] = last
	return last
}

// add counts a failure with a partner, if any. guilty says that it is this endpoint's.
// One that fails although it is avoided does not make that longer: there was no other.
func (f *failure) add(p party, partner netip.AddrPort, s severity, now time.Time, guilty bool) {
	if f.paused(now) || p.busy && f.times > 0 && now.Sub(f.at) < refusalsApart {
		return
	}
	if f.times == 0 {
		f.partner = partner
	}
	f.alone = f.alone || !partner.IsValid() || f.partner != partner
	f.sure = f.sure || f.alone || guilty
	f.at = now
	f.points += s
	f.times++
	switch {
	case f.pause > 0:
		f.pause = min(2*f.pause, maxPause)
	case f.sure && f.points >= enough:
		f.pause = firstPause
	}
}

// forgivePartners forgets those that failed only with an endpoint that is to blame.
func (f *failures) forgivePartners(e netip.AddrPort) {
	if last := f.of[e]; last == nil || last.pause == 0 || !last.sure {
		return
	}
	maps.DeleteFunc(f.of, func(_ netip.AddrPort, last *failure) bool {
		return last.partner == e && !last.sure
	})
}

// makeRoom forgets what is over, else the suspects, and says whether that helped.
func (f *failures) makeRoom(now time.Time) bool {
	maps.DeleteFunc(f.of, func(_ netip.AddrPort, last *failure) bool { return last.over(now) })
	if len(f.of) >= maxFailures {
		maps.DeleteFunc(f.of, func(_ netip.AddrPort, last *failure) bool { return last.pause == 0 })
	}
	return len(f.of) < maxFailures
}

// worked notes that endpoints answered a request that was sent there at a time. Those
// that are invalid are none. One that was avoided is not until it answers a request that
// was sent after its failure: it may refuse new ones, and still answer old ones.
func (f *failures) worked(sent time.Time, endpoints ...netip.AddrPort) {
	if f.n.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range endpoints {
		if last := f.of[e]; last != nil && (last.pause == 0 || sent.After(last.at)) {
			delete(f.of, e)
		}
	}
	f.n.Store(int32(len(f.of)))
}

// avoid appends the endpoints that are avoided now: at most a third of those of a role,
// since the others would have to take all their load, and fail, too.
func (f *failures) avoid(to []netip.AddrPort, pool *fleet.Snapshot, now time.Time) []netip.AddrPort {
	if f.n.Load() == 0 {
		return to
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.roles.read(pool)
	first := len(to)
	for e, last := range f.of {
		if _, member := f.roles.of[e]; member && last.paused(now) {
			to = append(to, e)
		}
	}
	if len(to)-first <= 1 {
		return to
	}
	slices.SortFunc(to[first:], f.worseFirst)
	var taken [numRoles]int
	return append(to[:first], slices.DeleteFunc(to[first:], func(e netip.AddrPort) bool {
		role := f.roles.of[e]
		taken[role]++
		return taken[role] > max(1, f.roles.size[role]/3)
	})...)
}

// worseFirst orders endpoints: those that failed most often, then those that failed last.
func (f *failures) worseFirst(a, b netip.AddrPort) int {
	x, y := f.of[a], f.of[b]
	return cmp.Or(y.times-x.times, y.at.Compare(x.at), a.Compare(b))
}

// retain forgets the endpoints that left the pool.
func (f *failures) retain(pool *fleet.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.roles.read(pool)
	maps.DeleteFunc(f.of, func(e netip.AddrPort, _ *failure) bool {
		_, member := f.roles.of[e]
		return !member
	})
	f.n.Store(int32(len(f.of)))
}

const numRoles = int(fleet.Decode) + 1

// roleSizes are the roles of the endpoints of a pool, and how many there are of each.
type roleSizes struct {
	pool *fleet.Snapshot
	of   map[netip.AddrPort]fleet.Role
	size [numRoles]int
}

// read takes them from a pool, unless it is the one that they are from.
func (r *roleSizes) read(pool *fleet.Snapshot) {
	if r.pool == pool {
		return
	}
	*r = roleSizes{pool: pool, of: make(map[netip.AddrPort]fleet.Role, len(pool.Workers))}
	for i := range pool.Workers {
		w := &pool.Workers[i]
		if _, known := r.of[w.Endpoint]; !known {
			r.of[w.Endpoint] = w.Role
			r.size[w.Role]++
		}
	}
}

// noteAnswer learns from the headers of a response how the picked endpoint does, and
// books the request where it is served.
//
// An endpoint failed when it answers 500, 502, 503 or 504, or the gateway does in its
// place because it cannot reach it (envoy.md section 4), and when another worker of the
// pool served. An address that is no worker's tells nothing: there may be a proxy on the
// way.
func (st *stream) noteAnswer(msg *extprocv3.ProcessingRequest, code string) {
	picked := st.decision.Decode.Endpoint
	if st.phase != routedPhase || !picked.IsValid() {
		return
	}
	s, now := st.srv, st.srv.cfg.Now()
	o := outcome{sent: st.sent, endpoint: party{at: picked}}
	if st.decision.Mode == pick.Disaggregated {
		o.prefill.at = st.decision.Prefill.Endpoint
	}
	if r := st.decision.Reservation; r != nil {
		o.prefill.busy, o.endpoint.busy = r.Company()
	}
	served, said := servedBy(msg)
	if !said {
		served = picked
	}
	bad, good := judge(code)
	if served != picked {
		to, member := workerAt(s.routing.Load().Picker.Fleet(), served)
		if !member {
			return
		}
		lost := o
		lost.severity = unserved
		if good { // with the same prefill worker
			lost.prefill = party{}
		}
		s.failed(lost, now)
		st.move(to)
		o.endpoint = party{at: served}
	}
	switch {
	case bad != noFailure:
		o.severity, o.own = bad, said
		s.failed(o, now)
	case good:
		s.failures.worked(st.sent, served, o.prefill.at)
	}
	if bad == unserved {
		st.unbook()
	}
}

// judge says what a status says of those who worked for the response.
func judge(code string) (bad severity, good bool) {
	switch code {
	case "502", "503", "504":
		return unserved, false
	case "500":
		return internalError, false
	}
	return noFailure, len(code) == 3 && code[0] >= '1' && code[0] <= '4'
}

func (s *Server) failed(o outcome, now time.Time) {
	if o.severity == unserved {
		s.metrics.failures.Inc()
	}
	s.failures.fail(o, now)
}

// workerAt returns a worker of an endpoint.
func workerAt(pool *fleet.Snapshot, e netip.AddrPort) (fleet.Key, bool) {
	for i := range pool.Workers {
		if pool.Workers[i].Endpoint == e {
			return pool.Workers[i].Key, true
		}
	}
	return fleet.Key{}, false
}

// move books the request on another worker than the picked one. To others it is over:
// what they were told is wrong, and its blocks are not known any more.
func (st *stream) move(to fleet.Key) {
	if st.decision.Reservation != nil {
		st.decision.Moved(to, st.srv.cfg.Now())
		st.srv.loadFell()
	}
	st.unannounce()
}

// unbook takes the request off its workers. It may be called more than once.
func (st *stream) unbook() {
	if st.decision.Reservation != nil {
		st.decision.Release(st.srv.cfg.Now())
		st.srv.loadFell()
	}
	st.unannounce()
}

// unannounce tells others, once, that the request is over.
func (st *stream) unannounce() {
	if a := st.announced; a != nil {
		st.announced = nil
		a.Finished()
	}
}
