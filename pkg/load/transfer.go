package load

import "math"

// Of what is learned of transfers.
const (
	transferMemory = 256  // samples, over which the fit is a mean
	workMemory     = 64   // samples of a worker, over which its own time is taken out
	minExpected    = 1e-3 // seconds: shorter times are as exact as this one
	minApart       = 0.01 // share of the prompts' squares that work does not tell, to tell a time per token
	minSure        = 2    // standard errors that a time per token must be above 0
)

// TransferEstimate is how long the transfer from prefill to decode worker takes, as
// learned from the pairs that produced output: seconds whatever the length, and
// seconds for every token of the prompt. Without samples it is not known. The latter
// is 0 where computing and transfer cannot be told apart, as when nothing is cached:
// the workers' paces have it in them then.
func (t *Table) TransferEstimate() (serialSeconds, secondsPerToken float64, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transfer.serial, t.transfer.perToken, t.transfer.samples
}

// Terms of the fit.
const (
	termOne = iota
	termPrompt
	termSeconds
	terms
)

// transfer fits the time to the first output of pairs by least squares that forget:
//
//	seconds = serial + perToken*prompt + pace*work
//
// with a pace of each worker's own. What is learned as a worker's pace has no part in
// it, since that comes from the same samples less what is fitted here: the two would
// drift together. Instead what goes with the work on a worker is taken out of all
// terms first (Frisch and Waugh), and the rest is fitted. The longer something takes,
// the more it varies, so samples weigh by what was expected.
type transfer struct {
	sums             [terms][terms]float64 // of weighted products of the rests
	prompts          float64               // of weighted squares of whole prompts
	n                float64               // of samples, those that still count
	serial, perToken float64
	samples          int
}

// byWork is what goes with the work on a worker: weighted sums that forget.
type byWork struct {
	squares float64        // of work
	by      [terms]float64 // of work times each term
}

// seconds returns what a transfer is expected to take.
func (f *transfer) seconds(prompt int) float64 { return f.serial + f.perToken*float64(prompt) }

func (f *transfer) take(b *byWork, seconds, prompt, work, expected float64) {
	const keep, keepWork = 1 - 1.0/transferMemory, 1 - 1.0/workMemory
	x := [terms]float64{1, prompt, seconds}
	expected = max(minExpected, expected)
	weight := 1 / (expected * expected)
	rest, counts := b.rest(x, work, weight)
	for i := range x {
		for j := range x {
			f.sums[i][j] = f.sums[i][j]*keep + counts*rest[i]*rest[j]
		}
		b.by[i] = b.by[i]*keepWork + weight*work*x[i]
	}
	b.squares = b.squares*keepWork + weight*work*work
	f.prompts = f.prompts*keep + weight*prompt*prompt
	f.n = f.n*keep + 1
	if f.samples++; f.samples >= sureSamples {
		f.fit()
	}
}

// rest returns the terms without what goes with the work, by the samples before, and
// the weight with which that counts: less when those samples say little. With it the
// sums are the exact ones of a fit, as far as nothing is forgotten.
func (b *byWork) rest(x [terms]float64, work, weight float64) (rest [terms]float64, counts float64) {
	switch {
	case work == 0:
		return x, weight
	case b.squares <= 0:
		return rest, 0
	}
	for i := range x {
		rest[i] = x[i] - b.by[i]/b.squares*work
	}
	return rest, weight * b.squares / (b.squares + weight*work*work)
}

// fit takes the best of the fits in which nothing is below 0, and in which a time per
// token is sure.
func (f *transfer) fit() {
	one, prompt, both := f.sums[termOne][termOne], f.sums[termPrompt][termPrompt], f.sums[termOne][termPrompt]
	bySerial, byPrompt := f.sums[termOne][termSeconds], f.sums[termPrompt][termSeconds]
	least := math.Inf(1)
	f.serial, f.perToken = 0, 0
	try := func(serial, perToken, apart float64) {
		if !(serial >= 0 && perToken >= 0) {
			return // NaN is none either
		}
		e := f.residual(serial, perToken)
		if perToken > 0 && !f.sure(perToken, apart, e) {
			return
		}
		if e < least {
			least, f.serial, f.perToken = e, serial, perToken
		}
	}
	try(0, 0, 0)
	try(bySerial/one, 0, 0)
	try(0, byPrompt/prompt, prompt)
	det := one*prompt - both*both
	try((prompt*bySerial-both*byPrompt)/det, (one*byPrompt-both*bySerial)/det, det/one)
}

// sure says whether a time per token is told by the samples: apart is the squares of
// the prompts without what the other terms tell, residual what the fit leaves.
func (f *transfer) sure(perToken, apart, residual float64) bool {
	if !(apart >= minApart*f.prompts) {
		return false
	}
	return perToken*perToken*apart*f.n >= minSure*minSure*residual
}

// residual is the sum of squares that a fit leaves.
func (f *transfer) residual(serial, perToken float64) (e float64) {
	by := [terms]float64{-serial, -perToken, 1}
	for i, b := range by {
		for j, c := range by {
			e += b * c * f.sums[i][j]
		}
	}
	return max(0, e)
}
