package pick

import "github.com/warmpath/warmpath/pkg/fleet"

// Options say what a decision weighs, and what it may do. An Options in use must not
// be changed.
type Options struct {
	Model  Model
	Dynamo DynamoKnobs // of the Dynamo model, and of its costs in explanations

	// Classes are knobs of their own for some classes of requests.
	Classes map[string]ClassKnobs

	Split    SplitOptions
	Transfer TransferOptions

	// MaxPrefillTokens is how many prompt tokens may wait on a worker before it gets
	// no more prompts; MaxDecodeBlocks is how many blocks its requests may use
	// before it gets no more of them. 0: no bound.
	MaxPrefillTokens, MaxDecodeBlocks int
	// The same as shares: of the tokens that a worker computes in one step, and of
	// the KV blocks that it has. They bind only workers of which that is known.
	MaxPrefillShare, MaxBlocksShare float64
}

// inUse are options with all knobs of each class.
type inUse struct {
	Options
	classes map[string]*DynamoKnobs
}

// Model is a way to put a price on a worker.
type Model uint8

// Models.
const (
	// Congestion charges the work that a request makes, and the work that waits as
	// far as the pool is not busy anyway (policy.md). It has no knobs.
	Congestion Model = iota
	// Dynamo is the cost of Dynamo's router (dynamo.md 4.1).
	Dynamo
	// NumModels is the number of models.
	NumModels = 2
)

// String returns the model as policies name it.
func (m Model) String() string { return [NumModels]string{"Congestion", "Dynamo"}[m] }

// DynamoKnobs are the weights of Dynamo's router, by its names (dynamo.md 4.2).
type DynamoKnobs struct {
	// OverlapScoreCredit is the prefill work, in blocks, that a block in device
	// memory saves; 0 leaves what workers hold out of account, on all tiers.
	OverlapScoreCredit float64
	// HostCacheHitWeight is the same for a block in host memory.
	HostCacheHitWeight float64
	// DiskCacheHitWeight is the same for a block on disk, or outside the worker.
	DiskCacheHitWeight float64
	// SharedCache: blocks outside workers are in a store that all workers read. Then
	// SharedCacheMultiplier is what one of them saves, on every worker alike that does
	// not hold it on its device.
	SharedCache           bool
	SharedCacheMultiplier float64
	// OverlapScoreCreditDecay takes credit from workers with much more prefill work
	// than the least loaded one.
	OverlapScoreCreditDecay float64
	// PrefillLoadScale is how many blocks in use a block of prefill work counts.
	PrefillLoadScale float64
	// DecodeActiveRequestWeight is how many blocks a request counts that decodes.
	DecodeActiveRequestWeight float64
	// Temperature above 0 takes a worker by chance, cheap ones more often.
	Temperature float64

	IgnoreKVReuse      bool // requests on a decode worker share no blocks (not assume-kv-reuse)
	IgnorePrefill      bool // prefill work does not count (not track-prefill-tokens)
	IgnoreActiveBlocks bool // blocks in use do not count (not track-active-blocks)
	TrackOutputBlocks  bool // blocks of the output count as it grows
}

// ClassKnobs replace some knobs for one class of requests. They have no effect in
// the Congestion model.
type ClassKnobs struct {
	OverlapScoreCredit, PrefillLoadScale, Temperature *float64 // nil: as for all
}

// DefaultDynamoKnobs are Dynamo's defaults (dynamo.md 4.2).
func DefaultDynamoKnobs() DynamoKnobs {
	return DynamoKnobs{
		OverlapScoreCredit: 1, HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25,
		SharedCacheMultiplier: 0.5, PrefillLoadScale: 1,
	}
}

