package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// dump is a template that prints what it sees. It does not loop over content, so
// that content is given as a text.
const dump = "{{ messages|tojson }} {{ tools|tojson }} {{ add_generation_prompt }}"

// partsDump is one that loops over content.
const partsDump = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ p.type }}>{% endif %}{% endfor %}{% endfor %}"

func compile(t testing.TB, text string, opts Options) *Template {
	t.Helper()
	tmpl, err := Compile(text, opts)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// wantCode wants an error with a code, and nothing of the body in its text.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want code %s", err, code)
	}
	if err != nil && strings.Contains(err.Error(), "SECRET") {
		t.Errorf("the error quotes the prompt: %v", err)
	}
}

func TestRequestsAsEnginesSeeThem(t *testing.T) {
	for name, tc := range map[string]struct {
		kind prompt.Kind
		opts Options
		body string
		want string
	}{
		"unknown fields are dropped": {
			prompt.Chat,
			Options{},
			`{"messages":[{"foo":1,"content":"x","role":"user","name":"n","tool_call_id":"i"}]}`,
			`[{"role": "user", "content": "x", "name": "n"}] null True`,
		},
		"null content": {
			prompt.Chat,
			Options{},
			`{"messages":[{"role":"assistant","content":null},{"role":"user"}]}`,
			`[{"role": "assistant", "content": ""}, {"role": "user", "content": ""}] null True`,
		},
		"tools are filled up": {
			prompt.Chat,
			Options{},
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"z":1,"function":{"strict":true,"name":"f"},"type":"function"}]}`,
			`[{"role": "user", "content": "x"}] [{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": true}, "z": 1}] True`,
		},
		"tool choice none": {
			prompt.Chat,
			Options{},
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none"}`,
			`[{"role": "user", "content": "x"}] [{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}] True`,
		},
		"tool choice none, dropped": {
			prompt.Chat,
			Options{DropTools: true},
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none"}`,
			`[{"role": "user", "content": "x"}] null True`,
		},
		"empty calls": {
			prompt.Chat,
			Options{},
			`{"messages":[{"role":"assistant","content":"x","tool_calls":[],"reasoning_content":""}]}`,
			`[{"role": "assistant", "content": "x", "reasoning": "", "reasoning_content": ""}] null True`,
		},
		"null switches": {
			prompt.Chat,
			Options{},
			`{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":null,"continue_final_message":null,"tools":null}`,
			`[{"role": "user", "content": "x"}] null True`,
		},
		"a key given twice": {
			prompt.Chat,
			Options{},
			`{"messages":[],"messages":[{"role":"user","role":"tool","content":"x"}]}`,
			`[{"role": "tool", "content": "x"}] null True`,
		},
		"dynamo": {
			prompt.Chat,
			Options{Style: Dynamo, Since13: true},
			`{"messages":[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"role":"user","foo":null,"bar":1},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"z\":1,\"a\":1.0}"}}]}],"tools":[{"type":"function","function":{"parameters":{},"name":"f","description":null}}]}`,
			`[{"role": "user", "content": "a\nb"}, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 1.0}}}]}] [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "description": ""}}] True`,
		},
		"responses, a text": {
			prompt.Responses,
			Options{},
			`{"model":"m","input":"hi","instructions":"be brief"}`,
			`[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}] null True`,
		},
		"responses, items": {
			prompt.Responses,
			Options{},
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":2}"},{"type":"function_call","call_id":"d","name":"g","arguments":""},{"type":"function_call_output","call_id":"c","output":"r"},{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"b"}]}],"tools":[]}`,
			`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"x": 2}}, "type": "function"}, {"id": "d", "function": {"name": "g", "arguments": {}}, "type": "function"}], "reasoning": "hm", "reasoning_content": "hm"}, {"role": "tool", "content": "r", "tool_call_id": "c"}, {"role": "assistant", "content": "b"}] null True`,
		},
		"responses, unfinished": {
			prompt.Responses,
			Options{},
			`{"input":[{"role":"user","content":"a"},{"role":"assistant","status":"incomplete","content":"bcd"}]}`,
			`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "bcd`,
		},
		"anthropic": {
			prompt.AnthropicMessages,
			Options{},
			`{"system":[{"type":"text","text":"s"},{"type":"text","text":"t"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"b"},{"type":"tool_use","id":"c","name":"f","input":{"z":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"},{"type":"text","text":"next"}]}],"tools":[{"name":"f","input_schema":{"properties":{}}}],"max_tokens":5,"output_config":{"effort":"high"}}`,
			`[{"role": "system", "content": "st"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"z": 1}}}], "reasoning": "hm", "reasoning_content": "hm"}, {"role": "tool", "content": "r", "tool_call_id": "c"}, {"role": "user", "content": "next"}] [{"type": "function", "function": {"name": "f", "description": null, "parameters": {"properties": {}, "type": "object"}}}] True`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compile(t, dump, tc.opts).Render(tc.kind, []byte(tc.body), goldenNow)
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != tc.want || got.Usable != len(tc.want) || got.AddSpecial || got.AnySpecial != (tc.kind == prompt.Responses) {
				t.Errorf("\n got %s\nwant %s\nusable %d", got.Text, tc.want, got.Usable)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	user := `"messages":[{"role":"user","content":"SECRET"}]`
	for name, tc := range map[string]struct {
		kind prompt.Kind
		body string
		code string
	}{
		"own template":       {prompt.Chat, `{` + user + `,"chat_template":"x"}`, CodeRequest},
		"cut prompt":         {prompt.Chat, `{` + user + `,"truncate_prompt_tokens":5}`, CodeRequest},
		"kwargs of the call": {prompt.Chat, `{` + user + `,"chat_template_kwargs":{"tokenize":true}}`, CodeRequest},
		"kwargs, a list":     {prompt.Chat, `{` + user + `,"chat_template_kwargs":[1]}`, CodeRequest},
		"both switches":      {prompt.Chat, `{` + user + `,"continue_final_message":true}`, CodeInvalid},
		"odd switch":         {prompt.Chat, `{` + user + `,"add_generation_prompt":"yes"}`, CodeRequest},
		"nothing to go on":   {prompt.Chat, `{"messages":[{"role":"user","content":" "}],"continue_final_message":true,"add_generation_prompt":false}`, CodeRequest},
		"no messages":        {prompt.Chat, `{"messages":[]}`, CodeInvalid},
		"no role":            {prompt.Chat, `{"messages":[{"content":"SECRET"}]}`, CodeInvalid},
		"a text":             {prompt.Chat, `{"messages":"SECRET"}`, CodeInvalid},
		"a bare message":     {prompt.Chat, `{"messages":["SECRET"]}`, CodeInvalid},
		"content, a number":  {prompt.Chat, `{"messages":[{"role":"user","content":5}]}`, CodeInvalid},
		"unknown part":       {prompt.Chat, `{"messages":[{"role":"user","content":[{"type":"smell","smell":"SECRET"}]}]}`, CodeRequest},
		"broken arguments":   {prompt.Chat, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{SECRET"}}]}]}`, CodeInvalid},
		"empty reasoning":    {prompt.Chat, `{"messages":[{"role":"assistant","reasoning":"","reasoning_content":"SECRET"}]}`, CodeRequest},
		"odd calls":          {prompt.Chat, `{"messages":[{"role":"assistant","tool_calls":[5]}]}`, CodeInvalid},
		"odd tools":          {prompt.Chat, `{` + user + `,"tools":[{"type":"web_search","function":{"name":"f"}}]}`, CodeRequest},
		"tools, an object":   {prompt.Chat, `{` + user + `,"tools":{}}`, CodeInvalid},
		"broken":             {prompt.Chat, `{"messages":[{"role":"user","content":"SECRET"`, CodeInvalid},
		"more":               {prompt.Chat, `{` + user + `} x`, CodeInvalid},
		"not an object":      {prompt.Chat, `"SECRET"`, CodeInvalid},
		"empty":              {prompt.Chat, ``, CodeInvalid},
		"a completion":       {prompt.Completion, `{"prompt":"SECRET"}`, CodeRequest},
		"another":            {prompt.Other, `{}`, CodeRequest},
		"stored response":    {prompt.Responses, `{"input":"SECRET","previous_response_id":"r"}`, CodeRequest},
		"stored prompt":      {prompt.Responses, `{"input":"SECRET","prompt":{"id":"p"}}`, CodeRequest},
		"server tool":        {prompt.Responses, `{"input":"SECRET","tools":[{"type":"web_search"}]}`, CodeRequest},
		"odd item":           {prompt.Responses, `{"input":[{"type":"item_reference","id":"SECRET"}]}`, CodeRequest},
		"encrypted":          {prompt.Responses, `{"input":[{"type":"reasoning","summary":[],"encrypted_content":"SECRET"}]}`, CodeRequest},
		"no input":           {prompt.Responses, `{}`, CodeInvalid},
		"responses, kwargs":  {prompt.Responses, `{"input":"SECRET","chat_template_kwargs":{"enable_thinking":false}}`, CodeRequest},
		"responses, tools":   {prompt.Responses, `{"input":"SECRET","tools":[{"type":"function","name":"f"}]}`, CodeRequest},
		"responses, cut":     {prompt.Responses, `{"input":"SECRET","truncation":"auto"}`, CodeRequest},
		"given response":     {prompt.Responses, `{"input":"SECRET","previous_response":{},"previous_response_id":null}`, CodeRequest},
		"args":               {prompt.Chat, `{` + user + `,"chat_template_args":{"enable_thinking":false}}`, CodeRequest},
		"inner system":       {prompt.AnthropicMessages, `{"system":"s","messages":[{"role":"user","content":"a"},{"role":"system","content":"SECRET"}]}`, CodeRequest},
		"inner kwargs":       {prompt.AnthropicMessages, `{` + user + `,"chat_template_kwargs":{"enable_thinking":false}}`, CodeRequest},
		"odd role":           {prompt.AnthropicMessages, `{"messages":[{"role":"ctx","content":"SECRET"}]}`, CodeRequest},
		"empty system":       {prompt.AnthropicMessages, `{"system":[{"type":"text","text":""}],` + user + `}`, CodeRequest},
		"empty assistant":    {prompt.AnthropicMessages, `{` + strings.Replace(user, "]", `,{"role":"assistant","content":[]}]`, 1) + `}`, CodeRequest},
		"later tool":         {prompt.AnthropicMessages, `{` + user + `,"tools":[{"name":"f","input_schema":{},"defer_loading":true}]}`, CodeRequest},
		"two prompts":        {prompt.Chat, `{` + user + `,"chat_template_kwargs":{"add_generation_prompt":false}}`, CodeRequest},
		"two efforts":        {prompt.Chat, `{` + user + `,"reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"}}`, CodeRequest},
		"result, a list":     {prompt.AnthropicMessages, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"SECRET"}]}]}]}`, CodeRequest},
		"document":           {prompt.AnthropicMessages, `{"messages":[{"role":"user","content":[{"type":"document","source":"SECRET"}]}]}`, CodeRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compile(t, dump, Options{}).Render(tc.kind, []byte(tc.body), goldenNow)
			wantCode(t, err, tc.code)
		})
	}
	_, err := compile(t, "{{ raise_exception(messages[0].content) }}", Options{}).Render(prompt.Chat, []byte(`{`+user+`}`), goldenNow)
	wantCode(t, err, CodeRaised)
	_, err = compile(t, "<|start|><|channel|>", Options{}).Render(prompt.Responses, []byte(`{"input":"SECRET"}`), goldenNow)
	wantCode(t, err, CodeRequest)
	for _, bad := range []string{"{% include 'x' %}", "{{ x|groupby('y') }}", "{{ x is y }}", "{{", "{% for x in y recursive %}{% endfor %}"} {
		_, err := Compile(bad, Options{})
		wantCode(t, err, CodeTemplate)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	tmpl := compile(t, partsDump, Options{Limits: Limits{Messages: 3, Parts: 5}})
	body := func(messages, parts int) []byte {
		one := `{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, parts), ",") + `]}`
		return []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(one+",", messages), ",") + `]}`)
	}
	if _, err := tmpl.Render(prompt.Chat, body(1, 5), goldenNow); err != nil {
		t.Error(err)
	}
	for _, over := range [][]byte{body(4, 1), body(1, 6), body(3, 2)} {
		_, err := tmpl.Render(prompt.Chat, over, goldenNow)
		wantCode(t, err, CodeMessages)
	}
	_, err := tmpl.Render(prompt.Chat, []byte(`{"tools":[`+strings.Repeat(`1,`, 100)+`1],"messages":[{"role":"user"}]}`), goldenNow)
	wantCode(t, err, CodeMessages)
	late := compile(t, "{% for i in range(99999) %}{% endfor %}", Options{Limits: Limits{Watch: func() func() bool { return func() bool { return false } }}})
	_, err = late.Render(prompt.Chat, body(1, 1), goldenNow)
	wantCode(t, err, CodeTime)
}

