package pick_test

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// option is one way to serve a request: all of them are tried by the twin.
type option struct {
	prefill, decode uint64
	mode            pick.Mode
	cost            float64
}

// world is what the twin knows: the pool, what its workers hold of the prompt
// and how busy they are.
type world struct {
	pool   []fleet.Worker
	held   map[uint64]index.Depth
	busy   map[uint64]load.Figures
	subset pick.Subset
	tokens int

	options pick.Options
}

func (w *world) inSubset(f fleet.Worker) bool {
	return !w.subset.Present || slices.Contains(w.subset.Endpoints, f.Endpoint) || slices.Contains(w.subset.Addrs, f.Endpoint.Addr())
}

// prefillCost and decodeCost are dynamo.md 4.1.
func (w *world) prefillCost(id uint64) float64 {
	d := w.held[id]
	raw := float64(w.busy[id].PrefillTokens+w.tokens) / blockSize
	credit := w.options.Dynamo.OverlapScoreCredit*float64(d.Device) + w.options.Dynamo.HostCacheHitWeight*float64(d.Host) +
		w.options.Dynamo.DiskCacheHitWeight*float64(d.Disk) + w.options.Dynamo.DiskCacheHitWeight*float64(d.External)
	if w.options.Dynamo.OverlapScoreCredit == 0 {
		credit = 0
	}
	return w.options.Dynamo.PrefillLoadScale * math.Max(0, raw-credit)
}

func (w *world) decodeCost(id uint64) float64 {
	return float64(w.busy[id].DecodeBlocks) + math.Ceil(float64(w.tokens)/blockSize)
}

// mayPrefill and mayDecode say whether the bounds leave room.
func (w *world) mayPrefill(id uint64) bool {
	return w.options.MaxPrefillTokens == 0 || w.busy[id].PrefillTokens <= w.options.MaxPrefillTokens
}

func (w *world) mayDecode(id uint64) bool {
	return w.options.MaxDecodeBlocks == 0 || w.busy[id].DecodeBlocks <= w.options.MaxDecodeBlocks
}

// ways lists every way to serve the request: all pairs and all workers that do
// both, or decode workers alone when there is nothing else.
func (w *world) ways() (all []option, err error) {
	var prefill, decode, both, left []fleet.Worker // left: in the subset, whatever the bounds say
	outside := map[fleet.Role]bool{}               // the subset, of those that would do
	busyPrefill := false
	for _, f := range w.pool {
		switch {
		case f.Role == fleet.Aggregated && w.options.Split.Mode == pick.SplitRequired:
			continue
		case !w.inSubset(f):
			outside[f.Role] = true
			continue
		case f.Role == fleet.Prefill && w.options.Split.Mode == pick.SplitNever:
			continue
		case f.Role == fleet.Prefill && !w.mayPrefill(f.ID):
			busyPrefill = true
			continue
		case f.Role == fleet.Prefill:
			prefill = append(prefill, f)
			continue
		}
		left = append(left, f)
		switch {
		case !w.mayDecode(f.ID):
		case f.Role == fleet.Decode && w.options.Split.Mode != pick.SplitNever:
			decode = append(decode, f)
		case w.mayPrefill(f.ID):
			both = append(both, f)
		}
	}
	for _, d := range decode {
		for _, p := range prefill {
			all = append(all, option{p.ID, d.ID, pick.Disaggregated, w.prefillCost(p.ID) + w.decodeCost(d.ID)})
		}
	}
	for _, f := range both {
		mode := pick.OnAggregated
		if f.Role == fleet.Decode {
			mode = pick.SplitOff
		}
		all = append(all, option{f.ID, f.ID, mode, w.prefillCost(f.ID) + w.decodeCost(f.ID)})
	}
	isAggregated := func(f fleet.Worker) bool { return f.Role == fleet.Aggregated }
	switch {
	case len(all) > 0:
		return all, nil
	case busyPrefill && len(left) > 0:
		return nil, pick.ErrBusy
	case w.options.Split.Mode == pick.SplitRequired && len(prefill) == 0 && !busyPrefill && (len(decode) > 0 || slices.ContainsFunc(w.pool, isAggregated)):
		return nil, pick.ErrNoPrefill
	case len(decode) > 0:
		alone := pick.NoPrefillReady
		if outside[fleet.Prefill] {
			alone = pick.NoPrefillInSubset
		}
		for _, d := range decode {
			all = append(all, option{d.ID, d.ID, alone, w.decodeCost(d.ID)})
		}
		return all, nil
	case len(left) > 0:
		return nil, pick.ErrBusy
	case outside[fleet.Decode] || outside[fleet.Aggregated]:
		return nil, pick.ErrSubset
	}
	return nil, pick.ErrNoWorkers
}

func drawOptions(t *rapid.T) pick.Options {
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	if rapid.Bool().Draw(t, "default options") {
		return o
	}
	weight := rapid.SampledFrom([]float64{0, 0.25, 0.5, 1})
	o.Dynamo.OverlapScoreCredit, o.Dynamo.HostCacheHitWeight, o.Dynamo.DiskCacheHitWeight = weight.Draw(t, "credit"), weight.Draw(t, "host"), weight.Draw(t, "disk")
	o.Dynamo.PrefillLoadScale = rapid.SampledFrom([]float64{0, 0.5, 1, 4}).Draw(t, "scale")
	o.Split.Mode = rapid.SampledFrom([]pick.Split{pick.SplitWhenReady, pick.SplitRequired, pick.SplitNever}).Draw(t, "split")
	o.MaxPrefillTokens = rapid.IntRange(0, 1).Draw(t, "prefill bound") * blockSize
	o.MaxDecodeBlocks = rapid.IntRange(0, 2).Draw(t, "decode bound")
	return o
}

