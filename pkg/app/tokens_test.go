package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/simengine"
)

const chatPath = "/v1/chat/completions"

// startEngine runs a simulated worker with the tokenizer and template in a folder
// until the test ends, and returns its line in a list of workers.
func startEngine(t *testing.T, name, dir, nats string) (line string) {
	t.Helper()
	tokenize, err := LoadTokenizer(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	e := simulated(t, simengine.Config{
		Name: name, Model: "m", BlockSize: 4, Tokenize: tokenize, NATSURL: nats, Namespace: "ns",
		Role: fleet.Aggregated, Generation: dynamo.Gen14,
	})
	addr := netip.MustParseAddrPort(e.Addr())
	return fmt.Sprintf("- {name: %s, address: %s, ports: [%d]}\n", name, addr.Addr(), addr.Port())
}

// simulated runs a simulated worker until the test ends.
func simulated(t *testing.T, cfg simengine.Config) *simengine.Engine {
	t.Helper()
	e, err := simengine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

// inProcessSpec is a spec with a tokenizer in process.
func inProcessSpec(dir, more string) string {
	return noEvents + `
tokenizer:
  engine: {timeout: 30s}
  inProcess:
    source: {directory: {path: ` + dir + `, pollInterval: 100ms}}
    parity: {sampleEvery: 1, sampleInterval: 1ns, recheckInterval: 100ms` + more + `}`
}

func chatBody(text string, more string) string {
	content, _ := json.Marshal(text) // a string can be written
	return `{"model":"m","messages":[{"role":"user","content":` + string(content) + `}]` + more + `}`
}

func state(shape, state string) string {
	return `warmpath_in_process_state{shape="` + shape + `",state="` + state + `"}`
}

func promptsFrom(name string) string { return `warmpath_prompts_total{source="` + name + `"}` }

// TestTokensInProcess with the whole picker and an engine that has the same files.
func TestTokensInProcess(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	spec := strings.Replace(inProcessSpec(dir, ""), "recheckInterval: 100ms", "recheckInterval: 24h", 1) // or it counts more
	r := start(t, spec, startEngine(t, "agg-0", dir, ""))
	r.waitReady(t)
	for _, shape := range []string{"chat", "chat_options", "chat_reasoning", "chat_tools", "completion"} {
		r.waitMetric(t, state(shape, "verified"), 1)
	}
	for path, body := range map[string]string{
		chatPath:    chatBody("open sesame", `,"tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}]`),
		completions: `{"model":"m","prompt":"open sesame, you there"}`,
	} {
		if set := r.ask(t, path, body); set["x-gateway-destination-endpoint"] == "" {
			t.Errorf("%s: picked %v", path, set)
		}
	}
	for path, body := range map[string]string{
		"/v1/messages": `{"model":"m","max_tokens":1,"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"open sesame"}]}]}`,
	} {
		before := r.metric(t, `warmpath_prompt_blocks_total{kind="total"}`)
		chat := strings.Replace(chatBody("open sesame", ""), `[{`, `[{"role":"system","content":"Be brief."},{`, 1)
		r.ask(t, chatPath, chat)
		between := r.metric(t, `warmpath_prompt_blocks_total{kind="total"}`)
		r.ask(t, path, body)
		if blocks := r.metric(t, `warmpath_prompt_blocks_total{kind="total"}`) - between; blocks != between-before || blocks == 0 {
			t.Errorf("%s has %v blocks, as a chat %v", path, blocks, between-before)
		}
	}
	// This engine renders as the picker does, so it refuses what the picker does.
	if set := r.ask(t, chatPath, chatBody("x", `,"chat_template":"{{ 1 }}"`)); set["x-gateway-destination-endpoint"] == "" {
		t.Errorf("picked %v", set)
	}
	for series, want := range map[string]float64{
		promptsFrom("in_process"): 4, promptsFrom("unknown"): 1, promptsFrom("engine"): 0,
		`warmpath_tokenizer_errors_total{reason="rejected"}`:                1,
		`warmpath_in_process_fallbacks_total{reason="unsupported_request"}`: 1,
		`warmpath_model_loads_total{result="ok"}`:                           1,
		`warmpath_parity_checks_total{origin="canned",outcome="agree"}`:     14,
		`warmpath_parity_checks_total{origin="canned",outcome="differ"}`:    0,
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	r.waitMetric(t, `warmpath_parity_checks_total{origin="live",outcome="agree"}`, 3)
	if got := r.metric(t, `warmpath_parity_checks_total{origin="live",outcome="differ"}`); got != 0 {
		t.Errorf("%v live requests differ", got)
	}
	_, page := r.get(t, "/debug/tokenizer")
	var shown tokenizerPage
	if err := json.Unmarshal([]byte(page), &shown); err != nil || shown.InProcess == nil || len(shown.InProcess.Shapes) == 0 || shown.InProcess.Memo.Misses == 0 || len(shown.Engines) != 1 || shown.Engines[0].Calls < 14 || !shown.InProcess.Shapes[0].InUse || !shown.InProcess.SpecialTokens {
		t.Errorf("page: %v, %s", err, page)
	}
	if r.log.count("sesame") > 0 || strings.Contains(page, "sesame") {
		t.Error("a prompt is shown")
	}
}

// TestReadyWaitsForFiles, for a while.
func TestReadyWaitsForFiles(t *testing.T) {
	a, _, _ := build(t, inProcessSpec(t.TempDir(), ""), aggregated)
	t.Cleanup(a.Close)
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "tokenizer: the model's files are not loaded yet") {
		t.Errorf("ready: %v", err)
	}
	a.current.Load().tokenizer.inProcess.started = time.Now().Add(-inProcessGrace)
	if err := a.Ready(); err == nil || strings.Contains(err.Error(), "tokenizer") {
		t.Errorf("ready: %v", err)
	}
}

// TestEngineWithAnotherTemplate: it is named, with the token at which it parts,
// and asked for what differs alone. When it has the same template, all is well.
func TestEngineWithAnotherTemplate(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	testmodels.WriteSmall(t, here, testmodels.ChatML)
	testmodels.WriteSmall(t, there, strings.Replace(testmodels.ChatML, "tojson", "tojson(indent=2)", 1))
	r := start(t, inProcessSpec(here, ""), startEngine(t, "agg-0", there, ""))
	r.waitReady(t)
	r.waitMetric(t, state("chat_tools", "mismatch"), 1)
	r.waitMetric(t, state("chat", "verified"), 1)
	tools := chatBody("open sesame", `,"tools":[{"type":"function","function":{"name":"f"}}]`)
	r.ask(t, chatPath, tools)
	r.ask(t, chatPath, chatBody("open sesame", ""))
	for series, want := range map[string]float64{
		promptsFrom("engine"): 1, promptsFrom("in_process"): 1,
		`warmpath_in_process_fallbacks_total{reason="mismatch"}`: 1,
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	const found = "shape=chat_tools case=tools engine=http://127.0.0.1"
	r.eventually(t, "the log tells where they part", func() bool { return r.log.count(found) > 0 })
	if r.log.count(found) != 1 || r.log.count("token=8 ") != 1 || r.log.count("sesame") > 0 {
		t.Errorf("log:\n%s", r.log)
	}
	// The picker gets the engine's template.
	testmodels.WriteSmall(t, here, strings.Replace(testmodels.ChatML, "tojson", "tojson(indent=2)", 1))
	r.waitMetric(t, state("chat_tools", "verified"), 1)
	r.ask(t, chatPath, tools)
	if got := r.metric(t, promptsFrom("in_process")); got != 2 {
		t.Errorf("%v prompts in process, want 2", got)
	}
}

// TestBrokenFiles are refused with the part or the place; engines are asked until
// there are good ones.
func TestBrokenFiles(t *testing.T) {
	good, dir := t.TempDir(), t.TempDir()
	testmodels.WriteSmall(t, good, testmodels.ChatML)
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "tokenizer.json")
	if err := os.WriteFile(half, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, inProcessSpec(dir, ""), startEngine(t, "agg-0", good, ""))
	r.waitReady(t)
	r.eventually(t, "the log tells of the broken file", func() bool { return r.log.count("the model's files cannot be loaded") >= 1 })
	r.ask(t, chatPath, chatBody("hello", ""))
	if got := r.metric(t, promptsFrom("engine")); got != 1 {
		t.Errorf("%v prompts from the engine, want 1", got)
	}
	if got := r.metric(t, `warmpath_in_process_fallbacks_total{reason="not_loaded"}`); got != 1 {
		t.Errorf("%v fallbacks counted, want 1", got)
	}
	if err := os.WriteFile(half, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r.waitMetric(t, state("chat", "verified"), 1)
	r.ask(t, chatPath, chatBody("hello", ""))
	if got := r.metric(t, promptsFrom("in_process")); got != 1 {
		t.Errorf("%v prompts in process, want 1", got)
	}
}

// TestChainsMeetEvents: what is computed in process is what a worker's events
// tell, so the next request finds the blocks of the first.
func TestChainsMeetEvents(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	ns := startNATS(t, 0)
	line := startEngine(t, "agg-0", dir, ns.ClientURL())
	spec := strings.Replace(inProcessSpec(dir, ""), noEvents, `eventPlane: {speculationTTL: 0s, nats: {url: "`+ns.ClientURL()+`", namespace: ns}}`, 1)
	r := start(t, spec, line)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	r.waitMetric(t, state("chat", "verified"), 1)
	body := chatBody(strings.Repeat("over the hills and far away, you are. ", 20), "")
	resp, err := client.Post("http://"+r.ask(t, chatPath, body)["x-gateway-destination-endpoint"]+chatPath, "application/json", strings.NewReader(strings.TrimSuffix(body, "}")+`,"max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	total := r.metric(t, `warmpath_prompt_blocks_total{kind="total"}`)
	if total < 100 {
		t.Fatalf("the prompt has %v blocks", total)
	}
	r.eventually(t, "the worker's events came", func() bool { return r.metric(t, "warmpath_index_entries") >= total })
	r.ask(t, chatPath, body)
	if got := r.metric(t, `warmpath_prompt_blocks_total{kind="matched"}`); got != total {
		t.Errorf("matched %v of %v blocks", got, total)
	}
	if got := r.metric(t, promptsFrom("in_process")); got != 2 {
		t.Errorf("%v prompts in process, want 2", got)
	}
}
