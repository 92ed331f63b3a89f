package eventplane

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

func capturedSubjects() []string {
	captured, _ := streamSubjects()
	return captured
}

// durable is a NATS server that keeps its streams when it starts again, and workers
// that publish there.
type durable struct {
	t     *testing.T
	dir   string
	port  int
	stop  func()
	fleet *simFleet
	conn  *nats.Conn
}

func startDurable(t *testing.T, workers int, jetStream bool) *durable {
	t.Helper()
	d := &durable{t: t, port: freePort(t), fleet: newSimFleet(workers, 42)}
	if jetStream {
		d.dir = t.TempDir()
	}
	d.start()
	return d
}

func (d *durable) start() {
	d.t.Helper()
	s, stop := runServer(d.t, &server.Options{Port: d.port, JetStream: d.dir != "", StoreDir: d.dir})
	d.stop = stop
	d.conn = connect(d.t, s.ClientURL())
}

// publish lets every worker tell of n changes.
func (d *durable) publish(n int) {
	d.t.Helper()
	for range n {
		for _, w := range d.fleet.workers {
			publish(d.t, d.conn, endpointSubject, w.step())
		}
	}
	flush(d.t, d.conn)
}

// replica is a plane on the server.
func (d *durable) replica(change func(*Config)) *rig {
	d.t.Helper()
	r := newRig(d.t, d.conn.ConnectedUrl(), "dynamo")
	cfg := r.plane.cfg
	cfg.Now = time.Now
	cfg.WarmUp = WarmUp{Timeout: patient, Peers: true}
	if d.dir != "" {
		cfg.JetStream = &JetStream{Stream: "kv", MaxAge: time.Hour, MaxBytes: 64 << 20, SnapshotInterval: 50 * time.Millisecond}
	}
	if change != nil {
		change(&cfg)
	}
	plane, err := New(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	plane.reconnectWait = 20 * time.Millisecond
	r.plane = plane
	return r
}

func (r *rig) warm() {
	r.t.Helper()
	waitFor(r.t, "the plane does not warm up", func() bool { return r.plane.Warming() == "" && r.plane.Stats().EverListened })
}

// hasAll says whether the index has what the workers hold.
func (d *durable) hasAll(r *rig) bool {
	for k, w := range d.fleet.workers {
		got := r.index.Chains(k, kvevent.Device)
		slices.Sort(got)
		if !slices.Equal(got, w.chains()) {
			return false
		}
	}
	return true
}

// wantAll waits until the index has what the workers hold, and nothing was lost.
// After a break the plane may suspect that something was, until the next event.
func (d *durable) wantAll(r *rig) {
	d.t.Helper()
	waitFor(d.t, "the index does not get what the workers hold", func() bool {
		if !d.hasAll(r) {
			return false
		}
		for _, w := range r.plane.Workers() {
			if w.State == Resyncing {
				return false // the stream was quicker than the worker's answer
			}
		}
		return true
	})
	stats := r.plane.Stats()
	broke := stats.Disconnects > 0 || stats.Stream.Fallbacks > 0
	for k, w := range r.plane.Workers() {
		if w.Gaps != 0 || w.Restarts != 0 || w.State != Synced && (!broke || w.State != Suspect) {
			d.t.Errorf("worker %v: %+v", k, w)
		}
	}
}

// TestStreamLosesNothing: what is published while the plane is cut off comes when
// it is back, and a server that restarts loses only what nobody could publish.
func TestStreamLosesNothing(t *testing.T) {
	d := startDurable(t, 4, true)
	r := d.replica(nil)
	stop := r.run()
	r.warm()
	d.publish(20)
	d.wantAll(r)
	for range 3 {
		r.plane.mu.Lock()
		conn := r.plane.conn
		r.plane.mu.Unlock()
		if err := conn.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		d.publish(20)
		d.wantAll(r)
	}
	d.conn.Close()
	d.stop()
	waitFor(t, "the loss of the server is not seen", func() bool { return !r.plane.Connected() })
	d.start()
	d.publish(20)
	d.wantAll(r)
	if s := r.plane.Stats().Stream; s.Name != "kv" || s.Fallbacks != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	stop()
}

// TestStreamSlowReader: a plane that cannot follow loses nothing either: the stream
// waits.
func TestStreamSlowReader(t *testing.T) {
	d := startDurable(t, 2, true)
	release := make(chan struct{})
	r := d.replica(nil)
	r.onKnown = func() { <-release }
	r.run()
	waitFor(t, "the stream is not read", func() bool { return r.plane.Stats().Stream.Name == "kv" })
	d.publish(2000)
	close(release)
	d.wantAll(r)
	if s := r.plane.Stats(); s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNewReplicaFromStream: it reads the log alone, or takes over the archived state
// and reads on, also when the beginning of the log is gone.
func TestNewReplicaFromStream(t *testing.T) {
	d := startDurable(t, 4, true)
	first := d.replica(func(c *Config) { c.JetStream.SnapshotInterval = 0 })
	stop := first.run()
	first.warm()
	d.publish(30)
	d.wantAll(first)
	stop()

	log := d.replica(nil)
	stop = log.run()
	log.warm()
	if !d.hasAll(log) {
		t.Error("it is warm, and does not have all that the stream has")
	}
	d.wantAll(log)
	js, err := d.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	archived := func() bool {
		store, err := js.ObjectStore("kv-state")
		if err != nil {
			return false
		}
		_, err = store.GetInfo("state")
		return err == nil
	}
	waitFor(t, "nothing is archived", archived)
	d.publish(10)
	stop()
	if err := js.PurgeStream("kv", &nats.StreamPurgeRequest{Sequence: 100}); err != nil {
		t.Fatal(err)
	}

	third := d.replica(nil)
	third.run()
	third.warm()
	d.wantAll(third)
	if third.logs.count("took over the archived state") != 1 {
		t.Error(third.logs.text.String())
	}
	d.publish(5)
	d.wantAll(third)
}

// TestNoStream: without JetStream on the server the plane says so and hears the
// events as NATS delivers them. TestStreamIsDeleted shows the way back.
func TestNoStream(t *testing.T) {
	d := startDurable(t, 2, false)
	r := d.replica(func(c *Config) { c.JetStream = &JetStream{Stream: "kv", MaxAge: time.Hour, MaxBytes: 64 << 20} })
	r.run()
	r.warm()
	d.publish(10)
	d.wantAll(r)
	if s := r.plane.Stats().Stream; s.Name != "" || s.Fallbacks != 1 || r.logs.count("level=WARN", "from NATS itself", "JetStream is not enabled") != 1 {
		t.Errorf("%+v, %s", s, r.logs.text.String())
	}
}

// TestNewReplicaFromPeer: a replica that starts later knows what the first one does,
// and misses nothing that happens meanwhile.
func TestNewReplicaFromPeer(t *testing.T) {
	d := startDurable(t, 6, false)
	first := d.replica(nil)
	first.run()
	first.warm()
	d.publish(50)
	d.wantAll(first)

	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	second := d.replica(nil)
	publishing.Go(func() {
		for ctx.Err() == nil {
			for _, w := range d.fleet.workers {
				if d.conn.Publish(endpointSubject, w.step()) != nil {
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	second.run()
	second.warm()
	cancel()
	publishing.Wait()
	d.wantAll(second)
	d.wantAll(first)
	if second.logs.count("warmed up from another replica") != 1 {
		t.Error(second.logs.text.String())
	}
	waitFor(t, "the first replica does not tell of the second", func() bool { return first.logs.count("warmed up another replica") == 1 })
}

// TestNewReplicaFromWorkers: without anybody else, the workers tell what they hold.
func TestNewReplicaFromWorkers(t *testing.T) {
	d := startDurable(t, 6, false)
	d.publish(50)
	r := d.replica(func(c *Config) { c.Recover = d.fleet })
	r.run()
	r.warm()
	for k := range d.fleet.workers {
		if w := r.plane.Workers()[k]; w.Resyncs != 1 || w.LastID != 50 {
			t.Errorf("worker %v: %+v", k, w)
		}
	}
	d.wantAll(r)
	d.publish(5)
	d.wantAll(r)
}

// TestWarmUpIsBounded: workers that never answer hold up nobody for ever.
func TestWarmUpIsBounded(t *testing.T) {
	d := startDurable(t, 2, false)
	release := make(chan struct{})
	d.fleet.onAsk = func(fleet.Key, uint64) { <-release }
	r := d.replica(func(c *Config) { c.Recover, c.WarmUp = d.fleet, WarmUp{Timeout: 50 * time.Millisecond} })
	r.run()
	r.warm()
	if n := r.logs.count("level=WARN", "took too long", "2 of 2 are left"); n != 1 {
		t.Errorf("%d warnings: %s", n, r.logs.text.String())
	}
	close(release)
	d.publish(5)
	d.wantAll(r)
}

// TestStateOfWhoIsAsking: what is not sure when the state is written is not taken
// over.
func TestStateOfWhoIsAsking(t *testing.T) {
	f := newSimFleet(2, 9)
	k := fleet.Key{ID: 1}
	from := newSimRig(t, f)
	for range 5 {
		from.send(f.workers[k].step())
	}
	from.settled(f)
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	f.onAsk = func(fleet.Key, uint64) {
		asked <- struct{}{}
		<-release
	}
	f.workers[k].step()
	from.send(f.workers[k].step())
	<-asked
	to := newRig(t, "", "dynamo")
	var b bytes.Buffer
	if err := from.plane.writeState(&b, stateHeader{}); err != nil {
		t.Fatal(err)
	}
	if err := to.plane.restore(&b, nil); err != nil {
		t.Fatal(err)
	}
	to.wantHeld(k, 0)
	if to.state(k) != Partial {
		t.Errorf("%v", to.state(k))
	}
	close(release)
	from.settled(f)
}
