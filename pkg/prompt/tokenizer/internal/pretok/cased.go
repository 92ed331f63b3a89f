package pretok

// cased is the family of o200k: as worded, but a word is capitals, then small
// letters, and a contraction belongs to the word before it.
type cased struct {
	traits
	digits       int // of one piece at most
	contractions bool
}

var (
	o200k  = cased{newTraits(caseRoles(0)).with(isTail, "\r\n/"), 3, true}
	tekken = cased{newTraits(caseRoles(0)).with(isTail, "\r\n/"), 1, false}
	kimi   = cased{newTraits(caseRoles(han)).with(isTail, "\r\n"), 3, true}
)

// caseRoles returns the roles of classes when those of alone are no part of
// words, but pieces of their own. Letters without case and marks go with
// capitals and with small letters.
func caseRoles(alone class) func(class) trait {
	return func(c class) trait {
		var t trait
		if c&alone != 0 {
			t |= isAlone
		} else {
			if c&(upper|caseless|mark) != 0 {
				t |= isUpper
			}
			if c&(lower|caseless|mark) != 0 {
				t |= isWord
			}
		}
		switch {
		case c&letter != 0:
		case c&number != 0:
			t |= isNumber
		case c&newline != 0:
			t |= isSpace | isEnd
		case c&space != 0:
			t |= isSpace | isLead
		default:
			t |= isOther | isLead
		}
		return t
	}
}

// Next implements [Scanner].
func (s *cased) Next(text string, at int) int {
	have, n := s.at(text, at)
	if have&isAlone != 0 {
		return s.run(text, at, isAlone)
	}
	// A mark may stand before a word or be part of it, with the same end.
	if have&(isUpper|isWord) != 0 {
		return s.caseWord(text, at)
	}
	if have&isLead != 0 && s.has(text, at+n, isUpper|isWord) {
		return s.caseWord(text, at+n)
	}
	if have&isNumber != 0 {
		return s.runUpTo(text, at, isNumber, s.digits)
	}
	if end := s.other(text, at); end > 0 {
		return end
	}
	return s.blank(text, at, true)
}

// caseWord returns the end of the word at a letter or mark: the match of upper*
// word+, or else upper+ word*, with a contraction after either.
func (s *cased) caseWord(text string, at int) int {
	end, both := at, 0 // both: the end of the last one that is upper and word
	var have trait
	for end < len(text) {
		var n int
		if have, n = s.at(text, end); have&isUpper == 0 {
			break
		}
		end += n
		if have&isWord != 0 {
			both = end
		}
	}
	switch {
	case end < len(text) && have&isWord != 0:
		end = s.run(text, asciiWord(text, end, asciiSmall), isWord)
	case both > 0:
		// Capitals are given back until one is found that can be the small
		// letter: what follows it is left to the next piece.
		end = both
	}
	if s.contractions {
		return contraction(text, end, true)
	}
	return end
}