// SplitOptions say when a prefill worker computes the prompt.
type SplitOptions struct {
	Mode  Split
	Order Order

	// Condition keeps a prompt on the decode worker when a split does not pay.
	Condition Condition
	// Of IfShort: a prompt stays when fewer than ShortTokens of it have to be computed
	// on the decode worker, and they are less than the share ShortRatio of it.
	ShortTokens int
	ShortRatio  float64
	// Of IfPrefillBusy: a prompt stays when more tokens wait on the prefill worker.
	// BusyPrefillShare is the same as a share of the tokens that the worker computes in
	// one step; 0: no bound.
	BusyPrefillTokens int
	BusyPrefillShare  float64

	// NeedsPair: the data plane cannot serve a request on a decode worker alone, as
	// Dynamo's in direct mode (dynamo-live.md section 4). A condition then chooses
	// aggregated workers where there are some, and has no effect where not.
	NeedsPair bool
}

// Split says when a prefill worker is named.
type Split uint8

// Ways to split.
const (
	SplitWhenReady Split = iota // while one is ready
	SplitRequired               // always: without one there is no decision
	SplitNever                  // never: the worker that decodes computes the prompt
)

// Order is how the two workers of a pair are found.
type Order uint8

// Orders.
const (
	Joint       Order = iota // the cheapest of all pairs
	DecodeFirst              // the cheapest decode worker, then the cheapest that goes with it
)

// Condition is when a prompt is kept on the decode worker.
type Condition uint8

// Conditions. Of them, IfShort, IfPrefillBusy and IfEither are Dynamo's (dynamo.md
// 4.4).
const (
	Never         Condition = iota
	IfShort                 // little of the prompt is to be computed
	IfPrefillBusy           // the prefill worker has much to do
	IfEither                // one of the two
	IfFaster                // the estimated time to the first token is less
)

// TransferOptions are what the transfer of KV blocks between two workers costs.
type TransferOptions struct {
	BytesPerToken  float64                     // of the prompt, transferred while it is computed; 0: not known
	BytesPerPrompt float64                     // transferred at its end: the state of hybrid models
	BytesPerSecond [fleet.NumDistances]float64 // by distance; 0: not known
	SerialSeconds  float64                     // what a transfer takes besides; learned where 0
}

// DefaultOptions price by congestion, split while a prefill worker is ready, and
// have no bounds.
func DefaultOptions() Options {
	return Options{Dynamo: DefaultDynamoKnobs(), Split: SplitOptions{ShortTokens: 2048, ShortRatio: 0.7}}
}

// SetOptions takes other options into use, for decisions from now on.
func (p *Picker) SetOptions(o Options) {
	o.Dynamo.settle()
	o.Transfer.settle()
	used := inUse{o, make(map[string]*DynamoKnobs, len(o.Classes))}
	for name, class := range o.Classes {
		k := o.Dynamo
		for _, v := range []struct{ to, from *float64 }{
			{&k.OverlapScoreCredit, class.OverlapScoreCredit}, {&k.PrefillLoadScale, class.PrefillLoadScale}, {&k.Temperature, class.Temperature},
		} {
			if v.from != nil {
				*v.to = *v.from
			}
		}
		k.settle()
		used.classes[name] = &k
	}
	p.options.Store(&used)
}

// settle makes a credit of 0 mean what it says, on all tiers.
func (k *DynamoKnobs) settle() {
	if k.OverlapScoreCredit == 0 {
		k.HostCacheHitWeight, k.DiskCacheHitWeight, k.SharedCacheMultiplier = 0, 0, 0
	}
}

// settle makes a longer way never the faster one, which is what decisions rely on. A
// distance of which nothing is known is as fast as the next one that is.
func (t *TransferOptions) settle() {
	speed := &t.BytesPerSecond
	for d := len(speed) - 2; d >= 0; d-- {
		if speed[d] == 0 {
			speed[d] = speed[d+1]
		}
	}
	for d := 1; d < len(speed); d++ {
		if speed[d] == 0 || speed[d] > speed[d-1] {
			speed[d] = speed[d-1]
		}
	}
}
