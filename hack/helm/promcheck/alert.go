package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// alert is a rule, and the series that it is tried on.
type alert struct {
	Expr   string
	For    string
	Series []string
}

// engine is that of Prometheus, with its defaults.
var engine = promql.NewEngine(promql.EngineOpts{
	MaxSamples:           math.MaxInt32,
	Timeout:              time.Minute,
	EnableAtModifier:     true,
	EnableNegativeOffset: true,
	Parser:               prom,
})

// firing returns the labels of what fires when the series end: what was there at
// every look for the time that the rule says.
func (a *alert) firing() ([]labels.Labels, error) {
	wait, err := model.ParseDuration(a.For)
	if err != nil {
		return nil, err
	}
	all, length, err := readSeries(a.Series)
	if err != nil {
		return nil, err
	}
	ctx, end := context.Background(), timeOf(length-1)
	query, err := engine.NewRangeQuery(ctx, inMemory(all), nil, a.Expr, timeOf(0), end, interval)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	results, err := query.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	return lasting(results, end.UnixMilli(), time.Duration(wait))
}

// lasting returns the labels of what is there at the end, and was at every look for as
// long as the rule waits. An alert does not have the name of a metric; two that differ
// in nothing else are an error, as they are to Prometheus.
func lasting(results promql.Matrix, end int64, wait time.Duration) ([]labels.Labels, error) {
	looks := map[string]map[int64]bool{}
	alerts := map[string]labels.Labels{}
	for _, r := range results {
		l := labels.NewBuilder(r.Metric).Del(labels.MetricName).Labels()
		key := l.String()
		if alerts[key] = l; looks[key] == nil {
			looks[key] = map[int64]bool{}
		}
		for _, p := range r.Floats {
			if looks[key][p.T] {
				return nil, fmt.Errorf("several alerts with the labels %s", l)
			}
			looks[key][p.T] = true
		}
	}
	firing := []labels.Labels{}
	for key, l := range alerts {
		began := end
		for looks[key][began-interval.Milliseconds()] {
			began -= interval.Milliseconds()
		}
		if looks[key][end] && end-began >= wait.Milliseconds() {
			firing = append(firing, l)
		}
	}
	return firing, nil
}
