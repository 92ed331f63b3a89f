package pick_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// When a prompt stays on its decode worker. Two prefill workers, two decode workers,
// a prompt of 4,000 tokens; decode worker 3 holds some of it.
func TestConditions(t *testing.T) {
	const tokens = 4000
	contents, chains := promptOf(1, tokens/blockSize)
	for _, tc := range []struct {
		name      string
		condition pick.Condition
		held      int // tokens, by decode worker 3
		busy      int // prefill tokens that wait on both prefill workers
		want      pick.Mode
	}{
		{"no condition", pick.Never, tokens, 0, pick.Disaggregated},
		{"short, nothing held", pick.IfShort, 0, 0, pick.Disaggregated},
		{"short, 2,048 tokens left", pick.IfShort, tokens - 2048, 0, pick.Disaggregated},
		{"short, 2,032 tokens left", pick.IfShort, tokens - 2032, 0, pick.KeptShort},
		{"short, all held", pick.IfShort, tokens, 0, pick.KeptShort},
		{"busy, at the line", pick.IfPrefillBusy, 0, 10_000, pick.Disaggregated},
		{"busy, over the line", pick.IfPrefillBusy, 0, 10_001, pick.KeptPrefillBusy},
		{"busy says nothing of short ones", pick.IfPrefillBusy, tokens, 0, pick.Disaggregated},
		{"either, short", pick.IfEither, tokens, 0, pick.KeptShort},
		{"either, busy", pick.IfEither, 0, 10_001, pick.KeptPrefillBusy},
		{"either, neither", pick.IfEither, 0, 10_000, pick.Disaggregated},
		{"faster, all held", pick.IfFaster, tokens, 0, pick.KeptFaster},
		{"faster, nothing held and nothing waits", pick.IfFaster, 0, 0, pick.KeptFaster}, // the transfer takes time
		{"slower than nobody", pick.IfFaster, tokens / 2, 10_000, pick.KeptFaster},
	} {
		for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
			t.Run(m.String()+"/"+tc.name, func(t *testing.T) {
				r := newRig(t, ttl, append(workers(1, 2, fleet.Prefill), workers(3, 2, fleet.Decode)...)...)
				o := pick.DefaultOptions()
				o.Model, o.Split.Condition, o.Split.BusyPrefillTokens = m, tc.condition, 10_000
				o.Transfer.SerialSeconds = 0.01
				r.picker.SetOptions(o)
				r.hold(t, 3, contents, index.Depth{Device: tc.held / blockSize})
				r.busy(1, tc.busy, 0)
				r.busy(2, tc.busy, 0)
				r.busy(4, 0, 1) // so that all else speaks for worker 3
				r.uses(4, nil)
				d := r.mustPick(t, pick.Request{Tokens: tokens, Chains: chains})
				if d.Mode != tc.want || d.Decode.ID != 3 || d.Moot {
					t.Fatalf("%v on %d, want %v on 3", d.Mode, d.Decode.ID, tc.want)
				}
				if d.Mode != pick.Disaggregated && (d.Prefill.ID != 3 || d.Matched != tc.held/blockSize) {
					t.Errorf("prefill on %d, matched %d", d.Prefill.ID, d.Matched)
				}
			})
		}
	}
}

// A short prompt is short as a share, too: 1,000 tokens of which nothing is held are
// all of it.
func TestShortPromptsThatAreAllNew(t *testing.T) {
	_, chains := promptOf(1, 62)
	r := newRig(t, ttl, worker(1, fleet.Prefill), worker(2, fleet.Decode))
	o := pick.DefaultOptions()
	o.Split.Condition = pick.IfShort
	r.picker.SetOptions(o)
	if d := r.mustPick(t, pick.Request{Tokens: 1000, Chains: chains}); d.Mode != pick.Disaggregated {
		t.Errorf("%v: Dynamo asks for less than 0.7 of the prompt as well", d.Mode)
	}
	o.Split.ShortRatio = 1.1 // so that the number of tokens decides alone
	r.picker.SetOptions(o)
	if d := r.mustPick(t, pick.Request{Tokens: 1000, Chains: chains}); d.Mode != pick.KeptShort {
		t.Errorf("%v, want kept_short", d.Mode)
	}
}

