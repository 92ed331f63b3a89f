package pretok

// worded is the family of cl100k: contractions, then words that take one
// character before them along, numbers cut short, punctuation with the space
// before it and the line ends after it, whitespace up to the last line end.
type worded struct {
	traits
	digits int // of one piece at most; 0: no limit
	// trailing says that whitespace at the end of the text is one piece, even
	// if it has line ends: \s++$ comes before \s*[\r\n].
	trailing bool
}

var (
	qwen2  = worded{newTraits(wordRoles(letter)).with(isTail, "\r\n"), 1, false}
	llama3 = worded{newTraits(wordRoles(letter)).with(isTail, "\r\n"), 3, false}
	qwen35 = worded{newTraits(wordRoles(letter|mark)).with(isTail, "\r\n"), 1, false}
	seed   = worded{newTraits(wordRoles(letter)), 1, false}
	// cl100kPossessive, as tiktoken has it; for Oniguruma {1,3}+ has no limit.
	cl100k          = worded{newTraits(wordRoles(letter)).with(isTail, "\r\n"), 3, true}
	cl100kOniguruma = worded{newTraits(wordRoles(letter)).with(isTail, "\r\n"), 0, true}
)

// wordRoles returns the roles of classes when words are made of these ones.
func wordRoles(word class) func(class) trait {
	return func(c class) trait {
		switch {
		case c&word != 0:
			return isWord
		case c&number != 0:
			return isNumber
		case c&newline != 0:
			return isSpace | isEnd
		case c&space != 0:
			return isSpace | isLead
		}
		return isOther | isLead
	}
}

// Next implements [Scanner].
func (s *worded) Next(text string, at int) int {
	have, n := s.at(text, at)
	if have&isWord != 0 {
		return s.word(text, at+n)
	}
	if have&isNumber != 0 {
		return s.runUpTo(text, at, isNumber, s.digits)
	}
	if text[at] == '\'' {
		if end := contraction(text, at, true); end > at {
			return end
		}
	}
	if have&isLead != 0 && s.has(text, at+n, isWord) {
		return s.word(text, at+n)
	}
	if end := s.other(text, at); end > 0 {
		return end
	}
	if s.trailing && s.run(text, at, isSpace) == len(text) {
		return len(text)
	}
	return s.blank(text, at, true)
}
