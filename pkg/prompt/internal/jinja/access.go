package jinja

import (
	"strings"
	"unicode/utf8"
)

// attr is obj.name: an attribute that Python's type has, else an item. The
// sandbox hides what could change a value: that is undefined.
func (m *machine) attr(obj Value, name string, own *members) (Value, *Error) {
	switch obj.kind {
	case KindUndefined:
		if own != nil && own.hidden {
			return Undefined, nil
		}
		return Undefined, raised("attribute " + name + " of something undefined")
	case KindDict:
		if own != nil {
			if v, ok := own.get(obj, name); ok {
				return v, nil
			}
		}
		v, _ := obj.dict().Get(name)
		return v, nil
	case KindNamespace:
		v, _ := obj.dict().Get(name)
		return v, nil
	case KindLoop:
		return m.loopAttr(obj.loop(), name)
	case KindString, KindList, KindNone:
		v, _ := own.get(obj, name)
		return v, nil
	default:
	}
	return Undefined, refused("attribute " + name + " of a number or a function")
}

// members are the attributes of one name that Python's types have.
type members struct {
	text, list, dict method
	// hidden are attributes that the sandbox hides: of all types, of lists, of
	// dicts.
	hidden, hiddenList, hiddenDict bool
}

// of returns the method of a value's type, nil when it has none.
func (o *members) of(v Value) method {
	if o == nil {
		return nil
	}
	switch v.kind {
	case KindString:
		return o.text
	case KindList:
		if s := v.list().shape; s != shapeView && s != shapeIter {
			return o.list
		}
	case KindDict:
		return o.dict
	default:
	}
	return nil
}

// get returns the attribute of a value as an object. A hidden one is there, but
// undefined.
func (o *members) get(obj Value, name string) (_ Value, ok bool) {
	if o == nil {
		return Undefined, false
	}
	if f := o.of(obj); f != nil {
		return funcOf(&fn{name: name, method: f, self: obj}), true
	}
	return Undefined, o.hidden || o.hiddenList && obj.kind == KindList || o.hiddenDict && obj.kind == KindDict
}

// membersOf returns the attributes of a name, nil when no type has one.
func membersOf(name string) *members {
	if strings.HasPrefix(name, "__") {
		return &members{hidden: true}
	}
	return memberTable[name]
}

// item is obj[key]: an item, else an attribute.
func (m *machine) item(obj, key Value) (Value, *Error) {
	switch obj.kind {
	case KindUndefined:
		return Undefined, raised("an item of something undefined")
	case KindDict:
		if err := m.weighKey(key); err != nil {
			return Undefined, err
		}
		if v, ok, _ := obj.dict().lookup(key); ok {
			return v, nil
		}
	case KindList:
		if l := obj.list(); key.intLike() && l.shape != shapeView && l.shape != shapeIter {
			i := key.int()
			if i < 0 {
				i += int64(len(l.Items))
			}
			if i < 0 || i >= int64(len(l.Items)) {
				return Undefined, nil
			}
			return l.Items[i], nil
		}
	case KindString:
		if key.intLike() {
			return m.char(obj.str(), key.int())
		}
	default:
	}
	if key.kind != KindString {
		return Undefined, nil
	}
	if obj.kind == KindLoop {
		return m.loopAttr(obj.loop(), key.str())
	}
	if obj.kind == KindNamespace {
		return m.attr(obj, key.str(), nil)
	}
	v, _ := membersOf(key.str()).get(obj, key.str())
	return v, nil
}

