package eventplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

const testPeers = "warmpath.test,pool.peers"

// peer is a replica that serves a fixed state.
type peer struct {
	conn  *nats.Conn
	stop  func() error
	state []byte

	patience time.Duration

	mu      sync.Mutex
	ready   bool
	most    int // transfers at a time
	running int
	ended   []error
	hold    chan struct{} // every transfer waits for it in the middle
}

// startPeer runs a peer on a connection of its own.
func startPeer(t testing.TB, address, id string, state []byte, set ...func(*peer)) *peer {
	t.Helper()
	p := &peer{conn: persistent(t, address), state: state, ready: true, patience: patience}
	for _, f := range set {
		f(p)
	}
	s := peerServer{
		Prefix: testPeers, ID: id, patience: p.patience,
		Ready: func() (offer, bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return offer{Entries: uint64(len(state)), Age: time.Second}, p.ready
		},
		Snapshot: p.snapshot,
		Done: func(_ string, n uint64, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err == nil && n != uint64(len(state)) {
				err = fmt.Errorf("%d bytes sent, of %d", n, len(state))
			}
			p.ended = append(p.ended, err)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, p.conn) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = p.stop() })
	waitFor(t, "the peer does not listen", func() bool { return p.conn.NumSubscriptions() >= 2 && p.conn.Flush() == nil })
	return p
}

func (p *peer) snapshot(w io.Writer) error {
	p.mu.Lock()
	p.running++
	p.most = max(p.most, p.running)
	hold := p.hold
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running--
	}()
	half := len(p.state) / 2
	if _, err := w.Write(p.state[:half]); err != nil {
		return err
	}
	if hold != nil {
		<-hold
	}
	_, err := w.Write(p.state[half:])
	return err
}

