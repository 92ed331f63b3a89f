package main

import (
	"time"

	"github.com/prometheus/common/model"
)

// alert is a rule, and the series that it is tried on.
type alert struct {
	Expr   string
	For    string
	Series []string
}

// firing returns the labels of what fires when the series end: what was there at
// every look for the time that the rule says.
func (a *alert) firing() ([]labelSet, error) {
	e, err := prom.ParseExpr(a.Expr)
	if err != nil {
		return nil, err
	}
	wait, err := model.ParseDuration(a.For)
	if err != nil {
		return nil, err
	}
	all, end, err := readSeries(a.Series)
	if err != nil {
		return nil, err
	}
	since := map[string]time.Duration{}
	firing := []labelSet{}
	for now := time.Duration(0); now <= end; now += interval {
		v, err := (&evaluation{series: all, now: now}).vector(e)
		if err != nil {
			return nil, err
		}
		before := since
		since = map[string]time.Duration{}
		firing = firing[:0]
		for _, s := range v {
			l := s.labels.without()
			began, ok := before[l.key()]
			if !ok {
				began = now
			}
			since[l.key()] = began
			if now-began >= time.Duration(wait) {
				firing = append(firing, l)
			}
		}
	}
	return firing, nil
}
