package interop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// indexOf applies events to a prefix index, as the picker does.
func indexOf(t *testing.T, events []Event) *index.Index {
	t.Helper()
	x := index.New()
	var d dynamo.Decoder
	for _, m := range events {
		subject, err := dynamo.ParseSubject(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(m.Data, subject.Scope, func(e *kvevent.Event) {
			if err := x.Apply(e); err != nil {
				t.Errorf("event %d: %v", e.ID, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func chainSet(chains []block.Chain) map[block.Chain]bool {
	set := map[block.Chain]bool{}
	for _, c := range chains {
		set[c] = true
	}
	return set
}

// depth counts what a rank holds of a prompt, the plain way: on the device from the
// first block on, then in host memory where the device ends.
func (l *Ledger) depth(key fleet.Key, chains []block.Chain) index.Depth {
	var d index.Depth
	for d.Device < len(chains) && l.Held[key][chains[d.Device]] {
		d.Device++
	}
	for d.Total() < len(chains) && l.Host[key][chains[d.Total()]] {
		d.Host++
	}
	return d
}

// TestHostTier overfills a device whose blocks a worker copies to host memory.
func TestHostTier(t *testing.T) {
	forVersions(t, []string{"1.6.1"}, func(t *testing.T, version string) {
		const deviceBlocks, hostBlocks = 32, 96
		url := StartNATS(t)
		events := Record(t, url, "kv-events")
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: url, BlockSize: blockSize, Blocks: deviceBlocks, HostBlocks: hostBlocks,
			Roles: map[fleet.Role]int{fleet.Aggregated: 1},
		})
		p := StartPicker(t, s, PickerConfig{Binary: pickerBinary(t)})
		key := fleet.Key{ID: s.Workers(fleet.Aggregated)[0]}
		sequence := fixedSequence()
		// At the end a prompt leaves the device for others, and its head comes back.
		for seed := range uint64(8) {
			sequence = append(sequence, step{prompt: prompt(200 + seed), maxTokens: 4})
		}
		sequence = append(sequence, step{prompt: prompt(200)[:2*blockSize+3], maxTokens: 4})
		last := expect{}
		for _, q := range sequence {
			sendLong(t, s, Pin{Worker: key}, BothNames, q.prompt, q.maxTokens)
			last = expect{}
			last.add(key, q.prompt)
		}
		last.waitHeld(t, events)

		waitIndex(t, p, events)
		p.checkNothingOdd(t)
		heard := events.Events() // of now; what comes later does not change what is compared
		ledger := ReadLedger(heard)
		if n := len(ledger.Held[key]); n > deviceBlocks {
			t.Errorf("a device of %d blocks holds %d", deviceBlocks, n)
		}
		if n := len(ledger.Host[key]); n > hostBlocks || n < hostBlocks/2 {
			t.Errorf("host memory of %d blocks holds %d", hostBlocks, n)
		}

		// The picker shows how many blocks are in host memory, not which: that is told
		// by an index that hears the same events.
		x := indexOf(t, heard)
		if diff := cmp.Diff(ledger.Host[key], chainSet(x.Chains(key, kvevent.Host))); diff != "" {
			t.Errorf("in host memory (-events +index):\n%s", diff)
		}
		slot, ok := x.Lookup(key)
		if !ok {
			t.Fatal("the index does not know the worker")
		}
		extended := 0
		var m index.Match
		for i, q := range sequence {
			chains := Chains(q.prompt, blockSize)
			x.Match(chains, &m)
			want := ledger.depth(key, chains)
			if got := m.Depth(slot); got != want {
				t.Errorf("prompt %d: the worker holds %+v, want %+v", i, got, want)
			}
			if want.Device > 0 && want.Host > 0 {
				extended++
			}
		}
		if extended == 0 {
			t.Error("no prompt begins on the device and goes on in host memory")
		}
	})
}
