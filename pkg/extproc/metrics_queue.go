package extproc

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/pkg/pick"
)

// queueMetrics are about requests that found all workers busy.
type queueMetrics struct {
	waiting prometheus.Gauge
	waited  prometheus.Histogram
	results map[error]prometheus.Counter
	gone    prometheus.Counter
	failed  prometheus.Counter
}

func newQueueMetrics(r prometheus.Registerer) *queueMetrics {
	m := &queueMetrics{
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "warmpath", Name: "queue_requests", Help: "Requests that wait because all workers are busy.",
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "warmpath", Name: "queue_wait_seconds", Help: "How long requests waited that got a worker then.",
			Buckets: []float64{.001, .005, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		}),
	}
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "warmpath", Name: "queue_results_total", Help: "Requests that found all workers busy, or others waiting, by what became of them.",
	}, []string{"result"})
	r.MustRegister(m.waiting, m.waited, results)
	m.results = map[error]prometheus.Counter{
		nil:          results.WithLabelValues("placed"),
		errExpired:   results.WithLabelValues("expired"),
		errQueueFull: results.WithLabelValues("full"),
		errDisplaced: results.WithLabelValues("displaced"),
		errShed:      results.WithLabelValues("shed"),
		pick.ErrBusy: results.WithLabelValues("not_queued"),
	}
	m.gone, m.failed = results.WithLabelValues("gone"), results.WithLabelValues("no_worker")
	return m
}

// left counts what became of a request.
func (m *queueMetrics) left(err error) {
	switch c, known := m.results[err]; {
	case known:
		c.Inc()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		m.gone.Inc()
	default:
		m.failed.Inc()
	}
}
