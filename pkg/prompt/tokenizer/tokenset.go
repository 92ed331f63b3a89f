package tokenizer

import (
	"cmp"
	"slices"
	"strings"
)

// tokenSet finds added tokens in text, the longest of those that start at a
// place. It holds no pointers beyond a handful, however many tokens there are.
type tokenSet struct {
	keys []string // sorted; parts of one string
	of   []uint32 // the added token of each key
	late []bool   // the token is matched in normalized text

	// What no token starts with is passed over: by its first byte, then by its
	// first two.
	starts  [256]bool
	pairs   [1 << 16 / 64]uint64
	lone    byte // the byte that all tokens start with
	hasLone bool
}

// pattern is one key of a set.
type pattern struct {
	text string
	of   uint32
	late bool
}

// newTokenSet returns the set of patterns. Of equal texts the first counts, per
// kind.
func newTokenSet(patterns []pattern) *tokenSet {
	if len(patterns) == 0 {
		return nil
	}
	sorted := slices.Clone(patterns)
	slices.SortStableFunc(sorted, func(a, b pattern) int { return strings.Compare(a.text, b.text) })
	sorted = slices.CompactFunc(sorted, func(a, b pattern) bool { return a.text == b.text && a.late == b.late })
	var b strings.Builder
	for _, p := range sorted {
		b.WriteString(p.text)
	}
	s := &tokenSet{}
	text := b.String()
	for _, p := range sorted {
		s.keys = append(s.keys, text[:len(p.text)])
		text = text[len(p.text):]
		s.of, s.late = append(s.of, p.of), append(s.late, p.late)
		s.starts[p.text[0]] = true
		first := int(p.text[0]) << 8
		if len(p.text) > 1 {
			s.mark(first | int(p.text[1]))
			continue
		}
		for second := range 256 {
			s.mark(first | second)
		}
	}
	s.lone, s.hasLone = sorted[0].text[0], sorted[0].text[0] == sorted[len(sorted)-1].text[0]
	return s
}

func (s *tokenSet) mark(pair int) { s.pairs[pair/64] |= 1 << (pair % 64) }

// candidate returns the first place from at on where a token may start, or
// len(text).
func (s *tokenSet) candidate(text string, at int) int {
	for at < len(text) {
		if s.hasLone {
			i := strings.IndexByte(text[at:], s.lone)
			if i < 0 {
				return len(text)
			}
			at += i
		} else {
			at = s.skip(text, at)
		}
		if at >= len(text) || at+1 == len(text) {
			return at
		}
		pair := int(text[at])<<8 | int(text[at+1])
		if s.pairs[pair/64]>>(pair%64)&1 != 0 {
			return at
		}
		at++
	}
	return len(text)
}

// skip passes over bytes that no token starts with.
func (s *tokenSet) skip(text string, at int) int {
	for at+8 <= len(text) {
		t := text[at : at+8]
		if s.starts[t[0]] || s.starts[t[1]] || s.starts[t[2]] || s.starts[t[3]] ||
			s.starts[t[4]] || s.starts[t[5]] || s.starts[t[6]] || s.starts[t[7]] {
			break
		}
		at += 8
	}
	for at < len(text) && !s.starts[text[at]] {
		at++
	}
	return at
}

// at returns the longest token of a kind at the start of text and its length; a
// length of 0 is none.
func (s *tokenSet) at(text string, late bool) (token uint32, size int) {
	lo, hi := 0, len(s.keys)
	for depth := 0; lo < hi; depth++ {
		for ; lo < hi && len(s.keys[lo]) == depth; lo++ {
			if s.late[lo] == late {
				token, size = s.of[lo], depth
			}
		}
		if depth == len(text) {
			break
		}
		lo, hi = s.narrow(lo, hi, depth, text[depth])
	}
	return token, size
}

// narrow returns the keys from lo to hi, all longer than depth, that go on with
// a byte.
func (s *tokenSet) narrow(lo, hi, depth int, c byte) (int, int) {
	if hi-lo == 1 {
		if s.keys[lo][depth] != c {
			return lo, lo
		}
		return lo, hi
	}
	from, _ := slices.BinarySearchFunc(s.keys[lo:hi], c, func(key string, c byte) int { return cmp.Compare(key[depth], c) })
	lo += from
	if lo == hi || s.keys[lo][depth] != c {
		return lo, lo
	}
	to, _ := slices.BinarySearchFunc(s.keys[lo:hi], int(c)+1, func(key string, c int) int { return cmp.Compare(int(key[depth]), c) })
	return lo, lo + to
}

// next returns the leftmost longest token of a kind from at on.
func (s *tokenSet) next(text string, at int, late bool) (token uint32, start, end int) {
	for s != nil {
		if at = s.candidate(text, at); at >= len(text) {
			break
		}
		if token, size := s.at(text[at:], late); size > 0 {
			return token, at, at + size
		}
		at++
	}
	return 0, -1, -1
}

// each calls found for every token that text starts with.
func (s *tokenSet) each(text string, found func(token uint32, size int, late bool)) {
	lo, hi := 0, len(s.keys)
	for depth := 0; lo < hi; depth++ {
		for ; lo < hi && len(s.keys[lo]) == depth; lo++ {
			found(s.of[lo], depth, s.late[lo])
		}
		if depth == len(text) {
			return
		}
		lo, hi = s.narrow(lo, hi, depth, text[depth])
	}
}

// earlyBeyond reports whether a token that is not late starts with text and goes
// on.
func (s *tokenSet) earlyBeyond(text string) bool {
	lo, hi := 0, len(s.keys)
	for depth := 0; lo < hi; depth++ {
		for lo < hi && len(s.keys[lo]) == depth {
			lo++
		}
		if depth == len(text) {
			break
		}
		lo, hi = s.narrow(lo, hi, depth, text[depth])
	}
	return slices.Contains(s.late[lo:hi], false)
}
