package chat

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// byteAlphabet maps the characters by which byte-level vocabularies write bytes
// to those bytes: the printable ones stand for themselves, the others follow
// from U+0100 on.
func byteAlphabet() map[rune]byte {
	out, next := map[rune]byte{}, rune(0x100)
	for b := range 256 {
		r := rune(b)
		if r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae {
			out[r] = byte(b)
			continue
		}
		out[next] = byte(b)
		next++
	}
	return out
}

// vocabulary returns the bytes of the tokens of Qwen3.
func vocabulary(t *testing.T) map[uint32]string {
	t.Helper()
	type file struct {
		Model struct {
			Vocab map[string]uint32 `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      uint32 `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	f := readJSON[file](t, filepath.Join(testmodels.Dir(t, "qwen3"), "tokenizer.json"))
	alphabet, out := byteAlphabet(), map[uint32]string{}
	for token, id := range f.Model.Vocab {
		var raw []byte
		for _, r := range token {
			raw = append(raw, alphabet[r])
		}
		out[id] = string(raw)
	}
	for _, a := range f.Added {
		out[a.ID] = a.Content
	}
	return out
}

// TestRecordedRequests renders the requests for which real Dynamo releases told
// the token ids, and wants the text that those ids stand for.
func TestRecordedRequests(t *testing.T) {
	type recorded struct {
		Requests []struct {
			Kind     string          `json:"kind"`
			Request  json.RawMessage `json:"request"`
			TokenIDs []uint32        `json:"token_ids"`
		} `json:"requests"`
	}
	tokens := vocabulary(t)
	text, special := source(t, "npm-qwen3")
	for _, style := range []Style{VLLM, Dynamo} {
		tmpl, err := Compile(text, Options{Tokens: special, Style: style})
		if err != nil {
			t.Fatal(err)
		}
		chats, texts := 0, 0
		file := readJSON[recorded](t, "../../../testdata/captures/dynamo/requests.json")
		for i, r := range file.Requests {
			var got Prompt
			switch r.Kind {
			case "chat":
				chats++
				got, err = tmpl.Render(prompt.Chat, r.Request, goldenNow)
			case "text":
				texts++
				var b prompt.Body
				if err := b.Scan(prompt.Completion, r.Request); err != nil {
					t.Fatal(err)
				}
				got, err = Completion(r.Request, b.Start, b.End)
			default:
				continue
			}
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			want := ""
			for _, id := range r.TokenIDs {
				want += tokens[id]
			}
			if got.Text != want || got.Usable != len(want) {
				t.Errorf("request %d:\n got %q\nwant %q", i, around(got.Text, want), around(want, got.Text))
			}
			if got.AddSpecial != (r.Kind == "text") {
				t.Errorf("request %d: special tokens %v", i, got.AddSpecial)
			}
		}
		if chats != 9 || texts != 1 {
			t.Errorf("%d chats and %d texts, want 9 and 1", chats, texts)
		}
	}
}