// char is s[i].
func (m *machine) char(s string, i int64) (Value, *Error) {
	if err := m.work(len(s)); err != nil {
		return Undefined, err
	}
	n := int64(utf8.RuneCountInString(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return Undefined, nil
	}
	at := runeAt(s, int(i))
	_, size := utf8.DecodeRuneInString(s[at:])
	return String(s[at : at+size]), nil
}

// runeAt returns the byte at which the n-th character starts, or the length.
func runeAt(s string, n int) int {
	if n <= 0 {
		return 0
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// slice is obj[low:high:step].
func (m *machine) slice(obj Value, bounds [3]Value) (Value, *Error) {
	for _, b := range bounds {
		if b.kind != KindNone && !b.intLike() {
			return Undefined, raised("a slice by something that is no integer")
		}
	}
	switch obj.kind {
	case KindUndefined:
		return Undefined, raised("a slice of something undefined")
	case KindString:
		return m.sliceText(obj, bounds)
	case KindList:
		l := obj.list()
		if l.shape == shapeView || l.shape == shapeIter {
			return Undefined, raised("a slice of the keys of a dict or a generator")
		}
		start, n, step, ok := sliceRange(bounds, len(l.Items))
		if !ok {
			return Undefined, raised("a slice with step 0")
		}
		if err := m.chargeList(n); err != nil {
			return Undefined, err
		}
		items := make([]Value, n)
		for i := range items {
			items[i] = l.Items[start+i*step]
		}
		return newShape(items, l.shape), nil
	default:
		return Undefined, raised("a slice of something without order")
	}
}

func (m *machine) sliceText(obj Value, bounds [3]Value) (Value, *Error) {
	s := obj.str()
	if err := m.work(len(s)); err != nil {
		return Undefined, err
	}
	start, n, step, ok := sliceRange(bounds, utf8.RuneCountInString(s))
	if !ok {
		return Undefined, raised("a slice with step 0")
	}
	if n == 0 {
		return String(""), nil
	}
	if step == 1 {
		from := runeAt(s, start)
		return String(s[from : from+runeAt(s[from:], n)]), nil
	}
	if err := m.charge(5 * len(s)); err != nil {
		return Undefined, err
	}
	runes := []rune(s)
	var b strings.Builder
	for i := range n {
		b.WriteRune(runes[start+i*step])
	}
	return String(b.String()), nil
}

// sliceRange returns the first index of a slice of length elements, the number
// of its elements, and the step.
func sliceRange(bounds [3]Value, length int) (start, n, step int, ok bool) {
	step = 1
	if bounds[2].kind != KindNone {
		if bounds[2].int() == 0 {
			return 0, 0, 0, false
		}
		step = int(max(-1<<40, min(1<<40, bounds[2].int())))
	}
	low, high := 0, length // where an index may lie
	if step < 0 {
		low, high = -1, length-1
	}
	clip := func(v Value, def int) int {
		if v.kind == KindNone {
			return def
		}
		i := v.int()
		if i < 0 {
			i += int64(length)
		}
		return int(max(int64(low), min(int64(high), i)))
	}
	if step > 0 {
		start = clip(bounds[0], low)
		n = (clip(bounds[1], high) - start + step - 1) / step
	} else {
		start = clip(bounds[0], high)
		n = (start - clip(bounds[1], low) - step - 1) / -step
	}
	return start, max(0, n), step, true
}

// items returns the elements that v gives when it is walked through. They belong
// to v.
func (m *machine) items(v Value) ([]Value, *Error) {
	switch v.kind {
	case KindUndefined:
		return nil, nil
	case KindList:
		l := v.list()
		if l.shape == shapeIter {
			if l.used {
				return nil, nil
			}
			l.used = true
		}
		return l.Items, nil
	case KindDict:
		d := v.dict()
		if err := m.chargeList(d.Len()); err != nil {
			return nil, err
		}
		keys := make([]Value, d.Len())
		for i, e := range d.entries {
			keys[i] = e.Key
		}
		return keys, nil
	case KindString:
		return m.chars(v.str())
	case KindLoop:
		return nil, refused("a loop over loop")
	default:
		return nil, raised("a walk through something without elements")
	}
}

// itemsIfAny is items, for filters that take whatever is false for empty.
func (m *machine) itemsIfAny(v Value) ([]Value, *Error) {
	if !v.truthy() {
		return nil, nil
	}
	return m.items(v)
}

// chars returns the characters of a text.
func (m *machine) chars(s string) ([]Value, *Error) {
	n := utf8.RuneCountInString(s)
	if err := m.chargeList(n); err != nil {
		return nil, err
	}
	out := make([]Value, 0, n)
	for len(s) > 0 {
		_, size := utf8.DecodeRuneInString(s)
		out = append(out, String(s[:size]))
		s = s[size:]
	}
	return out, nil
}

// size is Python's len. Undefined has none, and counts as empty.
func (m *machine) size(v Value) (int, *Error) {
	switch v.kind {
	case KindUndefined:
		return 0, nil
	case KindString:
		s := v.str()
		return utf8.RuneCountInString(s), m.work(len(s))
	case KindDict:
		return v.dict().Len(), nil
	case KindList:
		if l := v.list(); l.shape != shapeIter {
			return len(l.Items), nil
		}
	case KindLoop:
		return len(v.loop().items), nil
	default:
	}
	return 0, raised("the length of something without one")
}

func (m *machine) loopAttr(l *loop, name string) (Value, *Error) {
	n := len(l.items)
	switch name {
	case "index":
		return Int(int64(l.i + 1)), nil
	case "index0":
		return Int(int64(l.i)), nil
	case "revindex":
		return Int(int64(n - l.i)), nil
	case "revindex0":
		return Int(int64(n - l.i - 1)), nil
	case "first":
		return Bool(l.i == 0), nil
	case "last":
		return Bool(l.i == n-1), nil
	case "length":
		return Int(int64(n)), nil
	case "depth":
		return Int(1), nil
	case "depth0":
		return Int(0), nil
	case "previtem":
		if l.i > 0 {
			return l.items[l.i-1], nil
		}
		return Undefined, nil
	case "nextitem":
		if l.i+1 < n {
			return l.items[l.i+1], nil
		}
		return Undefined, nil
	case "cycle":
		return funcOf(&fn{name: name, call: l.cycle}), nil
	case "changed":
		return funcOf(&fn{name: name, call: l.seen}), nil
	}
	return Undefined, nil
}

func (l *loop) cycle(_ *machine, a *args) (Value, *Error) {
	if len(a.pos) == 0 || len(a.kw) > 0 {
		return Undefined, raised("loop.cycle without values")
	}
	return a.pos[l.i%len(a.pos)], nil
}

func (l *loop) seen(m *machine, a *args) (Value, *Error) {
	same := l.changed && len(l.last) == len(a.pos)
	for i := 0; same && i < len(a.pos); i++ {
		var err *Error
		if same, err = m.equal(l.last[i], a.pos[i]); err != nil {
			return Undefined, err
		}
	}
	l.changed, l.last = true, append(l.last[:0:0], a.pos...)
	return Bool(!same), nil
}
