package jinja

import (
	"math"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// text is Python's str(v).
func (m *machine) text(v Value) (string, *Error) {
	switch v.kind {
	case KindString, KindBig:
		return v.str(), nil
	case KindUndefined:
		return "", nil
	case KindNone:
		return "None", nil
	case KindBool:
		if v.truthy() {
			return "True", nil
		}
		return "False", nil
	case KindInt:
		return strconv.FormatInt(v.int(), 10), nil
	default:
	}
	buf, err := m.appendRepr(nil, v, maxNesting)
	if err == nil {
		err = m.charge(len(buf))
	}
	return string(buf), err
}

// appendRepr appends Python's repr(v).
func (m *machine) appendRepr(dst []byte, v Value, depth int) ([]byte, *Error) {
	if err := m.step(); err != nil {
		return dst, err
	}
	if depth == 0 {
		return dst, tooDeep()
	}
	switch v.kind {
	case KindUndefined:
		return append(dst, "Undefined"...), nil
	case KindFloat:
		return appendFloat(dst, v.float(), "inf", "nan"), nil
	case KindString:
		if v.markup {
			return dst, refused("text marked as safe inside a list or a dict")
		}
		return m.appendQuoted(dst, v.str())
	case KindList:
		return m.appendReprList(dst, v.list(), depth)
	case KindDict:
		return m.appendReprDict(dst, v.dict(), depth)
	case KindNamespace, KindFunc, KindLoop:
		return dst, refused("a namespace or a function is printed")
	default:
	}
	s, err := m.text(v)
	return append(dst, s...), err
}

func (m *machine) appendReprList(dst []byte, l *List, depth int) ([]byte, *Error) {
	begin, end := "[", "]"
	switch l.shape {
	case shapeTuple:
		begin, end = "(", ")"
		if len(l.Items) == 1 {
			end = ",)"
		}
	case shapeView, shapeRange, shapeIter:
		return dst, refused("a generator, a range or the keys of a dict are printed")
	default:
	}
	dst = append(dst, begin...)
	for i, item := range l.Items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err *Error
		if dst, err = m.appendRepr(dst, item, depth-1); err != nil {
			return dst, err
		}
	}
	return append(dst, end...), nil
}

func (m *machine) appendReprDict(dst []byte, d *Dict, depth int) (_ []byte, err *Error) {
	dst = append(dst, '{')
	for i, e := range d.entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = m.appendRepr(dst, e.Key, depth-1); err != nil {
			return dst, err
		}
		dst = append(dst, ": "...)
		if dst, err = m.appendRepr(dst, e.Val, depth-1); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendQuoted appends Python's repr of a text.
func (m *machine) appendQuoted(dst []byte, s string) ([]byte, *Error) {
	if err := m.charge(len(s)); err != nil {
		return dst, err
	}
	quote := byte('\'')
	if single, double := hasByte(s, '\''), hasByte(s, '"'); single && !double {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\' || c == quote:
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < utf8.RuneSelf:
			if c < ' ' || c == 0x7f {
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			} else {
				dst = append(dst, c)
			}
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = appendPrintable(dst, r, s[i:i+n])
			i += n
			continue
		}
		i++
	}
	return append(dst, quote), nil
}

const hexDigits = "0123456789abcdef"

// appendPrintable appends a character beyond ASCII as repr shows it.
func appendPrintable(dst []byte, r rune, text string) []byte {
	if unicode.IsPrint(r) {
		return append(dst, text...)
	}
	digits := 8
	switch {
	case r < 0x100:
		dst, digits = append(dst, `\x`...), 2
	case r < 0x10000:
		dst, digits = append(dst, `\u`...), 4
	default:
		dst = append(dst, `\U`...)
	}
	for digits--; digits >= 0; digits-- {
		dst = append(dst, hexDigits[r>>(4*digits)&15])
	}
	return dst
}

func hasByte(s string, c byte) bool {
	for i := range len(s) {
		if s[i] == c {
			return true
		}
	}
	return false
}

// appendFloat appends Python's repr of a float, with the given names for what is
// not finite.
func appendFloat(dst []byte, f float64, inf, nan string) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, nan...)
	case math.IsInf(f, 0):
		if f < 0 {
			dst = append(dst, '-')
		}
		return append(dst, inf...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[start:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}
