package index_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// tester is what the tests of the bound need of a *testing.T and a *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// checkBytes compares the bytes counted step by step with a count made anew, and
// with the bound.
func checkBytes(t tester, x *index.Index, bound int64) {
	t.Helper()
	want, err := x.Recount()
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Memory().Bytes; got != want || got > bound {
		t.Fatalf("%d bytes, want %d, and at most %d", got, want, bound)
	}
}

// checkPrefixes looks all prompts up: no worker is credited with more than the
// unbounded twin says it holds on any tier above a depth.
func (p *pair) checkPrefixes(t tester) {
	t.Helper()
	for _, contents := range p.prompts {
		chains := block.AppendChains(nil, contents)
		p.index.Match(chains, &p.match)
		p.plain.Match(chains, &p.want)
		for _, k := range p.index.Workers() {
			slot, _ := p.index.Lookup(k)
			other, ok := p.plain.Lookup(k)
			if !ok {
				t.Fatalf("worker %v is not the twin's", k)
			}
			got, s := p.match.Depth(slot), int(other)
			if got.Device > p.want.at(kvevent.Device, s) || got.Total() > p.want.total(s) {
				t.Fatalf("worker %v is credited %+v of %d on the device, %d in all", k, got, p.want.at(kvevent.Device, s), p.want.total(s))
			}
		}
	}
}

// Within any bound the index answers a prefix of what the unbounded twin does,
// never takes more than the bound, and counts its bytes exactly.
func TestBoundedEqualsPlainPrefix(t *testing.T) {
	evicted, refused, full := uint64(0), uint64(0), 0
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{1, 2, 8, 100}).Draw(t, "workers"))
		bytes := rapid.OneOf(rapid.Int64Range(60<<10, 300<<10), rapid.Int64Range(300<<10, 800<<10)).Draw(t, "bytes")
		x, bound := index.NewTiny(bytes)
		p.index = x
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for i := range 60 {
				err := p.step()
				if i%20 == 7 {
					ev := p.replacing(kvevent.Device)
					err = errors.Join(err, p.index.Apply(ev), p.plain.Apply(ev))
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := x.Memory().Bytes; got > bound {
					t.Fatalf("%d bytes, bound %d", got, bound)
				}
			}
			if err := x.Check(); err != nil {
				t.Fatal(err)
			}
			checkBytes(t, x, bound)
			p.checkPrefixes(t)
		}
		m := x.Memory()
		evicted += m.Evicted
		refused += m.NoRoom
		if m.Evicted > 0 && x.Stats().Entries > 0 {
			full++
		}
	})
	if evicted == 0 || refused == 0 || full == 0 {
		t.Errorf("%d evicted, %d refused, %d runs full: the bounds bound nothing", evicted, refused, full)
	}
}

// Whatever moment memory runs out at, in the midst of removals and sweeps too,
// the bound holds and the answers are prefixes: at worst a worker is forgotten.
func TestMemoryRunsOutAnywhere(t *testing.T) {
	forgotten := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{1, 3, 20, 100}).Draw(t, "workers"))
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range 40 {
				if p.random.IntN(4) == 0 {
					p.index.Squeeze(p.random.Int64N(1 << (10 + p.random.IntN(9))))
				}
				err := p.step()
				if p.random.IntN(4) == 0 {
					ev := p.replacing(kvevent.Tier(p.random.IntN(2)))
					err = errors.Join(err, p.index.Apply(ev), p.plain.Apply(ev))
				}
				if err != nil {
					t.Fatal(err)
				}
				if n := p.index.Spare(); n < 0 {
					t.Fatalf("%d bytes beyond the bound", -n)
				}
			}
			if err := p.index.Check(); err != nil {
				t.Fatal(err)
			}
			checkBytes(t, p.index, index.DefaultBytes)
			p.checkPrefixes(t)
		}
		forgotten += p.index.Memory().Forgotten
	})
	if forgotten == 0 {
		t.Error("memory never ran out in the midst of a removal")
	}
}

