package chat

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// dynamoDump is what the recorded template begins with: what a template sees. The
// recorded one also printed the switches of thinking; TestDynamoThinking is about
// those.
const (
	dynamoDump    = "{{ messages|tojson }}\n{{ tools|tojson }}"
	readsThoughts = "{% if false %}{{ messages[0].reasoning_content }}{% endif %}"
)

// recordedDump is a request, and the prompts that Dynamo's workers were given for
// it, by release. A release that refused the request is not there.
type recordedDump struct {
	Path, Name string
	Body       json.RawMessage
	Thoughts   bool   // the template reads reasoning_content
	Refused    string // "always", or "1.2": as long as release 1.2 counts
	Prompts    []struct {
		Releases []string
		Text     string
	}
}

func (r *recordedDump) kind() prompt.Kind {
	switch r.Path {
	case "/v1/responses":
		return prompt.Responses
	case "/v1/messages":
		return prompt.AnthropicMessages
	}
	return prompt.Chat
}

// firstLines are the lines that dynamoDump prints.
func firstLines(text string) string {
	lines := strings.SplitAfterN(text, "\n", 3)
	return strings.TrimSuffix(strings.Join(lines[:min(2, len(lines))], ""), "\n")
}

// sameValues compares dumps but for the order of keys and the way JSON is printed,
// which are Dynamo 1.2's own.
func sameValues(t *testing.T, a, b string) bool {
	t.Helper()
	read := func(s string) (out []any) {
		for line := range strings.Lines(s) {
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		return out
	}
	return reflect.DeepEqual(read(a), read(b))
}

// refused reports whether the request is refused: for some releases of Dynamo it
// makes another prompt.
func (r *recordedDump) refused(since13 bool) bool {
	return len(r.Prompts) > 0 && (r.Refused == "always" || r.Refused == "1.2" && !since13)
}

// TestDynamoRecorded renders requests of all three kinds for which real Dynamo,
// releases 1.2.1 to 1.6.1, told what its template sees. What is rendered must be
// what all of them saw.
func TestDynamoRecorded(t *testing.T) {
	rendered := map[prompt.Kind]int{}
	for _, r := range readJSON[[]recordedDump](t, "testdata/dynamo.json") {
		for _, since13 := range []bool{false, true} {
			source := dynamoDump
			if r.Thoughts {
				source += readsThoughts
			}
			tmpl := compile(t, source, Options{Style: Dynamo, DropTools: true, Since13: since13})
			got, err := tmpl.Render(r.kind(), r.Body, goldenNow)
			var e *Error
			switch {
			case err != nil && !errors.As(err, &e), err == nil && r.refused(since13), err != nil && len(r.Prompts) > 0 && !r.refused(since13):
				t.Errorf("%s %s, since 1.3 %v: %q, %v", r.Path, r.Name, since13, got.Text, err)
			case err == nil:
				rendered[r.kind()]++
				r.check(t, got, since13)
			}
		}
	}
	for kind, n := range map[prompt.Kind]int{prompt.Chat: 80, prompt.Responses: 100, prompt.AnthropicMessages: 120} {
		if rendered[kind] < n {
			t.Errorf("only %d requests of the kind %v were rendered", rendered[kind], kind)
		}
	}
}

// check compares a prompt with that of each release.
func (r *recordedDump) check(t *testing.T, got Prompt, since13 bool) {
	t.Helper()
	if got.AddSpecial || got.AnySpecial {
		t.Errorf("%s %s: special tokens", r.Path, r.Name)
	}
	for _, p := range r.Prompts {
		want := firstLines(p.Text)
		if slices.Contains(p.Releases, "1.2.1") {
			if !since13 && !sameValues(t, got.Text, want) {
				t.Errorf("%s %s, release 1.2.1:\n got %s\nwant %s", r.Path, r.Name, got.Text, want)
			}
			if len(p.Releases) == 1 { // it prints JSON in its own way
				continue
			}
		}
		if got.Text != want {
			t.Errorf("%s %s, releases %v:\n got %s\nwant %s", r.Path, r.Name, p.Releases, got.Text, want)
		}
	}
}

// TestDynamoThinking: the switches of thinking are what all releases set, or the
// request is refused.
func TestDynamoThinking(t *testing.T) {
	const (
		user   = `"messages":[{"role":"user","content":"x"}]`
		qwen   = "{% if enable_thinking is defined and enable_thinking is false %}off{% endif %}"
		other  = "{% if thinking is defined and thinking %}on{% endif %}"
		effort = "{{ reasoning_effort }}"
		kept   = "{% if truncate_history_thinking is defined and not truncate_history_thinking %}kept{% endif %}"
	)
	for name, tc := range map[string]struct {
		kind           prompt.Kind
		template, body string
		want           string // "refused"
	}{
		"kwargs":             {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"enable_thinking":false}`, "off"},
		"other kwargs":       {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"thinking":false}`, "refused"},
		"other, on":          {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"thinking":true}`, ""},
		"mode":               {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"thinking_mode":"disabled"}`, "refused"},
		"odd":                {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"enable_thinking":"no"}`, "refused"},
		"both":               {prompt.Chat, qwen, user + `,"chat_template_kwargs":{"enable_thinking":false,"thinking":true}`, "refused"},
		"not used":           {prompt.Chat, "x", user + `,"chat_template_kwargs":{"enable_thinking":false,"thinking":true}`, "x"},
		"effort":             {prompt.Chat, qwen, user + `,"reasoning_effort":"low"`, ""},
		"effort none":        {prompt.Chat, qwen, user + `,"reasoning_effort":"none"`, "refused"},
		"effort, shown":      {prompt.Chat, effort, user + `,"reasoning_effort":"low"`, "refused"},
		"effort, kwargs":     {prompt.Chat, effort, user + `,"chat_template_kwargs":{"reasoning_effort":"low"}`, "low"},
		"generation":         {prompt.Chat, "{{ add_generation_prompt }}", user + `,"chat_template_kwargs":{"add_generation_prompt":false}`, "True"},
		"responses":          {prompt.Responses, qwen, `"input":"x","chat_template_kwargs":{"enable_thinking":false}`, "refused"},
		"responses, on":      {prompt.Responses, qwen, `"input":"x","chat_template_kwargs":{"enable_thinking":true}`, ""},
		"responses, effort":  {prompt.Responses, qwen, `"input":"x","reasoning":{"effort":"none"}`, "refused"},
		"responses, low":     {prompt.Responses, qwen, `"input":"x","reasoning":{"effort":"low"}`, ""},
		"anthropic":          {prompt.AnthropicMessages, qwen, user, ""},
		"anthropic, off":     {prompt.AnthropicMessages, qwen, user + `,"thinking":{"type":"disabled"}`, ""},
		"anthropic, kwargs":  {prompt.AnthropicMessages, qwen, user + `,"chat_template_kwargs":{"enable_thinking":false}`, ""},
		"anthropic, default": {prompt.AnthropicMessages, other, user, "refused"},
		"anthropic, no":      {prompt.AnthropicMessages, other, user + `,"thinking":{"type":"disabled"}`, ""},
		"anthropic, on":      {prompt.AnthropicMessages, "{{ enable_thinking }}", user + `,"thinking":{"type":"enabled"}`, "True"},
		"anthropic, history": {prompt.AnthropicMessages, kept, user, "refused"},
		"anthropic, odd":     {prompt.AnthropicMessages, qwen, user + `,"thinking":{"type":"some"}`, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := compile(t, tc.template, Options{Style: Dynamo, DropTools: true, Since13: true})
			got, err := tmpl.Render(tc.kind, []byte(`{`+tc.body+`}`), goldenNow)
			if tc.want == "refused" {
				wantCode(t, err, CodeRequest)
			} else if err != nil || got.Text != tc.want {
				t.Errorf("got %q, %v, want %q", got.Text, err, tc.want)
			}
		})
	}
}

// TestDynamoQwen3 renders requests with the template of Qwen3, and wants the prompts
// that Dynamo's workers were given, to the byte.
func TestDynamoQwen3(t *testing.T) {
	text, special := source(t, "npm-qwen3")
	rendered := map[bool]int{}
	for _, r := range readJSON[[]recordedDump](t, "testdata/dynamo_qwen3.json") {
		for _, since13 := range []bool{false, true} {
			tmpl := compile(t, text, Options{Tokens: special, Style: Dynamo, DropTools: true, Since13: since13})
			got, err := tmpl.Render(r.kind(), r.Body, goldenNow)
			var e *Error
			if errors.As(err, &e) && (e.Code == CodeRequest || e.Code == CodeRaised) {
				continue
			}
			if err != nil {
				t.Errorf("%s %s, since 1.3 %v: %v", r.Path, r.Name, since13, err)
				continue
			}
			rendered[since13]++
			for _, p := range r.Prompts {
				if since13 && slices.Equal(p.Releases, []string{"1.2.1"}) {
					continue
				}
				if got.Text[:got.Usable] != p.Text[:min(got.Usable, len(p.Text))] || got.Usable == len(got.Text) && got.Text != p.Text {
					t.Errorf("%s %s, since 1.3 %v, releases %v:\n got %q\nwant %q", r.Path, r.Name, since13, p.Releases, got.Text, p.Text)
				}
			}
		}
	}
	if rendered[false] != 101 || rendered[true] != 138 {
		t.Errorf("%v of 165 requests were rendered", rendered)
	}
}

// TestDynamoForms: what depends on how the template reads content and calls, as
// Dynamo showed it.
func TestDynamoForms(t *testing.T) {
	const (
		parts = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'text' %}<{{ p.text }}>{% endif %}{% endfor %}{% endfor %}"
		two   = `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`
		calls = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments"
		call  = `{"messages":[{"role":"assistant","content":"x","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":1,  \"a\":2}"}}]}]}`
		use   = `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"b": "é<", "a":1%s}}]}]}`
	)
	for name, tc := range map[string]struct {
		kind           prompt.Kind
		template, body string
		old            bool
		want           string // "refused"
	}{
		"chat":            {prompt.Chat, parts, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":` + two + `},{"role":"assistant","content":"x","reasoning_content":"r"}]}`, true, "[system]<s>[user]<a><b>[assistant]<<think>r</think>><x>"},
		"anthropic":       {prompt.AnthropicMessages, parts, `{"system":"s","messages":[{"role":"user","content":` + two + `}]}`, true, "[system]<s>[user]<ab>"},
		"responses":       {prompt.Responses, parts, `{"instructions":"s","input":[{"type":"message","role":"user","content":` + strings.ReplaceAll(two, `"text",`, `"input_text",`) + `}]}`, true, "[system]<s>[user]<a><b>"},
		"calls, 1.2":      {prompt.Chat, calls + "|tojson }}{% endfor %}{% endfor %}", call, true, "refused"},
		"calls":           {prompt.Chat, calls + "|tojson }}{% endfor %}{% endfor %}", call, false, `{"b": 1, "a": 2}`},
		"calls, bare":     {prompt.Chat, calls + " }}{% endfor %}{% endfor %}", call, false, "refused"},
		"calls, as given": {prompt.Chat, calls + " if c.function.arguments is string }}{% endfor %}{% endfor %}", call, false, `{"b":1,  "a":2}`},
		"use":             {prompt.AnthropicMessages, calls + " if c.function.arguments is string }}{% endfor %}{% endfor %}", strings.Replace(use, "%s", `,"c":2.50`, 1), false, `{"b":"é<","a":1,"c":2.5}`},
		"use, power":      {prompt.AnthropicMessages, calls + " if c.function.arguments is string }}{% endfor %}{% endfor %}", strings.Replace(use, "%s", `,"c":1e30`, 1), false, "refused"},
		"tools, 1.2":      {prompt.Chat, "{{ tools }}", `{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}]}`, true, "refused"},
		"tools, unseen":   {prompt.Chat, "x", `{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}]}`, true, "x"},
		"role":            {prompt.Chat, "x", `{"messages":[{"role":"function","content":"x"}]}`, true, "refused"},
		"generation":      {prompt.Chat, "{{ add_generation_prompt }}", `{"messages":[{"role":"assistant","content":"x"}]}`, true, "True"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compile(t, tc.template, Options{Style: Dynamo, Since13: !tc.old}).Render(tc.kind, []byte(tc.body), goldenNow)
			if tc.want == "refused" {
				wantCode(t, err, CodeRequest)
			} else if err != nil || got.Text != tc.want {
				t.Errorf("got %q, %v, want %q", got.Text, err, tc.want)
			}
		})
	}
}
