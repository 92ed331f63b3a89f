package jinja

func listIndex(m *machine, self Value, a *args) (Value, *Error) {
	v, err := one(a)
	if err != nil {
		return Undefined, err
	}
	for i, item := range self.list().Items {
		same, err := m.equal(item, v)
		if err != nil {
			return Undefined, err
		}
		if same {
			return Int(int64(i)), m.work(i * bytesPerStep)
		}
	}
	return Undefined, raised("index of something that is not in the list")
}

func listCount(m *machine, self Value, a *args) (Value, *Error) {
	v, err := one(a)
	if err != nil {
		return Undefined, err
	}
	n := 0
	for _, item := range self.list().Items {
		if err := m.step(); err != nil {
			return Undefined, err
		}
		same, err := m.equal(item, v)
		if err != nil {
			return Undefined, err
		}
		if same {
			n++
		}
	}
	return Int(int64(n)), nil
}

func none(a *args) *Error {
	if len(a.pos)+len(a.kw) > 0 {
		return raised("a method with an argument that it does not take")
	}
	return nil
}

func listCopy(m *machine, self Value, a *args) (Value, *Error) {
	l := self.list()
	if l.shape != shapeList {
		return Undefined, raised("a copy of a tuple")
	}
	if err := m.chargeList(len(l.Items)); err != nil {
		return Undefined, err
	}
	return newShape(append([]Value(nil), l.Items...), shapeList), none(a)
}

func dictItems(m *machine, self Value, a *args) (Value, *Error) {
	items, err := m.pairs(self.dict())
	if err != nil {
		return Undefined, err
	}
	return newShape(items, shapeView), none(a)
}

// pairs returns the entries of a dict as tuples.
func (m *machine) pairs(d *Dict) ([]Value, *Error) {
	if err := m.chargeList(4 * d.Len()); err != nil {
		return nil, err
	}
	items, flat, lists := make([]Value, d.Len()), make([]Value, 2*d.Len()), make([]List, d.Len())
	for i, e := range d.entries {
		flat[2*i], flat[2*i+1] = e.Key, e.Val
		lists[i] = List{Items: flat[2*i : 2*i+2 : 2*i+2], shape: shapeTuple}
		items[i] = ListOf(&lists[i])
	}
	return items, nil
}

func dictKeys(m *machine, self Value, a *args) (Value, *Error) {
	items, err := m.items(self)
	if err != nil {
		return Undefined, err
	}
	return newShape(items, shapeView), none(a)
}

func dictValues(m *machine, self Value, a *args) (Value, *Error) {
	d := self.dict()
	if err := m.chargeList(d.Len()); err != nil {
		return Undefined, err
	}
	items := make([]Value, d.Len())
	for i, e := range d.entries {
		items[i] = e.Val
	}
	return newShape(items, shapeView), none(a)
}

func dictGet(m *machine, self Value, a *args) (Value, *Error) {
	if len(a.kw) > 0 || len(a.pos) < 1 || len(a.pos) > 2 {
		return Undefined, raised("get of a dict with the wrong arguments")
	}
	if err := m.weighKey(a.pos[0]); err != nil {
		return Undefined, err
	}
	v, ok, bad := self.dict().lookup(a.pos[0])
	switch {
	case bad:
		return Undefined, raised("get of something that cannot be hashed")
	case ok:
		return v, nil
	case len(a.pos) == 2:
		return a.pos[1], nil
	}
	return None, nil
}

func dictCopy(m *machine, self Value, a *args) (Value, *Error) {
	if err := m.chargeList(2 * self.dict().Len()); err != nil {
		return Undefined, err
	}
	d := NewDict(nil)
	for _, e := range self.dict().entries {
		if err := m.weighKey(e.Key); err != nil {
			return Undefined, err
		}
		d.put(e.Key, e.Val)
	}
	return DictOf(d), none(a)
}
