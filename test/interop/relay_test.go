package interop

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// gapRig is a picker that hears workers over a relay.
type gapRig struct {
	stack  *Stack
	said   *Recorder // what workers published
	heard  *Recorder // what came through the relay
	relay  *Relay
	picker *Picker
}

func startGap(t *testing.T, cfg StackConfig) *gapRig {
	t.Helper()
	cfg.NATSURL, cfg.BlockSize = StartNATS(t), blockSize
	r := &gapRig{relay: StartRelay(t, cfg.NATSURL)}
	r.said, r.heard = Record(t, cfg.NATSURL, "kv-events"), Record(t, r.relay.URL, "kv-events")
	r.stack = StartStack(t, cfg)
	r.picker = StartPicker(t, r.stack, PickerConfig{Binary: pickerBinary(t), NATSURL: r.relay.URL})
	return r
}

// loseEventsOf makes the relay lose the KV events of one rank. All events of a
// message are of one rank.
func (r *gapRig) loseEventsOf(t *testing.T, key fleet.Key) {
	r.relay.Lose(func(m Event) bool { return slices.Contains(kvRanks(t, m), key) })
}

// kvRanks returns the ranks that the KV events of a message are about, none of a
// message of another topic.
func kvRanks(t *testing.T, m Event) []fleet.Key {
	subject, err := dynamo.ParseSubject(m.Subject)
	if err != nil || subject.Topic != "kv-events" {
		return nil
	}
	var keys []fleet.Key
	for key := range ReadLedger([]Event{m}).Held {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		t.Errorf("a message on %s is about no rank", m.Subject)
	}
	return keys
}

// waitHeard waits until all that workers said, save what was lost, has come through
// the relay.
func (r *gapRig) waitHeard(t *testing.T, said int) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		all, through, lost := len(r.said.Events()), len(r.heard.Events()), len(r.relay.Lost())
		if all < said || through+lost != all {
			return fmt.Errorf("workers said %d messages, want at least %d; %d came through, %d were lost", all, said, through, lost)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestForcedGap(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		r := startGap(t, StackConfig{Version: version, Ranks: 2, Roles: map[fleet.Role]int{fleet.Aggregated: 2}})
		ids := r.stack.Workers(fleet.Aggregated)
		victim, other := fleet.Key{ID: ids[0], Rank: 1}, fleet.Key{ID: ids[0]}
		want, seed := expect{}, uint64(0)
		fill := func(key fleet.Key) {
			seed++
			send(t, r.stack, Pin{Worker: key}, BothNames, prompt(seed))
			want.add(key, prompt(seed))
		}
		for _, key := range []fleet.Key{victim, other, {ID: ids[1]}} {
			fill(key)
		}
		want.waitExact(t, r.picker)
		r.picker.checkNothingOdd(t)
		before := len(r.said.Events())

		// The picker misses what the relay loses, and notices with the next event.
		r.loseEventsOf(t, victim)
		missing := expect{}
		missing.add(victim, prompt(seed+1))
		fill(victim)
		fill(other)
		r.waitHeard(t, before+2)
		r.relay.Lose(nil)
		lost := r.relay.Lost()
		if len(lost) == 0 {
			t.Fatal("the relay lost nothing")
		}
		fill(victim)
		for chain := range missing[victim] {
			delete(want[victim], chain)
		}
		want.waitExact(t, r.picker)
		events := 0
		for _, n := range ReadLedger(lost).Events {
			events += n
		}
		r.picker.waitSum(t, 1, "warmpath_worker_event_gaps_total", labelsOf(victim)...)
		r.picker.waitSum(t, 1, "warmpath_worker_event_gaps_total")
		r.picker.waitSum(t, float64(events), "warmpath_worker_events_missed_total", labelsOf(victim)...)
		r.picker.checkNothingOdd(t, "warmpath_worker_event_gaps_total", "warmpath_worker_events_missed_total")

		// All else came through as it was.
		r.waitHeard(t, before+3)
		said := slices.DeleteFunc(r.said.Events(), func(m Event) bool {
			return slices.ContainsFunc(lost, func(l Event) bool { return cmp.Equal(l, m) })
		})
		if diff := cmp.Diff(said, r.heard.Events()); diff != "" {
			t.Errorf("through the relay (-said +heard):\n%s", diff)
		}
	})
}

// TestRecoveryEndpoints checks what the picker is told about where to ask: an
// address and a path for each rank that publishes events.
func TestRecoveryEndpoints(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: StartNATS(t), BlockSize: blockSize,
			Roles: map[fleet.Role]int{fleet.Prefill: 1, fleet.Decode: 1},
		})
		client := startRecovery(t, recovery.Config{})
		worker := s.Workers(fleet.Prefill)[0]
		endpoints, err := s.RecoveryEndpoints(worker)
		if err != nil || len(endpoints) != 1 {
			t.Fatalf("the prefill worker answers at %q, %v; want one endpoint", endpoints, err)
		}
		target, err := recovery.ParseTransport(fmt.Appendf(nil, `{"tcp": %q}`, endpoints[0]))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Query(t.Context(), target, recovery.Request{WorkerID: worker})
		if err != nil || answer.Kind != recovery.TreeDump {
			t.Errorf("asked at %s: %+v, %v", endpoints[0], answer, err)
		}
		none, err := s.RecoveryEndpoints(s.Workers(fleet.Decode)[0])
		if err != nil || len(none) > 0 {
			t.Errorf("the decode worker answers at %q, %v; want nowhere", none, err)
		}
	})
}
