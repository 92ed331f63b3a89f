package index

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// The engine map against a Go map; also with keys made so that they crowd one
// segment.
func TestTableEqualsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x table
		room := budget{hard: 1 << 40}
		want := map[uint64]uint32{}
		// A multiplicative hash can be undone: keys whose hashes share high bits.
		crowded := rapid.Bool().Draw(t, "crowded")
		key := func() uint64 {
			k := uint64(rapid.IntRange(0, 30_000).Draw(t, "key"))
			if crowded {
				return unmix(k << 20)
			}
			return k * 0x2545f4914f6cdd1d
		}
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			if rapid.Bool().Draw(t, "fill") {
				from := key()
				for i := range uint64(rapid.IntRange(1, 3000).Draw(t, "n")) {
					k := from + i<<7
					if crowded {
						k = unmix(mix(from) + i<<22)
					}
					size, most := x.size, x.growth(1)
					p, known, ok := x.insert(purse{budget: &room}, k, uint32(i+1))
					if _, there := want[k]; !ok || there != known {
						t.Fatalf("insert says known = %v", known)
					}
					if x.size-size > most && !crowded {
						t.Fatalf("insert took %d bytes, %d at most", x.size-size, most)
					}
					p.set(uint32(i + 1))
					want[k] = uint32(i + 1)
				}
			} else {
				keys := slices.Sorted(maps.Keys(want))
				for i := 0; i < len(keys); i += rapid.IntRange(1, 3).Draw(t, "step") {
					p, ok := x.find(keys[i])
					if !ok || p.value() != want[keys[i]] {
						t.Fatalf("key %x: %v", keys[i], ok)
					}
					x.remove(p)
					delete(want, keys[i])
				}
				switch rapid.IntRange(0, 2).Draw(t, "after") {
				case 0:
					x.shrink(&room)
				case 1:
					x.rebuild(&room)
				}
			}
			if x.size != room.used.Load() {
				t.Fatalf("%d bytes, %d taken", x.size, room.used.Load())
			}
			got := map[uint64]uint32{}
			entries := 0
			x.each(func(k uint64, v uint32) bool {
				got[k] = v
				entries++
				return true
			})
			if !maps.Equal(got, want) || x.count != len(want) || entries != len(want) {
				t.Fatalf("%d keys, %d seen, count %d, want %d", len(got), entries, x.count, len(want))
			}
			if k := key(); x.get(k) != want[k] {
				t.Fatalf("get(%x) = %d, want %d", k, x.get(k), want[k])
			}
		}
		if n := len(x.dir); n > 1<<maxDepth {
			t.Fatalf("%d segments", n)
		}
	})
}

// unmix undoes mix.
func unmix(h uint64) uint64 {
	h *= inverse(0xd6e8feb86659fd93)
	h ^= h >> 32
	return h * inverse(0x9e3779b97f4a7c15)
}

// inverse returns the multiplicative inverse of an odd number, by Newton's method.
func inverse(n uint64) uint64 {
	x := n
	for range 6 {
		x *= 2 - n*x
	}
	return x
}

func TestUnmix(t *testing.T) {
	for _, k := range []uint64{0, 1, 77, 1 << 40, 1<<64 - 1} {
		if unmix(mix(k)) != k || mix(unmix(k)) != k {
			t.Errorf("key %x", k)
		}
	}
}

// Interned sets against sets of ints: equal content, equal id.
func TestHoldersEqualSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := holders{room: &budget{hard: 1 << 40}}
		type owned struct {
			id   setID
			want map[column]bool
		}
		var runs []owned
		col := rapid.Custom(func(t *rapid.T) column {
			return column(rapid.SampledFrom([]int{0, 1, 2, 63, 64, 65, 127, 128, 500, 4095, maxColumns - 1}).Draw(t, "column"))
		})
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if len(runs) == 0 || rapid.IntRange(0, 4).Draw(t, "new") == 0 {
				runs = append(runs, owned{0, map[column]bool{}})
			}
			r := &runs[rapid.IntRange(0, len(runs)-1).Draw(t, "run")]
			next, c := r.id, col.Draw(t, "c")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				next = h.with(r.id, c)
				r.want[c] = true
			case 2:
				next = h.without(r.id, c)
				delete(r.want, c)
			case 3:
				next = h.minus(r.id, setBit(nil, c))
				delete(r.want, c)
			}
			if next != r.id {
				h.ref(next)
				h.unref(r.id)
				r.id = next
			}
			for i := range runs {
				for c := range column(maxColumns) {
					if c < 130 || c == 500 || c > 4090 {
						if h.has(runs[i].id, c) != runs[i].want[c] {
							t.Fatalf("set %x: column %d is %v", runs[i].id, c, h.has(runs[i].id, c))
						}
					}
				}
				for j := range runs {
					if (runs[i].id == runs[j].id) != maps.Equal(runs[i].want, runs[j].want) {
						t.Fatalf("sets %v and %v have ids %x and %x", runs[i].want, runs[j].want, runs[i].id, runs[j].id)
					}
				}
			}
		}
		for _, r := range runs {
			h.unref(r.id)
		}
		if h.count != 0 {
			t.Fatalf("%d sets stay behind", h.count)
		}
	})
}

