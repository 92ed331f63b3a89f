package load_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// placed is a reservation under way, as the twin knows it.
type placed struct {
	prefill, decode *load.Worker
	tokens, blocks  int
	output          int // blocks
	counts          int // of them
	chains          []block.Chain
	prefilled       bool
	r               *load.Reservation
}

// slowTable works all figures out from the list of what is under way.
type slowTable struct{ live []*placed }

func (s *slowTable) figures(w *load.Worker) (f load.Figures) {
	used := map[block.Chain]bool{}
	for _, p := range s.live {
		if p.prefill == w && !p.prefilled {
			f.PrefillTokens += p.tokens
		}
		if p.decode != w {
			continue
		}
		f.Requests++
		f.DecodeBlocks += p.blocks - len(p.chains) + p.counts
		for _, c := range p.chains {
			if !used[c] {
				used[c] = true
				f.DecodeBlocks++
			}
		}
	}
	return f
}

// slowWeighed is the tenths of n blocks, a half rounded up.
func slowWeighed(n, tenths int) int {
	counts := 0
	for 10*counts+5 <= n*min(10, tenths) {
		counts++
	}
	return counts
}

// idle says whether nothing under way concerns a worker (any more).
func (s *slowTable) idle(w *load.Worker) bool {
	return !slices.ContainsFunc(s.live, func(p *placed) bool { return p.decode == w || p.prefill == w && !p.prefilled })
}

// active returns how many blocks from the start of a prompt a worker uses.
func (s *slowTable) active(w *load.Worker, chains []block.Chain) (n int32) {
	for _, p := range s.live {
		if p.decode == w {
			same := int32(0)
			for int(same) < min(len(chains), len(p.chains)) && chains[same] == p.chains[same] {
				same++
			}
			n = max(n, same)
		}
	}
	return n
}

// chainsFrom turns the blocks of a prompt into chains.
func chainsFrom(blocks []int) []block.Chain {
	chains, last := make([]block.Chain, len(blocks)), block.Chain(0)
	for i, b := range blocks {
		last = last*8 + block.Chain(b) + 1
		chains[i] = last
	}
	return chains
}

// prompts draws prompts of which many share a beginning.
var prompts = rapid.Map(rapid.SliceOfN(rapid.IntRange(0, 2), 0, 7), chainsFrom)

// TestTableEqualsTwin: whatever the order of what happens to requests and workers,
// the figures are those of the requests under way.
func TestTableEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, slow := load.NewTable(), &slowTable{}
		pool := []uint64{1, 2, 3}
		workers := map[uint64]*load.Worker{}
		gone := map[uint64]bool{} // of workers: not in the pool, and forgotten once idle
		versions := map[*load.Worker]uint32{}
		id := rapid.SampledFrom(pool)
		draw := func(t *rapid.T) *placed {
			if len(slow.live) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(slow.live).Draw(t, "request")
		}
		check := func(t *rapid.T) {
			if runs, _ := table.Left(); runs > 2*len(slow.live) {
				t.Fatalf("%d runs for %d requests", runs, len(slow.live))
			}
			prompt := prompts.Draw(t, "prompt")
			active := table.Active(prompt, nil)
			rows := map[int]bool{}
			for id := range gone {
				if slow.idle(workers[id]) {
					delete(workers, id)
					delete(gone, id)
				}
			}
			for id, w := range workers {
				if got, want := w.Figures(), slow.figures(w); got != want {
					t.Fatalf("worker %d: %+v, want %+v", id, got, want)
				}
				if got, want := active[w.Row()], slow.active(w, prompt); got != want {
					t.Fatalf("worker %d: %d blocks active, want %d", id, got, want)
				}
				if rows[w.Row()] {
					t.Fatalf("two workers in row %d", w.Row())
				}
				rows[w.Row()] = true
			}
			for row, n := range active {
				if n != 0 && !rows[row] {
					t.Fatalf("%d blocks active in row %d of nobody", n, row)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"reserve": func(t *rapid.T) {
				prefill, decode := id.Draw(t, "prefill"), id.Draw(t, "decode")
				p := &placed{prefill: table.Worker(key(prefill)), decode: table.Worker(key(decode)), tokens: rapid.IntRange(0, 99).Draw(t, "tokens"), chains: prompts.Draw(t, "chains")}
				p.blocks = len(p.chains) + rapid.IntRange(0, 1).Draw(t, "rest")
				workers[prefill], workers[decode] = p.prefill, p.decode
				delete(gone, prefill)
				delete(gone, decode)
				versions[p.prefill], versions[p.decode] = p.prefill.Version(), p.decode.Version()
				given := slices.Clone(p.chains)
				p.r = reserveChains(table, prefill, decode, p.tokens, p.blocks, given)
				clear(given) // nothing of it is kept
				if p.prefill.Version() != versions[p.prefill]+1 || p.decode.Version() != versions[p.decode]+1 {
					t.Fatalf("versions after a booking: %d and %d, were %v", p.prefill.Version(), p.decode.Version(), versions)
				}
				slow.live = append(slow.live, p)
			},
			"prefill done": func(t *rapid.T) {
				p := draw(t)
				p.r.PrefillDone(moment)
				p.prefilled = true
			},
			"output": func(t *rapid.T) {
				p, n := draw(t), rapid.IntRange(-1, 9).Draw(t, "blocks")
				tenths := rapid.IntRange(-1, 11).Draw(t, "tenths left")
				p.r.Output(n, float64(tenths)/10)
				if n > p.output {
					p.output, p.counts = n, slowWeighed(n, tenths)
				}
			},
			"release": func(t *rapid.T) {
				p := draw(t)
				p.r.Release()
				p.r.Output(100, 1)
				p.r.PrefillDone(moment)
				p.r.Release()
				slow.live = slices.DeleteFunc(slow.live, func(o *placed) bool { return o == p })
			},
			"retain": func(t *rapid.T) {
				ids := rapid.SliceOfNDistinct(id, 0, len(pool), rapid.ID).Draw(t, "pool")
				s, err := newSnapshot(ids)
				if err != nil {
					t.Fatal(err)
				}
				table.Retain(s)
				for id := range workers {
					gone[id] = true
				}
				for _, id := range ids {
					workers[id] = table.Worker(key(id))
					delete(gone, id)
				}
			},
		})
		for _, p := range slow.live {
			p.r.Release()
		}
		slow.live = nil
		check(t)
		if runs, _ := table.Left(); runs != 0 {
			t.Fatalf("%d runs left", runs)
		}
	})
}

