package prompt

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

// scanner walks over JSON text. Its methods take the position at a token and
// leave it after the token.
type scanner struct {
	data []byte
	pos  int
}

// span is a string in the text, without its quotes.
type span struct {
	start, end int
	// escaped says that the text must be decoded, not merely copied.
	escaped bool
}

func (s *scanner) syntax(offset int, msg string) *Error {
	if offset >= len(s.data) {
		offset, msg = len(s.data), "invalid JSON: the body ends too early"
	}
	return &Error{Code: CodeInvalidJSON, Offset: offset, Msg: msg}
}

// peek skips white space and returns the byte it stops at, 0 at the end. No
// token starts with a zero byte, so the two cannot be mixed up.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
			return c
		}
		s.pos++
	}
	return 0
}

// str reads a string at its opening quote.
func (s *scanner) str() (span, *Error) {
	out := span{start: s.pos + 1}
	i := s.pos + 1
	for {
		i = plainEnd(s.data, i)
		if i >= len(s.data) {
			return span{}, s.syntax(i, "")
		}
		switch s.data[i] {
		case '"':
			out.end = i
			s.pos = i + 1
			return out, nil
		case '\\':
			out.escaped = true
			n, bad := escapeLen(s.data[i:])
			if bad {
				return span{}, s.syntax(i+n, "invalid JSON: unknown escape in a string")
			}
			i += n
		default:
			return span{}, s.syntax(i, "invalid JSON: control character in a string")
		}
	}
}

// plainEnd returns the index of the first byte from i on that a string cannot
// hold as it is: a quote, a backslash, a control character. It looks at eight
// bytes at a time. In each test, a borrow can only spoil bytes above the first
// hit, and only the first hit is used.
func plainEnd(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		x := binary.LittleEndian.Uint64(data[i:])
		quote := x ^ ('"' * ones)
		slash := x ^ ('\\' * ones)
		hit := (x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash
		if hit &= highs; hit != 0 {
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

// number reads a number at its first byte.
func (s *scanner) number() *Error {
	const msg = "invalid JSON: malformed number"
	data, i := s.data, s.pos
	if data[i] == '-' {
		i++
	}
	switch {
	case i < len(data) && data[i] == '0':
		i++
	case i < len(data) && isDigit(data[i]):
		i = digitsEnd(data, i)
	default:
		return s.syntax(i, msg)
	}
	if i < len(data) && data[i] == '.' {
		end := digitsEnd(data, i+1)
		if end == i+1 {
			return s.syntax(end, msg)
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
			return s.syntax(end, msg)
		}
		i = end
	}
	s.pos = i
	return nil
}

// literal reads true, false or null at its first byte.
func (s *scanner) literal(word string) *Error {
	for i := range len(word) {
		if s.pos+i >= len(s.data) || s.data[s.pos+i] != word[i] {
			return s.syntax(s.pos+i, "invalid JSON: unknown word")
		}
	}
	s.pos += len(word)
	return nil
}

// scalar reads a value that is no container at its first byte c.
func (s *scanner) scalar(c byte) *Error {
	switch {
	case c == '"':
		_, err := s.str()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || isDigit(c):
		return s.number()
	default:
		return s.syntax(s.pos, "invalid JSON: a value is missing")
	}
}

// key reads a key and its colon, from anywhere before the key.
func (s *scanner) key() (span, *Error) {
	if s.peek() != '"' {
		return span{}, s.syntax(s.pos, "invalid JSON: a key is missing")
	}
	name, err := s.str()
	if err != nil {
		return span{}, err
	}
	if s.peek() != ':' {
		return span{}, s.syntax(s.pos, "invalid JSON: a colon is missing")
	}
	s.pos++
	return name, nil
}

// next reads what follows an element: a comma, or the closing byte. It reports
// whether another element follows.
func (s *scanner) next(closing byte) (bool, *Error) {
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case closing:
		s.pos++
		return false, nil
	default:
		return false, s.syntax(s.pos, "invalid JSON: a comma or a closing bracket is missing")
	}
}

// enter reads the opening byte of a container that lies inside depth others,
// and the closing one when it is empty.
func (s *scanner) enter(depth int, closing byte) (empty bool, err *Error) {
	if depth >= MaxDepth {
		return false, s.syntax(s.pos, "invalid JSON: nested too deep")
	}
	s.pos++
	if s.peek() == closing {
		s.pos++
		return true, nil
	}
	return false, nil
}

// skip reads any value inside depth containers. It keeps one bit per container
// that it is in, so no depth costs more stack than another.
func (s *scanner) skip(depth int) *Error {
	var objects [MaxDepth / 64]uint64
	open := 0
	for {
		c := s.peek()
		if c == '{' || c == '[' {
			empty, err := s.enter(depth+open, c+2) // '{'+2 is '}', '['+2 is ']'
			if err != nil {
				return err
			}
			if !empty {
				word, bit := &objects[open/64], uint64(1)<<(open%64)
				*word &^= bit
				open++
				if c == '{' {
					*word |= bit
					if _, err := s.key(); err != nil {
						return err
					}
				}
				continue
			}
		} else if err := s.scalar(c); err != nil {
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
			if more, err = s.next(closing); err != nil {
				return err
			}
			if !more {
				open--
			} else if object {
				if _, err := s.key(); err != nil {
					return err
				}
			}
		}
	}
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func digitsEnd(data []byte, i int) int {
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	return i
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return -1
	}
}
