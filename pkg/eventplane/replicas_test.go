package eventplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// TestKilledReplica: the requests of a replica whose connections break off without
// a goodbye count no more once three heartbeats are missing, and that is said once.
func TestKilledReplica(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	realTime := func(p *Plane) { p.cfg.Now = time.Now }
	quiet := &silence{}
	one := startReplica(t, address, realTime)
	other := startReplica(t, address, realTime, func(p *Plane) { quiet.Engines, p.cfg.Loads = p.cfg.Loads.(*load.Engines), quiet })
	other.seesReplicas(1)
	one.at(componentSubject, both, decode)
	one.place("on both", 20, both)
	one.place("on decode", 5, decode)
	realSees := func(what string, k fleet.Key, want load.Foreign) {
		t.Helper()
		waitFor(t, what, func() bool { return other.engines.Get(k, time.Now(), forever).Foreign == want })
	}
	realSees("the first one's requests", both, load.Foreign{Requests: 20, PrefillTokens: 200, Blocks: 40})
	realSees("the first one's requests", decode, load.Foreign{Requests: 5, PrefillTokens: 50, Blocks: 10})
	one.wire.cut()
	realSees("they are gone", both, load.Foreign{})
	realSees("they are gone", decode, load.Foreign{})
	other.seesReplicas(0)
	quiet.mu.Lock()
	if quiet.longest >= 3*beatEvery || quiet.missed < 3*beatEvery {
		t.Errorf("missed after %v, and not after %v; want three heartbeats", quiet.missed, quiet.longest)
	}
	quiet.mu.Unlock()
	waitFor(t, "it is not counted and said", func() bool {
		return other.plane.ReplicaStats().Lost == 1 && other.logs.count("level=WARN", "fell silent", "replicas=1") == 1
	})

	one.wire.mend() // it was cut off only
	realSees("they are back", both, load.Foreign{Requests: 20, PrefillTokens: 200, Blocks: 40})
	other.seesReplicas(1)
}

// TestLateReplica: one that starts later gets all that is open, also what could not
// be told of in words; a request that ends is freed.
func TestLateReplica(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	one := startReplica(t, address)
	one.at(componentSubject, both, prefill, decode)
	open := one.place("open", 30, both)
	pair := one.plane.Announce(&Placement{RequestID: "pair", Prefill: prefill, Decode: decode, PrefillTokens: 90, Blocks: 5})
	done := one.plane.Announce(&Placement{RequestID: "done", Prefill: prefill, Decode: decode, PrefillTokens: 70, Blocks: 5})
	unheard := one.place("unheard", 2, fleet.Key{ID: 77})
	done.PrefillDone()
	open[0].PrefillDone()
	waitFor(t, "they are told of", func() bool {
		s := one.plane.AnnounceStats()
		return s.Added == 34 && s.Prefilled == 2 && s.UnknownPlace == 2
	})
	late := startReplica(t, address)
	late.sees("all that is open", both, 30, 290)
	late.seesLoad("the pair's prompt", prefill, load.Foreign{Requests: 1, PrefillTokens: 90})
	late.seesLoad("both pairs", decode, load.Foreign{Requests: 2, Blocks: 10})
	late.sees("what words cannot tell", fleet.Key{ID: 77}, 2, 20)
	late.seesReplicas(1)
	one.seesReplicas(1)
	if _, oldest := late.plane.Peers(); oldest != 0 {
		t.Errorf("the view is %v old by a clock that stands", oldest)
	}
	waitFor(t, "states do not end", func() bool {
		before := late.plane.ReplicaStats().Received
		late.advance(2 * time.Second)
		n, oldest := late.plane.Peers()
		if late.plane.ReplicaStats().Received != before {
			return false // one that was under way made the view young
		}
		if n != 1 || oldest < 2*time.Second {
			t.Errorf("%d replicas, the view is %v old; want 1 and 2 s", n, oldest)
		}
		return true
	})
	for _, an := range append(open[1:], pair, done) {
		an.Finished()
	}
	late.sees("one is left", both, 1, 0)
	late.sees("none", prefill, 0, 0)
	late.sees("none", decode, 0, 0)
	if s := late.plane.ReplicaStats(); s.Received == 0 || s.Lost+s.BadMessages+s.OtherVersions+s.UnknownFields+s.Dropped > 0 {
		t.Errorf("%+v, want nothing odd", s)
	}
	if one.plane.ReplicaStats().Sent == 0 {
		t.Error("no state was told")
	}
	for _, an := range append(unheard, open[0]) {
		an.Finished()
	}
	late.sees("none", both, 0, 0)
}

// TestStatesGoOn: without anybody new, what was lost is corrected by the next
// state.
func TestStatesGoOn(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	one, other := startReplica(t, address, often), startReplica(t, address, often)
	other.seesReplicas(1)
	unheard := fleet.Key{ID: 77}
	an := one.place("unheard", 3, unheard)
	other.sees("no words were told of them", unheard, 3, 30)
	an[0].PrefillDone()
	other.sees("nor of that", unheard, 3, 20)
	an[1].Finished()
	other.sees("nor of that", unheard, 2, 10)
}

