package pick_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
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
	active map[uint64]int // blocks of the prompt in use
	subset pick.Subset
	avoid  []netip.AddrPort
	tokens int

	options pick.Options
}

func (w *world) inSubset(f fleet.Worker) bool {
	return !w.subset.Present || slices.Contains(w.subset.Endpoints, f.Endpoint) || slices.Contains(w.subset.Addrs, f.Endpoint.Addr())
}

func (w *world) blocks() float64 { return math.Ceil(float64(w.tokens) / blockSize) }

// near is what a worker holds itself, and stored whether a block is outside workers.
func (w *world) near(id uint64) int {
	d := w.held[id]
	return d.Device + d.Host + d.Disk
}

func (w *world) stored(at int) bool {
	for id, d := range w.held {
		if w.near(id) <= at && at < d.Total() {
			return true
		}
	}
	return false
}

// shared is what a worker would read from a store for all.
func (w *world) shared(id uint64) (n int) {
	if w.options.Model == pick.Dynamo && !w.options.Dynamo.SharedCache {
		return 0
	}
	for w.stored(w.near(id) + n) {
		n++
	}
	return n
}

func (w *world) reused(id uint64) int {
	return w.near(id) + max(w.held[id].External, w.shared(id))
}

// saved is what a worker saves of the prompt, in blocks.
func (w *world) saved(f fleet.Worker) float64 {
	d, k, shared := w.held[f.ID], &w.options.Dynamo, float64(w.shared(f.ID))
	if w.options.Model == pick.Congestion {
		return float64(d.Device) + 0.75*float64(d.Host) + 0.25*(float64(d.Disk)+shared)
	}
	if k.OverlapScoreCredit == 0 {
		return 0
	}
	device := k.OverlapScoreCredit * float64(d.Device)
	if k.OverlapScoreCreditDecay > 0 && w.tokens > 0 {
		least := math.Inf(1)
		for _, other := range w.pool {
			if w.inSubset(other) && w.computes(other) {
				least = min(least, float64(w.busy[other.ID].PrefillTokens))
			}
		}
		excess := max(0, float64(w.busy[f.ID].PrefillTokens)-least) / blockSize
		device /= 1 + k.OverlapScoreCreditDecay*excess/w.blocks()
	}
	saved := device + k.HostCacheHitWeight*float64(d.Host) + k.DiskCacheHitWeight*float64(d.Disk)
	if k.SharedCache {
		return saved + k.SharedCacheMultiplier*shared
	}
	return saved + k.DiskCacheHitWeight*float64(d.External)
}

// computes says whether a worker is meant to compute prompts.
func (w *world) computes(f fleet.Worker) bool {
	switch mode := w.options.Split.Mode; f.Role {
	case fleet.Prefill:
		return mode != pick.SplitNever
	case fleet.Aggregated:
		return mode != pick.SplitRequired
	default:
		return mode == pick.SplitNever
	}
}

// unit is what a block costs.
func (w *world) unit() float64 {
	if w.options.Model == pick.Congestion {
		return blockSize
	}
	return 1
}

func (w *world) penalty(f fleet.Worker) float64 {
	if slices.Contains(w.avoid, f.Endpoint) {
		return 1e9 * w.unit()
	}
	return 0
}

// prefillCost is dynamo.md 4.1, or policy.md with nothing known of how busy the pool
// has been.
func (w *world) prefillCost(f fleet.Worker) float64 {
	queued, k := float64(w.busy[f.ID].PrefillTokens), &w.options.Dynamo
	switch {
	case w.options.Model == pick.Congestion:
		return queued + max(0, float64(w.tokens)-w.saved(f)*blockSize)
	case k.IgnorePrefill:
		return 0
	}
	return k.PrefillLoadScale * max(0, (queued+float64(w.tokens))/blockSize-w.saved(f))
}

// decodeCost is the cost of decoding, when shared blocks of the prompt are in use
// there already.
func (w *world) decodeCost(f fleet.Worker, shared int) float64 {
	after, k := float64(w.busy[f.ID].DecodeBlocks)+w.blocks()-float64(shared), &w.options.Dynamo
	if w.options.Model == pick.Congestion {
		cost := 0.1 * after
		if room := float64(f.Says.Advertised().KVBlocks); room > 0 {
			cost += max(0, after-0.95*room)
		}
		return blockSize * cost
	}
	if k.IgnoreActiveBlocks {
		after = 0
	}
	return after + k.DecodeActiveRequestWeight*float64(w.busy[f.ID].Requests)
}

