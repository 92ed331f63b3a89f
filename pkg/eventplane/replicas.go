package eventplane

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/load"
)

const (
	// replicaQueueSize bounds the messages of other replicas that wait for us.
	replicaQueueSize = 1 << 10
	// replicaLook is how often is looked for replicas that have fallen silent.
	replicaLook = 200 * time.Millisecond
	// replicaPause is how long looks may be apart: after a longer one this process
	// was stopped, and others may have spoken all the time.
	replicaPause = time.Second
)

// ReplicaStats counts what replicas tell each other of their state.
type ReplicaStats struct {
	Sent     uint64 // parts of states that were published
	Received uint64 // parts of states that came from others, and could be read
	Lost     uint64 // replicas that fell silent without a goodbye

	BadMessages   uint64 // that could not be read
	OtherVersions uint64 // of another version of the format: ignored
	UnknownFields uint64 // fields that were skipped
	Dropped       uint64 // messages NATS dropped because we were too slow
}

// replicaFeed hears other replicas: own queue, own goroutine, own lock, so that a
// flood of load messages makes none of them look dead.
type replicaFeed struct {
	mu        sync.Mutex // guards all below
	decoder   replicaDecoder
	sub       *nats.Subscription
	stats     ReplicaStats
	looked    time.Time // when it was last looked for silent ones, by the clock of the process
	listening time.Time // since when nothing that others say is missed
	badSince  time.Time // start of the current period of silence about bad messages
}

func (p *Plane) replicaPrefix() string { return replicaPrefix(p.cfg.Namespace, "") }

// Peers returns how many other replicas are alive, and the age of the oldest of
// the views that they gave of their requests.
func (p *Plane) Peers() (n int, oldest time.Duration) {
	if p.cfg.Loads == nil {
		return 0, 0
	}
	return p.cfg.Loads.Routers(p.cfg.Now())
}

// ReplicaStats returns the counts of what replicas tell each other.
func (p *Plane) ReplicaStats() ReplicaStats {
	f := &p.replicas
	f.mu.Lock()
	defer f.mu.Unlock()
	f.countDropped()
	s := f.stats
	s.UnknownFields = f.decoder.unknownFields
	if p.announce != nil {
		s.Sent = p.announce.states.Load()
	}
	return s
}

// countDropped asks the subscription, as long as it is open. Its caller holds the
// lock.
func (f *replicaFeed) countDropped() {
	if f.sub == nil {
		return
	}
	if n, err := f.sub.Dropped(); err == nil {
		f.stats.Dropped = uint64(n)
	}
}

func (p *Plane) subscribeReplicas(conn *nats.Conn, queue chan *nats.Msg) error {
	subject := p.replicaPrefix() + ".load.*"
	sub, err := conn.ChanSubscribe(subject, queue)
	if err != nil {
		return fmt.Errorf("eventplane: subscribe to %s: %w", subject, err)
	}
	p.replicas.mu.Lock()
	p.replicas.sub = sub
	p.replicas.mu.Unlock()
	return nil
}

// hearReplicas takes in what other replicas say, until the queue is closed.
func (p *Plane) hearReplicas(queue <-chan *nats.Msg) {
	tick := time.NewTicker(replicaLook)
	defer tick.Stop()
	for {
		select {
		case m, open := <-queue:
			if !open {
				return
			}
			p.receiveReplica(m)
		case <-tick.C:
			if p.cfg.Loads != nil && len(queue) == 0 { // else nobody knows yet who is silent
				p.lookForSilent(time.Now(), p.Connected())
			}
		}
	}
}

// lookForSilent forgets the requests of replicas that are dead. clock is the time
// of the process; connected says whether others can be heard at all.
func (p *Plane) lookForSilent(clock time.Time, connected bool) {
	f, now := &p.replicas, p.cfg.Now()
	f.mu.Lock()
	if !connected || clock.Sub(f.looked) > replicaPause {
		f.listening = now
	}
	f.looked = clock
	since := f.listening
	f.mu.Unlock()
	n, one := p.cfg.Loads.RoutersSilent(now, since)
	if n == 0 {
		return
	}
	f.mu.Lock()
	f.stats.Lost += uint64(n)
	f.mu.Unlock()
	p.cfg.Log.Warn("other replicas fell silent; their requests count no more", "replicas", n, "router_id", one)
}

// receiveReplica handles one message of a replica.
func (p *Plane) receiveReplica(m *nats.Msg) {
	router, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if err == nil && p.cfg.Siblings.have(router) {
		return
	}
	now := p.cfg.Now()
	var said *replicaMessage
	if err == nil {
		said, err = p.replicas.read(m.Data)
	}
	if err != nil {
		p.sayBadReplica(m, err, now)
		return
	}
	if said.tell(p.cfg.Loads, router, now) && p.announce != nil {
		p.announce.hurry() // it knows nothing of us
	}
}

// read reads a message. What it returns is good until the next call.
func (f *replicaFeed) read(data []byte) (*replicaMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.decoder.decode(data)
	if err == nil && m.kind == replicaState {
		f.stats.Received++
	}
	return m, err
}

// sayBadReplica counts a message that cannot be used, and says at most once a
// minute that there are such. Those of another release are no trouble.
func (p *Plane) sayBadReplica(m *nats.Msg, err error, now time.Time) {
	f := &p.replicas
	f.mu.Lock()
	other, quiet := errors.Is(err, errReplicaVersion), now.Sub(f.badSince) < time.Minute
	switch {
	case other:
		f.stats.OtherVersions++
	default:
		f.stats.BadMessages++
		if !quiet {
			f.badSince = now
		}
	}
	f.mu.Unlock()
	if !other && !quiet {
		p.cfg.Log.Warn("a message of another replica could not be read and was skipped; more within a minute are only counted",
			"subject", m.Subject, "bytes", len(m.Data), "error", err)
	}
}

// tell hands a message to the sink, and says whether the replica is new.
func (m *replicaMessage) tell(to Loads, router uint64, now time.Time) (fresh bool) {
	switch m.kind {
	case replicaState:
		return to.RouterState(load.RouterState{
			Router: router, At: m.at, Part: int(min(m.part, load.MaxStateParts)), Parts: int(min(m.parts, load.MaxStateParts+1)), Open: m.open,
		}, now)
	case replicaGone:
		to.RouterGone(router, m.at, now)
		return false
	default:
		return to.RouterAlive(router, m.at, now)
	}
}
