package eventplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// patient is how long a warm-up may take that must not need its whole time.
const patient = time.Hour

// impatient is a replica that tries its stream again soon.
func (d *durable) impatient(change func(*Config)) *rig {
	d.t.Helper()
	r := d.replica(change)
	r.plane.streamRetry, r.plane.handover = 20*time.Millisecond, 50*time.Millisecond
	r.plane.cfg.Log = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return r
}

// gate holds up the lanes of a plane, without its lock.
type gate struct{ mu sync.RWMutex }

func (r *rig) gate() *gate {
	g := &gate{}
	r.plane.onMessage = func(subject string) {
		r.noteMessage(subject)
		g.mu.RLock()
		defer g.mu.RUnlock()
	}
	return g
}

func (d *durable) js() jetstream.JetStream {
	d.t.Helper()
	return jetStreamOf(d.t, d.conn)
}

func (d *durable) stream(name string) jetstream.Stream {
	d.t.Helper()
	s, err := d.js().Stream(d.t.Context(), name)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// publishing publishes until the function that it returns is called.
func (d *durable) publishing() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			for _, w := range d.fleet.workers {
				if d.conn.Publish(endpointSubject, w.step()) != nil {
					return
				}
			}
			if d.conn.FlushTimeout(patience) != nil {
				return
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	d.t.Cleanup(stop)
	return stop
}

// wantTruth waits until the index has what the workers hold, whatever was lost on
// the way.
func (d *durable) wantTruth(r *rig) {
	d.t.Helper()
	waitFor(d.t, "the index does not get what the workers hold", func() bool { return d.hasAll(r) })
}

// wantNothingWrong waits until all was taken in that the workers told last, and
// checks that they are credited with nothing that they do not hold.
func (d *durable) wantNothingWrong(r *rig) {
	d.t.Helper()
	waitFor(d.t, "the newest events do not come", func() bool {
		for k, w := range d.fleet.workers {
			if r.plane.Workers()[k].LastID != w.last() {
				return false
			}
		}
		return true
	})
	r.plane.settle()
	for k, w := range d.fleet.workers {
		truth := w.chains()
		if i := slices.IndexFunc(r.index.Chains(k, kvevent.Device), func(c block.Chain) bool {
			_, held := slices.BinarySearch(truth, c)
			return !held
		}); i >= 0 {
			d.t.Errorf("worker %v is credited with blocks that it does not hold", k)
		}
	}
}

func (w *simWorker) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

func (r *rig) reads(stream string) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprintf("the stream that is read is not %q", stream), func() bool { return r.plane.Stats().Stream.Name == stream })
}

// archived waits until a state is archived that covers all of the stream, and
// returns it.
func (d *durable) archived() stateHeader {
	d.t.Helper()
	var h stateHeader
	waitFor(d.t, "nothing is archived", func() bool {
		info, err := d.stream("kv").Info(d.t.Context())
		if err != nil {
			return false
		}
		store, err := d.js().ObjectStore(d.t.Context(), "kv-state")
		if err != nil {
			return false
		}
		b, err := store.GetBytes(d.t.Context(), archiveObject)
		if err != nil {
			return false
		}
		if h, _, _, err = readState(bytes.NewReader(b)); err != nil {
			d.t.Fatal(err)
		}
		return h.Created.Equal(info.Created) && h.Sequence == info.State.LastSeq
	})
	return h
}

// TestStreamIsDeleted under the reader, while events come: NATS itself does, then
// the stream that was made anew. With workers that can be asked nothing is missing
// in the end, with others nothing is wrong.
func TestStreamIsDeleted(t *testing.T) {
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprintf("asked=%v", asked), func(t *testing.T) {
			d := startDurable(t, 4, true)
			r := d.impatient(func(c *Config) {
				if asked {
					c.Recover = d.fleet
				}
			})
			stop := r.run()
			r.warm()
			d.publish(20)
			d.wantTruth(r)
			for n := range uint64(3) {
				quiet := d.publishing()
				if err := d.js().DeleteStream(t.Context(), "kv"); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "nothing is done about it", func() bool { return r.plane.Stats().Stream.Fallbacks == n+1 })
				r.reads("kv")
				quiet()
				d.publish(1)
				if asked {
					d.wantTruth(r)
				}
				d.wantNothingWrong(r)
				waitFor(t, "NATS itself is still listened to", func() bool {
					r.plane.mu.Lock()
					defer r.plane.mu.Unlock()
					return len(r.plane.subs) < len(streamAndLive())
				})
			}
			if n := r.logs.count("level=WARN", "from NATS itself", errStreamGone.Error()); n != 3 {
				t.Errorf("%d warnings: %s", n, r.logs.text.String())
			}
			h := d.archived()
			stop()
			second := d.impatient(nil)
			second.run()
			second.warm()
			if second.logs.count("took over the archived state") != 1 {
				t.Errorf("%+v: %s", h, second.logs.text.String())
			}
			if asked {
				d.wantTruth(second)
			}
			d.wantNothingWrong(second)
		})
	}
}

