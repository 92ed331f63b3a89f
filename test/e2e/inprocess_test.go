package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// inProcess is the tokenizer of a picker that has a model's files.
func inProcess(dir string) string {
	return `  tokenizer:
    engine: {timeout: 30s}
    inProcess:
      source: {directory: {path: ` + dir + `}}
      parity: {sampleEvery: 1, sampleInterval: 1ms, recheckInterval: 500ms}
`
}

// TestTokensInProcess has a model's tokenizer and template in the picker and in
// the workers: chats become tokens in the picker, stick to their worker, and live
// requests are found to agree.
func TestTokensInProcess(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	testmodels.WriteSmall(t, files, testmodels.ChatML)
	s := newStack(t)
	prefill := s.sims(2, "prefill", fleet.Prefill, "--tokenizer", files)
	decode := s.sims(2, "decode", fleet.Decode, "--tokenizer", files)
	s.list(join(prefill, decode)...)
	s.startPicker(pickerOptions{spec: inProcess(files)})
	s.startGateway(gateway.Config{})
	for _, shape := range []string{"chat", "chat_options", "chat_reasoning", "chat_tools", "completion"} {
		s.awaitMetric(1, "warmpath_in_process_state", `shape="`+shape+`"`, `state="verified"`)
	}
	const chats = 5
	for i := range chats {
		system := strings.Repeat("你是一个乐于助人的助手。 You answer briefly, in the language of the question. ", 5+i)
		first, _ := s.chat(system, "Where is the key?")
		s.awaitEvents(first)
		s.idle()
		second, cached := s.chat(system, "And the door?")
		if second.prefill() != first.prefill() || cached < 15*blockSize {
			t.Errorf("chat %d: computed by %q with %d tokens cached, want %q", i, second.prefill(), cached, first.prefill())
		}
	}
	if n := s.metric("warmpath_prompts_total", `source="in_process"`); n != 2*chats {
		t.Errorf("%v prompts became tokens in process, want %d", n, 2*chats)
	}
	for _, source := range []string{"engine", "unknown"} {
		if n := s.metric("warmpath_prompts_total", `source="`+source+`"`); n != 0 {
			t.Errorf("%v prompts have the source %s", n, source)
		}
	}
	eventually(t, "live requests were compared", func() bool {
		return s.metric("warmpath_parity_checks_total", `origin="live"`, `outcome="agree"`) >= chats
	})
	if n := s.metric("warmpath_parity_checks_total", `outcome="differ"`); n != 0 {
		t.Errorf("%v comparisons differ", n)
	}
	if n := s.metric("warmpath_prompt_memo_lookups_total", `result="hit"`); n < chats {
		t.Errorf("the memo knew the beginning of %v prompts, want %d", n, chats)
	}
}

// TestWorkerWithAnotherTemplate joins a pool during a roll-out: it is found and
// named, with the token where it parts; tools go to an engine, plain chats do not.
func TestWorkerWithAnotherTemplate(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	testmodels.WriteSmall(t, files, testmodels.ChatML)
	s := newStack(t)
	other := filepath.Join(s.dir, "other.jinja")
	if err := os.WriteFile(other, []byte(strings.Replace(testmodels.ChatML, "<|im_start|>tools", "<|im_start|>functions", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	same := s.sim("same-0", fleet.Aggregated, "--tokenizer", files)
	s.list(same)
	s.startPicker(pickerOptions{spec: inProcess(files)})
	s.startGateway(gateway.Config{})
	s.awaitMetric(1, "warmpath_in_process_state", `shape="chat_tools"`, `state="verified"`)

	odd := s.sim("odd-0", fleet.Aggregated, "--tokenizer", files, "--chat-template", other)
	s.list(same, odd)
	s.awaitMetric(1, "warmpath_in_process_state", `shape="chat_tools"`, `state="mismatch"`)
	told := s.picker.awaitLog(t, "prompts come to other token ids here than in the engine, which is asked for them until they agree")
	if told.text("engine") != "http://"+odd.addr() || told.text("shape") != "chat_tools" || told.text("case") != "tools" || told["token"] != 1.0 {
		t.Errorf("the log tells of %q, %q, %q", told.text("engine"), told.text("shape"), told.text("case"))
	}
	const tools = `{"model":"` + model + `","max_tokens":1,"messages":[{"role":"user","content":"sesame"}],"tools":[{"type":"function","function":{"name":"open"}}]}`
	s.ok(s.post("/v1/chat/completions", tools, nil))
	s.chat("Be brief.", "sesame")
	for source, want := range map[string]float64{"engine": 1, "in_process": 1, "unknown": 0} {
		if n := s.metric("warmpath_prompts_total", `source="`+source+`"`); n != want {
			t.Errorf("%v prompts have the source %s, want %v", n, source, want)
		}
	}
	s.list(same) // the roll-out is undone
	s.awaitMetric(1, "warmpath_in_process_state", `shape="chat_tools"`, `state="verified"`)
	s.ok(s.post("/v1/chat/completions", tools, nil))
	if n := s.metric("warmpath_prompts_total", `source="in_process"`); n != 2 {
		t.Errorf("%v prompts became tokens in process, want 2", n)
	}
	if strings.Contains(s.picker.stderr.String(), "sesame") {
		t.Error("the log has a prompt")
	}
}

// awaitEvents waits until the index holds the prompt that a worker has computed.
func (s *stack) awaitEvents(r reply) {
	s.t.Helper()
	var answer struct {
		Usage struct {
			Tokens int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		s.t.Fatal(err)
	}
	blocks := float64(answer.Usage.Tokens / blockSize)
	eventually(s.t, "the events of "+r.prefill()+" came", func() bool { return s.metric("warmpath_index_entries") >= blocks })
}
