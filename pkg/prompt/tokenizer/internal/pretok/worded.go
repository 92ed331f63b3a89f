package pretok

// common is what worded and cased have in common.
type common struct {
	traits
	contractions fold
	digits       int // of one piece at most; 0: no limit
	blanks
}

// most returns the end of the piece at a character with these roles that starts
// neither a word nor a contraction: a number cut short, punctuation with the
// space before it and the line ends after it, or whitespace.
func (c *common) most(text string, at int, have trait) int {
	if have&isNumber != 0 {
		return c.runUpTo(text, at, isNumber, c.digits)
	}
	if end := c.other(text, at); end > 0 {
		return end
	}
	if c.trailing && c.run(text, at, isSpace) == len(text) {
		return len(text)
	}
	return c.blank(text, at, c.lineEnds)
}

// worded is the family of cl100k: contractions, then words that take one
// character before them along.
type worded struct{ common }

// wordRoles returns the roles of classes when words are made of these ones.
func wordRoles(word class, otherMarks bool) func(class) trait {
	return func(c class) trait {
		t := trait(0)
		if c&word != 0 {
			t = isWord
		}
		return t | mostRole(c, otherMarks)
	}
}

// mostRole returns the roles of a class outside words.
func mostRole(c class, otherMarks bool) trait {
	switch {
	case c&letter != 0:
		return 0
	case c&number != 0:
		return isNumber
	case c&newline != 0:
		return isSpace | isEnd
	case c&space != 0:
		return isSpace | isLead
	case c&mark != 0 && !otherMarks:
		return isLead
	}
	return isOther | isLead
}

// Next implements [Scanner].
func (s *worded) Next(text string, at int) int {
	have, n := s.at(text, at)
	// A mark may stand before a word or be part of it, with the same end.
	if have&isWord != 0 {
		return s.word(text, at+n)
	}
	if have&isLead != 0 {
		if text[at] == '\'' {
			if end := contraction(text, at, s.contractions); end > at {
				return end
			}
		}
		if s.has(text, at+n, isWord) {
			return s.word(text, at+n)
		}
	}
	return s.most(text, at, have)
}