func stored(id uint64, first int, contents []block.Hash) *kvevent.Event {
	ev := &kvevent.Event{WorkerID: id, Kind: kvevent.Stored}
	for i, c := range contents {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(first + i), Hash: c})
	}
	return ev
}

// With no cell left, what does not fit is left out and counted, of the prompt an
// eighth is evicted and the first blocks stay, and room that is given back is
// used again.
func TestFullArena(t *testing.T) {
	x := New()
	x.tree.arena.limit = 1
	contents := make([]block.Hash, chunkCells+500)
	for i := range contents {
		contents[i] = block.Hash(i + 1)
	}
	chains := block.AppendChains(nil, contents)
	var m Match
	expect := func(step string, ev *kvevent.Event, want int) {
		t.Helper()
		if err := x.Apply(ev); err != nil {
			t.Fatal(err)
		}
		if err := x.Check(); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		x.Match(chains, &m)
		slot, _ := x.Lookup(fleet.Key{ID: ev.WorkerID})
		if got := m.Depth(slot).Device; got != want {
			t.Fatalf("%s: %d blocks, want %d", step, got, want)
		}
	}
	const evicted = (chunkCells-granule)/evictShare + 1
	const fits = chunkCells - granule - evicted
	expect("too much", stored(1, 1, contents), fits)
	if m := x.Memory(); m.NoRoom != uint64(len(contents)-fits-evicted) || m.Evicted != evicted {
		t.Errorf("%+v, want %d evicted and %d not stored", m, evicted, len(contents)-fits-evicted)
	}
	if got := x.Stats().Entries; got != fits {
		t.Errorf("%d entries, want %d", got, fits)
	}
	expect("blocks that are there take no room", stored(2, 1, contents[:50]), 50)
	gone := &kvevent.Event{WorkerID: 1, Kind: kvevent.Removed}
	for i := 1000; i < fits; i++ {
		gone.Gone = append(gone.Gone, kvevent.EngineHash(i+1))
	}
	expect("the tail goes", gone, 1000)
	again := stored(1, 1001, contents[1000:2000])
	again.HasParent, again.Parent = true, 1000
	expect("and something comes", again, 2000)
}

func TestConfigValidate(t *testing.T) {
	for n, good := range map[int64]bool{-1: false, 0: false, MinBytes - 1: false, MinBytes: true, DefaultBytes: true, MaxBytes: true, MaxBytes + 1: false} {
		x, err := NewBounded(Config{MaxBytes: n})
		if (err == nil) != good || (x != nil) != good {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A cleared worker's old column is masked at once, swept by later writes, and
// only then used again; more generations than columns are no trouble.
func TestGenerationsAreSwept(t *testing.T) {
	x := New()
	contents := []block.Hash{1, 2, 3, 4}
	chains := block.AppendChains(nil, contents)
	apply := func(ev *kvevent.Event) {
		t.Helper()
		if err := x.Apply(ev); err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint64(200) { // enough runs that one write does not sweep all
		apply(stored(id, 1, []block.Hash{block.Hash(100 + id), 1}))
		apply(stored(id, 10, contents[:1+id%4]))
	}
	var m Match
	for round := range 3 * maxColumns {
		apply(stored(7, 10, contents))
		if round%4096 == 0 {
			if err := x.Check(); err != nil {
				t.Fatal(err)
			}
		}
		x.Match(chains, &m)
		if d := m.Depth(7).Device; d != 4 {
			t.Fatalf("round %d: %d blocks, want 4", round, d)
		}
		x.Clear(fleet.Key{ID: 7})
		x.Match(chains, &m)
		if d := m.Depth(7).Device; d != 0 {
			t.Fatalf("round %d: %d blocks after a clear", round, d)
		}
		if d := m.Depth(6).Device; d != 3 {
			t.Fatalf("round %d: another worker holds %d blocks, want 3", round, d)
		}
	}
	for id := range uint64(200) {
		x.Drop(fleet.Key{ID: id})
	}
	// Writes of one worker sweep what all others left.
	for range 100 {
		apply(stored(1000, 1, contents))
	}
	if m := x.Memory(); m.Columns != 1 || m.Swept == 0 {
		t.Errorf("%+v, want one column", m)
	}
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
	if n := x.tree.heads.count; n != 1 {
		t.Errorf("%d runs stay behind", n)
	}
}

// All columns taken by generations that left: who stores then sweeps them first.
func TestColumnsRunOut(t *testing.T) {
	x := New()
	for i := range 300 { // runs: more than one write sweeps
		if err := x.Apply(stored(1, 100+i, []block.Hash{block.Hash(100 + i)})); err != nil {
			t.Fatal(err)
		}
	}
	for range maxColumns - 1 {
		c, ok := x.tree.open(1)
		if !ok {
			t.Fatal("no column left")
		}
		x.tree.leave(c)
	}
	if _, ok := x.tree.open(2); ok {
		t.Fatal("one column too many")
	}
	if err := x.Apply(stored(7, 1, []block.Hash{1, 2})); err != nil {
		t.Fatal(err)
	}
	if m := x.Memory(); m.Columns != 2 || m.NoRoom != 0 {
		t.Errorf("%+v, want two columns taken and nothing refused", m)
	}
	var m Match
	x.Match(block.AppendChains(nil, []block.Hash{1, 2}), &m)
	if d := m.Depth(1); d.Device != 2 {
		t.Errorf("%+v, want 2 blocks", d)
	}
}
