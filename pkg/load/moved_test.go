package load_test

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// TestMoved: whatever was booked on a worker that did not serve is booked on the one
// that did, and comes off there once.
func TestMoved(t *testing.T) {
	prefill, decode, other := fleet.Key{ID: 1}, fleet.Key{ID: 2}, fleet.Key{ID: 3}
	for name, tc := range map[string]struct {
		prefill    fleet.Key
		computed   bool // the prompt, before the move
		ended      bool // the request, before the move
		want       map[fleet.Key]load.Figures
		wantPrompt map[fleet.Key]load.Figures // once the prompt is computed
	}{
		"a pair": {
			prefill:    prefill,
			want:       map[fleet.Key]load.Figures{prefill: {PrefillTokens: 30}, other: {DecodeBlocks: 3, Requests: 1}},
			wantPrompt: map[fleet.Key]load.Figures{other: {DecodeBlocks: 3, Requests: 1}},
		},
		"one worker": {
			prefill:    decode,
			want:       map[fleet.Key]load.Figures{other: {PrefillTokens: 30, DecodeBlocks: 3, Requests: 1}},
			wantPrompt: map[fleet.Key]load.Figures{other: {DecodeBlocks: 3, Requests: 1}},
		},
		"one worker, the prompt is computed": {
			prefill: decode, computed: true,
			want:       map[fleet.Key]load.Figures{other: {DecodeBlocks: 3, Requests: 1}},
			wantPrompt: map[fleet.Key]load.Figures{other: {DecodeBlocks: 3, Requests: 1}},
		},
		"the end": {prefill: decode, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			table := load.NewTable()
			check := func(when string, want map[fleet.Key]load.Figures) {
				t.Helper()
				table.Read(func(k fleet.Key, f load.Figures) {
					if f != want[k] {
						t.Errorf("%s: worker %s has %+v, want %+v", when, k, f, want[k])
					}
				})
			}
			b := load.Booking{
				At: time.Unix(1, 0), PrefillTokens: 30, Blocks: 3, Chains: []block.Chain{1, 2},
				PrefillKey: tc.prefill, Prefill: table.Worker(tc.prefill), DecodeKey: decode, Decode: table.Worker(decode),
			}
			table.Lock()
			r := table.Reserve(b)
			table.Unlock()
			if tc.computed {
				r.PrefillDone(time.Unix(2, 0))
			}
			if tc.ended {
				r.Release()
			}
			moved := r.Moved(other)
			check("moved", tc.want)
			r.Release() // the old one has no effect any more
			check("the old one released", tc.want)
			moved.PrefillDone(time.Unix(3, 0))
			check("the prompt computed", tc.wantPrompt)
			moved.Release()
			check("released", nil)
		})
	}
}

// TestMovedOutput: output that was counted goes along, and grows on from there.
func TestMovedOutput(t *testing.T) {
	table := load.NewTable()
	r := reserveChains(table, 1, 1, 30, 3, []block.Chain{1, 2})
	r.Output(4, 0.5)
	r = r.Moved(key(2))
	if got := figures(table)[key(2)].DecodeBlocks; got != 3+2 {
		t.Errorf("moved: %d blocks, want 5", got)
	}
	r.Output(3, 1) // said before, of less
	r.Output(6, 0.5)
	if got := figures(table)[key(2)].DecodeBlocks; got != 3+3 {
		t.Errorf("grown: %d blocks, want 6", got)
	}
	r.Release()
	for k, f := range figures(table) {
		if f != (load.Figures{}) {
			t.Errorf("released, yet %v has %+v", k, f)
		}
	}
}
