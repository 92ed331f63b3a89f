package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/scrape"
)

// engineMetrics reads the metrics of the workers' engines.
type engineMetrics struct {
	part
	*scrape.Scraper
}

// newEngineMetrics returns what reads them, nil when that is turned off.
func newEngineMetrics(a *App, spec *v1alpha1.EngineMetricsSpec) *engineMetrics {
	if spec.Enabled != nil && !*spec.Enabled {
		return nil
	}
	m := &engineMetrics{Scraper: scrape.New(scrape.Config{
		Scheme:             string(spec.Scheme),
		Path:               spec.Path,
		Port:               uint16(spec.Port),
		InsecureSkipVerify: spec.InsecureSkipVerify,
		MinInterval:        spec.MinInterval.Duration,
		Sink:               (*scraped)(a),
		Done:               a.scrapes.done,
		Log:                a.log,
	})}
	m.part = newPart(m.Run)
	return m
}

// gauges shows what engines say of the workers in the pool.
func (m *engineMetrics) gauges(pool *fleet.Snapshot, gauge emitGauge) {
	gauge(descFailingScrapes, float64(m.Failing()))
	for k, s := range m.Figures() {
		if _, listed := pool.Index(k); !listed {
			continue
		}
		id, rank := labelsOf(k)
		if s.Waiting >= 0 {
			gauge(descEngineWaiting, float64(s.Waiting), id, rank)
		}
		if s.Running >= 0 {
			gauge(descEngineRunning, float64(s.Running), id, rank)
		}
		if s.KVUse >= 0 {
			gauge(descEngineKVUse, s.KVUse, id, rank)
		}
	}
}

// scraped hands on what engines say, to all generations in which requests are.
type scraped App

// Scraped implements [scrape.Sink].
func (s *scraped) Scraped(k fleet.Key, figures load.Scraped) {
	s.pooling.Lock()
	defer s.pooling.Unlock()
	var last *events
	for _, g := range s.generations {
		if g.events != last { // neighbours mostly share it
			g.events.engines.Scraped(k, figures)
		}
		last = g.events
	}
}

// scrapes counts how the looks at engines' metrics end, of all generations.
type scrapes struct {
	ended [scrape.NumResults]prometheus.Counter
	took  prometheus.Histogram
}

func newScrapes(r prometheus.Registerer) *scrapes {
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "warmpath", Name: "scrapes_total", Help: "Looks at the metrics of an engine, by how they ended.",
	}, []string{"result"})
	s := &scrapes{took: prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "warmpath", Name: "scrape_duration_seconds", Help: "Time that a look at the metrics of an engine took, however it ended.",
		Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1},
	})}
	for i := range s.ended {
		s.ended[i] = ended.WithLabelValues(scrape.Result(i).String())
	}
	r.MustRegister(ended, s.took)
	return s
}

func (s *scrapes) done(r scrape.Result, took time.Duration) {
	s.ended[r].Inc()
	s.took.Observe(took.Seconds())
}
