package simengine

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// TestOtherTokenizer: a tokenizer that is given says what all endpoints compute,
// but for prompts that are token ids.
func TestOtherTokenizer(t *testing.T) {
	e := start(t, Config{BlockSize: 4, Tokenize: func(kind prompt.Kind, body []byte) ([]uint32, error) {
		if strings.Contains(string(body), "strange") {
			return nil, errors.New("strange")
		}
		return []uint32{100_000 + uint32(kind), 5, 6, 7, 8}, nil
	}})
	type tokens struct {
		Tokens   []uint32 `json:"tokens"`
		TokenIDs []uint32 `json:"token_ids"`
	}
	for _, tc := range []struct {
		path, body string
		first      uint32
		n          int
	}{
		{"/tokenize", `{"prompt":"a"}`, 100_000 + uint32(prompt.Completion), 5},
		{"/tokenize", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 100_000 + uint32(prompt.Chat), 5},
		{"/v1/chat/completions/render", `{"messages":[{"role":"user","content":"a"}]}`, 100_000 + uint32(prompt.Chat), 5},
	} {
		got := decode[tokens](t, call(t, e, http.MethodPost, tc.path, tc.body).body)
		if ids := append(got.Tokens, got.TokenIDs...); len(ids) != tc.n || ids[0] != tc.first {
			t.Errorf("%s %s: %v", tc.path, tc.body, ids)
		}
	}
	for body, want := range map[string]uint32{
		`{"prompt":"a"}`:       100_000 + uint32(prompt.Completion),
		`{"prompt":[ "a"]}`:    100_000 + uint32(prompt.Completion),
		`{"prompt":[9,8]}`:     9,
		`{"prompt":[[9,8]]}`:   9,
		`{"prompt": [ 9 , 8]}`: 9,
	} {
		got := decode[[]tokens](t, call(t, e, http.MethodPost, "/v1/completions/render", body).body)
		if len(got) != 1 || got[0].TokenIDs[0] != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if r := call(t, e, http.MethodPost, "/v1/completions/render", `{"prompt":"strange"}`); r.status != http.StatusBadRequest {
		t.Errorf("status %d", r.status)
	}
	c, _ := complete(t, e, chat, object{"messages": []object{{"role": "user", "content": "hello"}}, "max_tokens": 1})
	if c.Usage.PromptTokens != 5 {
		t.Errorf("usage %+v", c.Usage)
	}
}
