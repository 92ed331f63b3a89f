package pick_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

func TestModes(t *testing.T) {
	p1, p2 := worker(1, fleet.Prefill), worker(2, fleet.Prefill)
	d3, d4 := worker(3, fleet.Decode), worker(4, fleet.Decode)
	a5, a6 := worker(5, fleet.Aggregated), worker(6, fleet.Aggregated)
	v6 := fleet.Worker{Key: fleet.Key{ID: 7}, Name: "w7", Endpoint: netip.MustParseAddrPort("[fd00::7]:8000"), Role: fleet.Aggregated}
	port2 := fleet.Worker{Key: fleet.Key{ID: 5, Rank: 1}, Name: "w5", Endpoint: netip.MustParseAddrPort("10.0.0.5:8001"), Role: fleet.Aggregated}
	none := pick.Subset{}

	type pool = []fleet.Worker
	type busy map[uint64]int // decode blocks booked, to make some worker the worse one
	for _, tc := range []struct {
		name            string
		pool            pool
		subset          pick.Subset
		busy            busy
		prefill, decode fleet.Worker
		mode            pick.Mode
		err             error
	}{
		{name: "no workers", err: pick.ErrNoWorkers},
		{name: "no workers, with a subset", subset: in("10.0.0.1:8000"), err: pick.ErrNoWorkers},
		{name: "prefill workers only", pool: pool{p1, p2}, err: pick.ErrNoWorkers},
		{name: "prefill workers only, outside the subset", pool: pool{p1, p2}, subset: in("10.0.0.9:8000"), err: pick.ErrNoWorkers},
		{name: "one of each", pool: pool{p1, d3}, prefill: p1, decode: d3, mode: pick.Disaggregated},
		{name: "least busy decode worker", pool: pool{p1, d3, d4}, busy: busy{3: 5}, prefill: p1, decode: d4, mode: pick.Disaggregated},
		{name: "aggregated", pool: pool{a5}, prefill: a5, decode: a5, mode: pick.OnAggregated},
		{name: "least busy aggregated worker", pool: pool{a5, a6}, busy: busy{6: 5}, prefill: a5, decode: a5, mode: pick.OnAggregated},
		{name: "no prefill worker ready", pool: pool{d3, d4}, busy: busy{4: 5}, prefill: d3, decode: d3, mode: pick.NoPrefillReady},
		{name: "no prefill worker ready, with a subset", pool: pool{d3, d4}, subset: in("10.0.0.4:8000"), prefill: d4, decode: d4, mode: pick.NoPrefillReady},
		{name: "no prefill worker in the subset", pool: pool{p1, p2, d3, d4}, subset: in("10.0.0.3:8000"), prefill: d3, decode: d3, mode: pick.NoPrefillInSubset},
		{name: "no decode worker but an aggregated one", pool: pool{p1, a5}, prefill: a5, decode: a5, mode: pick.OnAggregated},
		{name: "no prefill worker but an aggregated one, even when busier", pool: pool{d3, a5}, busy: busy{5: 50}, prefill: a5, decode: a5, mode: pick.OnAggregated},
		{name: "mixed: pair cheaper", pool: pool{p1, d3, a5}, busy: busy{5: 5}, prefill: p1, decode: d3, mode: pick.Disaggregated},
		{name: "mixed: aggregated cheaper", pool: pool{p1, d3, a5}, busy: busy{3: 5}, prefill: a5, decode: a5, mode: pick.OnAggregated},
		{name: "subset of the pair", pool: pool{p1, p2, d3, d4, a5}, subset: in("10.0.0.2:8000", "10.0.0.4:8000"), prefill: p2, decode: d4, mode: pick.Disaggregated},
		{name: "subset is strict", pool: pool{p1, d3, a5, a6}, subset: in("10.0.0.6:8000"), busy: busy{6: 500}, prefill: a6, decode: a6, mode: pick.OnAggregated},
		{name: "subset excludes all", pool: pool{p1, d3, a5}, subset: in("10.0.0.9:8000"), err: pick.ErrSubset},
		{name: "empty subset excludes all", pool: pool{p1, d3, a5}, subset: pick.Subset{Present: true}, err: pick.ErrSubset},
		{name: "subset leaves prefill workers only", pool: pool{p1, d3}, subset: in("10.0.0.1:8000"), err: pick.ErrSubset},
		{name: "subset with another port", pool: pool{a5}, subset: in("10.0.0.5:8001"), err: pick.ErrSubset},
		{name: "subset entries of no worker are ignored", pool: pool{a5, a6}, subset: in("10.0.0.9:8000", "10.0.0.6:8000"), prefill: a6, decode: a6, mode: pick.OnAggregated},
		{name: "IPv6 endpoint", pool: pool{a5, v6}, subset: in("[fd00::7]:8000"), prefill: v6, decode: v6, mode: pick.OnAggregated},
		{name: "IPv6 endpoint, written in full", pool: pool{a5, v6}, subset: in("[fd00:0:0:0:0:0:0:7]:8000"), prefill: v6, decode: v6, mode: pick.OnAggregated},
		{name: "bare IPv6 address", pool: pool{a5, v6}, subset: in("fd00::7"), prefill: v6, decode: v6, mode: pick.OnAggregated},
		{name: "bare address: any port", pool: pool{a5, port2, a6}, subset: in("10.0.0.5"), busy: busy{5: 1}, prefill: port2, decode: port2, mode: pick.OnAggregated},
		{name: "one port of a pod", pool: pool{a5, port2}, subset: in("10.0.0.5:8001"), prefill: port2, decode: port2, mode: pick.OnAggregated},
		{name: "no subset", pool: pool{a5, v6}, subset: none, busy: busy{5: 5}, prefill: v6, decode: v6, mode: pick.OnAggregated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, ttl, tc.pool...)
			for id, blocks := range tc.busy {
				r.busy(id, 0, blocks)
			}
			before := r.figures()
			_, chains := promptOf(1, 4)
			d, err := r.pick(pick.Request{Tokens: 70, Chains: chains, Subset: tc.subset})
			if tc.err != nil {
				if !errors.Is(err, tc.err) || d.Reservation != nil {
					t.Errorf("decision %+v, %v; want none, %v", d, err, tc.err)
				}
				for id, f := range r.figures() {
					if f != before[id] {
						t.Errorf("no decision, yet worker %d has %+v", id, f)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Prefill != tc.prefill || d.Decode != tc.decode || d.Mode != tc.mode {
				t.Errorf("prefill %q, decode %q, %v; want %q, %q, %v", d.Prefill.Name, d.Decode.Name, d.Mode, tc.prefill.Name, tc.decode.Name, tc.mode)
			}
		})
	}
}

func TestModeNames(t *testing.T) {
	for mode, want := range map[pick.Mode]string{
		pick.Disaggregated: "disaggregated", pick.OnAggregated: "aggregated",
		pick.NoPrefillReady: "no_prefill_ready", pick.NoPrefillInSubset: "no_prefill_in_subset",
	} {
		if got := mode.String(); got != want {
			t.Errorf("mode %d is named %q, want %q", mode, got, want)
		}
	}
}

// Tier weights and load, each case between two aggregated workers with a prompt
// of ten blocks: the second must win.
func TestCost(t *testing.T) {
	contents, chains := promptOf(1, 10)
	type state struct {
		held                  index.Depth
		prefillTokens, blocks int
	}
	for _, tc := range []struct {
		name          string
		first, second state
		cost          float64 // of the second
	}{
		{"holding beats not holding", state{}, state{held: index.Depth{Device: 4}}, 10 - 4 + 10},
		{"deeper beats shallower", state{held: index.Depth{Device: 3}}, state{held: index.Depth{Device: 4}}, 10 - 4 + 10},
		{"device beats host", state{held: index.Depth{Host: 4}}, state{held: index.Depth{Device: 4}}, 10 - 4 + 10},
		{"host beats disk", state{held: index.Depth{Disk: 4}}, state{held: index.Depth{Host: 4}}, 10 - 3 + 10},
		{"disk beats nothing", state{}, state{held: index.Depth{Disk: 4}}, 10 - 1 + 10},
		{"external beats nothing", state{}, state{held: index.Depth{External: 4}}, 10 - 1 + 10},
		{"3 device blocks beat 3 host blocks and 2 disk blocks", state{held: index.Depth{Host: 3, Disk: 2}}, state{held: index.Depth{Device: 3}}, 10 - 3 + 10},
		{"5 host blocks beat 3 device blocks", state{held: index.Depth{Device: 3}}, state{held: index.Depth{Host: 5}}, 10 - 3.75 + 10},
		{"tiers add up", state{held: index.Depth{Device: 5}}, state{held: index.Depth{Device: 2, Host: 4, Disk: 1, External: 1}}, 10 - 5.5 + 10},
		{"waiting prefill outweighs a shorter match", state{held: index.Depth{Device: 4}, prefillTokens: 5 * blockSize}, state{}, 10 + 10},
		{"a longer match outweighs waiting prefill", state{}, state{held: index.Depth{Device: 4}, prefillTokens: 3 * blockSize}, 10 + 3 - 4 + 10},
		{"part of a block counts", state{prefillTokens: 8}, state{prefillTokens: 7}, 10 + 7./16 + 10},
		{"decode blocks count", state{blocks: 3}, state{blocks: 2}, 10 + 12},
		{"decode blocks outweigh a shorter match", state{held: index.Depth{Device: 4}, blocks: 5}, state{}, 10 + 10},
		{"a full match costs its decode blocks only", state{held: index.Depth{Device: 9}}, state{held: index.Depth{Device: 10}}, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 0, workers(1, 2, fleet.Aggregated)...)
			for i, s := range []state{tc.first, tc.second} {
				r.hold(t, uint64(i+1), contents, s.held)
				r.busy(uint64(i+1), s.prefillTokens, s.blocks)
			}
			d := r.mustPick(t, pick.Request{Tokens: 10 * blockSize, Chains: chains})
			if d.Decode.ID != 2 {
				t.Errorf("picked worker %d, candidates %+v", d.Decode.ID, r.scratch.Candidates)
			}
			if got := r.scratch.Candidates[1]; got.Cost != tc.cost {
				t.Errorf("terms of the second %+v, want cost %v", got, tc.cost)
			}
			if d.Matched != tc.second.held.Total() || d.Total != 10 || d.Best != max(tc.first.held.Total(), tc.second.held.Total()) {
				t.Errorf("matched %d, best %d, total %d", d.Matched, d.Best, d.Total)
			}
		})
	}
}

