package pretok

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// chunkTwin cuts first by size, then by runs, as the Python classes do.
func chunkTwin(text string, most, mostRun int) []string {
	var all []string
	for part := range slices.Chunk([]rune(text), most) {
		start, run := 0, 0
		for i, r := range part {
			if i > 0 && isBlank(r) != isBlank(part[i-1]) {
				run = 0
			}
			if run++; run > mostRun {
				all = append(all, string(part[start:i]))
				start, run = i, 1
			}
		}
		all = append(all, string(part[start:]))
	}
	return all
}

func isBlank(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func chunks(t fataler, text string, most, mostRun int) []string {
	t.Helper()
	var all []string
	for at, taken := 0, 0; at < len(text); {
		end, after := nextChunk(text, at, taken, most, mostRun)
		if end <= at || end > len(text) {
			t.Fatalf("nextChunk(%q, %d, %d) = %d", text, at, taken, end)
		}
		all = append(all, text[at:end])
		at, taken = end, after
	}
	return all
}

func TestChunks(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	for range 20000 {
		text := randomText(random, 12)
		most, mostRun := 1+random.IntN(30), 1+random.IntN(12)
		if got, want := chunks(t, text, most, mostRun), chunkTwin(text, most, mostRun); !slices.Equal(got, want) {
			t.Fatalf("%q in %d and %d: %q, want %q", text, most, mostRun, got, want)
		}
	}
}

// The limits count characters, not bytes.
func TestNextChunk(t *testing.T) {
	text := strings.Repeat("\u4e2d", 60_000) + strings.Repeat(" a", 200_000)
	var got []int
	for at, taken := 0, 0; at < len(text); {
		end, after := NextChunk(text, at, taken)
		got = append(got, utf8.RuneCountInString(text[at:end]))
		at, taken = end, after
	}
	if want := []int{25_000, 25_000, 350_000, 60_000}; !slices.Equal(got, want) {
		t.Errorf("characters of chunks: %v, want %v", got, want)
	}
}

func TestPythonSpace(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if got := isPythonSpace(r); got != isBlank(r) {
			t.Errorf("U+%04X: %v", r, got)
		}
	}
}