// replacing is an event by which a worker gives engine hashes that it may know to
// other content.
func (p *pair) replacing(t kvevent.Tier) *kvevent.Event {
	ev := p.stored(t)
	chains := block.AppendChains(nil, p.prompts[p.random.IntN(len(p.prompts))])
	for i := range ev.Blocks[:min(len(ev.Blocks), len(chains))] {
		ev.Blocks[i].Engine = p.engineOf(ev.WorkerID, chains[i])
	}
	return ev
}

// squeezer is a snapshot being read, between whose parts the memory left changes.
type squeezer struct {
	data   []byte
	index  *index.Index
	random *rand.Rand
}

func (s *squeezer) Read(b []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	s.index.Squeeze(s.random.Int64N(1 << (10 + s.random.IntN(9))))
	n := copy(b, s.data[:min(len(s.data), 1+s.random.IntN(5000))])
	s.data = s.data[n:]
	return n, nil
}

// The same while a snapshot is loaded.
func TestMemoryRunsOutInLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{1, 4, 50}).Draw(t, "workers"))
		if err := p.steps(rapid.IntRange(20, 200).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		data := snapshot(t, p.index)
		p.index = index.New()
		if err := p.index.Load(&squeezer{data, p.index, p.random}); err != nil {
			t.Fatal(err)
		}
		if n := p.index.Spare(); n < 0 {
			t.Fatalf("%d bytes beyond the bound", -n)
		}
		if err := p.index.Check(); err != nil {
			t.Fatal(err)
		}
		for _, k := range p.index.Workers() {
			for tier := range kvevent.Tier(kvevent.NumTiers) {
				if got, want := len(p.index.Chains(k, tier)), p.index.Held(k)[tier]; got != want {
					t.Fatalf("worker %v has %d chains on tier %v, counts %d", k, got, tier, want)
				}
			}
		}
		checkBytes(t, p.index, index.DefaultBytes)
		p.checkPrefixes(t)
	})
}

// Evictions leave no hole: what a worker still holds of a prompt that it stored
// whole lies at its begin, on every tier.
func TestEvictionIsDeepestFirst(t *testing.T) {
	const workers, prompts, length = 5, 60, 150
	x, bound := index.NewTiny(300 << 10)
	var all [][]block.Chain
	for i := range prompts {
		contents := make([]block.Hash, length)
		for j := range contents {
			contents[j] = block.Hash(j + 1)
			if j > 20 { // the same begin, then each its own
				contents[j] = block.Hash(1000*(i+1) + j)
			}
		}
		all = append(all, block.AppendChains(nil, contents))
		for id := range uint64(workers) {
			ev := storedAll(id, kvevent.Tier(i%2), contents)
			for j := range ev.Blocks {
				if j > 20 {
					ev.Blocks[j].Engine += kvevent.EngineHash(1000 * (i + 1))
				}
			}
			mustApply(t, x, ev)
			checkBytes(t, x, bound)
		}
	}
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
	if m := x.Memory(); m.Evicted == 0 {
		t.Fatalf("%+v: nothing was evicted", m)
	}
	for _, k := range x.Workers() {
		for tier := range kvevent.Tier(2) {
			held := map[block.Chain]bool{}
			for _, c := range x.Chains(k, tier) {
				held[c] = true
			}
			if len(held) == 0 {
				t.Errorf("worker %v holds nothing on tier %v", k, tier)
			}
			for i := int(tier); i < prompts; i += 2 {
				n := 0
				for n < length && held[all[i][n]] {
					n++
				}
				for _, c := range all[i][n:] {
					if held[c] {
						t.Fatalf("worker %v, prompt %d: a block behind a hole at %d", k, i, n)
					}
				}
			}
		}
	}
}

// Where the bound is far too small for anything, blocks are refused and counted,
// and nothing else happens.
func TestNothingFits(t *testing.T) {
	x, bound := index.NewTiny(50 << 10)
	contents, chains := counted(300)
	for id := range uint64(3) {
		mustApply(t, x, storedAll(id, kvevent.Device, contents))
		if got := depthOf(t, x, id, chains); got != device(0) {
			t.Errorf("%+v", got)
		}
	}
	if m := x.Memory(); m.NoRoom != 900 || m.Evicted != 0 {
		t.Errorf("%+v, want 900 blocks refused", m)
	}
	full := index.New()
	mustApply(t, full, storedAll(1, kvevent.Device, contents))
	if err := x.Load(bytes.NewReader(snapshot(t, full))); !errors.Is(err, index.ErrNoRoom) {
		t.Errorf("Load: %v, want ErrNoRoom", err)
	}
	checkBytes(t, x, bound)
}