// TestChainsThatAreNone: prompts whose chains make no sense, as after a collision
// of hashes, are booked and released like others.
func TestChainsThatAreNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := load.NewTable()
		var live []*load.Reservation
		sense := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) block.Chain { return block.Chain(rapid.IntRange(0, 5).Draw(t, "chain")) }), 0, 6)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { table.Active(sense.Draw(t, "prompt"), nil) },
			"reserve": func(t *rapid.T) {
				chains := sense.Draw(t, "chains")
				live = append(live, reserveChains(table, 1, rapid.Uint64Range(1, 2).Draw(t, "worker"), 1, len(chains), chains))
			},
			"release": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "request")
				live[i].Release()
				live = slices.Delete(live, i, i+1)
			},
		})
		for _, r := range live {
			r.Release()
		}
		for k, f := range figures(table) {
			if f != (load.Figures{}) {
				t.Fatalf("all released, yet %v has %+v", k, f)
			}
		}
		if runs, _ := table.Left(); runs != 0 {
			t.Fatalf("%d runs left", runs)
		}
	})
}

// TestOutputIsWeighed: every number of blocks with every tenth, what is no share,
// and words that come late.
func TestOutputIsWeighed(t *testing.T) {
	figure := func(say func(r *load.Reservation)) int {
		table := load.NewTable()
		r := reserveChains(table, 1, 1, 0, 3, nil)
		say(r)
		n := figures(table)[key(1)].DecodeBlocks - 3
		if r.Release(); figures(table)[key(1)] != (load.Figures{}) {
			t.Errorf("released, yet the worker has %+v", figures(table)[key(1)])
		}
		return n
	}
	for blocks := range 12 {
		for tenths := range 11 {
			got := figure(func(r *load.Reservation) { r.Output(blocks, float64(tenths)/10) })
			if want := slowWeighed(blocks, tenths); got != want {
				t.Errorf("%d blocks, %d tenths left: %d count, want %d", blocks, tenths, got, want)
			}
		}
	}
	for left, want := range map[float64]int{-1: 0, 1.5: 8, math.Inf(1): 8, math.Inf(-1): 0} {
		if got := figure(func(r *load.Reservation) { r.Output(8, left) }); got != want {
			t.Errorf("%v left of 8 blocks: %d count, want %d", left, got, want)
		}
	}
	if got := figure(func(r *load.Reservation) { r.Output(8, math.NaN()) }); got != 0 {
		t.Errorf("NaN left: %d count, want none", got)
	}
	if got := figure(func(r *load.Reservation) { r.Output(8, 0.5); r.Output(4, 1); r.Output(8, 1) }); got != 4 {
		t.Errorf("a late word counts: %d, want 4", got)
	}
	// A nearly finished output weighs less than it did half way.
	if got := figure(func(r *load.Reservation) { r.Output(8, 0.5); r.Output(14, 0.125) }); got != 2 {
		t.Errorf("14 blocks, an eighth left: %d count, want 2", got)
	}
}

