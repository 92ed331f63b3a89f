package tokenizer

import (
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
}

// find returns the first added token in raw text from next on. What is before
// at belongs to others already.
func (a *addedTokens) find(text string, at, next int) (found, bool) {
	if a.joint {
		return a.findJoint(text, next)
	}
	return a.findMarked(a.early, text, at, next, false)
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
			return found{token, at, at + size, at + size}, true
		}
		if a.hasLate {
			if token, size := a.lateAt(text, at); size > 0 {
				return found{token, at, at + size, at + size}, true
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
// that one takes on its right may still hold another.
func (a *addedTokens) findMarked(set *tokenSet, text string, at, next int, late bool) (found, bool) {
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
		f := found{token, start, end, end}
		if t.lstrip {
			f.start = at
			if at < start {
				f.start += len(strings.TrimRightFunc(text[at:start], unicode.IsSpace))
			}
		}
		if t.rstrip {
			f.end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
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
	return unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
}
