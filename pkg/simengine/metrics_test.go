package simengine

import (
	"net/http"
	"strings"
	"testing"
)

// TestMetricNames: a worker speaks of its load in the words of the engine it is
// said to be.
func TestMetricNames(t *testing.T) {
	for names, want := range map[MetricNames][]string{
		VLLMMetrics:   {`vllm:num_requests_running{engine="2",model_name="tiny"} 0`, `num_gpu_blocks="64"`},
		SGLangMetrics: {`sglang:num_queue_reqs{dp_rank="2",engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"} 0`, `num_pages="64",page_size="16"`},
		TRTLLMMetrics: {`trtllm_kv_cache_utilization{engine_type="trtllm",model_name="tiny"} 0`, `trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="tiny"} 64`},
	} {
		e := start(t, Config{Metrics: names, Blocks: 64, Rank: 2})
		page := string(call(t, e, http.MethodGet, "/metrics", "").body)
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Errorf("metrics %d: no %s in\n%s", names, w, page)
			}
		}
		if strings.Contains(page, "vllm:") != (names == VLLMMetrics) {
			t.Errorf("metrics %d: vLLM's names in\n%s", names, page)
		}
	}
	if err := (Config{Name: "w", Model: "m", Generation: 12, Metrics: 9}).Validate(); err == nil || !strings.Contains(err.Error(), "metrics: 9") {
		t.Errorf("metrics 9: %v", err)
	}
}
