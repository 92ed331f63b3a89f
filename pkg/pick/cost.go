package pick

import (
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// Terms is one candidate: what it would do, and what that costs. Costs are in KV
// blocks in the Dynamo model, and in prompt tokens to compute in the Congestion
// model; lower is better.
type Terms struct {
	Worker int        // position in the snapshot
	Side   fleet.Role // what it would do
	Cost   float64    // of that, without a transfer
	Local  float64    // on the decode side: of computing the prompt there, too

	saved   float64 // of the prompt's computation, in blocks, weighted by tier
	device  float64 // of saved, what is on the device
	penalty float64 // in blocks: it avoids the request, or lacks its adapter
	active  int32   // blocks of the prompt that its requests use already
	version uint32  // of its load, when its cost was computed
	out     bool    // a bound leaves it out
}

// Weights of the Congestion model, which has no knobs.
const (
	// A block in host memory or on disk is not as good as one on the device, for it
	// has to be fetched (dynamo.md 4.2).
	hostSaves, diskSaves = 0.75, 0.25
	// A block in use on a worker slows its output down: every token that is generated
	// reads it. Over an output of some hundred tokens that is about a tenth of what it
	// takes to compute it (engines.md 5 has speeds).
	decodeShare = 0.1
	// Beyond this share of its KV blocks a worker preempts requests, which are then
	// computed anew.
	fullShare = 0.95
)

const (
	// avoided is more than any load: a worker that failed is taken when there is no
	// other.
	avoided = 1e9
	// What it takes to load an adapter, in blocks: about the time of some thousand
	// prompt tokens. A worker that would have to drop another one is worse.
	adapterWaits, adapterAbsent, adapterFull = 128, 256, 512
)

// pricing is what the costs of all candidates of a request depend on.
type pricing struct {
	*Options
	knobs            *DynamoKnobs // of the request's class
	temperature      float64
	blockSize        float64
	tokens           float64 // of the prompt
	blocks           float64 // of the prompt, the last partial one included
	rho              float64
	now              int64   // Unix nanoseconds
	serial, perToken float64 // seconds that a transfer takes, as learned: at its end, and for each token of the prompt
	pace             float64 // seconds that a prompt token takes in the pool, for transfers
	lowest           float64 // prefill tokens that wait on the least loaded candidate; only for the decay
}

// saves is how much of the prompt's computation a worker saves, in blocks, and how
// much of that is on its device.
//
// A block in a store that all workers read saves the same on all that do not have it
// nearer, whoever put it there: only what is nearer makes a difference.
func (p *pricing) saves(d *index.Depth, shared int) (saved, device float64) {
	if p.Model == Congestion {
		return float64(d.Device) + hostSaves*float64(d.Host) + diskSaves*float64(d.Disk+shared), float64(d.Device)
	}
	k := p.knobs
	device = k.OverlapScoreCredit * float64(d.Device)
	saved = device + k.HostCacheHitWeight*float64(d.Host) + k.DiskCacheHitWeight*float64(d.Disk)
	if k.SharedCache {
		return saved + k.SharedCacheMultiplier*float64(shared), device
	}
	return saved + k.DiskCacheHitWeight*float64(d.External), device
}

// price returns the costs of a candidate in a model.
func (p *pricing) price(m Model, t *Terms, f *load.Figures, w *member) (cost, local float64) {
	if m == Congestion {
		return p.congestion(t, f, w)
	}
	return p.dynamo(t, f)
}

// congestion is the rule of policy.md: (1-rho)*queued + new, in tokens, and what
// decoding there costs.
func (p *pricing) congestion(t *Terms, f *load.Figures, w *member) (cost, local float64) {
	penalty := t.penalty * p.blockSize
	if t.Side == fleet.Prefill {
		return p.compute(t, w.load.Ahead(p.now)) + penalty, 0
	}
	occupied := float64(f.DecodeBlocks) + p.blocks
	room := w.room(f)
	local = p.decode(occupied-float64(t.active), room) + p.compute(t, w.load.Ahead(p.now)) + penalty
	if t.Side == fleet.Aggregated {
		return local, 0
	}
	// What comes from a prefill worker takes room of its own.
	return p.decode(occupied, room) + penalty, local
}

// decode is what decoding on a worker costs, in tokens, when that many of its blocks
// are in use. It has room for so many, or for nobody knows how many.
func (p *pricing) decode(blocks float64, room int) float64 {
	cost := decodeShare * blocks
	if room > 0 {
		cost += max(0, blocks-fullShare*float64(room))
	}
	return p.blockSize * cost
}

// compute is what computing the prompt on a worker costs, in tokens, when that many
// are computed before it.
func (p *pricing) compute(t *Terms, ahead float64) float64 {
	return (1-p.rho)*ahead + max(0, p.tokens-t.saved*p.blockSize)
}

// dynamo is the cost of Dynamo's router, in blocks (dynamo.md 4.1).
//
// Where output is generated the least occupied is best, and what it holds does not
// count, since the prompt's blocks come from the prefill worker (dynamo.md 5.1);
// unless the prompt may be kept there.
func (p *pricing) dynamo(t *Terms, f *load.Figures) (cost, local float64) {
	k := p.knobs
	requests := k.DecodeActiveRequestWeight*float64(f.Requests) + t.penalty
	decode := 0.0
	if t.Side != fleet.Prefill && !k.IgnoreActiveBlocks {
		decode = float64(f.DecodeBlocks) + p.blocks
		if t.Side == fleet.Aggregated && !k.IgnoreKVReuse {
			decode -= float64(t.active)
		}
	}
	prefill, credit := 0.0, p.credit(t, f)
	if !k.IgnorePrefill {
		prefill = k.PrefillLoadScale * max(0, (float64(f.PrefillTokens)+p.tokens)/p.blockSize-credit)
	}
	switch {
	case t.Side == fleet.Prefill:
		return prefill + t.penalty, 0
	case t.Side == fleet.Aggregated:
		return prefill + decode + requests, 0
	case p.Split.Condition != Never:
		return max(0, decode-credit) + requests, prefill + decode + requests
	}
	return decode + requests, prefill + decode + requests
}

// credit is the prompt work, in blocks, that a worker saves. Of a worker with more
// waiting work than the least loaded one, what it has on its device may count less.
func (p *pricing) credit(t *Terms, f *load.Figures) float64 {
	k := p.knobs
	if k.OverlapScoreCreditDecay == 0 || p.blocks == 0 {
		return t.saved
	}
	excess := max(0, float64(f.PrefillTokens)-p.lowest) / p.blockSize
	return t.saved - t.device*(1-1/(1+k.OverlapScoreCreditDecay*excess/p.blocks))
}
