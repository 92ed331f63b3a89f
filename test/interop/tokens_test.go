package interop

import (
	"fmt"
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
			if got, err := c.picker.sum(t.Context(), m.name, m.labels...); err != nil || got != m.want {
				t.Errorf("%s %v is %v, %v, want %v", m.name, m.labels, got, err, m.want)
			}
		}
	})
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
