package jsonscan

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// simpleEscapes are the escapes of one letter, by that letter, with what they
// stand for.
var simpleEscapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// AppendText appends the decoded text of a string that [Scanner.Str] accepted. Half a
// surrogate pair becomes U+FFFD. Bytes that are no UTF-8 stay as they are:
// engines differ on them, and it is not for a router to judge.
//
// Eight bytes at a time are copied, then looked at: decoded text is never longer
// than its source, so what was copied too much is written over.
func AppendText(dst, text []byte) []byte {
	const word = 8
	start := len(dst)
	dst = slices.Grow(dst, len(text)+word)
	room := dst[start:cap(dst)]
	n := 0 // bytes of room that are done
	for i := 0; i < len(text); {
		if i+word <= len(text) {
			x := binary.LittleEndian.Uint64(text[i:])
			binary.LittleEndian.PutUint64(room[n:], x)
			slash := x ^ ('\\' * ones)
			hit := (slash - ones) &^ slash & highs
			if hit == 0 {
				i, n = i+word, n+word
				continue
			}
			plain := bits.TrailingZeros64(hit) >> 3
			i, n = i+plain, n+plain
		} else if text[i] != '\\' {
			room[n] = text[i]
			i, n = i+1, n+1
			continue
		}
		if c := simpleEscapes[text[i+1]]; c != 0 {
			room[n] = c
			i, n = i+2, n+1
			continue
		}
		r, size := escapedRune(text[i:])
		n += utf8.EncodeRune(room[n:], r)
		i += size
	}
	return dst[:start+n]
}

// escapedRune decodes the \u escape that text starts with, both halves where it
// is a surrogate pair, and returns how many bytes it has.
func escapedRune(text []byte) (r rune, size int) {
	const half = len(`\u0000`)
	r = hexRune(text[2:])
	if !utf16.IsSurrogate(r) {
		return r, half
	}
	low := rune(utf8.RuneError)
	if 2*half <= len(text) && text[half] == '\\' && text[half+1] == 'u' {
		low = hexRune(text[half+2:])
	}
	if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
		return r, 2 * half
	}
	return r, half
}

func hexRune(text []byte) rune {
	var r rune
	for _, c := range text[:4] {
		r = r<<4 | rune(hexValue(c))
	}
	return r
}