// TestOutputMakesAChoiceStale only where the worker becomes dearer.
func TestOutputMakesAChoiceStale(t *testing.T) {
	table := load.NewTable()
	w := table.Worker(key(1))
	r := reserveChains(table, 1, 1, 0, 3, nil)
	for _, say := range []struct {
		blocks int
		left   float64
		dearer bool
	}{{4, 1, true}, {4, 1, false}, {5, 0.5, false}, {9, 0.5, true}} {
		before := w.Version()
		r.Output(say.blocks, say.left)
		if dearer := w.Version() != before; dearer != say.dearer {
			t.Errorf("%+v: the version changed: %v", say, dearer)
		}
	}
}

// TestRowsAreTakenOver: a worker that takes the row of one that left starts at
// zero, and one that left keeps no other from its row.
func TestRowsAreTakenOver(t *testing.T) {
	table := load.NewTable()
	prompt := chainsFrom([]int{1, 2, 3})
	old := table.Worker(key(1))
	reserveChains(table, 1, 1, 100, 4, prompt).Release()
	table.Retain(snapshot(t))
	late := load.Booking{Blocks: 4, Chains: prompt, PrefillKey: key(1), DecodeKey: key(1), Prefill: old, Decode: old}
	table.Lock()
	r := table.Reserve(late) // by a decision that began before
	table.Unlock()
	w := table.Worker(key(2))
	if w.Row() != old.Row() {
		t.Errorf("row %d, want %d, which is free", w.Row(), old.Row())
	}
	if f := w.Figures(); f != (load.Figures{}) {
		t.Errorf("the new worker begins with %+v", f)
	}
	if n := table.Active(prompt, nil)[w.Row()]; n != 0 {
		t.Errorf("the new worker uses %d blocks, want none", n)
	}
	if got := old.Figures().DecodeBlocks; got != 4 {
		t.Errorf("the late request has %d blocks, want 4", got)
	}
	r.Release()
	if f := old.Figures(); f != (load.Figures{}) {
		t.Errorf("after its release: %+v", f)
	}
	if other := table.Worker(key(3)); other.Row() == w.Row() {
		t.Errorf("workers 2 and 3 share row %d", w.Row())
	}
}

// TestSharedBlocksConcurrently is for the race detector: prompts that share
// beginnings come and go at once.
func TestSharedBlocksConcurrently(t *testing.T) {
	const goroutines, each, workers = 4, 200, 3
	table := load.NewTable()
	all := snapshot(t, 0, 1, 2)
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(g, 1))
			var live []*load.Reservation
			for range each {
				prompt := make([]int, random.IntN(12))
				for i := range prompt {
					prompt[i] = random.IntN(2)
				}
				chains := chainsFrom(prompt)
				table.Active(chains, nil)
				r := reserveChains(table, random.Uint64N(workers), random.Uint64N(workers), 10, len(chains)+1, chains)
				r.Name(string(rune('a' + random.IntN(26))))
				r.PrefillDone(moment)
				r.Output(random.IntN(5), random.Float64())
				if live = append(live, r); len(live) > 8 {
					live[0].Release()
					live = live[1:]
				}
			}
			for _, r := range live {
				r.Release()
			}
		})
	}
	wg.Go(func() {
		for range each {
			table.Retain(all)
			table.Read(func(k fleet.Key, f load.Figures) {
				if f.DecodeBlocks < f.Requests {
					t.Errorf("worker %v: %+v, want a block per request at least", k, f)
				}
			})
		}
	})
	wg.Wait()
	for k, f := range figures(table) {
		if f != (load.Figures{}) {
			t.Errorf("all released, yet %v has %+v", k, f)
		}
	}
	if runs, names := table.Left(); runs != 0 || names != 0 {
		t.Errorf("%d runs and %d names left", runs, names)
	}
}

// TestSharingCostsNoAllocations: beyond the reservation, once there is room.
func TestSharingCostsNoAllocations(t *testing.T) {
	table := load.NewTable()
	w := table.Worker(key(1))
	bookings := make([]load.Booking, 8)
	for i := range bookings {
		bookings[i] = load.Booking{Blocks: 128, Chains: chainsOf(i, 128, 10*i), PrefillKey: key(1), DecodeKey: key(1), Prefill: w, Decode: w}
	}
	reserve := func(i int) *load.Reservation {
		table.Lock()
		defer table.Unlock()
		return table.Reserve(bookings[i%len(bookings)])
	}
	out := make([]int32, 1)
	cycle := func() {
		for i := range bookings {
			a, b := reserve(i), reserve(i+3)
			out = table.Active(bookings[i].Chains, out)
			a.Release()
			b.Release()
		}
	}
	for range 100 {
		cycle()
	}
	if n := testing.AllocsPerRun(100, cycle); n > 2*float64(len(bookings)) {
		t.Errorf("%v allocations for %d reservations", n, 2*len(bookings))
	}
}