// single is the cost of a worker that computes the prompt and decodes.
func (w *world) single(f fleet.Worker) float64 {
	shared := w.active[f.ID]
	if w.options.Model == pick.Dynamo && (w.options.Dynamo.IgnoreKVReuse || f.Role == fleet.Decode && w.options.Split.Mode != pick.SplitNever) {
		shared = 0
	}
	return w.prefillCost(f) + w.decodeCost(f, shared) + w.penalty(f)
}

// pairCost is infinite for workers that do not connect.
func (w *world) pairCost(p, d fleet.Worker) float64 {
	a, b := p.Site.Location(), d.Site.Location()
	if !a.Connects(&b) {
		return math.Inf(1)
	}
	way := 0.0
	if w.sites() > 1 {
		way = 1e-6 * float64(a.DistanceTo(&b))
	}
	return w.prefillCost(p) + w.penalty(p) + w.decodeCost(d, 0) + w.penalty(d) + way
}

func (w *world) sites() int {
	all := map[fleet.Site]bool{}
	for _, f := range w.pool {
		all[f.Site] = true
	}
	return len(all)
}

// mayPrefill and mayDecode say whether the bounds leave room.
func (w *world) mayPrefill(f fleet.Worker) bool {
	n, room := w.busy[f.ID].PrefillTokens, float64(f.Says.Advertised().MaxBatchedTokens)
	return (w.options.MaxPrefillTokens == 0 || n <= w.options.MaxPrefillTokens) &&
		(w.options.MaxPrefillShare == 0 || room == 0 || float64(n) <= w.options.MaxPrefillShare*room)
}

func (w *world) mayDecode(f fleet.Worker) bool {
	n, room := w.busy[f.ID].DecodeBlocks, float64(f.Says.Advertised().KVBlocks)
	return (w.options.MaxDecodeBlocks == 0 || n <= w.options.MaxDecodeBlocks) &&
		(w.options.MaxBlocksShare == 0 || room == 0 || float64(n) <= w.options.MaxBlocksShare*room)
}

