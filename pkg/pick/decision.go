package pick

import (
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Prefilled notes that the prompt has been computed, some time before: nothing is
// learned from when that is.
func (d *Decision) Prefilled(now time.Time) {
	if d.Reservation != nil {
		d.Reservation.PrefillEnded()
	}
	d.guess.Computed(now)
}

// PrefillDone says that the first output was seen: the prompt is computed, and its
// worker about to tell what it holds of it. Of this and the methods below only the
// first call has an effect on what is expected of the worker. They must not be called
// at once, nor on copies of a decision. On one that failed they do nothing.
func (d *Decision) PrefillDone(now time.Time) {
	if d.Reservation != nil {
		d.Reservation.PrefillDone(now)
	}
	d.guess.Computed(now)
}

// Moved says that another worker serves the request instead of Decode. If that one was
// to compute the prompt, it is not expected to hold it any more. See
// [load.Reservation.Moved].
func (d *Decision) Moved(to fleet.Key, now time.Time) {
	if d.Reservation != nil {
		d.Reservation = d.Reservation.Moved(to)
	}
	if d.Prefill.Key == d.Decode.Key {
		d.guess.GivenUp(now)
	}
}

// Release ends the request. Where no output was seen, the prompt may never be computed.
func (d *Decision) Release(now time.Time) {
	if d.Reservation != nil {
		d.Reservation.Release()
	}
	d.guess.GivenUp(now)
}
