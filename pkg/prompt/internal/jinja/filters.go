package jinja

import (
	"slices"
	"strings"
)

// filter is a filter: a function of the value before the bar.
type filter func(m *machine, v Value, a *args) (Value, *Error)

// filters are those of jinja2 and transformers, and fromjson.
var filters map[string]filter

// foreignFilters are jinja2's filters that are not known here.
var foreignFilters = map[string]bool{}

func init() { // filters that look up filters would be a cycle
	filters = map[string]filter{
		"tojson": toJSON, "fromjson": fromJSON, "from_json": fromJSON,
		"default": orDefault, "d": orDefault,
		"trim": trim, "replace": replaced, "indent": indented, "join": joined, "string": asString, "safe": safe,
		"lower": textFilter(strings.ToLower), "upper": textFilter(strings.ToUpper),
		"capitalize": textFilter(capitalized), "title": textFilter(titled),
		"first": first, "last": last, "length": length, "count": length,
		"list": asList, "reverse": reversed, "items": pairsOf, "dictsort": dictSort,
		"sort": sorted, "unique": unique, "map": mapped, "batch": batched,
		"select": picking(false, true), "reject": picking(false, false),
		"selectattr": picking(true, true), "rejectattr": picking(true, false),
		"int": toInt, "float": toFloat, "abs": absolute, "round": rounded,
		"max": extreme(1), "min": extreme(-1), "sum": summed,
		"format": formatFilter,
	}
	for _, name := range []string{
		"attr", "center", "e", "escape", "filesizeformat", "forceescape", "groupby", "pprint", "random", "slice",
		"striptags", "truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
	} {
		foreignFilters[name] = true
	}
}

func orDefault(_ *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("default_value", "boolean")
	if err != nil {
		return Undefined, err
	}
	if v.kind == KindUndefined || b.vals[1].truthy() && !v.truthy() {
		if !b.set[0] {
			return String(""), nil
		}
		return b.vals[0], nil
	}
	return v, nil
}

func trim(m *machine, v Value, a *args) (Value, *Error) {
	s, err := m.text(v)
	if err != nil {
		return Undefined, err
	}
	out, err := memberTable["strip"].text(m, String(s), a)
	out.markup = v.markup
	return out, err
}

// textFilter is a filter that changes the case of a text.
func textFilter(change func(string) string) filter {
	return func(m *machine, v Value, a *args) (Value, *Error) {
		s, err := m.operand(v, a)
		if err != nil {
			return Undefined, err
		}
		out, err := m.changeCase(s, change)
		out.markup = v.markup
		return out, err
	}
}

func replaced(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("old", "new", "count")
	if err == nil {
		err = b.need(2)
	}
	if err != nil {
		return Undefined, err
	}
	var texts [3]string
	for i, x := range [3]Value{v, b.vals[0], b.vals[1]} {
		if texts[i], err = m.text(x); err != nil {
			return Undefined, err
		}
	}
	n := int64(-1)
	switch c := b.vals[2]; {
	case c.intLike():
		n = c.int()
	case b.set[2] && c.kind != KindNone:
		return Undefined, raised("replace with a count that is no integer")
	}
	return m.replace(texts[0], texts[1], texts[2], n)
}

func indented(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("width", "first", "blank")
	if err != nil {
		return Undefined, err
	}
	pad := "    "
	switch w := b.vals[0]; {
	case w.kind == KindString:
		pad = w.str()
	case w.intLike() && w.int() <= 1000:
		pad = strings.Repeat(" ", int(max(0, w.int())))
	case b.set[0]:
		return Undefined, refused("indent by something that is no small number")
	}
	if v.kind != KindString || v.markup {
		return Undefined, raised("indent of something that is no text")
	}
	lines := splitLines(v.str() + "\n")
	if err := m.charge(2*len(v.str()) + len(lines)*len(pad)); err != nil {
		return Undefined, err
	}
	var out strings.Builder
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		if i == 0 && b.vals[1].truthy() || i > 0 && (line != "" || b.vals[2].truthy()) {
			out.WriteString(pad)
		}
		out.WriteString(line)
	}
	return String(out.String()), nil
}

func joined(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("d", "attribute")
	if err != nil {
		return Undefined, err
	}
	items, err := m.items(v)
	if err != nil {
		return Undefined, err
	}
	if b.set[1] && b.vals[1].kind != KindNone {
		if items, err = m.attrs(items, b.vals[1], None); err != nil {
			return Undefined, err
		}
	}
	sep, err := m.text(b.vals[0])
	if err != nil {
		return Undefined, err
	}
	return m.join(items, sep)
}