func TestUsableEndsAtTheFirstMedium(t *testing.T) {
	const image = `{"type":"image_url","image_url":{"url":"data:"}}`
	chat := func(parts string) string {
		return `{"messages":[{"role":"system","content":"sé"},{"role":"user","content":[` + parts + `]}]}`
	}
	for name, tc := range map[string]struct {
		source, parts, want string
	}{
		"none":            {partsDump, `{"type":"text","text":"a"}`, "[system]sé[user]a"},
		"in the middle":   {partsDump, `{"type":"text","text":"a"},` + image + `,{"type":"text","text":"b"}`, "[system]sé[user]a"},
		"first":           {partsDump, image + `,` + image, "[system]sé[user]"},
		"by its key":      {partsDump, `{"type":"text","text":"a"},{"image_url":"x"}`, "[system]sé[user]a"},
		"content, a text": {"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", `{"type":"text","text":"a"},` + image, "[system]sé[user]"},
		"looked ahead":    {"{% set ns = namespace(n=0) %}{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}{% set ns.n = 1 %}{% endif %}{% endfor %}{% endfor %}x{{ ns.n }}" + partsDump, image, "x"},
		"not shown":       {"{% for m in messages %}{% for p in m.content %}{% endfor %}{{ m.role }}{% endfor %}", image, "systemuser"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []Style{VLLM, Dynamo} {
				if kind == Dynamo && strings.Contains(name, "content, a text") {
					continue // Dynamo gives a list
				}
				if kind == Dynamo && name == "looked ahead" {
					continue // the type has another name there
				}
				text := tc.source
				if kind == Dynamo { // contents without media are texts there
					text = strings.ReplaceAll(text, "{% for p in m.content %}", "{% for p in (m.content if m.content is not string else [{'type': 'text', 'text': m.content}]) %}")
				}
				got, err := compile(t, text, Options{Style: kind}).Render(prompt.Chat, []byte(chat(tc.parts)), goldenNow)
				if err != nil {
					t.Fatal(err)
				}
				if got.Text[:got.Usable] != tc.want {
					t.Errorf("style %d: usable %q of %q, want %q", kind, got.Text[:got.Usable], got.Text, tc.want)
				}
			}
		})
	}
}

