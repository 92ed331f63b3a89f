package scrape

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// TestPages: what pages of all engines say.
func TestPages(t *testing.T) {
	ranks := strings.NewReplacer(`engine="0"`, `engine="1"`, " 12.0", " 20.0", " 3.0", " 0.0").Replace(vllmPage)
	old := strings.ReplaceAll(vllmPage, "kv_cache_usage_perc", "gpu_cache_usage_perc")
	none := load.Scraped{Waiting: -1, Running: -1, KVUse: -1, KVBlocks: -1, Block: -1, MaxAdapters: -1}
	vllm := load.Scraped{
		Waiting: 3, Running: 12, KVUse: 0.8712345678901234, KVBlocks: 10240, Block: 16,
		Adapters: []string{"a", "b"}, WaitingAdapters: []string{"c"}, MaxAdapters: 2,
	}
	change := func(s load.Scraped, by func(*load.Scraped)) load.Scraped {
		by(&s)
		return s
	}
	noCounts := func(s *load.Scraped) { s.Waiting, s.Running = -1, -1 }
	for _, tc := range []struct {
		name, text string
		rank       uint32
		shared     bool // with other workers
		want       load.Scraped
	}{
		{"vLLM", vllmPage, 0, false, vllm},
		{"vLLM of old", old, 0, false, vllm},
		{"a rank of several", vllmPage + ranks, 1, true, change(vllm, func(s *load.Scraped) { s.Waiting, s.Running = 0, 20 })},
		{"another rank of several", vllmPage + ranks, 0, true, vllm},
		{"a rank that is not there, of several", vllmPage + ranks, 2, true, load.Scraped{
			Waiting: -1, Running: -1, KVUse: -1, KVBlocks: -1, Block: -1, Adapters: []string{"a", "b"}, WaitingAdapters: []string{"c"}, MaxAdapters: 2,
		}},
		{"an engine started alone that calls itself 0", vllmPage, 3, false, vllm},
		{"SGLang", sglangPage, 0, false, change(none, func(s *load.Scraped) { s.Waiting, s.Running, s.KVUse, s.KVBlocks, s.Block = 7, 5, 0.28, 4096, 64 })},
		{"SGLang, of several ranks without saying which", sglangPage, 0, true, change(none, func(s *load.Scraped) {
			s.KVUse, s.KVBlocks, s.Block = 0.28, 4096, 64
			noCounts(s)
		})},
		{"trtllm-serve", trtllmPage, 0, false, change(none, func(s *load.Scraped) { s.Waiting, s.Running, s.KVUse, s.KVBlocks, s.Block = 2, 9, 0.5, 1000, 32 })},
		{"Triton TRT-LLM", tritonPage, 0, false, change(none, func(s *load.Scraped) { s.Waiting, s.Running, s.KVUse, s.KVBlocks, s.Block = 6, 4, 0.25, 6239, 64 })},
		{"Triton without TRT-LLM", "nv_inference_pending_request_count{model=\"m\"} 4\n", 0, false, change(none, func(s *load.Scraped) { s.Waiting = 4 })},
		{"Dynamo", dynamoPage, 0, false, change(none, func(s *load.Scraped) { s.Waiting, s.Running, s.KVUse, s.KVBlocks = 1, 2, 0.75, 2048 })},
		{
			"CacheConfig without numbers", "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"None\"} 1.0\nvllm:num_requests_running 0\n", 0, false,
			change(none, func(s *load.Scraped) { s.Running = 0 }),
		},
		{
			"a hybrid model", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"9000\",kv_cache_size_tokens=\"16000\"} 1.0\n", 0, false,
			change(none, func(s *load.Scraped) { s.Block, s.KVBlocks = 16, 1000 }),
		},
		{"more than all", "sglang:token_usage 1.2\n", 0, false, change(none, func(s *load.Scraped) { s.KVUse = 1 })},
	} {
		var p page
		p.scan([]byte(tc.text))
		got, known := ofPage(&p, tc.rank, !tc.shared)
		if !known || p.bad != 0 {
			t.Errorf("%s: known %v, %d bad lines", tc.name, known, p.bad)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// TestPagesWithoutFigures: what says nothing is not taken for 0, and lines that
// cannot be read are passed over.
func TestPagesWithoutFigures(t *testing.T) {
	for text, bad := range map[string]int{
		"":                                         0,
		"<html>not here</html>":                    0,
		"vllm:num_requests_waiting NaN\n":          0,
		"vllm:num_requests_waiting -1\n":           0,
		"vllm:num_requests_waiting +Inf\n":         0,
		"vllm:num_requests_waiting\n":              0, // no value: no sample at all
		"vllm:num_requests_waiting \n":             1,
		"vllm:num_requests_waiting x\n":            1,
		"vllm:num_requests_waiting 1_0\n":          1,
		"vllm:num_requests_waiting{engine=\"0\n":   1,
		"vllm:num_requests_waiting{engine=0} 1\n":  1,
		"vllm:num_requests_waiting{a=\"\\x\"} 1\n": 1,
		"vllm:num_requests_waiting{a=\"b\"\n":      1,
		"vllm:num_requests_waiting 1 2 3\n":        1,
		"vllm:num_requests_waiting 1 NaN\n":        1,
		"trtllm_kv_cache_max_blocks 0\n":           0,
		"trtllm_kv_cache_utilization 37.5\n":       0, // percent
		"vllm:kv_cache_usage_perc 1.6\n":           0,
		strings.Repeat("\x00\xff{}", 100):          0,
	} {
		var p page
		p.scan([]byte(text))
		if got, known := ofPage(&p, 0, true); known || p.bad != bad {
			t.Errorf("%q says %+v, with %d bad lines, want none, with %d", text, got, p.bad, bad)
		}
	}
}

// TestManyRanks: a page with more ranks than any engine has does not make the
// scanner keep them all.
func TestManyRanks(t *testing.T) {
	var b strings.Builder
	for i := range 3 * maxRanks {
		b.WriteString("vllm:num_requests_waiting{engine=\"" + itoa(i) + "\"} 5\n")
	}
	var p page
	p.scan([]byte(b.String()))
	if len(p.ranks) != maxRanks || p.bad != 2*maxRanks {
		t.Errorf("%d ranks, %d bad lines", len(p.ranks), p.bad)
	}
}

// TestShareOrPercent: a share may be a little above 1; one that is none does not
// stand before one that is.
func TestShareOrPercent(t *testing.T) {
	for text, want := range map[string]float64{
		"vllm:kv_cache_usage_perc 1.5\n":                                   1,
		"vllm:kv_cache_usage_perc 0.4\n":                                   0.4,
		"vllm:gpu_cache_usage_perc 37.5\nvllm:kv_cache_usage_perc 0.375\n": 0.375,
	} {
		var p page
		p.scan([]byte(text))
		if got, known := ofPage(&p, 0, true); !known || got.KVUse != want {
			t.Errorf("%q says %v, known %v, want %v", text, got.KVUse, known, want)
		}
	}
}

// BenchmarkManyRanks is the dearest page there is: as large as one may be, each line
// of it of another rank.
func BenchmarkManyRanks(b *testing.B) {
	for name, ranks := range map[string]int{"most": maxRanks, "too_many": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			var text strings.Builder
			for i := 0; text.Len() < maxPage-100; i++ {
				text.WriteString("sglang:token_usage{dp_rank=\"" + itoa(ranks-1-i*7919%ranks) + "\"} 1\n")
			}
			var p page
			hostile := []byte(text.String())
			b.SetBytes(int64(len(hostile)))
			for b.Loop() {
				p.scan(hostile)
			}
			if len(p.ranks) != maxRanks {
				b.Errorf("%d ranks", len(p.ranks))
			}
		})
	}
}

// quiet is a sink that forgets.
type quiet struct{}

func (quiet) Scraped(fleet.Key, load.Scraped) {}

// TestPageAllocatesNothing: what follows the HTTP client's work costs no memory, when
// a page is like the one before.
func TestPageAllocatesNothing(t *testing.T) {
	text := []byte(largePage())
	e := &endpoint{scraper: New(Config{Sink: quiet{}})}
	e.serve([]fleet.Key{{ID: 1}})
	var p page
	once := func() {
		p.scan(text)
		if known, _ := e.tell(&p, time.Now()); !known {
			t.Error("the page says nothing")
		}
	}
	once()
	if n := testing.AllocsPerRun(100, once); n > 0 {
		t.Errorf("%v allocations per page", n)
	}
	if last := e.workers[0].last; last.Waiting != 3 || len(last.Adapters) != 2 {
		t.Errorf("the page says %+v", last)
	}
}
