package tokenizer_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// small is a tokenizer.json with one of everything. Each field is on a line of
// its own, so that a test can put another in its place.
const small = `{
"version": "1.0",
"truncation": null,
"padding": null,
"added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
"normalizer": {"type": "NFC"},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false}]},
"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
"decoder": {"type": "Anything", "x": [1, -2.5e+3, true, {"a": "\ud83d\ude00"}]},
"model": {
"type": "BPE",
"dropout": null,
"unk_token": null,
"continuing_subword_prefix": null,
"end_of_word_suffix": "",
"fuse_unk": false,
"byte_fallback": false,
"ignore_merges": false,
"vocab": {"a": 0, "b": 1, "\u0061b": 2, "abb": 3},
"merges": ["a b", "ab b"]
}
}
`

// template is a post-processor that puts a token before a text.
const template = `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"id":"x","ids":[4]}}}`

// with returns small with another value for a field.
func with(field, value string) string {
	lines := strings.Split(small, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, `"`+field+`":`) {
			comma := ""
			if strings.HasSuffix(line, ",") {
				comma = ","
			}
			lines[i] = `"` + field + `": ` + value + comma
			return strings.Join(lines, "\n")
		}
	}
	panic("no field " + field)
}

func TestSmall(t *testing.T) {
	for name, file := range map[string]string{
		"small":       small,
		"pairs":       with("merges", `[["a","b"],["ab","b"]]`),
		"escaped":     with("merges", `[["a","\u0062"],["ab","b"]]`),
		"with header": with("merges", `["#version: 0.2","a b","ab b"]`),
		"no type":     strings.Replace(small, `"type": "BPE",`, "", 1),
		"no flags":    strings.Replace(small, `"ignore_merges": false,`, "", 1),
		"no dropout":  with("dropout", "0.0"),
	} {
		tok, err := tokenizer.Load([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprint(tok.Append(nil, "abbab<s>ba", true)); got != "[4 3 2 4 1 0]" {
			t.Errorf("%s: %v", name, got)
		}
		if got := fmt.Sprint(tok.Prefix(true), tok.Suffix(true), tok.Prefix(false), tok.VocabSize()); got != "[4] [] [] 5" {
			t.Errorf("%s: %v", name, got)
		}
		id, ok := tok.ID("abb")
		special, _ := tok.ID("<s>")
		if _, none := tok.ID("bb"); id != 3 || !ok || special != 4 || none {
			t.Errorf("%s: ids %d %v, %d, %v", name, id, ok, special, none)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	split := func(s string) string { return with("pre_tokenizer", `{"type":"Split",`+s+`}`) }
	for _, tc := range []struct{ file, want string }{
		{"", "the file ends where a value should be (byte 0, line 1, column 1)"},
		{"[]", "the file is not an object"},
		{small + "x", "invalid JSON: the end of the file should be here (byte"},
		{"{\"version\":\n \"1\xff\"}", "the file is not UTF-8 (byte 15, line 2, column 4)"},
		{with("version", `"2.0"`), "version: the version is not 1.0 (byte 13, line 2, column 12)"},
		{with("version", `"1.0", "version": "1.0"`), `the field "version" is given twice`},
		{with("version", `"1.0", "what": 1`), "what: the field is not known"},
		{with("truncation", `{"max_length":512}`), "truncation: truncation is not supported"},
		{with("padding", `{}`), "padding: padding is not supported"},

		{with("normalizer", `{"type":"NFKC"}`), `normalizer: the normalizer "NFKC" is not supported (byte`},
		{with("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"BertNormalizer"}]}`), `normalizer.normalizers[1]: the normalizer "BertNormalizer" is not supported`},
		{with("normalizer", `{"type":"Replace","pattern":{"Regex":" {2,}"},"content":""}`), `normalizer.pattern.Regex: Replace with the regex " {2,}" is not supported`},
		{with("normalizer", `{"type":"Replace","pattern":{"String":""},"content":""}`), "an empty pattern is not supported"},
		{with("normalizer", `{"type":"Replace","pattern":{"String":"x"}}`), "normalizer: the field content is missing"},
		{with("normalizer", `{"type":"Prepend","prepend":""}`), "Prepend of nothing is not supported"},
		{with("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 40)+`{"type":"NFC"}]}`), "normalizer.normalizers[6]: the normalizer can make a text more than 64 times as long"},
		{with("normalizer", `{"type":"Replace","pattern":{"String":"ab"},"content":"`+strings.Repeat("x", 129)+`"}`), "normalizer: the normalizer can make a text more than 64 times as long"},
		{with("normalizer", `{"type":"Prepend","prepend":"`+strings.Repeat("x", 64)+`"}`), "normalizer: the normalizer can make a text more than 64 times as long"},
		{with("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"NFC"},`, 3)+`{"type":"NFC"}]}`), "normalizer.normalizers[3]: the normalizer can make a text more than 64 times as long"},
		{with("normalizer", `{"type":"NFC","x":1}`), "normalizer.x: the field is not known"},
		{with("normalizer", `{"typ":"NFC"}`), "normalizer: the part has no type"},
		{with("normalizer", `"NFC"`), "normalizer: an object should be here"},
		{with("normalizer", `{"type":"Sequence","normalizers":[null]}`), "normalizer.normalizers[0]: an object should be here"},

		{with("pre_tokenizer", `{"type":"Whitespace"}`), `pre_tokenizer: the pre-tokenizer "Whitespace" is not supported`},
		{with("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a|b"},"behavior":"Isolated","invert":false}]}`), `pre_tokenizer.pretokenizers[0]: Split with the regex "a|b" is not supported`},
		{split(`"pattern":{"Regex":"\\p{N}"},"behavior":"Removed","invert":false`), "Split of a regex is supported with behavior Isolated"},
		{split(`"pattern":{"Regex":"\\p{N}"},"behavior":"Isolated","invert":true`), "Split of a regex is supported with behavior Isolated"},
		{split(`"pattern":{"String":" "},"behavior":"Mangled","invert":false`), "the behavior is not known"},
		{split(`"pattern":{"String":" ","Regex":" "},"behavior":"Isolated","invert":false`), "pattern.String: the field is not known"},
		{split(`"pattern":{"String":" "},"behavior":"Isolated"`), "the field invert is missing"},
		{with("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},{"type":"Digits","individual_digits":true}]}`), "pre_tokenizer.pretokenizers[1]: nothing is supported after ByteLevel"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`), "the replacement is not one character"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`), "the prepend_scheme is not known"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","add_prefix_space":false}`), "add_prefix_space says otherwise"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}`), "prepend_scheme first is not supported with a normalizer"},
		{with("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"_","prepend_scheme":"always"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]}`), "prepend_scheme first is not supported after"},

		{with("post_processor", `{"type":"BertProcessing"}`), `post_processor: the post-processor "BertProcessing" is not supported`},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{}}`), "post_processor.single[0].SpecialToken: the template names a token that special_tokens does not have"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],"special_tokens":{}}`), "the template does not hold its text once"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}],"special_tokens":{}}`), "the template does not hold its text once"},
		{with("decoder", `{"k":0`+manyKeys(1024)+`}`), "decoder: an object with more than 1024 fields"},
		{with("added_tokens", `[{"id":4,"content":"`+strings.Repeat("<", 257)+`","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`), "added_tokens[0]: the token has more than 256 bytes"},
		{with("post_processor", `{"type":"Sequence","processors":[`+template+`,`+template+`]}`), "a second TemplateProcessing is not supported"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[],"special_tokens":{}}`), "the template does not hold its text once"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"id":"x","ids":[-1]}}}`), "ids[0]: a token id is not a whole number below 2^32"},

		{with("added_tokens", `{}`), "added_tokens: a list should be here"},
		{with("added_tokens", `[7]`), "added_tokens[0]: an object should be here"},
		{with("added_tokens", `[{"id":4,"content":"x"}]`), "added_tokens[0]: the field single_word is missing"},
		{with("added_tokens", `[{"id":4,"content":"x","single_word":0,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`), "added_tokens[0].single_word: true or false should be here"},
		{with("added_tokens", `[{"id":4.5,"content":"x"}]`), "added_tokens[0].id: a token id is not a whole number below 2^32"},
		{with("added_tokens", `[{"id":4,"content":"x","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},{"id":4,"content":"x","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":true}]`), "added_tokens[1]: the token is given twice, in different ways"},

		{with("type", `"WordPiece"`), `model.type: the model "WordPiece" is not supported`},
		{with("type", `"Unigram"`), `model.type: the model "Unigram" is not supported`},
		{with("dropout", `0.1`), "model.dropout: dropout is not supported"},
		{with("continuing_subword_prefix", `"##"`), "model.continuing_subword_prefix: continuing_subword_prefix is not supported"},
		{with("end_of_word_suffix", `"</w>"`), "model.end_of_word_suffix: end_of_word_suffix is not supported"},
		{with("unk_token", `"<unk>"`), "model.unk_token: the unknown token is not in the vocabulary"},
		{with("fuse_unk", `1`), "model.fuse_unk: true or false should be here"},
		{with("ignore_merges", `false, "new_field": 1`), "model.new_field: the field is not known"},
		{with("vocab", `[]`), "model.vocab: an object should be here"},
		{with("vocab", `{}`), "model.vocab: the vocabulary is empty"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":-3}`), "model.vocab: a token id is not a whole number below 2^32"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":"3"}`), "model.vocab: invalid JSON: a number should be here"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":4194304}`), "model.vocab: the token id 4194304 is above the limit of 4194303"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":70000}`), "model.vocab: the token id 70000 is too high for 4 tokens"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":2}`), "model.vocab: two tokens have the id 2"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":3,"\u0061":4}`), "model.vocab: a token is given twice"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":3,"\ud800":4}`), "model.vocab: invalid JSON: no character has this escape"},
		{with("vocab", `{"a":0,"b":1,"ab":2,"abb":3,"\x":4}`), "model.vocab: invalid JSON: unknown escape"},
		{with("merges", `["a b","ab c"]`), "model.merges: a merge names a token that is not in the vocabulary"},
		{with("merges", `["a b","b b"]`), "model: merge 1 makes a token that is not in the vocabulary"},
		{with("merges", `["a b","ab  b"]`), "model.merges: a merge is not two tokens with a blank between them"},
		{with("merges", `["a b",["ab","b"]]`), "model.merges: some merges are pairs and some are lines"},
		{with("merges", `[["a","b","b"]]`), "model.merges: invalid JSON"},
		{with("merges", `[7]`), "model.merges: invalid JSON"},
		{with("merges", `{}`), "model.merges: a list should be here"},
		{with("pre_tokenizer", `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}`), "model.vocab: some bytes have no token"},
		{with("decoder", strings.Repeat("[", 70)+strings.Repeat("]", 70)), "nested deeper than 64 levels"},
		{with("decoder", "\"a\nb\""), "a control character in a string"},
		{with("decoder", "01"), "a number should be here"},
		{with("decoder", "1."), "a number should be here"},
		{with("decoder", "tru"), "true should be here"},
		{with("decoder", "[1 2]"), "',' should be here"},
		{with("decoder", "[1,]"), "a value should be here"},
	} {
		_, err := tokenizer.Load([]byte(tc.file))
		name := tc.want
		checkRefusal(t, name, err, tc.want)
	}
}

