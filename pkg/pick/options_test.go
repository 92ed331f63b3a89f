package pick_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// With a temperature workers are taken with the chances of dynamo.md 4.1.
func TestTemperature(t *testing.T) {
	const draws, temperature = 40_000, 0.5
	r := newRig(t, 0, worker(1, fleet.Aggregated), worker(2, fleet.Aggregated), worker(3, fleet.Aggregated))
	r.random = rand.New(rand.NewPCG(1, 2)).IntN
	r.busy(2, 0, 4)
	r.busy(3, 0, 8) // costs are 1, 5 and 9
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	o.Dynamo.Temperature = temperature
	r.picker.SetOptions(o)
	taken := map[uint64]float64{}
	for range draws {
		d := r.mustPick(t, pick.Request{Tokens: 1})
		taken[d.Decode.ID]++
		d.Reservation.Release()
	}
	sum := 1 + math.Exp(-0.5/temperature) + math.Exp(-1/temperature)
	for id, want := range map[uint64]float64{1: 1 / sum, 2: math.Exp(-0.5/temperature) / sum, 3: math.Exp(-1/temperature) / sum} {
		if got := taken[id] / draws; math.Abs(got-want) > 0.015 { // five standard deviations are 0.0125
			t.Errorf("worker %d was taken %.3f of the times, want %.3f", id, got, want)
		}
	}
}

// A temperature changes which workers are taken, not whether a request is split,
// and equal costs get equal chances.
func TestTemperatureOnPairs(t *testing.T) {
	r := newRig(t, 0, worker(1, fleet.Prefill), worker(2, fleet.Prefill), worker(3, fleet.Decode), worker(4, fleet.Decode))
	r.random = rand.New(rand.NewPCG(3, 4)).IntN
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	o.Dynamo.Temperature = 2
	r.picker.SetOptions(o)
	contents, chains := promptOf(1, 4)
	r.hold(t, 1, contents, index.Depth{Device: 4})
	taken := map[[2]uint64]int{}
	for range 2000 {
		d := r.mustPick(t, pick.Request{Tokens: 64, Chains: chains, NoGuess: true})
		if d.Mode != pick.Disaggregated {
			t.Fatalf("mode %v", d.Mode)
		}
		if want := map[uint64]int{1: 4, 2: 0}[d.Prefill.ID]; d.Matched != want {
			t.Fatalf("prefill worker %d matched %d blocks, want %d", d.Prefill.ID, d.Matched, want)
		}
		taken[[2]uint64{d.Prefill.ID, d.Decode.ID}]++
		d.Reservation.Release()
	}
	// exp(-1/2) to 1 for the prefill workers: 0.62 of the requests go to the holder.
	if holder := taken[[2]uint64{1, 3}] + taken[[2]uint64{1, 4}]; holder < 1100 || holder > 1400 {
		t.Errorf("the holder got %d of 2000, want about 1245", holder)
	}
	if len(taken) != 4 {
		t.Errorf("pairs taken: %v, want all four", taken)
	}
}

// Options take effect on the next decision, and a bound leaves prompt-less
// requests alone.
func TestBounds(t *testing.T) {
	r := newRig(t, 0, worker(1, fleet.Aggregated))
	r.busy(1, 100, 0)
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	o.MaxPrefillTokens = 100
	r.picker.SetOptions(o)
	r.mustPick(t, pick.Request{Tokens: 1}).Reservation.Release()
	o.MaxPrefillTokens = 99
	r.picker.SetOptions(o)
	if _, err := r.pick(pick.Request{Tokens: 1}); !errors.Is(err, pick.ErrBusy) {
		t.Errorf("over the bound: %v, want ErrBusy", err)
	}
	r.mustPick(t, pick.Request{PromptLess: true}).Reservation.Release()
}

// TestTracksOutput: it is a knob of the Dynamo model. What the output uses then makes
// a worker dearer, and less so the nearer its end is.
func TestTracksOutput(t *testing.T) {
	r := newRig(t, 0, worker(1, fleet.Aggregated), worker(2, fleet.Aggregated))
	for _, tc := range []struct {
		model pick.Model
		knob  bool
		want  bool
	}{{pick.Congestion, false, false}, {pick.Congestion, true, false}, {pick.Dynamo, false, false}, {pick.Dynamo, true, true}} {
		o := pick.DefaultOptions()
		o.Model, o.Dynamo.TrackOutputBlocks = tc.model, tc.knob
		r.picker.SetOptions(o)
		if got := r.picker.TracksOutput(); got != tc.want {
			t.Errorf("%v, knob %v: %v", tc.model, tc.knob, got)
		}
	}
	first := r.mustPick(t, pick.Request{Tokens: 1})
	second := r.mustPick(t, pick.Request{Tokens: 1})
	if first.Decode.ID == second.Decode.ID {
		t.Fatal("both requests are on one worker")
	}
	for _, d := range []pick.Decision{first, second} {
		d.Reservation.PrefillDone(time.Unix(1, 0))
	}
	first.Reservation.Output(20, 1)
	second.Reservation.Output(10, 1)
	if d := r.mustPick(t, pick.Request{Tokens: 1}); d.Decode.ID != second.Decode.ID {
		t.Error("the worker with the longer output got the next request")
	} else {
		d.Reservation.Release()
	}
	first.Reservation.Output(25, 0.1)
	if d := r.mustPick(t, pick.Request{Tokens: 1}); d.Decode.ID != first.Decode.ID {
		t.Error("the worker whose output is nearly over did not get the next request")
	}
}
