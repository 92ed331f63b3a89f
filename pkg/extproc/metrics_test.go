package extproc

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// TestMetrics: names, labels and values after a known run of requests.
func TestMetrics(t *testing.T) {
	r := newRig(t, splitPool())
	ids := count(100, 13)
	r.hold(t, fleet.Key{ID: 12}, ids, block.NewSeed("", ""))
	process := func(in ...*request) {
		t.Helper()
		duplexModes.first(in[0])
		if err := r.server.Process(newMemory(t.Context(), in...)); err != nil {
			t.Fatal(err)
		}
	}
	post := func() *request { return headersMsg("POST", completions, false) }
	process(post(), bodyMsg(tokenBody(ids, ""), true), answerHeadersMsg("200", false), answerBodyMsg("{}", true))
	process(post(), bodyMsg(tokenBody(ids, ""), true), answerHeadersMsg("404", true))
	process(withSubset(post(), structpb.NewStringValue("10.0.2.1:8000")), bodyMsg(`{"model":"m","prompt":"x"}`, true), answerHeadersMsg("503", true))
	process(withSubset(post(), structpb.NewStringValue("")), bodyMsg(prompt16, true))
	process(post(), bodyMsg("{", true))
	process(headersMsg("GET", otherPath, true), answerHeadersMsg("", true))
	// Which of the two prefill workers got a prompt is chance.
	prefills := r.metric(t, "warmpath_worker_decisions_total", "worker", "pod-11", "for", "prefill") +
		r.metric(t, "warmpath_worker_decisions_total", "worker", "pod-12", "for", "prefill")
	if prefills != 2 {
		t.Errorf("%v prefills, want 2", prefills)
	}
	if n := r.metric(t, "warmpath_worker_decisions_total", "worker", "pod-21", "rank", "3", "for", "decode"); n != 4 {
		t.Errorf("%v decodes, want 4", n)
	}
	want := `
# HELP warmpath_decisions_total Decisions by mode. no_prefill_ready and no_prefill_in_subset mean that a decode worker has to compute the prompt.
# TYPE warmpath_decisions_total counter
warmpath_decisions_total{mode="aggregated"} 0
warmpath_decisions_total{mode="disaggregated"} 2
warmpath_decisions_total{mode="kept_faster"} 0
warmpath_decisions_total{mode="kept_prefill_busy"} 0
warmpath_decisions_total{mode="kept_short"} 0
warmpath_decisions_total{mode="no_prefill_in_subset"} 1
warmpath_decisions_total{mode="no_prefill_ready"} 0
warmpath_decisions_total{mode="no_prompt"} 1
warmpath_decisions_total{mode="split_off"} 0
# HELP warmpath_prompt_blocks_total Blocks of prompts with known token ids: in all; held by the best worker of the pool; held by the worker picked to prefill.
# TYPE warmpath_prompt_blocks_total counter
warmpath_prompt_blocks_total{kind="best"} 6
warmpath_prompt_blocks_total{kind="matched"} 6
warmpath_prompt_blocks_total{kind="total"} 6
# HELP warmpath_prompts_total Prompts by where their token ids came from; text ones have none and are matched by their text, unknown ones are routed by load alone.
# TYPE warmpath_prompts_total counter
warmpath_prompts_total{source="engine"} 0
warmpath_prompts_total{source="in_process"} 0
warmpath_prompts_total{source="text"} 0
warmpath_prompts_total{source="token_ids"} 3
warmpath_prompts_total{source="unknown"} 1
# HELP warmpath_refusals_total Requests answered by the picker itself, by status and error code.
# TYPE warmpath_refusals_total counter
warmpath_refusals_total{code="invalid_json",status="400"} 1
warmpath_refusals_total{code="no_endpoint_in_subset",status="503"} 1
# HELP warmpath_responses_total Responses that went through the picker, by class of status.
# TYPE warmpath_responses_total counter
warmpath_responses_total{class="1xx"} 0
warmpath_responses_total{class="2xx"} 1
warmpath_responses_total{class="3xx"} 0
warmpath_responses_total{class="4xx"} 1
warmpath_responses_total{class="5xx"} 1
warmpath_responses_total{class="unknown"} 1
# HELP warmpath_split_conditions_total Prompts for which a condition spoke against a split, by which, and by what became of them: kept on a decode worker, given to an aggregated one, or split all the same (moot).
# TYPE warmpath_split_conditions_total counter
warmpath_split_conditions_total{outcome="kept",reason="kept_short"} 0
# HELP warmpath_streams Open ext-proc streams, one per HTTP request under way.
# TYPE warmpath_streams gauge
warmpath_streams 0
# HELP warmpath_tokenizer_errors_total Prompts that could not be turned into token ids, by reason.
# TYPE warmpath_tokenizer_errors_total counter
warmpath_tokenizer_errors_total{reason="other"} 0
# HELP warmpath_undecided_total Requests for which no worker could be picked.
# TYPE warmpath_undecided_total counter
warmpath_undecided_total{reason="subset"} 1
`
	err := testutil.GatherAndCompare(r.registry, strings.NewReader(want),
		"warmpath_decisions_total", "warmpath_prompt_blocks_total", "warmpath_prompts_total", "warmpath_refusals_total",
		"warmpath_responses_total", "warmpath_streams", "warmpath_tokenizer_errors_total", "warmpath_undecided_total")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if text := r.log.String(); text != "" {
		t.Errorf("requests are logged:\n%s", text)
	}
}

// The series of a worker go with it, those of the others stay.
func TestRetain(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	pool := func(names ...string) *fleet.Snapshot {
		var workers []fleet.Worker
		for i, name := range names {
			workers = append(workers, fleet.Worker{Key: fleet.Key{ID: uint64(i + 1)}, Name: name})
		}
		s, err := fleet.NewSnapshot(workers)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m.retain(pool("stays", "leaves"))
	for _, name := range []string{"stays", "leaves"} {
		w := fleet.Worker{Name: name}
		m.decided(&pick.Decision{Decode: w, Prefill: w}, Unknown, nil)
	}
	if n := testutil.CollectAndCount(m.workers); n != 4 {
		t.Fatalf("%d series, want 4", n)
	}
	m.retain(pool("stays"))
	if n := testutil.CollectAndCount(m.workers); n != 2 {
		t.Errorf("%d series after one worker left, want 2", n)
	}
	if v := testutil.ToFloat64(m.workers.WithLabelValues("stays", "0", "decode")); v != 1 {
		t.Errorf("the worker that stayed has %v", v)
	}
}
