package pick_test

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// A prompt without token ids goes where its text went before, while that is
// remembered and the worker has not left.
func TestTextAffinity(t *testing.T) {
	_, text := promptOf(1, 40)
	_, other := promptOf(2, 40)
	const tokens = 4000
	ask := pick.Request{Tokens: tokens, Text: text, TextBlockTokens: 64}
	pool := append(workers(1, 8, fleet.Prefill), workers(101, 1, fleet.Decode)...)
	r := newRig(t, time.Hour, pool...)
	r.picker.RememberTexts(index.NewApproximation(ttl, 1<<20))
	first := r.mustPick(t, ask)
	first.Reservation.Release()
	if first.Matched != 0 {
		t.Errorf("%d blocks match before anything is known", first.Matched)
	}
	for range 20 {
		d := r.mustPick(t, ask)
		d.Reservation.Release()
		if want := 40 * 64 / blockSize; d.Prefill.Key != first.Prefill.Key || d.Matched != want || d.Total != 0 {
			t.Fatalf("%v with %d of %d blocks, want %v with %d", d.Prefill.Key, d.Matched, d.Total, first.Prefill.Key, want)
		}
	}
	if n := r.guessed(t, first.Prefill.ID, text); n != 0 {
		t.Errorf("%d runs of text are taken for blocks", n)
	}
	ask.Text = other
	if d := r.mustPick(t, ask); d.Matched != 0 {
		t.Errorf("%d blocks of another text match", d.Matched)
	} else {
		d.Reservation.Release()
	}
	ask.Text = text
	r.picker.Forget(first.Prefill.Key)
	if d := r.mustPick(t, ask); d.Matched != 0 {
		t.Errorf("%d blocks match on a worker that lost them", d.Matched)
	} else {
		d.Reservation.Release()
	}
}

// Where there are no events, whoever computed a prompt is taken to hold it; beside
// events a decode worker is not, for it would not tell.
func TestWhoIsRemembered(t *testing.T) {
	_, chains := promptOf(1, 10)
	for _, tc := range []struct {
		name  string
		alone bool
		split pick.Split
		pool  []fleet.Worker
		want  int // blocks that match the second time
	}{
		{"approximate, no prefill worker", true, pick.SplitWhenReady, workers(1, 3, fleet.Decode), 10},
		{"approximate, split off", true, pick.SplitNever, workers(1, 3, fleet.Decode), 10},
		{"beside events, no prefill worker", false, pick.SplitWhenReady, workers(1, 3, fleet.Decode), 0},
		{"beside events, aggregated", false, pick.SplitWhenReady, workers(1, 3, fleet.Aggregated), 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, ttl)
			if tc.alone {
				r.guesses = index.NewApproximation(ttl, 1<<20)
				r.picker = pick.New(r.index, r.guesses, r.load, blockSize)
			}
			o := pick.DefaultOptions()
			o.Split.Mode = tc.split
			r.picker.SetOptions(o)
			if err := r.picker.SetFleet(snapshot(t, tc.pool...)); err != nil {
				t.Fatal(err)
			}
			first := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
			first.Release(start)
			again := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
			if again.Matched != tc.want || tc.want > 0 && again.Prefill.Key != first.Prefill.Key {
				t.Errorf("matched %d on %d, first on %d; want %d", again.Matched, again.Prefill.ID, first.Prefill.ID, tc.want)
			}
		})
	}
}
