package jinja

import "strings"

func (m *machine) compare(op string, a, b Value) (bool, *Error) {
	switch op {
	case "==", "!=":
		same, err := m.equal(a, b)
		return same == (op == "=="), err
	case "in", "not in":
		in, err := m.contains(b, a)
		return in == (op == "in"), err
	}
	c, err := m.order(a, b)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	default:
		return c >= 0, err
	}
}

// equal is a == b, with the cost of long values.
func (m *machine) equal(a, b Value) (bool, *Error) {
	if a.kind == b.kind {
		switch a.kind {
		case KindString:
			if err := m.work(min(int(a.num), int(b.num))); err != nil {
				return false, err
			}
		case KindList, KindDict:
			if err := m.weigh(a, maxNesting); err != nil {
				return false, err
			}
		default:
		}
	}
	return equal(a, b, maxNesting)
}

// order is a < b and so on, with the cost of long values.
func (m *machine) order(a, b Value) (int, *Error) {
	if a.kind == b.kind {
		switch a.kind {
		case KindString:
			if err := m.work(min(int(a.num), int(b.num))); err != nil {
				return 0, err
			}
		case KindList:
			if err := m.weigh(a, maxNesting); err != nil {
				return 0, err
			}
		default:
		}
	}
	return order(a, b, maxNesting)
}

// weigh counts a step for every value inside v.
func (m *machine) weigh(v Value, depth int) *Error {
	if err := m.step(); err != nil {
		return err
	}
	if depth == 0 {
		return tooDeep()
	}
	switch v.kind {
	case KindString:
		return m.work(int(v.num))
	case KindList:
		for _, item := range v.list().Items {
			if err := m.weigh(item, depth-1); err != nil {
				return err
			}
		}
	case KindDict:
		for _, e := range v.dict().entries {
			if err := m.weigh(e.Val, depth-1); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// weighKey counts what looking for a key costs: its text, or, for a tuple, every
// value inside it.
func (m *machine) weighKey(v Value) *Error {
	switch v.kind {
	case KindString:
		return m.work(int(v.num))
	case KindList:
		return m.weigh(v, maxNesting)
	default:
	}
	return nil
}

func tooDeep() *Error { return &Error{Code: LimitDepth, Msg: "values are nested too deep"} }

func equal(a, b Value, depth int) (bool, *Error) {
	if depth == 0 {
		return false, tooDeep()
	}
	if a.number() && b.number() {
		return equalNumbers(a, b), nil
	}
	if a.kind != b.kind {
		return false, nil
	}
	switch a.kind {
	case KindUndefined, KindNone:
		return true, nil
	case KindString:
		return a.str() == b.str(), nil
	case KindList:
		return equalLists(a.list(), b.list(), depth)
	case KindDict:
		return equalDicts(a.dict(), b.dict(), depth)
	default:
		return a.ref == b.ref, nil
	}
}

func equalNumbers(a, b Value) bool {
	switch {
	case a.kind == KindBig || b.kind == KindBig:
		return a.kind == b.kind && a.str() == b.str()
	case a.intLike() && b.intLike():
		return a.int() == b.int()
	case a.kind == KindFloat && b.kind == KindFloat:
		return a.float() == b.float()
	}
	c, ok := orderNumbers(a, b)
	return ok && c == 0
}

func equalLists(l, r *List, depth int) (bool, *Error) {
	if l == r {
		return true, nil
	}
	if l.shape != r.shape || l.shape == shapeIter || len(l.Items) != len(r.Items) {
		return false, nil
	}
	if l.shape == shapeView {
		return false, refused("a comparison of the keys or values of dicts")
	}
	for i := range l.Items {
		if same, err := equal(l.Items[i], r.Items[i], depth-1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(d, e *Dict, depth int) (bool, *Error) {
	if d == e {
		return true, nil
	}
	if d.Len() != e.Len() {
		return false, nil
	}
	for _, x := range d.entries {
		v, ok, _ := e.lookup(x.Key)
		if !ok {
			return false, nil
		}
		if same, err := equal(x.Val, v, depth-1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// order compares as < and > do: below zero when a comes first.
func order(a, b Value, depth int) (int, *Error) {
	if depth == 0 {
		return 0, tooDeep()
	}
	switch {
	case a.kind == KindString && b.kind == KindString:
		return strings.Compare(a.str(), b.str()), nil
	case a.number() && b.number():
		c, ok := orderNumbers(a, b)
		if !ok {
			return 0, refused("a comparison of unusual numbers")
		}
		return c, nil
	case a.kind == KindList && b.kind == KindList:
		l, r := a.list(), b.list()
		if l.shape != r.shape || l.shape > shapeTuple {
			break
		}
		for i := range min(len(l.Items), len(r.Items)) {
			same, err := equal(l.Items[i], r.Items[i], depth-1)
			if err != nil {
				return 0, err
			}
			if !same {
				return order(l.Items[i], r.Items[i], depth-1)
			}
		}
		return len(l.Items) - len(r.Items), nil
	}
	if a.isView() || b.isView() {
		return 0, refused("a comparison of the keys or values of dicts")
	}
	return 0, raised("a comparison of values of different types")
}

// orderNumbers compares numbers, exactly. It is not ok for what is no number and
// for integers beyond 64 bits.
func orderNumbers(a, b Value) (int, bool) {
	if a.kind == KindBig || b.kind == KindBig {
		return 0, false
	}
	if a.intLike() && b.intLike() {
		switch {
		case a.int() < b.int():
			return -1, true
		case a.int() > b.int():
			return 1, true
		}
		return 0, true
	}
	const exact = 1 << 53
	if a.intLike() && magnitude(a.int()) > exact || b.intLike() && magnitude(b.int()) > exact {
		return 0, false
	}
	x, y := a.asFloat(), b.asFloat()
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	case x == y:
		return 0, true
	}
	return 0, false
}

// contains is "item in box".
func (m *machine) contains(box, item Value) (bool, *Error) {
	switch box.kind {
	case KindUndefined:
		return false, nil
	case KindString:
		if item.kind != KindString {
			return false, raised("in a text, something that is no text")
		}
		if err := m.work(len(box.str())); err != nil {
			return false, err
		}
		return strings.Contains(box.str(), item.str()), nil
	case KindDict:
		if err := m.weighKey(item); err != nil {
			return false, err
		}
		_, ok, bad := box.dict().lookup(item)
		if bad {
			return false, raised("in a dict, something that cannot be hashed")
		}
		return ok, nil
	case KindList:
		if box.list().shape == shapeView {
			if err := m.weighKey(item); err != nil {
				return false, err
			}
			if !hashable(item, maxNesting) {
				return false, refused("in, on the keys or values of a dict")
			}
		}
		items, err := m.items(box)
		if err != nil {
			return false, err
		}
		for _, v := range items {
			if err := m.step(); err != nil {
				return false, err
			}
			if same, err := m.equal(v, item); err != nil || same {
				return same, err
			}
		}
		return false, nil
	case KindNamespace, KindLoop, KindFunc:
		return false, refused("in, on a namespace or a function")
	default:
		return false, raised("in, on something without elements")
	}
}

// hashable reports whether v can be a key of a dict.
func hashable(v Value, depth int) bool {
	switch v.kind {
	case KindDict:
		return false
	case KindList:
		l := v.list()
		if l.shape == shapeList || l.shape == shapeView || depth == 0 {
			return false
		}
		for _, item := range l.Items {
			if l.shape == shapeTuple && !hashable(item, depth-1) {
				return false
			}
		}
	default:
	}
	return true
}
