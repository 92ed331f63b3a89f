package tokenizer

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNesting bounds how deep a file may nest. Real ones need eight levels.
const maxNesting = 64

// parser reads JSON from one file. The first error stays; after it every method
// returns zero values, so that callers check once at the end.
type parser struct {
	data []byte
	pos  int
	part string // what is being read, for errors
	err  *LoadError
}

// kinds of a value, by its first byte.
const (
	kindNone   = byte(0)
	kindObject = '{'
	kindList   = '['
	kindString = '"'
	kindNumber = '0'
	kindTrue   = 't'
	kindFalse  = 'f'
	kindNull   = 'n'
)

// fail records an error at a place.
func (p *parser) fail(offset int, format string, args ...any) {
	if p.err == nil {
		p.err = loadError(p.data, p.part, offset, format, args...)
	}
}

// unexpected records that the text makes no sense at the current place.
func (p *parser) unexpected(want string) {
	if p.pos >= len(p.data) {
		p.fail(len(p.data), "the file ends where %s should be", want)
		return
	}
	p.fail(p.pos, "invalid JSON: %s should be here", want)
}

// peek skips white space and returns the kind of the value or the punctuation
// that comes next.
func (p *parser) peek() byte {
	if p.err != nil {
		return kindNone
	}
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; c {
		case ' ', '\t', '\n', '\r':
			p.pos++
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			return kindNumber
		default:
			return c
		}
	}
	return kindNone
}

// take consumes one byte of punctuation.
func (p *parser) take(c byte) bool {
	if p.peek() != c || c == kindNone {
		if p.err == nil {
			p.unexpected(strconv.QuoteRune(rune(c)))
		}
		return false
	}
	p.pos++
	return true
}

// more starts or continues a container: it reports whether an element follows,
// and consumes the comma before it or the bracket at the end.
func (p *parser) more(first bool, end byte) bool {
	if p.peek() == end {
		p.pos++
		return false
	}
	if first {
		return p.err == nil
	}
	return p.take(',')
}

// token is the raw text of a string, without its quotes.
type token struct {
	raw     []byte
	escaped bool
}

// str consumes a string.
func (p *parser) str() token {
	if !p.take(kindString) {
		return token{}
	}
	start, escaped := p.pos, false
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			return token{p.data[start : p.pos-1], escaped}
		case c == '\\':
			escaped = true
			p.pos += 2
		case c < ' ':
			p.fail(p.pos, "invalid JSON: a control character in a string")
			return token{}
		default:
			p.pos++
		}
	}
	p.fail(len(p.data), "the file ends inside a string")
	return token{}
}

// appendText appends what a string that ends at the current place says.
func (p *parser) appendText(dst []byte, t token) []byte {
	if !t.escaped {
		return append(dst, t.raw...)
	}
	at := p.pos - 1 - len(t.raw)
	for i := 0; i < len(t.raw); i++ {
		if t.raw[i] != '\\' {
			dst = append(dst, t.raw[i])
			continue
		}
		i++
		switch c := t.raw[i]; c {
		case '"', '\\', '/':
			dst = append(dst, c)
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
			r, used := codePoint(t.raw[i+1:])
			if used == 0 {
				p.fail(at+i-1, "invalid JSON: no character has this escape")
				return dst
			}
			dst = utf8.AppendRune(dst, r)
			i += used
		default:
			p.fail(at+i-1, "invalid JSON: unknown escape")
			return dst
		}
	}
	return dst
}

// codePoint decodes the digits of a \u escape, and of the low surrogate that
// must follow a high one. It returns how many bytes it used, 0 for none good.
func codePoint(raw []byte) (r rune, used int) {
	r, ok := hex4(raw)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(raw) < 10 || raw[4] != '\\' || raw[5] != 'u' {
		return 0, 0
	}
	low, ok := hex4(raw[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 10
}

func hex4(raw []byte) (rune, bool) {
	if len(raw) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range raw[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number consumes a number and returns its text.
func (p *parser) number() []byte {
	if p.peek() != kindNumber {
		p.unexpected("a number")
		return nil
	}
	start := p.pos
	digits := func() int {
		from := p.pos
		for p.pos < len(p.data) && '0' <= p.data[p.pos] && p.data[p.pos] <= '9' {
			p.pos++
		}
		return p.pos - from
	}
	is := func(a, b byte) bool {
		return p.pos < len(p.data) && (p.data[p.pos] == a || p.data[p.pos] == b)
	}
	if is('-', '-') {
		p.pos++
	}
	zero := is('0', '0')
	n := digits()
	good := n == 1 || n > 1 && !zero
	if good && is('.', '.') {
		p.pos++
		good = digits() > 0
	}
	if good && is('e', 'E') {
		p.pos++
		if is('+', '-') {
			p.pos++
		}
		good = digits() > 0
	}
	if !good {
		p.unexpected("a number")
	}
	return p.data[start:p.pos]
}

// id consumes a number that is a token id.
func (p *parser) id() uint32 {
	p.peek()
	at := p.pos
	text := p.number()
	id, err := parseID(text)
	if err != nil && p.err == nil {
		p.fail(at, "a token id is not a whole number below 2^32")
	}
	return id
}

func parseID(text []byte) (uint32, error) {
	var id uint64
	if len(text) == 0 || len(text) > 10 {
		return 0, strconv.ErrRange
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, strconv.ErrSyntax
		}
		id = id*10 + uint64(c-'0')
	}
	if id >= 1<<32 {
		return 0, strconv.ErrRange
	}
	return uint32(id), nil
}

// word consumes true, false or null.
func (p *parser) word(want string) {
	if len(p.data)-p.pos < len(want) || string(p.data[p.pos:p.pos+len(want)]) != want {
		if len(p.data)-p.pos < len(want) {
			p.pos = len(p.data)
		}
		p.unexpected(want)
		return
	}
	p.pos += len(want)
}

// skip consumes a value of any kind.
func (p *parser) skip(depth int) {
	if depth > maxNesting {
		p.fail(p.pos, "nested deeper than %d levels", maxNesting)
		return
	}
	switch p.peek() {
	case kindObject:
		p.pos++
		for first := true; p.more(first, '}'); first = false {
			p.str()
			p.take(':')
			p.skip(depth + 1)
		}
	case kindList:
		p.pos++
		for first := true; p.more(first, ']'); first = false {
			p.skip(depth + 1)
		}
	case kindString:
		p.str()
	case kindNumber:
		p.number()
	case kindTrue:
		p.word("true")
	case kindFalse:
		p.word("false")
	case kindNull:
		p.word("null")
	default:
		p.unexpected("a value")
	}
}