// What a decode worker holds does not draw requests there.
func TestDecodeIgnoresOverlap(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, ttl, worker(1, fleet.Prefill), worker(2, fleet.Decode), worker(3, fleet.Decode))
	r.hold(t, 2, contents, index.Depth{Device: 10})
	r.busy(2, 0, 1)
	d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
	if d.Decode.ID != 3 || d.Prefill.ID != 1 || d.Matched != 0 || d.Best != 0 {
		t.Errorf("prefill %d, decode %d, matched %d, best %d; want 1, 3, 0, 0", d.Prefill.ID, d.Decode.ID, d.Matched, d.Best)
	}
}

// The three numbers of a decision keep their order whoever computes the prompt.
func TestMatchedIsNeverAboveBest(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, ttl, worker(1, fleet.Decode))
	r.hold(t, 1, contents, index.Depth{Device: 4})
	d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
	if d.Mode != pick.NoPrefillReady || d.Matched != 4 || d.Best != 4 {
		t.Errorf("%v, matched %d, best %d; want no_prefill_ready, 4, 4", d.Mode, d.Matched, d.Best)
	}
}

// Best looks at the whole pool: what the subset cost is visible.
func TestBestIncludesWorkersOutsideTheSubset(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, ttl, workers(1, 2, fleet.Aggregated)...)
	r.hold(t, 1, contents, index.Depth{Device: 6})
	d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, Subset: in("10.0.0.2:8000")})
	if d.Decode.ID != 2 || d.Matched != 0 || d.Best != 6 {
		t.Errorf("picked %d, matched %d, best %d; want 2, 0, 6", d.Decode.ID, d.Matched, d.Best)
	}
}

