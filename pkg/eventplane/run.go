package eventplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A partition without a word from the network shows after the pings that may be
// missing and one more.
const (
	pingEvery = 10 * time.Second
	maxPings  = 2
)

// reconnectWait is the time between two attempts to connect.
const reconnectWait = time.Second

// Run listens until ctx ends. A NATS server that is not there yet, or goes away,
// is no error: the plane keeps trying, and what it misses shows as gaps. Run may
// be called once.
func (p *Plane) Run(ctx context.Context) error {
	if !p.awaitFiles(ctx) {
		return nil
	}
	closed := make(chan struct{})
	secrets, use := p.secrets.options()
	conn, err := nats.Connect(p.cfg.URL, append(secrets,
		nats.Name(p.cfg.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(p.reconnectWait),
		nats.ReconnectJitter(p.reconnectWait/2, p.reconnectWait/2),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(maxPings),
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(p.connected),
		nats.ReconnectHandler(p.connected),
		nats.DisconnectErrHandler(p.disconnected),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { p.refused(err) }),
		nats.ErrorHandler(p.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	)...)
	if err != nil {
		return fmt.Errorf("eventplane: connect to NATS at %s: %w", serversOf(p.cfg.URL), withoutURL(err))
	}
	use(conn)
	p.mu.Lock()
	p.conn = conn
	p.mu.Unlock()
	loadQueue, replicaQueue := make(chan *nats.Msg, loadQueueSize), make(chan *nats.Msg, replicaQueueSize)
	var receiving sync.WaitGroup
	receiving.Go(func() { //nolint:contextcheck // what waits is taken in even after ctx has ended
		<-p.opened
		p.dispatch(p.queue, p.stream)
	})
	receiving.Go(func() {
		for m := range loadQueue {
			p.receiveLoad(m)
		}
	})
	receiving.Go(func() { p.hearReplicas(replicaQueue) })
	working, stop := context.WithCancel(ctx)
	var feeding sync.WaitGroup
	receiving.Go(func() { p.resync(working) })
	defer func() {
		stop()
		feeding.Wait()
		p.open()
		p.Stats() // notes what was dropped: a closed subscription does not tell
		p.LoadStats()
		conn.Close()
		<-closed
		close(p.queue) // a closed connection sends no more; what waits is taken in
		close(loadQueue)
		close(replicaQueue)
		if p.stream != nil {
			close(p.stream)
		}
		receiving.Wait()
	}()
	if !conn.IsConnected() {
		p.cfg.Log.Warn("the event plane is not reachable yet; requests are routed without cache knowledge until it is",
			"servers", serversOf(p.cfg.URL), "error", withoutURL(cmp.Or(conn.LastError(), nats.ErrNoServers)))
	}
	if p.cfg.Loads != nil {
		if err := p.subscribeLoads(conn, loadQueue); err != nil {
			return err
		}
		if err := p.subscribeReplicas(conn, replicaQueue); err != nil {
			return err
		}
	}
	failed := make(chan error, 2)
	run := func(what func(context.Context, *nats.Conn) error) {
		feeding.Go(func() {
			if err := what(working, conn); err != nil {
				failed <- err
			}
		})
	}
	run(p.feed)
	if p.cfg.WarmUp.Peers {
		run(p.servePeers)
	}
	if p.announce != nil {
		receiving.Go(func() { p.runAnnouncer(ctx) })
	}
	return p.watch(ctx, conn, failed)
}

// flushLimit bounds the wait for a server to have taken the subscriptions.
const flushLimit = 5 * time.Second

// noteSubscribed says that events are heard from now on: NATS keeps nothing for
// those who subscribe later. Without a connection the subscriptions come into
// effect together with it.
func (p *Plane) noteSubscribed(conn *nats.Conn) {
	if conn.IsConnected() {
		if err := conn.FlushTimeout(flushLimit); err != nil {
			p.cfg.Log.Warn("the event plane did not confirm the subscriptions in time", "error", withoutURL(err))
		}
	}
	p.mu.Lock()
	p.subscribed = true
	p.mu.Unlock()
}

// watch does what is due from time to time, until ctx ends or a part of the plane
// fails.
func (p *Plane) watch(ctx context.Context, conn *nats.Conn, parts <-chan error) error {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	reread := time.NewTicker(p.rereadEvery)
	defer reread.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	// The library reports some refusals nowhere but here.
	failed := conn.StatusChanged(nats.RECONNECTING)
	defer conn.RemoveStatusListener(failed)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-parts:
			if ctx.Err() != nil {
				return nil // it has ended for that
			}
			return err
		case <-sweep.C:
			p.sweep() //nolint:contextcheck // it only logs
		case <-look.C:
			p.look() //nolint:contextcheck // it only logs
		case <-reread.C:
			p.secrets.current()
		case <-failed:
			p.refused(conn.LastError())
		}
	}
}

