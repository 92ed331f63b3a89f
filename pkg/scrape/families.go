package scrape

// quantity is one thing that a page says of an engine.
type quantity uint8

const (
	waiting   quantity = iota // requests in the engine's queue
	running                   // requests that it computes
	pending                   // requests that Triton's scheduler has before the engine has them
	kvUse                     // share of KV blocks in use
	kvBlocks                  // KV blocks
	kvTokens                  // tokens that those have room for
	blockSize                 // tokens in a block
	quantities
)

// label is a label that a figure depends on.
type label uint8

const (
	engineLabel label = iota // data-parallel rank (vLLM)
	rankLabel                // the same (SGLang, Dynamo)
	requestType              // Triton
	blockType                // Triton
	blockSizeLabel
	gpuBlocks
	sizeTokens
	pageSize
	pages
	runningAdapters
	waitingAdapters
	maxAdapters
	labels
)

// labelOf returns the label of a name.
func labelOf(name []byte) (label, bool) {
	switch string(name) {
	case "engine":
		return engineLabel, true
	case "dp_rank":
		return rankLabel, true
	case "request_type":
		return requestType, true
	case "kv_cache_block_type":
		return blockType, true
	case "block_size":
		return blockSizeLabel, true
	case "num_gpu_blocks":
		return gpuBlocks, true
	case "kv_cache_size_tokens":
		return sizeTokens, true
	case "page_size":
		return pageSize, true
	case "num_pages":
		return pages, true
	case "running_lora_adapters":
		return runningAdapters, true
	case "waiting_lora_adapters":
		return waitingAdapters, true
	case "max_lora":
		return maxAdapters, true
	}
	return 0, false
}

// form is how a family says what it says.
type form uint8

const (
	gauge    form = iota // the value
	byLabel              // the value; of what is in a label
	inLabels             // labels with numbers; the value is 1
	lora                 // labels with lists of adapters; the value is a time
)

// family is one that counts. Its name begins with that of its engine.
type family struct {
	name string
	form form
	of   quantity // of a gauge

	by    label            // of byLabel
	cases []caseOf         // of byLabel
	in    []labelledNumber // of inLabels
}

type caseOf struct {
	value string
	of    quantity
}

type labelledNumber struct {
	label label
	of    quantity
}

// exporter is who writes families: an engine, or Dynamo around one. The names are
// those of engines.md 2 and endpoint-picker.md 4.2.
type exporter struct {
	prefix   string
	families []family
}

// exporters all begin with different letters.
var exporters = []exporter{
	{"vllm:", []family{
		{name: "num_requests_waiting", of: waiting},
		{name: "num_requests_running", of: running},
		{name: "kv_cache_usage_perc", of: kvUse},
		{name: "gpu_cache_usage_perc", of: kvUse}, // until 2025
		{name: "cache_config_info", form: inLabels, in: []labelledNumber{
			{blockSizeLabel, blockSize},
			{gpuBlocks, kvBlocks},
			{sizeTokens, kvTokens},
		}},
		{name: "lora_requests_info", form: lora},
	}},
	{"sglang:", []family{
		{name: "num_queue_reqs", of: waiting},
		{name: "num_running_reqs", of: running},
		{name: "token_usage", of: kvUse},
		{name: "cache_config_info", form: inLabels, in: []labelledNumber{{pageSize, blockSize}, {pages, kvBlocks}}},
	}},
	{"trtllm_", []family{
		{name: "num_requests_waiting", of: waiting},
		{name: "num_requests_running", of: running},
		{name: "kv_cache_utilization", of: kvUse},
		{name: "kv_cache_tokens_per_block", of: blockSize},
		{name: "kv_cache_max_blocks", of: kvBlocks},
	}},
	{"nv_", []family{
		{name: "trt_llm_request_metrics", form: byLabel, by: requestType, cases: []caseOf{{"waiting", waiting}, {"scheduled", running}}},
		{name: "trt_llm_kv_cache_block_metrics", form: byLabel, by: blockType, cases: []caseOf{
			{"fraction", kvUse},
			{"tokens_per", blockSize},
			{"max", kvBlocks},
		}},
		{name: "inference_pending_request_count", of: pending}, // its twin for running, nv_inference_exec_count, only ever grows
	}},
	{"dynamo_component_", []family{
		{name: "gpu_cache_usage_percent", of: kvUse}, // 0 to 1, in spite of its name
		{name: "total_blocks", of: kvBlocks},
		{name: "kvstats_gpu_cache_usage_percent", of: kvUse}, // until Dynamo 0.9
		{name: "kvstats_total_blocks", of: kvBlocks},
	}},
}

// familyOf returns the family that a line begins with, and what comes after its
// name; nil for all that do not count.
func familyOf(line []byte) (f *family, rest []byte) {
	var x *exporter
	for i := range exporters {
		if exporters[i].prefix[0] == line[0] {
			x = &exporters[i]
			break
		}
	}
	if x == nil || len(line) < len(x.prefix) || string(line[:len(x.prefix)]) != x.prefix {
		return nil, nil
	}
	line = line[len(x.prefix):]
	for i := range x.families {
		f := &x.families[i]
		n := len(f.name)
		if len(line) > n && line[0] == f.name[0] && string(line[:n]) == f.name && (line[n] == '{' || blank(line[n])) {
			return f, line[n:]
		}
	}
	return nil, nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
