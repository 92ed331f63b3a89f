package jinja

import "strings"

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// token is one token of a template. Its text is decoded for strings, and data is
// what remains after white space control.
type token struct {
	kind tokenKind
	text string
	line int
}

// lexer splits a template the way jinja2's lexer does with trim_blocks and
// lstrip_blocks.
type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStart says that the last tag ended with a line break, so that what
	// follows stands at the start of a line.
	lineStart bool
}

// lex returns the tokens of a template, with tokEOF at the end.
func lex(source string) ([]token, *Error) {
	if strings.Contains(source, "\r") {
		source = strings.ReplaceAll(source, "\r\n", "\n")
		source = strings.ReplaceAll(source, "\r", "\n")
	}
	source = strings.TrimSuffix(source, "\n")
	l := lexer{src: source, line: 1, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.add(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// advance moves to a position and counts the lines on the way.
func (l *lexer) advance(to int) {
	l.line += strings.Count(l.src[l.pos:to], "\n")
	l.pos = to
}

// next reads text up to the next tag, and the tag.
func (l *lexer) next() *Error {
	start := l.pos
	at := tagStart(l.src, start)
	if at < 0 {
		l.add(tokData, l.src[start:])
		l.pos = len(l.src)
		return nil
	}
	kind := l.src[at+1]
	sign, after := signAt(l.src, at+2)
	raw := false
	if kind == '%' {
		var end int
		if end, raw = rawBegin(l.src, after); raw {
			after = end
		}
	}
	l.data(l.src[start:at], sign, kind != '{')
	l.advance(after)
	switch {
	case raw:
		l.lineStart = l.src[after-1] == '\n'
		return l.raw()
	case kind == '#':
		return l.comment()
	case kind == '{':
		l.add(tokVarBegin, "")
		return l.tag('}', tokVarEnd)
	default:
		l.add(tokBlockBegin, "")
		return l.tag('%', tokBlockEnd)
	}
}

// tagStart returns the index of the next "{{", "{%" or "{#", -1 when there is
// none.
func tagStart(src string, from int) int {
	for {
		i := strings.IndexByte(src[from:], '{')
		if i < 0 || from+i+1 >= len(src) {
			return -1
		}
		from += i
		if c := src[from+1]; c == '{' || c == '%' || c == '#' {
			return from
		}
		from++
	}
}

// signAt returns the white space control at a position and what comes after it.
func signAt(src string, i int) (sign byte, after int) {
	if i < len(src) && (src[i] == '-' || src[i] == '+') {
		return src[i], i + 1
	}
	return 0, i
}

// rawBegin reports whether a raw tag is at i, behind its sign, and where it ends.
func rawBegin(src string, i int) (end int, ok bool) {
	i = spaceEnd(src, i)
	if !strings.HasPrefix(src[i:], "raw") {
		return 0, false
	}
	i = spaceEnd(src, i+len("raw"))
	switch {
	case strings.HasPrefix(src[i:], "-%}"):
		return spaceEnd(src, i+3), true
	case strings.HasPrefix(src[i:], "%}"):
		return i + 2, true
	}
	return 0, false
}

// data adds the text before a tag, as far as white space control leaves it.
func (l *lexer) data(text string, sign byte, block bool) {
	switch {
	case sign == '-':
		text = rstrip(text)
	case sign != '+' && block:
		start := strings.LastIndexByte(text, '\n') + 1
		if start > 0 || l.lineStart {
			if start < len(text) && lstrip(text[start:]) == "" {
				text = text[:start]
			}
		}
	}
	if text != "" {
		l.add(tokData, text)
	}
}

// raw reads the text of a raw block and its end.
func (l *lexer) raw() *Error {
	for at := l.pos; ; at++ {
		i := strings.Index(l.src[at:], "{%")
		if i < 0 {
			return unsupported(l.line, "a raw block has no end")
		}
		at += i
		sign, j := signAt(l.src, at+2)
		j = spaceEnd(l.src, j)
		if !strings.HasPrefix(l.src[j:], "endraw") {
			continue
		}
		end, ok := closing(l.src, spaceEnd(l.src, j+len("endraw")), '%')
		if !ok {
			continue
		}
		l.data(l.src[l.pos:at], sign, true)
		l.finish(end)
		return nil
	}
}

// comment skips a comment up to and including its end.
func (l *lexer) comment() *Error {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		return unsupported(l.line, "a comment has no end")
	}
	i += l.pos
	if i > l.pos && (l.src[i-1] == '-' || l.src[i-1] == '+') {
		i--
	}
	end, _ := closing(l.src, i, '#')
	l.finish(end)
	return nil
}

// finish moves to the end of a tag.
func (l *lexer) finish(end int) {
	l.lineStart = l.src[end-1] == '\n'
	l.advance(end)
}

// closing reads the end of a tag at i: "%}" or "#}", with its sign and the white
// space that it takes away. For "}}" there is no "+" and no line break.
func closing(src string, i int, c byte) (end int, ok bool) {
	sign, j := signAt(src, i)
	if j+1 >= len(src) || src[j] != c || src[j+1] != '}' || sign == '+' && c == '}' {
		return 0, false
	}
	j += 2
	switch {
	case sign == '-':
		j = spaceEnd(src, j)
	case sign == 0 && c != '}' && j < len(src) && src[j] == '\n':
		j++
	}
	return j, true
}

// tag reads the tokens of a tag up to its end.
func (l *lexer) tag(c byte, end tokenKind) *Error {
	var open []byte
	for {
		l.advance(spaceEnd(l.src, l.pos))
		if l.pos >= len(l.src) {
			return unsupported(l.line, "a tag has no end")
		}
		if len(open) == 0 {
			if to, ok := closing(l.src, l.pos, c); ok {
				l.add(end, "")
				l.finish(to)
				return nil
			}
		}
		to, err := l.token()
		if err != nil {
			return err
		}
		if last := l.tokens[len(l.tokens)-1]; last.kind == tokOp {
			if open, err = balance(open, last); err != nil {
				return err
			}
		}
		l.advance(to)
	}
}

// balance keeps count of brackets: the end of a tag only counts outside them.
func balance(open []byte, t token) ([]byte, *Error) {
	switch t.text {
	case "(":
		return append(open, ')'), nil
	case "[":
		return append(open, ']'), nil
	case "{":
		return append(open, '}'), nil
	case ")", "]", "}":
		if len(open) == 0 || open[len(open)-1] != t.text[0] {
			return open, unsupported(t.line, "brackets do not match")
		}
		return open[:len(open)-1], nil
	}
	return open, nil
}
