package index

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// evictShare is the part of the bound that is freed at once, so that the search
// for victims is paid by many stores.
const evictShare = 64

// relieve evicts until the bound holds, unless another goroutine does already.
func (x *Index) relieve() {
	if !x.relief.TryLock() {
		return
	}
	defer x.relief.Unlock()
	for {
		over := x.counters.entries.Load() - x.max
		if over <= 0 {
			return
		}
		r := x.largest()
		if r == nil {
			return
		}
		r.mu.Lock()
		x.evict(r, int(over+x.max/evictShare))
		r.mu.Unlock()
	}
}

// largest returns the worker that holds most.
func (x *Index) largest() *rank {
	x.reg.RLock()
	defer x.reg.RUnlock()
	var most *rank
	for _, r := range x.ranks {
		if most == nil || r.total.Load() > most.total.Load() {
			most = r
		}
	}
	return most
}

// victim is an engine hash and how deep in its prompt its block lies.
type victim struct {
	engine uint64
	depth  int
}

// evict takes at least n entries from a worker, or all, deepest first.
func (x *Index) evict(r *rank, n int) {
	var at []int // engine hashes by depth
	x.depths(r, func(_ uint64, depth int) {
		for len(at) <= depth {
			at = append(at, 0)
		}
		at[depth]++
	})
	limit, found := len(at), 0
	for limit > 0 && found < n {
		limit--
		found += at[limit]
	}
	victims := make([]victim, 0, found)
	x.depths(r, func(engine uint64, depth int) {
		if depth >= limit {
			victims = append(victims, victim{engine, depth})
		}
	})
	slices.SortFunc(victims, func(a, b victim) int { return cmp.Compare(b.depth, a.depth) })

	before := r.total.Load()
	w := x.work.Get().(*work)
	for len(victims) > 0 && before-r.total.Load() < int64(n) {
		piece := victims[:min(len(victims), pieceBlocks)]
		victims = victims[len(piece):]
		x.evictPiece(r, piece, w)
	}
	x.work.Put(w)
	x.counters.evicted.Add(uint64(before - r.total.Load()))
}

func (x *Index) evictPiece(r *rank, piece []victim, w *work) {
	for i, v := range piece {
		p, _ := r.blocks.find(v.engine)
		w.old[i] = held(p.value())
		r.blocks.remove(p)
	}
	// Lower tiers first: they continue what the device holds.
	for t := kvevent.Tier(kvevent.NumTiers); t > 0; t-- {
		cells := w.cells[:0]
		for _, h := range w.old[:len(piece)] {
			if h.on(t - 1) {
				cells = append(cells, h.cell())
			}
		}
		x.unlink(r, t-1, cells)
	}
}

// depths calls f with every engine hash of a worker and the depth of its block.
// It lets writers in every now and then: cells of this worker do not change.
func (x *Index) depths(r *rank, f func(engine uint64, depth int)) {
	x.lock.RLock()
	defer x.lock.RUnlock()
	n := 0
	r.blocks.each(func(engine uint64, value uint32) bool {
		if n++; n%pieceBlocks == 0 {
			x.lock.RUnlock()
			x.lock.RLock()
		}
		f(engine, x.tree.depth(held(value).cell()))
		return true
	})
}
