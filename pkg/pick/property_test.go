package pick_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// drawRig draws a world and a rig that is in it.
func drawRig(t *rapid.T, blocks int) (*rig, *world, pick.Request) {
	contents, chains := promptOf(1, blocks)
	r := &rig{index: index.New(), guesses: index.NewSpeculation(time.Second), load: load.NewTable()}
	r.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).IntN
	r.picker = pick.New(r.index, r.guesses, r.load, blockSize)
	w := drawWorld(t, r, contents)
	r.join(t, w.pool)
	w.options = drawOptions(t)
	w.options.Split.Condition = pick.Condition(rapid.IntRange(0, 4).Draw(t, "condition"))
	w.options.Split.Order = pick.Order(rapid.IntRange(0, 1).Draw(t, "order"))
	w.options.Split.NeedsPair = rapid.Bool().Draw(t, "needs pair")
	w.options.Dynamo.Temperature = rapid.SampledFrom([]float64{0, 0, 0.7}).Draw(t, "temperature")
	r.picker.SetOptions(w.options)
	return r, w, pick.Request{
		Tokens: w.tokens, Chains: chains, Subset: w.subset, Avoid: w.avoid,
		Session: rapid.SampledFrom([]string{"", "s"}).Draw(t, "session"),
	}
}

func (r *rig) join(t *rapid.T, pool []fleet.Worker) {
	s, err := fleet.NewSnapshot(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.picker.SetFleet(s); err != nil {
		t.Fatal(err)
	}
}

// Whatever the options, nobody is taken who is outside the subset, over a bound, of
// the wrong role, or in no pool; the two of a pair connect.
func TestNobodyIsTakenWhoMayNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, w, req := drawRig(t, rapid.IntRange(0, 8).Draw(t, "blocks"))
		req.PromptLess = rapid.IntRange(0, 9).Draw(t, "promptless") == 0
		d, err := r.pick(req)
		if err != nil {
			return
		}
		p, q := d.Prefill, d.Decode
		listed := func(f fleet.Worker) bool {
			return slices.ContainsFunc(w.pool, func(o fleet.Worker) bool { return o.Key == f.Key })
		}
		if !listed(p) || !listed(q) || !w.inSubset(p) || !w.inSubset(q) {
			t.Fatalf("%v: %d or %d is outside", d.Mode, p.ID, q.ID)
		}
		a, b := p.Site.Location(), q.Site.Location()
		switch d.Mode {
		case pick.Disaggregated:
			if p.Role != fleet.Prefill || q.Role != fleet.Decode || !w.mayPrefill(p) || !w.mayDecode(q) || !a.Connects(&b) {
				t.Fatalf("pair %+v and %+v", p, q)
			}
		case pick.PromptLess:
			if q.Role == fleet.Prefill {
				t.Fatal("a prefill worker got a request without a prompt")
			}
		default:
			if p.Key != q.Key || q.Role == fleet.Prefill || !w.mayDecode(q) || w.options.Split.Mode == pick.SplitRequired && d.Mode < pick.KeptShort {
				t.Fatalf("%v on %+v and %+v", d.Mode, p, q)
			}
		}
	})
}

// What a worker costs does not depend on where it stands among the others.
func TestOrderOfWorkersChangesNoCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, w, req := drawRig(t, rapid.IntRange(0, 8).Draw(t, "blocks"))
		before := r.picker.Explain(&req, start, r.random, &r.scratch)
		// The same workers under ids that reverse their order.
		mirror := func(id uint64) uint64 { return 1000 - id }
		m := &rig{index: index.New(), guesses: index.NewSpeculation(time.Second), load: load.NewTable(), random: r.random}
		m.picker = pick.New(m.index, m.guesses, m.load, blockSize)
		contents, _ := promptOf(1, len(req.Chains))
		var pool []fleet.Worker
		for _, f := range w.pool {
			depth, busy := w.held[f.ID], w.busy[f.ID]
			if n := w.active[f.ID]; n > 0 {
				m.uses(mirror(f.ID), req.Chains[:n])
				busy.DecodeBlocks -= n
			}
			m.busy(mirror(f.ID), busy.PrefillTokens, busy.DecodeBlocks)
			m.hold(t, mirror(f.ID), contents, depth)
			f.ID = mirror(f.ID)
			pool = append(pool, f)
		}
		m.join(t, pool)
		m.picker.SetOptions(w.options)
		after := m.picker.Explain(&req, start, m.random, &m.scratch)
		for i := range before.Workers {
			a, b := &before.Workers[i], &after.Workers[len(pool)-1-i]
			if a.Worker.ID != mirror(b.Worker.ID) || a.Cost != b.Cost || a.Local != b.Local || a.Out != b.Out {
				t.Fatalf("%+v, mirrored %+v", a, b)
			}
		}
	})
}

// A worker that holds more of a prompt never costs more, nor do others for that, as
// long as nearer tiers count no less than those further away. (Dynamo's decay makes
// them count less on a busy worker.)
func TestMoreOverlapNeverCostsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blocks = 8
		r, w, req := drawRig(t, blocks)
		if len(w.pool) == 0 {
			return
		}
		contents, _ := promptOf(1, blocks)
		k := &w.options.Dynamo
		weights := []*float64{&k.SharedCacheMultiplier, &k.DiskCacheHitWeight, &k.HostCacheHitWeight, &k.OverlapScoreCredit}
		values := []float64{*weights[0], *weights[1], *weights[2], *weights[3]}
		slices.Sort(values)
		for i, v := range values {
			*weights[i] = v
		}
		k.OverlapScoreCreditDecay = 0
		r.picker.SetOptions(w.options)
		before := r.picker.Explain(&req, start, r.random, &r.scratch)
		at := rapid.IntRange(0, len(w.pool)-1).Draw(t, "worker")
		id := w.pool[at].ID
		d := w.held[id]
		// It holds one block more, on its device.
		more := index.Depth{Device: min(blocks, d.Device+1)}
		r.hold(t, id, contents, more)
		after := r.picker.Explain(&req, start, r.random, &r.scratch)
		for i := range before.Workers {
			for m := range before.Workers[i].Cost {
				if after.Workers[i].Cost[m] > before.Workers[i].Cost[m]+1e-9 {
					t.Fatalf("model %v: worker %d cost %v, and %v when %d holds more", pick.Model(m), i, before.Workers[i].Cost[m], after.Workers[i].Cost[m], at)
				}
			}
		}
	})
}
