package skeleton

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ardanlabs/jinja"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/internal/testmodels"
)

// compile compiles as the library does; a panic of it is an error.
func compile(source string) (Render, error) {
	t, err := jinja.Compile(source)
	if err != nil {
		return nil, err
	}
	return func(vars map[string]jinja.Value) (out string, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return t.RenderValues(vars)
	}, nil
}

func newTemplate(tb testing.TB, source string) *Template {
	tb.Helper()
	t, err := New(Config{Source: source, Compile: compile, Bytes: 1 << 20, Random: 7})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// realTemplates are those of the library's tests and of the models in npm.
func realTemplates(tb testing.TB) map[string]string {
	tb.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	if err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "templates", "*.jinja"))
	if err != nil || len(files) < 10 {
		tb.Fatalf("%d templates, error %v", len(files), err)
	}
	templates := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		templates[strings.TrimSuffix(filepath.Base(file), ".jinja")] = string(data)
	}
	for _, name := range []string{"qwen3", "llama3_1", "deepseek_v3", "gemma3"} {
		var c struct {
			Template string `json:"chat_template"`
		}
		if err := json.Unmarshal(testmodels.Read(tb, name, "tokenizer_config.json"), &c); err != nil || c.Template == "" {
			tb.Fatalf("%s: %v", name, err)
		}
		templates["npm-"+name] = c.Template
	}
	return templates
}

var fragments = []string{
	"hello", " ", "\n", "\t", "</think>", "<think>", "</thi", "nk>", "<tool_response>", "</tool_response>", "x", "é", "\u00a0",
	"東京", "\xff", "{{ a }}", "<", "</", "answer", "assistant", "<|im_end|>", ".", "long text " + strings.Repeat("word ", 80), "0", "\u2028", "\\", "\"", "'",
}

func drawContent(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 6).Draw(t, "content"), "")
}

func dict(pairs ...any) jinja.Value {
	d := jinja.NewDict()
	for i := 0; i < len(pairs); i += 2 {
		v, ok := pairs[i+1].(jinja.Value)
		if !ok {
			v = jinja.NewString(pairs[i+1].(string))
		}
		d.AsDict().Set(pairs[i].(string), v)
	}
	return d
}

func drawMessage(t *rapid.T, role string) jinja.Value {
	m := dict("role", role, "content", drawContent(t))
	d := m.AsDict()
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		d.Set("content", jinja.NewList([]jinja.Value{dict("type", "text", "text", drawContent(t)), dict("type", "text", "text", drawContent(t))}))
	case 1:
		d.Set("content", jinja.None())
	case 2:
		d.Set("reasoning_content", jinja.NewString(drawContent(t)))
	case 3:
		if role == "assistant" {
			call := dict("id", "call00001", "type", "function", "function", dict("name", "look", "arguments", dict("content", drawContent(t), "n", jinja.NewInt(3))))
			d.Set("tool_calls", jinja.NewList([]jinja.Value{call}))
		}
	}
	return m
}

// drawForm draws variables. The same roles come often.
func drawForm(t *rapid.T) map[string]jinja.Value {
	var messages []jinja.Value
	if rapid.Bool().Draw(t, "system") {
		messages = append(messages, drawMessage(t, "system"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "turns") {
		messages = append(messages, drawMessage(t, "user"))
		if rapid.IntRange(0, 5).Draw(t, "tool") == 0 {
			messages = append(messages, drawMessage(t, "assistant"), drawMessage(t, "tool"))
		}
		messages = append(messages, drawMessage(t, "assistant"))
	}
	messages = append(messages, drawMessage(t, "user"))
	vars := map[string]jinja.Value{
		"messages": jinja.NewList(messages), "add_generation_prompt": jinja.NewBool(true),
		"bos_token": jinja.NewString("<s>"), "eos_token": jinja.NewString("</s>"),
	}
	if rapid.IntRange(0, 4).Draw(t, "tools") == 0 {
		vars["tools"] = jinja.NewList([]jinja.Value{dict("type", "function", "function", dict("name", "look", "description", "Looks.", "parameters", dict("type", "object", "properties", dict("content", dict("type", "string")))))})
	}
	return vars
}

// filled is a form with contents that need no care.
func filled(turns int) map[string]jinja.Value {
	messages := []jinja.Value{dict("role", "system", "content", "Be brief.")}
	for i := range turns {
		messages = append(messages, dict("role", "user", "content", fmt.Sprint("question ", i)), dict("role", "assistant", "content", fmt.Sprint("answer ", i)))
	}
	messages = append(messages, dict("role", "user", "content", "last question"))
	return map[string]jinja.Value{"messages": jinja.NewList(messages), "add_generation_prompt": jinja.NewBool(true), "bos_token": jinja.NewString("<s>"), "eos_token": jinja.NewString("</s>")}
}

// others are what the word "hello" of a content is replaced by, to get a request
// of the same form, or nearly so.
var others = []string{"bye", "h", "</thi", "a < b", "<tool", "user", "", "tool_response>", "x\n\ny", "\ue123", "</think", "{%"}

// vary returns v with other words in contents.
func vary(t *rapid.T, v jinja.Value, content bool) jinja.Value {
	switch {
	case v.IsString() && content:
		return jinja.NewString(strings.ReplaceAll(v.AsString(), "hello", rapid.SampledFrom(others).Draw(t, "other")))
	case v.IsList():
		var items []jinja.Value
		for _, item := range v.AsList().Items {
			items = append(items, vary(t, item, false))
		}
		return jinja.NewList(items)
	case v.IsDict():
		d := jinja.NewDict()
		for _, key := range v.AsDict().Keys {
			d.AsDict().Set(key, vary(t, v.AsDict().Data[key], slices.Contains(contents, key)))
		}
		return d
	default:
		return v
	}
}

// notUnderstood are templates that are always rendered as usual, and why;
// lookedInto those that look into the contents of a plain conversation.
var (
	notUnderstood = map[string]string{}
	lookedInto    = map[string]string{}
)

func TestSkeletonsChangeNothing(t *testing.T) {
	for name, source := range realTemplates(t) {
		t.Run(name, func(t *testing.T) {
			plain, err := compile(source)
			if err != nil {
				t.Fatal(err)
			}
			s := newTemplate(t, source)
			for range 2 {
				if _, err := s.Render(filled(3)); err != nil {
					t.Fatal(err)
				}
			}
			understood, first := s.atoms != nil, s.Stats()
			rapid.Check(t, func(t *rapid.T) {
				vars := drawForm(t)
				for range 3 {
					want, wantErr := plain(vars)
					got, err := s.Render(vars)
					if got != want || (err == nil) != (wantErr == nil) {
						t.Fatalf("%q, %v; want %q, %v", got, err, want, wantErr)
					}
					vars = maps.Clone(vars)
					vars["messages"] = vary(t, vars["messages"], false)
				}
			})
			t.Logf("%+v", s.Stats())
			if s.Stats().Wrong {
				t.Error("a skeleton differed")
			}
			if (!understood) != (notUnderstood[name] != "") {
				t.Errorf("understood: %v", understood)
			}
			if (first.Used != 1) != (notUnderstood[name] != "" || lookedInto[name] != "") {
				t.Errorf("a plain conversation: %+v", first)
			}
		})
	}
}
