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

// strText is Str that decodes while it reads: eight bytes at a time are copied, then
// looked at. Text is never longer than its source, so what was copied too much is
// written over.
func (s *Scanner) strText() (Span, *Error) {
	out := Span{Start: s.Pos + 1}
	data, i := s.Data, s.Pos+1
	start := len(*s.Text)
	*s.Text = slices.Grow(*s.Text, len(data)-i+word)
	room := (*s.Text)[start:cap(*s.Text)]
	n := 0 // bytes of room that are done
	for i < len(data) {
		if i+word <= len(data) {
			x := binary.LittleEndian.Uint64(data[i:])
			binary.LittleEndian.PutUint64(room[n:], x)
			hit := odd(x)
			if hit == 0 {
				i, n = i+word, n+word
				continue
			}
			plain := bits.TrailingZeros64(hit) >> 3
			i, n = i+plain, n+plain
		}
		switch c := data[i]; {
		case c == '"':
			out.End = i
			s.Pos = i + 1
			s.collect(&out, start, n)
			return out, nil
		case c < ' ':
			return Span{}, s.Syntax(i, "invalid JSON: control character in a string")
		case c != '\\':
			room[n] = c
			i, n = i+1, n+1
		case i+1 < len(data) && simpleEscapes[data[i+1]] != 0:
			out.Escaped = true
			room[n] = simpleEscapes[data[i+1]]
			i, n = i+2, n+1
		default:
			out.Escaped = true
			size, err := s.unicodeEscape(i, room[n:])
			if err != nil {
				return Span{}, err
			}
			i, n = i+size.source, n+size.text
		}
	}
	return Span{}, s.Syntax(i, "")
}

// sizes are how many bytes an escape has, and what it stands for.
type sizes struct{ source, text int }

// unicodeEscape checks the escape at i, which is not one of a letter, and writes
// what it stands for to room.
func (s *Scanner) unicodeEscape(i int, room []byte) (sizes, *Error) {
	const msg = "invalid JSON: unknown escape in a string"
	n, bad := escapeLen(s.Data[i:])
	if bad {
		return sizes{}, s.Syntax(i+n, msg)
	}
	if next := s.Data[i+n:]; len(next) > 1 && next[0] == '\\' && next[1] == 'u' { // may be the other half
		if m, bad := escapeLen(next); bad {
			return sizes{}, s.Syntax(i+n+m, msg)
		}
	}
	r, source := escapedRune(s.Data[i:])
	return sizes{source, utf8.EncodeRune(room, r)}, nil
}

// collect notes a string of n decoded bytes, if it is a long one.
func (s *Scanner) collect(out *Span, start, n int) {
	long := out.End-out.Start >= longString
	if long && out.Escaped {
		out.TextStart, out.TextEnd = start, start+n
		*s.Text = (*s.Text)[:start+n]
	}
	if long && s.Log != nil {
		*s.Log = append(*s.Log, *out)
	}
}

// word is how many bytes are looked at together.
const word = 8

// Room is how much more room than the length of a text AppendText needs.
const Room = word

// AppendText appends the decoded text of a string that [Scanner.Str] accepted. Half a
// surrogate pair becomes U+FFFD. Bytes that are no UTF-8 stay as they are:
// engines differ on them, and it is not for a router to judge.
//
// Eight bytes at a time are copied, then looked at: decoded text is never longer
// than its source, so what was copied too much is written over.
func AppendText(dst, text []byte) []byte {
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