func streamAndLive() []string {
	captured, live := streamSubjects()
	return slices.Concat(captured, live)
}

// TestStreamIsMadeAnewByOthers: what a new stream took in before NATS itself was
// listened to does not go missing, as long as nothing newer was heard.
func TestStreamIsMadeAnewByOthers(t *testing.T) {
	d := startDurable(t, 4, true)
	r := d.impatient(func(c *Config) { c.JetStream.SnapshotInterval = 0 })
	r.run()
	r.warm()
	d.publish(10)
	d.wantAll(r)
	d.restartAt(freePort(t), func() { waitFor(t, "the loss of the server is not seen", func() bool { return !r.plane.Connected() }) })
	cfg := d.stream("kv").CachedInfo().Config
	if err := d.js().DeleteStream(t.Context(), "kv"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.js().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	d.publish(10)
	waitFor(t, "the new stream does not take all", func() bool { return d.stream("kv").CachedInfo().State.LastSeq == 40 })
	d.restartAt(portOf(t, r.plane.cfg.URL), func() {})
	d.wantAll(r)
	if s := r.plane.Stats().Stream; s.Fallbacks != 1 {
		t.Errorf("%+v", s)
	}
	d.publish(10)
	d.wantAll(r)
}

// TestStreamLosesBeforeItIsRead: what the stream's limits or an operator removed
// while the plane was away is counted, shows as missing events of the workers, and
// is credited to nobody.
func TestStreamLosesBeforeItIsRead(t *testing.T) {
	for name, asked := range map[string]bool{"limits": false, "purge": false, "limits, asked": true, "purge, asked": true} {
		t.Run(name, func(t *testing.T) {
			d := startDurable(t, 4, true)
			r := d.impatient(func(c *Config) {
				c.JetStream.SnapshotInterval = 0
				if asked {
					c.Recover = d.fleet
				}
				if name[0] == 'l' {
					c.JetStream.MaxBytes = 32 << 10
				}
			})
			r.run()
			r.warm()
			d.publish(20)
			d.wantAll(r)

			d.restartAt(freePort(t), func() { waitFor(t, "the loss of the server is not seen", func() bool { return !r.plane.Connected() }) })
			d.publish(200)
			if name[0] == 'p' {
				if err := d.stream("kv").Purge(t.Context(), jetstream.WithPurgeKeep(40)); err != nil {
					t.Fatal(err)
				}
			}
			d.restartAt(portOf(t, r.plane.cfg.URL), func() {})
			d.publish(1)
			d.wantNothingWrong(r)
			if s := r.plane.Stats().Stream; s.Lost == 0 || s.Fallbacks != 0 || r.logs.count("level=WARN", "limits are too small") == 0 {
				t.Errorf("%+v", s)
			}
			for k, w := range r.plane.Workers() {
				if !asked && (w.Gaps == 0 || w.Missed == 0) {
					t.Errorf("worker %v: %+v", k, w)
				}
			}
			if asked {
				d.wantTruth(r)
			}
		})
	}
}

// restartAt moves the server to another port, with all that it keeps.
func (d *durable) restartAt(port int, between func()) {
	d.t.Helper()
	d.conn.Close()
	d.stop()
	between()
	d.port = port
	d.start()
}

// TestStreamIsPurged under the reader again and again, while events come.
func TestStreamIsPurged(t *testing.T) {
	d := startDurable(t, 4, true)
	r := d.impatient(func(c *Config) { c.Recover = d.fleet })
	r.run()
	r.warm()
	quiet := d.publishing()
	kv := d.stream("kv")
	for range 20 {
		before := r.plane.Stats().Messages
		waitFor(t, "nothing comes", func() bool { return r.plane.Stats().Messages > before+20 })
		if err := kv.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	quiet()
	d.publish(1)
	d.wantTruth(r)
	d.wantNothingWrong(r)
	if s := r.plane.Stats().Stream; s.Fallbacks != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStreamWithoutPermission: whatever of JetStream a user may not use, the events
// come, and the log says what is not allowed, once.
func TestStreamWithoutPermission(t *testing.T) {
	srv := startSecure(t, freePort(t), fmt.Sprintf(`jetstream: {store_dir: %q}
authorization: { users: [
  {user: all, password: x},
  {user: none, password: x, permissions: {publish: {deny: ["$JS.>"]}}},
  {user: reader, password: x, permissions: {publish: {deny: ["$JS.API.CONSUMER.>"]}}},
  {user: archiver, password: x, permissions: {publish: {deny: ["$JS.API.STREAM.*.OBJ_kv-state"]}}},
]}`, t.TempDir()))
	d := &durable{t: t, dir: "its own", fleet: newSimFleet(4, 42), conn: persistent(t, srv.address(), nats.UserInfo("all", "x"))}
	for _, c := range []struct {
		user, stream string
		fallbacks    uint64
		says         []string
	}{
		{"none", "", 1, []string{"from NATS itself", errStreamDenied.Error()}},
		{"reader", "", 1, []string{"from NATS itself", errStreamDenied.Error()}},
		{"archiver", "kv", 0, []string{"cannot be archived", errStreamDenied.Error()}},
		{"all", "kv", 0, nil},
	} {
		t.Run(c.user, func(t *testing.T) {
			r := d.impatient(func(cfg *Config) {
				cfg.URL = fmt.Sprintf("nats://%s:x@127.0.0.1:%d", c.user, srv.port)
				cfg.Recover = d.fleet
			})
			r.run()
			r.warm()
			d.publish(10)
			d.wantTruth(r)
			if c.fallbacks > 0 { // more tries change nothing
				for range 3 {
					r.tried()
				}
			}
			if s := r.plane.Stats().Stream; s.Name != c.stream || s.Fallbacks != c.fallbacks {
				t.Errorf("%+v", s)
			}
			if c.says != nil && r.logs.count(append(c.says, "level=WARN")...) != 1 {
				t.Error(r.logs.text.String())
			}
		})
	}
}

// tried waits until the stream was tried once more in vain.
func (r *rig) tried() {
	r.t.Helper()
	before := r.logs.count("level=DEBUG", "from NATS itself")
	waitFor(r.t, "the stream is not tried again", func() bool { return r.logs.count("level=DEBUG", "from NATS itself") > before })
}

// TestArchivedStateOfOthers is not used: the whole stream is read instead.
func TestArchivedStateOfOthers(t *testing.T) {
	d := startDurable(t, 4, true)
	first := d.impatient(nil)
	stop := first.run()
	first.warm()
	d.publish(20)
	d.wantAll(first)
	own := d.archived()
	stop()
	a := openTestArchive(t, persistent(t, d.conn.ConnectedUrl()), archiveConfig{
		Bucket: archiveBucket("kv"), Storage: jetstream.FileStorage, TTL: archiveTTL, MaxBytes: 64 << 20,
	})
	// A state that would do harm: the workers hold nothing, and all was read.
	harm := func(h stateHeader) []byte {
		var b bytes.Buffer
		var cursors []cursorState
		for k, w := range d.fleet.workers {
			cursors = append(cursors, cursorState{Key: k, LastID: w.last() + 100})
		}
		if err := writeState(&b, h, cursors, newRig(t, "", "dynamo").index.Snapshot); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		state []byte
		says  string
	}{
		"stream":    {harm(stateHeader{Namespace: "dynamo", Stream: "other", Created: own.Created, Sequence: own.Sequence}), "another stream"},
		"made anew": {harm(stateHeader{Namespace: "dynamo", Stream: "kv", Created: own.Created.Add(-time.Hour), Sequence: own.Sequence}), "another stream"},
		"namespace": {harm(stateHeader{Namespace: "else", Stream: "kv", Created: own.Created, Sequence: own.Sequence}), "another namespace"},
		"damaged":   {damaged(harm(own)), "not an undamaged state"},
		"cut short": {harm(own)[:40], "not an undamaged state"},
		"nonsense":  {noise(1, 1000), "not an undamaged state"},
		"empty":     {nil, "not an undamaged state"},
	} {
		t.Run(name, func(t *testing.T) {
			if saved, err := a.save(t.Context(), func(w io.Writer) error {
				_, err := w.Write(c.state)
				return err
			}); err != nil || !saved {
				t.Fatal(saved, err)
			}
			r := d.impatient(func(c *Config) { c.JetStream.SnapshotInterval = time.Hour })
			r.run()
			r.warm()
			d.wantAll(r)
			if r.logs.count("level=WARN", "the whole stream is read", c.says) != 1 {
				t.Error(r.logs.text.String())
			}
		})
	}
}

func damaged(b []byte) []byte {
	b[len(b)/3] ^= 4
	return b
}

// TestReplicasArchiveInTurns: two replicas archive what they know; when one ends the
// other goes on, and a third one starts from what is there.
func TestReplicasArchiveInTurns(t *testing.T) {
	d := startDurable(t, 4, true)
	first, second := d.impatient(nil), d.impatient(nil)
	stop := first.run()
	second.run()
	first.warm()
	second.warm()
	for round := range 3 {
		quiet := d.publishing()
		for range 3 {
			d.rearchived()
		}
		quiet()
		d.wantAll(second)
		d.archived()
		if round == 1 {
			stop()
		}
	}
	third := d.impatient(nil)
	third.run()
	third.warm()
	d.wantAll(third)
	for _, r := range []*rig{first, second, third} {
		if n := r.logs.count("level=WARN"); n != 0 {
			t.Error(r.logs.text.String())
		}
	}
}

// rearchived waits until another state is archived than before.
func (d *durable) rearchived() {
	d.t.Helper()
	last := func() string {
		store, err := d.js().ObjectStore(d.t.Context(), "kv-state")
		if err != nil {
			return ""
		}
		info, err := store.GetInfo(d.t.Context(), archiveObject)
		if err != nil {
			return ""
		}
		return info.NUID
	}
	before := last()
	waitFor(d.t, "nothing new is archived", func() bool { now := last(); return now != "" && now != before })
}

// TestNewReplicaUnderLoad starts from the archive and the log while events come as
// fast as they can, and ends up with what the first one knows.
func TestNewReplicaUnderLoad(t *testing.T) {
	d := startDurable(t, 6, true)
	first := d.impatient(nil)
	first.run()
	first.warm()
	quiet := d.publishing()
	d.rearchived()
	second := d.impatient(nil)
	second.run()
	second.warm()
	quiet()
	d.wantAll(first)
	d.wantAll(second)
	if second.logs.count("took over the archived state") != 1 {
		t.Error(second.logs.text.String())
	}
}

// TestWarmWithoutEvents: a stream that is quiet keeps nobody waiting: not when the
// archived state covers all of it, nor when it is empty, nor when its newest messages
// are not ours.
func TestWarmWithoutEvents(t *testing.T) {
	start := func(t *testing.T) (*durable, func()) {
		d := startDurable(t, 4, true)
		first := d.impatient(nil)
		stop := first.run()
		first.warm()
		d.publish(10)
		d.wantAll(first)
		return d, stop
	}
	t.Run("archived", func(t *testing.T) {
		d, stop := start(t)
		d.archived()
		stop()
		r := d.impatient(nil)
		r.run()
		r.warm()
		d.wantAll(r)
		d.rearchived()
		d.archived() // it says again how far it is
		if s := r.plane.Stats().Stream; s.Lag != 0 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("empty", func(t *testing.T) {
		d, stop := start(t)
		stop()
		if err := d.stream("kv").Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := d.impatient(func(c *Config) { c.JetStream.SnapshotInterval = 0 })
		r.run()
		r.warm()
		d.publish(1)
		d.wantNothingWrong(r)
	})
	t.Run("shared", func(t *testing.T) {
		d := startDurable(t, 4, true)
		if _, err := d.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "all", Subjects: []string{"namespace.>"}, NoAck: true}); err != nil {
			t.Fatal(err)
		}
		d.publish(10)
		for range 10 {
			publish(t, d.conn, "namespace.dynamo.something.else", nil)
		}
		flush(t, d.conn)
		r := d.impatient(nil)
		r.run()
		r.warm()
		d.wantAll(r)
		r.reads("all")
		waitFor(t, "it does not say that all is read", func() bool { return r.plane.Stats().Stream.Lag == 0 })
	})
}

// TestStreamIsDeletedDuringWarmUp: workers that do not answer keep nobody from
// listening to NATS itself.
func TestStreamIsDeletedDuringWarmUp(t *testing.T) {
	d := startDurable(t, 2, true)
	release := make(chan struct{})
	d.fleet.onAsk = func(fleet.Key, uint64) { <-release }
	r := d.impatient(func(c *Config) { c.Recover = d.fleet })
	r.run()
	r.reads("kv")
	waitFor(t, "nobody is asked", func() bool { return r.plane.Warming() == "asking workers what they hold: 2 of 2 are left" })
	if err := d.js().DeleteStream(t.Context(), "kv"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "nothing is done about it", func() bool { return r.plane.Stats().Stream.Fallbacks == 1 })
	close(release)
	r.warm()
	d.publish(5)
	d.wantTruth(r)
}

// TestStreamStops at any time, also while the lanes stand still, all queues are full
// and a state is to be archived.
func TestStreamStops(t *testing.T) {
	d := startDurable(t, 2, true)
	quiet := d.publishing()
	for i := range 10 {
		r := d.impatient(func(c *Config) { c.JetStream.SnapshotInterval = time.Millisecond })
		g := r.gate()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.plane.Run(ctx) }()
		r.warm()
		if i%2 == 0 {
			g.mu.Lock()
			waitFor(t, "the queue does not fill", func() bool { return len(r.plane.stream) == cap(r.plane.stream) })
			cancel()
			g.mu.Unlock()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	quiet()
}

// TestStreamWithLeastRights: what docs/operate.md says is enough, is: to read the
// stream that an administrator made, to use the saved index and to replace it, and to
// warm up from another replica and another one from here.
func TestStreamWithLeastRights(t *testing.T) {
	srv := startSecure(t, freePort(t), fmt.Sprintf(`jetstream: {store_dir: %q}
authorization: { users: [
  {user: all, password: x},
  {user: least, password: x, permissions: {
    publish: {allow: [
      "$JS.API.STREAM.INFO.kv", "$JS.API.CONSUMER.CREATE.kv.>", "$JS.API.STREAM.NAMES", "$JS.FC.>", "$O.kv-state.>",
      "$JS.API.STREAM.INFO.OBJ_kv-state", "$JS.API.STREAM.PURGE.OBJ_kv-state", "$JS.API.STREAM.MSG.GET.OBJ_kv-state",
      "$JS.API.DIRECT.GET.OBJ_kv-state.>", "$JS.API.CONSUMER.CREATE.OBJ_kv-state.>",
      "$JS.API.CONSUMER.MSG.NEXT.OBJ_kv-state.>", "$JS.API.CONSUMER.DELETE.OBJ_kv-state.>",
    ]},
    subscribe: {allow: ["namespace.>", "*.kv-events", "_INBOX.>"]},
  }},
  {user: peer, password: x, permissions: {
    publish: {allow: ["warmpath.>", "_INBOX.>"]},
    subscribe: {allow: ["namespace.>", "*.kv-events", "warmpath.>", "_INBOX.>"]},
  }},
]}`, t.TempDir()))
	d := &durable{t: t, dir: "its own", fleet: newSimFleet(4, 42), conn: persistent(t, srv.address(), nats.UserInfo("all", "x"))}
	as := func(user string, more func(*Config)) *rig {
		return d.impatient(func(c *Config) {
			c.URL = fmt.Sprintf("nats://%s:x@127.0.0.1:%d", user, srv.port)
			more(c)
		})
	}
	admin := as("all", func(*Config) {})
	stop := admin.run()
	admin.warm()
	d.publish(20)
	d.wantAll(admin)
	d.archived()
	stop()

	r := as("least", func(c *Config) { c.WarmUp.Peers = false })
	r.run()
	r.warm()
	d.wantAll(r)
	d.publish(5)
	d.wantAll(r)
	d.rearchived()
	if r.logs.count("took over the archived state") != 1 || r.logs.count("level=WARN") != 0 {
		t.Error(r.logs.text.String())
	}

	peers := [2]*rig{}
	for i := range peers {
		peers[i] = as("peer", func(c *Config) {
			c.JetStream = nil
			if i == 0 {
				c.Recover = d.fleet
			}
		})
		peers[i].run()
		peers[i].warm()
		d.wantTruth(peers[i])
	}
	if peers[1].logs.count("warmed up from another replica") != 1 || peers[1].logs.count("level=WARN")+peers[0].logs.count("level=WARN") != 0 {
		t.Error(peers[0].logs.text.String(), peers[1].logs.text.String())
	}
}

// TestStreamBeforeNATSItself: what the stream brought before it stopped to serve is
// taken in before what NATS itself brings then, or that would look like a gap.
func TestStreamBeforeNATSItself(t *testing.T) {
	r := newRig(t, "", "dynamo")
	d := &durable{t: t, fleet: newSimFleet(4, 42)}
	const each = 50
	stream, core := make(chan item, 4*each), make(chan *nats.Msg, 4*each)
	for _, w := range d.fleet.workers {
		for i := range uint64(each) {
			stream <- item{msg: &nats.Msg{Subject: endpointSubject, Data: w.step()}, seq: i + 1}
		}
		for range each {
			core <- &nats.Msg{Subject: endpointSubject, Data: w.step()}
		}
	}
	close(stream)
	close(core)
	r.plane.dispatch(core, stream)
	d.wantAll(r)
}
