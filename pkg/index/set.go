package index

import "math/bits"

// Slot is a worker's column in the index, dense from 0. A slot belongs to one
// worker from Register to Drop and is given to another only long after.
type Slot uint16

// MaxWorkers bounds the workers one index holds.
const MaxWorkers = 4096

const wordBits = 64

// set is a set of slots. The first 64 need no allocation of their own.
type set struct {
	first uint64
	rest  []uint64
}

func (s *set) word(i int) uint64 {
	if i == 0 {
		return s.first
	}
	if i > len(s.rest) {
		return 0
	}
	return s.rest[i-1]
}

func (s *set) has(slot Slot) bool {
	return s.word(int(slot/wordBits))>>(slot%wordBits)&1 == 1
}

func (s *set) add(slot Slot) {
	w, bit := int(slot/wordBits), uint64(1)<<(slot%wordBits)
	if w == 0 {
		s.first |= bit
		return
	}
	for len(s.rest) < w {
		s.rest = append(s.rest, 0)
	}
	s.rest[w-1] |= bit
}

func (s *set) remove(slot Slot) {
	w, bit := int(slot/wordBits), uint64(1)<<(slot%wordBits)
	switch {
	case w == 0:
		s.first &^= bit
	case w <= len(s.rest):
		s.rest[w-1] &^= bit
	}
}

func (s *set) empty() bool {
	if s.first != 0 {
		return false
	}
	for _, w := range s.rest {
		if w != 0 {
			return false
		}
	}
	return true
}

// eachBit calls f with the slot of every bit of word number w.
func eachBit(w int, word uint64, f func(Slot)) {
	for ; word != 0; word &= word - 1 {
		f(Slot(w*wordBits + bits.TrailingZeros64(word)))
	}
}
