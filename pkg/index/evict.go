package index

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// evictShare is the part of a worker that is evicted at once, so that the search
// for victims is paid by many stores.
const evictShare = 8

// relieve evicts until the reserve is whole again, unless another goroutine does
// so already.
func (x *Index) relieve() {
	if !x.relief.TryLock() {
		return
	}
	defer x.relief.Unlock()
	for x.room.over() && x.evictSome() {
	}
}

// makeRoom frees some memory, unless that was done since reliefs was seen. It
// returns false where nothing is left to free. No worker may be locked.
func (x *Index) makeRoom(seen uint64) bool {
	x.relief.Lock()
	defer x.relief.Unlock()
	return x.reliefs.Load() != seen || x.evictSome()
}

// evictSome frees some memory: what workers that left still take, else a part of
// the worker that holds most, else, where nobody holds anything, all.
func (x *Index) evictSome() bool {
	defer x.reliefs.Add(1)
	if x.sweepAll() {
		return true
	}
	for r := x.largest(); r != nil; r = x.largest() {
		r.mu.Lock()
		n, done := r.total.Load(), false
		if n > 0 {
			done = x.evict(r, int(n/evictShare)+1)
		}
		r.mu.Unlock()
		if n > 0 {
			return done
		}
	}
	return x.reset()
}

// sweepAll sweeps what workers have left behind, piece by piece, and reports
// whether it did all of it and there was any.
func (x *Index) sweepAll() bool {
	for found := false; ; found = true {
		x.lock.Lock()
		left := x.tree.columns.left > 0
		able := x.tree.sweep()
		x.lock.Unlock()
		if !left {
			return found
		}
		if !able {
			return false
		}
	}
}

// reset gives all memory of the tree back when nothing is in it, and reports
// whether it has.
func (x *Index) reset() bool {
	x.lock.Lock()
	defer x.lock.Unlock()
	t := x.tree
	if t.used == 0 || t.entries != [kvevent.NumTiers]int{} {
		return false
	}
	t.end()
	t.columns.reset()
	t.begin()
	return true
}

// largest returns the worker that holds most, or nil where nobody holds anything.
func (x *Index) largest() *rank {
	x.reg.RLock()
	defer x.reg.RUnlock()
	var largest *rank
	most := int64(0)
	for _, r := range x.ranks {
		if n := r.total.Load(); n > most {
			largest, most = r, n
		}
	}
	return largest
}

// victim is an engine hash and how deep in its prompt its block lies.
type victim struct {
	engine uint64
	depth  int
}

// evict takes about n entries from a worker, deepest first, and one at least. It
// returns false where there is none: when all are being loaded.
func (x *Index) evict(r *rank, n int) bool {
	limit := x.limit(r, n)
	var victims []victim
	x.depths(r, 1, func(engine uint64, depth int) {
		if depth >= limit {
			victims = append(victims, victim{engine, depth})
		}
	})
	if len(victims) == 0 {
		return false
	}
	slices.SortFunc(victims, func(a, b victim) int { return cmp.Compare(b.depth, a.depth) })

	r.lossy = true
	goal := r.total.Load() - int64(n)
	w := x.work.Get().(*work)
	for len(victims) > 0 && r.total.Load() > goal {
		piece := victims[:min(len(victims), pieceBlocks)]
		victims = victims[len(piece):]
		before := r.total.Load()
		if !x.evictPiece(r, piece, w) {
			break // abandon has counted the rest
		}
		x.counters.evicted.Add(uint64(before - r.total.Load()))
	}
	x.work.Put(w)
	r.blocks.shrink(x.room)
	r.copies.shrink(x.room)
	return true
}

// limit returns a depth from which on a worker holds about n blocks, and one at
// least. Of many blocks it looks at some.
func (x *Index) limit(r *rank, n int) int {
	const sample = 1 << 13
	every := r.blocks.count/sample + 1
	depths := make([]int, 0, min(r.blocks.count, 2*sample))
	x.depths(r, every, func(_ uint64, depth int) { depths = append(depths, depth) })
	if len(depths) == 0 {
		return 0
	}
	slices.Sort(depths)
	return depths[max(0, len(depths)-1-n/every)]
}

// evictPiece takes blocks away from a worker. It returns false where the worker
// had to be cleared for it.
func (x *Index) evictPiece(r *rank, piece []victim, w *work) bool {
	for i, v := range piece {
		p, _ := r.blocks.find(v.engine)
		w.old[i] = held(p.value())
		r.blocks.remove(p)
		r.single(v.engine)
	}
	return x.unlinkAll(r, w, len(piece))
}

// depths calls f with one of so many engine hashes of a worker and the depth of
// its block. It lets writers in every now and then: cells of this worker do not
// change. Blocks that are being loaded have no depth yet and are left out.
func (x *Index) depths(r *rank, every int, f func(engine uint64, depth int)) {
	x.lock.RLock()
	defer x.lock.RUnlock()
	n := 0
	r.blocks.each(func(engine uint64, value uint32) bool {
		if n++; n%every != 0 || held(value) == pending {
			return true
		}
		if n/every%pieceBlocks == 0 {
			x.lock.RUnlock()
			x.lock.RLock()
		}
		f(engine, x.tree.depth(held(value).cell()))
		return true
	})
}
