package jinja

// test is a test behind "is".
type test func(m *machine, v Value, a *args) (bool, *Error)

// tests are those of jinja2. It has some under several names.
var tests map[string]test

func init() { // a test that looks up tests would be a cycle
	tests = map[string]test{
		"defined":   plain(func(v Value) bool { return v.kind != KindUndefined }),
		"undefined": plain(func(v Value) bool { return v.kind == KindUndefined }),
		"none":      plain(func(v Value) bool { return v.kind == KindNone }),
		"boolean":   plain(func(v Value) bool { return v.kind == KindBool }),
		"true":      plain(func(v Value) bool { return v.kind == KindBool && v.truthy() }),
		"false":     plain(func(v Value) bool { return v.kind == KindBool && !v.truthy() }),
		"integer":   plain(func(v Value) bool { return v.kind == KindInt || v.kind == KindBig }),
		"float":     plain(func(v Value) bool { return v.kind == KindFloat }),
		"number":    plain(Value.number),
		"string":    plain(func(v Value) bool { return v.kind == KindString }),
		"mapping":   plain(func(v Value) bool { return v.kind == KindDict }),
		"callable":  plain(func(v Value) bool { return v.kind == KindFunc || v.kind == KindUndefined || v.kind == KindLoop }),
		"iterable":  plain(isIterable),
		"sequence":  plain(isSequence),
		"escaped":   plain(func(v Value) bool { return v.markup }),
		"odd":       func(m *machine, v Value, a *args) (bool, *Error) { return divides(v, a, 2, 1) },
		"even":      func(m *machine, v Value, a *args) (bool, *Error) { return divides(v, a, 2, 0) },
		"upper":     isUpper,
		"lower":     isLower,
		"sameas":    sameAs,
		"in": func(m *machine, v Value, a *args) (bool, *Error) {
			box, err := one(a)
			if err != nil {
				return false, err
			}
			return m.contains(box, v)
		},
		"divisibleby": func(m *machine, v Value, a *args) (bool, *Error) {
			by, err := one(a)
			switch {
			case err != nil:
				return false, err
			case by.kind != KindInt:
				return false, refused("divisibleby something that is no integer")
			case by.int() == 0:
				return false, raised("a division by zero")
			}
			return divides(v, &args{}, by.int(), 0)
		},
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
		">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, name := range names {
			tests[name] = comparing(op)
		}
	}
}

// plain is a test without arguments.
func plain(f func(Value) bool) test {
	return func(_ *machine, v Value, a *args) (bool, *Error) {
		if len(a.pos)+len(a.kw) > 0 {
			return false, raised("a test with an argument that it does not take")
		}
		return f(v), nil
	}
}

func comparing(op string) test {
	return func(m *machine, v Value, a *args) (bool, *Error) {
		other, err := one(a)
		if err != nil {
			return false, err
		}
		return m.compare(op, v, other)
	}
}

// one returns the only argument.
func one(a *args) (Value, *Error) {
	if len(a.pos) != 1 || len(a.kw) > 0 {
		return Undefined, raised("a test without its one argument")
	}
	return a.pos[0], nil
}

func isIterable(v Value) bool {
	switch v.kind {
	case KindUndefined, KindString, KindList, KindDict, KindLoop:
		return true
	default:
	}
	return false
}

// isSequence holds for what has a length and items: texts and dicts, too.
func isSequence(v Value) bool {
	switch v.kind {
	case KindUndefined, KindString, KindDict:
		return true
	case KindList:
		return v.list().shape != shapeView && v.list().shape != shapeIter
	default:
	}
	return false
}

func divides(v Value, a *args, by, rest int64) (bool, *Error) {
	switch {
	case len(a.pos)+len(a.kw) > 0:
		return false, raised("a test with an argument that it does not take")
	case v.kind == KindFloat || v.kind == KindBig || v.kind == KindString:
		return false, refused("a test of divisibility of something that is no integer")
	case !v.intLike():
		return false, raised("a test of divisibility of something that is no integer")
	}
	r, err := intArith("%", v.int(), by)
	if err != nil {
		return false, err
	}
	return r.int() == rest, nil
}

// sameAs is Python's "is". Numbers and texts have no identity to rely on.
func sameAs(_ *machine, v Value, a *args) (bool, *Error) {
	other, err := one(a)
	if err != nil {
		return false, err
	}
	if v.kind != other.kind {
		return false, nil
	}
	switch v.kind {
	case KindUndefined, KindInt, KindFloat, KindBig, KindString:
		return false, refused("sameas on a number or a text")
	case KindNone:
		return true, nil
	case KindBool:
		return v.num == other.num, nil
	default:
	}
	return v.ref == other.ref, nil
}
