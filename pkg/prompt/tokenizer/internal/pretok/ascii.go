package pretok

import "math/bits"

const (
	highBits = 0x8080808080808080
	lowBits  = highBits - highBits>>7
	ones     = highBits >> 7
)

// With asciiLetters, asciiWord takes letters; with asciiSmall, only small ones.
const (
	asciiLetters = ones << 5
	asciiSmall   = 0
)

// asciiWord returns the end of the run of ASCII letters from at on, or a place
// in it that is less than 8 bytes from the end of the text. It looks at 8 bytes
// at a time: words are short, and a branch for each letter is a wrong guess at
// the end of each.
func asciiWord(text string, at int, fold uint64) int {
	for at+8 <= len(text) {
		s := text[at : at+8]
		v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		// The high bit of each byte: is it a letter?
		low := (v | fold) & lowBits
		letters := (low + ones*(0x80-'a')) &^ (low + ones*(0x80-'z'-1)) &^ v & highBits
		if letters != highBits {
			return at + bits.TrailingZeros64(letters^highBits)/8
		}
		at += 8
	}
	return at
}

// word is run for words that all ASCII letters may be part of.
func (t *traits) word(text string, at int) int {
	return t.run(text, asciiWord(text, at, asciiLetters), isWord)
}