// A file that ends anywhere is refused, at a place that is inside it.
func TestLoadTruncated(t *testing.T) {
	whole := strings.TrimSpace(small)
	for n := range len(whole) {
		_, err := tokenizer.Load([]byte(whole[:n]))
		checkPlace(t, []byte(whole[:n]), err)
	}
}

// checkPlace checks that an error names a place, and the right line and column
// for it.
func checkPlace(t testing.TB, data []byte, err error) {
	t.Helper()
	var e *tokenizer.LoadError
	if !errors.As(err, &e) {
		t.Fatalf("%q: %v", data, err)
	}
	if e.Offset < 0 {
		return
	}
	if e.Offset > int64(len(data)) {
		t.Fatalf("%v: the file has %d bytes", e, len(data))
	}
	before := data[:e.Offset]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	if e.Line != line || e.Column != column {
		t.Fatalf("%v: line %d, column %d", e, line, column)
	}
}

// Whatever the file, loading it ends well or with an error, and what is loaded
// encodes any text.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(small))
	for _, field := range []string{"normalizer", "pre_tokenizer", "post_processor", "added_tokens", "merges", "vocab"} {
		f.Add([]byte(with(field, "null")))
	}
	parts := readParts(f)
	for i := range parts.Cases[:20] {
		f.Add(parts.file(f, &parts.Cases[i]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := tokenizer.Load(data)
		if err != nil {
			checkPlace(t, data, err)
			return
		}
		for _, text := range []string{"", "ab <s>a\xffé  12", string(data[:min(len(data), 200)])} {
			if len(tok.Append(nil, text, true)) < len(tok.Prefix(true)) {
				t.Fatal("no prefix")
			}
			segments(t, tok, text)
		}
	})
}

func FuzzLoadTiktoken(f *testing.F) {
	f.Add([]byte(allBytes()))
	f.Add([]byte("IQ== 0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := tokenizer.LoadTiktoken(data, tokenizer.TiktokenConfig{Pattern: o200k, Special: map[uint32]string{300: "<s>"}})
		if err != nil {
			checkPlace(t, data, err)
			return
		}
		segments(t, tok, "ab <s> 12")
	})
}

// manyKeys returns n fields of an object, with commas before them.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	return b.String()
}
