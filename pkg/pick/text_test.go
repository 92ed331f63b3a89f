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
