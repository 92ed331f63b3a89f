package jsonscan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendText appends the decoded text of a string that [Scanner.Str] accepted. Half a
// surrogate pair becomes U+FFFD. Bytes that are no UTF-8 stay as they are:
// engines differ on them, and it is not for a router to judge.
func AppendText(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			n := bytes.IndexByte(text[i:], '\\')
			if n < 0 {
				return append(dst, text[i:]...)
			}
			dst = append(dst, text[i:i+n]...)
			i += n
		}
		switch c := text[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hexRune(text[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if i+6 <= len(text) && text[i] == '\\' && text[i+1] == 'u' {
					low = hexRune(text[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		default: // a quote, a slash, a backslash
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

func hexRune(text []byte) rune {
	var r rune
	for _, c := range text[:4] {
		r = r<<4 | rune(hexValue(c))
	}
	return r
}
