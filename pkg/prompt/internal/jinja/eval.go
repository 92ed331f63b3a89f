package jinja

import "unsafe"

func (x *constExpr) eval(*machine) (Value, *Error)  { return x.v, nil }
func (x *nameExpr) eval(m *machine) (Value, *Error) { return m.get(x.id), nil }

func (x *attrExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	obj, err := x.obj.eval(m)
	if err != nil {
		return Undefined, err
	}
	return m.attr(obj, x.name, x.own)
}

func (x *itemExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	obj, err := x.obj.eval(m)
	if err != nil {
		return Undefined, err
	}
	key, err := x.key.eval(m)
	if err != nil {
		return Undefined, err
	}
	return m.item(obj, key)
}

func (x *unaryExpr) eval(m *machine) (Value, *Error) {
	v, err := x.x.eval(m)
	if err != nil {
		return Undefined, err
	}
	return negate(x.op, v)
}

func (x *binaryExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	left, err := x.left.eval(m)
	if err != nil {
		return Undefined, err
	}
	right, err := x.right.eval(m)
	if err != nil {
		return Undefined, err
	}
	return m.arith(x.op, left, right)
}

// terms evaluates the terms of a sum onto the stack, and reports how many bytes
// they have if all are plain texts. Otherwise it adds them up, into the first.
func (x *sumExpr) terms(m *machine, base int) (size int, plain bool, err *Error) {
	if err := m.step(); err != nil {
		return 0, false, err
	}
	plain = true
	for _, part := range x.parts {
		v, err := part.eval(m)
		if err != nil {
			return 0, false, err
		}
		m.stack = append(m.stack, v)
		plain = plain && v.kind == KindString && !v.markup
		size += int(v.num)
	}
	if plain {
		return size, true, nil
	}
	total := m.stack[base]
	for _, v := range m.stack[base+1:] {
		if total, err = m.arith("+", total, v); err != nil {
			return 0, false, err
		}
	}
	m.stack[base] = total
	return 0, false, nil
}

func (x *sumExpr) eval(m *machine) (Value, *Error) {
	base := len(m.stack)
	defer m.drop(base)
	size, plain, err := x.terms(m, base)
	if err != nil {
		return Undefined, err
	}
	if !plain {
		return m.stack[base], nil
	}
	if err := m.charge(size); err != nil {
		return Undefined, err
	}
	buf := make([]byte, 0, size)
	for _, v := range m.stack[base:] {
		buf = append(buf, v.str()...)
	}
	return String(unsafe.String(unsafe.SliceData(buf), size)), nil
}

// print writes the sum, without building it when it is a text.
func (x *sumExpr) print(m *machine) *Error {
	base := len(m.stack)
	defer m.drop(base)
	_, plain, err := x.terms(m, base)
	if err != nil {
		return err
	}
	if !plain {
		return m.print(m.stack[base])
	}
	for _, v := range m.stack[base:] {
		if err := m.write(v.str()); err != nil {
			return err
		}
	}
	return nil
}

// print writes the parts one after another.
func (x *concatExpr) print(m *machine) *Error {
	for _, part := range x.parts {
		v, err := part.eval(m)
		if err == nil {
			err = m.print(v)
		}
		if err != nil {
			return err
		}
	}
	return m.step()
}

func (x *concatExpr) eval(m *machine) (Value, *Error) {
	start := len(m.out)
	if err := x.print(m); err != nil {
		return Undefined, err
	}
	return m.capture(start)
}

func (x *compareExpr) eval(m *machine) (Value, *Error) {
	left, err := x.first.eval(m)
	if err != nil {
		return Undefined, err
	}
	for i, op := range x.ops {
		if err := m.step(); err != nil {
			return Undefined, err
		}
		right, err := x.rest[i].eval(m)
		if err != nil {
			return Undefined, err
		}
		ok, err := m.compare(op, left, right)
		if err != nil || !ok {
			return Bool(false), err
		}
		left = right
	}
	return Bool(true), nil
}

func (x *andExpr) eval(m *machine) (Value, *Error) {
	v, err := x.left.eval(m)
	if err != nil || !v.truthy() {
		return v, err
	}
	return x.right.eval(m)
}

func (x *orExpr) eval(m *machine) (Value, *Error) {
	v, err := x.left.eval(m)
	if err != nil || v.truthy() {
		return v, err
	}
	return x.right.eval(m)
}

func (x *notExpr) eval(m *machine) (Value, *Error) {
	v, err := x.x.eval(m)
	return Bool(!v.truthy()), err
}

func (x *condExpr) eval(m *machine) (Value, *Error) {
	v, err := x.test.eval(m)
	switch {
	case err != nil:
		return Undefined, err
	case v.truthy():
		return x.yes.eval(m)
	case x.no == nil:
		return Undefined, nil
	default:
		return x.no.eval(m)
	}
}

func (x *filterExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	v := m.block
	if x.x != nil {
		var err *Error
		if v, err = x.x.eval(m); err != nil {
			return Undefined, err
		}
	}
	if len(x.args.pos)+len(x.args.kw) == 0 {
		return x.f(m, v, &args{})
	}
	base := len(m.stack)
	defer m.drop(base)
	var a args
	if err := m.arguments(&x.args, &a); err != nil {
		return Undefined, err
	}
	return x.f(m, v, &a)
}

func (x *testExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	v, err := x.x.eval(m)
	if err != nil {
		return Undefined, err
	}
	base := len(m.stack)
	defer m.drop(base)
	var a args
	if err := m.arguments(&x.args, &a); err != nil {
		return Undefined, err
	}
	ok, err := x.f(m, v, &a)
	return Bool(ok), err
}

func (x *listExpr) eval(m *machine) (Value, *Error) {
	if err := m.chargeList(len(x.items) + 1); err != nil {
		return Undefined, err
	}
	items := make([]Value, len(x.items))
	for i, item := range x.items {
		v, err := item.eval(m)
		if err != nil {
			return Undefined, err
		}
		items[i] = v
	}
	if x.tuple {
		return newShape(items, shapeTuple), nil
	}
	return newShape(items, shapeList), nil
}

func (x *dictExpr) eval(m *machine) (Value, *Error) {
	if err := m.chargeList(2 * (len(x.keys) + 1)); err != nil {
		return Undefined, err
	}
	d := NewDict(make([]Entry, 0, len(x.keys)))
	for i, key := range x.keys {
		k, err := key.eval(m)
		if err != nil {
			return Undefined, err
		}
		v, err := x.vals[i].eval(m)
		if err != nil {
			return Undefined, err
		}
		if err := m.weighKey(k); err != nil {
			return Undefined, err
		}
		if !hashable(k, maxNesting) {
			return Undefined, raised("a key of a dict cannot be hashed")
		}
		d.put(k, v)
	}
	return DictOf(d), nil
}

func (x *failExpr) eval(m *machine) (Value, *Error) { return Undefined, refused(x.msg) }

func (x *sliceExpr) eval(m *machine) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	obj, err := x.obj.eval(m)
	if err != nil {
		return Undefined, err
	}
	var bounds [3]Value
	for i, part := range [3]expr{x.low, x.high, x.step} {
		bounds[i] = None
		if part != nil {
			if bounds[i], err = part.eval(m); err != nil {
				return Undefined, err
			}
		}
	}
	v, err := m.slice(obj, bounds)
	if err != nil && err.Code == Raised && isConstant(x.obj) {
		return v, refused("a slice of a constant") // jinja2 slices it while it compiles
	}
	return v, err
}

func isConstant(x expr) bool {
	switch x.(type) {
	case *nameExpr, *attrExpr, *callExpr:
		return false
	}
	return true
}
