package parity

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// Case is one request that is rendered both here and by an engine.
type Case struct {
	// Name is the case in logs: a word for a canned one, "live" for a request.
	Name string
	// Shape is what the outcome counts for.
	Shape Shape
	// Kind is the API of the request.
	Kind prompt.Kind
	// Body is the request body.
	Body []byte
}

// Canned returns the requests that every engine and tokenizer is asked first:
// short, of all shapes that need no image, with the texts that tokenizers and
// templates disagree about. model is the name of the model in them; they name
// none where it is empty.
func Canned(model string) []Case {
	head := "{"
	if model != "" {
		head = `{"model":` + quote(model) + `,`
	}
	list := make([]Case, 0, len(canned))
	for _, c := range canned {
		kind, tail := prompt.Chat, `,"max_tokens":1}`
		if c.shape == Completion {
			kind = prompt.Completion
		}
		list = append(list, Case{Name: c.name, Shape: c.shape, Kind: kind, Body: []byte(head + c.body + tail)})
	}
	return list
}

// quote writes a model name as a JSON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ':
			const hex = "0123456789abcdef"
			b.WriteString(`\u00`)
			b.WriteByte(hex[r>>4])
			b.WriteByte(hex[r&15])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

const (
	hello   = `{"role":"user","content":"Hello, how are you?"}`
	weather = `"tools":[{"type":"function","function":{"name":"weather","description":"The weather of a place, now.","parameters":` +
		`{"type":"object","properties":{"place":{"type":"string","description":"City & country"},"days":{"type":"integer","default":1,"maximum":7.0}},"required":["place"]}}}]`
	ask = `{"role":"user","content":"What is the weather in Zürich?"}`
)

var canned = []struct {
	name  string
	shape Shape
	body  string
}{
	{"plain", Chat, `"messages":[` + hello + `]`},
	{"system", Chat, `"messages":[{"role":"system","content":"You answer in one word."},` + hello + `]`},
	{"turns", Chat, `"messages":[` + hello + `,{"role":"assistant","content":"Fine.\n\nAnd you?"},{"role":"user","content":"Fine, too.  "}]`},
	{"scripts", Chat, `"messages":[{"role":"user","content":"你好，世界。こんにちは สวัสดี مرحبا नमस्ते 안녕 Ünïcödé e\u0301 \u212b 👩‍👩‍👧‍👦🏳️‍🌈"}]`},
	{"code", Chat, `"messages":[{"role":"user","content":"\tif (a[10] != 0x1F && b == \"x\") {\r\n\t\treturn -1234567.89;   // <|im_end|>\n    }\n\n\n   \n"}]`},
	{"parts", Chat, `"messages":[{"role":"user","content":[{"type":"text","text":"One."},{"type":"text","text":"Two."}]}]`},
	{"no generation prompt", ChatOptions, `"messages":[` + hello + `,{"role":"assistant","content":"Fine."}],"add_generation_prompt":false`},
	{"template option", ChatOptions, `"messages":[` + hello + `],"chat_template_kwargs":{"enable_thinking":false}`},
	{"reasoning", ChatReasoning, `"messages":[` + hello + `,{"role":"assistant","reasoning_content":"A greeting.","content":"Fine."},` + hello + `]`},
	{"tools", ChatTools, `"messages":[{"role":"system","content":"Be brief."},` + ask + `],` + weather},
	{"tool calls", ChatTools, `"messages":[` + ask + `,{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function",` +
		`"function":{"name":"weather","arguments":"{\"place\": \"Zürich\", \"days\": 2}"}}]},` +
		`{"role":"tool","tool_call_id":"call00001","content":"{\"sky\":\"clear\"}"}],` + weather},
	{"text", Completion, `"prompt":"The quick brown fox jumps over the lazy dog."`},
	{"raw text", Completion, `"prompt":"  \n\tfunc f(x int) { return 3.14159 }\r\n\r\n  你好 🏳️‍🌈 e\u0301"`},
	{"two texts", Completion, `"prompt":["One, two","three"]`},
}