func TestOptions(t *testing.T) {
	opts := Options{Tokens: map[string]string{"bos_token": "<s>"}, Kwargs: []byte(`{"a":1,"b":[2]}`), Format: FormatParts}
	tmpl := compile(t, "{{ bos_token }}{{ a }}{{ b }}{{ c }}{{ strftime_now('%Y-%m-%d %H') }}{{ messages[0].content }}", opts)
	body := []byte(`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":7,"c":null}}`)
	zone := time.FixedZone("east", 3600*11)
	got, err := tmpl.Render(prompt.Chat, body, goldenNow.In(zone))
	if want := "<s>7[2]None2026-03-06 01[{'type': 'text', 'text': 'x'}]"; err != nil || got.Text != want {
		t.Errorf("got %q, %v; want %q", got.Text, err, want)
	}
	for _, bad := range []string{`[`, `[1]`, `{"messages":1}`} {
		_, err := Compile("x", Options{Kwargs: []byte(bad)})
		wantCode(t, err, CodeTemplate)
	}
	if tmpl.Harmony() || !compile(t, "<|start|><|channel|>", Options{}).Harmony() {
		t.Error("harmony is not recognised")
	}
}

func TestCompletions(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","prompt":"a\nb\u00e9"}`:                        "a\nbé",
		`{"prompt": [ "one", "two"],"model":"m"}`:                    "one",
		`{"prompt":"x","model":"m","add_special_tokens":true}`:       "x",
		`{"prompt":"","model":"m"}`:                                  "",
		`{"model":"m","prompt":"\ud83d\ude00","suffix":null,"n":[]}`: "😀",
	} {
		var b prompt.Body
		if err := b.Scan(prompt.Completion, []byte(body)); err != nil {
			t.Fatal(err)
		}
		p, err := Completion([]byte(body), b.Start, b.End)
		if err != nil || p.Text != want || !p.AddSpecial || p.Usable != len(want) {
			t.Errorf("%s: %+v, %v", body, p, err)
		}
	}
	body := []byte(`{"prompt":"x","add_special_tokens":false}`)
	if p, err := Completion(body, 10, 13); err != nil || p.AddSpecial {
		t.Errorf("%+v, %v", p, err)
	}
	_, err := Completion([]byte(`{"prompt":"x","truncate_prompt_tokens":3}`), 10, 13)
	wantCode(t, err, CodeRequest)
	_, err = CompletionText([]byte(`{"prompt":[1,2]}`), 10, 15)
	wantCode(t, err, CodeRequest)
	_, err = CompletionText(body, 5, 500)
	wantCode(t, err, CodeInvalid)
}

