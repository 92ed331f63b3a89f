package index_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// pair drives an index and the plain one with long events: prompts of hundreds
// of blocks that branch, evictions of stretches, workers that come and go.
type pair struct {
	index   *index.Index
	plain   *plain
	prompts [][]block.Hash
	workers uint64
	random  *rand.Rand
	match   index.Match
	want    plainMatch
}

func newPair(seed, workers uint64) *pair {
	return &pair{index: index.New(), plain: newPlain(), workers: workers, random: rand.New(rand.NewPCG(seed, 1))}
}

// engineOf is a worker's engine hash of a prefix. Now and then two stand for one.
func (p *pair) engineOf(id uint64, c block.Chain) kvevent.EngineHash {
	e := uint64(c)*31 + id
	if p.random.IntN(200) == 0 {
		e++
	}
	return kvevent.EngineHash(e)
}

// prompt draws an earlier prompt, a branch of one or a new one.
func (p *pair) prompt() []block.Hash {
	var contents []block.Hash
	switch n := len(p.prompts); {
	case n > 0 && p.random.IntN(3) == 0:
		return p.prompts[p.random.IntN(n)]
	case n > 0 && p.random.IntN(4) > 0:
		from := p.prompts[p.random.IntN(n)]
		contents = slices.Clone(from[:p.random.IntN(len(from)+1)])
	}
	contents = append(contents, fresh(p.random, 1+p.random.IntN(300))...)
	p.prompts = append(p.prompts, contents)
	return contents
}

// stored is an event by which a worker stores a part of a prompt, or all.
func (p *pair) stored(t kvevent.Tier) *kvevent.Event {
	contents := p.prompt()
	chains := block.AppendChains(nil, contents)
	ev := &kvevent.Event{WorkerID: p.random.Uint64N(p.workers), Kind: kvevent.Stored, Tier: t, Copies: p.random.IntN(2) == 0}
	from, to := 0, len(contents)
	if p.random.IntN(2) == 0 {
		from = p.random.IntN(len(contents))
	}
	if p.random.IntN(2) == 0 {
		to = from + p.random.IntN(len(contents)-from) + 1
	}
	if from > 0 {
		ev.HasParent, ev.Parent = true, p.engineOf(ev.WorkerID, chains[from-1])
	}
	for i := from; i < to; i++ {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: p.engineOf(ev.WorkerID, chains[i]), Hash: contents[i]})
	}
	return ev
}

// gone is an event by which a worker evicts a part of a prompt, mostly its end.
func (p *pair) gone(t kvevent.Tier) *kvevent.Event {
	ev := &kvevent.Event{WorkerID: p.random.Uint64N(p.workers), Kind: kvevent.Removed, Tier: t, Copies: p.random.IntN(2) == 0}
	if len(p.prompts) == 0 {
		return ev
	}
	chains := block.AppendChains(nil, p.prompts[p.random.IntN(len(p.prompts))])
	from, to := p.random.IntN(len(chains)), len(chains)
	if p.random.IntN(3) == 0 {
		to = from + p.random.IntN(len(chains)-from) + 1
	}
	for _, c := range chains[from:to] {
		ev.Gone = append(ev.Gone, p.engineOf(ev.WorkerID, c))
	}
	switch p.random.IntN(3) {
	case 0:
		slices.Reverse(ev.Gone)
	case 1:
		p.random.Shuffle(len(ev.Gone), func(i, j int) { ev.Gone[i], ev.Gone[j] = ev.Gone[j], ev.Gone[i] })
	}
	return ev
}

func (p *pair) step() error {
	tier := kvevent.Device
	if p.random.IntN(4) == 0 {
		tier = kvevent.Tier(p.random.IntN(kvevent.NumTiers))
	}
	var ev *kvevent.Event
	id := p.random.Uint64N(p.workers)
	switch n := p.random.IntN(100); {
	case n < 55:
		ev = p.stored(tier)
	case n < 93:
		ev = p.gone(tier)
	case n < 95:
		ev = &kvevent.Event{WorkerID: id, Kind: kvevent.Cleared}
	case n < 97:
		p.index.Clear(fleet.Key{ID: id})
		p.plain.Clear(fleet.Key{ID: id})
	case n < 98:
		p.index.Drop(fleet.Key{ID: id})
		p.plain.Drop(fleet.Key{ID: id})
	}
	if ev == nil {
		return nil
	}
	return errors.Join(p.index.Apply(ev), p.plain.Apply(ev))
}

func (p *pair) steps(n int) error {
	for range n {
		if err := p.step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) check(t *rapid.T) {
	if err := p.index.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.index.Stats(), p.plain.Stats(); got != want {
		t.Fatalf("Stats = %+v, want %+v", got, want)
	}
	for _, contents := range p.prompts[max(0, len(p.prompts)-40):] {
		chains := block.AppendChains(nil, contents)
		p.index.Match(chains, &p.match)
		p.plain.Match(chains, &p.want)
		for id := range p.workers {
			slot, ok := p.index.Lookup(fleet.Key{ID: id})
			if !ok {
				continue
			}
			got := p.match.Depth(slot)
			w, s := &p.want, int(slot)
			if want := (index.Depth{Device: w.at(0, s), Host: w.at(1, s), Disk: w.at(2, s), External: w.at(3, s)}); got != want {
				t.Fatalf("prompt of %d: worker %d holds %+v, want %+v", len(chains), id, got, want)
			}
		}
	}
	for id := range p.workers {
		if got, want := p.index.Held(fleet.Key{ID: id}), p.plain.Held(fleet.Key{ID: id}); got != want {
			t.Fatalf("worker %d: %v held, want %v", id, got, want)
		}
		if got, want := p.index.Copies(fleet.Key{ID: id}), p.plain.Copies(fleet.Key{ID: id}); !maps.Equal(got, want) {
			t.Fatalf("worker %d: copies %v, want %v", id, got, want)
		}
	}
}

// Long random runs against the plain index, with everything inside checked.
func TestLargeRunsEqualPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{2, 8, 100}).Draw(t, "workers"))
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range 60 {
				if err := p.step(); err != nil {
					t.Fatal(err)
				}
			}
			p.check(t)
		}
	})
}