// lookEvery is how often is looked for events that may have been lost, and for
// workers that can be asked: what was lost is known within a second.
const lookEvery = 200 * time.Millisecond

// look makes sure of all workers after anything that may have cost events, and asks
// those that are new.
func (p *Plane) look() {
	select {
	case <-p.opened:
	default:
		return // whose events were lost is not known before any is taken in
	}
	p.mu.Lock()
	p.countDropped()
	again := p.unsure && p.doubted
	if p.unsure = p.unsure || p.stats.Dropped > p.sure; p.unsure {
		p.suspectAll(again && p.stats.Dropped == p.sure)
	}
	// What waits is older than the loss: it clears nobody.
	p.doubted, p.sure = p.unsure, p.stats.Dropped
	p.unsure = p.unsure && p.waiting() > 0
	p.mu.Unlock()
	if p.Warming() == "" {
		p.askNew()
	}
	p.flushSayings()
}

// waiting is the number of messages that wait to be taken in.
func (p *Plane) waiting() int {
	n := len(p.queue)
	for _, l := range p.lanes {
		n += len(l.queue)
	}
	return n
}

// subscribe adds a subscription. All share one queue, so that the messages of a
// worker that changes from one scope to the other stay in order.
func (p *Plane) subscribe(conn *nats.Conn, wildcard string) (*nats.Subscription, error) {
	sub, err := conn.ChanSubscribe(wildcard, p.queue)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.subs = append(p.subs, sub)
	p.mu.Unlock()
	return sub, nil
}

// unsubscribe gives subscriptions up. What they dropped stays counted.
func (p *Plane) unsubscribe(subs []*nats.Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sub := range subs {
		dropped, err := sub.Dropped()
		if err == nil {
			p.droppedBefore += uint64(dropped)
		}
		p.subs = slices.DeleteFunc(p.subs, func(s *nats.Subscription) bool { return s == sub })
		_ = sub.Unsubscribe() // fails when the connection is closed, which is as good
	}
}

// awaitFiles waits until the secrets can be used, or ctx ends: a connection without
// them would be refused, or worse, would not.
func (p *Plane) awaitFiles(ctx context.Context) bool {
	for p.secrets.current(); p.secrets.trouble() != nil; p.secrets.current() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(p.reconnectWait):
		}
	}
	return true
}

func (p *Plane) connected(c *nats.Conn) {
	p.mu.Lock()
	again := p.stats.EverListened
	p.stats.EverListened = true
	p.unsure = p.unsure || again && p.stats.Stream.Name == "" // events may have passed while we were away
	clear(p.refusals)
	p.mu.Unlock()
	log := p.cfg.Log.With("server", c.ConnectedAddr(), "namespace", p.cfg.Namespace)
	if again {
		log.Info("connected to the event plane again")
	} else {
		log.Info("connected to the event plane")
	}
}

func (p *Plane) disconnected(c *nats.Conn, err error) {
	if c.IsClosed() {
		return
	}
	p.mu.Lock()
	p.stats.Disconnects++
	stream := p.stats.Stream.Name
	p.mu.Unlock()
	if stream != "" {
		p.cfg.Log.Warn("lost the connection to the event plane; the stream keeps the events until it is back", "stream", stream, "error", err)
		return
	}
	p.cfg.Log.Warn("lost the connection to the event plane; events until it is back are missed", "error", err)
}

// asyncError hears of dropped messages only when dropping starts: Stats asks for
// their number.
func (p *Plane) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if !p.refused(err) && !p.loadsDropped(sub, err) {
		p.cfg.Log.Warn("the event plane reports an error", "error", err)
	}
}

// refused says why a server and the plane cannot agree, if that is what err is
// about: each reason once, and once more when the secrets have changed.
func (p *Plane) refused(err error) bool {
	reason := refusal(err)
	if reason == "" {
		return false
	}
	changes := p.secrets.changed()
	p.mu.Lock()
	last, said := p.refusals[reason]
	p.refusals[reason] = changes
	p.mu.Unlock()
	if !said || last != changes {
		p.cfg.Log.Warn("no agreement with the event plane; the secrets are read again for every attempt to connect",
			"servers", serversOf(p.cfg.URL), "error", withoutURL(err))
	}
	return true
}

// serversOf is a list of NATS addresses without what stands before an "@": names,
// passwords and tokens.
func serversOf(list string) string {
	servers := strings.Split(list, ",")
	for i, s := range servers {
		scheme, rest, found := strings.Cut(strings.TrimSpace(s), "://")
		if !found {
			scheme, rest = "nats", scheme
		}
		servers[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(servers, ",")
}

// withoutURL drops the address, with its credentials, that an error about a bad
// one repeats.
func withoutURL(err error) error {
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		return bad.Err
	}
	return err
}