func TestBooking(t *testing.T) {
	contents, chains := promptOf(1, 10)
	for _, tc := range []struct {
		name            string
		pool            []fleet.Worker
		tokens          int
		prefill, decode load.Figures // workers 1 and 2
	}{
		{
			"pair",
			[]fleet.Worker{worker(1, fleet.Prefill), worker(2, fleet.Decode)},
			165,
			load.Figures{PrefillTokens: 165 - 4*blockSize},
			load.Figures{DecodeBlocks: 11, Requests: 1},
		},
		{
			"aggregated",
			[]fleet.Worker{worker(1, fleet.Aggregated)},
			160,
			load.Figures{PrefillTokens: 160 - 4*blockSize, DecodeBlocks: 10, Requests: 1},
			load.Figures{},
		},
		{
			"decode only",
			[]fleet.Worker{worker(1, fleet.Decode)},
			161,
			load.Figures{PrefillTokens: 161 - 4*blockSize, DecodeBlocks: 11, Requests: 1},
			load.Figures{},
		},
		{
			"estimate below what is held",
			[]fleet.Worker{worker(1, fleet.Aggregated)},
			30,
			load.Figures{DecodeBlocks: 2, Requests: 1},
			load.Figures{},
		},
		{"empty prompt", []fleet.Worker{worker(1, fleet.Aggregated)}, 0, load.Figures{Requests: 1}, load.Figures{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, ttl, tc.pool...)
			r.hold(t, 1, contents, index.Depth{Device: 4})
			d := r.mustPick(t, pick.Request{Tokens: tc.tokens, Chains: chains})
			if f := r.figures(); f[1] != tc.prefill || f[2] != tc.decode {
				t.Errorf("booked %+v and %+v, want %+v and %+v", f[1], f[2], tc.prefill, tc.decode)
			}
			d.Reservation.Release()
			for id, f := range r.figures() {
				if f != (load.Figures{}) {
					t.Errorf("released, yet worker %d has %+v", id, f)
				}
			}
		})
	}
}

