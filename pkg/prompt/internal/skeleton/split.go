package skeleton

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An atom is atomOpen, its number, atomClose. A request that has atomOpen in it
// is rendered as usual.
const (
	atomOpen  = "\ue000"
	atomClose = "\ue001"
)

// piece is a part of a content: what becomes an atom, or what stays.
type piece struct {
	text string
	atom bool
}

// maxPieces bounds the pieces of one content. One with more stays as it is.
const maxPieces = 32

// splitter cuts contents into atoms and the rest. Whatever the template looks for
// stays, and so does whatever it may strip off: no literal begins or ends in an
// atom, and no atom begins or ends with what can be stripped.
type splitter struct {
	literals []string
	firsts   []byte // their first bytes, each once
	ascii    [utf8.RuneSelf]bool
	strips   string
}

func newSplitter(literals []string, strips string) *splitter {
	s := &splitter{literals: literals, strips: strips}
	for _, l := range literals {
		if !slices.Contains(s.firsts, l[0]) {
			s.firsts = append(s.firsts, l[0])
		}
	}
	for r := range rune(utf8.RuneSelf) {
		s.ascii[r] = unicode.IsSpace(r) || r < ' ' || strings.ContainsRune(strips, r)
	}
	return s
}

// stripped reports whether a rune may be stripped off. What is no UTF-8 counts.
func (s *splitter) stripped(r rune) bool {
	if r < utf8.RuneSelf {
		return s.ascii[r]
	}
	return r == utf8.RuneError || unicode.IsSpace(r) || strings.ContainsRune(s.strips, r)
}

// split appends the pieces of a content. In order they are the content.
func (s *splitter) split(dst []piece, text string) []piece {
	var room [maxPieces][2]int
	found, ok := s.find(room[:0], text)
	if !ok {
		return append(dst, piece{text: text})
	}
	at := 0
	for _, f := range found {
		if f[0] > at {
			dst = s.stretch(dst, text[at:f[0]])
		}
		if f[1] > at {
			dst = append(dst, piece{text: text[max(at, f[0]):f[1]]})
			at = f[1]
		}
	}
	if at < len(text) {
		dst = s.stretch(dst, text[at:])
	}
	return dst
}

// find returns where literals are in text, in order. ok is false when there are
// too many.
func (s *splitter) find(found [][2]int, text string) (_ [][2]int, ok bool) {
	for _, first := range s.firsts {
		for at := 0; ; at++ {
			i := strings.IndexByte(text[at:], first)
			if i < 0 {
				break
			}
			at += i
			for _, l := range s.literals {
				if strings.HasPrefix(text[at:], l) {
					if len(found) == cap(found) {
						return nil, false
					}
					found = append(found, [2]int{at, at + len(l)})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b [2]int) int { return a[0] - b[0] })
	return found, true
}

// stretch appends the pieces of text that holds no literal.
func (s *splitter) stretch(dst []piece, text string) []piece {
	from, to := 0, len(text)
	for from < to {
		r, n := utf8.DecodeRuneInString(text[from:])
		if !s.stripped(r) {
			break
		}
		from += n
	}
	for from < to {
		r, n := utf8.DecodeLastRuneInString(text[from:to])
		if !s.stripped(r) {
			break
		}
		to -= n
	}
	for _, p := range []piece{{text[:from], false}, {text[from:to], true}, {text[to:], false}} {
		if p.text != "" {
			dst = append(dst, p)
		}
	}
	return dst
}