// Where the data plane needs a pair, a prompt that would be kept goes to an
// aggregated worker, or the condition is moot.
func TestNeedsPair(t *testing.T) {
	contents, chains := promptOf(1, 10)
	for _, tc := range []struct {
		name string
		busy int // tokens that wait on an aggregated worker, -1: there is none
		want pick.Mode
		moot bool
	}{
		{"an aggregated worker that is dearer than a pair", 20 * blockSize, pick.OnAggregated, false},
		{"one that is far dearer", 100 * blockSize, pick.Disaggregated, true},
		{"none", -1, pick.Disaggregated, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pool := []fleet.Worker{worker(1, fleet.Prefill), worker(2, fleet.Decode)}
			if tc.busy >= 0 {
				pool = append(pool, worker(3, fleet.Aggregated))
			}
			r := newRig(t, ttl, pool...)
			o := pick.DefaultOptions()
			o.Split.Condition, o.Split.NeedsPair = pick.IfShort, true
			r.picker.SetOptions(o)
			r.hold(t, 2, contents, index.Depth{Device: 10})
			r.busy(3, max(0, tc.busy), 0)
			d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
			if d.Mode != tc.want || d.Moot != tc.moot || d.Held != pick.KeptShort {
				t.Errorf("%v for %v, moot %v; want %v, moot %v", d.Mode, d.Held, d.Moot, tc.want, tc.moot)
			}
		})
	}
}

// Where all prefill workers are over their bound, a prompt that would be kept on its
// decode worker anyway does not have to wait for them.
func TestConditionsComeBeforeBounds(t *testing.T) {
	contents, chains := promptOf(1, 100)
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		for _, tc := range []struct {
			condition pick.Condition
			held      int // blocks, by the decode worker
			want      pick.Mode
			err       error
		}{
			{pick.Never, 100, 0, pick.ErrBusy},
			{pick.IfShort, 0, 0, pick.ErrBusy},
			{pick.IfShort, 100, pick.KeptShort, nil},
			{pick.IfPrefillBusy, 0, pick.KeptPrefillBusy, nil},
			{pick.IfEither, 0, pick.KeptPrefillBusy, nil},
			{pick.IfFaster, 0, pick.KeptFaster, nil},
		} {
			r := newRig(t, ttl, worker(1, fleet.Prefill), worker(2, fleet.Decode))
			o := pick.DefaultOptions()
			o.Model, o.Split.Condition, o.Split.BusyPrefillTokens, o.MaxPrefillTokens = m, tc.condition, 100, 100
			r.picker.SetOptions(o)
			r.hold(t, 2, contents, index.Depth{Device: tc.held})
			r.busy(1, 101, 0)
			d, err := r.pick(pick.Request{Tokens: 100 * blockSize, Chains: chains})
			if !errors.Is(err, tc.err) || err == nil && d.Mode != tc.want {
				t.Errorf("%v, condition %d, %d held: %v, %v; want %v, %v", m, tc.condition, tc.held, d.Mode, err, tc.want, tc.err)
			}
		}
	}
}

// The busy line may be a share of what a worker computes in one step.
func TestBusyShare(t *testing.T) {
	p := worker(1, fleet.Prefill)
	p.Says = fleet.Say(fleet.Advertised{MaxBatchedTokens: 1000})
	r := newRig(t, ttl, p, worker(2, fleet.Decode))
	o := pick.DefaultOptions()
	o.Split.Condition, o.Split.BusyPrefillShare = pick.IfPrefillBusy, 2
	r.picker.SetOptions(o)
	r.busy(1, 2000, 0)
	if d := r.mustPick(t, pick.Request{Tokens: 100}); d.Mode != pick.Disaggregated {
		t.Errorf("at the line: %v", d.Mode)
	}
	r.busy(1, 1, 0)
	if d := r.mustPick(t, pick.Request{Tokens: 100}); d.Mode != pick.KeptPrefillBusy {
		t.Errorf("over the line: %v", d.Mode)
	}
}

