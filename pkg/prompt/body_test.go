package prompt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestKindOf(t *testing.T) {
	for path, want := range map[string]Kind{
		"/v1/chat/completions":            Chat,
		"/v1/chat/completions?a=/v1/x":    Chat,
		"/openai/v1/chat/completions":     Chat,
		"/v1/completions":                 Completion,
		"/team/a/v1/completions?x":        Completion,
		"/v1/responses":                   Responses,
		"/a/v1/messages?beta=true":        AnthropicMessages,
		"/v1/messages/count_tokens":       Other,
		"/v1/completions/":                Other,
		"/v1/completions/render":          Other,
		"/xv1/completions":                Other,
		"v1/completions":                  Other,
		"/v1/models?next=/v1/completions": Other,
		"/v2/chat/completions":            Other,
		"":                                Other,
		"?":                               Other,
	} {
		if got := KindOf(path); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestScan(t *testing.T) {
	type want struct {
		Model, Salt string
		Stream      bool
		Form        Form
		Tokens      []uint32
		Exact       bool
		Lists, Max  int
		Media       bool
		frame       string
	}
	for name, tc := range map[string]struct {
		kind Kind
		body string
		want want
	}{
		"text": {Completion, `{"model":"m","prompt":"hi"}`, want{Model: "m", Form: Text, Lists: 1, frame: `"hi"`}},
		"tokens": {
			Completion, " {\"model\":\"m\", \"prompt\" : [1, 22,333 ,\n4444,0,4294967295] } \r\n",
			want{Model: "m", Form: Tokens, Lists: 1, Exact: true, Tokens: []uint32{1, 22, 333, 4444, 0, 4294967295}, frame: "[1, 22,333 ,\n4444,0,4294967295]"},
		},
		"texts":       {Completion, `{"model":"m","prompt":["a","b\"]"]}`, want{Model: "m", Form: Texts, Lists: 2, frame: `["a","b\"]"]`}},
		"token lists": {Completion, `{"model":"m","prompt":[[1,2],[3],[]]}`, want{Model: "m", Form: TokenLists, Lists: 3, Exact: true, Tokens: []uint32{1, 2}, frame: `[[1,2],[3],[]]`}},
		"empty first": {Completion, `{"model":"m","prompt":[[],[3]]}`, want{Model: "m", Form: TokenLists, Lists: 2, Exact: true, frame: `[[],[3]]`}},
		"chat": {
			Chat, `{"messages":[{"role":"user","content":"x"}],"model":"m","stream":true,"max_tokens":7}`,
			want{Model: "m", Form: Messages, Lists: 1, Stream: true, Max: 7, frame: `[{"role":"user","content":"x"}]`},
		},
		"prompt is no field of a chat": {Chat, `{"model":"m","messages":[{}],"prompt":7}`, want{Model: "m", Form: Messages, Lists: 1, frame: `[{}]`}},
		"escaped keys and values": {
			Completion, `{"mod\u0065l":"a\u00e9\ud83d\ude00\ud83d\"\n","\u0070rompt":[1]}`,
			want{Model: "aé😀\uFFFD\"\n", Form: Tokens, Lists: 1, Exact: true, Tokens: []uint32{1}, frame: `[1]`},
		},
		"last key wins": {
			Completion, `{"model":1,"model":"m","prompt":[1,2],"prompt":"x","prompt":{},"prompt":[3],"stream":true,"stream":null}`,
			want{Model: "m", Form: Tokens, Lists: 1, Exact: true, Tokens: []uint32{3}, frame: `[3]`},
		},
		"no UTF-8":       {Completion, "{\"model\":\"\xff\xc3\",\"prompt\":\"\xff\"}", want{Model: "\xff\xc3", Form: Text, Lists: 1, frame: "\"\xff\""}},
		"newer limit":    {Completion, `{"model":"m","prompt":"","max_completion_tokens":5,"max_tokens":9}`, want{Model: "m", Form: Text, Lists: 1, Max: 5, frame: `""`}},
		"odd limits":     {Completion, `{"model":"m","prompt":"","max_completion_tokens":-5,"max_tokens":1e3}`, want{Model: "m", Form: Text, Lists: 1, frame: `""`}},
		"huge limit":     {Completion, `{"model":"m","prompt":"","max_tokens":99999999999999999999999999}`, want{Model: "m", Form: Text, Lists: 1, frame: `""`}},
		"salt":           {Completion, `{"model":"m","prompt":"","cache_salt":"s"}`, want{Model: "m", Salt: "s", Form: Text, Lists: 1, frame: `""`}},
		"inner salt":     {Completion, `{"nvext":{"cache_salt":"i"},"model":"m","prompt":"","cache_salt":"s"}`, want{Model: "m", Salt: "i", Form: Text, Lists: 1, frame: `""`}},
		"empty salt":     {Completion, `{"nvext":{"cache_salt":""},"model":"m","prompt":"","cache_salt":"s"}`, want{Model: "m", Salt: "s", Form: Text, Lists: 1, frame: `""`}},
		"given, text":    {Completion, `{"nvext":{"token_data":[5,6]},"model":"m","prompt":"a"}`, want{Model: "m", Form: Text, Lists: 1, Exact: true, Tokens: []uint32{5, 6}, frame: `"a"`}},
		"given, chat":    {Chat, `{"model":"m","messages":[{}],"nvext":{"x":[{}],"token_data":[5,6]}}`, want{Model: "m", Form: Messages, Lists: 1, Exact: true, Tokens: []uint32{5, 6}, frame: `[{}]`}},
		"given, tokens":  {Completion, `{"model":"m","prompt":[1],"nvext":{"token_data":[5,6]}}`, want{Model: "m", Form: Tokens, Lists: 1, Exact: true, Tokens: []uint32{1}, frame: `[1]`}},
		"given, texts":   {Completion, `{"model":"m","prompt":["a"],"nvext":{"token_data":[5,6]}}`, want{Model: "m", Form: Texts, Lists: 1, frame: `["a"]`}},
		"given, undone":  {Completion, `{"model":"m","prompt":"a","nvext":{"token_data":[5,6],"cache_salt":"x"},"nvext":{}}`, want{Model: "m", Form: Text, Lists: 1, frame: `"a"`}},
		"image":          {Chat, `{"model":"m","messages":[{"content":"a"},{"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]},{"content":[]}]}`, want{Model: "m", Form: Messages, Lists: 1, Media: true, frame: `[{"content":"a"},{"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]},{"content":[]}]`}},
		"untyped audio":  {Chat, `{"model":"m","messages":[{"content":[{"input_audio":{}}]}]}`, want{Model: "m", Form: Messages, Lists: 1, Media: true, frame: `[{"content":[{"input_audio":{}}]}]`}},
		"media in text":  {Chat, `{"model":"m","messages":[{"name":"image_url","content":["image_url",{"type":"text","image_url":"image_url"}],"image_url":[{"type":"image_url"}]}]}`, want{Model: "m", Form: Messages, Lists: 1, frame: `[{"name":"image_url","content":["image_url",{"type":"text","image_url":"image_url"}],"image_url":[{"type":"image_url"}]}]`}},
		"embeds":         {Completion, `{"model":"m","prompt":null,"prompt_embeds":"AA=="}`, want{Model: "m", Media: true, frame: `null`}},
		"other":          {Other, `{"model":"m","input":[1],"stream":3}`, want{Model: "m"}},
		"other, no body": {Other, `[]`, want{}},
	} {
		t.Run(name, func(t *testing.T) {
			var b Body
			if err := b.Scan(tc.kind, []byte(tc.body)); err != nil {
				t.Fatal(err)
			}
			got := want{b.Model, b.Salt, b.Stream, b.Form, b.Tokens, b.Exact, b.Lists, b.MaxTokens, b.HasMedia, tc.body[b.Start:b.End]}
			if !slices.Equal(got.Tokens, tc.want.Tokens) {
				t.Errorf("tokens %v, want %v", got.Tokens, tc.want.Tokens)
			}
			got.Tokens, tc.want.Tokens = nil, nil
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestScanErrors(t *testing.T) {
	const secret = "sesame"
	deep := strings.Repeat(`[`, MaxDepth) + strings.Repeat(`]`, MaxDepth)
	for _, tc := range []struct {
		kind              Kind
		body, code, param string
		offset            int
	}{
		{Chat, ``, CodeEmptyBody, "", 0},
		{Chat, " \n\t\r", CodeEmptyBody, "", 4},
		{Other, ``, CodeEmptyBody, "", 0},
		{Other, `{`, CodeInvalidJSON, "", 1},
		{Chat, `{"model":"m"`, CodeInvalidJSON, "", 12},
		{Chat, `{"model":`, CodeInvalidJSON, "", 9},
		{Chat, `{"nvext":{"cache_salt":`, CodeInvalidJSON, "", 23},
		{Chat, `{"model":1,"prompt":[1,2}`, CodeInvalidJSON, "", 24},
		{Completion, `{"model":"m","prompt":[1,02]}`, CodeInvalidJSON, "", 26},
		{Completion, `{"model":"m","prompt":[1,]}`, CodeInvalidJSON, "", 25},
		{Completion, `{"model":"m","prompt":"a` + "\n" + `"}`, CodeInvalidJSON, "", 24},
		{Completion, `{"model":"m","prompt":"\ud83x"}`, CodeInvalidJSON, "", 28},
		{Completion, "\xef\xbb\xbf{}", CodeInvalidJSON, "", 0},
		{Completion, `{"model":"m","prompt":[1]}x`, CodeInvalidJSON, "", 26},
		{Completion, `{"model":"m","prompt":[1]}{}`, CodeInvalidJSON, "", 26},
		{Completion, `{"x":` + deep + `}`, CodeInvalidJSON, "", 5 + MaxDepth - 1},
		{Chat, `["` + secret + `"]`, CodeInvalidType, "", 0},
		{Chat, `{"model":7,"messages":[{}]}`, CodeInvalidType, "model", 9},
		{Chat, `{"model":"m","messages":["` + secret + `",1]}`, CodeInvalidType, "messages", 25},
		{Chat, `{"model":"m","messages":{"a":"` + secret + `"}}`, CodeInvalidType, "messages", 24},
		{Chat, `{"model":"m","messages":[{}],"stream":"true"}`, CodeInvalidType, "stream", 38},
		{Chat, `{"model":"m","messages":[{}],"max_tokens":"1"}`, CodeInvalidType, "max_tokens", 42},
		{Chat, `{"model":"m","messages":[{}],"nvext":[]}`, CodeInvalidType, "nvext", 37},
		{Chat, `{"model":"m","messages":[{}],"nvext":{"token_data":[-1]}}`, CodeInvalidType, "nvext.token_data", 52},
		{Chat, `{"model":"m","messages":[{}],"nvext":{"cache_salt":1}}`, CodeInvalidType, "nvext.cache_salt", 51},
		{Completion, `{"model":"m","prompt":7}`, CodeInvalidType, "prompt", 22},
		{Completion, `{"model":"m","prompt":{"a":"` + secret + `"}}`, CodeInvalidType, "prompt", 22},
		{Completion, `{"model":"m","prompt":[1,-1]}`, CodeInvalidType, "prompt", 25},
		{Completion, `{"model":"m","prompt":[1,1.5]}`, CodeInvalidType, "prompt", 26},
		{Completion, `{"model":"m","prompt":[1,4294967296]}`, CodeInvalidType, "prompt", 25},
		{Completion, `{"model":"m","prompt":[1,99999999999999999999999]}`, CodeInvalidType, "prompt", 25},
		{Completion, `{"model":"m","prompt":[1,"` + secret + `"]}`, CodeInvalidType, "prompt", 25},
		{Completion, `{"model":"m","prompt":["` + secret + `",1]}`, CodeInvalidType, "prompt", 32},
		{Completion, `{"model":"m","prompt":[[1],2]}`, CodeInvalidType, "prompt", 27},
		{Completion, `{"model":"m","prompt":[[1],["` + secret + `"]]}`, CodeInvalidType, "prompt", 28},
		{Completion, `{"model":"m","prompt":[null]}`, CodeInvalidType, "prompt", 23},
		{Completion, `{"prompt":"` + secret + `"}`, CodeMissingModel, "model", 19},
		{Completion, `{"prompt":"a","model":null}`, CodeMissingModel, "model", 27},
		{Completion, `{"prompt":"a","model":""}`, CodeMissingModel, "model", 25},
		{Completion, `{"model":"m","messages":[{}]}`, CodeMissingPrompt, "prompt", 29},
		{Completion, `{"model":"m","prompt":[]}`, CodeMissingPrompt, "prompt", 25},
		{Chat, `{"model":"m","prompt":"a"}`, CodeMissingPrompt, "messages", 26},
		{Chat, `{"model":"m","messages":[]}`, CodeMissingPrompt, "messages", 27},
		{Chat, `{"model":"m","messages":[],"nvext":{"token_data":[1]}}`, CodeMissingPrompt, "messages", 54},
	} {
		var b Body
		err := b.Scan(tc.kind, []byte(tc.body))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.80s: error %v, want %s", tc.body, err, tc.code)
			continue
		}
		if e.Code != tc.code || e.Param != tc.param || e.Offset != tc.offset {
			t.Errorf("%.80s:\n got %s %q at %d (%v)\nwant %s %q at %d", tc.body, e.Code, e.Param, e.Offset, e, tc.code, tc.param, tc.offset)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%.80s: the error repeats the body: %v", tc.body, err)
		}
	}
}

// TestDepthLimit holds at every place where nesting is counted.
func TestDepthLimit(t *testing.T) {
	nest := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for _, tc := range []struct {
		pattern string
		outer   int
	}{
		{`{"model":"m","messages":[{}],"x":%s}`, 1},
		{`{"model":"m","messages":[{"a":%s}]}`, 3},
		{`{"model":"m","messages":[{"content":%s}]}`, 3},
		{`{"model":"m","messages":[{"content":[{"a":%s}]}]}`, 5},
		{`{"model":"m","messages":[{}],"nvext":{"a":%s}}`, 2},
	} {
		var b Body
		if err := b.Scan(Chat, fmt.Appendf(nil, tc.pattern, nest(MaxDepth-tc.outer))); err != nil {
			t.Errorf("%s at the limit: %v", tc.pattern, err)
		}
		if err := b.Scan(Chat, fmt.Appendf(nil, tc.pattern, nest(MaxDepth-tc.outer+1))); err == nil {
			t.Errorf("%s beyond the limit: no error", tc.pattern)
		}
	}
}

// TestExpectedOutput: a hint that is none is left out, and never an error.
func TestExpectedOutput(t *testing.T) {
	for hints, want := range map[string]int{
		`{"agent_hints":{"osl":300,"priority":2}}`:                    300,
		`{"agent_hints":{"priority":{"osl":1},"o\u0073l":300}}`:       300,
		`{"agent_hints":{"osl":1,"osl":2},"osl":3}`:                   2,
		`{"agent_hints":{"osl":1,"osl":null}}`:                        0,
		`{"agent_hints":{"osl":1},"agent_hints":{}}`:                  0,
		`{"agent_hints":{"osl":1},"agent_hints":null}`:                0,
		`{"agent_hints":{"osl":1}},"nvext":{}`:                        0,
		`{"agent_hints":{"osl":1}},"nvext":null`:                      0,
		`{"agent_hints":{"osl":"300"}}`:                               0,
		`{"agent_hints":{"osl":-300}}`:                                0,
		`{"agent_hints":{"osl":3e2}}`:                                 0,
		`{"agent_hints":{"osl":30000000000000000000000000000000000}}`: 0,
		`{"agent_hints":{"osl":[300]}}`:                               0,
		`{"agent_hints":[{"osl":300}]}`:                               0,
		`{"agent_hints":300}`:                                         0,
		`{"osl":300}`:                                                 0,
	} {
		for kind, field := range map[Kind]string{
			Chat: `"messages":[{}]`, Completion: `"prompt":"a"`, Responses: `"input":"a"`, AnthropicMessages: `"messages":[{}]`,
		} {
			var b Body
			if err := b.Scan(kind, fmt.Appendf(nil, `{"model":"m",%s,"nvext":%s}`, field, hints)); err != nil {
				t.Errorf("%v, nvext %s: %v", kind, hints, err)
			} else if b.ExpectedOutput != want {
				t.Errorf("%v, nvext %s: %d tokens are expected, want %d", kind, hints, b.ExpectedOutput, want)
			}
		}
	}
}

// TestTruncated cuts a body at every byte: only the whole is accepted.
func TestTruncated(t *testing.T) {
	whole := `{"model":"m\u0041","messages":[{"role":"user","content":[{"type":"text","text":"a\n"},null]}],"stream":false,"max_tokens":12,"nvext":{"token_data":[1, 234567890,7],"agent_hints":{"priority":1,"osl":9},"cache_salt":"s"},"temperature":-1.5e+3}`
	var b Body
	for i := range whole {
		var e *Error
		if err := b.Scan(Chat, []byte(whole[:i])); !errors.As(err, &e) || e.Offset != i {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if err := b.Scan(Chat, []byte(whole)); err != nil {
		t.Fatal(err)
	}
}

func TestTokenWidths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b Body
	for width := range 33 {
		want := make([]uint32, 300)
		text := []byte(`{"model":"m","prompt":[`)
		for i := range want {
			want[i] = uint32(rng.Uint64() >> (64 - width))
			if i > 0 {
				text = append(text, []string{",", ", ", " ,", ",  ", "\n,\t"}[rng.IntN(5)]...)
			}
			text = fmt.Append(text, want[i])
		}
		text = append(text, "]}"...)
		if err := b.Scan(Completion, text); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Tokens, want) {
			t.Errorf("width %d: wrong ids", width)
		}
	}
}

// bodyText draws the text of a body: known keys with values that fit or do not,
// in any order, with duplicates, odd spacing and sometimes a broken byte.
func bodyText(t *rapid.T) []byte {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t \r"})
	scalars := []string{`null`, `true`, `false`, `0`, `7`, `-1`, `1.5`, `1e3`, `123456`, `4294967295`, `4294967296`, `""`, `"a"`, `"text"`, `"image_url"`, `"a\u00e9\"\\"`, `"\ud83d\ude00"`, `"\ud83dx"`, "\"\xff\"", `"a long string \/ of more than sixteen bytes"`}
	keys := []string{"model", "stream", "prompt", "messages", "max_tokens", "max_completion_tokens", "cache_salt", "nvext", "token_data", "agent_hints", "osl", "prompt_embeds", "input", "max_output_tokens", "output", "content", "type", "image_url", "input_audio", "role", "x", `mod\u0065l`, `\u0070rompt`, `messa\u0067es`, `a\"b`}
	var value func(depth int) string
	list := func(depth int, element func(int) string) string {
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			parts = append(parts, space.Draw(t, "s")+element(depth)+space.Draw(t, "s"))
		}
		return "[" + strings.Join(parts, ",") + space.Draw(t, "s") + "]"
	}
	object := func(depth int) string {
		var parts []string
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			parts = append(parts, space.Draw(t, "s")+`"`+rapid.SampledFrom(keys).Draw(t, "key")+`"`+space.Draw(t, "s")+":"+space.Draw(t, "s")+value(depth)+space.Draw(t, "s"))
		}
		return "{" + strings.Join(parts, ",") + space.Draw(t, "s") + "}"
	}
	id := func(int) string { return fmt.Sprint(rapid.Uint32().Draw(t, "id")) }
	text := func(int) string { return rapid.SampledFrom(scalars[11:]).Draw(t, "text") }
	value = func(depth int) string {
		if depth > 5 {
			return rapid.SampledFrom(scalars).Draw(t, "scalar")
		}
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0:
			return list(depth+1, value)
		case 1:
			return list(depth+1, id)
		case 2:
			return list(depth+1, text)
		case 3:
			return list(depth+1, func(d int) string { return list(d, id) })
		case 4:
			return list(depth+1, func(d int) string { return object(d) })
		case 5:
			return object(depth + 1)
		default:
			return rapid.SampledFrom(scalars).Draw(t, "scalar")
		}
	}
	body := object(0)
	if rapid.Bool().Draw(t, "sound") { // a body that is more likely to be accepted
		body = `{"model":"m","prompt":` + value(2) + `,"messages":` + list(1, func(d int) string { return object(d) }) + `,"input":` + value(1) + `,"nvext":{"agent_hints":` + object(2) + `,"token_data":` + list(1, id) + `},` + strings.TrimPrefix(body, "{")
	}
	out := []byte(space.Draw(t, "s") + body + space.Draw(t, "s"))
	if rapid.IntRange(0, 3).Draw(t, "break") == 0 && len(out) > 0 {
		at := rapid.IntRange(0, len(out)-1).Draw(t, "at")
		out[at] = rapid.SampledFrom([]byte("{}[]\",:\\0-e.x\x00\x1f \xff")).Draw(t, "byte")
	}
	return out
}

func TestScanEqualsTwin(t *testing.T) {
	var b Body // shared: nothing of an earlier body may show
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		data := bodyText(t)
		for _, kind := range []Kind{Other, Chat, Completion, Responses, AnthropicMessages} {
			err := b.Scan(kind, data)
			if diff := differs(&b, err, twin(kind, data), data); diff != "" {
				t.Fatalf("%v %q: %s (%v)", kind, data, diff, err)
			}
			if err == nil && kind.strict() {
				accepted++
			}
		}
	})
	if accepted == 0 {
		t.Error("the generator never drew a good body")
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","prompt":[1,2,3],"stream":true}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}],"nvext":{"token_data":[1]}}`,
		`{"mod\u0065l":"\ud83d\ude00","prompt":[[1],[2]],"max_tokens":1e2,"prompt":["a"]}`,
		"{\"model\":\"\xff\",\"prompt\":\"12345678\\\"\",\"cache_salt\":\"s\"}",
		`[[[[1.5e+3,-0,null,true,false]]]]`, ``, `{`, `"`, `{"a":01}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b Body
		for _, kind := range []Kind{Other, Chat, Completion, Responses, AnthropicMessages} {
			err := b.Scan(kind, data)
			if diff := differs(&b, err, twin(kind, data), data); diff != "" {
				t.Fatalf("%v %q: %s (%v)", kind, data, diff, err)
			}
		}
	})
}

// idBody returns a completion body of about size bytes of token ids.
func idBody(size int) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	out := []byte(`{"model":"m","stream":true,"max_tokens":64,"prompt":[1`)
	for len(out) < size {
		out = fmt.Append(append(out, ", "...), rng.IntN(150_000))
	}
	return append(out, "]}"...)
}

// textBody returns a chat body of about size bytes of plain text.
func textBody(size int) []byte {
	out := []byte(`{"model":"m","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"`)
	for len(out) < size {
		out = append(out, `The quick brown fox jumps over the lazy dog; it doesn't stop.\n`...)
	}
	return append(out, `"}]}`...)
}

func TestScanDoesNotAllocate(t *testing.T) {
	for name, tc := range map[string]struct {
		kind Kind
		body []byte
	}{
		"ids":  {Completion, idBody(4 << 10)},
		"text": {Chat, textBody(4 << 10)},
		"rich": {Chat, []byte(`{"mod\u0065l":"a rather long name of a model, \u0041 and more than that","a key that is longer than any stack buffer would be":1,"cache_salt":"0123456789abcdef0123456789abcdef0123456789","max_tokens":123456789012345678,"messages":[{"content":[{"type":"a type that is longer than any stack buffer would be"},{"a key \u0041 that is longer than any stack buffer would be":1}]}],"nvext":{"token_data":[1,2,3]}}`)},
	} {
		var b Body
		if n := testing.AllocsPerRun(50, func() {
			if err := b.Scan(tc.kind, tc.body); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for _, bench := range []struct {
		name string
		kind Kind
		body []byte
	}{
		{"ids/1KB", Completion, idBody(1 << 10)},
		{"ids/16KB", Completion, idBody(16 << 10)},
		{"ids/128KB", Completion, idBody(128 << 10)},
		{"text/1KB", Chat, textBody(1 << 10)},
		{"text/16KB", Chat, textBody(16 << 10)},
		{"text/128KB", Chat, textBody(128 << 10)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var body Body
			b.SetBytes(int64(len(bench.body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := body.Scan(bench.kind, bench.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
