package index

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/warmpath/warmpath/pkg/block"
)

// cell is where a block lives in the arena. It never moves while any worker
// holds the block. 0 is none.
type cell uint32

const (
	chunkBits   = 13
	chunkCells  = 1 << chunkBits
	granule     = 8 // cells given out and taken back together
	chunkGrains = chunkCells / granule

	// maxCells is what fits an engine table's value beside the tiers.
	maxCells  = 1 << cellBits
	cellBits  = 28
	maxChunks = maxCells / chunkCells

	// chunkBytes is a chunk in whole pages of the runtime, as it is allocated.
	chunkBytes = (int64(unsafe.Sizeof(chunk{})) + 1<<13 - 1) >> 13 << 13

	// roomyGrains is how many free granules make a chunk worth going back to.
	roomyGrains = chunkGrains / 8
)

// chunk is a piece of the arena. It has no pointers, so the garbage collector
// does not look into it.
type chunk struct {
	chains [chunkCells]block.Chain
	runOf  [chunkCells]uint32 // 0: nothing lives here
	used   [chunkGrains]uint8 // cells of the granule that live or are reserved
	busy   [chunkGrains / wordBits]uint64
	free   uint32 // granules
	roomy  bool   // it is in arena.roomy
}

// arena gives out stretches of cells. Growing it copies no cell.
//
// All is guarded by the index's tree lock, but for the chains of cells that a
// worker holds: these do not change while it holds them.
type arena struct {
	room    *budget
	dir     atomic.Pointer[[]*chunk] // nil where a chunk was given back
	chunks  int                      // ever in dir
	limit   int                      // chunks
	current uint32
	cursor  uint32 // granule of current
	free    int    // granules of all chunks
	// Lists of chunks, as long as dir may get: those with much room again, and
	// those that were given back.
	roomy, vacant []uint32
}

// listBytes is what a place in the directory takes, with the lists.
const listBytes = 8 + 4 + 4

func (a *arena) chunk(c cell) *chunk { return (*a.dir.Load())[c>>chunkBits] }

func (a *arena) chain(c cell) block.Chain {
	return a.chunk(c).chains[c%chunkCells]
}

func (a *arena) runOf(c cell) uint32 { return a.chunk(c).runOf[c%chunkCells] }

// view returns the chains of n cells.
func (a *arena) view(c cell, n int) []block.Chain {
	at := int(c % chunkCells)
	return a.chunk(c).chains[at : at+n]
}

// own writes the run that n cells belong to.
func (a *arena) own(c cell, n int, run uint32) {
	at := int(c % chunkCells)
	owners := a.chunk(c).runOf[at : at+n]
	for i := range owners {
		owners[i] = run
	}
}

// addChunk makes a new chunk the current one, unless there is no room for it.
func (a *arena) addChunk() bool {
	var dir []*chunk
	if p := a.dir.Load(); p != nil {
		dir = *p
	}
	more := chunkBytes
	again := len(a.vacant) > 0
	if !again && a.chunks == cap(dir) {
		more += int64(max(4, a.chunks)) * listBytes
	}
	if !again && a.chunks >= a.limit || !a.room.take(more) {
		return false
	}
	c := &chunk{free: chunkGrains}
	a.free += chunkGrains
	if again {
		// Who reads the directory without the lock looks at chunks in use only.
		a.current, a.cursor = a.vacant[len(a.vacant)-1], 0
		a.vacant = a.vacant[:len(a.vacant)-1]
		dir[a.current] = c
		return true
	}
	if a.chunks == 0 {
		c.take(0, 1) // cell 0 is none
		a.free--
	}
	if a.chunks == cap(dir) {
		n := max(4, 2*a.chunks)
		dir = append(make([]*chunk, 0, n), dir...)
		a.roomy = append(make([]uint32, 0, n), a.roomy...)
		a.vacant = make([]uint32, 0, n)
	}
	// Appending writes behind the slice that others read, never into it.
	dir = append(dir, c)
	a.dir.Store(&dir)
	a.current, a.cursor = uint32(a.chunks), 0
	a.chunks++
	return true
}

// giveBack forgets a chunk that nothing lives in.
func (a *arena) giveBack(i uint32) {
	dir := *a.dir.Load()
	if dir[i].roomy {
		a.roomy = slices.Delete(a.roomy, slices.Index(a.roomy, i), slices.Index(a.roomy, i)+1)
	}
	dir[i] = nil
	a.free -= chunkGrains
	a.vacant = append(a.vacant, i)
	a.room.add(-chunkBytes)
}

