package pretok

// deepseek is the last Split of DeepSeek V3, alone or with the two before it.
// These cut out numbers and CJK, and the last sees only what is between two
// cuts: for it a cut is the end of the text.
type deepseek struct {
	traits
	fused bool
}

var (
	deepseekLast  = deepseek{newTraits(deepseekRoles(false)).withTail("\r\n"), false}
	deepseekFused = deepseek{newTraits(deepseekRoles(true)).withTail("\r\n"), true}
	// deepseekCJK has the roles inside a run of CJK.
	deepseekCJK = newTraits(func(c class) trait {
		if c&cjk == 0 {
			return isStop
		}
		return deepseekRole(c)
	})
)

// deepseekRoles returns the roles of classes outside runs of CJK.
func deepseekRoles(fused bool) func(class) trait {
	return func(c class) trait {
		switch {
		case fused && c&cjk != 0:
			return isStop | isAlone
		case fused && c&number != 0:
			return isStop | isNumber
		}
		return deepseekRole(c)
	}
}

func deepseekRole(c class) trait {
	switch {
	case c&letter != 0:
		return isWord
	case c&mark != 0:
		return isWord | isLead
	case c&(punct|symbol) != 0:
		return isOther
	case c&newline != 0:
		return isSpace | isEnd
	case c&space != 0:
		return isSpace | isLead
	}
	return isGap | isLead
}

// Next implements [Scanner].
func (s *deepseek) Next(text string, at int) int {
	have, n := s.at(text, at)
	switch {
	case have&isNumber != 0:
		return s.runUpTo(text, at, isNumber, 3)
	case have&isAlone != 0:
		have, n = deepseekCJK.at(text, at)
		return cut(&deepseekCJK, text, at, have, n)
	case have&isOther != 0 && n == 1 && at+1 < len(text) && isASCIILetter(text[at+1]):
		at = asciiWord(text, at+2, asciiLetters)
		for at < len(text) && isASCIILetter(text[at]) {
			at++
		}
		return at
	}
	return cut(&s.traits, text, at, have, n)
}

// cut returns the end of the piece at a character with these roles and of n
// bytes, by all alternatives but the first.
func cut(t *traits, text string, at int, have trait, n int) int {
	if have&isWord != 0 || have&isLead != 0 && t.has(text, at+n, isWord) {
		if t == &deepseekCJK { // where ASCII is no part of a word
			return t.run(text, at+n, isWord)
		}
		return t.word(text, at+n)
	}
	if end := t.other(text, at); end > 0 {
		return end
	}
	if have&isSpace != 0 {
		return t.blank(text, at, true)
	}
	// A gap, up to its last character when that leads a word.
	last, end := at, at
	for end < len(text) {
		have, n := t.at(text, end)
		if have&isGap == 0 {
			if have&isWord != 0 {
				return last
			}
			break
		}
		last = end
		end += n
	}
	return end
}

func isASCIILetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
