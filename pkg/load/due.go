package load

import (
	"container/heap"
	"math"
	"time"
)

// What a prompt is taken to take on a worker whose pace is not known: about the
// slowest that is in use (engines.md 5), and long enough to be no guess of a short one.
const (
	slowPace  = 1e-3 // seconds per token
	leastSlow = 10 * time.Second
)

// takes is how long a worker takes for so many prompt tokens.
func (w *Worker) takes(tokens float64) time.Duration {
	if perToken := math.Float64frombits(w.speed.Load()); perToken > 0 {
		return inSeconds(tokens * perToken)
	}
	return max(leastSlow, inSeconds(tokens*slowPace))
}

// inSeconds is at most an hour.
func inSeconds(s float64) time.Duration {
	return time.Duration(min(max(0, s), time.Hour.Seconds()) * float64(time.Second))
}

// dues are the reservations whose prompts come off at a time, the earliest first: a
// heap. Without it the prompt of a response that comes as a whole would count for as
// long as its output takes.
type dues []*Reservation

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].duePos, d[j].duePos = i+1, j+1
}

func (d *dues) Push(x any) {
	r := x.(*Reservation)
	*d = append(*d, r)
	r.duePos = len(*d)
}

func (d *dues) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	r.duePos = 0
	return r
}

// await lets the prompt of a reservation come off when it is due.
func (t *Table) await(r *Reservation) { heap.Push(&t.dues, r) }

func (t *Table) awaitNoMore(r *Reservation) {
	if r.duePos > 0 {
		heap.Remove(&t.dues, r.duePos-1)
	}
}

// endDue takes off the prompts that are due. The caller holds the lock.
func (t *Table) endDue(now time.Time) {
	for len(t.dues) > 0 && !t.dues[0].due.After(now) {
		r := t.dues[0]
		t.rho.advance(r.due)
		r.prefill.begun(r.due)
		r.prefillDone()
	}
}
