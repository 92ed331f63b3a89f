package interop

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// waitExact waits until the picker's index holds just what is expected.
func (e expect) waitExact(t *testing.T, p *Picker) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error { return p.compare(ctx, e) }); err != nil {
		t.Fatal(err)
	}
}

// TestRestart kills a worker whose id comes from its pod's name, and starts it again
// in another pod of that name: the new process has the old one's id, an empty cache, and events
// that count from 1. Nothing announces that.
func TestRestart(t *testing.T) {
	// 1.3 was the first with a random publisher id, the last with the old subjects.
	forVersions(t, []string{"1.2.1", "1.3.1", "1.6.1"}, func(t *testing.T, version string) {
		url := StartNATS(t)
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: url, BlockSize: blockSize, Ranks: 2,
			Roles: map[fleet.Role]int{fleet.Aggregated: 2}, Pods: StartPods(t, "aggregated-0", "aggregated-1"),
		})
		p := StartPicker(t, s, PickerConfig{Binary: pickerBinary(t)})
		ids := s.Workers(fleet.Aggregated)
		for i, name := range []string{"aggregated-0", "aggregated-1"} {
			if want := fleet.WorkerID(name); ids[i] != want {
				t.Fatalf("the worker in pod %s has id %d, want %d", name, ids[i], want)
			}
		}
		want, seed := expect{}, uint64(0)
		fill := func(id uint64, rank uint32, n int) {
			key := fleet.Key{ID: id, Rank: rank}
			for range n {
				seed++
				send(t, s, Pin{Worker: key}, BothNames, prompt(seed))
				want.add(key, prompt(seed))
			}
		}
		for _, id := range ids {
			fill(id, 0, 3)
			fill(id, 1, 2)
		}
		want.waitExact(t, p)
		p.checkNothingOdd(t)

		s.Restart(t, fleet.Aggregated, 0)
		if again := s.Workers(fleet.Aggregated); again[0] != ids[0] {
			t.Fatalf("the worker's id is %d after the restart, was %d", again[0], ids[0])
		}
		// More events than before on one rank, fewer on the other.
		delete(want, fleet.Key{ID: ids[0]})
		delete(want, fleet.Key{ID: ids[0], Rank: 1})
		fill(ids[0], 0, 5)
		fill(ids[0], 1, 1)
		fill(ids[1], 0, 1)
		want.waitExact(t, p)
		waitWorkers(t, s, p, []fleet.Key{{ID: ids[0]}, {ID: ids[0], Rank: 1}, {ID: ids[1]}, {ID: ids[1], Rank: 1}})
		for rank := range uint32(2) {
			p.waitSum(t, 1, "warmpath_worker_restarts_total", labelsOf(fleet.Key{ID: ids[0], Rank: rank})...)
		}
		p.waitSum(t, 2, "warmpath_worker_restarts_total")
		p.checkNothingOdd(t, "warmpath_worker_restarts_total")
	})
}