func TestGuessBelongsToThePrefillWorker(t *testing.T) {
	_, chains := promptOf(1, 10)
	req := pick.Request{Tokens: 160, Chains: chains}

	t.Run("disaggregated", func(t *testing.T) {
		pool := append(workers(1, 4, fleet.Prefill), workers(11, 4, fleet.Decode)...)
		r := newRig(t, ttl, pool...)
		first := r.mustPick(t, req)
		for _, w := range pool {
			want := 0
			if w.Key == first.Prefill.Key {
				want = 10
			}
			if got := r.guessed(t, w.ID, chains); got != want {
				t.Errorf("%v worker %d: %d blocks guessed, want %d", w.Role, w.ID, got, want)
			}
		}
		// The prefill worker has a whole prompt waiting, which the guess just
		// outweighs; another would have to compute it all again.
		first.Reservation.PrefillDone(start)
		second := r.mustPick(t, req)
		if second.Prefill.Key != first.Prefill.Key || second.Matched != 10 {
			t.Errorf("equal request: prefill on %d with %d blocks, want %d with 10", second.Prefill.ID, second.Matched, first.Prefill.ID)
		}
		if second.Decode.Key == first.Decode.Key {
			t.Error("equal request: the busy decode worker again")
		}
	})
	t.Run("before prefill is done", func(t *testing.T) {
		r := newRig(t, ttl, append(workers(1, 2, fleet.Prefill), worker(11, fleet.Decode))...)
		contents, _ := promptOf(1, 5)
		r.hold(t, 2, contents, index.Depth{Device: 5})
		first, second := r.mustPick(t, req), r.mustPick(t, req)
		if first.Prefill.ID != 2 || second.Prefill.ID != 2 {
			t.Errorf("prefill on %d, then %d, want 2 twice", first.Prefill.ID, second.Prefill.ID)
		}
	})
	t.Run("aggregated", func(t *testing.T) {
		r := newRig(t, ttl, workers(1, 3, fleet.Aggregated)...)
		d := r.mustPick(t, req)
		for id := uint64(1); id <= 3; id++ {
			want := 0
			if id == d.Decode.ID {
				want = 10
			}
			if got := r.guessed(t, id, chains); got != want {
				t.Errorf("worker %d: %d blocks guessed, want %d", id, got, want)
			}
		}
	})
	for name, tc := range map[string]struct {
		pool   []fleet.Worker
		subset pick.Subset
	}{
		"no prefill ready":     {workers(1, 2, fleet.Decode), pick.Subset{}},
		"no prefill in subset": {append(workers(1, 2, fleet.Decode), worker(3, fleet.Prefill)), in("10.0.0.1:8000")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ttl, tc.pool...)
			r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, Subset: tc.subset})
			for _, w := range tc.pool {
				if got := r.guessed(t, w.ID, chains); got != 0 {
					t.Errorf("worker %d: %d blocks guessed, want none", w.ID, got)
				}
			}
		})
	}
	t.Run("not wanted", func(t *testing.T) {
		r := newRig(t, ttl, workers(1, 2, fleet.Aggregated)...)
		d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, NoGuess: true})
		if got := r.guessed(t, d.Prefill.ID, chains); got != 0 {
			t.Errorf("%d blocks guessed, want none", got)
		}
	})
	t.Run("expires", func(t *testing.T) {
		r := newRig(t, ttl, worker(1, fleet.Prefill), worker(11, fleet.Decode))
		first := r.mustPick(t, req)
		first.Release(start)
		d, err := r.picker.Pick(&req, start.Add(ttl), r.random, &r.scratch)
		if err != nil || d.Matched != 0 {
			t.Errorf("after its time: matched %d, %v, want 0", d.Matched, err)
		}
	})
}

