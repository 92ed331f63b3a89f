package load

import (
	"math"
	"time"
)

// Of what is learned from the first outputs of requests.
const (
	paceMemory    = 32   // samples, over which a worker's pace is a mean
	minPaceTokens = 64   // of a prompt: shorter ones take the time of a step, whatever their length
	minPaces      = 4    // samples before a pace is told
	sureSamples   = 16   // samples before an outlier is told from news
	leastWork     = 0.03 // share of the time to the first output that is computing
	outlier       = 10   // times as long as expected, or as short
)

// pace is how long a worker takes for a token of a prompt, as sums that forget.
type pace struct {
	seconds, tokens float64
	whole           float64 // seconds, those of transfers with them
	samples         int
	pairs           byWork
}

// take takes in a sample, moved seconds of which are the transfer's.
func (p *pace) take(seconds, moved, tokens float64) {
	const keep = 1 - 1.0/paceMemory
	p.whole = p.whole*keep + seconds
	p.seconds = p.seconds*keep + seconds - moved
	p.tokens = p.tokens*keep + tokens
	p.samples++
}

// perToken returns seconds, 0 when they are not known. A transfer never takes all
// of the time, whatever it is estimated to take.
func (p *pace) perToken() float64 {
	if p.tokens <= 0 {
		return 0
	}
	return max(p.seconds, p.whole*leastWork) / p.tokens
}

// learn takes in when the first output of a request came. The caller holds the lock.
//
// It came after the tokens that waited before it, its own, and for a pair the
// transfer. What a worker's word ended is no sample of it, but the output still is.
// A sample that took ten times as long as expected, or a tenth of it, is taken for
// one that took just that: a worker that hung, or a queue that was not there.
func (t *Table) learn(r *Reservation, now time.Time) {
	if r.at.IsZero() {
		return
	}
	seconds, pair := now.Sub(r.at).Seconds(), r.prefill != r.decode
	r.at = time.Time{}
	work := r.queued + float64(r.tokens)
	if seconds <= 0 || work < 0 || pair && r.prompt <= 0 {
		return
	}
	p, moved := &r.prefill.pace, 0.0
	if pair {
		moved = t.transfer.seconds(r.prompt)
	}
	if speed := p.perToken(); speed > 0 && p.samples >= sureSamples {
		if !pair || t.transfer.samples >= sureSamples {
			seconds = min(seconds, outlier*(moved+speed*work))
		}
		work = min(work, outlier*seconds/speed)
	}
	if r.tokens >= minPaceTokens {
		p.take(seconds, moved, work)
		if p.samples >= minPaces {
			r.prefill.speed.Store(math.Float64bits(p.perToken()))
		}
	}
	if speed := p.perToken(); pair && speed > 0 {
		t.transfer.take(&p.pairs, seconds, float64(r.prompt), work, moved+speed*work)
	}
}
