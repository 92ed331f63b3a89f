package prompt

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// twinBody is what the slow twin reads with encoding/json.
type twinBody struct {
	model, salt string
	stream      bool
	form        Form
	tokens      []uint32
	exact       bool
	lists       int
	maxTokens   int
	expected    int
	media       bool

	faults map[string]bool // names of the fields of a wrong type
	code   string          // the error's code, empty when all is well
}

// depthOf returns how deep valid JSON nests.
func depthOf(data []byte) int {
	deepest, depth := 0, 0
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// twin reads a body the slow, obvious way: a tree, then look-ups.
func twin(kind Kind, data []byte) twinBody {
	t := twinBody{faults: map[string]bool{}}
	if len(bytes.Trim(data, " \t\r\n")) == 0 {
		t.code = CodeEmptyBody
		return t
	}
	if !json.Valid(data) || depthOf(data) > MaxDepth {
		t.code = CodeInvalidJSON
		return t
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		t.code = CodeInvalidJSON
		return t
	}
	root, ok := tree.(map[string]any)
	if !ok {
		if kind.strict() {
			t.code, t.faults[""] = CodeInvalidType, true
		}
		return t
	}
	t.fields(kind, root)
	switch {
	case !kind.strict():
	case len(t.faults) > 0:
		t.code = CodeInvalidType
	case t.model == "":
		t.code = CodeMissingModel
	case t.form == NoPrompt && (kind == Chat || !t.media):
		t.code = CodeMissingPrompt
	}
	return t
}

func (t *twinBody) fields(kind Kind, root map[string]any) {
	t.model = t.text("model", root["model"])
	t.salt = t.text("cache_salt", root["cache_salt"])
	if v := root["stream"]; v != nil {
		if t.stream, _ = v.(bool); v != true && v != false {
			t.faults["stream"] = true
		}
	}
	t.maxTokens = t.count("max_tokens", root["max_tokens"])
	if n := t.count("max_completion_tokens", root["max_completion_tokens"]); n > 0 {
		t.maxTokens = n
	}
	switch ext := root["nvext"].(type) {
	case nil:
	case map[string]any:
		if s := t.text("nvext.cache_salt", ext["cache_salt"]); s != "" {
			t.salt = s
		}
		hints, _ := ext["agent_hints"].(map[string]any)
		t.expected = plainCount(hints["osl"])
		if v := ext["token_data"]; v != nil {
			list, isList := v.([]any)
			given, ok := ids(list)
			if t.faults["nvext.token_data"] = true; isList && ok {
				delete(t.faults, "nvext.token_data")
				defer t.apply(given)
			}
		}
	default:
		t.faults["nvext"] = true
	}
	switch kind {
	case Completion:
		t.prompt(root["prompt"])
		t.media = t.form == NoPrompt && root["prompt_embeds"] != nil
	case Chat:
		t.messages(root["messages"], "content")
	case Responses:
		t.maxTokens = t.count("max_output_tokens", root["max_output_tokens"])
		if _, ok := root["input"].(string); ok {
			t.form, t.lists = Text, 1
		} else {
			t.messages(root["input"], "content", "output")
		}
		t.media = t.media || t.form == NoPrompt && root["prompt_embeds"] != nil
	case AnthropicMessages:
		t.messages(root["messages"], "content")
		t.media = t.media || t.form == NoPrompt && root["prompt_embeds"] != nil
		t.nested(root["messages"])
	case Other:
		t.media = root["prompt_embeds"] != nil
	}
}

// nested looks for media in the content of content parts: the results of tools.
func (t *twinBody) nested(v any) {
	list, ok := v.([]any)
	if !ok || !all[map[string]any](list) {
		return
	}
	for _, m := range list {
		t.inner(m.(map[string]any)["content"])
	}
}

func (t *twinBody) inner(v any) {
	list, _ := v.([]any)
	for _, p := range list {
		part, _ := p.(map[string]any)
		t.parts(part["content"])
		t.inner(part["content"])
	}
}

func (t *twinBody) apply(given []uint32) {
	if len(given) > 0 && (t.form == Text || t.form == Messages) {
		t.tokens, t.exact = given, true
	}
}

func (t *twinBody) text(name string, v any) string {
	s, ok := v.(string)
	if v != nil && !ok {
		t.faults[name] = true
	}
	return s
}

func (t *twinBody) count(name string, v any) int {
	if _, ok := v.(json.Number); v != nil && !ok {
		t.faults[name] = true
	}
	return plainCount(v)
}

func plainCount(v any) int {
	n, _ := v.(json.Number)
	i, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || i < 0 {
		return 0
	}
	return int(i)
}

func ids(list []any) ([]uint32, bool) {
	var out []uint32
	for _, v := range list {
		n, _ := v.(json.Number)
		id, err := strconv.ParseUint(string(n), 10, 32)
		if err != nil || id > math.MaxUint32 {
			return nil, false
		}
		out = append(out, uint32(id))
	}
	return out, true
}

func all[T any](list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(T); return !ok })
}