// Room is used again: a full index goes on taking what comes, forgets other
// things for it, and once all is gone it is as small as a new one.
func TestFullIndexGoesOn(t *testing.T) {
	const length, rounds = 200, 400
	x, bound := index.NewTiny(400 << 10)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range rounds {
		contents := fresh(r, length)
		ev := storedAll(uint64(i%4), kvevent.Device, contents)
		for j := range ev.Blocks {
			ev.Blocks[j].Engine = kvevent.EngineHash(i*length + j)
		}
		mustApply(t, x, ev)
		if got := depthOf(t, x, ev.WorkerID, block.AppendChains(nil, contents)); got.Device == 0 {
			t.Fatalf("round %d: nothing of the newest prompt is held", i)
		}
		checkBytes(t, x, bound)
	}
	if n := x.Stats().Entries; n < 4000 {
		t.Errorf("%d entries in %d bytes", n, bound)
	}
	if m := x.Memory(); m.Evicted < rounds*length/2 {
		t.Errorf("%+v", m)
	}
}

// A worker that has evicted nearly all by itself does not keep a table for all.
func TestTableShrinks(t *testing.T) {
	x := index.New()
	r := rand.New(rand.NewPCG(1, 2))
	empty := x.Memory().Bytes
	ev := storedAll(1, kvevent.Device, fresh(r, 50_000))
	mustApply(t, x, ev)
	full := x.Memory().Bytes
	gone := kvevent.Event{WorkerID: 1, Kind: kvevent.Removed}
	for _, b := range ev.Blocks[10:] {
		gone.Gone = append(gone.Gone, b.Engine)
	}
	mustApply(t, x, gone)
	checkBytes(t, x, 1<<31)
	if left := x.Memory().Bytes; left-empty > (full-empty)/4 {
		t.Errorf("%d bytes for 10 blocks, %d for 50,000, %d for none", left, full, empty)
	}
	if got := x.Held(key(1))[kvevent.Device]; got != 10 {
		t.Errorf("%d blocks left", got)
	}
}

