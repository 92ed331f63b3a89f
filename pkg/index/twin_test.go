package index_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// twin is the slow, obvious index. It keeps, per worker and engine hash, the
// content of every block from the prompt's start, and never hashes a prefix.
type twin struct {
	workers map[fleet.Key]map[kvevent.EngineHash]twinBlock
	stats   index.Stats
}

type twinBlock struct {
	path   []block.Hash
	tiers  [kvevent.NumTiers]bool
	copies [kvevent.NumTiers]int // by events that tell of each
}

func newTwin() *twin { return &twin{workers: map[fleet.Key]map[kvevent.EngineHash]twinBlock{}} }

func (w *twin) register(k fleet.Key) map[kvevent.EngineHash]twinBlock {
	if w.workers[k] == nil {
		w.workers[k] = map[kvevent.EngineHash]twinBlock{}
	}
	return w.workers[k]
}

func (w *twin) apply(ev *kvevent.Event) {
	key := fleet.Key{ID: ev.WorkerID, Rank: ev.Rank}
	blocks := w.register(key)
	switch ev.Kind {
	case kvevent.Stored:
		var path []block.Hash
		if len(ev.Blocks) == 0 {
			return
		}
		if ev.HasParent {
			parent, ok := blocks[ev.Parent]
			if !ok {
				w.stats.UnknownParents++
				return
			}
			path = parent.path
		}
		for _, b := range ev.Blocks {
			path = append(slices.Clone(path), b.Hash)
			w.stats.Stored++
			old, known := blocks[b.Engine]
			if known && !slices.Equal(old.path, path) {
				w.stats.Replaced++
				old = twinBlock{}
			}
			if old.tiers[ev.Tier] {
				w.stats.Duplicates++
			}
			switch {
			case !old.tiers[ev.Tier]:
				old.copies[ev.Tier] = 1
			case ev.Copies:
				old.copies[ev.Tier]++
			}
			old.path = path
			old.tiers[ev.Tier] = true
			blocks[b.Engine] = old
		}
	case kvevent.Removed:
		for _, e := range ev.Gone {
			b := blocks[e]
			if !b.tiers[ev.Tier] {
				w.stats.UnknownRemovals++
				continue
			}
			w.stats.Removed++
			if b.copies[ev.Tier]--; ev.Copies && b.copies[ev.Tier] > 0 {
				blocks[e] = b
				continue
			}
			b.tiers[ev.Tier] = false
			blocks[e] = b
			if b.tiers == [kvevent.NumTiers]bool{} {
				delete(blocks, e)
			}
		}
	case kvevent.Cleared:
		w.stats.Cleared++
		for k := range w.workers {
			if k == key || ev.AllRanks && k.ID == key.ID {
				w.clear(k)
			}
		}
	}
}

func (w *twin) clear(k fleet.Key) {
	if w.workers[k] != nil {
		w.workers[k] = map[kvevent.EngineHash]twinBlock{}
	}
}

// held lists the distinct prefixes a worker holds on a tier.
func (w *twin) held(k fleet.Key, t kvevent.Tier) [][]block.Hash {
	var paths [][]block.Hash
	for _, b := range w.workers[k] {
		if b.tiers[t] && !slices.ContainsFunc(paths, func(p []block.Hash) bool { return slices.Equal(p, b.path) }) {
			paths = append(paths, b.path)
		}
	}
	return paths
}

// depth counts along the prompt, tier after tier.
func (w *twin) depth(k fleet.Key, prompt []block.Hash) index.Depth {
	var n [kvevent.NumTiers]int
	at := 0
	for t := range kvevent.Tier(kvevent.NumTiers) {
		paths := w.held(k, t)
		for at < len(prompt) && slices.ContainsFunc(paths, func(p []block.Hash) bool { return slices.Equal(p, prompt[:at+1]) }) {
			at++
			n[t]++
		}
	}
	return index.Depth{Device: n[kvevent.Device], Host: n[kvevent.Host], Disk: n[kvevent.Disk], External: n[kvevent.External]}
}

func (w *twin) wantStats() index.Stats {
	s := w.stats
	s.Workers = len(w.workers)
	for k := range w.workers {
		for t := range kvevent.Tier(kvevent.NumTiers) {
			s.Entries += len(w.held(k, t))
		}
	}
	return s
}

// chainOf is the chain that stands for a whole prefix.
func chainOf(path []block.Hash) block.Chain {
	chains := block.AppendChains(nil, path)
	return chains[len(chains)-1]
}

