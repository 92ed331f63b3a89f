package eventplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/zeebo/xxh3"
)

// peerTransfers is how many replicas are handed over to at a time.
const peerTransfers = 2

// peerPatience is how long the other side may keep silent.
const peerPatience = 5 * time.Second

// peerQueue bounds the requests that wait. Who gets no answer asks again.
const peerQueue = 256

// peerServer hands over what this replica knows to others that start.
type peerServer struct {
	Prefix string // peerPrefix
	ID     string // of this replica, unlike all others; at most maxPeerID bytes

	// Ready says what there is to hand over, and whether it is complete: else others
	// do not hear of it. The ID is filled in here.
	Ready func() (offer, bool)
	// Snapshot writes it. Several may run at a time.
	Snapshot func(io.Writer) error
	// Done, if set, hears of the end of every transfer: to whom, how many bytes, and
	// why it broke off.
	Done func(to string, bytes uint64, err error)

	patience time.Duration // default peerPatience
}

// serve answers until ctx ends; then no transfer runs any more. It fails when it
// cannot subscribe.
func (s *peerServer) serve(ctx context.Context, conn *nats.Conn) error {
	if s.patience == 0 {
		s.patience = peerPatience
	}
	requests := make(chan *nats.Msg, peerQueue)
	asked := offerSubject(s.Prefix)
	for _, subject := range []string{asked, fetchSubject(s.Prefix, s.ID)} {
		sub, err := conn.ChanSubscribe(subject, requests)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed, which is as good
	}
	var transfers sync.WaitGroup
	defer transfers.Wait()
	places := make(chan struct{}, peerTransfers)
	for {
		var m *nats.Msg
		select {
		case <-ctx.Done():
			return nil
		case m = <-requests:
		}
		id, ok := parseAsk(m.Data)
		switch {
		case !ok || id == s.ID || m.Reply == "":
			continue
		case m.Subject == asked:
			if o, ready := s.Ready(); ready {
				o.ID = s.ID
				_ = conn.Publish(m.Reply, o.encode()) // who asks waits for no one in particular
			}
			continue
		}
		select {
		case places <- struct{}{}:
			transfers.Go(func() {
				s.transfer(ctx, conn, id, m.Reply)
				<-places
			})
		default:
			busy := make([]byte, frameHead)
			putFrameHead(busy, frameBusy, 1, 0)
			_ = conn.Publish(m.Reply, busy)
		}
	}
}

// transfer hands over to one replica.
func (s *peerServer) transfer(ctx context.Context, conn *nats.Conn, id, to string) {
	w := peerWriter{ctx: ctx, conn: conn, to: to, patience: s.patience, hash: xxh3.New(), acks: make(chan *nats.Msg, 4*peerWindow)}
	w.buf = make([]byte, frameHead, frameHead+frameSize(conn.MaxPayload()))
	w.inbox = conn.NewInbox()
	sub, err := conn.ChanSubscribe(w.inbox, w.acks)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = s.Snapshot(&w)
	}
	if err == nil {
		err = w.close()
	}
	if err != nil && !errors.Is(err, errPeerGone) {
		w.buf = w.buf[:frameHead]
		w.n++
		_ = w.publish(frameFailed) // it would find out by itself
	}
	if s.Done != nil {
		s.Done(id, w.bytes, err)
	}
}

// peerWriter sends what is written, in frames, no faster than they are used up.
type peerWriter struct {
	ctx      context.Context //nolint:containedctx // an io.Writer takes none
	conn     *nats.Conn
	to       string // reply subject of the request
	inbox    string // for the receiver's word
	acks     chan *nats.Msg
	patience time.Duration
	hash     *xxh3.Hasher
	buf      []byte // the next frame
	n, used  uint32 // last frame that was sent, and that was used up
	bytes    uint64
}

// Write implements io.Writer.
func (w *peerWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), cap(w.buf)-len(w.buf))
		w.buf, p = append(w.buf, p[:take]...), p[take:]
		if len(w.buf) == cap(w.buf) {
			if err := w.send(frameData); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// close sends the rest and the end, and waits until all was used up.
func (w *peerWriter) close() error {
	if len(w.buf) > frameHead {
		if err := w.send(frameData); err != nil {
			return err
		}
	}
	if err := w.send(frameEnd); err != nil {
		return err
	}
	return w.await(0)
}

// send sends the frame in buf when there is room for it.
func (w *peerWriter) send(kind byte) error {
	if err := w.await(peerWindow - 1); err != nil {
		return err
	}
	w.n++
	_, _ = w.hash.Write(w.buf[frameHead:]) // never fails
	w.bytes += uint64(len(w.buf) - frameHead)
	return w.publish(kind)
}

func (w *peerWriter) publish(kind byte) error {
	putFrameHead(w.buf, kind, w.n, w.hash.Sum64())
	err := w.conn.PublishRequest(w.to, w.inbox, w.buf)
	w.buf = w.buf[:frameHead]
	return err
}

// await waits until no more than that many frames are under way.
func (w *peerWriter) await(most uint32) error {
	if w.n-w.used <= most {
		return nil
	}
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	for w.n-w.used > most {
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case <-timer.C:
			return errPeerGone
		case m := <-w.acks:
			if len(m.Data) != 4 { // also when there is nobody
				return errPeerGone
			}
			switch n := binary.LittleEndian.Uint32(m.Data); {
			case n == peerStop:
				return errPeerGone
			case n > w.n || n < w.used:
				return fmt.Errorf("%w: frame %d is said to have arrived, of %d", errPeerDamaged, n, w.n)
			default:
				w.used = n
				timer.Reset(w.patience)
			}
		}
	}
	return nil
}
