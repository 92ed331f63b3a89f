package load

import (
	"math"
	"time"
)

// Of what is learned from the first outputs of requests.
const (
	paceMemory     = 32   // samples, over which a worker's pace is a mean
	transferMemory = 256  // the same of transfers
	minPaceTokens  = 64   // of a prompt: shorter ones take the time of a step, whatever their length
	minPaces       = 4    // samples before a pace is told
	sureSamples    = 16   // samples before an outlier is told from news
	outlier        = 10   // times as long as expected
	minExpected    = 1e-3 // seconds: shorter times are as exact as this one
	ridge          = 1e-4 // share by which a fit prefers a small time per transferred token
)

// pace is how long a worker takes for a token of a prompt, as sums that forget.
type pace struct {
	seconds, tokens float64
	samples         int
}

func (p *pace) take(seconds float64, tokens int) {
	const keep = 1 - 1.0/paceMemory
	p.seconds = p.seconds*keep + seconds
	p.tokens = p.tokens*keep + float64(tokens)
	p.samples++
}

// perToken returns seconds, 0 when they are not known.
func (p *pace) perToken() float64 {
	if p.tokens <= 0 || p.seconds <= 0 {
		return 0
	}
	return p.seconds / p.tokens
}

// learn takes in when the first output of a request came. The caller holds the lock.
//
// It came after the tokens that waited before it, its own, and for a pair the
// transfer. What a worker's word ended is no sample of it, but the output still is.
func (t *Table) learn(r *Reservation, now time.Time) {
	if r.at.IsZero() {
		return
	}
	seconds, pair := now.Sub(r.at).Seconds(), r.prefill != r.decode
	r.at = time.Time{}
	work := r.queued + r.tokens
	if seconds <= 0 || work < 0 || pair && r.prompt <= 0 {
		return
	}
	p, moved := &r.prefill.pace, 0.0
	if pair {
		moved = t.transfer.seconds(r.prompt)
	}
	if p.samples >= sureSamples && (!pair || t.transfer.samples >= sureSamples) {
		seconds = min(seconds, outlier*(moved+p.perToken()*float64(work)))
	}
	if r.tokens >= minPaceTokens {
		p.take(seconds-moved, work)
		if p.samples >= minPaces {
			r.prefill.speed.Store(math.Float64bits(p.perToken()))
		}
	}
	if pair && p.perToken() > 0 {
		t.transfer.take(seconds, float64(r.prompt), p.perToken()*float64(work))
	}
}

// TransferEstimate is how long the transfer from prefill to decode worker takes, as
// learned from the pairs that produced output: seconds whatever the length, and
// seconds for every token of the prompt. Without samples it is not known.
func (t *Table) TransferEstimate() (serialSeconds, secondsPerToken float64, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transfer.serial, t.transfer.perToken, t.transfer.samples
}

// transfer fits the time to the first output of pairs by least squares that forget:
//
//	seconds = serial + perToken*prompt + scale*computed
//
// computed is what the worker's pace says the prompt takes. The pace is learned
// from the same samples and has part of the transfer in it at first: scale is what
// parts them. The longer something takes, the more it varies, so samples weigh by
// what was expected.
type transfer struct {
	sums             [4][4]float64 // of weighted products of 1, prompt, computed and seconds
	serial, perToken float64
	samples          int
}

// seconds returns what a transfer is expected to take.
func (f *transfer) seconds(prompt int) float64 { return f.serial + f.perToken*float64(prompt) }

func (f *transfer) take(seconds, prompt, computed float64) {
	const keep = 1 - 1.0/transferMemory
	x := [4]float64{1, prompt, computed, seconds}
	expected := max(minExpected, f.serial+f.perToken*prompt+computed)
	for i := range x {
		for j := range x {
			f.sums[i][j] = f.sums[i][j]*keep + x[i]*x[j]/(expected*expected)
		}
	}
	f.samples++
	f.fit()
}

// fit takes the best of the fits in which nothing is below 0.
func (f *transfer) fit() {
	least := math.Inf(1)
	f.serial, f.perToken = 0, 0
	for _, use := range [...][3]bool{{true, true, true}, {true, false, true}, {false, true, true}, {false, false, true}} {
		by, ok := f.solve(use)
		if !ok || by[0] < 0 || by[1] < 0 || by[2] < 0 {
			continue
		}
		if e := f.residual(by); e < least {
			least, f.serial, f.perToken = e, by[0], by[1]
		}
	}
}

// solve fits with some of the terms. Where the prompt tells the same as the
// computing does, the latter gets it.
func (f *transfer) solve(use [3]bool) (by [3]float64, ok bool) {
	var m [3][4]float64
	for i := range by {
		if !use[i] {
			m[i][i] = 1
			continue
		}
		for j := range by {
			if use[j] {
				m[i][j] = f.sums[i][j]
			}
		}
		m[i][3] = f.sums[i][3]
	}
	m[1][1] *= 1 + ridge
	for i := range by { // elimination; the matrix is symmetric and not negative
		if m[i][i] <= 1e-12*max(1e-9, f.sums[i][i]) {
			return by, false
		}
		for k := i + 1; k < len(by); k++ {
			q := m[k][i] / m[i][i]
			for j := i; j < len(m[k]); j++ {
				m[k][j] -= q * m[i][j]
			}
		}
	}
	for i := len(by) - 1; i >= 0; i-- {
		by[i] = m[i][3]
		for j := i + 1; j < len(by); j++ {
			by[i] -= m[i][j] * by[j]
		}
		by[i] /= m[i][i]
	}
	return by, true
}

// residual is the sum of squares that a fit leaves.
func (f *transfer) residual(by [3]float64) float64 {
	e := f.sums[3][3]
	for i, b := range by {
		e -= 2 * b * f.sums[i][3]
		for j, c := range by {
			e += b * c * f.sums[i][j]
		}
	}
	return e
}
