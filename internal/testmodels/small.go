package testmodels

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// ChatML is a chat template with system text, tools, reasoning and an option.
const ChatML = `{%- if tools %}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{%- if m.content %}{{ m.content }}{% endif %}
{%- if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}`

// WriteSmall writes the files of a small model into a folder: a token for every
// byte, some merges, a beginning of sequence, and a chat template. Each file
// appears whole, so that a program that reads them may be running.
func WriteSmall(tb testing.TB, dir, template string) {
	tb.Helper()
	// The alphabet of byte-level models: printable bytes stand for themselves, the
	// others for characters from U+0100 on.
	vocab := map[string]int{}
	next := rune(0x100)
	var alphabet [256]string
	for b := range 256 {
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = next
			next++
		}
		alphabet[b] = string(r)
		vocab[alphabet[b]] = b
	}
	var merges [][2]string
	for _, m := range [][2]string{{"e", "r"}, {"o", "u"}, {alphabet[' '], "t"}} {
		merges = append(merges, m)
		vocab[m[0]+m[1]] = len(vocab)
	}
	added := []map[string]any{}
	for i, name := range []string{"<|im_start|>", "<|im_end|>", "<s>"} {
		added = append(added, map[string]any{
			"id": len(vocab) + i, "content": name, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	bos := added[2]["id"]
	write := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			tb.Fatal(err)
		}
		next := filepath.Join(dir, name+".next")
		if err := os.WriteFile(next, data, 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		tb.Fatal(err)
	}
	write("tokenizer.json", map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil,
		"added_tokens":  added,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"post_processor": map[string]any{
			"type":           "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"pair":           []any{map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}},
			"special_tokens": map[string]any{"<s>": map[string]any{"id": "<s>", "ids": []any{bos}, "tokens": []string{"<s>"}}},
		},
		"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
		},
	})
	write("tokenizer_config.json", map[string]any{"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": template})
}
