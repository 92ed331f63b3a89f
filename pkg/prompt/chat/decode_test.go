package chat

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// dumps is the slow twin of decoding and tojson: it copies JSON token by token
// and writes it as Python's json.dumps does.
func dumps(t *rapid.T, text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	out := dumpValue(t, dec)
	return out
}

func dumpValue(t *rapid.T, dec *json.Decoder) string {
	tok, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch v := tok.(type) {
	case json.Delim:
		var parts []string
		keys, at := map[string]int{}, 0
		for dec.More() {
			if v == '[' {
				parts = append(parts, dumpValue(t, dec))
				continue
			}
			key := dumpValue(t, dec)
			val := dumpValue(t, dec)
			if old, ok := keys[key]; ok { // the first place, the last value
				parts[old] = key + ": " + val
				continue
			}
			keys[key] = at
			parts = append(parts, key+": "+val)
			at++
		}
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		return string(v) + strings.Join(parts, ", ") + string(v+2)
	case string:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(b.String(), "\n")
		text = strings.ReplaceAll(text, `\u2028`, "\u2028")
		return strings.ReplaceAll(text, `\u2029`, "\u2029")
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") {
			return string(v)
		}
		f, _ := v.Float64()
		text := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

// jsonText draws JSON with odd spacing, escapes and keys that come twice.
func jsonText(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n"}).Draw(t, "space")
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 {
		kind = max(kind, 3)
	}
	text := rapid.SampledFrom([]string{`"a"`, `"b\n\u00e9"`, `"é\\\""`, `"\ud83d\ude00<&>"`, `"items"`, `"x\u2028y"`, `""`, `"\u0000\u001f\b\f"`})
	switch kind {
	case 0, 1, 2:
		n := rapid.SampledFrom([]int{0, 1, 2, 5, 20}).Draw(t, "n")
		parts := make([]string, n)
		for i := range parts {
			if kind > 0 {
				key := text.Draw(t, "key")
				if rapid.Bool().Draw(t, "numbered") {
					key = `"k` + strconv.Itoa(i) + `"`
				}
				parts[i] = key + space + ":"
			}
			parts[i] += space + jsonText(t, depth-1) + space
		}
		if kind == 0 {
			return "[" + strings.Join(parts, ",") + "]"
		}
		return "{" + strings.Join(parts, ",") + "}"
	case 3:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 4, 5:
		return rapid.SampledFrom([]string{"0", "-7", "1.0", "2.5", "1e3", "-0.125", "9007199254740993", "123456789012345678901234567890", "1E-3"}).Draw(t, "number")
	default:
		return text.Draw(t, "text")
	}
}

func TestDecodingKeepsWhatIsThere(t *testing.T) {
	tmpl := compile(t, "{{ x|tojson }}", Options{})
	rapid.Check(t, func(t *rapid.T) {
		value := jsonText(t, 3)
		body := `{"chat_template_kwargs":{"x":` + value + `},"messages":[{"role":"user"}]}`
		p, err := tmpl.Render(prompt.Chat, []byte(body), goldenNow)
		if err != nil {
			t.Fatal(err)
		}
		if want := dumps(t, value); p.Text != want {
			t.Fatalf("%s\n got %s\nwant %s", value, p.Text, want)
		}
	})
}
