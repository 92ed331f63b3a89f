package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// readSeries reads series such as `up{pod="a"} 1+0x20`, and how many samples they
// have, one per interval from time 0 on. A series that ends before others must say so
// with stale: else its last sample would count for some minutes, and then it would not
// be there when the case is judged.
func readSeries(texts []string) (all []promql.Series, length int, err error) {
	early := map[int]string{} // series without a mark of their end, by length
	for _, text := range texts {
		l, samples, err := prom.ParseSeriesDesc(text)
		if err != nil {
			return nil, 0, fmt.Errorf("%w in the series %s", err, text)
		}
		n := len(samples)
		if n == 0 || !value.IsStaleNaN(samples[n-1].Value) {
			early[n] = text
		}
		length = max(length, n)
		all = append(all, promql.Series{Metric: l, Floats: points(samples)})
	}
	delete(early, length)
	for n, text := range early {
		return nil, 0, fmt.Errorf("a series has %d samples and others %d: give it as many, or let it end with stale: %s", n, length, text)
	}
	return all, length, nil
}

func points(samples []parser.SequenceValue) (list []promql.FPoint) {
	for i, v := range samples {
		if !v.Omitted {
			list = append(list, promql.FPoint{T: timeOf(i).UnixMilli(), F: v.Value})
		}
	}
	return list
}

// timeOf is when a sample is taken, and a look at the alert.
func timeOf(sample int) time.Time {
	return time.UnixMilli(0).Add(time.Duration(sample) * interval)
}

// inMemory lets the engine ask for series.
func inMemory(all []promql.Series) storage.Queryable {
	choose := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return &seriesSet{left: slices.DeleteFunc(slices.Clone(all), func(s promql.Series) bool {
			return !labels.Selector(matchers).Matches(s.Metric)
		})}
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: choose}}
}

// seriesSet is a [storage.SeriesSet] of series in memory.
type seriesSet struct {
	left []promql.Series // to come
	at   promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.at) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
