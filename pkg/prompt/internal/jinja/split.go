package jinja

import "strings"

// splitArgs reads the arguments of split and rsplit. max is below zero for no
// limit.
func splitArgs(m *machine, self Value, a *args) (sep *string, limit int, err *Error) {
	b, err := a.bind("sep", "maxsplit")
	if err != nil {
		return nil, 0, err
	}
	limit = -1
	if b.set[1] {
		if !b.vals[1].intLike() {
			return nil, 0, raised("split with a limit that is no integer")
		}
		limit = int(max(-1, min(1<<30, b.vals[1].int())))
	}
	switch v := b.vals[0]; {
	case v.kind == KindString:
		s := v.str()
		if s == "" {
			return nil, 0, raised("an empty separator")
		}
		sep = &s
	case b.set[0] && v.kind != KindNone:
		return nil, 0, raised("split at something that is no text")
	}
	return sep, limit, m.work(len(self.str()))
}

func textSplit(m *machine, self Value, a *args) (Value, *Error) {
	sep, limit, err := splitArgs(m, self, a)
	if err != nil {
		return Undefined, err
	}
	s := self.str()
	if sep == nil {
		return m.texts(words(s, limit))
	}
	if err := m.chargeList(strings.Count(s, *sep)); err != nil {
		return Undefined, err
	}
	if limit >= 0 {
		limit++
	}
	return m.texts(strings.SplitN(s, *sep, limit))
}

// words splits at white space, limit times at most.
func words(s string, limit int) []string {
	var out []string
	for s = lstrip(s); s != "" && limit != 0; limit-- {
		end := strings.IndexFunc(s, isSpace)
		if end < 0 {
			break
		}
		out = append(out, s[:end])
		s = lstrip(s[end:])
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

func textRSplit(m *machine, self Value, a *args) (Value, *Error) {
	sep, limit, err := splitArgs(m, self, a)
	if err != nil {
		return Undefined, err
	}
	if sep == nil && limit >= 0 {
		return Undefined, refused("rsplit at white space with a limit")
	}
	s := self.str()
	if sep == nil {
		return m.texts(words(s, -1))
	}
	if err := m.chargeList(strings.Count(s, *sep)); err != nil {
		return Undefined, err
	}
	parts := strings.Split(s, *sep)
	if extra := len(parts) - 1 - limit; limit >= 0 && extra > 0 {
		rest := strings.Join(parts[:extra+1], *sep)
		parts = append([]string{rest}, parts[extra+1:]...)
	}
	return m.texts(parts)
}

func textSplitLines(m *machine, self Value, a *args) (Value, *Error) {
	if len(a.pos)+len(a.kw) > 0 {
		return Undefined, refused("splitlines with line ends")
	}
	return m.texts(splitLines(self.str()))
}

// splitLines is Python's str.splitlines.
func splitLines(s string) []string {
	var out []string
	for s != "" {
		end := strings.IndexFunc(s, lineBreak)
		if end < 0 {
			return append(out, s)
		}
		out = append(out, s[:end])
		switch {
		case strings.HasPrefix(s[end:], "\r\n"), s[end] == 0xc2: // U+0085
			end += 2
		case s[end] == 0xe2: // U+2028, U+2029
			end += 3
		default:
			end++
		}
		s = s[end:]
	}
	return out
}

func lineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// texts returns a list of texts.
func (m *machine) texts(parts []string) (Value, *Error) {
	if err := m.chargeList(2 * len(parts)); err != nil {
		return Undefined, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = String(p)
	}
	return newShape(items, shapeList), nil
}
