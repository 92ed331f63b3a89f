package prompt

import (
	"bytes"
	"strings"
	"testing"
)

// textOf returns the text of a body, with a bar between pieces.
func textOf(t *testing.T, kind Kind, body string) string {
	t.Helper()
	var b Body
	if err := b.Scan(kind, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return string(bytes.Join(b.AppendText(nil, []byte(body)), []byte("|")))
}

func TestText(t *testing.T) {
	const image = `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:x"}}]}`
	for name, tc := range map[string]struct {
		kind Kind
		body string
		want string
	}{
		"text":                    {Completion, `{"model":"m","prompt":"hi \"x\"","max_tokens":3}`, `"hi \"x\""`},
		"texts":                   {Completion, `{"model":"m","prompt":["a","b"]}`, `["a","b"]`},
		"chat":                    {Chat, `{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true}`, `[{"role":"user","content":"a"}]`},
		"tools go first":          {Chat, `{"messages":[{"role":"user","content":"a"}],"model":"m","tools" : [{"x":1}]}`, `tools" : [{"x":1}]|[{"role":"user","content":"a"}]`},
		"in a fixed order":        {Chat, `{"model":"m","tools":[],"chat_template_kwargs":{"a":1},"messages":[{}]}`, `chat_template_kwargs":{"a":1}|tools":[]|[{}]`},
		"the last of a key":       {Chat, `{"model":"m","tools":[1],"messages":[{}],"tools":[2],"messages":[{"a":1}]}`, `tools":[2]|[{"a":1}]`},
		"system":                  {AnthropicMessages, `{"messages":[{"role":"user","content":"a"}],"system":"be good"}`, `system":"be good"|[{"role":"user","content":"a"}]`},
		"instructions":            {Responses, `{"input":"a","instructions":"be good","previous_response_id":"r"}`, `previous_response_id":"r"|instructions":"be good"|"a"`},
		"items":                   {Responses, `{"input":[{"role":"user","content":"a"}],"conversation":"c"}`, `conversation":"c"|[{"role":"user","content":"a"}]`},
		"an image ends it":        {Chat, `{"model":"m","messages":[{"role":"system","content":"s"},` + image + `,{"role":"user","content":"z"}]}`, `[{"role":"system","content":"s"},`},
		"the first of two images": {Chat, `{"model":"m","messages":[{"a":1},` + image + `,` + image + `]}`, `[{"a":1},`},
		"an image of a void list": {Chat, `{"model":"m","messages":[` + image + `],"messages":[{"a":1},{"b":2}]}`, `[{"a":1},{"b":2}]`},
		"nested tools are not":    {Chat, `{"model":"m","messages":[{"tools":1}],"metadata":{"tools":[1]}}`, `[{"tools":1}]`},
		"embeddings":              {Completion, `{"model":"m","prompt_embeds":"x"}`, ``},
		"no input":                {Responses, `{"instructions":"x"}`, ``},
		"input that is a number":  {Responses, `{"instructions":"x","input":3}`, ``},
		"no object":               {Responses, `[1]`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			if got := textOf(t, tc.kind, tc.body); got != tc.want {
				t.Errorf("text %s, want %s", got, tc.want)
			}
		})
	}
}

// The next turn of a conversation begins with the text of the one before, but for
// the brackets at its end.
func TestTextOfTheNextTurn(t *testing.T) {
	first := `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}],"tools":[{"x":1}]}`
	next := strings.Replace(first, `"a"}`, `"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}`, 1)
	a, b := textOf(t, Chat, first), textOf(t, Chat, next)
	if common := strings.TrimSuffix(a, "]"); !strings.HasPrefix(b, common) {
		t.Errorf("%s does not begin with %s", b, common)
	}
}

func FuzzText(f *testing.F) {
	f.Add(uint8(1), []byte(`{"model":"m","tools":[],"messages":[{"content":[{"type":"image"}]}],"system":1}`))
	f.Add(uint8(3), []byte(`{"input":[{"content":"x"}],"instructions":null,"tools":{}}`))
	f.Add(uint8(4), []byte(`{"messages":[{"content":[{"type":"text"}]}],"messages":3}`))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		var b Body
		if b.Scan(Kind(kind%5), data) != nil {
			return
		}
		text, rest := b.TextSize()
		sum := 0
		for _, p := range b.AppendText(nil, data) {
			sum += len(p)
		}
		if sum != text || text < 0 || rest < 0 || text > len(data) || rest > len(data) {
			t.Errorf("text of %d bytes, said to be %d, with a rest of %d", sum, text, rest)
		}
		if b.HasMedia && b.Form == Messages && rest == 0 {
			t.Error("the text goes past an image")
		}
	})
}
