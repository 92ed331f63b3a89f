package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// method is a method of a text, a list or a dict.
type method func(m *machine, self Value, a *args) (Value, *Error)

// memberTable has what a template may see of Python's types, by name.
var memberTable map[string]*members

func init() {
	memberTable = make(map[string]*members)
	at := func(name string) *members {
		o := memberTable[name]
		if o == nil {
			o = new(members)
			memberTable[name] = o
		}
		return o
	}
	for name, f := range textMethods() {
		at(name).text = f
	}
	for name, f := range map[string]method{"index": listIndex, "count": listCount, "copy": listCopy} {
		at(name).list = f
	}
	for name, f := range map[string]method{"items": dictItems, "keys": dictKeys, "values": dictValues, "get": dictGet, "copy": dictCopy} {
		at(name).dict = f
	}
	for _, name := range []string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"} {
		at(name).hiddenList = true
	}
	for _, name := range []string{"clear", "pop", "popitem", "setdefault", "update", "fromkeys"} {
		at(name).hiddenDict = true
	}
}

func textMethods() map[string]method {
	t := map[string]method{
		"strip":        stripping(lstripSet, rstripSet),
		"lstrip":       stripping(lstripSet, nil),
		"rstrip":       stripping(nil, rstripSet),
		"split":        textSplit,
		"rsplit":       textRSplit,
		"splitlines":   textSplitLines,
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"removeprefix": cutting(strings.TrimPrefix),
		"removesuffix": cutting(strings.TrimSuffix),
		"replace":      textReplace,
		"join":         textJoin,
		"format":       textFormat,
		"partition":    textPartition,
		"zfill":        textZfill,
		"count":        textNumber(strings.Count, false),
		"find":         textNumber(strings.Index, true),
		"rfind":        textNumber(strings.LastIndex, true),
		"index":        textIndex,
	}
	for name, f := range map[string]func(string) string{
		"upper": strings.ToUpper, "lower": strings.ToLower, "capitalize": capitalized, "title": titledWords, "swapcase": swapped,
	} {
		t[name] = func(m *machine, self Value, a *args) (Value, *Error) {
			s, err := m.operand(self, a)
			if err != nil {
				return Undefined, err
			}
			return m.changeCase(s, f)
		}
	}
	for name, f := range map[string]func(string) bool{
		"isspace": every(isSpace),
		"isalpha": every(unicode.IsLetter),
		"isupper": func(s string) bool { return cased(s, upperRune, lowerRune) },
		"islower": func(s string) bool { return cased(s, lowerRune, upperRune) },
		"isdigit": every(unicode.IsDigit), "isdecimal": every(unicode.IsDigit),
	} {
		t[name] = func(m *machine, self Value, a *args) (Value, *Error) {
			s, err := m.operand(self, a)
			if name == "isdigit" && !ascii(s) {
				return Undefined, refused("isdigit of unusual characters")
			}
			return Bool(f(s)), err
		}
	}
	for _, name := range []string{
		"casefold", "center", "encode", "expandtabs", "format_map", "isalnum", "isascii", "isidentifier", "isnumeric",
		"isprintable", "istitle", "ljust", "maketrans", "rindex", "rjust", "rpartition", "translate",
	} {
		t[name] = func(*machine, Value, *args) (Value, *Error) {
			return Undefined, refused("method " + name + " of a text")
		}
	}
	return t
}

func every(f func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !f(r) })
	}
}

// lstripSet and rstripSet strip the characters of a set, white space when it is
// nil.
func lstripSet(s string, set *string) string {
	if set == nil {
		return lstrip(s)
	}
	return strings.TrimLeft(s, *set)
}

func rstripSet(s string, set *string) string {
	if set == nil {
		return rstrip(s)
	}
	return strings.TrimRight(s, *set)
}

// stripping is strip, lstrip or rstrip.
func stripping(left, right func(string, *string) string) method {
	return func(m *machine, self Value, a *args) (Value, *Error) {
		b, err := a.bind("")
		if err != nil {
			return Undefined, err
		}
		var set *string
		switch chars := b.vals[0]; {
		case chars.kind == KindString:
			c := chars.str()
			set = &c
		case b.set[0] && chars.kind != KindNone:
			return Undefined, raised("strip of something that is no text")
		}
		s := self.str()
		if set != nil {
			if err := m.searched(len(s), len(*set)); err != nil {
				return Undefined, err
			}
		}
		if left != nil {
			s = left(s, set)
		}
		if right != nil {
			s = right(s, set)
		}
		return String(s), m.work(len(self.str()) - len(s))
	}
}

// searched counts what it costs to look for each character of a text in a set,
// unless the set is as small as usual.
func (m *machine) searched(text, set int) *Error {
	const usual = 16
	if set <= usual {
		return nil
	}
	return m.work(text * (set / usual))
}

