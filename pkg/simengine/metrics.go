package simengine

import (
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// MetricNames says whose names metrics have (engines.md 2).
type MetricNames uint8

// Names of metrics.
const (
	VLLMMetrics MetricNames = iota
	SGLangMetrics
	TRTLLMMetrics // trtllm-serve's
)

// metrics are an engine's names over the counters here.
type metrics struct {
	registry *prometheus.Registry
	success  *prometheus.CounterVec
	ttft     prometheus.Histogram
}

// families registers metrics with the labels that all of them have.
type families struct {
	*prometheus.Registry
	labels prometheus.Labels
}

func (f families) gauge(name, help string, value func() float64) {
	f.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: f.labels}, value))
}

// info registers a gauge that is always 1, with more labels.
func (f families) info(name, help string, more prometheus.Labels) {
	maps.Copy(more, f.labels)
	f.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: more}, func() float64 { return 1 }))
}

func (f families) counter(name, help string, v *atomic.Uint64) {
	f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: f.labels},
		func() float64 { return float64(v.Load()) }))
}

// load registers what routers read of all engines: requests that run and wait, and
// the use of the KV cache.
func (f families) load(e *Engine, runningName, waitingName, useName string) {
	s := &e.stats
	f.gauge(runningName, "Requests that compute or decode.", func() float64 { return float64(s.running.Load()) })
	f.gauge(waitingName, "Requests that wait for their turn, for room or for a transfer.", func() float64 { return float64(s.waiting.Load()) })
	f.gauge(useName, "Share of KV blocks that requests use, from 0 to 1.", func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return float64(e.cache.pinned()+e.cache.reserved) / float64(e.cfg.Blocks)
	})
}

func newMetrics(e *Engine) *metrics {
	registry, rank := prometheus.NewRegistry(), strconv.Itoa(int(e.cfg.Rank))
	size, blocks := strconv.Itoa(e.cfg.BlockSize), strconv.Itoa(e.cfg.Blocks)
	vllm := prometheus.Labels{"model_name": e.cfg.Model, "engine": rank}
	switch e.cfg.Metrics {
	case VLLMMetrics:
		f := families{registry, vllm}
		f.load(e, "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
		f.vllm(e)
		families{registry, prometheus.Labels{"engine": rank}}.info("vllm:cache_config_info", "The KV cache's configuration; the value is 1.", prometheus.Labels{
			"block_size": size, "num_gpu_blocks": blocks, "enable_prefix_caching": "True",
			"kv_cache_size_tokens": strconv.Itoa(e.cfg.Blocks * e.cfg.BlockSize), "cache_dtype": "auto",
		})
	case SGLangMetrics:
		f := families{registry, prometheus.Labels{"model_name": e.cfg.Model, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "dp_rank": rank}}
		f.load(e, "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")
		f.info("sglang:cache_config_info", "The KV cache's configuration; the value is 1.", prometheus.Labels{"page_size": size, "num_pages": blocks})
	case TRTLLMMetrics:
		f := families{registry, prometheus.Labels{"model_name": e.cfg.Model, "engine_type": "trtllm"}}
		f.load(e, "trtllm_num_requests_running", "trtllm_num_requests_waiting", "trtllm_kv_cache_utilization")
		f.gauge("trtllm_kv_cache_tokens_per_block", "Tokens in a KV block.", func() float64 { return float64(e.cfg.BlockSize) })
		f.gauge("trtllm_kv_cache_max_blocks", "KV blocks.", func() float64 { return float64(e.cfg.Blocks) })
	}
	m := &metrics{
		registry: registry,
		success: prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // vLLM's name
			Name: "vllm:request_success_total",
			Help: "Requests answered to the end, by reason.", ConstLabels: vllm,
		}, []string{"finished_reason"}),
		ttft: prometheus.NewHistogram(prometheus.HistogramOpts{ //nolint:promlinter // vLLM's name
			Name: "vllm:time_to_first_token_seconds",
			Help: "Time from a request's arrival to its first token.", ConstLabels: vllm,
			Buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
		}),
	}
	if e.cfg.Metrics == VLLMMetrics {
		registry.MustRegister(m.success, m.ttft)
	}
	return m
}

// vllm registers what only vLLM counts.
func (f families) vllm(e *Engine) {
	s := &e.stats
	f.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the local cache.", &s.prefixQueries)
	f.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the local cache.", &s.prefixHits)
	f.counter("vllm:external_prefix_cache_queries_total", "Prompt tokens asked of the KV connector.", &s.externalQueries)
	f.counter("vllm:external_prefix_cache_hits_total", "Prompt tokens received through the KV connector.", &s.externHits)
	f.counter("vllm:prompt_tokens_total", "Prompt tokens of requests.", &s.promptTokens)
	f.counter("vllm:prompt_tokens_cached_total", "Prompt tokens taken from the local cache.", &s.cachedTokens)
	f.counter("vllm:generation_tokens_total", "Tokens generated.", &s.generatedTokens)
}