// attrs returns an attribute of each element. Where it is undefined, def takes
// its place, unless that is None.
func (m *machine) attrs(items []Value, name, def Value) ([]Value, *Error) {
	if err := m.chargeList(len(items)); err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, item := range items {
		var err *Error
		if out[i], err = m.path(item, name, def); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// path is an attribute of an attribute, as named with points between.
func (m *machine) path(v, name, def Value) (Value, *Error) {
	parts := []string{name.Text()}
	switch {
	case name.kind == KindString && strings.Contains(name.str(), "."):
		parts = strings.Split(name.str(), ".")
	case name.kind != KindString && name.kind != KindInt:
		return Undefined, refused("an attribute by something that is no name")
	}
	for _, part := range parts {
		key := String(part)
		switch {
		case name.kind == KindInt:
			key = name
		case part != "" && strings.Trim(part, "0123456789") == "":
			return Undefined, refused("an attribute by a number in a text")
		}
		if err := m.step(); err != nil {
			return Undefined, err
		}
		var err *Error
		if v, err = m.item(v, key); err != nil {
			return Undefined, err
		}
		if v.kind == KindUndefined && def.kind != KindNone {
			v = def
		}
	}
	return v, nil
}

func asString(m *machine, v Value, a *args) (Value, *Error) {
	if v.kind == KindString {
		return v, none(a)
	}
	s, err := m.operand(v, a)
	return String(s), err
}

func safe(m *machine, v Value, a *args) (Value, *Error) {
	v, err := asString(m, v, a)
	v.markup = true
	return v, err
}

func first(m *machine, v Value, a *args) (Value, *Error) {
	if v.kind == KindList && v.list().shape == shapeIter {
		return Undefined, refused("first of a generator")
	}
	items, err := m.items(v)
	if err != nil || len(items) == 0 {
		return Undefined, err
	}
	return items[0], none(a)
}

func last(m *machine, v Value, a *args) (Value, *Error) {
	if v.kind == KindList && v.list().shape == shapeIter {
		return Undefined, raised("last of a generator")
	}
	items, err := m.items(v)
	if err != nil || len(items) == 0 {
		return Undefined, err
	}
	return items[len(items)-1], none(a)
}

func length(m *machine, v Value, a *args) (Value, *Error) {
	n, err := m.size(v)
	if err == nil {
		err = none(a)
	}
	return Int(int64(n)), err
}

func asList(m *machine, v Value, a *args) (Value, *Error) {
	items, err := m.items(v)
	if err == nil {
		err = none(a)
	}
	if err == nil {
		err = m.chargeList(len(items))
	}
	return newShape(slices.Clone(items), shapeList), err
}

func reversed(m *machine, v Value, a *args) (Value, *Error) {
	if v.kind == KindString {
		return m.slice(v, [3]Value{None, None, Int(-1)})
	}
	items, err := m.items(v)
	if err == nil {
		err = none(a)
	}
	if err == nil {
		err = m.chargeList(len(items))
	}
	if err != nil {
		return Undefined, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if v.kind == KindList && v.list().shape == shapeIter {
		return newShape(items, shapeList), nil
	}
	return newShape(items, shapeIter), nil
}

func pairsOf(m *machine, v Value, a *args) (Value, *Error) {
	switch v.kind {
	case KindUndefined:
		return newShape(nil, shapeIter), none(a)
	case KindDict:
		items, err := m.pairs(v.dict())
		if err != nil {
			return Undefined, err
		}
		return newShape(items, shapeIter), none(a)
	default:
	}
	return Undefined, raised("items of something that is no mapping")
}

func batched(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("linecount", "fill_with")
	if err != nil {
		return Undefined, err
	}
	n := b.vals[0]
	if n.kind != KindInt || n.int() < 1 || b.set[1] {
		return Undefined, refused("batch by something that is no number")
	}
	items, err := m.items(v)
	if err == nil {
		err = m.chargeList(3 * len(items))
	}
	if err != nil {
		return Undefined, err
	}
	var out []Value
	for part := range slices.Chunk(items, int(min(n.int(), 1<<30))) {
		out = append(out, newShape(slices.Clone(part), shapeList))
	}
	return newShape(out, shapeIter), nil
}

func formatFilter(m *machine, v Value, a *args) (Value, *Error) {
	if len(a.kw) > 0 {
		return Undefined, refused("format by names")
	}
	s, err := m.text(v)
	if err != nil {
		return Undefined, err
	}
	f := String(s)
	f.markup = v.markup
	return m.format(f, newShape(a.pos, shapeTuple))
}
