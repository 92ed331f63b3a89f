package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// chunks are the limits at which some tokenizer classes cut text before they
// encode it, in characters; 0 is none. No word crosses a cut.
type chunks struct{ text, run int }

func (c chunks) none() bool { return c.text == 0 && c.run == 0 }

// next returns the end of the chunk that starts at the start of text. left is
// how many characters there are before the next cut by length; it returns the
// rest of them.
func (c chunks) next(text string, left int) (end, rest int) {
	run, space := 0, false
	for i, r := range text {
		if c.text > 0 && left == 0 {
			return i, c.text
		}
		left--
		if now := isPythonSpace(r); i == 0 || now != space {
			run, space = 1, now
			continue
		}
		if run++; c.run > 0 && run > c.run {
			return i, left + 1
		}
	}
	return len(text), c.text
}

// isPythonSpace is str.isspace of Python: white space and the four separators of
// ASCII.
func isPythonSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || '\t' <= r && r <= '\r' || 0x1C <= r && r <= 0x1F
	}
	return unicode.IsSpace(r)
}

// chunked encodes a text chunk by chunk.
func (t *Tokenizer) chunked(dst []uint32, text string, s *scratch) []uint32 {
	left := t.chunks.text
	for text != "" {
		var end int
		end, left = t.chunks.next(text, left)
		dst = t.words(dst, text[:end], 0, false, s)
		text = text[end:]
	}
	return dst
}
