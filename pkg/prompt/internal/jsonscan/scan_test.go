package jsonscan

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestTextsAreThoseOfEncodingJSON reads strings as encoding/json writes them, and
// with every character escaped.
func TestTextsAreThoseOfEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		plain, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := []byte{'"'}
		for _, r := range text {
			if r > 0xffff {
				escaped = utf8.AppendRune(escaped, r)
				continue
			}
			escaped = append(escaped, '\\', 'u')
			for shift := 12; shift >= 0; shift -= 4 {
				escaped = append(escaped, "0123456789aBcDeF"[r>>shift&15])
			}
		}
		escaped = append(escaped, '"')
		for _, data := range [][]byte{plain, escaped} {
			s := Scanner{Data: data}
			span, bad := s.Str()
			if bad != nil || s.Pos != len(data) {
				t.Fatalf("%s: stopped at %d: %v", data, s.Pos, bad)
			}
			if got := AppendText([]byte("x"), data[span.Start:span.End]); string(got) != "x"+text {
				t.Fatalf("%s: got %q, want %q", data, got, text)
			}
		}
	})
}

func FuzzSkip(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e-3,"x\u00e9",null],"b":{}}`))
	f.Add([]byte(`[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Scanner{Data: data}
		err := s.Skip(0)
		if err == nil {
			s.Peek()
		}
		sound := err == nil && s.Pos == len(data)
		if want := json.Valid(data); sound != want && (err == nil || err.Msg != "invalid JSON: nested too deep") {
			t.Fatalf("%q: %v, encoding/json says %v", data, err, want)
		}
	})
}
