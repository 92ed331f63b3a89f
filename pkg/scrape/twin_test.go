package scrape

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// series is one that the twin, Prometheus's own parser, found.
type series struct {
	name        string
	labels      map[string]string
	value, time float64
}

// parsePlain reads a whole page as Prometheus does.
func parsePlain(text []byte) (all []series, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for name, f := range families {
		if t := f.GetType(); t == dto.MetricType_HISTOGRAM || t == dto.MetricType_SUMMARY {
			continue
		}
		for _, m := range f.GetMetric() {
			s := series{name: name, labels: map[string]string{}, time: math.Inf(-1)}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			s.value = cmp.Or(m.GetGauge().GetValue(), m.GetCounter().GetValue(), m.GetUntyped().GetValue())
			if m.TimestampMs != nil {
				s.time = float64(m.GetTimestampMs())
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// meanings says what counts of a page: of the series with a name, and a label if
// there is one to have, the value or the number in another label.
var meanings = []struct{ means, name, label, is, in string }{
	{"waiting", "vllm:num_requests_waiting", "", "", ""},
	{"waiting", "sglang:num_queue_reqs", "", "", ""},
	{"waiting", "trtllm_num_requests_waiting", "", "", ""},
	{"waiting", "nv_trt_llm_request_metrics", "request_type", "waiting", ""},
	{"pending", "nv_inference_pending_request_count", "", "", ""},
	{"running", "vllm:num_requests_running", "", "", ""},
	{"running", "sglang:num_running_reqs", "", "", ""},
	{"running", "trtllm_num_requests_running", "", "", ""},
	{"running", "nv_trt_llm_request_metrics", "request_type", "scheduled", ""},
	{"use", "vllm:kv_cache_usage_perc", "", "", ""},
	{"use", "vllm:gpu_cache_usage_perc", "", "", ""},
	{"use", "sglang:token_usage", "", "", ""},
	{"use", "trtllm_kv_cache_utilization", "", "", ""},
	{"use", "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction", ""},
	{"use", "dynamo_component_gpu_cache_usage_percent", "", "", ""},
	{"use", "dynamo_component_kvstats_gpu_cache_usage_percent", "", "", ""},
	{"block", "vllm:cache_config_info", "", "", "block_size"},
	{"block", "sglang:cache_config_info", "", "", "page_size"},
	{"block", "trtllm_kv_cache_tokens_per_block", "", "", ""},
	{"block", "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "tokens_per", ""},
	{"blocks", "vllm:cache_config_info", "", "", "num_gpu_blocks"},
	{"blocks", "sglang:cache_config_info", "", "", "num_pages"},
	{"blocks", "trtllm_kv_cache_max_blocks", "", "", ""},
	{"blocks", "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max", ""},
	{"blocks", "dynamo_component_total_blocks", "", "", ""},
	{"blocks", "dynamo_component_kvstats_total_blocks", "", "", ""},
	{"tokens", "vllm:cache_config_info", "", "", "kv_cache_size_tokens"},
}

// rank returns the rank of a series, "" for none.
func (s series) rank() string {
	text, ok := s.labels["engine"]
	if !ok {
		text = s.labels["dp_rank"]
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// find returns what the series of a rank say of something, -1 for nothing.
func find(all []series, rank, means string) float64 {
	var best *series
	for _, s := range all {
		for _, m := range meanings {
			if m.means != means || m.name != s.name || s.rank() != rank || m.label != "" && s.labels[m.label] != m.is {
				continue
			}
			if m.in != "" {
				n, err := strconv.ParseUint(s.labels[m.in], 10, 32)
				if err != nil || n == 0 {
					continue
				}
				s.value = float64(n)
			}
			if math.IsNaN(s.value) || math.IsInf(s.value, 0) || s.value < 0 || means == "use" && s.value > 1.5 {
				continue
			}
			if best == nil || s.time > best.time || s.time == best.time && s.value > best.value {
				best = &s
			}
		}
	}
	if best == nil {
		return -1
	}
	return best.value
}

// twin returns what a page says of a worker.
func twin(all []series, rank uint32, alone bool) (got load.Scraped, known bool) {
	own, seen := "", map[string]bool{}
	for _, s := range all {
		counts := s.name == "vllm:lora_requests_info" || slices.ContainsFunc(meanings, func(m struct{ means, name, label, is, in string }) bool { return m.name == s.name })
		if r := s.rank(); r != "" && counts {
			seen[r] = true
		}
	}
	if r := strconv.FormatUint(uint64(rank), 10); seen[r] {
		own = r
	} else if alone && len(seen) == 1 {
		for own = range seen {
		}
	}
	figure := func(means string, total bool) float64 {
		if own == "" && total && !alone {
			return -1
		}
		v := find(all, own, means)
		if v == -1 && (alone || !total) {
			v = find(all, "", means)
		}
		return v
	}
	whole := func(v float64) int { return int(min(v, math.MaxInt32)) }
	atLeast1 := func(v float64) float64 {
		if v < 1 {
			return -1
		}
		return v
	}
	w := figure("waiting", true)
	if w == -1 {
		w = figure("pending", true)
	}
	got = load.Scraped{
		Waiting: whole(w), Running: whole(figure("running", true)), KVUse: min(figure("use", false), 1),
		KVBlocks: whole(atLeast1(figure("blocks", false))), Block: whole(atLeast1(figure("block", false))), MaxAdapters: -1,
	}
	if t := figure("tokens", false); t > 0 && got.Block > 0 {
		got.KVBlocks = int(min(t, math.MaxInt32*float64(got.Block))) / got.Block
	}
	known = w >= 0 || got.Running >= 0 || got.KVUse >= 0 || got.KVBlocks >= 0 || got.Block >= 0
	lora := twinLoRA(all, own, &got) || twinLoRA(all, "", &got)
	return got, known || lora
}

// twinLoRA adds what the newest series of a rank says of adapters.
func twinLoRA(all []series, rank string, to *load.Scraped) bool {
	var of []series
	for _, s := range all {
		_, running := s.labels["running_lora_adapters"]
		_, waits := s.labels["waiting_lora_adapters"]
		if s.name == "vllm:lora_requests_info" && s.rank() == rank && s.value >= 0 && !math.IsInf(s.value, 0) && (running || waits) {
			of = append(of, s)
		}
	}
	if len(of) == 0 {
		return false
	}
	most := func(s series) int {
		n, err := strconv.ParseUint(s.labels["max_lora"], 10, 31)
		if err != nil {
			return -1
		}
		return int(n)
	}
	s := slices.MaxFunc(of, func(a, b series) int {
		return cmp.Or(cmp.Compare(a.value, b.value),
			cmp.Compare(a.labels["running_lora_adapters"], b.labels["running_lora_adapters"]),
			cmp.Compare(a.labels["waiting_lora_adapters"], b.labels["waiting_lora_adapters"]),
			cmp.Compare(most(a), most(b)))
	})
	list := func(name string) []string {
		names := []string{}
		for n := range strings.SplitSeq(s.labels[name], ",") {
			if n = strings.TrimSpace(n); n != "" {
				names = append(names, n)
			}
		}
		return names
	}
	to.Adapters, to.WaitingAdapters = list("running_lora_adapters"), list("waiting_lora_adapters")
	to.MaxAdapters = most(s)
	return true
}

// ofPage is what the scanner says of a worker.
func ofPage(p *page, rank uint32, alone bool) (load.Scraped, bool) {
	s, lists, known := p.of(rank, alone, time.Time{})
	if lists != nil {
		s.Adapters, s.WaitingAdapters = new(names).of(lists.running), new(names).of(lists.waiting)
	}
	return s, known
}

func compare(t interface{ Errorf(string, ...any) }, p *page, all []series) {
	for _, rank := range []uint32{0, 1, 7} {
		for _, alone := range []bool{true, false} {
			got, known := ofPage(p, rank, alone)
			want, wantKnown := twin(all, rank, alone)
			if diff := gocmp.Diff(want, got); diff != "" || known != wantKnown {
				t.Errorf("rank %d, alone %v, known %v, want %v: %s", rank, alone, known, wantKnown, diff)
			}
		}
	}
}

var decoys = []string{
	"vllm:num_requests_waiting_total", "vllm:num_requests", "vllm:time_to_first_token_seconds_bucket", "vllm", "sglang:num_queue_reqs_x",
	"trtllm_num", "nv_gpu_utilization", "dynamo_component_", "process_cpu_seconds_total", "_vllm:num_requests_waiting",
}

// line is a series as it is written.
type line struct {
	name   string
	labels []string // name="value"
	value  string
	time   string
}

func (l line) String() string {
	text := l.name
	if len(l.labels) > 0 {
		text += "{" + strings.Join(l.labels, ",") + "}"
	}
	text += " " + l.value
	if l.time != "" {
		text += " " + l.time
	}
	return text
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func drawLine(t *rapid.T) line {
	var l line
	own := map[string]string{}
	m := rapid.SampledFrom(meanings).Draw(t, "meaning")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		l.name = rapid.SampledFrom(decoys).Draw(t, "decoy")
	case 1, 2:
		l.name = "vllm:lora_requests_info"
		text := rapid.SampledFrom([]string{"", "a", "a,b", " a , b,,", `a\b,"c"`, "ä\n,x"})
		own["running_lora_adapters"], own["waiting_lora_adapters"] = text.Draw(t, "running"), text.Draw(t, "waiting")
		own["max_lora"] = rapid.SampledFrom([]string{"0", "4", "None", "-1"}).Draw(t, "max")
	default:
		l.name = m.name
		if m.label != "" {
			own[m.label] = rapid.SampledFrom([]string{m.is, m.is, "used"}).Draw(t, m.label)
		}
		for _, other := range meanings {
			if other.name == m.name && other.in != "" {
				own[other.in] = rapid.SampledFrom([]string{"16", "1024", "0", "None", "1.5", "4294967295", "99999999999"}).Draw(t, other.in)
			}
		}
	}
	if r := rapid.SampledFrom([]string{"", "0", "1", "2", "7", "x"}).Draw(t, "rank"); r != "" {
		own[rapid.SampledFrom([]string{"engine", "dp_rank"}).Draw(t, "of")] = r
	}
	for _, extra := range []string{"model_name", "engine_type", "le", "priority"} {
		if rapid.Bool().Draw(t, extra) {
			own[extra] = rapid.SampledFrom([]string{"m", `a"b\c`, "x{y}z, engine=", "", "日本\n"}).Draw(t, "text")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if rapid.IntRange(0, 9).Draw(t, "leave out") > 0 {
			l.labels = append(l.labels, name+`="`+escaper.Replace(own[name])+`"`)
		}
	}
	l.labels = rapid.Permutation(l.labels).Draw(t, "labels")
	l.value = rapid.OneOf(
		rapid.SampledFrom([]string{"0", "0.0", "1", "1.0", "NaN", "+Inf", "-Inf", "-3", "1.7886264577368872e+09", "1e300", "0.28", "+7"}),
		rapid.Map(rapid.Float64Range(0, 2), func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }),
		rapid.Map(rapid.IntRange(0, 5000), func(v int) string { return strconv.Itoa(v) + ".0" }),
	).Draw(t, "value")
	if rapid.IntRange(0, 3).Draw(t, "timed") == 0 {
		l.time = rapid.SampledFrom([]string{"1", "1700000000000", "1700000000001", "-5"}).Draw(t, "time")
	}
	return l
}

// TestScanAgreesWithPrometheus: whatever order, escapes, timestamps, exemplars, line
// ends and lines in between a page has, its figures are those that Prometheus's own
// parser finds.
func TestScanAgreesWithPrometheus(t *testing.T) {
	var p page // used again, as in a scraper
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(drawLine), 0, 25).Draw(t, "lines")
		var plain, odd bytes.Buffer
		for _, l := range lines {
			fmt.Fprintln(&plain, l)
		}
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		for _, l := range rapid.Permutation(lines).Draw(t, "order") {
			odd.WriteString(rapid.SampledFrom([]string{"", "", " ", "# HELP vllm:num_requests_waiting 5\n", "\n", "# TYPE x gauge\r\n", "vllm:num_requests_waiting\n", "vllm:num_requests_waiting{engine=\"0\"\n"}).Draw(t, "before"))
			text := l.String()
			if rapid.Bool().Draw(t, "spaces") && len(l.labels) > 0 {
				text = l.name + " { " + strings.Join(l.labels, " ,\t") + ", }\t " + l.value + "  " + l.time
			}
			odd.WriteString(text + rapid.SampledFrom([]string{"", " ", ` # {trace_id="x y"} 1.5 2`}).Draw(t, "after") + end)
		}
		odd.WriteString(rapid.SampledFrom([]string{"", "# EOF", "# EOF\n"}).Draw(t, "eof"))
		all, err := parsePlain(plain.Bytes())
		if err != nil {
			t.Fatalf("%v in\n%s", err, plain.Bytes())
		}
		p.scan(odd.Bytes())
		compare(t, &p, all)
		if t.Failed() {
			t.Logf("page:\n%s", odd.Bytes())
		}
	})
}

// elsewhere are forms that the scanner does not read: names in quotes, and values
// without a space before them, which the format does not have either.
var elsewhere = regexp.MustCompile(`[{,][ \t]*"|(?m)^[ \t]*[a-zA-Z0-9_:]+[+.-]`)

// FuzzScan: a page that Prometheus can read says the same to the scanner, and none
// makes it panic.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		vllmPage, sglangPage, trtllmPage, tritonPage, dynamoPage,
		"vllm:num_requests_waiting 1", "vllm:num_requests_waiting{} 1 2\n", "vllm:num_requests_waiting{engine=\"\\\\\"} 1\n", "sglang:token_usage\t0x1p-2\n", "\n\r\n{",
		"nv_trt_llm_request_metrics{request_type=\"wai\\nting\",} +Inf -5\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var p page
		p.scan(text)
		all, err := parsePlain(text)
		if err != nil || elsewhere.Match(text) || bytes.Contains(text, []byte("TYPE")) {
			ofPage(&p, 0, true)
			return
		}
		compare(t, &p, all)
	})
}
