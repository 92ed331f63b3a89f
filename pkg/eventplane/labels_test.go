package eventplane

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestComponentsAreFew: only so many names become labels, the first ones.
func TestComponentsAreFew(t *testing.T) {
	r := newRig(t, "", "dynamo")
	k := fleet.Key{ID: 1}
	want := map[string]uint64{}
	for i := range uint64(2 * maxComponents) {
		name := fmt.Sprintf("c%d", i%(maxComponents+10))
		r.give(dynamo.EventSubject(dynamo.Gen15, "dynamo", name, "e"), encode(t, dynamo.Gen15, stored(k, i+1, i)))
		if i%(maxComponents+10) < maxComponents {
			want[name]++
		} else {
			want[otherComponents]++
		}
	}
	if got := r.plane.Stats().ByComponent; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestComponentsThatSpeak: who never says anything that can be read has no label.
func TestComponentsThatSpeak(t *testing.T) {
	r := newRig(t, "", "dynamo")
	for name, data := range badMessages(t) {
		r.give(dynamo.EventSubject(dynamo.Gen15, "dynamo", name, "e"), data)
	}
	if s := r.plane.Stats(); len(s.ByComponent) != 0 || s.Messages == 0 || s.BadMessages != s.Messages {
		t.Errorf("%+v, want no component", s)
	}
}

// TestComponentsAreText: a name can be any bytes, a label cannot.
func TestComponentsAreText(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	k := fleet.Key{ID: 1}
	id := uint64(0)
	for _, name := range []string{"%FF", "a%FE%FFb", "%C3%BC", "%00", "%ED%A0%80", "%22%0A"} {
		id++
		publish(t, conn, "namespace.dynamo.component."+name+".endpoint.x.kv-events", encode(t, dynamo.Gen15, stored(k, id, id)))
	}
	id++
	publish(t, conn, "namespace.dynamo.component.\xff.kv-events", encode(t, dynamo.Gen15, stored(k, id, id)))
	r.barrier(conn)
	r.wantWorker(k, WorkerStats{LastID: id, Events: id})
	desc := prometheus.NewDesc("messages", "", []string{"component"}, nil)
	total := uint64(0)
	for name, n := range r.plane.Stats().ByComponent {
		if _, err := prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(n), name); err != nil || !utf8.ValidString(name) {
			t.Errorf("%q is no label: %v", name, err)
		}
		total += n
	}
	if total != id {
		t.Errorf("%d messages counted, want %d", total, id)
	}
}

// TestClearedReachesSilentRanks: ranks that never spoke lose what was guessed
// about them too.
func TestClearedReachesSilentRanks(t *testing.T) {
	r := newRig(t, "", "dynamo")
	speaks, mute, other := fleet.Key{ID: 9}, fleet.Key{ID: 9, Rank: 1}, fleet.Key{ID: 10}
	for _, k := range []fleet.Key{mute, other} {
		if _, err := r.index.Register(k); err != nil {
			t.Fatal(err)
		}
	}
	r.takeIn(componentSubject, cleared(speaks, 1))
	r.wantLost(map[fleet.Key]int{speaks: 1, mute: 1})
}

// TestNoCredentials: none in the log or in errors.
func TestNoCredentials(t *testing.T) {
	port := freePort(t)
	for _, address := range []string{
		fmt.Sprintf("nats://user:s3cret@127.0.0.1:%d", port),
		fmt.Sprintf("nats://s3cret@127.0.0.1:%d, user:s3cret@127.0.0.1:%d", port, port),
	} {
		r := newRig(t, address, "dynamo")
		stop := r.run()
		waitFor(t, "no word about the missing server", func() bool { return r.logs.count("not reachable yet", fmt.Sprintf("127.0.0.1:%d", port)) == 1 })
		stop()
		if r.logs.count("s3cret") != 0 {
			t.Errorf("the log has the password: %s", r.logs.text.String())
		}
	}
	r := newRig(t, fmt.Sprintf("nats://s3cret@127.0.0.1:%d", port), "dynamo")
	startNATS(t, port)
	r.run()
	waitFor(t, "no word about the connection", func() bool {
		return r.logs.count("connected to the event plane", fmt.Sprintf("127.0.0.1:%d", port)) > 0
	})
	if r.logs.count("s3cret") != 0 {
		t.Errorf("the log has the token: %s", r.logs.text.String())
	}
	for _, address := range []string{"nats://user:s3cret@[", "nats://user:s3cret@host:port", "s3cret@[::1"} {
		r := newRig(t, address, "dynamo")
		if err := r.plane.Run(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error %v, want one without the password", err)
		}
	}
}

// TestPings: a partition shows within half a minute.
func TestPings(t *testing.T) {
	r, _ := startRig(t, "dynamo")
	r.plane.mu.Lock()
	opts := r.plane.conn.Opts
	r.plane.mu.Unlock()
	if d := opts.PingInterval * time.Duration(opts.MaxPingsOut+1); d > 30*time.Second || opts.PingInterval < time.Second {
		t.Errorf("a partition shows after %v", d)
	}
}
