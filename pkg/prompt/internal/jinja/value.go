package jinja

import "unsafe"

// Kind is the type of a [Value].
type Kind uint8

// The kinds of values. The zero Value is undefined.
const (
	KindUndefined Kind = iota
	KindNone
	KindBool
	KindInt
	KindFloat
	// KindBig is an integer beyond 64 bits: it can be printed, not computed
	// with.
	KindBig
	KindString
	KindList
	KindDict
	KindNamespace
	KindFunc
	KindLoop
)

// Value is what an expression gives. It is small and holds strings without an
// allocation; copies share lists and dicts.
type Value struct {
	ref  unsafe.Pointer // bytes of a string, or the object
	num  uint64         // length of a string, or the number
	kind Kind
	// markup marks text that jinja2 takes for safe HTML. It prints as it is, but
	// whatever is joined to it would be escaped.
	markup bool
}

// None is Python's None.
var None = Value{kind: KindNone}

// Undefined is a variable that does not exist.
var Undefined Value

// Bool returns a truth value.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.num = 1
	}
	return v
}

// Int returns an integer.
func Int(n int64) Value { return Value{kind: KindInt, num: uint64(n)} }

// Float returns a floating-point number.
func Float(f float64) Value { return Value{kind: KindFloat, num: floatBits(f)} }

// Big returns an integer of any size, by its decimal digits.
func Big(digits string) Value {
	v := String(digits)
	v.kind = KindBig
	return v
}

// String returns a text. The bytes are not copied.
func String(s string) Value {
	return Value{kind: KindString, ref: unsafe.Pointer(unsafe.StringData(s)), num: uint64(len(s))}
}

// ListOf returns the list l. It must not be nil.
func ListOf(l *List) Value { return Value{kind: KindList, ref: unsafe.Pointer(l)} }

// DictOf returns the dict d. It must not be nil.
func DictOf(d *Dict) Value { return Value{kind: KindDict, ref: unsafe.Pointer(d)} }

func namespaceOf(d *Dict) Value { return Value{kind: KindNamespace, ref: unsafe.Pointer(d)} }
func funcOf(f *fn) Value        { return Value{kind: KindFunc, ref: unsafe.Pointer(f)} }
func loopOf(l *loop) Value      { return Value{kind: KindLoop, ref: unsafe.Pointer(l)} }

// Kind returns the type of v.
func (v Value) Kind() Kind { return v.kind }

// Text returns the text of a string; empty for any other kind.
func (v Value) Text() string {
	if v.kind != KindString {
		return ""
	}
	return v.str()
}

// List returns the list, nil for any other kind.
func (v Value) List() *List {
	if v.kind != KindList {
		return nil
	}
	return v.list()
}

// Dict returns the dict, nil for any other kind.
func (v Value) Dict() *Dict {
	if v.kind != KindDict {
		return nil
	}
	return v.dict()
}

// The methods below trust the kind.

func (v Value) str() string    { return unsafe.String((*byte)(v.ref), int(v.num)) }
func (v Value) int() int64     { return int64(v.num) }
func (v Value) float() float64 { return floatFrom(v.num) }
func (v Value) list() *List    { return (*List)(v.ref) }
func (v Value) dict() *Dict    { return (*Dict)(v.ref) }
func (v Value) fn() *fn        { return (*fn)(v.ref) }
func (v Value) loop() *loop    { return (*loop)(v.ref) }

// shape tells apart Python's types that all are lists here.
type shape uint8

const (
	shapeList shape = iota
	shapeTuple
	// shapeView is dict.keys(), values() or items(): sized, without order.
	shapeView
	// shapeRange is a range.
	shapeRange
	// shapeIter is a generator: always true, without a length, used up once.
	shapeIter
)

// List is a sequence of values.
type List struct {
	// Items are the elements. The owner must not change them while a template
	// renders.
	Items []Value
	shape shape
	used  bool // of shapeIter: somebody has taken the elements
}

func newShape(items []Value, s shape) Value { return ListOf(&List{Items: items, shape: s}) }

// truthy is Python's bool(v).
func (v Value) truthy() bool {
	switch v.kind {
	case KindUndefined, KindNone:
		return false
	case KindBool, KindInt, KindString:
		return v.num != 0
	case KindFloat:
		return v.float() != 0
	case KindList:
		l := v.list()
		return len(l.Items) > 0 || l.shape == shapeIter
	case KindDict:
		return v.dict().Len() > 0
	default:
		return true
	}
}

// number reports whether v counts as a number in Python: a bool does.
func (v Value) number() bool {
	return v.kind == KindInt || v.kind == KindFloat || v.kind == KindBool || v.kind == KindBig
}

// intLike reports whether int gives the value of v.
func (v Value) intLike() bool { return v.kind == KindInt || v.kind == KindBool }

// asFloat returns a number that is no KindBig as a float.
func (v Value) asFloat() float64 {
	if v.kind == KindFloat {
		return v.float()
	}
	return float64(v.int())
}
