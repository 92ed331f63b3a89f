package jinja

// maxRange is how long a range may be in the sandbox.
const maxRange = 100_000

// globals are the functions that every template sees.
var globals = map[string]*fn{
	"raise_exception": {name: "raise_exception", call: raiseException},
	"strftime_now":    {name: "strftime_now", call: strftimeNow},
	"range":           {name: "range", call: makeRange},
	"dict":            {name: "dict", call: makeDict},
	"namespace":       {name: "namespace", call: makeNamespace},
	"joiner":          {name: "joiner", call: makeJoiner},
	"cycler":          {name: "cycler", call: makeCycler},
}

// raiseException is how templates refuse a request. The message may quote it, so
// it goes no further.
func raiseException(*machine, *args) (Value, *Error) {
	return Undefined, raised("the template refuses the request")
}

func makeRange(m *machine, a *args) (Value, *Error) {
	if len(a.kw) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		return Undefined, raised("range with the wrong arguments")
	}
	n := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		if !v.intLike() {
			return Undefined, raised("range of something that is no integer")
		}
		if n[i] = v.int(); n[i] > 1<<40 || n[i] < -1<<40 {
			return Undefined, raised("a range that is too long")
		}
	}
	if len(a.pos) == 1 {
		n[0], n[1] = 0, n[0]
	}
	count := int64(0)
	switch {
	case n[2] == 0:
		return Undefined, raised("a range with step 0")
	case n[2] > 0 && n[1] > n[0]:
		count = (n[1] - n[0] + n[2] - 1) / n[2]
	case n[2] < 0 && n[1] < n[0]:
		count = (n[0] - n[1] - n[2] - 1) / -n[2]
	}
	if count > maxRange {
		return Undefined, raised("a range that is too long")
	}
	if err := m.chargeList(int(count)); err != nil {
		return Undefined, err
	}
	items := make([]Value, count)
	for i := range items {
		items[i] = Int(n[0] + int64(i)*n[2])
	}
	return newShape(items, shapeRange), nil
}

// fields fills a dict from the arguments of dict and namespace.
func (m *machine) fields(a *args) (*Dict, *Error) {
	d := NewDict(nil)
	if len(a.pos) > 1 {
		return nil, raised("a dict from more than one value")
	}
	n := len(a.kw)
	for _, v := range a.pos {
		if v.kind != KindDict {
			return nil, refused("a dict from something that is no dict")
		}
		n += v.dict().Len()
	}
	if err := m.chargeList(2 * (n + 2)); err != nil {
		return nil, err
	}
	for _, v := range a.pos {
		for _, e := range v.dict().entries {
			if err := m.weighKey(e.Key); err != nil {
				return nil, err
			}
			d.put(e.Key, e.Val)
		}
	}
	for i, name := range a.names {
		d.Set(name, a.kw[i])
	}
	return d, nil
}

func makeDict(m *machine, a *args) (Value, *Error) {
	d, err := m.fields(a)
	if err != nil {
		return Undefined, err
	}
	return DictOf(d), nil
}

func makeNamespace(m *machine, a *args) (Value, *Error) {
	d, err := m.fields(a)
	if err != nil {
		return Undefined, err
	}
	return namespaceOf(d), nil
}

// makeJoiner returns a function that gives nothing first, and a separator from
// then on.
func makeJoiner(m *machine, a *args) (Value, *Error) {
	b, err := a.bind("sep")
	if err != nil {
		return Undefined, err
	}
	sep := String(", ")
	if b.set[0] {
		sep = b.vals[0]
	}
	used := false
	next := func(_ *machine, a *args) (Value, *Error) {
		if used {
			return sep, none(a)
		}
		used = true
		return String(""), none(a)
	}
	return funcOf(&fn{name: "joiner", call: next}), m.chargeList(4)
}

// makeCycler returns an object that gives its values in turn.
func makeCycler(m *machine, a *args) (Value, *Error) {
	if len(a.pos) == 0 || len(a.kw) > 0 {
		return Undefined, raised("cycler without values")
	}
	if err := m.chargeList(len(a.pos) + 8); err != nil {
		return Undefined, err
	}
	items, at := append([]Value(nil), a.pos...), 0
	d := NewDict(nil)
	d.Set("current", items[0])
	d.Set("next", funcOf(&fn{name: "next", call: func(_ *machine, a *args) (Value, *Error) {
		v := items[at]
		at = (at + 1) % len(items)
		d.Set("current", items[at])
		return v, none(a)
	}}))
	d.Set("reset", funcOf(&fn{name: "reset", call: func(_ *machine, a *args) (Value, *Error) {
		at = 0
		d.Set("current", items[0])
		return None, none(a)
	}}))
	return namespaceOf(d), nil
}