// Chunks of the arena that nothing lives in any more are given back, and their
// places used again.
func TestChunksAreGivenBack(t *testing.T) {
	x := index.New()
	r := rand.New(rand.NewPCG(3, 4))
	var stored, gone []kvevent.Event
	for id := range uint64(6) {
		ev := storedAll(id, kvevent.Device, fresh(r, 8192))
		rm := kvevent.Event{WorkerID: id, Kind: kvevent.Removed}
		for _, b := range ev.Blocks {
			rm.Gone = append(rm.Gone, b.Engine)
		}
		stored, gone = append(stored, ev), append(gone, rm)
		mustApply(t, x, ev)
	}
	full := x.Memory().Bytes
	for round := range 3 {
		for id := 1; id < 5; id++ {
			mustApply(t, x, gone[id])
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		checkBytes(t, x, index.DefaultBytes)
		if got := x.Memory().Bytes; got > full*6/10 {
			t.Errorf("round %d: %d bytes with a third of what took %d", round, got, full)
		}
		for id := 1; id < 5; id++ {
			mustApply(t, x, stored[id])
		}
		checkBytes(t, x, index.DefaultBytes)
		for id := range stored {
			var contents []block.Hash
			for _, b := range stored[id].Blocks {
				contents = append(contents, b.Hash)
			}
			if got := depthOf(t, x, uint64(id), block.AppendChains(nil, contents)); got != device(len(contents)) {
				t.Fatalf("round %d: worker %d holds %+v", round, id, got)
			}
		}
	}
	if got := x.Memory().Bytes; got > full*11/10 {
		t.Errorf("%d bytes, %d at first", got, full)
	}
}

// scannable is how much of the heap the garbage collector looks into.
func scannable() int64 {
	s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// What Memory counts is what the heap has, and the garbage collector looks into
// hardly any of it.
func TestBytesAreThoseOfTheHeap(t *testing.T) {
	for _, c := range []benchCase{{64, 1, false}, {1000, 8, false}} {
		w := c.workload()
		before, idle := heapBytes(), scannable()
		x := index.New()
		w.fill(x)
		after, scanned := heapBytes(), scannable()-idle
		entries := x.Stats().Entries
		got, want := x.Memory().Bytes, int64(after-before)
		if entries < 1e6 || got < want*97/100 || got > want*103/100 {
			t.Errorf("%v: %d entries, %d bytes counted, %d on the heap", c, entries, got, want)
		}
		if scanned > want/20 {
			t.Errorf("%v: the collector looks into %d of %d bytes", c, scanned, want)
		}
		checkBytes(t, x, index.DefaultBytes)
		runtime.KeepAlive(w)
	}
}

// A snapshot that is larger than the bound is loaded in part: prefixes of what
// there was, within the bound.
func TestLoadWithinABound(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{1, 4, 50}).Draw(t, "workers"))
		if err := p.steps(rapid.IntRange(20, 200).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		data := snapshot(t, p.index)
		x, bound := index.NewTiny(rapid.Int64Range(180<<10, 700<<10).Draw(t, "bytes"))
		empty := x.Memory().Bytes
		if err := x.Load(bytes.NewReader(data[:len(data)-1])); !errors.Is(err, index.ErrSnapshot) {
			t.Fatalf("a snapshot cut short: %v", err)
		}
		if got := x.Memory().Bytes; got != empty {
			t.Fatalf("%d bytes after a failed load, %d before", got, empty)
		}
		if err := x.Load(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		checkBytes(t, x, bound)
		if m := x.Memory(); m.Evicted+m.NoRoom > 0 {
			cut++
		} else if got, want := x.Stats().Entries, p.index.Stats().Entries; got != want {
			t.Fatalf("%d entries, want %d: nothing was left out", got, want)
		}
		p.index = x
		p.checkPrefixes(t)
		if err := p.steps(30); err != nil { // and it goes on
			t.Fatal(err)
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		checkBytes(t, x, bound)
		p.checkPrefixes(t)
	})
	if cut == 0 {
		t.Error("every snapshot fitted")
	}
}

// Four writers at a small bound, beside lookups: the bound holds at every moment,
// and no answer claims more than was ever stored.
func TestBoundHoldsBesideReaders(t *testing.T) {
	const writers, rounds, length = 4, 60, 120
	x, bound := index.NewTiny(350 << 10)
	shared, _ := counted(40)
	var prompts [writers][rounds][]block.Hash
	for id := range prompts {
		r := rand.New(rand.NewPCG(uint64(id), 9))
		for i := range prompts[id] {
			prompts[id][i] = append(append([]block.Hash(nil), shared...), fresh(r, length)...)
		}
	}
	var writing, reading sync.WaitGroup
	var stop atomic.Bool
	for id := range prompts {
		writing.Go(func() {
			for i, contents := range prompts[id] {
				ev := storedAll(uint64(id), kvevent.Tier(i%2), contents)
				for j := len(shared); j < len(contents); j++ {
					ev.Blocks[j].Engine += kvevent.EngineHash((i + 1) * 1000)
				}
				if err := x.Apply(&ev); err != nil {
					t.Error(err)
				}
				if i == 30 && id == 0 {
					x.Drop(fleet.Key{ID: uint64(id)})
				}
			}
		})
	}
	for reader := range 2 {
		reading.Go(func() {
			var m index.Match
			for i := reader; !stop.Load(); i++ {
				id := i % writers
				x.Match(block.AppendChains(nil, prompts[id][i%rounds]), &m)
				for other := range writers {
					slot, ok := x.Lookup(fleet.Key{ID: uint64(other)})
					if n := m.Depth(slot).Total(); ok && other != id && n > len(shared) {
						t.Errorf("worker %d is credited %d blocks of another's prompt", other, n)
					}
				}
				if got := x.Memory().Bytes; got > bound {
					t.Errorf("%d bytes, bound %d", got, bound)
				}
			}
		})
	}
	writing.Wait()
	stop.Store(true)
	reading.Wait()
	if x.Memory().Evicted == 0 {
		t.Error("nothing was evicted")
	}
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
	checkBytes(t, x, bound)
}
