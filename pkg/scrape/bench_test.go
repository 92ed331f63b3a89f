package scrape

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warmpath/warmpath/pkg/fleet"
)

func itoa(i int) string { return strconv.Itoa(i) }

// largePage is one of vLLM's of some 60 KB: mostly histograms.
func largePage() string {
	var b strings.Builder
	b.WriteString("# HELP python_gc_objects_collected_total Objects collected during gc\n# TYPE python_gc_objects_collected_total counter\n")
	for i := range 3 {
		b.WriteString("python_gc_objects_collected_total{generation=\"" + itoa(i) + "\"} 9876.0\n")
	}
	b.WriteString(vllmPage)
	for _, name := range []string{
		"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
		"request_queue_time_seconds", "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
		"request_prompt_tokens", "request_generation_tokens", "iteration_tokens_total", "request_params_max_tokens", "request_params_n",
		"request_max_num_generation_tokens", "request_prefill_kv_computed_tokens", "num_scheduled_tokens",
	} {
		b.WriteString("# HELP vllm:" + name + " Histogram of that.\n# TYPE vllm:" + name + " histogram\n")
		for i := range 36 {
			b.WriteString("vllm:" + name + "_bucket{engine=\"0\",le=\"" + itoa(1<<min(i, 20)) + ".0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} " + itoa(1000*i) + ".0\n")
		}
		b.WriteString("vllm:" + name + "_count{engine=\"0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 36000.0\n")
		b.WriteString("vllm:" + name + "_sum{engine=\"0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 123456.789\n")
	}
	return b.String()
}

// BenchmarkPage compares the scan of a large page with Prometheus's own parser.
func BenchmarkPage(b *testing.B) {
	text := []byte(largePage())
	b.Run("scan", func(b *testing.B) {
		var p page
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			p.scan(text)
		}
		if s, _, _ := p.of(0, true, time.Time{}); s.Waiting != 3 {
			b.Errorf("%+v", s)
		}
	})
	b.Run("expfmt", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			parser := expfmt.NewTextParser(model.UTF8Validation)
			if _, err := parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkScrape is a whole look at an engine over the loopback: the request, 60 KB
// of answer, the scan and the sink. The server runs in
// the same process.
func BenchmarkScrape(b *testing.B) {
	text := []byte(largePage())
	at := serve(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
	s := New(Config{Sink: newSink()})
	defer s.transport.CloseIdleConnections()
	e := &endpoint{scraper: s, at: at, request: newRequest("http", at, "/metrics")}
	e.serve([]fleet.Key{{ID: 1}})
	f := <-s.slots
	b.ReportAllocs()
	for b.Loop() {
		if !e.scrape(b.Context(), f) || e.failures.Load() > 0 {
			b.Fatal("the scrape failed")
		}
	}
}

// BenchmarkFetch is the HTTP client alone: the same, with a page that is empty.
func BenchmarkFetch(b *testing.B) {
	at := serve(b, func(http.ResponseWriter, *http.Request) {})
	s := New(Config{})
	defer s.transport.CloseIdleConnections()
	var f fetcher
	request := newRequest("http", at, "/metrics")
	b.ReportAllocs()
	for b.Loop() {
		if err := f.fetch(b.Context(), s.transport, request); err != nil {
			b.Fatal(err)
		}
	}
}
