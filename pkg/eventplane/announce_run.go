package eventplane

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// announceFlush bounds the time that the last words may take when the plane ends,
// and every other write to the server.
const announceFlush = 2 * time.Second

// runAnnouncer publishes announcements, and the state, until ctx ends, over a connection of its
// own: a library that waits for a server to take bytes holds the lock of its
// connection meanwhile, and what is heard must not wait for what is said.
func (p *Plane) runAnnouncer(ctx context.Context) {
	closed := make(chan struct{})
	secrets, use := p.secrets.options()
	conn, err := nats.Connect(p.cfg.URL, append(secrets,
		nats.Name(p.cfg.Name+"-announce"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(p.reconnectWait),
		nats.ReconnectJitter(p.reconnectWait/2, p.reconnectWait/2),
		nats.ReconnectBufSize(-1), // old words help nobody: what cannot be said now is not kept by the library
		nats.FlusherTimeout(announceFlush),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(maxPings),
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(p.announce.connected),
		nats.ReconnectHandler(p.announce.connected),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { p.refused(err) }),
		nats.ErrorHandler(p.announceError),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	)...)
	send := func(string, []byte) error { return nats.ErrConnectionClosed }
	if err == nil {
		use(conn)
		send = conn.Publish
		defer func() {
			if conn.IsConnected() {
				conn.FlushTimeout(announceFlush) //nolint:errcheck // what others do not hear of now, they forget by themselves
			}
			conn.Close()
			<-closed
		}()
	} else {
		p.cfg.Log.Error("other routers are told nothing", "servers", serversOf(p.cfg.URL), "error", withoutURL(err))
	}
	pub := newPublisher(p, send)
	if conn != nil {
		pub.partSize = func() int { return frameSize(conn.MaxPayload()) }
	}
	defer pub.end()
	beats := newBeats(p)
	defer beats.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.announce.wake:
			pub.catchUp()
		case <-p.announce.hurried:
			beats.soon()
		case <-beats.state.C:
			pub.state()
			beats.again()
		case <-beats.alive.C:
			pub.beat()
		}
	}
}

func (a *announcer) connected(*nats.Conn) {
	a.mu.Lock()
	a.back = true
	a.mu.Unlock()
	a.nudge()
	a.hurry()
}

// announceError hears of what the server refuses after it was sent.
func (p *Plane) announceError(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		p.denied(err)
	case !p.refused(err):
		p.cfg.Log.Warn("the event plane reports an error", "error", err)
	}
}

// denied counts a message that the server did not pass on, and says so at most
// once a minute.
func (p *Plane) denied(err error) {
	if a := p.announce; a.complain(&a.stats.Denied, &a.deniedSilent, p.cfg.Now()) {
		p.cfg.Log.Warn("the event plane does not let us tell other routers of requests; more within a minute are only counted", "error", err)
	}
}
