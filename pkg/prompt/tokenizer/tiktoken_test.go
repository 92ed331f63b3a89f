package tokenizer_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// The pattern of OpenAI's o200k_base.
const o200k = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// ranks is the vocabulary of gpt-oss as a tiktoken file, and its size.
func ranks(tb testing.TB) (file []byte, count int) {
	tb.Helper()
	var f struct {
		Model struct{ Vocab map[string]uint32 }
	}
	if err := json.Unmarshal(modelFile(tb, "gptoss", "tokenizer.json"), &f); err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for token, id := range f.Model.Vocab {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(spelled(token)), id)
	}
	return []byte(b.String()), len(f.Model.Vocab)
}

// spelled undoes the byte-level alphabet.
func spelled(token string) []byte {
	var out []byte
	for _, r := range token {
		out = append(out, alphabet()[r])
	}
	return out
}

var alphabet = sync.OnceValue(func() map[rune]byte {
	table, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b {
			table[rune(b)] = byte(b)
		} else {
			table[next] = byte(b)
			next++
		}
	}
	return table
})

func TestGoldenTiktoken(t *testing.T) {
	file, count := ranks(t)
	special := func(names ...string) map[uint32]string {
		m := map[uint32]string{}
		for i, name := range names {
			m[uint32(count+i)] = name
		}
		return m
	}
	config := `{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{`
	for i, name := range []string{"[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"} {
		config += fmt.Sprintf(`"%d":{"content":%q,"lstrip":false},`, count+i, name)
	}
	kimi, err := tokenizer.ReadTiktokenConfig([]byte(strings.TrimSuffix(config, ",") + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]tokenizer.TiktokenConfig{
		"o200k": {Pattern: o200k, Special: special("<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>")},
		"kimi":  kimi,
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := tokenizer.LoadTiktoken(file, cfg)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, tok, readGolden(t, "tiktoken-"+name))
		})
	}
	t.Run("names", func(t *testing.T) {
		tok, err := tokenizer.LoadTiktoken(file, kimi)
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := tok.ID("<|im_end|>"); !ok || id != uint32(count+2) {
			t.Errorf("<|im_end|> has id %d, %v", id, ok)
		}
		reserved := fmt.Sprintf("<|reserved_token_%d|>", count+255)
		if ids := tok.Append(nil, reserved, false); len(ids) != 1 || ids[0] != uint32(count+255) || tok.VocabSize() != count+256 {
			t.Errorf("%s is %v in a vocabulary of %d", reserved, ids, tok.VocabSize())
		}
	})
}

// allBytes is a tiktoken file with a token for each byte.
func allBytes() string {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	return b.String()
}

func TestTiktokenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		cfg  tokenizer.TiktokenConfig
		want string
	}{
		"pattern":        {allBytes(), tokenizer.TiktokenConfig{Pattern: "x+"}, `pattern: the regex "x+" is not supported`},
		"no tokens":      {"\n\n", tokenizer.TiktokenConfig{}, "no tokens (byte 0, line 1, column 1)"},
		"half a line":    {"IQ== 0\nIg==\n", tokenizer.TiktokenConfig{}, "a line is not a token and its rank (byte 7, line 2, column 1)"},
		"rank":           {"IQ== -1", tokenizer.TiktokenConfig{}, "a rank is not a whole number"},
		"huge rank":      {"IQ== 4194304", tokenizer.TiktokenConfig{}, "a rank is not a whole number, or too high"},
		"base64":         {"I*== 1", tokenizer.TiktokenConfig{}, "a token is not base64"},
		"empty":          {"==== 1", tokenizer.TiktokenConfig{}, "a token is not base64"},
		"twice":          {"IQ== 1\nIQ== 2", tokenizer.TiktokenConfig{}, "a token is given twice"},
		"rank twice":     {"IQ== 1\nIg== 1", tokenizer.TiktokenConfig{}, "two tokens have the rank 1"},
		"bytes":          {"IQ== 1", tokenizer.TiktokenConfig{}, "the byte 0x00 has no rank"},
		"special prefix": {allBytes(), tokenizer.TiktokenConfig{Special: map[uint32]string{256: "<a", 257: "<a>"}}, "the token with id 256 starts another one"},
		"special twice":  {allBytes(), tokenizer.TiktokenConfig{Special: map[uint32]string{256: "<a", 257: "<a"}}, "has the name of another"},
		"special rank":   {allBytes(), tokenizer.TiktokenConfig{Special: map[uint32]string{255: "<a"}}, "the token id 255 is a rank"},
		"special empty":  {allBytes(), tokenizer.TiktokenConfig{Special: map[uint32]string{256: ""}}, "the token with id 256 is empty"},
		"special id":     {allBytes(), tokenizer.TiktokenConfig{Special: map[uint32]string{1 << 22: "<a"}}, "is above the limit"},
	} {
		if tc.cfg.Pattern == "" {
			tc.cfg.Pattern = o200k
		}
		_, err := tokenizer.LoadTiktoken([]byte(tc.file), tc.cfg)
		checkRefusal(t, name, err, tc.want)
	}
	for config, want := range map[string]string{
		`{"tokenizer_class":"LlamaTokenizer","added_tokens_decoder":{}}`:                                     `tokenizer_class: the tokenizer class "LlamaTokenizer" is not supported (byte 19`,
		`{"tokenizer_class":"TikTokenTokenizer"}`:                                                            "the field added_tokens_decoder is missing",
		`{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"x":{}}}`:                            "added_tokens_decoder.x: the key is not a token id",
		`{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"1":{"content":"a","lstrip":true}}}`: "lstrip is not supported",
		`{"tokenizer_class":"TikTokenTokenizer"`:                                                             "the file ends",
		`[]`:                                                                                                 "tokenizer_class is missing",
	} {
		_, err := tokenizer.ReadTiktokenConfig([]byte(config))
		checkRefusal(t, config, err, want)
	}
}

// checkRefusal checks that loading failed for the right reason.
func checkRefusal(t *testing.T, name string, err error, want string) {
	t.Helper()
	var e *tokenizer.LoadError
	switch {
	case err == nil:
		t.Errorf("%s: accepted", name)
	case !errors.As(err, &e):
		t.Errorf("%s: %v is no *LoadError", name, err)
	case !strings.Contains(err.Error(), want):
		t.Errorf("%s: %v, want %s", name, err, want)
	}
}