// TestConcurrentRenders is for the race detector: a template has no state.
func TestConcurrentRenders(t *testing.T) {
	tmpl := compile(t, dump, Options{})
	done := make(chan error)
	for g := range 8 {
		go func() {
			for i := range 50 {
				text := fmt.Sprintf("%d\n%d", g, i)
				body, _ := json.Marshal(map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}})
				p, err := tmpl.Render(prompt.Chat, body, goldenNow)
				if err == nil && !strings.Contains(p.Text, fmt.Sprintf(`"%d\n%d"`, g, i)) {
					err = errors.New("another request's text")
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, r := range readJSON[[]goldenRequest](f, "testdata/requests.json") {
		f.Add(uint8(prompt.Chat), []byte(r.Body))
	}
	f.Add(uint8(prompt.Responses), []byte(`{"input":[{"type":"reasoning","summary":[{"text":"x"}]},{"type":"function_call","arguments":"{}"}],"tools":[{"type":"function","name":"f"}]}`))
	f.Add(uint8(prompt.AnthropicMessages), []byte(`{"system":[{"type":"text","text":"x"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"},{"type":"image"}]}],"tools":[{}]}`))
	var templates []*Template
	for _, style := range []Style{VLLM, Dynamo} {
		for _, text := range []string{dump, partsDump} {
			templates = append(templates, compile(f, text, Options{Style: style, Limits: Limits{Steps: 20_000}}))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		for _, tmpl := range templates {
			p, err := tmpl.Render(prompt.Kind(kind), body, goldenNow)
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("an error of another type: %v", err)
			}
			if p.Usable < 0 || p.Usable > len(p.Text) {
				t.Fatalf("usable %d of %d", p.Usable, len(p.Text))
			}
		}
		_, _ = Completion(body, 0, len(body))
	})
}

// TestVersionsThatDiffer wants requests refused for which versions of engines give
// different prompts, and only those.
func TestVersionsThatDiffer(t *testing.T) {
	const (
		thinking = "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}{{ reasoning_effort }}"
		chat     = "{% for m in messages %}<im>{{ m.content }}<end>{% endfor %}"
		trimmed  = "{% for m in messages %}<im>{{ m.content|trim }}<end>{% endfor %}"
		effort   = `{"messages":[{"role":"user","content":"x"}],"reasoning_effort":`
		resume   = `{"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"assistant","content":`
	)
	for name, tc := range map[string]struct {
		kind           prompt.Kind
		template, body string
		want           string // empty: refused
	}{
		"effort":                {prompt.Chat, thinking, effort + `"high"}`, "high"},
		"effort none":           {prompt.Chat, thinking, effort + `"none"}`, ""},
		"effort none, told":     {prompt.Chat, thinking, effort + `"none","chat_template_kwargs":{"enable_thinking":true}}`, "none"},
		"effort, opt in":        {prompt.Chat, "{{ enable_thinking|default(false) }}", effort + `"high"}`, ""},
		"effort, unused":        {prompt.Chat, chat, effort + `"none"}`, "<im>x<end>"},
		"tools not shown":       {prompt.Responses, "{{ messages[0].content }}", `{"input":"x","tools":[{"type":"function","name":"f"}]}`, "x"},
		"effort of a message":   {prompt.AnthropicMessages, thinking, `{"output_config":{"effort":"low"},"messages":[{"role":"user","content":"x"}]}`, ""},
		"same effort":           {prompt.Chat, "{{ reasoning_effort }}", effort + `"low","chat_template_kwargs":{"reasoning_effort":"low"}}`, "low"},
		"continued":             {prompt.Chat, chat, resume + `"abc"}]}`, "<im>abc"},
		"continued, space":      {prompt.Chat, chat, resume + `"abc "}]}`, "<im>abc "},
		"continued, trimmed":    {prompt.Chat, trimmed, resume + `" abc "}]}`, "<im>abc"},
		"continued, in the end": {prompt.Chat, chat, resume + `"e"}]}`, ""},
		"continued, two spaces": {prompt.Chat, chat, resume + `" abc "}]}`, ""},
		"continued, cut":        {prompt.Chat, "{{ messages[0].content[:3] }}", resume + `"abc"}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compile(t, tc.template, Options{}).Render(tc.kind, []byte(tc.body), goldenNow)
			if tc.want == "" {
				wantCode(t, err, CodeRequest)
			} else if err != nil || got.Text != tc.want {
				t.Errorf("got %q, %v, want %q", got.Text, err, tc.want)
			}
		})
	}
}
