package pick

import (
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// Terms is why one candidate costs what it costs. All are in blocks; lower cost
// is better.
type Terms struct {
	Worker  int         // position in the snapshot
	Overlap index.Depth // what it holds of the prompt
	Prefill float64     // prompt work waiting there plus this prompt, as if nothing were cached
	Credit  float64     // prompt work saved by what it holds
	Decode  float64     // blocks of the requests that decode there, this one included
	Cost    float64
	Side    fleet.Role // what it would do
}

// fill computes the terms of a worker for what it would do (dynamo.md 4.1).
//
// Where the prompt is computed, waiting work and what it holds count; tiers
// outside the worker count as disk. Where output is generated the least occupied
// is best, and what it holds does not count, since the prompt's blocks come from
// the prefill worker (dynamo.md 5.1). A worker that does both has both costs.
func (o *Options) fill(t *Terms, f *load.Figures, d *index.Depth, tokens, blocks, blockSize int, rho float64) {
	k := &o.Dynamo
	if t.Side != fleet.Decode {
		t.Overlap = *d
		t.Prefill = float64(f.PrefillTokens+tokens) / float64(blockSize)
		t.Credit = k.OverlapScoreCredit*float64(d.Device) + k.HostCacheHitWeight*float64(d.Host) + k.DiskCacheHitWeight*float64(d.Disk+d.External)
		t.Cost = k.PrefillLoadScale * max(0, t.Prefill-t.Credit)
		if o.Model == Congestion {
			t.Cost = (1-rho)*float64(f.PrefillTokens)/float64(blockSize) + max(0, float64(tokens)/float64(blockSize)-t.Credit)
		}
	}
	if t.Side != fleet.Prefill {
		t.Decode = float64(f.DecodeBlocks + blocks)
		t.Cost += t.Decode
	}
}
