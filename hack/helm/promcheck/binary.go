package main

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// arithmetic and comparisons are the operators on two values.
var arithmetic = map[parser.ItemType]func(a, b float64) float64{
	parser.ADD: func(a, b float64) float64 { return a + b },
	parser.SUB: func(a, b float64) float64 { return a - b },
	parser.MUL: func(a, b float64) float64 { return a * b },
	parser.DIV: func(a, b float64) float64 { return a / b },
}

var comparisons = map[parser.ItemType]func(a, b float64) bool{
	parser.EQLC: func(a, b float64) bool { return a == b },
	parser.GTR:  func(a, b float64) bool { return a > b },
	parser.LSS:  func(a, b float64) bool { return a < b },
	parser.GTE:  func(a, b float64) bool { return a >= b },
	parser.LTE:  func(a, b float64) bool { return a <= b },
}

func (ev *evaluation) binary(e *parser.BinaryExpr) ([]element, error) {
	left, err := ev.vector(e.LHS)
	if err != nil {
		return nil, err
	}
	right, err := ev.vector(e.RHS)
	if err != nil {
		return nil, err
	}
	switch {
	case e.ReturnBool:
		return nil, fmt.Errorf("%s: bool is not known here", e.Op)
	case e.Op.IsSetOperator():
		return joined(e, left, right), nil
	case e.VectorMatching == nil:
		return withNumber(e, left, right)
	}
	return matched(e, left, right)
}

// matchKey is what elements are matched by.
func matchKey(e *parser.BinaryExpr, l labelSet) string {
	if m := e.VectorMatching; m.On {
		return l.only(m.MatchingLabels).key()
	}
	return l.without(e.VectorMatching.MatchingLabels...).key()
}

func joined(e *parser.BinaryExpr, left, right []element) []element {
	onRight, onLeft := map[string]bool{}, map[string]bool{}
	for _, s := range right {
		onRight[matchKey(e, s.labels)] = true
	}
	var result []element
	for _, s := range left {
		key := matchKey(e, s.labels)
		onLeft[key] = true
		if e.Op == parser.LOR || onRight[key] == (e.Op == parser.LAND) {
			result = append(result, s)
		}
	}
	for _, s := range right {
		if e.Op == parser.LOR && !onLeft[matchKey(e, s.labels)] {
			result = append(result, s)
		}
	}
	return result
}

// withNumber is for an operator of which one side, or both, is a number.
func withNumber(e *parser.BinaryExpr, left, right []element) (result []element, err error) {
	leftIsNumber := e.LHS.Type() == parser.ValueTypeScalar
	for _, a := range left {
		for _, b := range right {
			kept := a
			if leftIsNumber {
				kept = b
			}
			s, ok, err := apply(e.Op, kept, a.value, b.value)
			if err != nil {
				return nil, err
			}
			if ok {
				result = append(result, s)
			}
		}
	}
	return result, nil
}

// apply is the result of an operator. A comparison keeps an element as it is, or
// drops it; anything else makes a new one, which has no name.
func apply(op parser.ItemType, kept element, a, b float64) (s element, ok bool, err error) {
	if compare := comparisons[op]; compare != nil {
		return kept, compare(a, b), nil
	}
	compute := arithmetic[op]
	if compute == nil {
		return element{}, false, fmt.Errorf("%s is not known here", op)
	}
	return element{kept.labels.without(), compute(a, b)}, true, nil
}

// matched is for an operator between elements that match: each on the left has one
// at most on the right, and the other way round unless group_left says so.
func matched(e *parser.BinaryExpr, left, right []element) (result []element, err error) {
	m := e.VectorMatching
	partners := map[string]element{}
	for _, s := range right {
		key := matchKey(e, s.labels)
		if _, twice := partners[key]; twice {
			return nil, fmt.Errorf("%s: several on the right match %s", e.Op, key)
		}
		partners[key] = s
	}
	used := map[string]bool{}
	for _, a := range left {
		key := matchKey(e, a.labels)
		b, ok := partners[key]
		if !ok {
			continue
		}
		if m.Card == parser.CardOneToOne && used[key] {
			return nil, fmt.Errorf("%s: several on the left match %s", e.Op, key)
		}
		used[key] = true
		s, ok, err := apply(e.Op, a, a.value, b.value)
		if err != nil {
			return nil, err
		}
		if m.Card == parser.CardOneToOne && m.On {
			s.labels = s.labels.only(append([]string{labels.MetricName}, m.MatchingLabels...))
		}
		if ok {
			result = append(result, s)
		}
	}
	return result, nil
}
