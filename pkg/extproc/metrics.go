package extproc

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

type metrics struct {
	streams         prometheus.Gauge
	decisions       [pick.NumModes]prometheus.Counter
	undecided       *prometheus.CounterVec
	workers         *prometheus.CounterVec
	blocks          *prometheus.CounterVec
	matched         prometheus.Counter
	best            prometheus.Counter
	total           prometheus.Counter
	found           prometheus.Counter
	prompts         [sources]prometheus.Counter
	tokenizerErrors *prometheus.CounterVec

	unknownObjectives prometheus.Counter

	panics   prometheus.Counter
	held     *prometheus.CounterVec
	refusals *prometheus.CounterVec
	rewrites *prometheus.CounterVec
	queue    *queueMetrics
	failures prometheus.Counter
	answers  [6]prometheus.Counter // by the first digit of the status; 0: none that can be read

	// Of the decisions: those about a prompt, and about one whose token ids are known.
	withPrompt, withTokens atomic.Uint64

	mu     sync.Mutex
	listed map[string]bool // names of workers in the pool
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "warmpath", Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "warmpath", Name: "streams", Help: "Open ext-proc streams, one per HTTP request under way.",
		}),
		undecided:       counter("undecided_total", "Requests for which no worker could be picked.", "reason"),
		workers:         counter("worker_decisions_total", "Times a worker was picked, by what it was picked for.", "worker", "rank", "for"),
		blocks:          counter("prompt_blocks_total", "Blocks of prompts with known token ids: in all; held by the best worker of the pool; held by the worker picked to prefill.", "kind"),
		tokenizerErrors: counter("tokenizer_errors_total", "Prompts that could not be turned into token ids, by reason.", "reason"),
		found: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "warmpath", Name: "prompts_found_total", Help: "Prompts of whose beginning a worker holds something by its events. What prompts sent there a moment ago will leave does not count.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "warmpath", Name: "panics_total", Help: "Requests that made the picker panic. Anything but 0 is a defect to report.",
		}),
		held:     counter("split_conditions_total", "Prompts for which a condition spoke against a split, by which, and by what became of them: kept on a decode worker, given to an aggregated one, or split all the same (moot).", "reason", "outcome"),
		refusals: counter("refusals_total", "Requests answered by the picker itself, by status and error code.", "status", "code"),
	}
	m.rewrites = counter("model_rewrites_total", "Requests that a rule gives a model, by the model's name in the rule and the one chosen; * for a rule for all models, and in both for a name from a header.", "model", "target")
	m.rewrites.WithLabelValues(rewrite.All, rewrite.All)
	m.queue = newQueueMetrics(r)
	m.unknownObjectives = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "warmpath", Name: "unknown_objectives_total", Help: "Requests that named an objective which does not exist; they had priority 0.",
	})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "warmpath", Name: "endpoint_failures_total", Help: "Requests that the picked endpoint did not serve: 502, 503, 504, or another worker did.",
	})
	r.MustRegister(m.streams, m.panics, m.found, m.unknownObjectives, m.failures)
	m.tokenizerErrors.WithLabelValues("other") // so that the families are there from the start
	m.held.WithLabelValues(pick.KeptShort.String(), "kept")
	answers := counter("responses_total", "Responses that went through the picker, by class of status.", "class")
	for class := range m.answers {
		m.answers[class] = answers.WithLabelValues([...]string{"unknown", "1xx", "2xx", "3xx", "4xx", "5xx"}[class])
	}
	prompts := counter("prompts_total", "Prompts by where their token ids came from; text ones have none and are matched by their text, unknown ones are routed by load alone.", "source")
	for source := range m.prompts {
		m.prompts[source] = prompts.WithLabelValues(Source(source).String())
	}
	modes := counter("decisions_total", "Decisions by mode. no_prefill_ready and no_prefill_in_subset mean that a decode worker has to compute the prompt.", "mode")
	for mode := range m.decisions {
		m.decisions[mode] = modes.WithLabelValues(pick.Mode(mode).String())
	}
	m.matched, m.best, m.total = m.blocks.WithLabelValues("matched"), m.blocks.WithLabelValues("best"), m.blocks.WithLabelValues("total")
	return m
}

