package pick

// Options say what a decision weighs, and what it may do. The names of the weights
// are those of Dynamo's router (dynamo.md 4.2).
type Options struct {
	// OverlapScoreCredit is the prefill work, in blocks, that a block in device
	// memory saves; 0 leaves what workers hold out of account, on all tiers.
	OverlapScoreCredit float64
	// HostCacheHitWeight is the same for a block in host memory.
	HostCacheHitWeight float64
	// DiskCacheHitWeight is the same for a block on disk or outside the worker.
	DiskCacheHitWeight float64
	// PrefillLoadScale is how many blocks in use a block of prefill work counts.
	PrefillLoadScale float64
	// Temperature above 0 takes a worker by chance, cheap ones more often.
	Temperature float64

	// Split says when a prefill worker is named.
	Split Split

	// MaxPrefillTokens is how many prompt tokens may wait on a worker before it gets
	// no more prompts; MaxDecodeBlocks is how many blocks its requests may use
	// before it gets no more of them. 0: no bound.
	MaxPrefillTokens, MaxDecodeBlocks int
}

// Split says when a prefill worker computes the prompt.
type Split uint8

// Ways to split.
const (
	SplitWhenReady Split = iota // while one is ready
	SplitRequired               // always: without one there is no decision
	SplitNever                  // never: the worker that decodes computes the prompt
)

// DefaultOptions are Dynamo's defaults (dynamo.md 4.2), without bounds.
func DefaultOptions() Options {
	return Options{OverlapScoreCredit: 1, HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25, PrefillLoadScale: 1}
}

// SetOptions takes other options into use, for decisions from now on.
func (p *Picker) SetOptions(o Options) {
	if o.OverlapScoreCredit == 0 {
		o.HostCacheHitWeight, o.DiskCacheHitWeight = 0, 0
	}
	p.options.Store(&o)
}
