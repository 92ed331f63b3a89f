package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAppendModel(t *testing.T) {
	long := strings.Repeat("long ", 20)
	for name, c := range map[string]struct{ body, want string }{
		"plain":      {`{"model":"a","messages":[{}]}`, `{"model":"new","messages":[{}]}`},
		"spaces":     {"\n{ \"model\" :\t\"a\" , \"messages\":[{}]}\n", "\n{ \"model\" :\t\"new\" , \"messages\":[{}]}\n"},
		"last":       {`{"messages":[{"model":"x"}],"model":"a"}`, `{"messages":[{"model":"x"}],"model":"new"}`},
		"escapes":    {`{"messages":[{}],"mod\u0065l":"\u0061"}`, `{"messages":[{}],"mod\u0065l":"new"}`},
		"twice":      {`{"model":"a","messages":[{}],"model":"b"}`, `{"model":"new","messages":[{}],"model":"new"}`},
		"odd first":  {`{"model":{"model":[1]},"messages":[{}],"\u006d\u006f\u0064\u0065\u006c":"b"}`, `{"model":"new","messages":[{}],"\u006d\u006f\u0064\u0065\u006c":"new"}`},
		"null":       {`{"model":null,"messages":[{}]}`, `{"model":"new","messages":[{}]}`},
		"empty":      {`{"model":"","messages":[{}]}`, `{"model":"new","messages":[{}]}`},
		"missing":    {` {"messages":[{}]}`, ` {"model":"new","messages":[{}]}`},
		"long texts": {`{"a":"` + long + `","model":"a","b":"` + long + `","model":"b","messages":[{}]}`, `{"a":"` + long + `","model":"new","b":"` + long + `","model":"new","messages":[{}]}`},
		"inner":      {`{"model":"a","messages":[{}],"nvext":{"model":"x"},"models":"y"}`, `{"model":"new","messages":[{}],"nvext":{"model":"x"},"models":"y"}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := Body{ModelOptional: true}
			if err := b.Scan(Chat, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			if got := b.AppendModel([]byte("before"), []byte(c.body), []byte(`"new"`)); string(got) != "before"+c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Bodies of kinds that are not judged here may be anything.
func TestAppendModelOfOddBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: `{"model":"new"}`, ` { } `: ` {"model":"new" } `, `[1]`: `[1]`, ` "x"`: ` "x"`, `{"model":7}`: `{"model":"new"}`,
	} {
		var b Body
		if err := b.Scan(AnthropicMessages, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if got := b.AppendModel(nil, []byte(body), []byte(`"new"`)); string(got) != want {
			t.Errorf("%s became %s, want %s", body, got, want)
		}
	}
}

func TestModelText(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a\u0062","prompt":"x"}`: `a\u0062`, `{"model":"x","model":"y","prompt":"x"}`: "y", `{"model":null,"prompt":"x"}`: "", `{"prompt":"x"}`: "",
	} {
		b := Body{ModelOptional: true}
		if err := b.Scan(Completion, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if got := b.ModelText([]byte(body)); string(got) != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestModelIsOptionalOnlyWhereSaid(t *testing.T) {
	b := Body{ModelOptional: true}
	if err := b.Scan(Chat, []byte(`{"messages":[{}]}`)); err != nil {
		t.Error(err)
	}
	var e *Error
	if err := b.Scan(Chat, []byte(`{"model":[],"messages":[{}]}`)); !errors.As(err, &e) || e.Code != CodeInvalidType {
		t.Errorf("a list for a name: %v", err)
	}
	b.ModelOptional = false
	if err := b.Scan(Chat, []byte(`{"messages":[{}]}`)); !errors.As(err, &e) || e.Code != CodeMissingModel {
		t.Errorf("no name: %v", err)
	}
}

// renamed is the slow twin of AppendModel: it takes the body apart and writes it
// anew, key by key.
func renamed(data, value []byte) string {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return compacted(data)
	}
	var parts []string
	found := false
	for dec.More() {
		key, err := dec.Token()
		var v json.RawMessage
		if err != nil || dec.Decode(&v) != nil {
			return "broken"
		}
		if key == "model" {
			found, v = true, value
		}
		name, _ := json.Marshal(key)
		parts = append(parts, string(name)+":"+compacted(v))
	}
	if !found {
		parts = append([]string{`"model":` + string(value)}, parts...)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func compacted(data []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return "broken"
	}
	return b.String()
}

// normal writes the keys of a body as its twin does.
func normal(data []byte) string {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return compacted(data)
	}
	var parts []string
	for dec.More() {
		key, err := dec.Token()
		var v json.RawMessage
		if err != nil || dec.Decode(&v) != nil {
			return "broken"
		}
		name, _ := json.Marshal(key)
		parts = append(parts, string(name)+":"+compacted(v))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestAppendModelEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Chat, Completion, Responses, AnthropicMessages}).Draw(t, "kind")
		data := bodyText(t)
		b := Body{ModelOptional: true, Decode: rapid.Bool().Draw(t, "decode")}
		if b.Scan(kind, data) != nil {
			return
		}
		value := []byte(`"n"`)
		got := b.AppendModel(nil, data, value)
		if want := renamed(data, value); normal(got) != want {
			t.Fatalf("%s became %s, want %s", data, normal(got), want)
		}
		// What was spliced says the new name, and otherwise the same.
		before := b
		if err := b.Scan(kind, got); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if isObject := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")); isObject && b.Model != "n" {
			t.Fatalf("%s: model %q", got, b.Model)
		}
		if b.Form != before.Form || b.Stream != before.Stream || b.Salt != before.Salt || b.End-b.Start != before.End-before.Start || b.MaxTokens != before.MaxTokens {
			t.Fatalf("%s became %s: %+v, before %+v", data, got, b, before)
		}
	})
}
