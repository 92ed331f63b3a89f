package bpe

import "unicode/utf8"

// symbol is one symbol of a word in the making, linked to its neighbours.
type symbol struct {
	id         uint32
	prev, next int32 // -1 for none
	merged     bool  // into the one on its left
}

// follow follows the rule step by step. Its cost is n log n.
func (m *Model) follow(dst []uint32, word string, s *Scratch) []uint32 {
	m.start(word, s)
	symbols := s.symbols
	s.queue = s.queue[:0]
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
	}
	if n := len(symbols); n > 0 {
		symbols[n-1].next = -1
	}
	for i := range symbols {
		m.offer(s, int32(i))
	}
	for len(s.queue) > 0 {
		time, at := s.queue.pop()
		left := &symbols[at]
		// What was queued may be gone by now.
		if left.merged || left.next < 0 || m.pairs.time(left.id, symbols[left.next].id) != time {
			continue
		}
		right := &symbols[left.next]
		right.merged = true
		left.id, left.next = m.results[time], right.next
		if left.next >= 0 {
			symbols[left.next].prev = at
		}
		if left.prev >= 0 {
			m.offer(s, left.prev)
		}
		m.offer(s, at)
	}
	for i := range symbols {
		if !symbols[i].merged {
			dst = append(dst, symbols[i].id)
		}
	}
	return dst
}

// offer queues the merge of a symbol with the one on its right, if it is one.
func (m *Model) offer(s *Scratch, at int32) {
	left := &s.symbols[at]
	if left.next < 0 {
		return
	}
	if time := m.pairs.time(left.id, s.symbols[left.next].id); time != never {
		s.queue.push(time, at)
	}
}

// start fills the scratch with the symbols that a word starts as.
func (m *Model) start(word string, s *Scratch) {
	s.symbols = s.symbols[:0]
	unknown := false // one is waiting to be added
	for pos := 0; pos < len(word); {
		size := 1
		if m.chars {
			_, size = utf8.DecodeRuneInString(word[pos:])
		}
		char := word[pos : pos+size]
		pos += size
		id, ok := m.symbol(char)
		switch {
		case ok:
			if unknown {
				s.add(uint32(m.unk))
				unknown = false
			}
			s.add(id)
		case m.addBytes(char, s):
			// As in Hugging Face an unknown symbol keeps waiting, so it comes
			// after these bytes.
		case m.unk >= 0:
			if unknown && !m.fuseUnk {
				s.add(uint32(m.unk))
			}
			unknown = true
		}
	}
	if unknown {
		s.add(uint32(m.unk))
	}
}

func (m *Model) symbol(char string) (id uint32, ok bool) {
	if len(char) == 1 {
		id := m.symbols[char[0]]
		return uint32(id), id >= 0
	}
	return m.trie.find(char)
}

// addBytes adds the tokens of a character's bytes, if it has them all.
func (m *Model) addBytes(char string, s *Scratch) bool {
	if !m.byteFallback {
		return false
	}
	for i := range len(char) {
		if m.byteTokens[char[i]] < 0 {
			return false
		}
	}
	for i := range len(char) {
		s.add(uint32(m.byteTokens[char[i]]))
	}
	return true
}

func (s *Scratch) add(id uint32) { s.symbols = append(s.symbols, symbol{id: id}) }

// queue is a binary heap of merges: time above position, the least first.
type queue []uint64

func (q *queue) push(time uint32, at int32) {
	*q = append(*q, uint64(time)<<32|uint64(at))
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up] <= h[i] {
			return
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

func (q *queue) pop() (time uint32, at int32) {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if last <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	return uint32(top >> 32), int32(uint32(top))
}
