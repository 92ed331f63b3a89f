package kube

import (
	"fmt"
	"strconv"
	"time"
)

const (
	sampleEvery  = 5 * time.Second
	windowLength = 5 * time.Minute

	// somePrompts are enough to tell that something is wrong rather than young.
	somePrompts = 20
	// settled is how long a quiet pool is watched for the same.
	settled = time.Minute
)

// window holds the observations of the last minutes, one per step. The zero value
// is empty. It is not safe for concurrent use.
type window struct {
	samples []sample // oldest first
	busy    figures  // of the last window with some prompts
}

type sample struct {
	at  time.Time
	obs Observation
}

// figures are what happened within a window.
type figures struct {
	Span                     time.Duration
	Prompts, Known           uint64
	Total, Matched, Best     uint64 // blocks
	Found                    uint64 // prompts of which a worker held something by its events
	Received, StrangerEvents uint64
}

// add takes the observation of one moment in, and lets go of those that are too
// old.
func (w *window) add(at time.Time, obs Observation) {
	w.samples = append(w.samples, sample{at, obs})
	const most = int(windowLength/sampleEvery) + 1
	drop := max(0, len(w.samples)-most)
	for drop < len(w.samples)-1 && at.Sub(w.samples[drop].at) > windowLength {
		drop++
	}
	w.samples = w.samples[drop:]
	if f := w.figures(); f.Prompts > somePrompts {
		w.busy = f
	}
}

// figures returns what happened between the oldest and the newest observation.
func (w *window) figures() figures {
	if len(w.samples) == 0 {
		return figures{}
	}
	a, b := &w.samples[0], &w.samples[len(w.samples)-1]
	return figures{
		Span:           b.at.Sub(a.at),
		Prompts:        grown(a.obs.Prompts, b.obs.Prompts),
		Known:          grown(a.obs.KnownPrompts, b.obs.KnownPrompts),
		Total:          grown(a.obs.TotalBlocks, b.obs.TotalBlocks),
		Matched:        grown(a.obs.MatchedBlocks, b.obs.MatchedBlocks),
		Best:           grown(a.obs.BestBlocks, b.obs.BestBlocks),
		Found:          grown(a.obs.FoundPrompts, b.obs.FoundPrompts),
		Received:       grown(a.obs.Events.Received, b.obs.Events.Received),
		StrangerEvents: grown(a.obs.StrangerEvents, b.obs.StrangerEvents),
	}
}

// grown guards against a counter that began anew.
func grown(before, after uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}

// judged returns the figures that say how routing goes: those of the window or,
// when the pool is idle, those of the last window with enough prompts. A verdict
// must not change only because nobody asks anything.
func (w *window) judged() figures {
	now := w.figures()
	works := now.Found > 0 && now.Known*2 >= now.Prompts
	if now.Prompts > somePrompts || works || w.busy.Prompts == 0 {
		return now
	}
	return w.busy
}

// enough says whether a fault would show by now.
func (f figures) enough() bool {
	return f.Prompts > somePrompts || f.Prompts > 0 && f.Span >= settled
}

// full says whether the figures are those of a whole window.
func (f figures) full() bool { return f.Span >= windowLength-sampleEvery }

// ours are the events of workers of the pool.
func (f figures) ours() uint64 { return f.Received - min(f.Received, f.StrangerEvents) }

// hit is the share of blocks that the picked workers held, empty without blocks.
func (f figures) hit() string { return rate(f.Matched, f.Total) }

// ceiling is the share that the best worker of the pool held.
func (f figures) ceiling() string { return rate(f.Best, f.Total) }

// rate writes a share like 83.4%.
func rate(part, whole uint64) string {
	if whole == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(min(part, whole))/float64(whole), 'f', 1, 64) + "%"
}

// span is how long the figures cover, for people.
func (f figures) span() string {
	if s := f.Span.Round(time.Second); s < 2*time.Minute {
		return fmt.Sprintf("%d seconds", int(s/time.Second))
	}
	return fmt.Sprintf("%d minutes", int(f.Span.Round(time.Minute)/time.Minute))
}