// keeps reports whether a cell has a chain and something lives there. Any cell
// will do, also one whose chunk was given back.
func (a *arena) keeps(c cell, chain block.Chain) bool {
	dir := a.dir.Load()
	if dir == nil || int(c>>chunkBits) >= len(*dir) {
		return false
	}
	k := (*dir)[c>>chunkBits]
	return k != nil && k.runOf[c%chunkCells] != 0 && k.chains[c%chunkCells] == chain
}

// take marks n granules as given out.
func (c *chunk) take(grain, n uint32) {
	for g := grain; g < grain+n; g++ {
		c.busy[g/wordBits] |= 1 << (g % wordBits)
		c.used[g] = granule
	}
	c.free -= n
}

// nextFree returns the first free granule from one on, or chunkGrains.
func (c *chunk) nextFree(grain uint32) uint32 {
	for w := grain / wordBits; w < uint32(len(c.busy)); w++ {
		open := ^c.busy[w]
		if w == grain/wordBits {
			open &= ^uint64(0) << (grain % wordBits)
		}
		if open != 0 {
			return w*wordBits + uint32(bits.TrailingZeros64(open))
		}
	}
	return chunkGrains
}

// stretch returns how many granules from one on are free, at most limit.
func (c *chunk) stretch(grain, limit uint32) uint32 {
	n := uint32(0)
	for n < limit && grain+n < chunkGrains && c.busy[(grain+n)/wordBits]>>((grain+n)%wordBits)&1 == 0 {
		n++
	}
	return n
}

// alloc gives out a stretch of up to want cells, rounded up to granules; less
// where there is no longer free one at hand, 0 when the arena is full.
func (a *arena) alloc(want int) (cell, int) {
	grains := min(uint32(want+granule-1)/granule, chunkGrains)
	for a.chunks > 0 || a.addChunk() {
		c := (*a.dir.Load())[a.current]
		if g := c.nextFree(a.cursor); g < chunkGrains {
			n := c.stretch(g, grains)
			c.take(g, n)
			a.free -= int(n)
			a.cursor = g + n
			return cell(a.current<<chunkBits + g*granule), int(n * granule)
		}
		if !a.advance() {
			break
		}
	}
	return 0, 0
}

// advance moves on to another chunk with room.
func (a *arena) advance() bool {
	a.note(a.current)
	if n := len(a.roomy); n > 0 {
		a.current, a.cursor = a.roomy[n-1], 0
		a.roomy = a.roomy[:n-1]
		(*a.dir.Load())[a.current].roomy = false
		return true
	}
	if a.addChunk() {
		return true
	}
	if a.free == 0 {
		return false
	}
	dir := *a.dir.Load()
	for i := int(a.current); ; {
		if i++; i >= len(dir) {
			i = 0
		}
		if c := dir[i]; c != nil && c.free > 0 {
			a.current, a.cursor = uint32(i), 0
			return true
		}
	}
}

// note lists a chunk that has room again.
func (a *arena) note(i uint32) {
	c := (*a.dir.Load())[i]
	if c.free >= roomyGrains && !c.roomy {
		c.roomy = true
		a.roomy = append(a.roomy, i)
	}
}

// grow gives out up to want cells right behind a stretch that ends at end, and
// returns how many.
func (a *arena) grow(end cell, want int) int {
	at := uint32(end % chunkCells)
	if at == 0 || at%granule != 0 {
		return 0
	}
	c := a.chunk(end)
	n := c.stretch(at/granule, uint32(want+granule-1)/granule)
	if n > 0 {
		c.take(at/granule, n)
		a.free -= int(n)
		if end>>chunkBits == cell(a.current) && a.cursor == at/granule {
			a.cursor += n
		}
	}
	return int(n * granule)
}

// release takes n cells back. A granule can be given out again once all its
// cells are back.
func (a *arena) release(from cell, n int) {
	if n == 0 {
		return
	}
	c := a.chunk(from)
	at, end := uint32(from%chunkCells), uint32(from%chunkCells)+uint32(n)
	clear(c.runOf[at:end])
	for at < end {
		g := at / granule
		next := min(end, (g+1)*granule)
		if c.used[g] -= uint8(next - at); c.used[g] == 0 {
			c.busy[g/wordBits] &^= 1 << (g % wordBits)
			c.free++
			a.free++
		}
		at = next
	}
	switch i := uint32(from >> chunkBits); {
	case i == a.current:
	case c.free == chunkGrains:
		a.giveBack(i)
	default:
		a.note(i)
	}
}
