package jsonscan

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawValue draws JSON text.
func drawValue(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	switch {
	case kind > 3 && depth < 4:
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			part := drawValue(t, depth+1)
			if kind == 4 {
				part = drawString(t) + ": " + part
			}
			parts = append(parts, part)
		}
		return string("{["[kind-4]) + strings.Join(parts, ", ") + string("}]"[kind-4])
	case kind == 3:
		return "-12.5"
	default:
		return drawString(t)
	}
}

func drawString(t *rapid.T) string {
	parts := []string{"", "a", `\n`, `\"`, `\\`, `\u00e9`, strings.Repeat("long ", 13), strings.Repeat(`\t`, 31), strings.Repeat(`\"`, 40), "{", "]", ","}
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 4).Draw(t, "string"), "") + `"`
}

// walk reads all strings of a text.
func walk(s *Scanner) (spans []Span) {
	for s.Pos < len(s.Data) {
		if s.Data[s.Pos] != '"' {
			s.Pos++
			continue
		}
		span, err := s.Str()
		if err != nil {
			return nil
		}
		spans = append(spans, span)
	}
	return spans
}

// TestKnownStringsAreReadTheSame reads a text twice, the second time with what the
// first has found, or with a part of that.
func TestKnownStringsAreReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawValue(t, 0))
		var found []Span
		want := walk(&Scanner{Data: text, Log: &found})
		for _, f := range found {
			if !slices.Contains(want, f) || f.End-f.Start < longString {
				t.Fatalf("%q: %v is no long string of %v", text, f, want)
			}
		}
		found = slices.DeleteFunc(found, func(Span) bool { return rapid.IntRange(0, 4).Draw(t, "lost") == 0 })
		if got := walk(&Scanner{Data: text, Known: found}); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
		// What belongs to another text must do no harm.
		cut := text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
		walk(&Scanner{Data: cut, Known: found})
	})
}

func TestKnownStringIsNotReadAgain(t *testing.T) {
	long := strings.Repeat("x", longString)
	text := []byte(`"` + long + `"`)
	known := []Span{{Start: 0, End: 1}, {Start: 1, End: 1 + longString, Escaped: true}}
	s := Scanner{Data: text, Known: known}
	if got, err := s.Str(); err != nil || got != known[1] || s.Pos != len(text) {
		t.Errorf("%v, %v, at %d", got, err, s.Pos)
	}
}

// TestTextIsDecodedWhileRead reads a text, whole or broken, with and without
// decoding.
func TestTextIsDecodedWhileRead(t *testing.T) {
	bad := []string{`\x`, `\u12`, `\ud83d\ude00`, `\ud83d`, `\ud83d\u00e9`, `\ud83d\uzz`, `\ude00`, "\x01", "\xff", `\`, `"`, "é"}
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawValue(t, 0))
		for range rapid.IntRange(0, 3).Draw(t, "spoilt") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			text = slices.Concat(text[:at], []byte(rapid.SampledFrom(bad).Draw(t, "bad")), text[at:])
		}
		var found, decoded []Span
		var texts []byte
		plain, both := Scanner{Data: text, Log: &found}, Scanner{Data: text, Log: &decoded, Text: &texts}
		for plain.Pos < len(text) {
			if text[plain.Pos] != '"' {
				plain.Pos++
				both.Pos++
				continue
			}
			want, wantErr := plain.Str()
			got, err := both.Str()
			if (err == nil) != (wantErr == nil) || err != nil && *err != *wantErr {
				t.Fatalf("%q: %v, want %v", text, err, wantErr)
			}
			if err != nil {
				return
			}
			if got.Start != want.Start || got.End != want.End || got.Escaped != want.Escaped || both.Pos != plain.Pos {
				t.Fatalf("%q: %v, want %v", text, got, want)
			}
		}
		if len(found) != len(decoded) {
			t.Fatalf("%q: %d long strings, want %d", text, len(decoded), len(found))
		}
		for _, s := range decoded {
			if s.Escaped != (s.TextEnd > s.TextStart) {
				t.Fatalf("%q: %v", text, s)
			}
			if want := AppendText(nil, text[s.Start:s.End]); s.Escaped && string(texts[s.TextStart:s.TextEnd]) != string(want) {
				t.Fatalf("%q: %q, want %q", text, texts[s.TextStart:s.TextEnd], want)
			}
		}
	})
}
