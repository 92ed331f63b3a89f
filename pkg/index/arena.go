package index

import (
	"math/bits"
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
	dir     atomic.Pointer[[]*chunk]
	chunks  int
	limit   int // chunks
	current uint32
	cursor  uint32 // granule of current
	roomy   []uint32
}

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

// addChunk makes a new chunk the current one.
func (a *arena) addChunk() bool {
	if a.chunks >= a.limit {
		return false
	}
	c := &chunk{free: chunkGrains}
	var old []*chunk
	if p := a.dir.Load(); p != nil {
		old = *p
	} else {
		c.take(0, 1) // cell 0 is none
	}
	// Appending may write behind the slice that others read, never into it.
	dir := append(old, c) //nolint:gocritic // as the line above says
	a.dir.Store(&dir)
	a.current, a.cursor = uint32(a.chunks), 0
	a.chunks++
	return true
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
	for i, c := range *a.dir.Load() {
		if c.free > 0 {
			a.current, a.cursor = uint32(i), 0
			return true
		}
	}
	return false
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
		}
		at = next
	}
	if i := uint32(from >> chunkBits); i != a.current {
		a.note(i)
	}
}

func (a *arena) bytes() int64 {
	n := int64(a.chunks)*int64(unsafe.Sizeof(chunk{})) + int64(cap(a.roomy))*4
	if p := a.dir.Load(); p != nil {
		n += int64(cap(*p)) * 8
	}
	return n
}