func (t *twinBody) prompt(v any) {
	switch v := v.(type) {
	case nil:
		return
	case string:
		t.form, t.lists = Text, 1
		return
	case []any:
		if len(v) == 0 {
			return
		}
		if all[string](v) {
			t.form, t.lists = Texts, len(v)
			return
		}
		if list, ok := ids(v); ok {
			t.form, t.lists, t.tokens, t.exact = Tokens, 1, list, true
			return
		}
		if all[[]any](v) {
			ok := true
			for _, inner := range v {
				_, good := ids(inner.([]any))
				ok = ok && good
			}
			if ok {
				first, _ := ids(v[0].([]any))
				t.form, t.lists, t.tokens, t.exact = TokenLists, len(v), first, true
				return
			}
		}
	}
	t.faults["prompt"] = true
}

func (t *twinBody) messages(v any, keys ...string) {
	list, ok := v.([]any)
	if v != nil && !ok || !all[map[string]any](list) {
		t.faults["messages"] = true
		return
	}
	if len(list) == 0 {
		return
	}
	t.form, t.lists = Messages, 1
	for _, m := range list {
		for _, key := range keys {
			t.parts(m.(map[string]any)[key])
		}
	}
}

// parts looks for media in content that is a list of parts.
func (t *twinBody) parts(v any) {
	list, _ := v.([]any)
	for _, p := range list {
		part, _ := p.(map[string]any)
		if kind, ok := part["type"].(string); ok {
			t.media = t.media || isMedia([]byte(kind))
			continue
		}
		for key := range part {
			t.media = t.media || isMedia([]byte(key))
		}
	}
}

// likeJSON returns s as encoding/json decodes it: bytes that are no UTF-8 become
// U+FFFD. Scan keeps them.
func likeJSON(s string) string { return string([]rune(s)) }

// differs compares Scan's answer with the twin's. It returns what differs.
func differs(b *Body, err error, want twinBody, data []byte) string {
	if err != nil {
		e, ok := err.(*Error)
		switch {
		case !ok:
			return "the error is no *Error"
		case e.Code != want.code:
			return "code " + e.Code + ", want " + strconv.Quote(want.code)
		case e.Offset < 0 || e.Offset > len(data):
			return "offset out of the body"
		case e.Code == CodeInvalidType && !want.faults[e.Param]:
			return "param " + e.Param
		case e.Code == CodeInvalidJSON && !strings.Contains(e.Msg, "too deep"):
			return offsetDiffers(e.Offset, data)
		}
		return ""
	}
	switch {
	case want.code != "":
		return "no error, want " + want.code
	case want.faults["model"], want.faults["cache_salt"], want.faults["nvext.cache_salt"]: // only for Other
	case likeJSON(b.Model) != want.model:
		return "model " + b.Model
	case likeJSON(b.Salt) != want.salt:
		return "salt " + b.Salt
	}
	switch {
	case b.Stream != want.stream:
		return "stream"
	case b.Form != want.form:
		return "form " + b.Form.String() + ", want " + want.form.String()
	case b.Lists != want.lists:
		return "lists " + strconv.Itoa(b.Lists)
	case b.Exact != want.exact:
		return "exact"
	case !slices.Equal(b.Tokens, want.tokens):
		return "tokens"
	case b.MaxTokens != want.maxTokens:
		return "max tokens " + strconv.Itoa(b.MaxTokens)
	case b.ExpectedOutput != want.expected:
		return "expected output " + strconv.Itoa(b.ExpectedOutput)
	case b.HasMedia != want.media:
		return "media"
	case b.Start < 0 || b.Start > b.End || b.End > len(data):
		return "frame"
	case b.Form != NoPrompt && !json.Valid(data[b.Start:b.End]):
		return "the frame holds no value"
	}
	return ""
}

// offsetDiffers compares the place of a syntax error with encoding/json's, which
// counts the bytes up to and with the bad one.
func offsetDiffers(offset int, data []byte) string {
	var v any
	syntax, ok := json.Unmarshal(data, &v).(*json.SyntaxError)
	if !ok {
		return "encoding/json finds no syntax error"
	}
	want := int(syntax.Offset)
	// At the end of the body encoding/json acts as if a space came next, and in
	// an escape or a number it blames that.
	if offset < len(data) || want < len(data) {
		want--
	}
	if offset != want {
		return "offset " + strconv.Itoa(offset) + ", want " + strconv.Itoa(want) + " (" + syntax.Error() + ")"
	}
	return ""
}
