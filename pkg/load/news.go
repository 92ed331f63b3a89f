package load

import (
	"math"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	// newsMemory is over which time the mean of others' bookings runs, as rho's.
	newsMemory = rhoMemory
	// maxLate bounds how late words are taken to be: clocks may differ.
	maxLate = 10 * time.Second
	// leastNews is how many tokens are worth to be looked at again.
	leastNews = 1e-6
)

// Ahead is how many prompt tokens a prompt would wait for that is placed there now:
// those that are outstanding, less what must have been computed since of the prompt
// under way, and those that others are expected to have placed and to tell of later.
// Of the prompt under way no more than the mean is taken off, so that a worker which
// hangs does not look idle. now is in Unix nanoseconds.
func (w *Worker) Ahead(now int64) float64 {
	queued, coming := float64(w.prefill.Load()), math.Float64frombits(w.coming.Load())
	return w.left(queued, now) + coming
}

// left is how many of the tokens that are outstanding are left to compute.
func (w *Worker) left(queued float64, now int64) float64 {
	prompts, perToken := w.prompts.Load(), math.Float64frombits(w.speed.Load())
	if queued <= 0 || prompts <= 0 || perToken <= 0 {
		return queued
	}
	done := max(0, float64(now-w.since.Load())/(1e9*perToken))
	return queued - min(done, queued/float64(prompts))
}

// news is what others may have placed on a worker without our having heard of it: a
// running mean of the tokens they place in a second, times the seconds until we hear.
type news struct {
	tokens float64
	at     time.Time
}

// heard takes in a booking that was told late.
func (n *news) heard(tokens int64, late time.Duration, now time.Time) {
	n.tokens = n.left(now) + float64(tokens)*late.Seconds()/newsMemory.Seconds()
	n.at = now
}

// left is what is left of the mean now.
func (n *news) left(now time.Time) float64 {
	if n.tokens == 0 {
		return 0
	}
	return n.tokens * math.Exp(-max(0, now.Sub(n.at).Seconds())/newsMemory.Seconds())
}

// learnNews takes in when a word of another router was said. tokens are those of a
// prompt that now counts.
func (t *Table) learnNews(k fleet.Key, r *Routed, tokens int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[k]
	if w == nil {
		return
	}
	late := time.Duration(0)
	if r.At > 0 {
		late = min(maxLate, max(0, now.Sub(time.UnixMilli(int64(min(r.At, 1<<53))))))
	}
	if r.Kind == PrefillDone || tokens > 0 && w.prefill.Load() == 0 {
		w.begun(now.Add(-late))
	}
	if tokens > 0 {
		w.news.heard(tokens, late, now)
	}
}

// begun notes that no prompt under way was begun before a time.
func (w *Worker) begun(at time.Time) { w.since.Store(max(w.since.Load(), at.UnixNano())) }

// putNews works out what is left of the news, which ends some day.
func (w *Worker) putNews(now time.Time) {
	left := w.news.left(now)
	if left < leastNews {
		left = 0
	}
	if bits := math.Float64bits(left); bits != w.coming.Load() {
		w.coming.Store(bits)
	}
}
