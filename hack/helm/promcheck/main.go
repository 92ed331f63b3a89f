// Command promcheck reads PromQL expressions from standard input, as JSON, and says
// what is wrong with each: what Prometheus would refuse, and metrics and labels that
// do not exist. It also says which alerts fire over made-up series, which are written
// as in promtool's tests.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

type question struct {
	Metrics     map[string][]string // the labels of each metric that there is
	Expressions []string
	Alerts      []alert
}

type answer struct {
	Expressions []expressionAnswer
	Alerts      []alertAnswer
}

type expressionAnswer struct {
	Labels []string // which the result may have
	Error  string
}

type alertAnswer struct {
	Firing []labels.Labels // when the series end
	Error  string
}

// interval is the time between two samples of the series, and between two looks of
// an alert.
const interval = 30 * time.Second

var prom = parser.NewParser(parser.Options{})

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "promcheck:", err)
		os.Exit(1)
	}
}

func run() error {
	var q question
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		return err
	}
	var a answer
	for _, text := range q.Expressions {
		names, err := q.check(text)
		a.Expressions = append(a.Expressions, expressionAnswer{names, said(err)})
	}
	for _, alert := range q.Alerts {
		firing, err := alert.firing()
		a.Alerts = append(a.Alerts, alertAnswer{firing, said(err)})
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// check returns the labels that the result of an expression may have.
func (q *question) check(text string) ([]string, error) {
	e, err := prom.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	return q.labelsOf(e)
}
