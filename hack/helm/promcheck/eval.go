package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
)

// evaluation evaluates an expression at one time, as far as our alerts use the
// language; what it does not know is an error. It is no more than what the
// language's documentation says: the engine itself would bring in the dependencies
// of a whole server.
type evaluation struct {
	series []series
	now    time.Duration
}

// element is one of a vector.
type element struct {
	labels labelSet
	value  float64
}

// vector evaluates an expression. A number is an element without labels.
func (ev *evaluation) vector(e parser.Expr) ([]element, error) {
	switch e := e.(type) {
	case *parser.NumberLiteral:
		return []element{{labelSet{}, e.Val}}, nil
	case *parser.ParenExpr:
		return ev.vector(e.Expr)
	case *parser.VectorSelector:
		if e.OriginalOffset != 0 || e.Timestamp != nil {
			return nil, fmt.Errorf("%s: other times are not known here", e)
		}
		var list []element
		for i := range ev.series {
			s := &ev.series[i]
			if v, ok := s.last(ev.now); ok && s.matches(e.LabelMatchers) {
				list = append(list, element{s.labels, v})
			}
		}
		return list, nil
	case *parser.AggregateExpr:
		return ev.aggregate(e)
	case *parser.BinaryExpr:
		return ev.binary(e)
	case *parser.Call:
		return ev.call(e)
	}
	return nil, fmt.Errorf("%T is not known here", e)
}

// overTime are the functions of samples within a range. Samples come at a fixed
// pace, so the rate between the first and the last one is that of the range, as long
// as the series is no shorter than that. Prometheus takes less of a shorter one.
var overTime = map[string]func(list []sample, within time.Duration) (float64, bool){
	"rate": rate,
	"increase": func(list []sample, within time.Duration) (float64, bool) {
		perSecond, ok := rate(list, within)
		return perSecond * within.Seconds(), ok
	},
	"avg_over_time": func(list []sample, _ time.Duration) (float64, bool) {
		return aggregations[parser.SUM](valuesOf(list)) / float64(len(list)), true
	},
	"max_over_time": func(list []sample, _ time.Duration) (float64, bool) {
		return slices.Max(valuesOf(list)), true
	},
}

// rate is what a counter grows by in a second. One that falls began at 0 again.
func rate(list []sample, _ time.Duration) (float64, bool) {
	if len(list) < 2 {
		return 0, false
	}
	grown := 0.0
	for i := 1; i < len(list); i++ {
		step := list[i].value - list[i-1].value
		if step < 0 {
			step = list[i].value
		}
		grown += step
	}
	return grown / (list[len(list)-1].at - list[0].at).Seconds(), true
}

func (ev *evaluation) call(e *parser.Call) ([]element, error) {
	if e.Func.Name == "absent" {
		list, err := ev.vector(e.Args[0])
		if err != nil || len(list) > 0 {
			return nil, err
		}
		return []element{{labelSet{}, 1}}, nil
	}
	apply := overTime[e.Func.Name]
	if apply == nil {
		return nil, fmt.Errorf("%s is not known here", e.Func.Name)
	}
	m := e.Args[0].(*parser.MatrixSelector) // the parser saw to it
	selector := m.VectorSelector.(*parser.VectorSelector)
	var result []element
	for i := range ev.series {
		s := &ev.series[i]
		if !s.matches(selector.LabelMatchers) {
			continue
		}
		var list []sample
		for _, v := range s.between(ev.now-m.Range, ev.now) {
			if !value.IsStaleNaN(v.value) {
				list = append(list, v)
			}
		}
		if len(list) == 0 {
			continue
		}
		if v, ok := apply(list, m.Range); ok {
			result = append(result, element{s.labels.without(), v})
		}
	}
	return result, nil
}

// aggregations make one value of several.
var aggregations = map[parser.ItemType]func(list []float64) float64{
	parser.COUNT: func(list []float64) float64 { return float64(len(list)) },
	parser.MAX:   slices.Max[[]float64],
	parser.SUM: func(list []float64) float64 {
		sum := 0.0
		for _, v := range list {
			sum += v
		}
		return sum
	},
}

func (ev *evaluation) aggregate(e *parser.AggregateExpr) ([]element, error) {
	list, err := ev.vector(e.Expr)
	if err != nil {
		return nil, err
	}
	reduce := aggregations[e.Op]
	if reduce == nil || e.Without {
		return nil, fmt.Errorf("%s is not known here", e)
	}
	values, groups := map[string][]float64{}, map[string]labelSet{}
	for _, s := range list {
		l := s.labels.only(e.Grouping)
		groups[l.key()] = l
		values[l.key()] = append(values[l.key()], s.value)
	}
	var result []element
	for key, l := range groups {
		result = append(result, element{l, reduce(values[key])})
	}
	return result, nil
}
