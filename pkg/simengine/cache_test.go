package simengine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// twin is the cache as one would explain it: every block has the time it was
// last let go of, and the oldest block that nobody uses leaves.
type twin struct {
	capacity, reserved, clock int
	blocks                    map[block.Chain]*twinBlock
}

type twinBlock struct{ refs, stamp int }

func (w *twin) acquire(path []node) (held int, evicted []block.Chain, ok bool) {
	for held < len(path) && w.blocks[path[held].chain] != nil {
		held++
	}
	free := w.capacity - len(w.blocks) - w.reserved
	for chain, b := range w.blocks {
		if b.refs == 0 && !slices.ContainsFunc(path[:held], func(n node) bool { return n.chain == chain }) {
			free++
		}
	}
	need := len(path) - held
	if need > free {
		return 0, nil, false
	}
	for _, n := range path[:held] {
		w.blocks[n.chain].refs++
	}
	evicted = w.makeRoom(need)
	w.reserved += need
	return held, evicted, true
}

func (w *twin) makeRoom(n int) (evicted []block.Chain) {
	for w.capacity-len(w.blocks)-w.reserved < n {
		var oldest block.Chain
		best := -1
		for chain, b := range w.blocks {
			if b.refs == 0 && (best < 0 || b.stamp < best) {
				oldest, best = chain, b.stamp
			}
		}
		if best < 0 {
			panic("no victim")
		}
		delete(w.blocks, oldest)
		evicted = append(evicted, oldest)
	}
	return evicted
}

func (w *twin) use(n node) (isNew bool) {
	b := w.blocks[n.chain]
	if b == nil {
		b, isNew = &twinBlock{}, true
		w.blocks[n.chain] = b
	}
	b.refs++
	return isNew
}

func (w *twin) release(path []node) {
	for _, n := range slices.Backward(path) {
		b := w.blocks[n.chain]
		b.refs--
		w.clock++
		b.stamp = w.clock
	}
}

// holder is one request in the test.
type holder struct {
	lease     *lease
	path      []node
	held      int // blocks pinned
	committed bool
}

// pathOf makes a path out of block contents.
func pathOf(contents []uint64) []node {
	var out []node
	for i, c := range contents {
		n := node{chain: block.Root(block.Hash(c)), hash: block.Hash(c)}
		if i > 0 {
			n.chain = out[i-1].chain.Next(n.hash)
		}
		out = append(out, n)
	}
	return out
}

func TestCacheEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		c := newCache(capacity, rapid.Uint64().Draw(t, "secret"))
		w := &twin{capacity: capacity, blocks: map[block.Chain]*twinBlock{}}
		parents := map[block.Chain]block.Chain{} // of blocks that have one
		var holders []*holder
		pick := func(ok func(*holder) bool) *holder {
			var fit []*holder
			for _, h := range holders {
				if ok(h) {
					fit = append(fit, h)
				}
			}
			if len(fit) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(fit).Draw(t, "holder")
		}
		sameEvicted := func(got []kvevent.EngineHash, want []block.Chain) {
			t.Helper()
			wantHashes := make([]kvevent.EngineHash, len(want))
			for i, chain := range want {
				wantHashes[i] = c.engineHash(chain)
			}
			if !slices.Equal(got, wantHashes) {
				t.Fatalf("evicted %v, want %v", got, wantHashes)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				path := pathOf(rapid.SliceOfN(rapid.Uint64Range(1, 3), 0, 6).Draw(t, "path"))
				for i := 1; i < len(path); i++ {
					parents[path[i].chain] = path[i-1].chain
				}
				l, evicted, ok := c.acquire(slices.Clone(path))
				held, wantEvicted, wantOK := w.acquire(path)
				if ok != wantOK {
					t.Fatalf("acquire is %v, want %v", ok, wantOK)
				}
				if !ok {
					return
				}
				if len(l.held) != held {
					t.Fatalf("%d blocks held, want %d", len(l.held), held)
				}
				sameEvicted(evicted, wantEvicted)
				holders = append(holders, &holder{lease: l, path: path, held: held})
			},
			"commit": func(t *rapid.T) {
				h := pick(func(h *holder) bool { return !h.committed })
				var want []kvevent.EngineHash
				w.reserved -= len(h.path) - h.held
				for _, n := range h.path[h.held:] {
					if w.use(n) {
						want = append(want, c.engineHash(n.chain))
					}
				}
				var got []kvevent.EngineHash
				for _, s := range c.commit(h.lease) {
					got = append(got, s.block.Engine)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("stored %v, want %v", got, want)
				}
				h.committed, h.held = true, len(h.path)
			},
			"extend": func(t *rapid.T) {
				h := pick(func(h *holder) bool { return h.committed })
				hash := block.Hash(rapid.Uint64Range(1, 3).Draw(t, "content"))
				n := node{chain: block.Root(hash), hash: hash}
				if len(h.path) > 0 {
					last := h.path[len(h.path)-1].chain
					n.chain = last.Next(hash)
					parents[n.chain] = last
				}
				idle := slices.ContainsFunc(mapValues(w.blocks), func(b *twinBlock) bool { return b.refs == 0 })
				wantOK := w.blocks[n.chain] != nil || idle || len(w.blocks)+w.reserved < capacity
				came, evicted, ok := c.extend(h.lease, n)
				if ok != wantOK {
					t.Fatalf("extend is %v, want %v", ok, wantOK)
				}
				if !ok {
					return
				}
				if w.blocks[n.chain] == nil {
					sameEvicted(evicted, w.makeRoom(1))
				}
				if isNew := w.use(n); isNew != (len(came) == 1) {
					t.Fatalf("%d blocks came, new is %v", len(came), isNew)
				}
				h.path = append(h.path, n)
				h.held++
			},
			"release": func(t *rapid.T) {
				h := pick(func(*holder) bool { return true })
				c.release(h.lease)
				if !h.committed {
					w.reserved -= len(h.path) - h.held
				}
				w.release(h.path[:h.held])
				holders = slices.DeleteFunc(holders, func(o *holder) bool { return o == h })
			},
			"clear": func(t *rapid.T) {
				inUse := w.reserved > 0 || slices.ContainsFunc(mapValues(w.blocks), func(b *twinBlock) bool { return b.refs > 0 })
				if c.clear() == inUse {
					t.Fatalf("clear while in use is %v", inUse)
				}
				if !inUse {
					clear(w.blocks)
				}
			},
			"": func(t *rapid.T) { checkCache(t, c, w, holders, parents) },
		})
	})
}

func mapValues(m map[block.Chain]*twinBlock) []*twinBlock {
	var out []*twinBlock
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

func checkCache(t *rapid.T, c *cache, w *twin, holders []*holder, parents map[block.Chain]block.Chain) {
	if len(c.entries) != len(w.blocks) || c.reserved != w.reserved {
		t.Fatalf("%d blocks and %d reserved, want %d and %d", len(c.entries), c.reserved, len(w.blocks), w.reserved)
	}
	if len(c.entries)+c.reserved > c.capacity {
		t.Fatalf("%d blocks and %d reserved in %d", len(c.entries), c.reserved, c.capacity)
	}
	slots := map[int]bool{}
	for _, s := range c.free {
		slots[s] = true
	}
	pinned := 0
	for chain, e := range c.entries {
		if w.blocks[chain] == nil || w.blocks[chain].refs != e.refs {
			t.Fatalf("block %x: %d users, twin %+v", chain, e.refs, w.blocks[chain])
		}
		if p, ok := parents[chain]; ok && c.entries[p] == nil {
			t.Fatalf("block %x outlived its parent", chain)
		}
		slots[e.slot] = true
		if e.refs > 0 {
			pinned++
		}
	}
	if pinned != c.pinned() || len(slots) != c.capacity {
		t.Fatalf("%d pinned (counted %d), %d slots in %d", c.pinned(), pinned, len(slots), c.capacity)
	}
	for _, h := range holders {
		if c.match(h.path[:h.held]) != h.held {
			t.Fatal("a block in use was evicted")
		}
	}
}

func TestEngineHashesDifferBetweenProcesses(t *testing.T) {
	a, b := newCache(1, 1), newCache(1, 2)
	if a.engineHash(7) == b.engineHash(7) {
		t.Error("two processes give a block the same id")
	}
}
