package skeleton

import "strings"

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokName
	tokNumber
	tokString
	tokOp
)

// token is one token of an expression. text is how it is written.
type token struct {
	kind tokenKind
	text string
}

// value is the text of a string literal, as the library reads it.
func (t token) value() string {
	in := t.text[1 : len(t.text)-1]
	if !strings.Contains(in, `\`) {
		return in
	}
	var b strings.Builder
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' || i+1 == len(in) {
			b.WriteByte(in[i])
			continue
		}
		i++
		switch in[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '\\', '\'', '"':
			b.WriteByte(in[i])
		default:
			b.WriteByte('\\')
			b.WriteByte(in[i])
		}
	}
	return b.String()
}

// lex cuts an expression into tokens. ok is false when it holds anything unknown.
func lex(s string) (tokens []token, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if s == "" {
			return append(tokens, token{}), true
		}
		kind, n := next(s)
		if n == 0 {
			return nil, false
		}
		tokens = append(tokens, token{kind, s[:n]})
		s = s[n:]
	}
}

// next returns the kind and the length of the token that s begins with; 0 when
// there is none.
func next(s string) (tokenKind, int) {
	switch c := s[0]; {
	case c == '\'' || c == '"':
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case c:
				return tokString, i + 1
			}
		}
		return tokString, 0
	case isDigit(c):
		i := 1
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		if i+1 < len(s) && s[i] == '.' && isDigit(s[i+1]) {
			for i++; i < len(s) && isDigit(s[i]); {
				i++
			}
		}
		if i < len(s) && isName(s[i]) {
			return tokNumber, 0 // an exponent, or worse
		}
		return tokNumber, i
	case isName(c):
		i := 1
		for i < len(s) && isName(s[i]) {
			i++
		}
		return tokName, i
	case len(s) > 1 && strings.Contains("** // == != <= >=", s[:2]) && s[1] != ' ' && c != ' ':
		return tokOp, 2
	case strings.IndexByte(",.:()[]{}|~+-*/%<>=", c) >= 0:
		return tokOp, 1
	default:
		return tokEnd, 0
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c)
}
