package jinja

import (
	"math"
	"math/bits"
	"strings"
)

func negate(op byte, v Value) (Value, *Error) {
	switch {
	case v.kind == KindFloat && op == '-':
		return Float(-v.float()), nil
	case v.kind == KindFloat || v.kind == KindBig && op == '+':
		return v, nil
	case v.intLike() && op == '+':
		return Int(v.int()), nil
	case v.intLike() && v.int() != math.MinInt64:
		return Int(-v.int()), nil
	case v.number():
		return Undefined, refused("a number is too large")
	}
	return Undefined, raised("a sign before something that is no number")
}

// arith is a binary operator of arithmetic, on texts and lists, too.
func (m *machine) arith(op string, a, b Value) (Value, *Error) {
	if a.number() && b.number() {
		if a.kind == KindBig || b.kind == KindBig {
			return Undefined, refused("a number is too large")
		}
		if a.intLike() && b.intLike() {
			return intArith(op, a.int(), b.int())
		}
		return floatArith(op, a.asFloat(), b.asFloat())
	}
	if a.isView() || b.isView() {
		return Undefined, refused("operator " + op + " on the keys or values of a dict")
	}
	switch op {
	case "+":
		return m.add(a, b)
	case "*":
		if b.kind == KindString || b.kind == KindList {
			a, b = b, a
		}
		if b.intLike() {
			return m.repeat(a, b.int())
		}
	case "%":
		if a.kind == KindString {
			return m.format(a, b)
		}
	}
	return Undefined, raised("operator " + op + " on values of the wrong type")
}

// escaper does to text what is joined to text marked as safe HTML.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", "\"", "&#34;")

func (m *machine) add(a, b Value) (Value, *Error) {
	switch {
	case a.kind == KindString && b.kind == KindString:
		s, t := a.str(), b.str()
		if err := m.charge(len(s) + len(t)); err != nil {
			return Undefined, err
		}
		if a.markup != b.markup {
			if err := m.charge(6 * (len(s) + len(t))); err != nil {
				return Undefined, err
			}
			if a.markup {
				t = escaper.Replace(t)
			} else {
				s = escaper.Replace(s)
			}
		}
		v := String(s + t)
		v.markup = a.markup || b.markup
		return v, nil
	case a.kind == KindList && b.kind == KindList:
		l, r := a.list(), b.list()
		if l.shape != r.shape || l.shape > shapeTuple {
			break
		}
		if err := m.chargeList(len(l.Items) + len(r.Items)); err != nil {
			return Undefined, err
		}
		items := make([]Value, 0, len(l.Items)+len(r.Items))
		items = append(append(items, l.Items...), r.Items...)
		return newShape(items, l.shape), nil
	}
	return Undefined, raised("operator + on values of the wrong type")
}

// repeat is a * n for a text or a list.
func (m *machine) repeat(a Value, n int64) (Value, *Error) {
	n = max(0, min(n, 1<<30))
	switch a.kind {
	case KindString:
		s := a.str()
		if err := m.charge(min(len(s)*int(n), 1<<40)); err != nil {
			return Undefined, err
		}
		v := String(strings.Repeat(s, int(n)))
		v.markup = a.markup
		return v, nil
	case KindList:
		l := a.list()
		if l.shape > shapeTuple {
			break
		}
		if len(l.Items) == 0 {
			n = 0
		}
		if err := m.chargeList(len(l.Items) * int(n)); err != nil {
			return Undefined, err
		}
		items := make([]Value, 0, len(l.Items)*int(n))
		for range n {
			items = append(items, l.Items...)
		}
		return newShape(items, l.shape), nil
	default:
	}
	return Undefined, raised("operator * on values of the wrong type")
}

// intArith computes with integers as Python does. A result beyond 64 bits is
// refused.
func intArith(op string, a, b int64) (Value, *Error) {
	switch op {
	case "+":
		if s := a + b; (s > a) == (b > 0) {
			return Int(s), nil
		}
	case "-":
		if s := a - b; (s < a) == (b > 0) {
			return Int(s), nil
		}
	case "*":
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		if high == 0 && low < 1<<63 {
			return Int(a * b), nil
		}
	case "**":
		return intPower(a, b)
	case "/", "//", "%":
		if b == 0 {
			return Undefined, raised("a division by zero")
		}
		if a == math.MinInt64 && b == -1 {
			break
		}
		if op == "/" {
			return divide(a, b)
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q, r = q-1, r+b
		}
		if op == "%" {
			q = r
		}
		return Int(q), nil
	}
	return Undefined, refused("a number is too large")
}

// isView reports whether v is the keys, values or items of a dict. Python takes
// them for sets.
func (v Value) isView() bool { return v.kind == KindList && v.list().shape == shapeView }

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// divide is a / b: exact only while both are exact as floats.
func divide(a, b int64) (Value, *Error) {
	const exact = 1 << 53
	if magnitude(a) > exact || magnitude(b) > exact {
		return Undefined, refused("a number is too large")
	}
	return Float(float64(a) / float64(b)), nil
}

func intPower(a, b int64) (Value, *Error) {
	if b < 0 {
		if a == 0 {
			return Undefined, raised("a division by zero")
		}
		return Float(math.Pow(float64(a), float64(b))), nil
	}
	out := Int(1)
	for range min(b, 64) {
		var err *Error
		if out, err = intArith("*", out.int(), a); err != nil {
			return Undefined, err
		}
	}
	if b > 64 && magnitude(a) > 1 {
		return Undefined, refused("a number is too large")
	}
	if b > 64 && a == -1 && b%2 != 0 {
		return Int(-1), nil
	}
	return out, nil
}

func floatArith(op string, a, b float64) (Value, *Error) {
	switch op {
	case "+":
		return Float(a + b), nil
	case "-":
		return Float(a - b), nil
	case "*":
		return Float(a * b), nil
	case "**":
		p := math.Pow(a, b)
		if math.IsNaN(p) || math.IsInf(p, 0) { // complex in Python, or an error
			return Undefined, refused("an unusual power")
		}
		return Float(p), nil
	}
	if b == 0 {
		return Undefined, raised("a division by zero")
	}
	if op == "/" {
		return Float(a / b), nil
	}
	r := math.Mod(a, b)
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	if op == "%" {
		return Float(r), nil
	}
	return Float(math.Round((a - r) / b)), nil
}