// hot are the workers that get events: ranks of one worker, and ids that need
// all 64 bits.
var hot = []fleet.Key{{ID: 1}, {ID: 1, Rank: 1}, {ID: 1 << 63}, {ID: 2}, {ID: 2, Rank: 7}, {ID: 1<<64 - 1}}

// machine drives the index and its twin with the same steps.
type machine struct {
	index *index.Index
	twin  *twin
	match index.Match // reused from lookup to lookup, as decisions do
	// hidden are the workers that lookups must not credit.
	hidden map[fleet.Key]bool
}

// newMachine registers idle workers between the hot ones, so that the hot ones'
// slots lie in different words of the bitsets, up to beyond slot 128.
func newMachine(t *rapid.T) *machine {
	m := &machine{index: index.New(), twin: newTwin()}
	idle := uint64(1000)
	for _, k := range hot {
		for range rapid.SampledFrom([]int{0, 0, 1, 62, 64, 130}).Draw(t, "idle workers before") {
			m.register(t, fleet.Key{ID: idle})
			idle++
		}
		if rapid.Bool().Draw(t, "registered early") {
			m.register(t, k)
		}
	}
	return m
}

func (m *machine) register(t *rapid.T, k fleet.Key) {
	slot, err := m.index.Register(k)
	if err != nil {
		t.Fatalf("Register(%v): %v", k, err)
	}
	if got, ok := m.index.Lookup(k); !ok || got != slot {
		t.Fatalf("Lookup(%v) = %d, %v after Register gave %d", k, got, ok, slot)
	}
	m.twin.register(k)
}

func (m *machine) apply(t *rapid.T, ev *kvevent.Event) {
	if err := m.index.Apply(ev); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	m.twin.apply(ev)
}

func drawHot(t *rapid.T) fleet.Key { return rapid.SampledFrom(hot).Draw(t, "worker") }

func drawTier(t *rapid.T) kvevent.Tier {
	return rapid.SampledFrom([]kvevent.Tier{kvevent.Device, kvevent.Device, kvevent.Device, kvevent.Host, kvevent.Host, kvevent.Disk, kvevent.External}).Draw(t, "tier")
}

// Few values, so that equal prefixes, equal engine hashes and clashes are common.
var (
	hashes  = rapid.Uint64Range(1, 3)
	engines = rapid.Uint64Range(1, 14)
)

func (m *machine) stored(t *rapid.T) {
	k := drawHot(t)
	ev := &kvevent.Event{WorkerID: k.ID, Rank: k.Rank, Kind: kvevent.Stored, Tier: drawTier(t), Copies: rapid.Bool().Draw(t, "copies")}
	ev.HasParent = rapid.Bool().Draw(t, "has parent")
	if ev.HasParent {
		ev.Parent = kvevent.EngineHash(engines.Draw(t, "parent"))
		known := slices.Sorted(maps.Keys(m.twin.workers[k]))
		if len(known) > 0 && rapid.IntRange(0, 4).Draw(t, "unknown parent") > 0 {
			ev.Parent = rapid.SampledFrom(known).Draw(t, "known parent")
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "blocks") {
		ev.Blocks = append(ev.Blocks, kvevent.Block{
			Engine: kvevent.EngineHash(engines.Draw(t, "engine")), Hash: block.Hash(hashes.Draw(t, "hash")),
		})
	}
	m.apply(t, ev)
}

// again stores a prefix that some worker holds on another tier, or under other
// engine hashes, or on another worker.
func (m *machine) again(t *rapid.T) {
	path := m.heldPath(t)
	k := drawHot(t)
	ev := &kvevent.Event{WorkerID: k.ID, Rank: k.Rank, Kind: kvevent.Stored, Tier: drawTier(t), Copies: rapid.Bool().Draw(t, "copies")}
	first := engines.Draw(t, "first engine")
	for i, h := range path {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(first + uint64(i)), Hash: h})
	}
	m.apply(t, ev)
}

func (m *machine) removed(t *rapid.T) {
	k := drawHot(t)
	ev := &kvevent.Event{WorkerID: k.ID, Rank: k.Rank, Kind: kvevent.Removed, Tier: drawTier(t), Copies: rapid.Bool().Draw(t, "copies")}
	for range rapid.IntRange(0, 3).Draw(t, "gone") {
		ev.Gone = append(ev.Gone, kvevent.EngineHash(engines.Draw(t, "engine")))
	}
	m.apply(t, ev)
}

