package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// conversation returns the body of a chat of n messages, the first one of the
// system, of size bytes of text in all. Some messages have escapes.
func conversation(tb testing.TB, n, size int) []byte {
	tb.Helper()
	messages := make([]map[string]any, 0, n)
	for i := range n {
		role := "system"
		if i > 0 {
			role = []string{"assistant", "user"}[i%2]
		}
		text := strings.Repeat(fmt.Sprintf("message %d of a talk about the weather in the north, ", i), size/n/50+1)[:size/n]
		if i%3 == 0 {
			text = strings.ReplaceAll(text, " of ", "\n\"of\" ")
		}
		messages = append(messages, map[string]any{"role": role, "content": text})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "temperature": 0.5, "stream": true})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

var benchSizes = []struct {
	name           string
	messages, size int
}{{"41x80KB", 41, 80_000}, {"200x500KB", 200, 500_000}}

func BenchmarkRender(b *testing.B) {
	for _, model := range []string{"npm-qwen3", "npm-deepseek_v3", "npm-gemma3"} {
		text, tokens := source(b, model)
		tmpl, err := Compile(text, Options{Tokens: tokens})
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range benchSizes {
			body := conversation(b, size.messages, size.size)
			b.Run(model+"/"+size.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				var buf []byte
				for b.Loop() {
					if _, buf, err = tmpl.RenderTo(buf, prompt.Chat, body, goldenNow); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkWhole is all that a chat needs: the scan of its body and the prompt.
func BenchmarkWhole(b *testing.B) {
	text, tokens := source(b, "npm-qwen3")
	tmpl, err := Compile(text, Options{Tokens: tokens})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range benchSizes {
		body := conversation(b, size.messages, size.size)
		b.Run(size.name, func(b *testing.B) {
			var scanned prompt.Body
			var buf []byte
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := scanned.Scan(prompt.Chat, body); err != nil {
					b.Fatal(err)
				}
				if _, buf, err = tmpl.RenderTo(buf, prompt.Chat, body, goldenNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range benchSizes {
		body := conversation(b, size.messages, size.size)
		b.Run(size.name, func(b *testing.B) {
			var d decoder
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var r request
				d.start(body, 1<<30)
				if err := d.read(prompt.Chat, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
