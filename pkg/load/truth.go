package load

import (
	"math"
	"time"
)

// Of the mean prompt of a pool.
const (
	promptMemory  = 256  // bookings, over which it is a mean
	guessedPrompt = 1024 // tokens, before there were any
)

// promptMean is how many tokens of a prompt are to be computed, of those booked lately.
type promptMean struct{ tokens, n float64 }

func (m *promptMean) take(tokens int) {
	if tokens > 0 {
		m.n = min(promptMemory, m.n+1)
		m.tokens += (float64(tokens) - m.tokens) / m.n
	}
}

func (m *promptMean) read() float64 {
	if m.n == 0 {
		return guessedPrompt
	}
	return m.tokens
}

// extra is by how much an engine's metrics say that there is more on a worker than is
// booked. It only ever makes the worker dearer: what is on its way there is in no
// metric yet.
type extra struct {
	waits   correction // prompt tokens of requests in the engine's queue that nobody told of
	prompt  float64    // tokens that one of them was taken for
	blocks  correction // KV blocks in use
	stepped time.Time  // when the engine last stated its queue in tokens, which says more
}

// count takes in how many requests an engine's queue has. Those beyond the prompts
// that are booked were placed by somebody who tells nobody.
func (x *extra) count(waiting Reading, prompts int64, mean float64) {
	unknown := max(0, int64(waiting.N)-prompts)
	x.prompt = mean
	x.waits = correction{by: int64(math.Round(min(maxStated, float64(unknown)*mean))), at: waiting.At}
}

// use takes in how many KV blocks an engine has in use, and when it said so.
func (x *extra) use(blocks, booked int64, at time.Time) {
	x.blocks = correction{by: max(0, blocks-booked), at: at}
}

// fade works out what is left of it.
func (x *extra) fade(now time.Time, blocksFor time.Duration) {
	x.waits.fade(now, fadeTime)
	if fresh(x.stepped, now, fadeTime) {
		x.waits.now = 0
	}
	x.blocks.fade(now, blocksFor)
}

// prompts is how many requests waits stands for.
func (x *extra) prompts() int64 {
	if x.waits.now == 0 {
		return 0
	}
	return int64(math.Ceil(float64(x.waits.now) / x.prompt))
}

// tokens is the correction of what is booked, with that of the engine's own figure.
func (x *extra) tokens(queue int64) int64 {
	if x.waits.now == 0 {
		return queue
	}
	return max(queue, x.waits.now)
}

// blocksInUse returns how many KV blocks the engine has in use by the latest word on
// it, when that was said, and for how long it counts; no time when that is not known.
func (s *said) blocksInUse() (blocks int64, at time.Time, counts time.Duration) {
	switch {
	case s.kvBlocks <= 0:
		return 0, time.Time{}, fadeTime
	case s.used.Known() && !s.used.At.Before(s.use.at):
		return int64(min(s.used.N, uint64(s.kvBlocks))), s.used.At, useAge
	}
	return int64(math.Round(s.use.of * float64(s.kvBlocks))), s.use.at, fadeTime
}

// compare takes in what an engine said that it had not said before.
func (w *Worker) compare(before *said, mean float64) {
	o := &w.others
	if s := o.said.waiting; s.Known() && s != before.waiting {
		o.extra.count(s, w.own.prompts+int64(o.prompts), mean)
	}
	were, was, _ := before.blocksInUse()
	if blocks, at, _ := o.said.blocksInUse(); !at.IsZero() && (blocks != were || !at.Equal(was)) {
		o.extra.use(blocks, w.own.blocks+int64(o.foreign.Blocks), at)
	}
}
