package encoder

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
)

// key names a node: a hash over the key before it and the text it covers. Equal
// keys mean equal text from the start of the prompt, equal seed and equal
// special tokens.
type key xxh3.Uint128

// shard is one part of the memo with a lock of its own. Its nodes are found by
// key and evicted in order of last use.
type shard struct {
	mu      sync.Mutex
	layout  block.Layout
	cells   arena
	index   []uint32 // open addressing, linear probing; noCell is a free slot
	nodes   uint32
	limit   uint32 // nodes there may be, so that the index never fills up
	newest  uint32
	oldest  uint32
	evicted uint64
	_       [64]byte // keep the locks of two shards apart
}

// shardBytes is what a shard takes without cells, index and slab table.
const shardBytes = int64(unsafe.Sizeof(shard{}))

const sliceBytes = int64(unsafe.Sizeof([]cell(nil)))

// init makes s ready for use within budget bytes. It reports whether anything
// fits.
func (s *shard) init(layout block.Layout, budget int64) bool {
	// For every two cells there may be one node, for every four nodes there are
	// five slots of the index: 2.5 bytes a cell. The slab table takes the rest.
	const perCell = cellBytes + 3
	room := (budget - shardBytes - 2*sliceBytes) / perCell
	if room < minCells {
		return false
	}
	cells := uint32(min(room, maxCellCount))
	s.layout = layout
	s.cells = newArena(cells)
	s.limit = cells / 2
	s.index = make([]uint32, s.limit*5/4+1)
	s.cells.slabs = make([][]cell, 0, cells/slabCells+1)
	return true
}

// bytes is the memory s takes now.
func (s *shard) bytes() int64 {
	return shardBytes + 4*int64(len(s.index)) + sliceBytes*int64(cap(s.cells.slabs)) + cellBytes*int64(s.cells.made)
}

// home is the slot where the search for k begins.
func (s *shard) home(k key) uint32 {
	hi, _ := bits.Mul64(k.Lo, uint64(len(s.index)))
	return uint32(hi)
}

// find returns the head of the node k, and its slot, or noCell and the slot where
// it belongs.
func (s *shard) find(k key) (head, slot uint32) {
	slot = s.home(k)
	for {
		head = s.index[slot]
		if head == noCell {
			return noCell, slot
		}
		if c := s.cells.at(head); c[0] == k.Lo && c[1] == k.Hi {
			return head, slot
		}
		if slot++; slot == uint32(len(s.index)) {
			slot = 0
		}
	}
}

// unindex empties a slot and moves up what the gap would hide.
func (s *shard) unindex(slot uint32) {
	n := uint32(len(s.index))
	for at := slot; ; {
		if at++; at == n {
			at = 0
		}
		head := s.index[at]
		if head == noCell {
			break
		}
		c := s.cells.at(head)
		home := s.home(key{Hi: c[1], Lo: c[0]})
		// It may move when its home is not between the gap and itself.
		if (at+n-home)%n >= (at+n-slot)%n {
			s.index[slot] = head
			slot = at
		}
	}
	s.index[slot] = noCell
}

// unlink takes a node out of the order of use.
func (s *shard) unlink(head uint32) {
	c := s.cells.at(head)
	newer, older := uint32(c[2]), uint32(c[2]>>halfBits)
	if newer == noCell {
		s.newest = older
	} else {
		n := s.cells.at(newer)
		n[2] = n[2]&lowHalf | uint64(older)<<halfBits
	}
	if older == noCell {
		s.oldest = newer
	} else {
		o := s.cells.at(older)
		o[2] = o[2]&^lowHalf | uint64(newer)
	}
}

// link makes a node the one used last.
func (s *shard) link(head uint32) {
	s.cells.at(head)[2] = uint64(s.newest) << halfBits
	if s.newest == noCell {
		s.oldest = head
	} else {
		n := s.cells.at(s.newest)
		n[2] = n[2]&^lowHalf | uint64(head)
	}
	s.newest = head
}

func (s *shard) touchNode(head uint32) {
	if s.newest != head {
		s.unlink(head)
		s.link(head)
	}
}

// evict drops the node whose last use is longest ago.
func (s *shard) evict() {
	head := s.oldest
	c := s.cells.at(head)
	_, slot := s.find(key{Hi: c[1], Lo: c[0]})
	s.unindex(slot)
	s.unlink(head)
	for next := uint32(c[3] >> halfBits); next != noCell; {
		after := uint32(s.cells.at(next)[payloadLink])
		s.cells.give(next)
		next = after
	}
	s.cells.give(head)
	s.nodes--
	s.evicted++
}
