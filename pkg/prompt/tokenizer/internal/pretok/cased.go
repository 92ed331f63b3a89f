package pretok

// cased is the family of o200k: as worded, but a word is capitals, then small
// letters, and a contraction belongs to the word before it.
type cased struct{ common }

// caseRoles returns the roles of classes when those of alone are no part of
// words, but pieces of their own. Letters without case and marks go with
// capitals and with small letters.
func caseRoles(alone class, otherMarks bool) func(class) trait {
	return func(c class) trait {
		t := mostRole(c, otherMarks)
		if c&alone != 0 {
			return t | isAlone
		}
		if c&(upper|caseless|mark) != 0 {
			t |= isUpper
		}
		if c&(lower|caseless|mark) != 0 {
			t |= isWord
		}
		return t
	}
}

// Next implements [Scanner].
func (s *cased) Next(text string, at int) int {
	have, n := s.at(text, at)
	switch {
	case have&isAlone != 0:
		return s.run(text, at, isAlone)
	case have&(isUpper|isWord) != 0: // a mark too, which may also stand before a word
		return s.caseWord(text, at)
	case have&isLead != 0 && s.has(text, at+n, isUpper|isWord):
		return s.caseWord(text, at+n)
	}
	return s.most(text, at, have)
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
	return contraction(text, end, s.contractions)
}