// ways lists every way to serve the request: all pairs and all workers that do
// both, or decode workers alone when there is nothing else.
func (w *world) ways() (all []option, err error) {
	var prefill, decode, both, left []fleet.Worker // left: in the subset, whatever the bounds say
	outside := map[fleet.Role]bool{}               // the subset, of those that would do
	busyPrefill := false
	split := w.options.Split.Mode
	for _, f := range w.pool {
		switch {
		case f.Role == fleet.Aggregated && split == pick.SplitRequired:
			continue
		case f.Role == fleet.Prefill && split == pick.SplitNever:
			continue
		case !w.inSubset(f):
			outside[f.Role] = true
			continue
		case f.Role == fleet.Prefill && !w.mayPrefill(f):
			busyPrefill = true
			continue
		case f.Role == fleet.Prefill:
			prefill = append(prefill, f)
			continue
		}
		left = append(left, f)
		switch {
		case !w.mayDecode(f):
		case f.Role == fleet.Decode && split != pick.SplitNever:
			decode = append(decode, f)
		case w.mayPrefill(f):
			both = append(both, f)
		}
	}
	for _, d := range decode {
		for _, p := range prefill {
			if cost := w.pairCost(p, d); !math.IsInf(cost, 1) {
				all = append(all, option{p.ID, d.ID, pick.Disaggregated, cost})
			}
		}
	}
	for _, f := range both {
		mode := pick.OnAggregated
		if f.Role == fleet.Decode {
			mode = pick.SplitOff
		}
		all = append(all, option{f.ID, f.ID, mode, w.single(f)})
	}
	isAggregated := func(f fleet.Worker) bool { return f.Role == fleet.Aggregated }
	switch {
	case len(all) > 0:
		return all, nil
	case busyPrefill && len(left) > 0:
		return nil, pick.ErrBusy
	case split == pick.SplitRequired && len(prefill) == 0 && !busyPrefill && (len(decode) > 0 || slices.ContainsFunc(w.pool, isAggregated)):
		return nil, pick.ErrNoPrefill
	case split == pick.SplitRequired && len(decode) > 0: // none of them connects
		return nil, pick.ErrNoPrefill
	case len(decode) > 0:
		alone := pick.NoPrefillReady
		if outside[fleet.Prefill] {
			alone = pick.NoPrefillInSubset
		}
		for _, d := range decode {
			all = append(all, option{d.ID, d.ID, alone, w.single(d)})
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
	o.Model = rapid.SampledFrom([]pick.Model{pick.Congestion, pick.Dynamo}).Draw(t, "model")
	if rapid.Bool().Draw(t, "default options") {
		return o
	}
	weight := rapid.SampledFrom([]float64{0, 0.25, 0.5, 1})
	k := &o.Dynamo
	k.OverlapScoreCredit, k.HostCacheHitWeight, k.DiskCacheHitWeight = weight.Draw(t, "credit"), weight.Draw(t, "host"), weight.Draw(t, "disk")
	k.PrefillLoadScale = rapid.SampledFrom([]float64{0, 0.5, 1, 4}).Draw(t, "scale")
	k.SharedCache, k.SharedCacheMultiplier = rapid.Bool().Draw(t, "shared"), weight.Draw(t, "multiplier")
	k.OverlapScoreCreditDecay = rapid.SampledFrom([]float64{0, 0, 1, 2}).Draw(t, "decay")
	k.DecodeActiveRequestWeight = rapid.SampledFrom([]float64{0, 0, 1.5}).Draw(t, "request weight")
	k.IgnoreKVReuse, k.IgnorePrefill, k.IgnoreActiveBlocks = rapid.Bool().Draw(t, "no reuse"), rapid.Bool().Draw(t, "no prefill"), rapid.Bool().Draw(t, "no blocks")
	o.Split.Mode = rapid.SampledFrom([]pick.Split{pick.SplitWhenReady, pick.SplitRequired, pick.SplitNever}).Draw(t, "split")
	o.MaxPrefillTokens = rapid.IntRange(0, 1).Draw(t, "prefill bound") * blockSize
	o.MaxDecodeBlocks = rapid.IntRange(0, 2).Draw(t, "decode bound")
	o.MaxPrefillShare = rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(t, "prefill share")
	o.MaxBlocksShare = rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(t, "blocks share")
	return o
}

// drawSite draws from few places, so that many workers share one.
func drawSite(t *rapid.T) fleet.Site {
	if rapid.Bool().Draw(t, "no site") {
		return fleet.Site{}
	}
	name := rapid.SampledFrom([]string{"", "a", "b"})
	return fleet.SiteOf(fleet.Location{
		Zone: name.Draw(t, "zone"), Rack: name.Draw(t, "rack"), Host: name.Draw(t, "host"), Fabric: name.Draw(t, "fabric"),
		Connector: name.Draw(t, "connector"),
	})
}

func drawWorld(t *rapid.T, r *rig, contents []block.Hash) *world {
	w := &world{held: map[uint64]index.Depth{}, busy: map[uint64]load.Figures{}, active: map[uint64]int{}}
	w.tokens = rapid.IntRange(0, 4*blockSize).Draw(t, "tokens beyond full blocks") + len(contents)*blockSize
	w.subset.Present = rapid.Bool().Draw(t, "subset")
	sited := rapid.Bool().Draw(t, "sites")
	for i := range rapid.IntRange(0, 7).Draw(t, "workers") {
		f := worker(uint64(i+1), rapid.SampledFrom([]fleet.Role{fleet.Aggregated, fleet.Prefill, fleet.Decode}).Draw(t, "role"))
		if sited {
			f.Site = drawSite(t)
		}
		f.Says = fleet.Say(fleet.Advertised{
			KVBlocks: rapid.SampledFrom([]int64{0, 4, 12}).Draw(t, "kv blocks"), MaxBatchedTokens: rapid.SampledFrom([]int64{0, 16, 32}).Draw(t, "step"),
		})
		w.pool = append(w.pool, f)
		switch rapid.IntRange(0, 2).Draw(t, "in subset") {
		case 0:
			w.subset.Endpoints = append(w.subset.Endpoints, f.Endpoint)
		case 1:
			w.subset.Addrs = append(w.subset.Addrs, f.Endpoint.Addr())
		}
		if rapid.IntRange(0, 4).Draw(t, "avoided") == 0 {
			w.avoid = append(w.avoid, f.Endpoint)
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
		w.fill(t, r, f, contents)
	}
	return w
}

// fill makes the index and the load table say what the world says of a worker.
func (w *world) fill(t *rapid.T, r *rig, f fleet.Worker, contents []block.Hash) {
	d := w.held[f.ID]
	at := 0
	for tier, n := range []int{d.Device, d.Host, d.Disk, d.External} {
		ev := kvevent.Event{WorkerID: f.ID, Kind: kvevent.Stored, Tier: kvevent.Tier(tier)}
		if at > 0 {
			ev.HasParent, ev.Parent = true, kvevent.EngineHash(contents[at-1])
		}
		for _, h := range contents[at : at+n] {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(h), Hash: h})
		}
		at += n
		if err := r.index.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	// Few values, so that equal costs are common.
	f0 := load.Figures{PrefillTokens: rapid.IntRange(0, 2).Draw(t, "busy prefill") * blockSize, DecodeBlocks: rapid.IntRange(0, 3).Draw(t, "busy decode"), Requests: 1}
	r.busy(f.ID, f0.PrefillTokens, f0.DecodeBlocks)
	if n := rapid.IntRange(0, len(contents)).Draw(t, "active"); n > 0 && rapid.Bool().Draw(t, "has active") {
		r.uses(f.ID, block.AppendChains(nil, contents)[:n])
		w.active[f.ID] = n
		f0.DecodeBlocks += n
		f0.Requests++
	}
	w.busy[f.ID] = f0
}

// The decision is always one of the cheapest of all possible ones, whatever the
// order of the workers.
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
		compareWithTwin(t, r, w, chains)
	})
}

