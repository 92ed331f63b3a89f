package rewrite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// whole passes a response through in one piece.
func whole(text, name, inner string, events bool) string {
	return string(NewReply([]byte(name), inner, events).Next([]byte(text)))
}

func TestReplyToJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":"1","model":"target","choices":[]}`:                            `{"id":"1","model":"asked","choices":[]}`,
		" {\n\t\"model\" : \"target\"\r\n}\n":                                 " {\n\t\"model\" : \"asked\"\r\n}\n",
		`{"model":"","x":1}`:                                                  `{"model":"asked","x":1}`,
		`{"model":"a\"b\\","x":"\""}`:                                         `{"model":"asked","x":"\""}`,
		`{"mod\u0065l":"x","\u006d\u006f\u0064\u0065\u006c":"y"}`:             `{"mod\u0065l":"asked","\u006d\u006f\u0064\u0065\u006c":"asked"}`,
		`{"choices":[{"model":"x"}],"a":{"model":"y"},"model":"z"}`:           `{"choices":[{"model":"x"}],"a":{"model":"y"},"model":"asked"}`,
		`{"text":"\"model\":\"target\"","model":null}`:                        `{"text":"\"model\":\"target\"","model":null}`,
		`{"model":["target"],"models":"x","Model":"y","\model":"z"}`:          `{"model":["target"],"models":"x","Model":"y","\model":"z"}`,
		`{"response":{"model":"x"},"message":{"model":"y"},"":{"model":"z"}}`: `{"response":{"model":"x"},"message":{"model":"y"},"":{"model":"z"}}`,
		`{"error":{"message":"no such model: target"}}`:                       `{"error":{"message":"no such model: target"}}`,
		`["model","target"]`:                                                  `["model","target"]`,
		`{"model":"cut`:                                                       `{"model":"asked`,
		`data: {"model":"x"}`:                                                 `data: {"model":"x"}`,
		`{} {"model":"x"}`:                                                    `{} {"model":"x"}`,
		``:                                                                    ``,
	} {
		if got := whole(text, "asked", "", false); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

func TestReplyToEvents(t *testing.T) {
	for text, want := range map[string]string{
		"data: {\"model\":\"x\"}\n\ndata: {\"a\":1,\"model\":\"y\"}\n\ndata: [DONE]\n\n":                                                              "data: {\"model\":\"asked\"}\n\ndata: {\"a\":1,\"model\":\"asked\"}\n\ndata: [DONE]\n\n",
		"data:{\"model\":\"x\"}\r\n\r\n: ping\r\n\r\ndata:{\"model\":\"y\"}\r\r":                                                                      "data:{\"model\":\"asked\"}\r\n\r\n: ping\r\n\r\ndata:{\"model\":\"asked\"}\r\r",
		"data: {\"a\":1,\r\ndata: \"model\":\r\ndata: \"x\"}\r\n\r\n":                                                                                 "data: {\"a\":1,\r\ndata: \"model\":\r\ndata: \"asked\"}\r\n\r\n",
		"event: response.created\nid: {\"model\":\"x\"}\ndata: {\"response\":{\"id\":1,\"model\":\"x\",\"a\":{\"model\":\"y\"}},\"model\":\"z\"}\n\n": "event: response.created\nid: {\"model\":\"x\"}\ndata: {\"response\":{\"id\":1,\"model\":\"asked\",\"a\":{\"model\":\"y\"}},\"model\":\"asked\"}\n\n",
		"data: {\"message\":{\"model\":\"x\"}}\n\n":                                                                                                   "data: {\"message\":{\"model\":\"x\"}}\n\n",
		"data: {\"model\":\"cut\ndata: {\"model\":\"x\"}\n\ndata: {\"model\":\"y\"}\n\n":                                                              "data: {\"model\":\"asked\ndata: {\"model\":\"x\"}\n\ndata: {\"model\":\"asked\"}\n\n",
		"datum: {\"model\":\"x\"}\n\ndata\ndat: {\"model\":\"x\"}\n data: {\"model\":\"x\"}\n":                                                        "datum: {\"model\":\"x\"}\n\ndata\ndat: {\"model\":\"x\"}\n data: {\"model\":\"x\"}\n",
	} {
		if got := whole(text, "asked", InResponse, true); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestReplyToAnthropicEvents(t *testing.T) {
	text := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"model\":\"x\",\"usage\":{}}}\n\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"model\"}}\n\n"
	if got := whole(text, "asked", InMessage, true); got != strings.Replace(text, `"x"`, `"asked"`, 1) {
		t.Error(got)
	}
}

// names is the slow twin for one JSON text: it returns where the texts of the names
// are.
func names(text []byte, inner string) (spans [][2]int) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for dec.More() {
		key, err := dec.Token()
		var v json.RawMessage
		if err != nil || dec.Decode(&v) != nil {
			return spans
		}
		end := int(dec.InputOffset())
		start := end - len(v)
		switch {
		case key == "model" && v[0] == '"':
			spans = append(spans, [2]int{start + 1, end - 1})
		case key == inner && inner != "":
			for _, s := range names(v, "") {
				spans = append(spans, [2]int{start + s[0], start + s[1]})
			}
		}
	}
	return spans
}

// namesInEvents is the same for events: it puts together the data of each and
// remembers where every byte of it came from.
func namesInEvents(text, inner string) (spans [][2]int) {
	var data []byte
	var from []int
	finish := func() {
		for _, s := range names(data, inner) {
			// Between the two quotes, wherever they are.
			spans = append(spans, [2]int{from[s[0]-1] + 1, from[s[1]]})
		}
		data, from = nil, nil
	}
	for at := 0; at < len(text); {
		n := strings.IndexAny(text[at:]+"\n", "\r\n")
		line, next := text[at:at+n], at+n+1
		if strings.HasPrefix(text[at+n:], "\r\n") {
			next++
		}
		if content, ok := strings.CutPrefix(line, "data:"); ok {
			for i := range len(content) {
				data, from = append(data, content[i]), append(from, at+len("data:")+i)
			}
			data, from = append(data, '\n'), append(from, at+n)
		}
		if line == "" {
			finish()
		}
		at = next
	}
	finish()
	return spans
}

func replaced(text string, spans [][2]int, name string) string {
	slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
	var b strings.Builder
	kept := 0
	for _, s := range spans {
		b.WriteString(text[kept:s[0]] + name)
		kept = s[1]
	}
	return b.String() + text[kept:]
}

// drawObject draws a JSON object; between its tokens may be one of gaps.
func drawObject(t *rapid.T, depth int, gaps []string) string {
	gap := func() string { return rapid.SampledFrom(gaps).Draw(t, "gap") }
	keys := []string{"model", "model", "model", "model", "model", "model", `mod\u0065l`, "response", "message", `r\u0065sponse`, "id", "", `a\"model`, "modelmodelmodel", `\u006D\u006f\u0064\u0065\u006c`, `\u00006d`}
	var value func(depth int) string
	value = func(depth int) string {
		switch rapid.IntRange(0, 6).Draw(t, "what") {
		case 0:
			if depth < 4 {
				return drawObject(t, depth+1, gaps)
			}
		case 1:
			if depth < 4 {
				return "[" + gap() + value(depth+1) + gap() + "," + value(depth+1) + "]"
			}
		case 2:
			return rapid.SampledFrom([]string{"null", "true", "-1.5e3", "0"}).Draw(t, "scalar")
		}
		return rapid.SampledFrom([]string{`""`, `"target"`, `"a\"b"`, `"\\"`, `"{\"model\":\"x\"}"`, `"é"`, `"\u0022,\u007d"`, `"data: }"`}).Draw(t, "string")
	}
	var parts []string
	for range rapid.IntRange(0, 6).Draw(t, "n") {
		parts = append(parts, gap()+`"`+rapid.SampledFrom(keys).Draw(t, "key")+`"`+gap()+":"+gap()+value(depth)+gap())
	}
	return "{" + strings.Join(parts, ",") + gap() + "}"
}

func drawEvents(t *rapid.T) string {
	gaps := []string{"", "", "", "", " ", "\t", "\ndata:", "\r\ndata: ", "\rdata:", "\n: {\ndata:", "\nevent: x\ndata: "}
	ends := rapid.SampledFrom([]string{"\n", "\r\n", "\r"})
	var b strings.Builder
	for range rapid.IntRange(0, 5).Draw(t, "events") {
		switch rapid.IntRange(0, 5).Draw(t, "event") {
		case 0:
			b.WriteString("data: [DONE]")
		case 1:
			b.WriteString(rapid.SampledFrom([]string{": ping", "event: {", "retry: 1", "data", `id: {"model":"x"}`, `dat: {"model":"x"}`}).Draw(t, "line"))
		default:
			b.WriteString("data: " + drawObject(t, 0, gaps))
		}
		b.WriteString(ends.Draw(t, "end"))
		if rapid.IntRange(0, 9).Draw(t, "event ends") > 0 {
			b.WriteString(ends.Draw(t, "end"))
		}
	}
	return b.String()
}

// pieces passes a response through in pieces of the given lengths.
func pieces(r *Reply, text string, lengths []int) string {
	var b strings.Builder
	for _, n := range lengths {
		n = min(n, len(text))
		chunk := []byte(text[:n])
		b.Write(r.Next(chunk))
		if string(chunk) != text[:n] {
			return "the chunk itself was changed"
		}
		text = text[n:]
	}
	b.Write(r.Next([]byte(text)))
	return b.String()
}

func TestReplyEqualsTwin(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		inner := rapid.SampledFrom([]string{"", InMessage, InResponse}).Draw(t, "inner")
		name := rapid.SampledFrom([]string{"n", `asked\u0022\n`, "a longer name than that of the target"}).Draw(t, "name")
		var text string
		var spans [][2]int
		events := rapid.Bool().Draw(t, "events")
		if events {
			text = drawEvents(t)
			spans = namesInEvents(text, inner)
		} else {
			text = drawObject(t, 0, []string{"", "", " ", "\r\n"})
			spans = names([]byte(text), inner)
		}
		found += len(spans)
		lengths := rapid.SliceOfN(rapid.IntRange(0, 12), 0, 2*len(text)).Draw(t, "lengths")
		want := replaced(text, spans, name)
		if got := pieces(NewReply([]byte(name), inner, events), text, lengths); got != want {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
	if found < 10 {
		t.Errorf("only %d names in all texts", found)
	}
}

// onlyNames checks what holds for any bytes: without names, what goes out is what
// came in but for parts that were left out, and every cut gives the same.
func onlyNames(text, inner string, events bool, cut int) error {
	all := whole(text, "\x00", inner, events)
	if got := pieces(NewReply([]byte("\x00"), inner, events), text, []int{cut}); got != all {
		return fmt.Errorf("cut at %d gives %q, uncut %q", cut, got, all)
	}
	var bytewise []int
	for range len(text) {
		bytewise = append(bytewise, 1)
	}
	if got := pieces(NewReply([]byte("\x00"), inner, events), text, bytewise); got != all {
		return fmt.Errorf("byte by byte gives %q, whole %q", got, all)
	}
	rest := text
	for i, kept := range strings.Split(all, "\x00") {
		at := strings.Index(rest, kept)
		if at < 0 || i == 0 && at > 0 || strings.ContainsAny(rest[:at], "\n") && events {
			return fmt.Errorf("%q became %q", text, all)
		}
		rest = rest[at+len(kept):]
	}
	return nil
}

func TestReplyOnBrokenText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.Bool().Draw(t, "events")
		text := []byte(drawEvents(t))
		if !events {
			text = []byte(drawObject(t, 0, []string{"", " "}))
		}
		for range rapid.IntRange(1, 4).Draw(t, "spoilt") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			bad := rapid.SampledFrom([]string{"\\", "\"", "{", "}", "]", ",", "\n", "\r", "\\u", ":", "x", "\xff"}).Draw(t, "bad")
			text = slices.Concat(text[:at], []byte(bad), text[at:])
		}
		if err := onlyNames(string(text), InResponse, events, rapid.IntRange(0, len(text)).Draw(t, "cut")); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add("data: {\"model\":\"x\",\"response\":{\"model\":\"y\"}}\n\n", true, 12)
	f.Add(`{"id":1,"mod\u0065l":"x\"","a":[{"model":"y"}]}`, false, 20)
	f.Fuzz(func(t *testing.T, text string, events bool, cut int) {
		if strings.Contains(text, "\x00") {
			return
		}
		if err := onlyNames(text, InResponse, events, max(0, cut)); err != nil {
			t.Fatal(err)
		}
	})
}

// A chunk without a name goes on as it is, and nothing is kept of it.
func TestChunksWithoutNamesAreNotCopied(t *testing.T) {
	r := NewReply([]byte("asked"), "", true)
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n")
	if got := r.Next(chunk); &got[0] != &chunk[0] || len(got) != len(chunk) {
		t.Error("copied")
	}
	named := []byte("data: {\"model\":\"target\"}\n\n")
	r.Next(named)
	if n := testing.AllocsPerRun(100, func() { r.Next(named); r.Next(chunk) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkReply(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"target","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	for _, c := range []struct {
		name   string
		events bool
		text   []byte
	}{
		{"event", true, event},
		{"json-8KiB", false, fmt.Appendf(nil, `{"id":"1","model":"target","choices":[{"message":{"content":"%s"}}]}`, strings.Repeat("word ", 1638))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			r := NewReply([]byte("asked"), "", c.events)
			for b.Loop() {
				r.value.reset()
				r.Next(c.text)
			}
		})
	}
}
