package jinja

import (
	"math"
	"strconv"
	"strings"
)

// toInt is Python's int(v), with a default where that fails.
func toInt(_ *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("default", "base")
	switch {
	case err != nil:
		return Undefined, err
	case b.set[1] && (b.vals[1].kind != KindInt || b.vals[1].int() != 10):
		return Undefined, refused("int in another base than 10")
	}
	def := Int(0)
	if b.set[0] {
		def = b.vals[0]
	}
	switch v.kind {
	case KindInt, KindBig:
		return v, nil
	case KindBool:
		return Int(v.int()), nil
	case KindFloat:
		return floatToInt(v.float(), def)
	case KindUndefined:
		return Undefined, raised("int of something undefined")
	case KindString:
	default:
		return def, nil
	}
	s := Strip(v.str())
	if !ascii(s) || strings.Contains(s, "_") {
		return Undefined, refused("int of unusual characters")
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Int(n), nil
	}
	f, ok, err := parseFloat(s)
	switch {
	case err != nil:
		return Undefined, err
	case !ok:
		return def, nil
	case strings.Trim(s, "0123456789+-") == "":
		return Undefined, refused("a number is too large")
	}
	return floatToInt(f, def)
}

func floatToInt(f float64, def Value) (Value, *Error) {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return def, nil
	case math.Abs(f) >= 1<<63:
		return Undefined, refused("a number is too large")
	}
	return Int(int64(f)), nil
}

// parseFloat is Python's float(s) for a text without white space around it.
func parseFloat(s string) (_ float64, ok bool, _ *Error) {
	lower := strings.ToLower(strings.TrimLeft(s, "+-"))
	if strings.HasPrefix(lower, "0x") {
		return 0, false, nil
	}
	if !ascii(s) || strings.Contains(s, "_") {
		return 0, false, refused("float of unusual characters")
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false, nil
	}
	return f, true, nil
}

func toFloat(_ *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("default")
	if err != nil {
		return Undefined, err
	}
	def := Float(0)
	if b.set[0] {
		def = b.vals[0]
	}
	switch v.kind {
	case KindInt, KindBool, KindFloat:
		return Float(v.asFloat()), nil
	case KindBig:
		return Undefined, refused("a number is too large")
	case KindUndefined:
		return Undefined, raised("float of something undefined")
	case KindString:
		f, ok, err := parseFloat(Strip(v.str()))
		if err != nil || ok {
			return Float(f), err
		}
	default:
	}
	return def, nil
}

func absolute(_ *machine, v Value, a *args) (Value, *Error) {
	switch {
	case v.kind == KindFloat:
		return Float(math.Abs(v.float())), none(a)
	case v.intLike() && v.int() < 0:
		return negate('-', v)
	case v.intLike():
		return Int(v.int()), none(a)
	case v.kind == KindBig:
		return Undefined, refused("a number is too large")
	}
	return Undefined, raised("abs of something that is no number")
}

// rounded is round: Python rounds half to even, by the exact value of a float.
func rounded(_ *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("precision", "method")
	if err != nil {
		return Undefined, err
	}
	digits := int64(0)
	if b.set[0] {
		if b.vals[0].kind != KindInt || magnitude(b.vals[0].int()) > 20 {
			return Undefined, refused("round to an unusual precision")
		}
		digits = b.vals[0].int()
	}
	method := "common"
	if b.set[1] {
		method = b.vals[1].Text()
	}
	switch {
	case !v.number():
		return Undefined, raised("round of something that is no number")
	case v.kind == KindBig, digits < 0, v.kind == KindFloat && (math.IsNaN(v.float()) || math.IsInf(v.float(), 0)):
		return Undefined, refused("round of an unusual number")
	case method == "ceil" || method == "floor":
		scale := math.Pow(10, float64(digits))
		f := v.asFloat() * scale
		if method == "ceil" {
			return Float(math.Ceil(f) / scale), nil
		}
		return Float(math.Floor(f) / scale), nil
	case method != "common":
		return Undefined, raised("round with an unknown method")
	case v.intLike():
		return Int(v.int()), nil
	}
	f, parseErr := strconv.ParseFloat(strconv.FormatFloat(v.float(), 'f', int(digits), 64), 64)
	if parseErr != nil {
		return Undefined, refused("round of an unusual number")
	}
	return Float(f), nil
}

func summed(m *machine, v Value, a *args) (Value, *Error) {
	b, err := a.bind("attribute", "start")
	if err != nil {
		return Undefined, err
	}
	items, err := m.items(v)
	if err != nil {
		return Undefined, err
	}
	if b.set[0] && b.vals[0].kind != KindNone {
		if items, err = m.attrs(items, b.vals[0], None); err != nil {
			return Undefined, err
		}
	}
	total := Int(0)
	if b.set[1] {
		total = b.vals[1]
	}
	if total.kind == KindString {
		return Undefined, raised("a sum of texts")
	}
	for _, item := range items {
		if item.kind == KindFloat || total.kind == KindFloat { // Python 3.12 sums floats with more care
			return Undefined, refused("a sum of floats")
		}
		if total, err = m.arith("+", total, item); err != nil {
			return Undefined, err
		}
	}
	return total, nil
}
