package main

import (
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
)

// lookback is for how long a sample counts, as Prometheus has it by default.
const lookback = 5 * time.Minute

// labelSet are the labels of a series; the name of its metric is one of them.
type labelSet map[string]string

// series are samples, one per interval from time 0 on.
type series struct {
	labels  labelSet
	samples []parser.SequenceValue
}

// sample is one at its time.
type sample struct {
	at    time.Duration
	value float64
}

// readSeries reads series such as `up{pod="a"} 1+0x20`, and how long the longest is.
func readSeries(texts []string) (all []series, length time.Duration, err error) {
	for _, text := range texts {
		l, samples, err := prom.ParseSeriesDesc(text)
		if err != nil {
			return nil, 0, fmt.Errorf("%w in the series %s", err, text)
		}
		all = append(all, series{labels: l.Map(), samples: samples})
		length = max(length, time.Duration(len(samples)-1)*interval)
	}
	return all, length, nil
}

// between returns the samples after one time, up to another. A mark that the series
// ended is one of them.
func (s *series) between(after, to time.Duration) (list []sample) {
	for i, v := range s.samples {
		if at := time.Duration(i) * interval; after < at && at <= to && !v.Omitted {
			list = append(list, sample{at, v.Value})
		}
	}
	return list
}

// last returns the value of the series at a time, as long as it counts.
func (s *series) last(now time.Duration) (float64, bool) {
	list := s.between(now-lookback, now)
	if len(list) == 0 || value.IsStaleNaN(list[len(list)-1].value) {
		return 0, false
	}
	return list[len(list)-1].value, true
}

func (s *series) matches(matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(s.labels[m.Name]) {
			return false
		}
	}
	return true
}

func valuesOf(list []sample) []float64 {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = s.value
	}
	return values
}

// only returns some of the labels.
func (l labelSet) only(names []string) labelSet {
	some := labelSet{}
	for _, name := range names {
		if v, ok := l[name]; ok {
			some[name] = v
		}
	}
	return some
}

// without returns all but some of the labels, and without the name of the metric.
func (l labelSet) without(names ...string) labelSet {
	some := maps.Clone(l)
	delete(some, labels.MetricName)
	for _, name := range names {
		delete(some, name)
	}
	return some
}

// key is the same for the same labels.
func (l labelSet) key() string { return labels.FromMap(l).String() }
