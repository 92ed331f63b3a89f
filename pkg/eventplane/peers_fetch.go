package eventplane

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/zeebo/xxh3"
)

const (
	// Offers are collected for the minimum, and up to the maximum while there is none.
	peerOffersMin = 100 * time.Millisecond
	peerOffersMax = time.Second
	// peerComeBack is about how long to wait when those that could are busy.
	peerComeBack = 250 * time.Millisecond
	// peerTries is how often one replica is tried that does not keep its promise.
	peerTries = 3
)

// peerFetcher gets from another replica what that knows. Make one with
// newPeerFetcher.
type peerFetcher struct {
	Prefix string // peerPrefix
	ID     string // of this replica: it does not ask itself

	offersMin, offersMax, comeBack, patience time.Duration
}

func newPeerFetcher(prefix, id string) *peerFetcher {
	return &peerFetcher{
		Prefix: prefix, ID: id,
		offersMin: peerOffersMin, offersMax: peerOffersMax, comeBack: peerComeBack, patience: peerPatience,
	}
}

// fetch hands to load what the best of the others knows, that with the most
// entries, and returns whose it was. load has to read to the end. When it or the
// transfer fails, it is called again with that of the next one: it must change
// nothing before it has come to the end.
//
// It returns errNoPeers soon when there is nobody, why each one failed when all
// did, or ctx's error: how long it waits for replicas that are busy is up to ctx.
func (f *peerFetcher) fetch(ctx context.Context, conn *nats.Conn, load func(offer, io.Reader) error) (offer, error) {
	tried := map[string]int{}
	var failures []error
	for missed := 0; ; {
		offers, err := f.collect(ctx, conn)
		if err != nil {
			return offer{}, errors.Join(append(failures, err)...)
		}
		again := false
		if len(offers) == 0 && len(failures) > 0 { // one was there: the connection may be broken
			missed++
			again = missed < peerTries
		}
		for _, o := range offers {
			if tried[o.ID] >= peerTries {
				continue
			}
			err := f.from(ctx, conn, o, load)
			switch {
			case err == nil:
				return o, nil
			case ctx.Err() != nil:
				return offer{}, errors.Join(append(failures, ctx.Err())...)
			case errors.Is(err, errPeerBusy):
				again = true
				continue
			case errors.Is(err, errPeerGone), errors.Is(err, errPeerDamaged), errors.Is(err, errPeerFailed):
				tried[o.ID]++
				again = again || tried[o.ID] < peerTries
			default:
				tried[o.ID] = peerTries // it came over, and is of no use
			}
			failures = append(failures, fmt.Errorf("from replica %q: %w", o.ID, err))
		}
		if !again {
			return offer{}, cmp.Or(errors.Join(failures...), errNoPeers)
		}
		if err := pause(ctx, f.comeBack/2+time.Duration(rand.Float64()*float64(f.comeBack))); err != nil {
			return offer{}, errors.Join(append(failures, err)...)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// collect asks for offers and returns them, the best first.
func (f *peerFetcher) collect(ctx context.Context, conn *nats.Conn) ([]offer, error) {
	queue := make(chan *nats.Msg, peerQueue)
	inbox := conn.NewInbox()
	sub, err := conn.ChanSubscribe(inbox, queue)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.PublishRequest(offerSubject(f.Prefix), inbox, encodeAsk(f.ID)); err != nil {
		return nil, err
	}
	most, least := time.NewTimer(f.offersMax), time.NewTimer(f.offersMin)
	defer most.Stop()
	defer least.Stop()
	var offers []offer
	for early := true; early || len(offers) == 0; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-most.C:
			return offers, nil
		case <-least.C:
			early = false
		case m := <-queue:
			if nobody(m) {
				return nil, nil
			}
			if o, ok := parseOffer(m.Data); ok && o.ID != f.ID {
				offers = append(offers, o)
			}
		}
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID))
	})
	return offers, nil
}

// nobody says whether a server's answer is that nobody listens.
func nobody(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// from gets what one replica knows.
func (f *peerFetcher) from(ctx context.Context, conn *nats.Conn, o offer, load func(offer, io.Reader) error) error {
	r := peerReader{ctx: ctx, conn: conn, patience: f.patience, hash: xxh3.New(), queue: make(chan *nats.Msg, 4*peerWindow)}
	inbox := conn.NewInbox()
	sub, err := conn.ChanSubscribe(inbox, r.queue)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.PublishRequest(fetchSubject(f.Prefix, o.ID), inbox, encodeAsk(f.ID)); err != nil {
		return err
	}
	if r.err = r.next(); r.err == nil || errors.Is(r.err, io.EOF) { // load need not hear of one that is busy or gone
		err = load(o, &r)
	}
	if r.err == nil && len(r.buf) == 0 {
		_, _ = r.Read(nil) // it may have read all but the end
	}
	switch {
	case errors.Is(r.err, io.EOF):
		return err
	case r.err != nil:
		err = r.err
	case err == nil:
		err = errPeerUnread
	}
	r.say(peerStop)
	return err
}

// peerReader reads the frames of a transfer.
type peerReader struct {
	ctx      context.Context //nolint:containedctx // an io.Reader takes none
	conn     *nats.Conn
	queue    chan *nats.Msg
	patience time.Duration
	hash     *xxh3.Hasher
	sender   string // subject for our word
	n        uint32 // of the last frame
	buf      []byte
	err      error
}

// Read implements io.Reader.
func (r *peerReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 && r.err == nil {
		r.say(r.n) // what came before is used up
		r.err = r.next()
	}
	if len(r.buf) == 0 {
		return 0, r.err
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *peerReader) say(n uint32) {
	if r.sender != "" {
		_ = r.conn.Publish(r.sender, binary.LittleEndian.AppendUint32(nil, n)) // the sender does not wait for ever
	}
}

// next takes in a frame. io.EOF is the end.
func (r *peerReader) next() error {
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	var m *nats.Msg
	select {
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-timer.C:
		return errPeerGone
	case m = <-r.queue:
	}
	if nobody(m) {
		return errPeerGone
	}
	f, ok := parseFrame(m.Data)
	if !ok || f.n != r.n+1 {
		return fmt.Errorf("%w: a part is missing after number %d", errPeerDamaged, r.n)
	}
	r.n, r.sender = f.n, m.Reply
	switch f.kind {
	case frameBusy:
		return errPeerBusy
	case frameFailed:
		return errPeerFailed
	case frameData, frameEnd:
	default:
		return fmt.Errorf("%w: a part of kind %d", errPeerDamaged, f.kind)
	}
	_, _ = r.hash.Write(f.data) // never fails
	if r.hash.Sum64() != f.sum {
		return fmt.Errorf("%w: the checksum of part %d is wrong", errPeerDamaged, f.n)
	}
	r.buf = f.data
	if f.kind == frameEnd {
		r.say(r.n)
		return io.EOF
	}
	return nil
}
