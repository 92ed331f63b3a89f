package pretok

// spaced is GPT-2's pattern: words, numbers and punctuation with the one space
// before them.
type spaced struct {
	traits
	contractions fold
}

var gpt2 = spaced{newTraits(spacedRole), lowerCase}

func spacedRole(c class) trait {
	switch {
	case c&letter != 0:
		return isWord
	case c&number != 0:
		return isNumber
	case c&space != 0:
		return isSpace
	}
	return isOther
}

// Next implements [Scanner].
func (s *spaced) Next(text string, at int) int {
	start := at
	switch text[at] {
	case '\'':
		if end := contraction(text, at, s.contractions); end > at {
			return end
		}
	case ' ':
		at++
		if at == len(text) {
			return at
		}
	}
	have, n := s.at(text, at)
	switch {
	case have&isSpace != 0:
		return s.blank(text, start, false)
	case have&isWord != 0:
		return s.word(text, at+n)
	}
	return s.run(text, at+n, have)
}
