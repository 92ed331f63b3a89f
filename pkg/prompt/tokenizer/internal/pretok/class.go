package pretok

import "unicode/utf8"

// class is a set of Unicode properties that patterns ask for.
type class uint16

// The classes in table.go. hack/unicode has the patterns they stand for.
const (
	upper    class = 1 << iota // Lu, Lt
	lower                      // Ll
	caseless                   // Lm, Lo
	mark                       // M
	number                     // N
	punct                      // P
	symbol                     // S
	space                      // White_Space
	newline                    // CR, LF
	han                        // script Han
	cjk                        // the range that DeepSeek cuts out: ideographs and kana
	digit                      // what Digits cuts out: N of a newer Unicode

	letter = upper | lower | caseless
)

// kindOf returns the kind of a code point, below len(kindClasses).
func kindOf(r rune) uint8 {
	if uint32(r) > utf8.MaxRune {
		return 0
	}
	return kindBlocks[int(kindIndex[r>>8])<<8|int(r&0xff)] & 31
}

// trait is a set of roles that a character can have for one scanner.
type trait uint16

const (
	isWord   trait = 1 << iota // part of a word; with letter case, what may follow its capitals
	isUpper                    // what may begin a word with letter case
	isLead                     // may stand before a word, once
	isOther                    // part of a run of punctuation
	isTail                     // may follow such a run
	isNumber                   // digits and the like
	isSpace                    // White_Space
	isEnd                      // CR, LF
	isAlone                    // runs of these are pieces, before all else
	isGap                      // nothing matches it alone
	isStop                     // as good as the end of the text
)

// traits tells the roles of every character for one scanner.
type traits struct {
	ascii [utf8.RuneSelf]trait
	kinds [32]trait // by kind, for all characters after ASCII
}

// newTraits returns the table for a scanner: of gives the roles of a class.
func newTraits(of func(class) trait) traits {
	var t traits
	for kind, c := range kindClasses {
		t.kinds[kind] = of(c)
	}
	for r := range t.ascii {
		t.ascii[r] = t.kinds[kindOf(rune(r))]
	}
	return t
}

// withTail makes ASCII characters what may follow punctuation.
func (t traits) withTail(chars string) traits {
	for i := range len(chars) {
		t.ascii[chars[i]] |= isTail
	}
	return t
}

// at returns the roles of the character at a position, and its length in bytes.
func (t *traits) at(text string, at int) (trait, int) {
	if c := text[at]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	return t.wide(text, at)
}

// wide is at for a character that is not ASCII. Broken UTF-8 is as
// good as a code point that means nothing.
func (t *traits) wide(text string, at int) (trait, int) {
	s := text[at:]
	switch c := s[0]; {
	case c < 0xe0 && len(s) > 1:
		return t.kinds[kindOf(rune(c&0x1f)<<6|rune(s[1]&0x3f))], 2
	case c < 0xf0 && len(s) > 2:
		return t.kinds[kindOf(rune(c&0xf)<<12|rune(s[1]&0x3f)<<6|rune(s[2]&0x3f))], 3
	case len(s) > 3:
		return t.kinds[kindOf(rune(c&7)<<18|rune(s[1]&0x3f)<<12|rune(s[2]&0x3f)<<6|rune(s[3]&0x3f))], 4
	}
	return t.kinds[0], 1
}

// run returns the end of the run of characters, from at on, that have one of
// the roles.
func (t *traits) run(text string, at int, roles trait) int {
	for at < len(text) {
		if c := text[at]; c < utf8.RuneSelf {
			if t.ascii[c]&roles == 0 {
				return at
			}
			at++
			continue
		}
		have, n := t.wide(text, at)
		if have&roles == 0 {
			return at
		}
		at += n
	}
	return at
}

// runUpTo is run for at most limit characters. No limit is 0.
func (t *traits) runUpTo(text string, at int, roles trait, limit int) int {
	if limit == 0 {
		return t.run(text, at, roles)
	}
	for ; at < len(text) && limit > 0; limit-- {
		have, n := t.at(text, at)
		if have&roles == 0 {
			break
		}
		at += n
	}
	return at
}

// has reports whether the character at a position, if there is one, has one of
// the roles.
func (t *traits) has(text string, at int, roles trait) bool {
	if at >= len(text) {
		return false
	}
	have, _ := t.at(text, at)
	return have&roles != 0
}

// blank returns the end of the piece at a whitespace character that nothing
// else has matched: \s*[\r\n]+ where lineEnds is set, then \s+(?!\S), then \s+.
func (t *traits) blank(text string, at int, lineEnds bool) int {
	end, last, line := at, at, 0
	for end < len(text) {
		have, n := t.at(text, end)
		if have&isSpace == 0 {
			if have&isStop != 0 {
				break
			}
			// The last one goes with what follows, unless it is the only one.
			if lineEnds && line > 0 {
				return line
			}
			if last > at {
				return last
			}
			return end
		}
		last = end
		end += n
		if have&isEnd != 0 {
			line = end
		}
	}
	if lineEnds && line > 0 {
		return line
	}
	return end
}

// other returns the end of the match of " ?[other]+[tail]*" at a position, or 0
// when there is none.
func (t *traits) other(text string, at int) int {
	if text[at] == ' ' {
		at++
	}
	end := t.run(text, at, isOther)
	if end == at {
		return 0
	}
	return t.run(text, end, isTail)
}
