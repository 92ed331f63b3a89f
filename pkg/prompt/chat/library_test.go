package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	library "github.com/ardanlabs/jinja"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// TestLibrary renders the golden prompts with the library, too: the variables are
// the same, only the engine is not. It logs what ADR 0013 says, and fails when the
// library needs no second engine beside it any more.
func TestLibrary(t *testing.T) {
	requests := readJSON[[]goldenRequest](t, "testdata/requests.json")
	golden := readJSON[map[string]goldenTemplate](t, "testdata/golden.json")
	equal, wrong, refused, lax, all := 0, 0, 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		source, tokens := source(t, name)
		theirs, err := library.Compile(source)
		if err != nil {
			t.Errorf("%s: the library cannot compile it: %v", name, err)
			continue
		}
		ours, err := Compile(source, Options{Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			vars, resumes := variables(t, ours, r.Body)
			if vars == nil || resumes {
				continue // refused before it comes to the template, or cut after it
			}
			all++
			want := golden[name].Prompts[r.Name]
			switch got, err := theirs.RenderValues(vars); {
			case want == nil && err != nil || want != nil && err == nil && got == *want:
				equal++
			case want == nil:
				lax++
			case err != nil:
				refused++
			default:
				wrong++
			}
		}
	}
	t.Logf("of %d prompts the library renders %d as Python does, %d otherwise, fails on %d, and renders %d that Python refuses", all, equal, wrong, refused, lax)
	if all < 500 {
		t.Errorf("only %d prompts were compared", all)
	}
	if equal == all {
		t.Error("the library renders all prompts as Python does: see ADR 0013")
	}
}

// variables returns what a template gets for a chat, for the library; nil when the
// chat is refused before.
func variables(t testing.TB, tmpl *Template, body []byte) (vars map[string]library.Value, resumes bool) {
	t.Helper()
	w := &worker{t: tmpl}
	w.dec.start(body, 10*tmpl.opts.Limits.Parts)
	if err := w.dec.read(prompt.Chat, &w.req); err != nil {
		t.Fatal(err)
	}
	if w.req.check() != nil {
		return nil, false
	}
	w.asParts = tmpl.parts
	if w.vllm() != nil {
		return nil, false
	}
	vars = map[string]library.Value{
		"raise_exception": library.NewCallable("raise_exception", func([]library.Value, map[string]library.Value) (library.Value, error) {
			return library.None(), errors.New("raised")
		}),
		"strftime_now": library.NewCallable("strftime_now", func(args []library.Value, _ map[string]library.Value) (library.Value, error) {
			return library.NewString(map[string]string{
				"%d %b %Y": goldenNow.Format("02 Jan 2006"), "%Y-%m-%d": goldenNow.Format(time.DateOnly),
			}[args[0].AsString()]), nil
		}),
	}
	for _, e := range w.vars.Entries() {
		vars[e.Key.Text()] = forLibrary(t, e.Val)
	}
	return vars, w.resume != ""
}

// asJSON is a template that prints a value.
const asJSON = "{{ value | tojson }}"

// forLibrary copies a value into one of the library, in the order of its keys.
func forLibrary(t testing.TB, v jinja.Value) library.Value {
	t.Helper()
	tmpl, err := jinja.Compile(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	var vars jinja.Dict
	vars.Set("value", v)
	text, err := tmpl.Render(nil, &vars, jinja.Env{})
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return decoded(t, dec)
}

func decoded(t testing.TB, dec *json.Decoder) library.Value {
	t.Helper()
	token, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch v := token.(type) {
	case json.Delim:
		list, dict := []library.Value{}, library.NewDict()
		for dec.More() {
			if v == '[' {
				list = append(list, decoded(t, dec))
				continue
			}
			key := decoded(t, dec).AsString()
			dict.AsDict().Set(key, decoded(t, dec))
		}
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		if v == '[' {
			return library.NewList(list)
		}
		return dict
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return library.NewInt(n)
		}
		n, err := v.Float64()
		if err != nil {
			t.Fatal(err)
		}
		return library.NewFloat(n)
	case string:
		return library.NewString(v)
	case bool:
		return library.NewBool(v)
	default:
		return library.None()
	}
}

// BenchmarkLibrary renders a chat of 41 messages and 80 KB with the library and
// without: evaluation only, without reading the body.
func BenchmarkLibrary(b *testing.B) {
	messages := []map[string]string{}
	for i := range 41 {
		role := []string{"user", "assistant"}[i%2]
		messages = append(messages, map[string]string{"role": role, "content": strings.Repeat("hello world ", 163)})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"Qwen3-8B-Q8_0", "gpt-oss-20b-Q8_0", "Kimi-K3"} {
		text, tokens := source(b, name)
		ours, err := Compile(text, Options{Tokens: tokens})
		if err != nil {
			b.Fatal(err)
		}
		theirs, err := library.Compile(text)
		if err != nil {
			b.Fatal(err)
		}
		vars, _ := variables(b, ours, body)
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := theirs.RenderValues(vars); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/ours", func(b *testing.B) {
			w := &worker{t: ours}
			w.dec.start(body, 10*ours.opts.Limits.Parts)
			if err := w.dec.read(prompt.Chat, &w.req); err != nil {
				b.Fatal(err)
			}
			if err := w.vllm(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if w.out, err = ours.jinja.Render(w.out[:0], &w.vars, jinja.Env{Now: goldenNow}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
