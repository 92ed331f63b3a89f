package encoder

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// mark names the added token that a node's text ends with. 0 is none.
type mark uint8

const (
	maxMarks    = 63
	maxMarkText = 64 // bytes of the longest token that can be a mark
)

// marks are the tokens that have ended a segment so far. They are learned from
// the tokenizer's answers, so that a later prompt can be cut at the same places
// by a plain search for a string.
type marks struct {
	mu  sync.Mutex
	now atomic.Pointer[markTable] // never changed, only replaced
}

type markTable struct {
	texts []string // by mark; texts[0] is unused
	byID  map[uint32]mark
}

func newMarks() *marks {
	m := new(marks)
	m.now.Store(&markTable{texts: make([]string, 1)})
	return m
}

// of returns the mark of the token id that ends at end in text. It is 0 when the
// token is not written in the text as it is in the vocabulary (it was
// normalized), or when there are too many marks already. It is also 0 at the
// end of the text when the mark is not yet known: a segment ends there whether
// the text can be cut or not.
func (m *marks) of(t Tokenizer, text string, end int, id uint32) mark {
	table := m.now.Load()
	before := text[:end]
	if found, ok := table.byID[id]; ok {
		if strings.HasSuffix(before, table.texts[found]) {
			return found
		}
		return 0
	}
	if end == len(text) || len(table.texts) > maxMarks {
		return 0
	}
	for n := 1; n <= min(maxMarkText, end); n++ {
		written := before[end-n:]
		if got, ok := t.ID(written); ok && got == id {
			return m.learn(written, id)
		}
	}
	return 0
}

func (m *marks) learn(written string, id uint32) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.now.Load()
	if found, ok := old.byID[id]; ok {
		return found
	}
	if len(old.texts) > maxMarks {
		return 0
	}
	table := &markTable{
		texts: append(slices.Clip(old.texts), strings.Clone(written)),
		byID:  make(map[uint32]mark, len(old.byID)+1),
	}
	maps.Copy(table.byID, old.byID)
	found := mark(len(old.texts))
	table.byID[id] = found
	m.now.Store(table)
	return found
}

// cut returns where the first mark of h ends in text, no earlier than at least
// and behind its first byte, and which it is. end is -1 when none occurs.
func (t *markTable) cut(text string, least int, h hints) (end int, found mark) {
	end = -1
	window := text
	for i := 0; ; i++ {
		m := h.at(i)
		if m == 0 || int(m) >= len(t.texts) {
			return end, found
		}
		written := t.texts[m]
		from := max(0, least-len(written))
		if from > len(window) {
			continue
		}
		if at := strings.Index(window[from:], written); at >= 0 {
			end, found = from+at+len(written), m
			window = text[:end] // an earlier one can only end before this
		}
	}
}
