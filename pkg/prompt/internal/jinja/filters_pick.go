package jinja

import (
	"slices"
	"strings"
)

// picking is select, reject, selectattr or rejectattr.
func picking(attr, keep bool) filter {
	return func(m *machine, v Value, a *args) (Value, *Error) {
		items, err := m.itemsIfAny(v)
		if err != nil {
			return Undefined, err
		}
		rest := args{pos: a.pos, names: a.names, kw: a.kw}
		var name Value
		if attr {
			if len(rest.pos) == 0 {
				return Undefined, raised("a selection without its attribute")
			}
			name, rest.pos = rest.pos[0], rest.pos[1:]
		}
		holds, err := m.testNamed(&rest)
		if err != nil {
			return Undefined, err
		}
		if err := m.chargeList(len(items)); err != nil {
			return Undefined, err
		}
		var out []Value
		for _, item := range items {
			if err := m.step(); err != nil {
				return Undefined, err
			}
			x := item
			if attr {
				if x, err = m.path(item, name, None); err != nil {
					return Undefined, err
				}
			}
			ok, err := holds(x)
			if err != nil {
				return Undefined, err
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return newShape(out, shapeIter), nil
	}
}

// testNamed returns the test that the arguments of a selection name; without
// one, a value must be true.
func (m *machine) testNamed(a *args) (func(Value) (bool, *Error), *Error) {
	if len(a.pos) == 0 {
		return func(v Value) (bool, *Error) { return v.truthy(), nil }, nil
	}
	f, ok := tests[a.pos[0].Text()]
	if !ok {
		return nil, refused("a selection by an unknown test")
	}
	rest := args{pos: a.pos[1:], names: a.names, kw: a.kw}
	return func(v Value) (bool, *Error) { return f(m, v, &rest) }, nil
}

// mapped is the filter map: an attribute of each element, or a filter applied to
// each.
func mapped(m *machine, v Value, a *args) (Value, *Error) {
	items, err := m.itemsIfAny(v)
	if err != nil {
		return Undefined, err
	}
	if len(a.pos) == 0 {
		b, err := a.bind("attribute", "default")
		if err == nil {
			err = b.need(1)
		}
		if err != nil {
			return Undefined, err
		}
		def := None
		if b.set[1] {
			def = b.vals[1]
		}
		out, err := m.attrs(items, b.vals[0], def)
		return newShape(out, shapeIter), err
	}
	f, ok := filters[a.pos[0].Text()]
	if !ok {
		return Undefined, refused("map by an unknown filter")
	}
	if err := m.chargeList(len(items)); err != nil {
		return Undefined, err
	}
	rest := args{pos: a.pos[1:], names: a.names, kw: a.kw}
	out := make([]Value, len(items))
	for i, item := range items {
		if err := m.step(); err != nil {
			return Undefined, err
		}
		if out[i], err = f(m, item, &rest); err != nil {
			return Undefined, err
		}
	}
	return newShape(out, shapeIter), nil
}

// fold is the key by which texts are sorted: their lower case.
func (m *machine) fold(v Value, sensitive bool) (Value, *Error) {
	if v.kind != KindString || sensitive {
		return v, nil
	}
	return m.changeCase(v.str(), strings.ToLower)
}

// keyed is an element with its key for sorting.
type keyed struct{ key, val Value }

// keys returns elements with their keys: an attribute, or the element.
func (m *machine) keys(items []Value, attr Value, sensitive bool) ([]keyed, *Error) {
	if err := m.chargeList(2 * len(items)); err != nil {
		return nil, err
	}
	if strings.Contains(attr.Text(), ",") {
		return nil, refused("a sort by several attributes")
	}
	out := make([]keyed, len(items))
	for i, item := range items {
		key := item
		var err *Error
		if attr.kind != KindNone && attr.kind != KindUndefined {
			if key, err = m.path(item, attr, None); err != nil {
				return nil, err
			}
		}
		if key, err = m.fold(key, sensitive); err != nil {
			return nil, err
		}
		out[i] = keyed{key, item}
	}
	return out, nil
}

// sortKeyed sorts, and keeps the order of equals.
func (m *machine) sortKeyed(list []keyed, reverse bool) ([]Value, *Error) {
	var bad *Error
	slices.SortStableFunc(list, func(a, b keyed) int {
		if bad != nil {
			return 0
		}
		if bad = m.step(); bad != nil {
			return 0
		}
		// Python compares lists of keys, and so looks for equality first.
		var same bool
		if same, bad = m.equal(a.key, b.key); same || bad != nil {
			return 0
		}
		var c int
		c, bad = m.order(a.key, b.key)
		if reverse {
			return -c
		}
		return c
	})
	if bad != nil {
		return nil, bad
	}
	out := make([]Value, len(list))
	for i, k := range list {
		out[i] = k.val
	}
	return out, nil
}

func sorted(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("reverse", "case_sensitive", "attribute")
	if err != nil {
		return Undefined, err
	}
	items, err := m.items(v)
	if err != nil {
		return Undefined, err
	}
	list, err := m.keys(items, b.vals[2], b.vals[1].truthy())
	if err != nil {
		return Undefined, err
	}
	out, err := m.sortKeyed(list, b.vals[0].truthy())
	return newShape(out, shapeList), err
}

func dictSort(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("case_sensitive", "by", "reverse")
	if err != nil {
		return Undefined, err
	}
	at := 0
	switch by := b.vals[1].Text(); {
	case by == "value":
		at = 1
	case b.set[1] && by != "key":
		return Undefined, raised("dictsort by something else than key or value")
	}
	if v.kind != KindDict {
		return Undefined, raised("dictsort of something that is no mapping")
	}
	items, err := m.pairs(v.dict())
	if err != nil {
		return Undefined, err
	}
	list, err := m.keys(items, Int(int64(at)), b.vals[0].truthy())
	if err != nil {
		return Undefined, err
	}
	out, err := m.sortKeyed(list, b.vals[2].truthy())
	return newShape(out, shapeList), err
}

func unique(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("case_sensitive", "attribute")
	if err != nil {
		return Undefined, err
	}
	items, err := m.items(v)
	if err != nil {
		return Undefined, err
	}
	list, err := m.keys(items, b.vals[1], b.vals[0].truthy())
	if err != nil {
		return Undefined, err
	}
	seen := NewDict(nil)
	var out []Value
	for _, k := range list {
		if err := m.weighKey(k.key); err != nil {
			return Undefined, err
		}
		_, found, bad := seen.lookup(k.key)
		if bad {
			return Undefined, raised("unique on something that cannot be hashed")
		}
		if err := m.work(bytesPerStep * (1 + seen.Len()/8)); err != nil {
			return Undefined, err
		}
		if !found {
			seen.put(k.key, None)
			out = append(out, k.val)
		}
	}
	return newShape(out, shapeIter), nil
}

// extreme is max, with sign 1, or min, with sign -1.
func extreme(sign int) filter {
	return func(m *machine, v Value, a *args) (Value, *Error) {
		b, err := a.bind("case_sensitive", "attribute")
		if err != nil {
			return Undefined, err
		}
		items, err := m.items(v)
		if err != nil {
			return Undefined, err
		}
		list, err := m.keys(items, b.vals[1], b.vals[0].truthy())
		if err != nil || len(list) == 0 {
			return Undefined, err
		}
		best := list[0]
		for _, k := range list[1:] {
			if err := m.step(); err != nil {
				return Undefined, err
			}
			c, err := m.order(k.key, best.key)
			if err != nil {
				return Undefined, err
			}
			if c*sign > 0 {
				best = k
			}
		}
		return best.val, nil
	}
}
