package encoder

import "unsafe"

// cell is the unit of the memo's memory. A node is one head cell and as many
// payload cells as it needs. Nothing in a cell is a pointer, so the garbage
// collector never looks into the memo.
//
// Head cell:
//
//	0, 1  key
//	2     neighbours in order of use: newer (low half), older (high half)
//	3     tokens up to the node's end (low), first payload cell (high)
//	4     chains of the node (low)
//	5     hints, see [hints]
//	6, 7  first two words of the payload
//
// Payload cell: words 0 to 6 are payload, word 7 is the next payload cell.
// The payload is the chains, then the tail tokens, two to a word.
type cell [8]uint64

const (
	cellBytes    = int64(unsafe.Sizeof(cell{}))
	slabCells    = 1024
	headRoom     = 2 // payload words in a head cell
	payloadRoom  = 7 // payload words in a payload cell
	payloadLink  = 7
	headPayload  = 6
	halfBits     = 32
	lowHalf      = 1<<halfBits - 1
	noCell       = 0 // cell 0 is never handed out
	minCells     = 16
	maxCellCount = 1 << 30
)

// arena hands out cells from slabs that are made as they are needed.
type arena struct {
	slabs [][]cell
	made  uint32 // cells in slabs
	limit uint32 // cells there may be
	used  uint32 // cells handed out
	free  uint32 // first cell of the free list, linked by word payloadLink
	fresh uint32 // next cell that was never handed out
}

func newArena(limit uint32) arena { return arena{limit: limit, fresh: 1} }

func (a *arena) at(i uint32) *cell { return &a.slabs[i/slabCells][i%slabCells] }

// left is how many cells can still be handed out.
func (a *arena) left() uint32 { return a.limit - 1 - a.used }

// take hands out one cell. There must be one left.
func (a *arena) take() uint32 {
	a.used++
	if i := a.free; i != noCell {
		a.free = uint32(a.at(i)[payloadLink])
		return i
	}
	if a.fresh >= a.made {
		n := min(slabCells, a.limit-a.made)
		a.slabs = append(a.slabs, make([]cell, n))
		a.made += n
	}
	a.fresh++
	return a.fresh - 1
}

// give takes a cell back.
func (a *arena) give(i uint32) {
	a.at(i)[payloadLink] = uint64(a.free)
	a.free = i
	a.used--
}

// cellsFor is how many cells a node with that many words of payload takes.
func cellsFor(words int) int {
	if words <= headRoom {
		return 1
	}
	return 1 + (words-headRoom+payloadRoom-1)/payloadRoom
}

// payload walks over the payload words of a node.
type payload struct {
	a    *arena
	in   *cell
	word int
	end  int // the word behind the last one of this cell
}

func (a *arena) payload(head uint32) payload {
	return payload{a: a, in: a.at(head), word: headPayload, end: headPayload + headRoom}
}

// next is the link to the payload cell behind the current one.
func (p *payload) next() uint32 {
	if p.end == payloadRoom {
		return uint32(p.in[payloadLink])
	}
	return uint32(p.in[3] >> halfBits)
}

func (p *payload) step() {
	p.in, p.word, p.end = p.a.at(p.next()), 0, payloadRoom
}

// read returns the next word.
func (p *payload) read() uint64 {
	if p.word == p.end {
		p.step()
	}
	p.word++
	return p.in[p.word-1]
}

// write stores the next word, taking a cell where one is due.
func (p *payload) write(w uint64) {
	if p.word == p.end {
		i := p.a.take()
		if p.end == payloadRoom {
			p.in[payloadLink] = uint64(i)
		} else {
			p.in[3] = p.in[3]&lowHalf | uint64(i)<<halfBits
		}
		p.step()
		p.in[payloadLink] = noCell
	}
	p.in[p.word] = w
	p.word++
}