func compareWithTwin(t *rapid.T, r *rig, w *world, chains []block.Chain) {
	options, wantErr := w.ways()
	req := pick.Request{Tokens: w.tokens, Chains: chains, Subset: w.subset, Avoid: w.avoid}
	before := r.figures()
	e := r.picker.Explain(&req, start, r.random, &r.scratch)
	if !errors.Is(e.Err, wantErr) {
		t.Fatalf("explained as %v, want %v", e.Err, wantErr)
	}
	d, err := r.pick(req)
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
	if at < 0 || math.Abs(options[at].cost-cheapest) > 1e-9*(1+math.Abs(cheapest)) {
		t.Fatalf("prefill %d, decode %d, %v is not among the cheapest (%v) of %+v", d.Prefill.ID, d.Decode.ID, d.Mode, cheapest, options)
	}
	w.compareExplained(t, e)
	best := 0
	for _, f := range w.pool {
		if f.Role != fleet.Decode || w.options.Split.Mode == pick.SplitNever || d.Mode != pick.Disaggregated && d.Mode != pick.OnAggregated {
			best = max(best, w.reused(f.ID))
		}
	}
	if d.Matched != w.reused(d.Prefill.ID) || d.Best != best || d.Total != len(chains) {
		t.Fatalf("matched %d, best %d, total %d; want %d, %d, %d", d.Matched, d.Best, d.Total, w.reused(d.Prefill.ID), best, len(chains))
	}
	w.compareBooking(t, r, &d)
	d.Reservation.Release()
	compareFigures(t, r, before)
}

// compareExplained compares the costs of the model in use with the twin's.
func (w *world) compareExplained(t *rapid.T, e *pick.Explanation) {
	m := w.options.Model
	for _, got := range e.Workers {
		f := got.Worker
		if got.Out != pick.In {
			continue
		}
		want := w.single(f)
		switch got.Side {
		case fleet.Prefill:
			want = w.prefillCost(f) + w.penalty(f)
		case fleet.Decode:
			want = w.decodeCost(f, 0) + w.penalty(f)
		case fleet.Aggregated:
		}
		if math.Abs(got.Cost[m]-want) > 1e-9*(1+want) {
			t.Fatalf("worker %d as %v costs %v, want %v: %+v", f.ID, got.Side, got.Cost[m], want, got)
		}
	}
}

// compareBooking checks what a decision has booked.
func (w *world) compareBooking(t *rapid.T, r *rig, d *pick.Decision) {
	want := map[uint64]load.Figures{}
	for id, f := range w.busy {
		if id == d.Prefill.ID {
			f.PrefillTokens += max(0, w.tokens-d.Matched*blockSize)
		}
		if id == d.Decode.ID {
			f.DecodeBlocks += int(w.blocks())
			k := &w.options.Dynamo
			if d.Mode != pick.Disaggregated && (w.options.Model == pick.Congestion || !k.IgnoreKVReuse && !k.IgnoreActiveBlocks) {
				f.DecodeBlocks -= w.active[id]
			}
			f.Requests++
		}
		want[id] = f
	}
	compareFigures(t, r, want)
}

func compareFigures(t *rapid.T, r *rig, want map[uint64]load.Figures) {
	t.Helper()
	for id, got := range r.figures() {
		if got != want[id] {
			t.Fatalf("worker %d has %+v, want %+v", id, got, want[id])
		}
	}
}
