package main

import (
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// ofTargets are the labels that Prometheus adds to all series of a scraped pod, as
// far as the chart uses them.
var ofTargets = []string{"namespace", "job", "pod"}

// labelsOf returns the labels that the result of an expression may have. It is an
// error when the expression asks for a metric or a label that does not exist: the
// answer would be empty, and nobody would notice.
func (q *question) labelsOf(e parser.Expr) ([]string, error) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return q.selected(e)
	case *parser.MatrixSelector:
		return q.labelsOf(e.VectorSelector)
	case *parser.AggregateExpr:
		from, err := q.labelsOf(e.Expr)
		if err != nil {
			return nil, err
		}
		if e.Without {
			return nil, fmt.Errorf("without %q: not known here, use by", e.Grouping)
		}
		return e.Grouping, existing(from, e.Grouping)
	case *parser.BinaryExpr:
		return q.combined(e)
	case *parser.Call:
		var all []string
		for _, arg := range e.Args {
			from, err := q.labelsOf(arg)
			if err != nil {
				return nil, err
			}
			all = append(all, from...)
		}
		if e.Func.Name == "histogram_quantile" {
			if err := existing(all, []string{labels.BucketLabel}); err != nil {
				return nil, err
			}
			all = slices.DeleteFunc(all, func(l string) bool { return l == labels.BucketLabel })
		}
		return all, nil
	case *parser.ParenExpr:
		return q.labelsOf(e.Expr)
	case *parser.NumberLiteral:
		return nil, nil
	}
	return nil, fmt.Errorf("%T is not known here", e)
}

func (q *question) selected(e *parser.VectorSelector) ([]string, error) {
	own, known := q.Metrics[e.Name]
	if !known {
		return nil, fmt.Errorf("there is no metric %q", e.Name)
	}
	all := slices.Concat(own, ofTargets)
	for _, m := range e.LabelMatchers {
		if m.Name == labels.MetricName {
			continue
		}
		if err := existing(all, []string{m.Name}); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return all, nil
}

func (q *question) combined(e *parser.BinaryExpr) ([]string, error) {
	left, err := q.labelsOf(e.LHS)
	if err != nil {
		return nil, err
	}
	right, err := q.labelsOf(e.RHS)
	if err != nil {
		return nil, err
	}
	m := e.VectorMatching
	if m == nil { // one of the two is a number
		return slices.Concat(left, right), nil
	}
	if len(m.Include) > 0 || m.Card == parser.CardOneToMany {
		return nil, fmt.Errorf("%s: this matching is not known here", e.Op)
	}
	for _, side := range [][]string{left, right} {
		if err := existing(side, m.MatchingLabels); err != nil {
			return nil, err
		}
	}
	if !m.On && len(m.MatchingLabels) == 0 && e.Op != parser.LOR && !same(left, right) {
		return nil, fmt.Errorf("%s matches nothing: %q on the left, %q on the right", e.Op, left, right)
	}
	if m.On && m.Card == parser.CardOneToOne && !e.Op.IsSetOperator() {
		return m.MatchingLabels, nil
	}
	return left, nil
}

// existing says which of the labels asked for is not there.
func existing(have, want []string) error {
	for _, l := range want {
		if !slices.Contains(have, l) {
			return fmt.Errorf("there is no label %q, only %q", l, have)
		}
	}
	return nil
}

// same says whether both have the same labels, in whatever order.
func same(a, b []string) bool {
	return existing(a, b) == nil && existing(b, a) == nil
}
