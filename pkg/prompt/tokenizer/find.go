package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// found is an added token in text. With white space that it takes, start and end
// are more than the token.
type found struct {
	token      uint32
	start, end int
	next       int // where to look for another
	blank      int // white space goes on up to here at least; for the next search
}

// find returns the first added token in raw text from next on. What is before
// at belongs to others already. blank is what the search before has found.
func (a *addedTokens) find(text string, at, next, blank int) (found, bool) {
	if a.joint {
		return a.findJoint(text, next)
	}
	return a.findMarked(a.early, text, at, next, blank, false)
}

// findJoint finds tokens of both kinds in one pass. Those matched in raw text
// come first: one of them bounds the text that a late one may lie in.
func (a *addedTokens) findJoint(text string, at int) (found, bool) {
	set := a.set
	for set != nil {
		if at = set.candidate(text, at); at >= len(text) {
			break
		}
		if token, size := set.at(text[at:], false); size > 0 {
			return found{token, at, at + size, at + size, 0}, true
		}
		if a.hasLate {
			if token, size := a.lateAt(text, at); size > 0 {
				return found{token, at, at + size, at + size, 0}, true
			}
		}
		at++
	}
	return found{}, false
}

// lateAt returns the longest late token at a place that ends before any token
// that is matched in raw text starts.
func (a *addedTokens) lateAt(text string, at int) (token uint32, size int) {
	token, size = a.set.at(text[at:], true)
	for i := at + 1; i < at+size; i++ {
		if _, other := a.set.at(text[i:], false); other > 0 {
			return a.set.at(text[at:i], true)
		}
	}
	return token, size
}

// findMarked finds tokens of one kind, with what their flags ask for. A token
// that must be a single word and is none is passed over as a whole. White space
// that one takes on its right may still hold another, which then takes what is
// left of it: it ends at blank, and is not looked through again.
func (a *addedTokens) findMarked(set *tokenSet, text string, at, next, blank int, late bool) (found, bool) {
	for {
		token, start, end := set.next(text, next, late)
		if start < 0 {
			return found{}, false
		}
		t := &a.tokens[token]
		if t.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			next = end
			continue
		}
		f := found{token, start, end, end, blank}
		if t.lstrip {
			f.start = at
			if at < start {
				f.start += len(strings.TrimRightFunc(text[at:start], unicode.IsSpace))
			}
		}
		if t.rstrip {
			if end >= blank {
				f.blank = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			}
			f.end = f.blank
		}
		return f, true
	}
}

func endsWithWord(text string) bool {
	r, size := utf8.DecodeLastRuneInString(text)
	return size > 0 && isWord(r)
}

func startsWithWord(text string) bool {
	r, size := utf8.DecodeRuneInString(text)
	return size > 0 && isWord(r)
}

// isWord reports whether a character is one of words: \w of Unicode's rules for
// regexes, in Rust's regex crate.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
	}
	return inAny(newerWords, r) || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
}

// newerWords are characters of words that are newer than Go's tables (Unicode
// 15), as the regex crate of tokenizers 0.22 has them (Unicode 16).
var newerWords = []runeRange{
	{0x0897, 0x0897},
	{0x1C89, 0x1C8A},
	{0xA7CB, 0xA7CD},
	{0xA7DA, 0xA7DC},
	{0x105C0, 0x105F3},
	{0x10D40, 0x10D65},
	{0x10D69, 0x10D6D},
	{0x10D6F, 0x10D85},
	{0x10EC2, 0x10EC4},
	{0x10EFC, 0x10EFC},
	{0x11380, 0x11389},
	{0x1138B, 0x1138B},
	{0x1138E, 0x1138E},
	{0x11390, 0x113B5},
	{0x113B7, 0x113C0},
	{0x113C2, 0x113C2},
	{0x113C5, 0x113C5},
	{0x113C7, 0x113CA},
	{0x113CC, 0x113D3},
	{0x113E1, 0x113E2},
	{0x116D0, 0x116E3},
	{0x11BC0, 0x11BE0},
	{0x11BF0, 0x11BF9},
	{0x11F5A, 0x11F5A},
	{0x13460, 0x143FA},
	{0x16100, 0x16139},
	{0x16D40, 0x16D6C},
	{0x16D70, 0x16D79},
	{0x18CFF, 0x18CFF},
	{0x1CCF0, 0x1CCF9},
	{0x1E5D0, 0x1E5FA},
	{0x2EBF0, 0x2EE5D},
}

// runeRange is a range of characters, with both ends.
type runeRange struct{ first, last rune }

// inAny reports whether one of the ranges, which are in order, has a character.
func inAny(list []runeRange, r rune) bool {
	_, ok := slices.BinarySearchFunc(list, r, func(c runeRange, r rune) int {
		switch {
		case c.last < r:
			return -1
		case c.first > r:
			return 1
		}
		return 0
	})
	return ok
}
