package index

import (
	"unsafe"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// run is a stretch of consecutive blocks of one prompt that the same workers
// hold, tier by tier. Its chains lie side by side in the arena.
//
// What follows a run, or any block inside it, is a run of its own, found by its
// first chain. Every stored chain is in exactly one run.
type run struct {
	start  cell // 0: not in use
	length uint16
	room   uint16 // cells of the run: those behind length are kept for more
	depth  uint32 // of the first block in its prompt, from 0
	next   uint32 // a run that followed this one; only a hint
	sets   [kvevent.NumTiers]setID
}

// joined, in run.depth, says that the cell before the run is the parent of its
// first block: the two were one run.
const joined = 1 << 31

func (r *run) end() cell      { return r.start + cell(r.length) }
func (r *run) isJoined() bool { return r.depth&joined != 0 }
func (r *run) at() uint32     { return r.depth &^ joined }
func (r *run) empty() bool    { return r.sets == [kvevent.NumTiers]setID{} }

const (
	runChunk = 1 << 10

	// keepAhead bounds the cells kept for the blocks that will follow.
	keepAhead = 1024
	// keepFactor bounds them by what came last: a prompt arrives in large steps, an
	// answer block by block.
	keepFactor = 16
)

// tree is all that lookups read. It is guarded by Index.tree.
type tree struct {
	arena   arena
	heads   heads
	sets    holders
	columns columns
	slots   int                   // that lookups report on
	entries [kvevent.NumTiers]int // (worker, chain) held, by workers that are there

	room *budget
	runs []*[runChunk]run
	used uint32 // run ids below it have been in use; 0 never is
	free uint32 // a run not in use, whose next is another; 0: none
}

// newTree returns an empty tree within a budget.
func newTree(room *budget) *tree {
	x := &tree{room: room, columns: newColumns()}
	x.begin()
	return x
}

const (
	runBytes  = int64(unsafe.Sizeof([runChunk]run{}))
	baseBytes = int64(unsafe.Sizeof(tree{})) + columnBytes
)

// begin makes a tree's storage empty and counts what that takes.
func (x *tree) begin() {
	x.arena = arena{room: x.room, limit: maxChunks}
	x.heads = heads{room: x.room}
	x.sets = holders{room: x.room}
	x.runs, x.used, x.free = nil, 0, 0
	x.room.need.Add(x.runsNeed() + x.heads.need())
	x.sets.class = x.columns.class()
	x.sets.grew(baseBytes)
}

// end takes what a tree has taken out of its budget.
func (x *tree) end() {
	x.room.add(-x.bytes())
	x.room.need.Add(-x.runsNeed() - x.heads.need() - x.sets.need)
}

// runsNeed is the most that a step takes for runs.
func (x *tree) runsNeed() int64 { return runBytes + 8*int64(max(4, cap(x.runs))) }

func (x *tree) run(id uint32) *run { return &x.runs[id/runChunk][id%runChunk] }

func (x *tree) newRun() uint32 {
	if id := x.free; id != 0 {
		x.free = x.run(id).next
		return id
	}
	if x.used == 0 {
		x.used = 1
	}
	if int(x.used) >= len(x.runs)*runChunk {
		x.addRuns()
	}
	x.used++
	return x.used - 1
}

// addRuns makes room for more runs.
func (x *tree) addRuns() {
	before := x.runsNeed()
	x.room.add(runBytes)
	if n := cap(x.runs); len(x.runs) == n {
		x.runs = append(make([]*[runChunk]run, 0, max(4, 2*n)), x.runs...)
		x.room.add(8 * int64(max(4, n)))
	}
	x.runs = append(x.runs, new([runChunk]run))
	x.room.need.Add(x.runsNeed() - before)
}

// freeRun makes a run's id free.
func (x *tree) freeRun(id uint32) {
	*x.run(id) = run{next: x.free}
	x.free = id
}

func (x *tree) first(r *run) block.Chain { return x.arena.chain(r.start) }

// assign gives a run another set of holders on a tier.
func (x *tree) assign(r *run, t kvevent.Tier, id setID) {
	if r.sets[t] != id {
		x.sets.ref(id)
		x.sets.unref(r.sets[t])
		r.sets[t] = id
	}
}

// split cuts a run before its block number at, and returns the ids of both
// parts. The longer part keeps the id.
func (x *tree) split(id uint32, at int) (left, right uint32) {
	r := x.run(id)
	other := x.newRun()
	o := x.run(other)
	head, tail := *r, *r
	head.length, head.room = uint16(at), uint16(at)
	tail.start += cell(at)
	tail.length -= uint16(at)
	tail.room -= uint16(at)
	tail.depth = (r.at() + uint32(at)) | joined
	for _, s := range r.sets {
		x.sets.ref(s)
	}
	if at*2 >= int(r.length) {
		left, right = id, other
		head.next = right
		*r, *o = head, tail
		x.arena.own(tail.start, int(tail.length), right)
	} else {
		left, right = other, id
		head.next = right
		*r, *o = tail, head
		x.arena.own(head.start, int(head.length), left)
		x.heads.rename(x.arena.chain(head.start), right, left)
	}
	x.heads.enter(x.arena.chain(tail.start), right)
	return left, right
}

// join makes one of a run and the one before it, where they belong together.
// It returns the id of the result.
func (x *tree) join(id uint32) uint32 {
	r := x.run(id)
	if !r.isJoined() {
		return id
	}
	before := x.arena.runOf(r.start - 1)
	l := x.run(before)
	if l.sets != r.sets {
		return id
	}
	x.heads.remove(x.first(r), id)
	for _, s := range r.sets {
		x.sets.unref(s)
	}
	whole := *l
	whole.length += r.length
	whole.room += r.room
	whole.next = r.next
	if l.length >= r.length {
		x.arena.own(r.start, int(r.length), before)
		*l = whole
		x.freeRun(id)
		return before
	}
	x.arena.own(l.start, int(l.length), id)
	x.heads.rename(x.first(l), before, id)
	*r = whole
	x.freeRun(before)
	return id
}

// joinBoth joins a run with the one before it and the one behind it.
func (x *tree) joinBoth(id uint32) {
	id = x.join(id)
	r := x.run(id)
	if end := r.end(); r.room == r.length && end%chunkCells != 0 {
		if behind := x.arena.runOf(end); behind != 0 && x.run(behind).start == end {
			x.join(behind)
		}
	}
}

// drop forgets a run and its blocks.
func (x *tree) drop(id uint32) {
	r := x.run(id)
	x.heads.remove(x.first(r), id)
	for t := range r.sets {
		x.assign(r, kvevent.Tier(t), 0)
	}
	start, room := r.start, int(r.room)
	x.freeRun(id)
	x.release(start, room)
}

// truncate forgets the blocks of a run from number at on. What they leave of
// their last granule stays with the run.
func (x *tree) truncate(r *run, at int) {
	end := r.start + cell(at)
	x.arena.own(end, int(r.length)-at, 0)
	kept := (at+int(r.start)+granule-1)/granule*granule - int(r.start)
	kept = min(kept, int(r.room))
	x.part(r.end())
	x.arena.release(r.start+cell(kept), int(r.room)-kept)
	r.length, r.room = uint16(at), uint16(kept)
}

// release takes cells back.
func (x *tree) release(from cell, n int) {
	x.part(from + cell(n))
	x.arena.release(from, n)
}

// part notes that the block before a cell is gone.
func (x *tree) part(c cell) {
	if c%chunkCells == 0 {
		return
	}
	if id := x.arena.runOf(c); id != 0 {
		if r := x.run(id); r.start == c {
			r.depth &^= joined
		}
	}
}

// common returns how many chains two prompts that agree in the first share. A
// chain stands for all before it, so they agree up to some point and never after.
func common(a, b []block.Chain) int {
	n := min(len(a), len(b))
	if n == 0 || a[n-1] == b[n-1] {
		return n
	}
	low, high := 0, n-1 // a[low] == b[low], if anything; a[high] != b[high]
	for high-low > 1 {
		if mid := int(uint(low+high) / 2); a[mid] == b[mid] {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// bytes counts anew all that a tree has allocated.
func (x *tree) bytes() int64 {
	n := baseBytes + int64(len(x.runs))*runBytes + int64(cap(x.runs))*8
	if p := x.arena.dir.Load(); p != nil {
		n += int64(cap(*p))*listBytes + int64(x.arena.chunks-len(x.arena.vacant))*chunkBytes
	}
	for i := range x.heads.shards {
		n += int64(len(x.heads.shards[i].entries)) * headBytes
	}
	for i := range x.sets.tables {
		n += int64(len(x.sets.tables[i].ids)) * 4
	}
	for class := range x.sets.pools {
		p := &x.sets.pools[class]
		n += int64(len(p.words))*poolBytes(class) + int64(cap(p.words))*listedChunk
	}
	return n
}
