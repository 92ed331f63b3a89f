package simengine

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are vLLM's names (engines.md 2.1) over the engine's counters.
type metrics struct {
	registry *prometheus.Registry
	success  *prometheus.CounterVec
	ttft     prometheus.Histogram
}

func newMetrics(e *Engine) *metrics {
	labels := prometheus.Labels{"model_name": e.cfg.Model, "engine": strconv.Itoa(int(e.cfg.Rank))}
	r := prometheus.NewRegistry()
	gauge := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, f))
	}
	counter := func(name, help string, v *atomic.Uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(v.Load()) }))
	}
	s := &e.stats
	gauge("vllm:num_requests_running", "Requests that compute or decode.", func() float64 { return float64(s.running.Load()) })
	gauge("vllm:num_requests_waiting", "Requests that wait for their turn, for room or for a transfer.",
		func() float64 { return float64(s.waiting.Load()) })
	gauge("vllm:kv_cache_usage_perc", "Share of KV blocks that requests use, from 0 to 1.", func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return float64(e.cache.pinned()+e.cache.reserved) / float64(e.cfg.Blocks)
	})
	counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the local cache.", &s.prefixQueries)
	counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the local cache.", &s.prefixHits)
	counter("vllm:external_prefix_cache_queries_total", "Prompt tokens asked of the KV connector.", &s.externalQueries)
	counter("vllm:external_prefix_cache_hits_total", "Prompt tokens received through the KV connector.", &s.externHits)
	counter("vllm:prompt_tokens_total", "Prompt tokens of requests.", &s.promptTokens)
	counter("vllm:prompt_tokens_cached_total", "Prompt tokens taken from the local cache.", &s.cachedTokens)
	counter("vllm:generation_tokens_total", "Tokens generated.", &s.generatedTokens)

	config := prometheus.NewGauge(prometheus.GaugeOpts{ //nolint:promlinter // vLLM's name
		Name: "vllm:cache_config_info",
		Help: "The KV cache's configuration; the value is 1.",
		ConstLabels: prometheus.Labels{
			"block_size": strconv.Itoa(e.cfg.BlockSize), "num_gpu_blocks": strconv.Itoa(e.cfg.Blocks),
			"enable_prefix_caching": "True", "kv_cache_size_tokens": strconv.Itoa(e.cfg.Blocks * e.cfg.BlockSize),
			"cache_dtype": "auto", "engine": labels["engine"],
		},
	})
	config.Set(1)
	m := &metrics{
		registry: r,
		success: prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // vLLM's name
			Name: "vllm:request_success_total",
			Help: "Requests answered to the end, by reason.", ConstLabels: labels,
		}, []string{"finished_reason"}),
		ttft: prometheus.NewHistogram(prometheus.HistogramOpts{ //nolint:promlinter // vLLM's name
			Name: "vllm:time_to_first_token_seconds",
			Help: "Time from a request's arrival to its first token.", ConstLabels: labels,
			Buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
		}),
	}
	r.MustRegister(config, m.success, m.ttft)
	return m
}