// TestPartition: who is cut off keeps what it knows, since nobody can be heard, and
// gets the state of others when it is back.
func TestPartition(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	one, cutOff := startReplica(t, address, often), startReplica(t, address, often)
	one.at(componentSubject, both)
	cutOff.at(componentSubject, both)
	first := one.place("first", 4, both)
	theirs := cutOff.place("theirs", 3, both)
	cutOff.sees("all", both, 4, 40)
	one.sees("all", both, 3, 30)
	one.seesReplicas(1) // by words alone it would be as one of Dynamo's
	cutOff.seesReplicas(1)
	cutOff.wire.cut()
	waitFor(t, "it does not notice", func() bool { return !cutOff.plane.Connected() })
	for _, later := range []time.Duration{time.Millisecond, 16 * time.Second} { // what came before the cut is taken in before it looks
		cutOff.advance(later)
		waitFor(t, "it does not look", func() bool {
			f := &cutOff.plane.replicas
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.listening.Equal(cutOff.now())
		})
	}
	waitFor(t, "who is cut off is not missed", func() bool {
		one.advance(10 * time.Millisecond) // what is under way may come later than that
		n, _ := one.plane.Peers()
		return n == 0
	})
	one.sees("none of who is cut off", both, 0, 0)
	for _, an := range first[1:] {
		an.Finished()
	}
	second := one.place("second", 5, both)
	if f := foreign(cutOff.rig, cutOff.engines, both); f.Requests != 4 {
		t.Errorf("who is cut off has %+v, want what it knew", f)
	}
	theirs[0].Finished()
	if n, oldest := cutOff.plane.Peers(); n != 1 || oldest < 10*time.Second {
		t.Errorf("%d replicas, the oldest view of %v; want 1 of more than ten seconds", n, oldest)
	}
	cutOff.wire.mend()
	cutOff.sees("all as it is now", both, 6, 60)
	one.sees("all as it is now", both, 2, 20)
	if cutOff.plane.ReplicaStats().Lost != 0 || one.plane.ReplicaStats().Lost != 1 {
		t.Errorf("lost %d and %d, want none by who was cut off", cutOff.plane.ReplicaStats().Lost, one.plane.ReplicaStats().Lost)
	}
	for _, an := range append(second, first[0]) {
		an.Finished()
	}
	cutOff.sees("none", both, 0, 0)
}

// TestStateOfManyMessages: a state that is larger than the server's messages comes
// in parts, and whole.
func TestStateOfManyMessages(t *testing.T) {
	s, _ := runServer(t, &server.Options{Port: anyPort, MaxPayload: 8 << 10})
	one := startReplica(t, s.ClientURL())
	const workers, each = 40, 100
	for k := range uint64(workers) {
		one.place(fmt.Sprint(strings.Repeat("x", 30), k), each, fleet.Key{ID: 1<<60 + k, Rank: 1 << 31})
	}
	waitFor(t, "they are taken in", func() bool { return one.plane.AnnounceStats().UnknownPlace == workers*each })
	late := startReplica(t, s.ClientURL())
	for k := range uint64(workers) {
		late.sees("all", fleet.Key{ID: 1<<60 + k, Rank: 1 << 31}, each, 10*each)
	}
	if got := late.plane.ReplicaStats(); got.Received < workers*each*40/(8<<10) || got.BadMessages+got.Dropped > 0 {
		t.Errorf("%+v, want many parts", got)
	}
	if got := one.plane.AnnounceStats(); got.TooLarge+got.NotConnected > 0 {
		t.Errorf("%+v", got)
	}
}

// TestReplicaFlood: rubbish is counted, and said once a minute; requests go on,
// others are alive and their states come.
func TestReplicaFlood(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	one, other := startReplica(t, address, often), startReplica(t, address, often)
	conn := connect(t, address)
	one.at(componentSubject, both)
	other.seesReplicas(1)
	for i := range 20000 {
		publish(t, conn, fmt.Sprint(other.plane.replicaPrefix(), ".load.", i%3000), []byte{0x81, 0xa1, 'v', byte(i % 3)})
		if i%1000 == 0 {
			one.place(fmt.Sprint("r", i), 1, both)
		}
	}
	publish(t, conn, other.plane.replicaPrefix()+".load.noNumber", nil)
	other.sees("all requests", both, 20, 200)
	waitFor(t, "the rubbish is not counted", func() bool {
		s := other.plane.ReplicaStats()
		return s.BadMessages+s.OtherVersions+s.Dropped > 19000 && s.BadMessages > 0 && s.OtherVersions > 0
	})
	if n := other.logs.count("a message of another replica could not be read"); n != 1 {
		t.Errorf("it is said %d times, want once", n)
	}
	if n, _ := other.plane.Peers(); n != 1 {
		t.Errorf("%d replicas, want 1", n)
	}
}

