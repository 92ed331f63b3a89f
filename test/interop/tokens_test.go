package interop

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// inProcess is the tokenizer of a picker that takes the model's files from the
// workers.
func (s *Stack) inProcess(t *testing.T) map[string]any {
	t.Helper()
	objects, err := s.discovered("mdc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	for _, object := range objects {
		name := filepath.Join(dir, fmt.Sprintf("card-%d.json", len(files)))
		if err := os.WriteFile(name, object, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	return map[string]any{"inProcess": map[string]any{"source": map[string]any{"dynamo": map[string]any{"cardFiles": files}}}}
}

// TestChatInProcess: chats and texts become token ids in the picker, from the
// files that the workers serve, and they are the ids that Dynamo computes: the
// blocks of a prompt are found on the worker that told of them.
func TestChatInProcess(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		c := startChain(t, StackConfig{
			Version: version, ServeFiles: true, Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		// Dynamo's frontend tells nobody its token ids.
		c.waitMetric(t, 1, "warmpath_in_process_state", `shape="chat"`, `state="unchecked"`)
		want := expect{}
		matched := 0.0
		for i := range 4 {
			chat := Chat{Model: c.stack.Model(), MaxTokens: 4, Messages: []Message{
				{Role: "system", Content: fmt.Sprintf("%d %s", i, strings.Repeat("Du bist eine höfliche Maschine. 你好。", 4))},
				{Role: "user", Content: "Wo ist der Schlüssel?"},
			}}
			first, err := c.send(t.Context(), nil, chat, len(chat.Tokens()))
			if err != nil {
				t.Fatal(err)
			}
			want.add(first.holder(), chat.Tokens())
			want.waitHeld(t, c.events)
			waitIndex(t, c.picker, c.events)
			c.picker.waitIdle(t)
			second, err := c.send(t.Context(), nil, chat, len(chat.Tokens()))
			if err != nil {
				t.Fatal(err)
			}
			if second.holder() != first.holder() {
				t.Errorf("chat %d was picked for %s, want %s, which holds it", i, second.holder(), first.holder())
			}
			matched += float64(len(chat.Tokens()) / blockSize)
		}
		for _, m := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{8, "warmpath_prompts_total", []string{`source="in_process"`}},
			{matched, "warmpath_prompt_blocks_total", []string{`kind="matched"`}},
			{2 * matched, "warmpath_prompt_blocks_total", []string{`kind="total"`}},
		} {
			c.waitMetric(t, m.want, m.name, m.labels...)
		}
	})
}

// shaped are requests of the other two APIs, and the chats that Dynamo makes of
// them, in all releases the same.
func shaped() []struct {
	request Shaped
	chat    []Message
} {
	type obj = map[string]any
	type list = []any
	long := strings.Repeat("Du bist eine höfliche Maschine. 你好。", 3)
	text := func(kind, s string) obj { return obj{"type": kind, "text": s} }
	return []struct {
		request Shaped
		chat    []Message
	}{
		{
			Shaped{Path: "/v1/responses", Body: obj{"instructions": "1 " + long, "input": "Wo?", "max_output_tokens": 4}},
			[]Message{{"system", "1 " + long}, {"user", "Wo?"}},
		},
		{
			Shaped{Path: "/v1/responses", Body: obj{"max_output_tokens": 4, "input": list{
				obj{"role": "developer", "content": list{text("input_text", "2 "), text("input_text", long)}},
				obj{"type": "message", "role": "user", "content": list{text("input_text", "a"), text("input_text", "b")}},
				obj{"type": "reasoning", "id": "r", "summary": list{text("summary_text", "hm"), text("summary_text", "!")}},
				obj{"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": list{obj{"type": "output_text", "text": "c", "annotations": list{}}}},
				obj{"role": "assistant", "content": "d"},
				obj{"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
				obj{"type": "function_call_output", "call_id": "x", "output": list{text("input_text", "e"), text("input_text", "f")}},
				obj{"role": "system", "content": "g"},
				obj{"role": "user", "content": "h"},
			}}},
			[]Message{{"system", "2 " + long}, {"user", "a\nb"}, {"assistant", "<think>hm!</think>cd"}, {"tool", "ef"}, {"system", "g"}, {"user", "h"}},
		},
		{
			Shaped{Path: "/v1/messages", Body: obj{"max_tokens": 4, "system": "3 " + long, "messages": list{obj{"role": "user", "content": "Wo?"}}}},
			[]Message{{"system", "3 " + long}, {"user", "Wo?"}},
		},
		{
			Shaped{Path: "/v1/messages", Body: obj{"max_tokens": 4, "system": list{text("text", "4 "), text("text", long)}, "messages": list{
				obj{"role": "user", "content": list{text("text", "a"), text("text", "b")}},
				obj{"role": "assistant", "content": list{
					obj{"type": "thinking", "thinking": "hm", "signature": "s"},
					text("text", "c"),
					obj{"type": "tool_use", "id": "x", "name": "f", "input": obj{}},
					obj{"type": "thinking", "thinking": "so", "signature": "s"},
					obj{"type": "tool_use", "id": "y", "name": "f", "input": obj{}},
					text("text", "d"),
				}},
				obj{"role": "user", "content": list{
					text("text", "e"),
					obj{"type": "tool_result", "tool_use_id": "x", "content": list{text("text", "f"), text("text", "g")}},
					obj{"type": "tool_result", "tool_use_id": "y", "content": "h"},
					text("text", "i"),
				}},
			}}},
			[]Message{
				{"system", "4 \n" + long},
				{"user", "ab"},
				{"assistant", "<think>hm</think><think>so</think>cd"},
				{"user", "e"},
				{"tool", "fg"},
				{"tool", "h"},
				{"user", "i"},
			},
		},
	}
}

// TestShapesInProcess: requests of the other two APIs become the token ids that
// Dynamo makes of them: the blocks of a prompt are found on the worker that told of
// them.
func TestShapesInProcess(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		c := startChain(t, StackConfig{
			Version: version, ServeFiles: true, Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		c.waitMetric(t, 1, "warmpath_in_process_state", `shape="other"`, `state="unchecked"`)
		want := expect{}
		matched := 0.0
		sent := 0
		for i, s := range shaped() {
			s.request.Model = c.stack.Model()
			tokens := Chat{Messages: s.chat}.Tokens()
			sent++
			if version == "1.2.1" && s.request.Path == "/v1/messages" {
				c.wantUnpinned(t, s.request)
				continue
			}
			sent++
			holder := c.sendShaped(t, s.request, len(tokens))
			want.add(holder, tokens)
			want.waitHeld(t, c.events)
			waitIndex(t, c.picker, c.events)
			c.picker.waitIdle(t)
			if second := c.sendShaped(t, s.request, len(tokens)); second != holder {
				t.Errorf("request %d was picked for %s, want %s, which holds it", i, second, holder)
			}
			matched += float64(len(tokens) / blockSize)
			c.waitMetric(t, matched, "warmpath_prompt_blocks_total", `kind="matched"`)
		}
		c.waitMetric(t, float64(sent), "warmpath_prompts_total", `source="in_process"`)
	})
}

// wantUnpinned wants a request refused by a frontend in direct mode that does not
// read whom it is for: in 1.2, that of Anthropic requests.
func (c *chain) wantUnpinned(t *testing.T, q Shaped) {
	t.Helper()
	r, err := Post(t.Context(), c.url, nil, q)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != http.StatusInternalServerError || !strings.Contains(string(r.Body), "Worker ID required") {
		t.Errorf("%s: status %d: %s", q.Path, r.Status, r.Body)
	}
}

// sendShaped posts a request of n prompt tokens to Envoy and returns the rank that
// it was sent to.
func (c *chain) sendShaped(t *testing.T, q Shaped, n int) fleet.Key {
	t.Helper()
	before := map[uint64]int{}
	for id, s := range c.sidecars {
		before[id], _ = s.Count()
	}
	r, err := Post(t.Context(), c.url, nil, q)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != http.StatusOK || r.PromptTokens != n {
		t.Fatalf("%s: status %d, %d prompt tokens, want %d: %s", q.Path, r.Status, r.PromptTokens, n, r.Body)
	}
	for id, s := range c.sidecars {
		if after, _ := s.Count(); after > before[id] {
			return fleet.Key{ID: id}
		}
	}
	t.Fatalf("%s: no endpoint got it", q.Path)
	return fleet.Key{}
}

// waitMetric waits until a metric of the picker has a value.
func (c *chain) waitMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		got, err := c.picker.sum(ctx, name, labels...)
		if err == nil && got != want {
			err = fmt.Errorf("%s %v is %v, want %v", name, labels, got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
