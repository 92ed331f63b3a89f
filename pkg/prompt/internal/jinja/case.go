package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ascii reports whether s has no byte beyond ASCII.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// special reports whether the case of r changes in a way that depends on its
// neighbours or gives several characters. Python follows Unicode in that, Go's
// mapping of single characters does not.
func special(r rune) bool {
	switch {
	case r < 0xdf:
		return false
	case r == 0xdf, r == 0x130, r == 0x149, r == 0x1f0, r == 0x390, r == 0x3a3, r == 0x3b0, r == 0x587:
		return true
	case r >= 0x1c4 && r <= 0x1cc, r >= 0x1f1 && r <= 0x1f3: // title case of its own
		return true
	}
	return r >= 0x1e96 && r <= 0x1e9e || r >= 0x1f50 && r <= 0x1fff || r >= 0xfb00 && r <= 0xfb17 || r == utf8.RuneError
}

// changeCase maps a text with a function for ASCII and beyond.
func (m *machine) changeCase(s string, change func(string) string) (Value, *Error) {
	if err := m.charge(2 * len(s)); err != nil {
		return Undefined, err
	}
	if !ascii(s) && strings.ContainsFunc(s, special) {
		return Undefined, refused("upper or lower case of unusual characters")
	}
	return String(change(s)), nil
}

// capitalized is Python's str.capitalize.
func capitalized(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
}

// titled is the filter title: what follows white space, a bracket or a hyphen
// starts a word.
func titled(s string) string {
	var b strings.Builder
	begin := true
	for _, r := range s {
		if begin {
			b.WriteRune(unicode.ToUpper(r))
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
		begin = isSpace(r) || strings.ContainsRune("-({[<", r)
	}
	return b.String()
}

// titledWords is Python's str.title: what follows anything but a letter starts a
// word.
func titledWords(s string) string {
	var b strings.Builder
	begin := true
	for _, r := range s {
		if begin {
			b.WriteRune(unicode.ToUpper(r))
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
		begin = !lowerRune(r) && !upperRune(r)
	}
	return b.String()
}

func swapped(s string) string {
	return strings.Map(func(r rune) rune {
		if upperRune(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func lowerRune(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func upperRune(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Uppercase, r)
}

// cased reports whether all letters with a case have the wanted one, and there
// is one.
func cased(s string, wanted, other func(rune) bool) bool {
	found := false
	for _, r := range s {
		switch {
		case other(r):
			return false
		case wanted(r):
			found = true
		}
	}
	return found
}

func isUpper(m *machine, v Value, a *args) (bool, *Error) {
	s, err := m.operand(v, a)
	return cased(s, upperRune, lowerRune), err
}

func isLower(m *machine, v Value, a *args) (bool, *Error) {
	s, err := m.operand(v, a)
	return cased(s, lowerRune, upperRune), err
}

// operand returns the text of v for a test or a filter without arguments.
func (m *machine) operand(v Value, a *args) (string, *Error) {
	if len(a.pos)+len(a.kw) > 0 {
		return "", raised("an argument where none is taken")
	}
	s, err := m.text(v)
	if err != nil {
		return "", err
	}
	return s, m.work(len(s))
}
