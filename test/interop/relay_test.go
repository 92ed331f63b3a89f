package interop

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
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

	want expect // what workers hold
	sent int    // prompts
}

// startGap starts two aggregated workers of two ranks. The picker can ask them what
// they hold, or not.
func startGap(t *testing.T, version string, ask bool) *gapRig {
	t.Helper()
	cfg := StackConfig{Version: version, Ranks: 2, Roles: map[fleet.Role]int{fleet.Aggregated: 2}}
	cfg.NATSURL, cfg.BlockSize = StartNATS(t), blockSize
	r := &gapRig{relay: StartRelay(t, cfg.NATSURL)}
	r.said, r.heard = Record(t, cfg.NATSURL, "kv-events"), Record(t, r.relay.URL, "kv-events")
	r.stack = StartStack(t, cfg)
	r.picker = StartPicker(t, r.stack, PickerConfig{Binary: pickerBinary(t), NATSURL: r.relay.URL, Ask: ask})
	r.want = expect{}
	return r
}

// fill sends a prompt to a rank, which then holds it.
func (r *gapRig) fill(t *testing.T, key fleet.Key) {
	t.Helper()
	r.sent++
	send(t, r.stack, Pin{Worker: key}, BothNames, prompt(uint64(r.sent)))
	r.want.add(key, prompt(uint64(r.sent)))
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

// waitHeard waits until workers have said all that they hold, and the relay has passed
// that on, save what it lost.
func (r *gapRig) waitHeard(t *testing.T) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		said, through, lost := r.said.Events(), len(r.heard.Events()), len(r.relay.Lost())
		if diff := cmp.Diff(map[fleet.Key]map[block.Chain]bool(r.want), ReadLedger(said).Held); diff != "" {
			return fmt.Errorf("workers said (-want +got):\n%s", diff)
		}
		if through+lost != len(said) {
			return fmt.Errorf("workers said %d messages; %d came through, %d were lost", len(said), through, lost)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestForcedGap(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		r := startGap(t, version, false)
		ids := r.stack.Workers(fleet.Aggregated)
		victim, other := fleet.Key{ID: ids[0], Rank: 1}, fleet.Key{ID: ids[0]}
		for _, key := range []fleet.Key{victim, other, {ID: ids[1]}} {
			r.fill(t, key)
		}
		r.want.waitExact(t, r.picker)
		r.picker.checkNothingOdd(t)

		// The picker misses what the relay loses, and notices with the next event.
		r.loseEventsOf(t, victim)
		r.fill(t, victim)
		r.fill(t, other)
		r.waitHeard(t)
		r.relay.Lose(nil)
		lost := r.relay.Lost()
		if len(lost) == 0 {
			t.Fatal("the relay lost nothing")
		}
		r.fill(t, victim)
		r.waitDegraded(t, victim, version, prompt(uint64(r.sent)))
		events := 0
		for _, n := range ReadLedger(lost).Events {
			events += n
		}
		r.picker.waitSum(t, 1, "warmpath_worker_event_gaps_total", labelsOf(victim)...)
		r.picker.waitSum(t, 1, "warmpath_worker_event_gaps_total")
		r.picker.waitSum(t, float64(events), "warmpath_worker_events_missed_total", labelsOf(victim)...)
		r.picker.checkNothingOdd(t, "warmpath_worker_event_gaps_total", "warmpath_worker_events_missed_total")

		// All else came through as it was.
		r.waitHeard(t)
		said := slices.DeleteFunc(r.said.Events(), func(m Event) bool {
			return slices.ContainsFunc(lost, func(l Event) bool { return cmp.Equal(l, m) })
		})
		if diff := cmp.Diff(said, r.heard.Events()); diff != "" {
			t.Errorf("through the relay (-said +heard):\n%s", diff)
		}
	})
}

// waitDegraded waits until the picker knows that a rank holds a prompt, and all that
// the others hold. What else it says of the rank must be true. In 1.2 and 1.3 what
// was lost may have cleared the other ranks of the worker, so that they are in the
// same doubt.
func (r *gapRig) waitDegraded(t *testing.T, victim fleet.Key, version string, prompt []uint32) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		index, err := r.picker.Index(ctx)
		if err != nil {
			return err
		}
		for _, chain := range Chains(prompt, blockSize) {
			if !index[victim][chain] {
				return fmt.Errorf("worker %s is not known to hold the last prompt sent to it", victim)
			}
		}
		others := maps.Clone(r.want)
		for key := range r.want {
			if key != victim && (key.ID != victim.ID || version != "1.2.1" && version != "1.3.1") {
				continue
			}
			for chain := range index[key] {
				if !r.want[key][chain] {
					t.Fatalf("worker %s holds block %d by the index, which it was never sent", key, chain)
				}
			}
			delete(others, key)
			delete(index, key)
		}
		if diff := cmp.Diff(map[fleet.Key]map[block.Chain]bool(others), index); diff != "" {
			return fmt.Errorf("index of the other ranks (-held +index):\n%s", diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestGapIsClosed: a picker that may ask workers knows after a gap what they hold.
func TestGapIsClosed(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		r := startGap(t, version, true)
		ids := r.stack.Workers(fleet.Aggregated)
		victim, other := fleet.Key{ID: ids[0], Rank: 1}, fleet.Key{ID: ids[1]}
		r.fill(t, victim)
		r.fill(t, other)
		r.want.waitExact(t, r.picker)

		r.loseEventsOf(t, victim)
		r.fill(t, victim)
		r.fill(t, other)
		r.fill(t, victim)
		r.waitHeard(t)
		r.relay.Lose(nil)
		if len(r.relay.Lost()) == 0 {
			t.Fatal("the relay lost nothing")
		}
		r.fill(t, victim)
		r.want.waitExact(t, r.picker)
		r.picker.waitSum(t, 1, "warmpath_worker_event_gaps_total")
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
