package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// twinAnswer reads an answer with encoding/json. It reports whether it is good.
func twinAnswer(key string, data []byte) ([]uint32, bool) {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if !json.Valid(data) || depthOf(data) > MaxDepth || dec.Decode(&tree) != nil {
		return nil, false
	}
	if list, ok := tree.([]any); ok && len(list) > 0 {
		tree = list[0]
	}
	object, _ := tree.(map[string]any)
	list, ok := object[key].([]any)
	if !ok {
		return nil, false
	}
	return ids(list)
}

func checkAnswer(t interface{ Fatalf(string, ...any) }, key string, data []byte) {
	dst := []uint32{9}
	got, err := AppendAnswer(dst, key, data)
	want, ok := twinAnswer(key, data)
	if ok != (err == nil) {
		t.Fatalf("%q: error %v, twin accepts: %v", data, err, ok)
	}
	if !slices.Equal(got, append(dst, want...)) {
		t.Fatalf("%q: got %v, want %v after %v", data, got, want, dst)
	}
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%q: %v is no *Error", data, err)
	}
}

func TestAppendAnswer(t *testing.T) {
	for text, want := range map[string][]uint32{
		`{"token_ids":[1,2]}`:                                      {1, 2},
		`{"request_id":"r","features":null,"token_ids":[]}`:        {},
		` [ {"token_ids":[7], "x":[{}]} , {"token_ids":[8]}, 3 ] `: {7},
		`{"token_ids":1,"token\u005fids":[4294967295]}`:            {4294967295},
	} {
		got, err := AppendAnswer(nil, "token_ids", []byte(text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		checkAnswer(t, "token_ids", []byte(text))
	}
	for _, text := range []string{``, `{`, `[]`, `{}`, `7`, `[7,{"token_ids":[1]}]`, `{"token_ids":null}`, `{"token_ids":[1.5]}`, `{"token_ids":["a"]}`, `{"token_ids":[1]} x`, `{"token_ids":[1]`, `{"x":{"token_ids":[1]}}`} {
		if got, err := AppendAnswer(nil, "token_ids", []byte(text)); err == nil {
			t.Errorf("%s: accepted as %v", text, got)
		}
		checkAnswer(t, "token_ids", []byte(text))
	}
}

func TestAppendAnswerEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := bodyText(t)
		if rapid.Bool().Draw(t, "list") {
			data = append(append([]byte("["), data...), ",{}]"...)
		}
		for _, key := range []string{"prompt", "messages", "nvext", "x"} {
			checkAnswer(t, key, data)
		}
	})
}

func FuzzAppendAnswer(f *testing.F) {
	f.Add([]byte(`{"token_ids":[1,2]}`))
	f.Add([]byte(`[{"token_ids":[1,2]},{}]`))
	f.Fuzz(func(t *testing.T, data []byte) { checkAnswer(t, "token_ids", data) })
}
