package encoder

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMarksAreWhatTokensHaveInCommon learns tokens in several surroundings.
func TestMarksAreWhatTokensHaveInCommon(t *testing.T) {
	m := newMarks()
	seen := func(text, after string, id uint32) (mark, string) {
		found := m.of(text+after, len(text), id)
		return found, m.now.Load().texts[found]
	}
	long := strings.Repeat("0123456789", 10)
	for i, c := range []struct {
		text, after string
		id          uint32
		mark        mark
		written     string
	}{
		{"first <end>", "!", 7, 1, "first <end>"},
		{"other <end>", "!", 7, 1, " <end>"},
		{"a <end>", "", 7, 1, " <end>"},  // at the end, but known
		{"a<end>", "", 7, 0, ""},         // at the end, and not as it was so far
		{"a<end>", "!", 7, 1, "<end>"},   // shortened to what the token is
		{"<unknown>", "", 8, 0, ""},      // at the end, and new
		{long, "!", 9, 2, long[100-64:]}, // no more than the longest
		{"a<>", "!", 10, 3, "a<>"},       //
		{"b<>", "!", 10, 0, ""},          // too short to look for
		{"c<>", "!", 10, 0, ""},
	} {
		if got, written := seen(c.text, c.after, c.id); got != c.mark || written != c.written {
			t.Errorf("%d: mark %d, %q; want %d, %q", i, got, written, c.mark, c.written)
		}
	}
	for id := range uint32(100) {
		m.of("token!", 5, 1000+id)
	}
	if n := len(m.now.Load().texts); n != maxMarks+1 {
		t.Errorf("%d marks", n-1)
	}
}

// TestCutIsTheFirstMark compares the search with a slow one.
func TestCutIsTheFirstMark(t *testing.T) {
	table := &markTable{texts: []string{"", "<end>", "<start>", "<e", "nd><", "end>"}}
	parts := []string{"<end>", "<start>", "a", "<", "<e", "nd>", "some text"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 10).Draw(t, "text"), "")
		least := rapid.IntRange(0, 30).Draw(t, "least")
		h, want := hints(0), -1
		for range rapid.IntRange(0, 4).Draw(t, "marks") {
			h = h.with(mark(rapid.IntRange(1, 6).Draw(t, "mark")))
		}
		for end := max(1, least); end <= len(text) && want < 0; end++ {
			for i := range hintMarks {
				m := h.at(i)
				if m > 0 && int(m) < len(table.texts) && len(table.texts[m]) >= minMarkText && strings.HasSuffix(text[:end], table.texts[m]) {
					want = end
				}
			}
		}
		if got := table.cut(text, least, h); got != want {
			t.Fatalf("%q from %d, marks %x: %d, want %d", text, least, h, got, want)
		}
	})
}

func TestFindIsIndex(t *testing.T) {
	parts := []string{"a", "b", "<", "|", "<|", "|>", " ", "é", "<|a|>", "ab"}
	draw := func(t *rapid.T, least, most int) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), least, most).Draw(t, "text"), "")
	}
	rapid.Check(t, func(t *rapid.T) {
		text, written := draw(t, 0, 20), draw(t, 1, 4)
		if got, want := find(text, written), strings.Index(text, written); got != want {
			t.Fatalf("%q in %q: %d, want %d", written, text, got, want)
		}
	})
}
