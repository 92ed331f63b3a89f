package jinja

import (
	"unicode/utf8"
)

// isSpace reports whether Python's str.isspace and the \s of its re hold for r.
func isSpace(r rune) bool {
	switch {
	case r <= ' ':
		return r == ' ' || r >= 9 && r <= 13 || r >= 0x1c && r <= 0x1f
	case r < 0x1680:
		return r == 0x85 || r == 0xa0
	default:
		return r == 0x1680 || r >= 0x2000 && r <= 0x200a || r == 0x2028 || r == 0x2029 ||
			r == 0x202f || r == 0x205f || r == 0x3000
	}
}

// spaceEnd returns the end of the white space at i.
func spaceEnd(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isSpace(r) {
			break
		}
		i += n
	}
	return i
}

// lstrip is Python's str.lstrip without an argument.
func lstrip(s string) string { return s[spaceEnd(s, 0):] }

// rstrip is Python's str.rstrip without an argument.
func rstrip(s string) string {
	for len(s) > 0 {
		r, n := utf8.DecodeLastRuneInString(s)
		if !isSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// Strip is Python's str.strip.
func Strip(s string) string { return lstrip(rstrip(s)) }

// LeftStrip is Python's str.lstrip.
func LeftStrip(s string) string { return lstrip(s) }

// RightStrip is Python's str.rstrip.
func RightStrip(s string) string { return rstrip(s) }