// ends waits until a transfer has ended and returns how.
func (p *peer) ends(t testing.TB) error {
	t.Helper()
	waitFor(t, "the transfer does not end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.ended) > 0
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended[0]
}

// newTestFetcher is a fetcher of the test's own pool.
func newTestFetcher(id string) *peerFetcher {
	f := newPeerFetcher(peerPrefix("test", "pool"), id)
	f.offersMax, f.patience = patience, patience
	return f
}

// impatient is a fetcher for tests in which peers fall silent.
func impatient(id string) *peerFetcher {
	f := newTestFetcher(id)
	f.patience, f.comeBack = 3*time.Second, 20*time.Millisecond
	return f
}

// take is a load that keeps all in b.
func take(b *[]byte) func(offer, io.Reader) error {
	return func(_ offer, in io.Reader) (err error) {
		*b, err = io.ReadAll(in)
		return err
	}
}

// bounded is a context that is over before the test gives up.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestPeers: what is fetched is what was served, whatever its size.
func TestPeers(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	for _, size := range []int{1, peerFrame, 3*peerFrame + 1, 50 << 20} {
		p := startPeer(t, address, "one.of*all", noise(2, size))
		var got []byte
		o, err := newTestFetcher("me").fetch(bounded(t), persistent(t, address), take(&got))
		if err != nil || o.ID != "one.of*all" || o.Entries != uint64(size) || o.Age != time.Second || !bytes.Equal(got, p.state) {
			t.Fatalf("%d bytes of %+v, want %d; %v", len(got), o, size, err)
		}
		if err := p.ends(t); err != nil {
			t.Errorf("the sender: %v", err)
		}
		if err := p.stop(); err != nil {
			t.Errorf("serve ends with %v", err)
		}
	}
}

// TestBestPeer: the one that knows most is taken, of those that are ready and
// others than we.
func TestBestPeer(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	startPeer(t, address, "small", noise(1, 10))
	best := startPeer(t, address, "best", noise(2, 11))
	startPeer(t, address, "unready", noise(3, 12), func(p *peer) { p.ready = false })
	startPeer(t, address, "me", noise(3, 13))
	f := newTestFetcher("me")
	f.offersMin = 2 * time.Second // all answer, on any machine
	var got []byte
	if o, err := f.fetch(bounded(t), persistent(t, address), take(&got)); err != nil || o.ID != "best" || !bytes.Equal(got, best.state) {
		t.Errorf("%d bytes of %+v; %v", len(got), o, err)
	}
}

// TestEmptyPeer hands over nothing, and that is no error.
func TestEmptyPeer(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	startPeer(t, address, "empty", nil)
	got := []byte("before")
	if _, err := newTestFetcher("me").fetch(bounded(t), persistent(t, address), take(&got)); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNoPeers: nobody, only ourselves, and only such as are not ready.
func TestNoPeers(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	conn := persistent(t, address)
	f := impatient("me")
	f.offersMin, f.offersMax = time.Millisecond, 50*time.Millisecond
	for range 2 {
		if _, err := f.fetch(bounded(t), conn, nil); !errors.Is(err, errNoPeers) {
			t.Errorf("%v, want %v", err, errNoPeers)
		}
		startPeer(t, address, "me", noise(1, 10))
		startPeer(t, address, "unready", noise(1, 10), func(p *peer) { p.ready = false })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.fetch(ctx, conn, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// TestPeerDies: in the middle of a transfer; the next one takes over, from the
// start.
func TestPeerDies(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	dying := startPeer(t, address, "a", noise(1, 8<<20), func(p *peer) { p.patience = 5 * time.Second })
	second := startPeer(t, address, "b", noise(2, 1<<20))
	f := impatient("me")
	f.offersMin = 2 * time.Second // both answer, on any machine
	calls := 0
	var got []byte
	o, err := f.fetch(bounded(t), persistent(t, address), func(_ offer, in io.Reader) (err error) {
		if calls++; calls == 1 {
			if _, err := io.CopyN(io.Discard, in, 1<<20); err != nil {
				return err
			}
			dying.conn.Close()
		}
		got, err = io.ReadAll(in)
		return err
	})
	if err != nil || o.ID != "b" || calls < 2 || !bytes.Equal(got, second.state) {
		t.Errorf("%d bytes of %+v after %d calls; %v", len(got), o, calls, err)
	}
	if err := dying.ends(t); err == nil {
		t.Error("the peer that died has handed over all")
	}
}

// TestPeersFail: what the only one does wrong is told.
func TestPeersFail(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	conn := persistent(t, address)
	p := startPeer(t, address, "a", noise(1, 1<<20))
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		load func(offer, io.Reader) error
		want error
	}{
		"of no use": {func(_ offer, in io.Reader) error {
			_, err := io.Copy(io.Discard, in)
			return errors.Join(err, broken)
		}, broken},
		"of no use early": {func(offer, io.Reader) error { return broken }, broken},
		"unread":          {func(offer, io.Reader) error { return nil }, errPeerUnread},
	} {
		if _, err := impatient("me").fetch(bounded(t), conn, c.load); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	bad := peerServer{
		Prefix: testPeers, ID: "bad", Ready: func() (offer, bool) { return offer{}, true },
		Snapshot: func(w io.Writer) error {
			_, err := w.Write([]byte("x"))
			return errors.Join(err, broken)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	serving := persistent(t, address)
	go func() { done <- bad.serve(ctx, serving) }()
	waitFor(t, "the peer does not listen", func() bool { return serving.NumSubscriptions() == 2 && serving.Flush() == nil })
	var got []byte
	if _, err := impatient("me").fetch(bounded(t), conn, take(&got)); !errors.Is(err, errPeerFailed) {
		t.Errorf("%v, want %v", err, errPeerFailed)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPeerBehindAPartition: when the connection of either side breaks, the same
// peer is tried again.
func TestPeerBehindAPartition(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		address, srv := startServer(t)
		p := startPeer(t, address, "a", noise(1, 8<<20))
		conn := persistent(t, address)
		broken := conn
		if side == "sender" {
			broken = p.conn
		}
		calls := 0
		var got []byte
		_, err := impatient("me").fetch(bounded(t), conn, func(_ offer, in io.Reader) error {
			head := make([]byte, 1<<20)
			if _, err := io.ReadFull(in, head); err != nil {
				return err
			}
			if calls++; calls == 1 {
				id, err := broken.GetClientID()
				if err != nil {
					return err
				}
				if err := srv.DisconnectClientByID(id); err != nil {
					return err
				}
				waitFor(t, "the connection does not come back", func() bool {
					now, err := broken.GetClientID()
					return err == nil && now != id
				})
			}
			rest, err := io.ReadAll(in)
			got = slices.Concat(head, rest)
			return err
		})
		// What was under way may all have come through.
		if err != nil || calls == 0 || !bytes.Equal(got, p.state) {
			t.Errorf("%s: %d bytes after %d calls; %v", side, len(got), calls, err)
		}
	}
}

// startServer is startNATS, with the server.
func startServer(t *testing.T) (string, *server.Server) {
	t.Helper()
	address, s, _ := startJetStream(t, anyPort, t.TempDir())
	return address, s
}

// relay stands between a fetcher and its peers, of which it may change every frame
// of one. Offers it passes on when all have made theirs.
func relay(t *testing.T, address, id string, peers *atomic.Int32, change func(n int, m []byte) [][]byte) (prefix string) {
	t.Helper()
	conn := persistent(t, address)
	prefix = "relayed." + t.Name()
	on := func(subject string, handle func(m *nats.Msg)) {
		if _, err := conn.Subscribe(subject, handle); err != nil {
			t.Fatal(err)
		}
	}
	on(offerSubject(prefix), func(request *nats.Msg) {
		inbox := conn.NewInbox()
		var offers [][]byte
		on(inbox, func(m *nats.Msg) {
			if offers = append(offers, m.Data); len(offers) == int(peers.Load()) {
				for _, o := range offers {
					_ = conn.Publish(request.Reply, o)
				}
			}
		})
		_ = conn.PublishRequest(offerSubject(testPeers), inbox, request.Data)
	})
	on(fetchSubject(prefix, id), func(request *nats.Msg) {
		inbox, n := conn.NewInbox(), 0
		on(inbox, func(m *nats.Msg) {
			n++
			for _, data := range change(n, m.Data) {
				_ = conn.PublishRequest(request.Reply, m.Reply, data)
			}
		})
		_ = conn.PublishRequest(fetchSubject(testPeers, id), inbox, request.Data)
	})
	flush(t, conn)
	return prefix
}

// TestPeerDamage: whatever happens to a frame on the way is seen before its data is
// used, and another peer helps out.
func TestPeerDamage(t *testing.T) {
	second := func(change func([]byte) [][]byte) func(int, []byte) [][]byte {
		return func(n int, m []byte) [][]byte {
			if n != 2 {
				return [][]byte{m}
			}
			return change(m)
		}
	}
	flip := func(at int) func(int, []byte) [][]byte {
		return second(func(m []byte) [][]byte {
			bad := slices.Clone(m)
			bad[at] ^= 0x40
			return [][]byte{bad}
		})
	}
	for name, c := range map[string]struct {
		change func(int, []byte) [][]byte
		want   error
	}{
		"kind":      {flip(0), errPeerDamaged},
		"number":    {flip(1), errPeerDamaged},
		"checksum":  {flip(6), errPeerDamaged},
		"data":      {flip(frameHead + 77), errPeerDamaged},
		"cut":       {second(func(m []byte) [][]byte { return [][]byte{m[:len(m)-1]} }), errPeerDamaged},
		"cut short": {second(func(m []byte) [][]byte { return [][]byte{m[:5]} }), errPeerDamaged},
		"lost":      {second(func([]byte) [][]byte { return nil }), errPeerDamaged},
		"repeated":  {second(func(m []byte) [][]byte { return [][]byte{m, m} }), errPeerDamaged},
		"silence": {func(n int, m []byte) [][]byte {
			if n >= 2 {
				return nil
			}
			return [][]byte{m}
		}, errPeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := startNATS(t, anyPort)
			conn := persistent(t, address)
			startPeer(t, address, "a", noise(1, 3*peerFrame))
			f := impatient("me")
			if f.patience = 20 * time.Second; c.want == errPeerGone {
				f.patience = time.Second
			}
			var peers atomic.Int32
			peers.Store(1)
			f.Prefix = relay(t, address, "a", &peers, c.change)
			var got []byte
			if _, err := f.fetch(bounded(t), conn, take(&got)); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			good := noise(2, peerFrame)
			startPeer(t, address, "b", good)
			peers.Store(2)
			relayed, err := conn.Subscribe(fetchSubject(f.Prefix, "b"), func(m *nats.Msg) {
				_ = conn.PublishRequest(fetchSubject(testPeers, "b"), m.Reply, m.Data)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = relayed.Unsubscribe() }()
			if o, err := f.fetch(bounded(t), conn, take(&got)); err != nil || o.ID != "b" || !bytes.Equal(got, good) {
				t.Errorf("with another peer: %d bytes of %+v, %v", len(got), o, err)
			}
		})
	}
}

// TestBusyPeer: two at a time, and the others come back.
func TestBusyPeer(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	p := startPeer(t, address, "a", noise(1, 1<<20), func(p *peer) { p.hold = make(chan struct{}) })
	const fetchers = 5
	var wg sync.WaitGroup
	var done atomic.Int32
	for i := range fetchers {
		conn, f := persistent(t, address), newTestFetcher(fmt.Sprint("me", i))
		f.comeBack = 10 * time.Millisecond
		wg.Go(func() {
			var got []byte
			if _, err := f.fetch(bounded(t), conn, take(&got)); err != nil || !bytes.Equal(got, p.state) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			done.Add(1)
		})
	}
	waitFor(t, "there are no two transfers", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.running == peerTransfers
	})
	// One more, that has no time to come back.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := newTestFetcher("late").fetch(ctx, persistent(t, address), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want %v", err, context.DeadlineExceeded)
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d transfers are done while the peer holds", n)
	}
	close(p.hold)
	wg.Wait()
	if p.most != peerTransfers {
		t.Errorf("%d transfers at a time, want %d", p.most, peerTransfers)
	}
}

// TestReceiverGoesAway: the sender stops, and is free for others.
func TestReceiverGoesAway(t *testing.T) {
	for name, leave := range map[string]func(context.CancelFunc, *nats.Conn){
		"stops": func(cancel context.CancelFunc, _ *nats.Conn) { cancel() },
		"dies":  func(_ context.CancelFunc, conn *nats.Conn) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := startNATS(t, anyPort)
			p := startPeer(t, address, "a", noise(1, 8<<20))
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			conn := persistent(t, address)
			f := newTestFetcher("me")
			if _, err := f.fetch(ctx, conn, func(_ offer, in io.Reader) error {
				if _, err := io.CopyN(io.Discard, in, 1<<20); err != nil {
					return err
				}
				leave(cancel, conn)
				_, err := io.Copy(io.Discard, in)
				return err
			}); err == nil {
				t.Error("all came")
			}
			if err := p.ends(t); !errors.Is(err, errPeerGone) {
				t.Errorf("the sender: %v, want %v", err, errPeerGone)
			}
		})
	}
}

// TestPeerRequestsThatMakeNoSense are passed over.
func TestPeerRequestsThatMakeNoSense(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	conn := persistent(t, address)
	p := startPeer(t, address, "a", noise(1, 10))
	for _, subject := range []string{offerSubject(testPeers), fetchSubject(testPeers, "a")} {
		for _, data := range [][]byte{nil, []byte("x"), []byte(peerMagic), []byte("wppeer\x02other"), encodeAsk("a"), encodeAsk(string(make([]byte, maxPeerID+1)))} {
			if err := conn.PublishRequest(subject, "answers", data); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, conn, subject, encodeAsk("me"))
	}
	var got []byte
	if _, err := newTestFetcher("me").fetch(bounded(t), conn, take(&got)); err != nil || !bytes.Equal(got, p.state) {
		t.Errorf("%x, %v", got, err)
	}
	if err := p.ends(t); err != nil || len(p.ended) != 1 {
		t.Errorf("transfers ended with %v", p.ended)
	}
}

// TestPeerPrefix: two deployments do not mix, whatever their names.
func TestPeerPrefix(t *testing.T) {
	if got, want := peerPrefix("dyn.amo", "pool-1_a"), "warmpath.dyn%2Eamo,pool-1_a.peers"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.SampledFrom([]rune("a,.%2E*>é ")))
		a, b := [2]string{name.Draw(t, "a"), name.Draw(t, "b")}, [2]string{name.Draw(t, "c"), name.Draw(t, "d")}
		if (peerPrefix(a[0], a[1]) == peerPrefix(b[0], b[1])) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
		if tokens := bytes.Count([]byte(peerPrefix(a[0], a[1])), []byte(".")); tokens != 2 {
			t.Fatalf("%d dots in %q", tokens, peerPrefix(a[0], a[1]))
		}
	})
}

func FuzzParsePeer(f *testing.F) {
	f.Add(offer{ID: "a", Entries: 7, Age: time.Second}.encode())
	f.Add(encodeAsk("a"))
	head := make([]byte, frameHead, frameHead+1)
	putFrameHead(head, frameData, 1, 9)
	f.Add(append(head, 'x'))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, ok := parseOffer(b); ok && !bytes.Equal(o.encode(), b) {
			t.Errorf("offer %+v is %x, was %x", o, o.encode(), b)
		}
		if id, ok := parseAsk(b); ok && !bytes.Equal(encodeAsk(id), b) {
			t.Errorf("request of %q was %x", id, b)
		}
		if fr, ok := parseFrame(b); ok {
			again := append(make([]byte, frameHead), fr.data...)
			putFrameHead(again, fr.kind, fr.n, fr.sum)
			if !bytes.Equal(again, b) {
				t.Errorf("frame %x was %x", again, b)
			}
		}
	})
}

func BenchmarkPeers(b *testing.B) {
	address, _ := startNATS(b, anyPort)
	state := noise(1, 20<<20)
	startPeer(b, address, "a", state)
	conn := persistent(b, address)
	b.SetBytes(int64(len(state)))
	for b.Loop() {
		if _, err := newTestFetcher("me").fetch(b.Context(), conn, func(_ offer, in io.Reader) error {
			_, err := io.Copy(io.Discard, in)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}
