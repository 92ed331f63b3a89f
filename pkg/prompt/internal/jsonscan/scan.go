// Package jsonscan walks over JSON text, one token at a time, without building
// anything: the base of the body scan and of the decoder of chats.
package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// MaxDepth is how deep a body may nest, the body's own object included.
const MaxDepth = 512

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// Scanner walks over JSON text. Its methods take the position at a token and
// leave it after the token.
type Scanner struct {
	Data []byte
	Pos  int
	// Log, when set, collects the long strings that are read.
	Log *[]Span
	// Text, when set beside Log, collects the decoded text of those of them that
	// have escapes.
	Text *[]byte
	// Known are long strings of Data in their order, as Log collected them: they
	// are not read again.
	Known []Span
}

// longString is the length from which on a string is collected in Log.
const longString = 64

// Error says where and why text is not JSON (RFC 8259), or nests deeper than
// [MaxDepth]. It never quotes the text.
type Error struct {
	// Offset is the byte at fault.
	Offset int
	// Msg is the reason in words.
	Msg string
}

// Span is a string in the text, without its quotes.
type Span struct {
	Start, End int
	// Escaped says that the text must be decoded, not merely copied.
	Escaped bool
	// TextStart and TextEnd frame the decoded text in what [Scanner.Text] has
	// collected. They are equal where it is not there.
	TextStart, TextEnd int
}

// Syntax returns the error at a byte. Past the end it says that the text is cut.
func (s *Scanner) Syntax(offset int, msg string) *Error {
	if offset >= len(s.Data) {
		offset, msg = len(s.Data), "invalid JSON: the body ends too early"
	}
	return &Error{Offset: offset, Msg: msg}
}

// Peek skips white space and returns the byte it stops at, 0 at the end. No
// token starts with a zero byte, so the two cannot be mixed up.
func (s *Scanner) Peek() byte {
	for s.Pos < len(s.Data) {
		c := s.Data[s.Pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
			return c
		}
		s.Pos++
	}
	return 0
}

// Str reads a string at its opening quote.
func (s *Scanner) Str() (Span, *Error) {
	if len(s.Known) > 0 {
		if known, ok := s.recall(); ok {
			return known, nil
		}
	}
	if s.Text != nil {
		return s.strText()
	}
	out := Span{Start: s.Pos + 1}
	data, i := s.Data, s.Pos+1
	for {
		i = plainEnd(data, i)
		if i >= len(data) {
			return Span{}, s.Syntax(i, "")
		}
		switch data[i] {
		case '"':
			out.End = i
			s.Pos = i + 1
			if s.Log != nil && i-out.Start >= longString {
				*s.Log = append(*s.Log, out)
			}
			return out, nil
		case '\\':
			out.Escaped = true
			if i+1 < len(data) && simpleEscapes[data[i+1]] != 0 {
				i += 2
				continue
			}
			n, bad := escapeLen(data[i:])
			if bad {
				return Span{}, s.Syntax(i+n, "invalid JSON: unknown escape in a string")
			}
			i += n
		default:
			return Span{}, s.Syntax(i, "invalid JSON: control character in a string")
		}
	}
}

// recall returns the string at an opening quote when it is a known one.
func (s *Scanner) recall() (Span, bool) {
	for len(s.Known) > 0 && s.Known[0].Start <= s.Pos {
		s.Known = s.Known[1:]
	}
	if len(s.Known) == 0 || s.Known[0].Start != s.Pos+1 {
		return Span{}, false
	}
	known := s.Known[0]
	if known.End >= len(s.Data) || s.Data[known.End] != '"' {
		return Span{}, false // of another text
	}
	s.Pos = known.End + 1
	return known, true
}