// Every candidate's terms are kept, in the order of the snapshot.
func TestCandidates(t *testing.T) {
	contents, chains := promptOf(1, 4)
	r := newRig(t, ttl, worker(1, fleet.Aggregated), worker(2, fleet.Decode), worker(3, fleet.Prefill), worker(4, fleet.Prefill))
	r.hold(t, 3, contents, index.Depth{Device: 2})
	r.mustPick(t, pick.Request{Tokens: 64, Chains: chains, Subset: in("10.0.0.1", "10.0.0.2", "10.0.0.3")})
	type kept struct {
		worker      int
		side        fleet.Role
		cost, local float64
	}
	var got []kept
	for _, c := range r.scratch.Candidates {
		got = append(got, kept{c.Worker, c.Side, c.Cost, c.Local})
	}
	if want := []kept{{0, fleet.Aggregated, 8, 0}, {1, fleet.Decode, 4, 8}, {2, fleet.Prefill, 2, 0}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSetFleet(t *testing.T) {
	contents, chains := promptOf(1, 4)
	r := newRig(t, ttl, workers(1, 3, fleet.Aggregated)...)
	for id := uint64(1); id <= 3; id++ {
		r.hold(t, id, contents, index.Depth{Device: int(id)})
	}
	d := r.mustPick(t, pick.Request{Tokens: 64, Chains: chains, Subset: in("10.0.0.1:8000")})
	slot1, _ := r.index.Lookup(fleet.Key{ID: 1})

	next := snapshot(t, worker(2, fleet.Aggregated), worker(9, fleet.Decode))
	if err := r.picker.SetFleet(next); err != nil {
		t.Fatal(err)
	}
	if r.picker.Fleet() != next {
		t.Error("Fleet is not the new pool")
	}
	for _, id := range []uint64{1, 3} {
		if got := r.index.Held(fleet.Key{ID: id})[0]; got != int(id) {
			t.Errorf("departed worker %d holds %d blocks, want its %d still", id, got, id)
		}
	}
	if got := r.index.Held(fleet.Key{ID: 2})[0]; got != 2 {
		t.Errorf("worker 2 holds %d blocks, want its 2 still", got)
	}
	if _, ok := r.index.Lookup(fleet.Key{ID: 9}); !ok {
		t.Error("the new worker has no place in the index")
	}
	f := r.figures()
	if _, idle := f[3]; idle {
		t.Error("the load entry of a departed idle worker stays")
	}
	if f[1].Requests != 1 {
		t.Error("the request under way on a departed worker is not counted")
	}
	d.Reservation.Release()
	if _, still := r.figures()[1]; still {
		t.Error("its load entry stays after its last request")
	}
	var m index.Match
	r.index.Match(chains, &m)
	r.guesses.Merge(start, chains, &m)
	if got := m.Depth(slot1); got != (index.Depth{Device: 1}) {
		t.Errorf("departed worker 1 counts with %+v, want the one block it holds: its guess must go", got)
	}
	for range 20 {
		if d := r.mustPick(t, pick.Request{Tokens: 64, Chains: chains}); d.Decode.ID != 2 {
			t.Fatalf("picked worker %d, want 2", d.Decode.ID)
		}
	}
	if err := r.picker.SetFleet(snapshot(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pick(pick.Request{}); !errors.Is(err, pick.ErrNoWorkers) {
		t.Errorf("empty pool: %v, want ErrNoWorkers", err)
	}
}

// A worker without a place in the index is still used, by load alone.
func TestFullIndex(t *testing.T) {
	r := newRig(t, ttl)
	for id := range uint64(index.MaxWorkers - 1) {
		if _, err := r.index.Register(fleet.Key{ID: 1 << 40, Rank: uint32(id)}); err != nil {
			t.Fatal(err)
		}
	}
	// The strangers make room for the pool.
	if err := r.picker.SetFleet(snapshot(t, workers(1, 3, fleet.Aggregated)...)); err != nil {
		t.Fatalf("SetFleet: %v", err)
	}
	if n := r.index.Stats().Workers; n != 3 {
		t.Fatalf("%d workers in the index, want the pool's 3", n)
	}
	// A pool that is larger than the index keeps all its workers.
	all := workers(1, index.MaxWorkers+3, fleet.Prefill)
	for i := range 3 {
		all[len(all)-1-i].Role = fleet.Aggregated
	}
	if err := r.picker.SetFleet(snapshot(t, all...)); !errors.Is(err, index.ErrFull) {
		t.Fatalf("SetFleet: %v, want ErrFull", err)
	}
	_, chains := promptOf(1, 4)
	seen := map[uint64]bool{}
	for range 30 {
		seen[r.mustPick(t, pick.Request{Tokens: 64, Chains: chains}).Decode.ID] = true
	}
	if len(seen) != 3 {
		t.Errorf("workers used: %v, want all three", seen)
	}
	if err := r.picker.SetFleet(snapshot(t, worker(1, fleet.Aggregated))); err != nil {
		t.Errorf("smaller pool: %v", err)
	}
}

// A worker that leaves the pool and comes back has its cache still, and events
// that go on from it are understood.
func TestBlink(t *testing.T) {
	contents, chains := promptOf(1, 4)
	r := newRig(t, ttl, workers(1, 2, fleet.Aggregated)...)
	r.hold(t, 1, contents, index.Depth{Device: 4})
	for _, pool := range [][]fleet.Worker{workers(2, 2, fleet.Aggregated), workers(1, 2, fleet.Aggregated)} {
		if err := r.picker.SetFleet(snapshot(t, pool...)); err != nil {
			t.Fatal(err)
		}
	}
	if d := r.mustPick(t, pick.Request{Tokens: 64, Chains: chains}); d.Decode.ID != 1 || d.Matched != 4 {
		t.Errorf("worker %d with %d blocks matched, want worker 1 with 4", d.Decode.ID, d.Matched)
	}
}

func TestDrop(t *testing.T) {
	contents, chains := promptOf(1, 4)
	r := newRig(t, ttl, workers(1, 2, fleet.Aggregated)...)
	for id := uint64(1); id <= 2; id++ {
		r.hold(t, id, contents, index.Depth{Device: 4})
	}
	r.picker.Drop(fleet.Key{ID: 1})
	if got := r.index.Held(fleet.Key{ID: 1})[0]; got != 4 {
		t.Errorf("a member of the pool was dropped: it holds %d blocks", got)
	}
	if err := r.picker.SetFleet(snapshot(t, worker(2, fleet.Aggregated))); err != nil {
		t.Fatal(err)
	}
	r.picker.Drop(fleet.Key{ID: 1})
	if _, ok := r.index.Lookup(fleet.Key{ID: 1}); ok {
		t.Error("a worker that left was not dropped")
	}
	if d := r.mustPick(t, pick.Request{Tokens: 64, Chains: chains}); d.Decode.ID != 2 || d.Best != 4 {
		t.Errorf("%+v, want worker 2 with its 4 blocks", d)
	}
}

// A request without a prompt needs no prefill worker and leaves no guess.
func TestPromptLess(t *testing.T) {
	r := newRig(t, ttl, worker(1, fleet.Prefill), worker(2, fleet.Decode), worker(3, fleet.Aggregated))
	r.busy(3, 0, 5)
	d := r.mustPick(t, pick.Request{PromptLess: true})
	if d.Mode != pick.PromptLess || d.Decode.ID != 2 || d.Prefill.ID != 2 {
		t.Errorf("%+v, want the idle decode worker alone", d)
	}
	r.busy(2, 0, 9)
	if d := r.mustPick(t, pick.Request{PromptLess: true}); d.Decode.ID != 3 {
		t.Errorf("worker %d, want the less occupied aggregated one", d.Decode.ID)
	}
	if d := r.mustPick(t, pick.Request{PromptLess: true, Subset: in("10.0.0.2:8000")}); d.Decode.ID != 2 {
		t.Errorf("worker %d, want the one in the subset", d.Decode.ID)
	}
	if _, err := r.pick(pick.Request{PromptLess: true, Subset: in("10.0.0.1:8000")}); !errors.Is(err, pick.ErrSubset) {
		t.Errorf("only a prefill worker in the subset: %v, want ErrSubset", err)
	}
}

// A guess counts as a match, but only events make a prompt found: with hashes that
// differ from the workers' there would be guesses and nothing else.
func TestFoundIsWhatEventsSay(t *testing.T) {
	r := newRig(t, ttl, workers(1, 2, fleet.Aggregated)...)
	hashes, chains := promptOf(1, 10)
	ask := pick.Request{Tokens: 160, Chains: chains}
	for round, want := range []struct {
		best  int
		found bool
	}{{0, false}, {10, false}, {10, true}} {
		if round == 2 {
			r.hold(t, 1, hashes, index.Depth{Host: 1})
		}
		d := r.mustPick(t, ask)
		d.Reservation.Release()
		if d.Best != want.best || d.Found != want.found {
			t.Errorf("round %d: best %d, found %t; want %d, %t", round, d.Best, d.Found, want.best, want.found)
		}
	}
}