func (m *machine) cleared(t *rapid.T) {
	k := drawHot(t)
	m.apply(t, &kvevent.Event{WorkerID: k.ID, Rank: k.Rank, Kind: kvevent.Cleared, AllRanks: rapid.Bool().Draw(t, "all ranks")})
}

// heldPath draws a prefix that a worker holds on some tier, or any other.
func (m *machine) heldPath(t *rapid.T) []block.Hash {
	blocks := m.twin.workers[drawHot(t)]
	known := slices.Sorted(maps.Keys(blocks))
	if len(known) == 0 {
		return []block.Hash{block.Hash(hashes.Draw(t, "hash"))}
	}
	return blocks[rapid.SampledFrom(known).Draw(t, "engine")].path
}

func (m *machine) check(t *rapid.T) {
	if err := m.index.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := m.index.Stats(), m.twin.wantStats(); got != want {
		t.Fatalf("Stats = %+v, want %+v", got, want)
	}
	prompts := [][]block.Hash{nil, slices.Clone(m.heldPath(t))}
	for range rapid.IntRange(0, 6).Draw(t, "tail") {
		prompts[1] = append(prompts[1], block.Hash(hashes.Draw(t, "hash")))
	}
	for _, prompt := range prompts {
		m.index.Match(block.AppendChains(nil, prompt), &m.match)
		for _, k := range hot {
			slot, ok := m.index.Lookup(k)
			if ok != (m.twin.workers[k] != nil) {
				t.Fatalf("Lookup(%v) says registered = %v", k, ok)
			}
			if !ok {
				continue
			}
			want := m.twin.depth(k, prompt)
			if m.hidden[k] {
				want = index.Depth{}
			}
			if got := m.match.Depth(slot); got != want {
				t.Fatalf("prompt %v: worker %v holds %+v, want %+v", prompt, k, got, want)
			}
		}
	}
	for _, k := range hot {
		var counts [kvevent.NumTiers]int
		for tier := range kvevent.Tier(kvevent.NumTiers) {
			var want []block.Chain
			for _, path := range m.twin.held(k, tier) {
				want = append(want, chainOf(path))
			}
			counts[tier] = len(want)
			got := m.index.Chains(k, tier)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("Chains(%v, %v) = %v, want %v", k, tier, got, want)
			}
		}
		if got := m.index.Held(k); got != counts {
			t.Fatalf("Held(%v) = %v, want %v", k, got, counts)
		}
	}
}

func TestIndexEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"stored":  m.stored,
			"stored2": m.stored,
			"stored3": m.stored,
			"again":   m.again,
			"removed": m.removed,
			"cleared": m.cleared,
			"register": func(t *rapid.T) {
				m.register(t, drawHot(t))
			},
			"drop": func(t *rapid.T) {
				k := drawHot(t)
				m.index.Drop(k)
				delete(m.twin.workers, k)
			},
			"clear": func(t *rapid.T) {
				k := drawHot(t)
				m.index.Clear(k)
				m.twin.clear(k)
			},
		})
		// Nothing may stay behind once every worker is gone.
		for _, k := range m.index.Workers() {
			m.index.Drop(k)
		}
		if s := m.index.Stats(); s.Workers != 0 || s.Entries != 0 {
			t.Fatalf("after dropping all workers: %+v", s)
		}
	})
}

// The twin itself, by hand, so that it is not merely wrong in the same way.
func TestTwinByHand(t *testing.T) {
	w := newTwin()
	k := fleet.Key{ID: 1}
	w.apply(&kvevent.Event{WorkerID: 1, Kind: kvevent.Stored, Blocks: []kvevent.Block{{Engine: 1, Hash: 10}, {Engine: 2, Hash: 20}}})
	w.apply(&kvevent.Event{WorkerID: 1, Kind: kvevent.Stored, Tier: kvevent.Host, Parent: 2, HasParent: true, Blocks: []kvevent.Block{{Engine: 3, Hash: 30}}})
	got := fmt.Sprint(w.depth(k, []block.Hash{10, 20, 30, 40}), w.depth(k, []block.Hash{10, 30}), w.depth(k, []block.Hash{20}), w.wantStats().Entries)
	if want := "{2 1 0 0} {1 0 0 0} {0 0 0 0} 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