func drawWorld(t *rapid.T, r *rig, contents []block.Hash) *world {
	w := &world{held: map[uint64]index.Depth{}, busy: map[uint64]load.Figures{}}
	w.tokens = rapid.IntRange(0, 4*blockSize).Draw(t, "tokens beyond full blocks") + len(contents)*blockSize
	if rapid.Bool().Draw(t, "subset") {
		w.subset.Present = true
	}
	for i := range rapid.IntRange(0, 7).Draw(t, "workers") {
		f := worker(uint64(i+1), rapid.SampledFrom([]fleet.Role{fleet.Aggregated, fleet.Prefill, fleet.Decode}).Draw(t, "role"))
		w.pool = append(w.pool, f)
		switch rapid.IntRange(0, 2).Draw(t, "in subset") {
		case 0:
			w.subset.Endpoints = append(w.subset.Endpoints, f.Endpoint)
		case 1:
			w.subset.Addrs = append(w.subset.Addrs, f.Endpoint.Addr())
		}
		var d index.Depth
		left := len(contents)
		for _, n := range []*int{&d.Device, &d.Host, &d.Disk, &d.External} {
			*n = rapid.IntRange(0, left).Draw(t, "held")
			left -= *n
		}
		w.held[f.ID] = d
	}
	for _, f := range w.pool {
		for tier, n := range []int{w.held[f.ID].Device, w.held[f.ID].Host, w.held[f.ID].Disk, w.held[f.ID].External} {
			ev := kvevent.Event{WorkerID: f.ID, Kind: kvevent.Stored, Tier: kvevent.Tier(tier)}
			above := [...]int{0, w.held[f.ID].Device, w.held[f.ID].Device + w.held[f.ID].Host, w.held[f.ID].Total() - w.held[f.ID].External}[tier]
			if above > 0 {
				ev.HasParent, ev.Parent = true, kvevent.EngineHash(contents[above-1])
			}
			for _, h := range contents[above : above+n] {
				ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(h), Hash: h})
			}
			if err := r.index.Apply(&ev); err != nil {
				t.Fatal(err)
			}
		}
		// Few values, so that equal costs are common.
		f0 := load.Figures{PrefillTokens: rapid.IntRange(0, 2).Draw(t, "busy prefill") * blockSize, DecodeBlocks: rapid.IntRange(0, 3).Draw(t, "busy decode"), Requests: 1}
		r.busy(f.ID, f0.PrefillTokens, f0.DecodeBlocks)
		w.busy[f.ID] = f0
	}
	return w
}

// The decision is always one of the cheapest of all possible ones.
func TestPickEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contents, chains := promptOf(1, rapid.IntRange(0, 12).Draw(t, "blocks"))
		r := &rig{index: index.New(), guesses: index.NewSpeculation(time.Second), load: load.NewTable()}
		r.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).IntN
		r.picker = pick.New(r.index, r.guesses, r.load, blockSize)
		w := drawWorld(t, r, contents)
		s, err := fleet.NewSnapshot(w.pool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.picker.SetFleet(s); err != nil {
			t.Fatal(err)
		}

		w.options = drawOptions(t)
		r.picker.SetOptions(w.options)
		options, wantErr := w.ways()
		d, err := r.pick(pick.Request{Tokens: w.tokens, Chains: chains, Subset: w.subset})
		if !errors.Is(err, wantErr) {
			t.Fatalf("decision %+v, %v; want %v", d, err, wantErr)
		}
		if wantErr != nil {
			return
		}
		cheapest := slices.MinFunc(options, func(a, b option) int { return int(math.Copysign(1, a.cost-b.cost)) }).cost
		at := slices.IndexFunc(options, func(o option) bool {
			return o.prefill == d.Prefill.ID && o.decode == d.Decode.ID && o.mode == d.Mode
		})
		if at < 0 || options[at].cost != cheapest {
			t.Fatalf("prefill %d, decode %d, %v is not among the cheapest (%v) of %+v", d.Prefill.ID, d.Decode.ID, d.Mode, cheapest, options)
		}
		best := 0
		for _, f := range w.pool {
			if f.Role != fleet.Decode || f.ID == d.Prefill.ID || w.options.Split.Mode == pick.SplitNever {
				best = max(best, w.held[f.ID].Total())
			}
		}
		if d.Matched != w.held[d.Prefill.ID].Total() || d.Best != best || d.Total != len(contents) {
			t.Fatalf("matched %d, best %d, total %d; want %d, %d, %d", d.Matched, d.Best, d.Total, w.held[d.Prefill.ID].Total(), best, len(contents))
		}

		// The booking, and that releasing it restores what was.
		want := map[uint64]load.Figures{}
		maps.Copy(want, w.busy)
		p := want[d.Prefill.ID]
		p.PrefillTokens += max(0, w.tokens-d.Matched*blockSize)
		want[d.Prefill.ID] = p
		dec := want[d.Decode.ID]
		dec.DecodeBlocks += (w.tokens + blockSize - 1) / blockSize
		dec.Requests++
		want[d.Decode.ID] = dec
		compareFigures(t, r, want)
		d.Reservation.Release()
		compareFigures(t, r, w.busy)
	})
}

func compareFigures(t *rapid.T, r *rig, want map[uint64]load.Figures) {
	t.Helper()
	for id, got := range r.figures() {
		if got != want[id] {
			t.Fatalf("worker %d has %+v, want %+v", id, got, want[id])
		}
	}
}