// retain drops the series of workers that are in the pool no more: pods come
// and go, and their names would add up. A request under way may bring one back,
// until the pool changes again.
func (m *metrics) retain(pool *fleet.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.listed
	m.listed = make(map[string]bool, len(pool.Workers))
	for _, w := range pool.Workers {
		m.listed[w.Name] = true
	}
	for name := range before {
		if !m.listed[name] {
			m.workers.DeletePartialMatch(prometheus.Labels{"worker": name})
		}
	}
}

// decided counts the outcome of one decision. Blocks count only where they are the
// engine's, not guessed from a text.
func (m *metrics) decided(d *pick.Decision, source Source, err error) {
	if err != nil {
		reason := "no_endpoint"
		switch {
		case errors.Is(err, pick.ErrSubset):
			reason = "subset"
		case errors.Is(err, pick.ErrNoPrefill):
			reason = "no_prefill"
		case errors.Is(err, pick.ErrBusy):
			reason = "busy"
		}
		m.undecided.WithLabelValues(reason).Inc()
		return
	}
	m.decisions[d.Mode].Inc()
	if d.Held != pick.Disaggregated {
		outcome := "kept"
		switch {
		case d.Moot:
			outcome = "moot"
		case d.Mode == pick.OnAggregated:
			outcome = "aggregated"
		}
		m.held.WithLabelValues(d.Held.String(), outcome).Inc()
	}
	if source != Text {
		m.total.Add(float64(d.Total))
		m.best.Add(float64(d.Best))
		m.matched.Add(float64(d.Matched))
		if d.Found {
			m.found.Inc()
		}
	}
	m.workers.WithLabelValues(d.Decode.Name, strconv.FormatUint(uint64(d.Decode.Rank), 10), "decode").Inc()
	if d.Mode == pick.Disaggregated {
		m.workers.WithLabelValues(d.Prefill.Name, strconv.FormatUint(uint64(d.Prefill.Rank), 10), "prefill").Inc()
	}
}

// askedWith counts what was known of the prompt of a decision.
func (m *metrics) askedWith(source Source) {
	m.withPrompt.Add(1)
	if source != Unknown && source != Text {
		m.withTokens.Add(1)
	}
}

// Counts are what a server did since it was made.
type Counts struct {
	Decisions       uint64 // requests that were routed
	Prompts         uint64 // of them, those with a prompt
	KnownPrompts    uint64 // of them, those whose token ids were known
	TotalBlocks     uint64 // blocks of those
	MatchedBlocks   uint64 // held by the worker picked to prefill
	BestBlocks      uint64 // held by the best worker of the pool
	FoundPrompts    uint64 // prompts of which a worker held something by its events
	ServedElsewhere uint64 // responses from another endpoint than the picked one
}

// Counts returns the counts so far.
func (s *Server) Counts() Counts {
	m := s.metrics
	c := Counts{
		// What is counted first is read last, so that no part exceeds its whole.
		ServedElsewhere: s.elsewhere.n.Load(), KnownPrompts: m.withTokens.Load(), Prompts: m.withPrompt.Load(),
		MatchedBlocks: valueOf(m.matched), BestBlocks: valueOf(m.best), TotalBlocks: valueOf(m.total), FoundPrompts: valueOf(m.found),
	}
	for _, mode := range m.decisions {
		c.Decisions += valueOf(mode)
	}
	return c
}

func valueOf(c prometheus.Counter) uint64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0 // it never fails
	}
	return uint64(m.GetCounter().GetValue())
}

func (m *metrics) refused(r refused) {
	m.refusals.WithLabelValues(strconv.Itoa(int(r.status)), r.code).Inc()
}

// answered counts a response. Its status is whatever the gateway sent.
func (m *metrics) answered(status string) {
	class := 0
	if n, err := strconv.ParseUint(status, 10, 16); err == nil && 100 <= n && n <= 599 {
		class = int(n / 100)
	}
	m.answers[class].Inc()
}