// TestReplicaGoodbye: a replica that stops is no loss, and draining it counts.
func TestReplicaGoodbye(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	one, other := startReplica(t, address), startReplica(t, address)
	one.at(componentSubject, both)
	unheard := fleet.Key{ID: 77}
	other.seesReplicas(1)
	an := one.place("a", 3, both)
	other.sees("all", both, 3, 30)
	an[0].Finished()
	other.sees("two", both, 2, 20)
	one.place("unheard", 1, unheard)
	late := startReplica(t, address)
	late.sees("what words cannot tell", unheard, 1, 10)
	one.stop()
	for _, r := range []*replica{other, late} {
		r.sees("none", both, 0, 0)
		r.sees("none", unheard, 0, 0)
		r.seesReplicas(1)
		if s := r.plane.ReplicaStats(); s.Lost != 0 {
			t.Errorf("%+v, want no loss", s)
		}
	}
}

// TestSilentListener: a plane that tells nothing hears others all the same, and
// nobody hears of it.
func TestSilentListener(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	conn := connect(t, address)
	sub, err := conn.SubscribeSync("warmpath.>")
	if err != nil {
		t.Fatal(err)
	}
	listener := startReplica(t, address, alone)
	listener.listening(conn)
	one := startReplica(t, address, often)
	one.at(componentSubject, both)
	one.place("a", 3, both)
	listener.sees("all", both, 3, 30)
	listener.seesReplicas(1)
	if n, _ := one.plane.Peers(); n != 0 {
		t.Errorf("%d replicas, want none", n)
	}
	waitFor(t, "no state comes", func() bool { return listener.plane.ReplicaStats().Received > 0 })
	if s := listener.plane.ReplicaStats(); s.Sent != 0 {
		t.Errorf("%+v", s)
	}
	for range 10 {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != replicaSubject("warmpath.dynamo,", one.plane.announce.router) {
			t.Errorf("something was told on %s", m.Subject)
		}
	}
}

// TestReplicasDenied: a user who may neither tell other replicas nor hear them is
// told so; words about requests go on, and nobody is taken for dead.
func TestReplicasDenied(t *testing.T) {
	s, _ := runServer(t, &server.Options{
		Port: anyPort,
		Users: []*server.User{
			{Username: "picker", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"namespace.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"namespace.>", "*.kv-events"}},
			}},
			{Username: "all", Password: "p"},
		},
	})
	start := func(user string) *replica {
		return startReplica(t, s.ClientURL(), func(p *Plane) {
			p.cfg.URL = strings.Replace(p.cfg.URL, "nats://", "nats://"+user+":p@", 1)
		})
	}
	denied, other := start("picker"), start("all")
	conn := connect(t, strings.Replace(s.ClientURL(), "nats://", "nats://all:p@", 1))
	for _, r := range []*replica{denied, other} {
		r.listening(conn)
		r.loadBarrier(conn) // who is there later hears no words
	}
	denied.at(componentSubject, both)
	other.at(componentSubject, both)
	waitFor(t, "it is not said", func() bool {
		return denied.logs.count("does not let us tell", "warmpath.dynamo") == 1 && denied.logs.count("reports an error", "warmpath.dynamo") == 1
	})
	mine, theirs := denied.place("mine", 2, both), other.place("theirs", 3, both)
	denied.sees("words", both, 3, 30)
	other.sees("words", both, 2, 20)
	denied.advance(10 * time.Second)
	other.advance(10 * time.Second)
	for _, an := range []*Announcement{mine[0], theirs[0]} {
		an.Finished()
	}
	denied.sees("words", both, 2, 20)
	other.sees("words", both, 1, 10)
	for _, r := range []*replica{denied, other} {
		if n, _ := r.plane.Peers(); n != 0 || r.plane.ReplicaStats().Lost != 0 {
			t.Errorf("%d replicas, %+v; want none", n, r.plane.ReplicaStats())
		}
	}
}

// TestSiblings: planes of one process count nothing of each other, whether they
// tell of requests or not; others count both.
func TestSiblings(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	family := &Siblings{}
	born := func(p *Plane) {
		p.cfg.Siblings = family
		p.announce = newAnnouncer(&p.cfg)
		often(p)
	}
	mute := func(p *Plane) {
		alone(p)
		p.cfg.Siblings = family
	}
	one, two, quiet := startReplica(t, address, born), startReplica(t, address, born), startReplica(t, address, mute)
	other := startReplica(t, address, often)
	conn := connect(t, address)
	for _, r := range []*replica{one, two, quiet, other} {
		r.listening(conn)
		r.loadBarrier(conn) // who is there later hears no words
	}
	for _, r := range []*replica{one, two, other} {
		r.at(componentSubject, both)
		r.place(r.wire.url(), 3, both)
	}
	unheard := fleet.Key{ID: 77}
	one.place("unheard", 1, unheard)
	other.sees("both", both, 6, 60)
	other.sees("both", unheard, 1, 10)
	other.seesReplicas(2)
	for _, r := range []*replica{one, two, quiet} {
		r.seesReplicas(1)
		r.sees("the other's", both, 3, 30)
		waitFor(t, "the words of the siblings do not come", func() bool { return r.plane.LoadStats().Own >= 6 })
		if f := foreign(r.rig, r.engines, both); f.Requests != 3 {
			t.Errorf("%+v, want the other's three", f)
		}
	}
}