// plainEnd returns the index of the first byte from i on that a string cannot
// hold as it is. It looks at eight bytes at a time.
func plainEnd(data []byte, i int) int {
	for ; i+word <= len(data); i += word {
		if hit := odd(binary.LittleEndian.Uint64(data[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// odd has the top bit of each byte of x set that is a quote, a backslash or a
// control character. In each test, a borrow can only spoil bytes above the first
// hit: only the lowest is to be relied on.
func odd(x uint64) uint64 {
	quote := x ^ ('"' * ones)
	slash := x ^ ('\\' * ones)
	return ((x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// escapeLen returns the length of the escape that text starts with. When the
// escape is bad, it returns the index of the byte that makes it so.
func escapeLen(text []byte) (n int, bad bool) {
	if len(text) < 2 {
		return len(text), true
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, false
	case 'u':
		for i := 2; i < 6; i++ {
			if i >= len(text) || hexValue(text[i]) < 0 {
				return i, true
			}
		}
		return 6, false
	default:
		return 1, true
	}
}

// Number reads a number at its first byte.
func (s *Scanner) Number() *Error {
	const msg = "invalid JSON: malformed number"
	data, i := s.Data, s.Pos
	if data[i] == '-' {
		i++
	}
	switch {
	case i < len(data) && data[i] == '0':
		i++
	case i < len(data) && IsDigit(data[i]):
		i = digitsEnd(data, i)
	default:
		return s.Syntax(i, msg)
	}
	if i < len(data) && data[i] == '.' {
		end := digitsEnd(data, i+1)
		if end == i+1 {
			return s.Syntax(end, msg)
		}
		i = end
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		end := digitsEnd(data, i)
		if end == i {
			return s.Syntax(end, msg)
		}
		i = end
	}
	s.Pos = i
	return nil
}

// Literal reads true, false or null at its first byte.
func (s *Scanner) Literal(word string) *Error {
	for i := range len(word) {
		if s.Pos+i >= len(s.Data) || s.Data[s.Pos+i] != word[i] {
			return s.Syntax(s.Pos+i, "invalid JSON: unknown word")
		}
	}
	s.Pos += len(word)
	return nil
}

// Scalar reads a value that is no container at its first byte c.
func (s *Scanner) Scalar(c byte) *Error {
	switch {
	case c == '"':
		_, err := s.Str()
		return err
	case c == 't':
		return s.Literal("true")
	case c == 'f':
		return s.Literal("false")
	case c == 'n':
		return s.Literal("null")
	case c == '-' || IsDigit(c):
		return s.Number()
	default:
		return s.Syntax(s.Pos, "invalid JSON: a value is missing")
	}
}

// Key reads a key and its colon, from anywhere before the key.
func (s *Scanner) Key() (Span, *Error) {
	if s.Peek() != '"' {
		return Span{}, s.Syntax(s.Pos, "invalid JSON: a key is missing")
	}
	name, err := s.Str()
	if err != nil {
		return Span{}, err
	}
	if s.Peek() != ':' {
		return Span{}, s.Syntax(s.Pos, "invalid JSON: a colon is missing")
	}
	s.Pos++
	return name, nil
}

// Next reads what follows an element: a comma, or the closing byte. It reports
// whether another element follows.
func (s *Scanner) Next(closing byte) (bool, *Error) {
	switch s.Peek() {
	case ',':
		s.Pos++
		return true, nil
	case closing:
		s.Pos++
		return false, nil
	default:
		return false, s.Syntax(s.Pos, "invalid JSON: a comma or a closing bracket is missing")
	}
}

// Enter reads the opening byte of a container that lies inside depth others,
// and the closing one when it is empty.
func (s *Scanner) Enter(depth int, closing byte) (empty bool, err *Error) {
	if depth >= MaxDepth {
		return false, s.Syntax(s.Pos, "invalid JSON: nested too deep")
	}
	s.Pos++
	if s.Peek() == closing {
		s.Pos++
		return true, nil
	}
	return false, nil
}

// Skip reads any value inside depth containers. It keeps one bit per container
// that it is in, so no depth costs more stack than another.
func (s *Scanner) Skip(depth int) *Error {
	var objects [MaxDepth / 64]uint64
	open := 0
	for {
		c := s.Peek()
		if c == '{' || c == '[' {
			empty, err := s.Enter(depth+open, c+2) // '{'+2 is '}', '['+2 is ']'
			if err != nil {
				return err
			}
			if !empty {
				word, bit := &objects[open/64], uint64(1)<<(open%64)
				*word &^= bit
				open++
				if c == '{' {
					*word |= bit
					if _, err := s.Key(); err != nil {
						return err
					}
				}
				continue
			}
		} else if err := s.Scalar(c); err != nil {
			return err
		}
		for more := false; !more; {
			if open == 0 {
				return nil
			}
			object := objects[(open-1)/64]>>((open-1)%64)&1 != 0
			closing := byte(']')
			if object {
				closing = '}'
			}
			var err *Error
			if more, err = s.Next(closing); err != nil {
				return err
			}
			if !more {
				open--
			} else if object {
				if _, err := s.Key(); err != nil {
					return err
				}
			}
		}
	}
}

// IsDigit reports whether c is one of 0 to 9.
func IsDigit(c byte) bool { return c-'0' <= 9 }

func digitsEnd(data []byte, i int) int {
	for i < len(data) && IsDigit(data[i]) {
		i++
	}
	return i
}

func hexValue(c byte) int {
	switch {
	case IsDigit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return -1
	}
}
