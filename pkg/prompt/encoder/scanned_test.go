package encoder_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

const plainTemplate = `{%- for m in messages %}<start>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}
{%- for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<end>!
{% endfor %}<start>assistant
`

// drawJSON draws the text of a JSON string.
func drawJSON(t *rapid.T) string {
	parts := []string{
		"", "word ", `\n`, `\"`, `\\`, `\u6771\u4eac`, `\ud83d\ude42`, `\ud800`, "é", strings.Repeat("long ", 20), strings.Repeat(`\t`, 40),
		strings.Repeat(`\\\"`, 30), strings.Repeat("x", 63), strings.Repeat("x", 64), `{\"a\":`, `<end>!`,
	}
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 6).Draw(t, "text"), "") + `"`
}

func drawBody(t *rapid.T) string {
	var messages []string
	for range rapid.IntRange(1, 5).Draw(t, "messages") {
		m := `{"role":"user","content":` + drawJSON(t)
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			m += `,"content":` + drawJSON(t) // the last one counts
		case 1:
			m = `{"role":"user","content":[{"type":"text","text":` + drawJSON(t) + `},{"type":"text","text":` + drawJSON(t) + `}]`
		case 2:
			m = `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":\"` + strings.Repeat("b", 70) + `\"}"}}]`
		}
		messages = append(messages, m+"}")
	}
	return `{ "user": ` + drawJSON(t) + `, "messages": [` + strings.Join(messages, " , ") + `], "model":"m", "stop":` + drawJSON(t) + "}"
}

// TestScannedBodyIsReadTheSame compares the prompt of a body that was scanned with
// that of the body alone.
func TestScannedBodyIsReadTheSame(t *testing.T) {
	template, err := chat.Compile(plainTemplate, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := encoder.New(encoder.Config{Tokenizer: newFake(), Template: template, Layout: layout16, MemoBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var scanned prompt.Body
	var r encoder.Result
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(drawBody(t))
		scanned.Decode = rapid.Bool().Draw(t, "decode")
		if err := scanned.Scan(prompt.Chat, body); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		want, err := template.Render(prompt.Chat, body, time.Time{})
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got, err := e.Text(&r, prompt.Chat, body, &scanned, time.Time{})
		if err != nil || got != want {
			t.Fatalf("%s: %+v, %v; want %+v", body, got, err, want)
		}
		if err := e.EncodeText(&r, got, 1); err != nil {
			t.Fatal(err)
		}
		check(t, &r, want, newFake().whole(want.Text, false), layout16, 1)
	})
}
