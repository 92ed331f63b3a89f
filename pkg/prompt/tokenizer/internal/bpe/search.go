package bpe

import "unicode/utf8"

// Append appends the ids of one word to dst: the one sequence of closed tokens
// with valid neighbours that spells it (see the package comment). With Chars the
// word is UTF-8. The time taken grows with the length of the word, not faster.
func (m *Model) Append(dst []uint32, word string, s *Scratch) []uint32 {
	next, size := m.trie.longest(word)
	if size == len(word) {
		if size == 0 {
			return dst
		}
		return append(dst, next)
	}
	if m.ignoreMerges {
		if id, ok := m.trie.find(word); ok {
			return append(dst, id)
		}
	}
	start, first, pos, stuck := len(dst), len(dst), 0, 0
	for pos < len(word) {
		switch {
		case size == 0:
			// No token starts here, so none crosses here and what is found so
			// far is final.
			if size = m.fallback(word[pos:]); size == 0 {
				return m.follow(dst[:start], word, s)
			}
			for _, b := range []byte(word[pos : pos+size]) {
				dst = append(dst, uint32(m.byteTokens[b]))
			}
			first = len(dst)
		case len(dst) == first || !m.touching.may(word, pos) || m.valid(dst[len(dst)-1], next):
			dst = append(dst, next)
		default:
			if stuck++; stuck > patient+2*(len(dst)-start) {
				return m.appendCareful(dst[:start], word, s)
			}
			// Try a shorter one; where there is none, in place of the last one.
			for m.tails[next].shorter == 0 {
				if len(dst) == first {
					return m.follow(dst[:start], word, s) // not reached: some way exists
				}
				next = dst[len(dst)-1]
				dst = dst[:len(dst)-1]
				pos -= int(m.tails[next].size)
			}
			next = m.tails[next].shorter - 1
			size = int(m.tails[next].size)
			continue
		}
		pos += size
		next, size = m.trie.longest(word[pos:])
	}
	return dst
}

// fallback returns how many bytes at the start of text become tokens of their
// bytes, 0 when the rule itself must decide.
func (m *Model) fallback(text string) int {
	if !m.plainBytes {
		return 0
	}
	_, size := utf8.DecodeRuneInString(text)
	return size
}

// valid reports whether two closed tokens are valid neighbours.
func (m *Model) valid(x, y uint32) bool {
	return (!m.edges[x].mayJoin(y) || m.pairs.time(x, y) == never) && m.meet(x, y)
}

// meet reports whether what two closed tokens spell together comes to the point
// where both are whole. It walks down the edges at their boundary and undoes the
// younger symbol first; of two as old the right one, since among equals the left
// merges first. At each step, nothing may merge across before either symbol is
// merged away on its own side.
func (m *Model) meet(x, y uint32) bool {
	edges := m.edges
	ex, ey := edges[x], edges[y]
	xEnd, yEnd := never, never
	for {
		tx, ty := ex.tree, ey.tree
		switch {
		case tx.time() > ty.time():
			x = tx.right()
			ex = edges[x]
			xEnd = tx.time()
			if ex.tree.time() == xEnd { // x was waited for
				xEnd = m.pairs.time(tx.left(), x)
			}
		case ty.time() > 0:
			y = ty.left()
			ey = edges[y]
			yEnd = ty.time()
			// y was waited for, and is the last to come
			if ey.tree.time() == yEnd && edges[ty.right()].tree.time() < yEnd {
				yEnd = m.pairs.time(y, ty.right())
			}
		default:
			return true
		}
		if ex.mayJoin(y) {
			if t := m.pairs.time(x, y); t < xEnd && t <= yEnd {
				return false
			}
		}
	}
}
