package pick

import (
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
)

// Weights of a cached block per tier, in blocks of prefill work saved. They are
// Dynamo's defaults (dynamo.md 4.1 and 4.2); external counts as disk.
const (
	deviceWeight = 1.0
	hostWeight   = 0.75
	diskWeight   = 0.25
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
}

// prefillTerms are the terms of a worker as the place where the prompt is
// computed (dynamo.md 4.1 with a prefill load scale and an overlap credit of 1).
func prefillTerms(f load.Figures, d index.Depth, tokens, blockSize int) Terms {
	t := Terms{Overlap: d}
	t.Prefill = float64(f.PrefillTokens+tokens) / float64(blockSize)
	t.Credit = deviceWeight*float64(d.Device) + hostWeight*float64(d.Host) + diskWeight*float64(d.Disk+d.External)
	t.Cost = max(0, t.Prefill-t.Credit)
	return t
}

// decodeTerms are the terms of a worker as the place where output is generated:
// the least occupied is best. What it holds of the prompt does not count, since
// the prompt's blocks come from the prefill worker (dynamo.md 5.1).
func decodeTerms(f load.Figures, blocks int) Terms {
	t := Terms{Decode: float64(f.DecodeBlocks + blocks)}
	t.Cost = t.Decode
	return t
}

// aggregatedTerms are the terms of a worker that does both.
func aggregatedTerms(f load.Figures, d index.Depth, tokens, blocks, blockSize int) Terms {
	t := prefillTerms(f, d, tokens, blockSize)
	t.Decode = float64(f.DecodeBlocks + blocks)
	t.Cost += t.Decode
	return t
}
