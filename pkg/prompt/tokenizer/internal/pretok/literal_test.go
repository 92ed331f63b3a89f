package pretok

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// part is a match or a gap.
type part struct {
	text  string
	match bool
}

// literalTwin does what a behavior says, step by step: find all matches, flip
// them, then merge.
func literalTwin(mark string, behavior Behavior, invert bool, text string) []string {
	var parts []part
	for text != "" {
		before, after, found := strings.Cut(text, mark)
		if before != "" {
			parts = append(parts, part{before, invert})
		}
		if found {
			parts = append(parts, part{mark, !invert})
		}
		text = after
	}
	reversed := behavior == MergedWithNext
	if reversed {
		slices.Reverse(parts)
	}
	var all []string
	for i, p := range parts {
		after := i > 0 && parts[i-1].match
		join := false
		switch behavior {
		case Removed:
			if p.match {
				continue
			}
		case Contiguous:
			join = i > 0 && p.match == after
		case MergedWithPrevious, MergedWithNext:
			join = i > 0 && p.match && !after
		default:
		}
		switch {
		case join && reversed:
			all[len(all)-1] = p.text + all[len(all)-1]
		case join:
			all[len(all)-1] += p.text
		default:
			all = append(all, p.text)
		}
	}
	if reversed {
		slices.Reverse(all)
	}
	return all
}

func literalPieces(t fataler, l *Literal, text string) []string {
	t.Helper()
	return slices.DeleteFunc(pieces(t, l, text), l.Drops)
}

func TestLiteral(t *testing.T) {
	for _, c := range []struct {
		behavior string
		invert   bool
		want     string // of "a  b ", by bars
	}{
		{"Removed", false, "a|b"},
		{"Removed", true, " | | "},
		{"Isolated", false, "a| | |b| "},
		{"Isolated", true, "a| | |b| "},
		{"MergedWithPrevious", false, "a | |b "},
		{"MergedWithPrevious", true, "a| | b| "},
		{"MergedWithNext", false, "a| | b| "},
		{"MergedWithNext", true, "a | |b "},
		{"Contiguous", false, "a|  |b| "},
		{"Contiguous", true, "a|  |b| "},
	} {
		behavior, ok := ParseBehavior(c.behavior)
		if !ok {
			t.Fatalf("%s is not known", c.behavior)
		}
		l, err := NewLiteral(" ", behavior, c.invert)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(literalPieces(t, l, "a  b "), "|"); got != c.want {
			t.Errorf("%s, invert %v: %q, want %q", c.behavior, c.invert, got, c.want)
		}
	}
}

func TestLiteralTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := rapid.SampledFrom([]string{" ", "\u2581", "aa", "aba", "x"}).Draw(t, "mark")
		behavior := Behavior(rapid.IntRange(0, int(Contiguous)).Draw(t, "behavior"))
		invert := rapid.Bool().Draw(t, "invert")
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{" ", "\u2581", "a", "b", "x", "\u4e2d"})).Draw(t, "text"), "")
		l, err := NewLiteral(mark, behavior, invert)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := literalPieces(t, l, text), literalTwin(mark, behavior, invert, text); !slices.Equal(got, want) {
			t.Fatalf("%q in %q: %q, want %q", mark, text, got, want)
		}
	})
}

func TestLiteralRefuses(t *testing.T) {
	if _, err := NewLiteral("", Isolated, false); err == nil {
		t.Error("an empty string was taken")
	}
	if _, err := NewLiteral(" ", Contiguous+1, false); err == nil {
		t.Error("an unknown behavior was taken")
	}
	if b, ok := ParseBehavior("isolated"); ok {
		t.Errorf("ParseBehavior of an unknown name: %v", b)
	}
}
