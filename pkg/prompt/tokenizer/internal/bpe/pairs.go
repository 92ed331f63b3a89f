package bpe

import "math/bits"

const (
	idBits   = 21
	rankBits = 64 - 2*idBits
	// never is the time of what does not happen: later than every merge.
	never = ^uint32(0)
)

// pairTable finds the time of a merge by its two parts. A time is the merge's
// rank plus one, so that 0 is the time of what is there from the start. It is an
// open hash table; the word 0 is an empty slot.
type pairTable struct {
	slots []tree
	shift uint8
}

// newPairTable returns a table for n pairs that is at most two thirds full.
func newPairTable(n int) pairTable {
	size := bits.Len(uint(n + n/2 + 1))
	return pairTable{slots: make([]tree, 1<<size), shift: uint8(64 - size)}
}

// tree is a merge in one word: left, right, time. Of a closed token it is its
// last merge, and its parts' trees are further down.
type tree uint64

func packTree(left, right, time uint32) tree {
	return tree(packPair(left, right)<<rankBits | uint64(time))
}

func (t tree) left() uint32  { return uint32(t >> (rankBits + idBits)) }
func (t tree) right() uint32 { return uint32(t>>rankBits) & (1<<idBits - 1) }
func (t tree) time() uint32  { return uint32(t) & (1<<rankBits - 1) }
func (t tree) pair() uint64  { return uint64(t) >> rankBits }

func packPair(left, right uint32) uint64 {
	return uint64(left)<<idBits | uint64(right)
}

// home is the slot where the search for a pair starts.
func (p *pairTable) home(pair uint64) uint64 {
	return pair * 0x9E3779B97F4A7C15 >> (p.shift & 63)
}

// set gives a pair its time, in place of any earlier one.
func (p *pairTable) set(left, right, time uint32) {
	pair := packPair(left, right)
	mask := uint64(len(p.slots) - 1)
	for i := p.home(pair); ; i++ {
		slot := &p.slots[i&mask]
		if *slot == 0 || slot.pair() == pair {
			*slot = packTree(left, right, time)
			return
		}
	}
}

// time returns the time of the merge of a pair, or never.
func (p *pairTable) time(left, right uint32) uint32 {
	pair := packPair(left, right)
	slots := p.slots
	mask := uint64(len(slots) - 1)
	for i := p.home(pair); ; i++ {
		slot := slots[i&mask]
		if slot == 0 {
			return never
		}
		if slot.pair() == pair {
			return slot.time()
		}
	}
}
