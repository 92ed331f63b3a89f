package e2e

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestNATSComesLater starts everything without NATS.
func TestNATSComesLater(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, dir: t.TempDir(), client: newClient(t, false)}
	port := testport.Free(t)
	s.natsURL = fmt.Sprintf("nats://127.0.0.1:%d", port)
	prefill, decode := s.pool(true)
	s.list(join(prefill, decode)...)
	s.startPickerUnready(pickerOptions{})
	s.startGateway(gateway.Config{})
	s.picker.awaitLog(t, "the event plane is not reachable yet; requests are routed without cache knowledge until it is")

	for i := range 4 {
		r := s.complete(tokens(i, 10*blockSize))
		named(t, r.prefill(), prefill)
	}
	if s.metric("warmpath_event_plane_connected") != 0 || len(s.index()) != 0 {
		t.Error("events came without NATS")
	}
	s.bus = startNATS(t, port)
	s.awaitConnected(prefill)
	s.sticks(tokens(50, 20*blockSize), prefill)
	// A new picker waits for NATS only so long; this one has it.
	if r := get(t, s.admin+"/readyz"); r.status != 200 {
		t.Errorf("/readyz says %d %s", r.status, r.body)
	}
}

// awaitConnected waits until the picker and the workers that publish are
// connected to NATS.
func (s *stack) awaitConnected(publishers []*worker) {
	s.t.Helper()
	s.awaitMetric(1, "warmpath_event_plane_connected")
	eventually(s.t, "all are connected to NATS", func() bool { return s.bus.NumClients() == 1+len(publishers) })
}

// TestNATSRestarts takes NATS away under traffic and brings it back.
func TestNATSRestarts(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, dir: t.TempDir(), client: newClient(t, false)}
	port := testport.Free(t)
	s.bus = startNATS(t, port)
	s.natsURL = s.bus.ClientURL()
	prefill, decode := s.pool(true)
	s.list(join(prefill, decode)...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	s.awaitConnected(prefill)
	old := tokens(1, 20*blockSize)
	holder := s.sticks(old, prefill).prefill()
	// Workers that hold all prompts of the traffic tell nothing new while NATS is away:
	// of a worker whose events are lost the picker forgets what it knew.
	const clients = 2
	for _, w := range prefill {
		for i := range clients * trafficPrompts {
			prompt := trafficPrompt(i%clients, i/clients)
			s.ok(post(t, "http://"+w.addr()+"/v1/completions", completion(prompt), nil))
			s.awaitHeld(w.name, prompt)
		}
	}
	load := s.traffic(clients)
	for n := range 2 {
		stopNATS(s.bus)
		s.awaitMetric(0, "warmpath_event_plane_connected")
		load.settle(t)
		// What was known is not forgotten.
		if all, _ := s.holds(holder, old); !all {
			t.Error("the index lost what it knew when NATS went away")
		}
		s.bus = startNATS(t, port)
		s.awaitConnected(prefill)
		s.awaitMetric(float64(n+1), "warmpath_event_plane_disconnects_total")
		load.settle(t)
	}
	load.stop(t)
	s.idle()
	s.sticks(old, prefill)
	s.sticks(tokens(60, 20*blockSize), prefill)
}

// TestMalformedEvents publishes what no worker would, on the workers' own
// subjects. None of it may change anything, and good events go on to count.
func TestMalformedEvents(t *testing.T) {
	for _, generation := range []string{"1.2", "1.4"} {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			conn, good := s.record()
			agg := s.sims(2, "agg", fleet.Aggregated, "--generation", generation)
			s.list(agg...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{})
			prompt := tokens(1, 8*blockSize)
			s.sticks(prompt, agg)
			eventually(t, "the events are recorded", func() bool { return len(good()) > 0 })
			before := s.index()

			sent := 0.0
			publish := func(subject string, data []byte) {
				t.Helper()
				if err := conn.Publish(subject, data); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			random := rand.NewChaCha8([32]byte{2})
			for _, m := range good() {
				for n := range len(m.Data) { // cut off at every byte
					publish(m.Subject, m.Data[:n])
				}
				for n := 1; n < 200; n++ {
					noise := make([]byte, n)
					_, _ = random.Read(noise) // never fails
					publish(m.Subject, noise)
				}
				for _, text := range []string{"{}", "null", "\x80", "\xc0", "\xdf\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", strings.Repeat("\x91", 100_000)} {
					publish(m.Subject, []byte(text))
				}
			}
			if err := conn.Flush(); err != nil {
				t.Fatal(err)
			}
			// An event that comes after them on the same subject. They need not be through
			// then: what names no worker is not in line with its events.
			late := tokens(3, 2*blockSize)
			s.ok(post(t, "http://"+agg[0].addr()+"/v1/completions", completion(late), nil))
			s.awaitHeld("agg-0", late)
			s.awaitMetric(sent, "warmpath_event_messages_odd_total", `kind="bad"`)
			if after := without(s.index(), late); !reflect.DeepEqual(after, without(before, late)) {
				t.Errorf("the index was\n%v and is\n%v", before, after)
			}
			// Not even the event ids that were in them count.
			for _, name := range []string{"gaps", "restarts"} {
				if full := map[string]string{"gaps": "warmpath_worker_event_gaps_total", "restarts": "warmpath_worker_restarts_total"}[name]; s.metric(full) != 0 {
					t.Errorf("%v %s were seen", s.metric(full), name)
				}
			}
			// Other subjects are not even counted as messages.
			for _, subject := range []string{"namespace.other.component.backend.kv-events", "namespace.e2e.kv_metrics", "somewhere.else"} {
				if err := conn.Publish(subject, []byte("noise")); err != nil {
					t.Fatal(err)
				}
			}
			s.sticks(prompt, agg)
			s.sticks(tokens(2, 8*blockSize), agg)
			if !s.picker.running() {
				t.Error("the picker has ended")
			}
			const skipped = "an event could not be read and was skipped; more within a minute are only counted"
			s.picker.awaitLog(t, skipped)
			if n := len(s.picker.logged(skipped)); n > 2 {
				t.Errorf("bad events were logged %d times", n)
			}
		})
	}
}

// without returns what each worker holds but for the blocks of a prompt.
func without(list []indexed, prompt []uint32) map[string][]string {
	held := map[string][]string{}
	for _, w := range list {
		for _, c := range w.Chains {
			if !slices.ContainsFunc(chains(prompt), func(p block.Chain) bool { return fmt.Sprint(uint64(p)) == c }) {
				held[w.Name] = append(held[w.Name], c)
			}
		}
	}
	return held
}

// record keeps the messages on NATS from now on.
func (s *stack) record() (*nats.Conn, func() []*nats.Msg) {
	s.t.Helper()
	conn, err := nats.Connect(s.natsURL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	var mu sync.Mutex
	var list []*nats.Msg
	if _, err := conn.Subscribe("namespace.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, m)
	}); err != nil {
		s.t.Fatal(err)
	}
	if err := conn.Flush(); err != nil { // the server has the subscription once it answers
		s.t.Fatal(err)
	}
	return conn, func() []*nats.Msg {
		mu.Lock()
		defer mu.Unlock()
		return append([]*nats.Msg(nil), list...)
	}
}
