package encoder

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// mark names the added token that a node's text ends with. 0 is none.
type mark uint8

const (
	maxMarks = 63
	// A mark's text has at least minMarkText bytes, or it would be found
	// everywhere, and at most maxMarkText.
	minMarkText = 3
	maxMarkText = 64
)

// marks are the tokens that have ended a segment so far, with what all of them
// had at their end in the text: the token, as it is written. They are learned
// from the tokenizer's answers, so that a later prompt can be cut at the same
// places by a plain search for a string.
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
// token is too short or there are too many marks. At the end of the text it is 0
// for any token that has not ended a segment elsewhere: a segment ends there
// whether the text can be cut or not.
func (m *marks) of(text string, end int, id uint32) mark {
	table := m.now.Load()
	before := text[max(0, end-maxMarkText):end]
	found, ok := table.byID[id]
	switch {
	case ok && strings.HasSuffix(before, table.texts[found]):
	case end == len(text) || !ok && len(table.texts) > maxMarks:
		return 0
	default:
		table, found = m.learn(before, id)
	}
	if len(table.texts[found]) < minMarkText {
		return 0
	}
	return found
}

// learn makes a mark of a token, or shortens the text of the one there is to what
// it has in common with before.
func (m *marks) learn(before string, id uint32) (*markTable, mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.now.Load()
	table := &markTable{texts: slices.Clone(old.texts), byID: old.byID}
	found, ok := old.byID[id]
	switch {
	case ok:
		table.texts[found] = commonSuffix(old.texts[found], before)
	case len(old.texts) > maxMarks: // others were faster
		return old, 0
	default:
		found = mark(len(old.texts))
		table.texts = append(table.texts, strings.Clone(before))
		table.byID = make(map[uint32]mark, len(old.byID)+1)
		maps.Copy(table.byID, old.byID)
		table.byID[id] = found
	}
	m.now.Store(table)
	return table, found
}

// commonSuffix returns the end of a that b has, too.
func commonSuffix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// cut returns where the first mark of h ends in text, no earlier than least. It
// is -1 when none occurs.
func (t *markTable) cut(text string, least int, h hints) int {
	end, window := -1, text
	for i := 0; ; i++ {
		m := h.at(i)
		switch {
		case m == 0:
			return end
		case int(m) >= len(t.texts) || len(t.texts[m]) < minMarkText: // newer than t, or too short
			continue
		}
		written := t.texts[m]
		from := max(0, least-len(written))
		if from > len(window) {
			continue
		}
		if at := find(window[from:], written); at >= 0 {
			end = from + at + len(written)
			window = text[:end] // an earlier one can only end before this
		}
	}
}

// find returns where written, which is not empty, first begins in text, or -1. It
// looks for the byte of it that is the rarest in prompts: what tokens have before
// them is often a blank, at which strings.Index would stop all the time.
func find(text, written string) int {
	at := 0
	for i := range len(written) {
		if rarity(written[i]) > rarity(written[at]) {
			at = i
		}
	}
	for from := at; from < len(text); from++ {
		i := strings.IndexByte(text[from:], written[at])
		if i < 0 {
			return -1
		}
		from += i
		if strings.HasPrefix(text[from-at:], written) {
			return from - at
		}
	}
	return -1
}

// rarity ranks bytes by how rare they are in prompts, roughly.
func rarity(c byte) int {
	switch {
	case c == '|':
		return 4
	case c == '<' || c == '[':
		return 3
	case c >= utf8.RuneSelf:
		return 1
	case c <= ' ' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
		return 0
	default:
		return 2
	}
}
