package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// operators are all operators, the longer ones first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",",
}

// token adds the token of an expression at the position and returns its end.
func (l *lexer) token() (end int, err *Error) {
	c := l.src[l.pos]
	switch {
	case c >= '0' && c <= '9':
		return l.numberToken()
	case c == '\'' || c == '"':
		return l.stringToken(c)
	}
	if end := nameEnd(l.src, l.pos); end > l.pos {
		l.add(tokName, l.src[l.pos:end])
		return end, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.add(tokOp, op)
			return l.pos + len(op), nil
		}
	}
	return 0, unsupported(l.line, "an unexpected character in a tag")
}

func nameEnd(src string, i int) int {
	for start := i; i < len(src); {
		r, n := utf8.DecodeRuneInString(src[i:])
		if r != '_' && !unicode.IsLetter(r) && (i == start || !unicode.IsDigit(r)) {
			return i
		}
		i += n
	}
	return i
}

// numberToken reads an integer or a float. A point without digits behind it is
// left for the next token.
func (l *lexer) numberToken() (int, *Error) {
	src, i := l.src, l.pos
	if src[i] == '0' && i+1 < len(src) && strings.IndexByte("xXbBoO", src[i+1]) >= 0 {
		return 0, unsupported(l.line, "a number that is not decimal")
	}
	i = digitRun(src, i)
	kind := tokInt
	if l.previous(".") { // x.0.1: a float cannot start behind a point
		l.add(tokInt, strings.ReplaceAll(src[l.pos:i], "_", ""))
		return i, nil
	}
	if i+1 < len(src) && src[i] == '.' && isDigit(src[i+1]) {
		kind, i = tokFloat, digitRun(src, i+1)
	}
	if j := i; j < len(src) && src[j]|0x20 == 'e' {
		if j++; j < len(src) && (src[j] == '+' || src[j] == '-') {
			j++
		}
		if j < len(src) && isDigit(src[j]) {
			kind, i = tokFloat, digitRun(src, j)
		}
	}
	text := strings.ReplaceAll(src[l.pos:i], "_", "")
	if kind == tokInt && len(text) > 1 && strings.Trim(text, "0") != "" && text[0] == '0' {
		return 0, unsupported(l.line, "a number with a leading zero")
	}
	l.add(kind, text)
	return i, nil
}

func (l *lexer) previous(op string) bool {
	last := l.tokens[len(l.tokens)-1]
	return last.kind == tokOp && last.text == op
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// digitRun returns the end of digits that may have single underscores between
// them.
func digitRun(src string, i int) int {
	for i < len(src) && (isDigit(src[i]) || src[i] == '_' && i+1 < len(src) && isDigit(src[i+1])) {
		i++
	}
	return i
}

// stringToken reads a string in quotes of the given kind.
func (l *lexer) stringToken(quote byte) (int, *Error) {
	i := l.pos + 1
	plain := true
	for i < len(l.src) && l.src[i] != quote {
		if l.src[i] == '\\' {
			plain = false
			i++
		}
		i++
	}
	if i >= len(l.src) {
		return 0, unsupported(l.line, "a string has no end")
	}
	text := l.src[l.pos+1 : i]
	if !plain {
		var ok bool
		if text, ok = unescape(text); !ok {
			return 0, unsupported(l.line, "an unknown escape in a string")
		}
	}
	l.add(tokString, text)
	return i + 1, nil
}

// escapes are Python's escapes of one character.
var escapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f",
	'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape decodes a string as Python's unicode-escape does.
func unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1] // the lexer has seen it
		i += 2
		if text, ok := escapes[c]; ok {
			b.WriteString(text)
			continue
		}
		var digits int
		base := 16
		switch {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c >= '0' && c <= '7':
			i--
			for base = 8; digits < 3 && i+digits < len(s) && s[i+digits]-'0' < 8; digits++ {
			}
		case c == 'N':
			return "", false
		default: // Python keeps the backslash
			b.WriteByte('\\')
			i--
			_, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		if i+digits > len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i:i+digits], base, 32)
		if err != nil || !utf8.ValidRune(rune(n)) {
			return "", false
		}
		b.WriteRune(rune(n))
		i += digits
	}
	return b.String(), true
}
