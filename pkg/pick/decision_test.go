package pick_test

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// What is expected of a worker lasts as long as its prompt waits there, and for the
// TTL after that.
func TestGuessWaitsForThePrompt(t *testing.T) {
	_, chains := promptOf(1, 10)
	req := pick.Request{Tokens: 160, Chains: chains}
	pair := []fleet.Worker{worker(1, fleet.Prefill), worker(11, fleet.Decode), worker(12, fleet.Decode)}
	end := start.Add(100 * ttl)
	for name, tc := range map[string]struct {
		pool       []fleet.Worker
		do         func(d *pick.Decision)
		want, over int // blocks expected just before end+ttl, and then
	}{
		"waits":                   {pair, func(*pick.Decision) {}, 10, 10},
		"computed":                {pair, func(d *pick.Decision) { d.PrefillDone(end) }, 10, 0},
		"computed, then over":     {pair, func(d *pick.Decision) { d.PrefillDone(end.Add(-ttl)); d.Release(end) }, 0, 0},
		"given up":                {pair, func(d *pick.Decision) { d.Release(end) }, 10, 0},
		"given up more than once": {pair, func(d *pick.Decision) { d.Release(end.Add(-ttl)); d.Release(end); d.PrefillDone(end) }, 0, 0},
		"decoded elsewhere":       {pair, func(d *pick.Decision) { d.Moved(fleet.Key{ID: 12}, end) }, 10, 10},
		"all done elsewhere":      {workers(1, 2, fleet.Aggregated), func(d *pick.Decision) { d.Moved(fleet.Key{ID: 2}, end) }, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ttl, tc.pool...)
			d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, Subset: in("10.0.0.1", "10.0.0.11")})
			if d.Prefill.ID != 1 {
				t.Fatalf("worker %d computes the prompt, want 1", d.Prefill.ID)
			}
			tc.do(&d)
			if got := r.picker.Best(&req, end.Add(ttl-1), &r.scratch); got != tc.want {
				t.Errorf("just before the TTL is over %d blocks are expected, want %d", got, tc.want)
			}
			if got := r.picker.Best(&req, end.Add(ttl), &r.scratch); got != tc.over {
				t.Errorf("when the TTL is over %d blocks are expected, want %d", got, tc.over)
			}
			if got := r.picker.Best(&req, start.Add(index.SpeculationWait), &r.scratch); got != 0 {
				t.Errorf("of a request that nobody ended %d blocks are expected for ever", got)
			}
			d.Release(end)
			for id, f := range r.figures() {
				if f.PrefillTokens != 0 || f.DecodeBlocks != 0 || f.Requests != 0 {
					t.Errorf("worker %d has %+v when all is over", id, f)
				}
			}
		})
	}
}

// A decision that failed may be ended like any.
func TestEndOfNoDecision(t *testing.T) {
	r := newRig(t, ttl)
	d, err := r.pick(pick.Request{Tokens: 1})
	if err == nil {
		t.Fatal("an empty pool has a worker")
	}
	d.PrefillDone(start)
	d.Moved(fleet.Key{ID: 1}, start)
	d.Release(start)
}
