package extproc

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// How long an endpoint that failed a request is avoided: twice as long with each
// further failure, until a request to it succeeds. Without this, a worker that fails
// fast has always the least load, and attracts all requests.
const (
	firstPause = 5 * time.Second
	maxPause   = 30 * time.Second
	// maxFailures bounds how many endpoints are remembered.
	maxFailures = 64
)

// failures are the endpoints that failed lately. The zero value is ready.
type failures struct {
	n  atomic.Int32 // of them: most of the time there are none
	mu sync.Mutex
	of map[netip.AddrPort]failure
}

type failure struct {
	at    time.Time
	pause time.Duration // from then on
}

// over says whether a failure is so long ago that it says nothing any more.
func (f failure) over(now time.Time) bool { return now.Sub(f.at) > 2*maxPause }

// fail notes that an endpoint failed. Requests that fail during a pause began before
// it: they do not make it longer.
func (f *failures) fail(e netip.AddrPort, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.of[e]
	switch {
	case !known || last.over(now):
		last = failure{at: now, pause: firstPause}
	case now.Sub(last.at) < last.pause:
		return
	default:
		last = failure{at: now, pause: min(2*last.pause, maxPause)}
	}
	if !known && len(f.of) >= maxFailures && !f.makeRoom(now) {
		return
	}
	if f.of == nil {
		f.of = map[netip.AddrPort]failure{}
	}
	f.of[e] = last
	f.n.Store(int32(len(f.of)))
}

// makeRoom forgets what is over, and says whether that helped.
func (f *failures) makeRoom(now time.Time) bool {
	for e, last := range f.of {
		if last.over(now) {
			delete(f.of, e)
		}
	}
	return len(f.of) < maxFailures
}

// worked notes that an endpoint answered a request that was sent there at a time. An
// answer to one that was sent before the failure says nothing.
func (f *failures) worked(e netip.AddrPort, sent time.Time) {
	if f.n.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, known := f.of[e]; known && sent.After(last.at) {
		delete(f.of, e)
		f.n.Store(int32(len(f.of)))
	}
}

// avoid appends the endpoints that are avoided now.
func (f *failures) avoid(to []netip.AddrPort, now time.Time) []netip.AddrPort {
	if f.n.Load() == 0 {
		return to
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for e, last := range f.of {
		if now.Sub(last.at) < last.pause {
			to = append(to, e)
		}
	}
	return to
}

// noteAnswer learns from the headers of a response how the picked endpoint does, and
// books the request where it is served.
//
// An endpoint failed when it answers 503, or the gateway does in its place because it
// cannot reach it (envoy.md section 4), and when another worker of the pool served.
// An address that is no worker's tells nothing: there may be a proxy on the way.
func (st *stream) noteAnswer(msg *extprocv3.ProcessingRequest, code string) {
	picked := st.decision.Decode.Endpoint
	if st.phase != routedPhase || !picked.IsValid() {
		return
	}
	s, now := st.srv, st.srv.cfg.Now()
	served, said := servedBy(msg)
	if !said {
		served = picked
	}
	if served != picked {
		to, member := workerAt(s.routing.Load().Picker.Fleet(), served)
		if !member {
			return
		}
		s.failed(picked, now)
		st.move(to)
	}
	if code == "503" {
		s.failed(served, now)
		st.unbook()
		return
	}
	s.failures.worked(served, st.sent)
}

func (s *Server) failed(e netip.AddrPort, now time.Time) {
	s.metrics.failures.Inc()
	s.failures.fail(e, now)
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