// What is estimated to be slower is tried now and then, so that the estimate of it
// does not last for ever.
func TestTheSlowerWayIsTried(t *testing.T) {
	for name, serial := range map[string]float64{"a slow transfer": 10, "a quick one": 1e-9} {
		r := newRig(t, 0, worker(1, fleet.Prefill), worker(2, fleet.Decode))
		o := pick.DefaultOptions()
		o.Split.Condition, o.Transfer.SerialSeconds = pick.IfFaster, serial
		r.picker.SetOptions(o)
		if serial < 1 {
			r.busy(2, 10_000, 0)
		}
		const n = 6400
		modes := map[pick.Mode]int{}
		for range n {
			d := r.mustPick(t, pick.Request{Tokens: 160})
			modes[d.Mode]++
			d.Reservation.Release()
		}
		rare, often := pick.Disaggregated, pick.KeptFaster
		if serial < 1 { // the decode worker has much to compute
			rare, often = often, rare
		}
		if modes[rare] < n/64*6/10 || modes[rare] > n/64*15/10 || modes[rare]+modes[often] != n {
			t.Errorf("%s: %v, want %d of %v", name, modes, n/64, rare)
		}
	}
}

// A decode worker that is over the bound for prompts keeps none.
func TestBusyDecodeWorkersKeepNothing(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, ttl, worker(1, fleet.Prefill), worker(2, fleet.Decode))
	o := pick.DefaultOptions()
	o.Split.Condition, o.MaxPrefillTokens = pick.IfShort, 100
	r.picker.SetOptions(o)
	r.hold(t, 2, contents, index.Depth{Device: 10})
	r.busy(2, 101, 0)
	if d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains}); d.Mode != pick.Disaggregated {
		t.Errorf("%v, want disaggregated", d.Mode)
	}
}

// Without prefill workers the decode worker that holds the prompt computes it.
func TestAloneGoesToTheHolder(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, ttl, workers(1, 3, fleet.Decode)...)
	r.hold(t, 2, contents, index.Depth{Device: 8})
	if d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains}); d.Mode != pick.NoPrefillReady || d.Decode.ID != 2 {
		t.Errorf("%v on %d, want no_prefill_ready on 2", d.Mode, d.Decode.ID)
	}
}

// In a pool of both kinds a pair is charged with what transfers were seen to take.
func TestLearnedTransfersCount(t *testing.T) {
	r := newRig(t, 0, worker(1, fleet.Prefill), worker(2, fleet.Decode), worker(3, fleet.Aggregated))
	r.picker.SetOptions(pick.DefaultOptions())
	aggregated := r.busy(3, 100_000, 0) // so that pairs are taken while it is learned
	now := start
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 { // 0.1 ms a token, and 0.5 s for the transfer
		tokens := 500 + random.IntN(4000)
		d, err := r.picker.Pick(&pick.Request{Tokens: tokens}, now, r.random, &r.scratch)
		if err != nil || d.Mode != pick.Disaggregated {
			t.Fatalf("%v, %v", d.Mode, err)
		}
		now = now.Add(time.Duration(tokens)*100*time.Microsecond + 500*time.Millisecond)
		d.PrefillDone(now)
		d.Release(now)
	}
	aggregated.Release()
	r.busy(3, 1500, 0) // 0.15 s of work: less than a transfer
	d, err := r.picker.Pick(&pick.Request{Tokens: 1000}, now, r.random, &r.scratch)
	if err != nil || d.Mode != pick.OnAggregated {
		serial, perToken, n := r.load.TransferEstimate()
		t.Errorf("%v, %v; a transfer takes %v s and %v s a token, by %d pairs", d.Mode, err, serial, perToken, n)
	}
}
