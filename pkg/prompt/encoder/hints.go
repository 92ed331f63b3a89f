package encoder

// hints say how the text of a node's children ends: up to seven marks, the last
// seen first, in the bytes from the lowest up; 0 is none. The top byte is not 0
// when a child reaches to the end of a prompt. They only guide the search for a
// child. Missing or wrong ones cost time, never exactness.
type hints uint64

const (
	hintMarks = 7
	endHint   = hints(1) << (8 * hintMarks)
)

// with returns h with m as the mark seen last.
func (h hints) with(m mark) hints {
	end := h & endHint
	h &^= endHint
	for i := range hintMarks {
		if byte(h>>(8*i)) == byte(m) {
			if i == 0 {
				return h | end
			}
			low := h & (1<<(8*i) - 1)
			high := h &^ (1<<(8*(i+1)) - 1)
			return high | low<<8 | hints(m) | end
		}
	}
	return h<<8&(endHint-1) | hints(m) | end
}

// union returns h with the marks of o as the ones seen last.
func (h hints) union(o hints) hints {
	for i := hintMarks - 1; i >= 0; i-- {
		if m := mark(o >> (8 * i)); m != 0 {
			h = h.with(m)
		}
	}
	return h | o&endHint
}

// at returns the i-th mark, 0 when there are fewer.
func (h hints) at(i int) mark {
	if i >= hintMarks {
		return 0
	}
	return mark(h >> (8 * i))
}
