package eventplane

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// wire is a way to a server that can be cut.
type wire struct {
	t        testing.TB
	listener net.Listener
	server   string
	done     sync.WaitGroup

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

// wireTo lays a wire to a server.
func wireTo(t testing.TB, address string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listener: l, server: strings.TrimPrefix(address, "nats://"), conns: map[net.Conn]bool{}}
	w.done.Go(w.accept)
	t.Cleanup(func() {
		l.Close()
		w.cut()
		w.done.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.server)
		if err != nil {
			near.Close()
			continue
		}
		if !w.keep(near, far) {
			continue
		}
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			w.done.Go(func() {
				_, _ = io.Copy(pair[0], pair[1]) // ends when either is closed
				w.drop(near, far)
			})
		}
	}
}

func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.isCut {
			c.Close()
		} else {
			w.conns[c] = true
		}
	}
	return !w.isCut
}

func (w *wire) drop(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(w.conns, c)
	}
}

// cut ends all connections, and lets none come about until it is mended.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.conns {
		c.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}

// replica is a plane that tells others of its requests, and hears theirs.
type replica struct {
	*rig
	engines *load.Engines
	wire    *wire
	stop    func()
}

// startReplica runs a replica on a wire of its own. Its heartbeats are quick, and
// its states are not: what is corrected before one is due was corrected on demand.
func startReplica(t testing.TB, address string, change ...func(*Plane)) *replica {
	t.Helper()
	w := wireTo(t, address)
	r := &replica{rig: newRig(t, w.url(), "dynamo").syncing(), engines: load.NewEngines(), wire: w}
	r.plane.cfg.Loads = r.engines
	r.plane.reconnectWait, r.plane.beatEvery, r.plane.stateEvery = 10*time.Millisecond, 20*time.Millisecond, time.Hour
	for _, f := range change {
		f(r.plane)
	}
	r.stop = r.run()
	waitFor(t, "it does not listen", func() bool { return r.plane.Stats().EverListened })
	return r
}

// silence notes how long others had said nothing whenever a replica looked for silent
// ones, by the time of day. What the replica takes for the time of a word lies between
// when it asked for the time and when the word is told.
type silence struct {
	*load.Engines

	mu      sync.Mutex
	asked   time.Time     // for the time of the last sign of life
	told    time.Time     // when that was told
	longest time.Duration // with which nobody was missed yet, at least
	missed  time.Duration // with which somebody was, at most; 0: nobody
}

func (s *silence) hear(now time.Time) { s.asked, s.told = now, time.Now() }

func (s *silence) RouterAlive(router, at uint64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	return s.Engines.RouterAlive(router, at, now)
}

func (s *silence) RouterState(state load.RouterState, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	return s.Engines.RouterState(state, now)
}

func (s *silence) Route(k fleet.Key, r load.Routed, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	s.Engines.Route(k, r, now)
}

func (s *silence) RoutersSilent(now, listening time.Time) (n int, one uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, one = s.Engines.RoutersSilent(now, listening)
	since := func(heard time.Time) time.Time {
		if heard.Before(listening) {
			return listening
		}
		return heard
	}
	switch {
	case s.told.IsZero() || s.missed > 0:
	case n > 0:
		s.missed = time.Since(since(s.asked))
	default:
		s.longest = max(s.longest, now.Sub(since(s.told)))
	}
	return n, one
}

// often makes states as quick as heartbeats.
func often(p *Plane) { p.stateEvery = 30 * time.Millisecond }

// alone makes a replica tell others nothing.
func alone(p *Plane) {
	p.cfg.ReplicaSync = false
	p.announce = nil
}

// place announces requests on a worker, each of 10 tokens.
func (r *replica) place(name string, n int, k fleet.Key) (placed []*Announcement) {
	for i := range n {
		placed = append(placed, r.plane.Announce(&Placement{
			RequestID: fmt.Sprint(name, "-", i), Prefill: k, Decode: k, PrefillTokens: 10, Blocks: 2,
		}))
	}
	return placed
}

// sees waits until a replica counts requests of others on a worker, of two blocks each.
func (r *replica) sees(what string, k fleet.Key, requests, tokens uint64) {
	r.t.Helper()
	r.seesLoad(what, k, load.Foreign{Requests: requests, PrefillTokens: tokens, Blocks: 2 * requests})
}

func (r *replica) seesLoad(what string, k fleet.Key, want load.Foreign) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprintf("%s: want %+v", what, want), func() bool { return foreign(r.rig, r.engines, k) == want })
}

// seesReplicas waits until so many others are alive.
func (r *replica) seesReplicas(n int) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprint("not as many replicas are alive as ", n), func() bool {
		got, _ := r.plane.Peers()
		return got == n
	})
}
