package tokenizer

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestUnicode holds what we know of every character to what the reference says
// (hack/unicode/properties.py).
func TestUnicode(t *testing.T) {
	data, err := os.ReadFile("testdata/unicode.json")
	if err != nil {
		t.Fatal(err)
	}
	var ref struct {
		Words, Spaces, Marks [][2]rune
		Lower, NFC           map[string]string
	}
	if err := json.Unmarshal(data, &ref); err != nil {
		t.Fatal(err)
	}
	words, spaces, marks := inRanges(ref.Words), inRanges(ref.Spaces), inRanges(ref.Marks)
	wrong := map[string][]rune{}
	check := func(what string, r rune, ok bool) {
		if !ok {
			wrong[what] = append(wrong[what], r)
		}
	}
	composer := newNFC()
	for r := range unicode.MaxRune + 1 {
		if !utf8.ValidRune(r) {
			continue
		}
		change := func(of map[string]string) string {
			key := strconv.FormatInt(int64(r), 16)
			if s, ok := of[upper4(key)]; ok {
				return s
			}
			return string(r)
		}
		check("words", r, isWord(r) == words[r])
		check("spaces", r, unicode.IsSpace(r) == spaces[r])
		d := decompose(nil, string(r))
		check("marks", r, (len(d) == 1 && d[0].r == r && d[0].class != 0 && !unknownMark(r)) == marks[r])
		low, _ := lowercase{}.apply(string(r), nil)
		check("lower", r, low == change(ref.Lower))
		composed, _ := composer.apply(string(r), nil)
		check("nfc", r, composed == change(ref.NFC))
	}
	for what, list := range wrong {
		t.Errorf("%s: %d characters are wrong: %s", what, len(list), ranged(list))
	}
	if len(words) < 100_000 || len(spaces) < 20 || len(marks) < 500 || len(ref.Lower) < 1000 || len(ref.NFC) < 1000 {
		t.Error("the reference is not whole")
	}
}

func inRanges(list [][2]rune) map[rune]bool {
	in := map[rune]bool{}
	for _, span := range list {
		for r := span[0]; r <= span[1]; r++ {
			in[r] = true
		}
	}
	return in
}

func upper4(hex string) string {
	for len(hex) < 4 {
		hex = "0" + hex
	}
	out := []byte(hex)
	for i, c := range out {
		if 'a' <= c && c <= 'f' {
			out[i] = c - 'a' + 'A'
		}
	}
	return string(out)
}

// ranged shows sorted characters as ranges.
func ranged(list []rune) string {
	out := ""
	for i, r := range list {
		if i == 0 || list[i-1] != r-1 {
			out += " {0x" + upper4(strconv.FormatInt(int64(r), 16))
		}
		if i+1 == len(list) || list[i+1] != r+1 {
			out += ", 0x" + upper4(strconv.FormatInt(int64(r), 16)) + "},"
		}
	}
	return out
}
