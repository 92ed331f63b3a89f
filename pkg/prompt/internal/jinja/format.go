package jinja

import (
	"strconv"
	"strings"
)

// format is text % values. It knows %s, %d of integers, %r and %%.
func (m *machine) format(a, b Value) (Value, *Error) {
	if a.markup {
		return Undefined, refused("formatting of text marked as safe")
	}
	vals := []Value{b}
	// Python only counts the values of a tuple, and of what has no items.
	counted := b.kind != KindDict && b.kind != KindUndefined
	if l := b.List(); l != nil {
		switch l.shape {
		case shapeTuple:
			vals = l.Items
		case shapeList, shapeRange:
			counted = false
		default:
		}
	}
	s, start := a.str(), len(m.out)
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		if i+1 == len(s) {
			return Undefined, raised("a format without its end")
		}
		if err := m.write(s[:i]); err != nil {
			return Undefined, err
		}
		verb := s[i+1]
		s = s[i+2:]
		if verb == '%' {
			if err := m.write("%"); err != nil {
				return Undefined, err
			}
			continue
		}
		if len(vals) == 0 {
			return Undefined, raised("a format with too few values")
		}
		if err := m.verb(verb, vals[0]); err != nil {
			return Undefined, err
		}
		vals = vals[1:]
	}
	if counted && len(vals) > 0 {
		return Undefined, raised("a format with too many values")
	}
	if err := m.write(s); err != nil {
		return Undefined, err
	}
	return m.capture(start)
}

// verb writes one value.
func (m *machine) verb(verb byte, v Value) *Error {
	switch {
	case verb == 's':
		return m.print(v)
	case verb == 'r':
		buf, err := m.appendRepr(nil, v, maxNesting)
		if err != nil {
			return err
		}
		return m.write(string(buf))
	case verb == 'd' && v.intLike():
		return m.write(strconv.FormatInt(v.int(), 10))
	}
	return refused("a format other than %s, %d and %r")
}

// textFormat is text.format(values), for places without a format.
func textFormat(m *machine, self Value, a *args) (Value, *Error) {
	s, start, auto := self.str(), len(m.out), 0
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			i = len(s)
		}
		if err := m.write(s[:i]); err != nil {
			return Undefined, err
		}
		if s = s[i:]; s == "" {
			break
		}
		if strings.HasPrefix(s, "{{") || strings.HasPrefix(s, "}}") {
			if err := m.write(s[:1]); err != nil {
				return Undefined, err
			}
			s = s[2:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 0 {
			return Undefined, raised("a single bracket in a format")
		}
		v, err := place(s[1:end], a, &auto)
		if err == nil {
			err = m.print(v)
		}
		if err != nil {
			return Undefined, err
		}
		s = s[end+1:]
	}
	return m.capture(start)
}

// place returns the value for a place in a format.
func place(name string, a *args, auto *int) (Value, *Error) {
	i := *auto
	switch n, err := strconv.ParseUint(name, 10, 16); {
	case name == "" && *auto >= 0:
		*auto++
	case err == nil && *auto <= 0:
		*auto, i = -1, int(n)
	case name == "" || err == nil:
		return Undefined, raised("a format that counts its places in two ways")
	default:
		for k, n := range a.names {
			if n == name {
				return a.kw[k], nil
			}
		}
		return Undefined, refused("a format with more than names and numbers")
	}
	if i >= len(a.pos) {
		return Undefined, raised("a format with too few values")
	}
	return a.pos[i], nil
}
