package tokenizer

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func twinNormalize(s step, text string) string {
	switch s := s.(type) {
	case prepend:
		if text != "" {
			text = s.text + text
		}
	case replace:
		text = strings.ReplaceAll(text, s.old, s.with)
	case lowercase:
		var b strings.Builder
		for _, r := range text {
			if r == 'İ' {
				b.WriteString("i\u0307")
			} else {
				b.WriteRune(lower(r))
			}
		}
		text = b.String()
	case nfc:
		text = twinNFC(text)
	}
	return text
}

// twinNFC composes all that lies between characters that are not known to
// combine at once, with no way around.
func twinNFC(text string) string {
	at := strings.IndexFunc(text, unknownMark)
	if at >= 0 {
		_, size := utf8.DecodeRuneInString(text[at:])
		return twinNFC(text[:at]) + text[at:at+size] + twinNFC(text[at+size:])
	}
	if len(text) < 28 { // x/text breaks up what is longer
		return norm.NFC.String(text)
	}
	marks := decompose(nil, text)
	order(marks)
	out := ""
	for _, m := range newNFC().(nfc).compose(marks) {
		out += string(m.r)
	}
	return out
}

// twinMend puts U+FFFD for each maximal part that cannot be UTF-8: the longest
// start of some character, or one byte.
func twinMend(text string, starts func(string) bool) string {
	out := ""
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if r != utf8.RuneError || size != 1 {
			out, text = out+text[:size], text[size:]
			continue
		}
		for size = min(3, len(text)); size > 1 && !starts(text[:size]); size-- {
		}
		out, text = out+"\uFFFD", text[size:]
	}
	return out
}

// startsCharacter reports whether some character starts with these bytes.
func startsCharacter(text string) bool {
	if utf8.RuneCountInString(text) == 1 && utf8.ValidString(text) {
		return true
	}
	if len(text) == utf8.UTFMax {
		return false
	}
	for next := 0x80; next < 0xC0; next++ {
		if startsCharacter(text + string([]byte{byte(next)})) {
			return true
		}
	}
	return false
}

// All short strings of bytes at the edges of what UTF-8 allows.
func TestMendEqualsTwin(t *testing.T) {
	edges := []byte("a\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff")
	known := map[string]bool{}
	starts := func(text string) bool {
		is, ok := known[text]
		if !ok {
			is = startsCharacter(text)
			known[text] = is
		}
		return is
	}
	var each func(text []byte, left int)
	each = func(text []byte, left int) {
		if got, want := string(appendMended(nil, string(text))), twinMend(string(text), starts); got != want {
			t.Fatalf("%q: %q, want %q", text, got, want)
		}
		for _, b := range edges {
			if left > 0 {
				each(append(text, b), left-1)
			}
		}
	}
	each(nil, 4)
}

func TestNormalizersEqualTwin(t *testing.T) {
	steps := []step{
		newNFC(), lowercase{}, prepend{"É"}, replace{"a", "bb"}, replace{"b", ""}, replace{"bb", "e\u0301"}, replace{" ", "▁"},
	}
	rapid.Check(t, func(t *rapid.T) {
		var s scratch
		for range 10 {
			n := normalizer{steps: rapid.SliceOfN(rapid.SampledFrom(steps), 0, 6).Draw(t, "steps")}
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "A", " ", "e\u0301", "x", "İ"}), 0, 8).Draw(t, "text"), "")
			want := text
			for _, step := range n.steps {
				want = twinNormalize(step, want)
			}
			if got := n.apply(text, &s); got != want {
				t.Fatalf("%q by %#v: %q, want %q", text, n.steps, got, want)
			}
		}
	})
}

func TestNFCEqualsTwin(t *testing.T) {
	runes := rapid.OneOf(
		rapid.SampledFrom([]rune("aeé \u0301\u0308\u0315\u0323\u0334\u0344\u0345\u0f71\u0f72\u0f73\u1100\u1161\u11a8가각\u3099か\u09c7\u09be\u09fe\u0c3c\u1abf\u212bÅ\U0001d15e\U00011935\U00011930\U00011938\U0001e08f\ufb1d\u2adc\u0958中")),
		rapid.Int32Range(0, unicode.MaxRune),
	)
	marks := []rune("\u0301\u0308\u0315\u0323\u0334\u0344\u0345\u3099")
	step := newNFC()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(runes, 0, 60).Draw(t, "text")
		list = append(list, rapid.SliceOfN(rapid.SampledFrom(marks), 0, 80).Draw(t, "marks")...) // many in a row
		text := string(list)                                                                     // surrogates become U+FFFD
		got, _ := step.apply(text, nil)
		if want := twinNFC(text); got != want {
			t.Fatalf("%+q: %+q, want %+q", text, got, want)
		}
	})
}