// affix is startswith or endswith: of a text, or of one of a tuple.
func affix(has func(s, part string) bool) method {
	return func(m *machine, self Value, a *args) (Value, *Error) {
		if len(a.kw) > 0 || len(a.pos) != 1 {
			return Undefined, refused("startswith or endswith with a range")
		}
		parts := a.pos[:1]
		if l := a.pos[0].List(); l != nil && l.shape == shapeTuple {
			parts = l.Items
		}
		for _, part := range parts {
			if part.kind != KindString {
				return Undefined, raised("startswith or endswith of something that is no text")
			}
			if err := m.work(bytesPerStep + len(part.str())); err != nil {
				return Undefined, err
			}
			if has(self.str(), part.str()) {
				return Bool(true), nil
			}
		}
		return Bool(false), nil
	}
}

func cutting(cut func(s, part string) string) method {
	return func(m *machine, self Value, a *args) (Value, *Error) {
		part, err := oneText(a)
		if err == nil {
			err = m.work(len(part))
		}
		return String(cut(self.str(), part)), err
	}
}

// oneText returns the only argument, a text.
func oneText(a *args) (string, *Error) {
	if len(a.pos) != 1 || len(a.kw) > 0 || a.pos[0].kind != KindString {
		return "", raised("a method of a text without its one text")
	}
	return a.pos[0].str(), nil
}

// textNumber is a method that looks for a text. It gives a number or a place,
// which is counted in characters.
func textNumber(f func(s, sub string) int, place bool) method {
	return func(m *machine, self Value, a *args) (Value, *Error) {
		sub, err := oneText(a)
		if err != nil {
			return Undefined, err
		}
		s := self.str()
		n := f(s, sub)
		if place && n > 0 {
			n = utf8.RuneCountInString(s[:n])
		}
		return Int(int64(n)), m.work(len(s))
	}
}

func textIndex(m *machine, self Value, a *args) (Value, *Error) {
	v, err := textNumber(strings.Index, true)(m, self, a)
	if err == nil && v.int() < 0 {
		err = raised("index of a text that is not there")
	}
	return v, err
}

func textReplace(m *machine, self Value, a *args) (Value, *Error) {
	b, err := a.bind("", "", "count")
	if err == nil {
		err = b.need(2)
	}
	if err != nil {
		return Undefined, err
	}
	n := int64(-1)
	if b.set[2] {
		if !b.vals[2].intLike() {
			return Undefined, raised("replace with a count that is no integer")
		}
		n = b.vals[2].int()
	}
	if b.vals[0].kind != KindString || b.vals[1].kind != KindString {
		return Undefined, raised("replace of something that is no text")
	}
	return m.replace(self.str(), b.vals[0].str(), b.vals[1].str(), n)
}

func (m *machine) replace(s, old, with string, n int64) (Value, *Error) {
	if err := m.work(len(s)); err != nil {
		return Undefined, err
	}
	count := int64(strings.Count(s, old))
	if n >= 0 {
		count = min(count, n)
	}
	if err := m.charge(len(s) + int(count)*len(with)); err != nil {
		return Undefined, err
	}
	return String(strings.Replace(s, old, with, int(count))), nil
}

func textJoin(m *machine, self Value, a *args) (Value, *Error) {
	v, err := one(a)
	if err != nil {
		return Undefined, err
	}
	items, err := m.items(v)
	if err != nil {
		return Undefined, err
	}
	for _, item := range items {
		if item.kind != KindString || item.markup {
			return Undefined, raised("join of something that is no text")
		}
	}
	return m.join(items, self.str())
}

// join joins the texts of values.
func (m *machine) join(items []Value, sep string) (Value, *Error) {
	start := len(m.out)
	for i, item := range items {
		var err *Error
		if i > 0 {
			err = m.write(sep)
		}
		if err == nil {
			err = m.step()
		}
		if err == nil {
			err = m.print(item)
		}
		if err != nil {
			return Undefined, err
		}
	}
	return m.capture(start)
}

func textPartition(m *machine, self Value, a *args) (Value, *Error) {
	sep, err := oneText(a)
	switch {
	case err != nil:
		return Undefined, err
	case sep == "":
		return Undefined, raised("an empty separator")
	}
	before, after, found := strings.Cut(self.str(), sep)
	if !found {
		sep = ""
	}
	return newShape([]Value{String(before), String(sep), String(after)}, shapeTuple), m.chargeList(3)
}

func textZfill(m *machine, self Value, a *args) (Value, *Error) {
	v, err := one(a)
	if err != nil || !v.intLike() || v.int() > 1000 {
		return Undefined, refused("zfill")
	}
	s, sign := self.str(), ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign = s[:1]
	}
	pad := max(0, int(v.int())-utf8.RuneCountInString(s))
	return String(sign + strings.Repeat("0", pad) + s[len(sign):]), m.charge(len(s) + pad)
}
