package pretok

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// subject is a scanner and its twin.
type subject struct {
	name    string
	scanner Scanner
	twin    []regex
}

func subjects(t testing.TB) []subject {
	t.Helper()
	var all []subject
	for _, k := range known {
		s, ok := ByRegex(k.pattern)
		if !ok {
			t.Fatalf("%s: not known", k.name)
		}
		all = append(all, subject{k.name, s, []regex{compile(k.pattern, false)}})
		if k.tiktoken {
			if s, ok = ByTiktoken(k.pattern); !ok {
				t.Fatalf("%s: not known for tiktoken", k.name)
			}
			all = append(all, subject{k.name + " in tiktoken", s, []regex{compile(k.pattern, true)}})
		}
	}
	s, ok := BySequence(deepseekSequence[:])
	if !ok {
		t.Fatal("DeepSeek's sequence is not known")
	}
	sequence := subject{name: "deepseek sequence", scanner: s}
	for _, p := range deepseekSequence {
		sequence.twin = append(sequence.twin, compile(p, false))
	}
	return append(all, sequence)
}

func (s subject) compare(t fataler, text string) {
	t.Helper()
	got, want := pieces(t, s.scanner, text), twin(s.twin, text)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: pieces of %q\n got %q\nwant %q", s.name, text, got, want)
	}
}

// Every text of up to three signs, for every pattern.
func TestShortTexts(t *testing.T) {
	few := []string{
		"a", "B", "s", "'", " ", "\t", "\n", "1", "\u3007", ".", "/", "\u0301", "\u4e2d", "\u2e80",
		"\u30ab", "\u30fb", "\x00", "\u017f",
	}
	for _, s := range subjects(t) {
		for _, a := range few {
			s.compare(t, a)
			for _, b := range few {
				s.compare(t, a+b)
				for _, c := range few {
					s.compare(t, a+b+c)
				}
			}
		}
	}
}

func TestRandomTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := subjects(t)
	for range 1500 {
		text := randomText(random, 20)
		for _, s := range all {
			s.compare(t, text)
		}
	}
}

func TestProperties(t *testing.T) {
	all := subjects(t)
	part := rapid.OneOf(rapid.SampledFrom(signs), rapid.StringN(1, 3, -1))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "text"), "")
		for _, s := range all {
			s.compare(t, text)
		}
	})
}

func FuzzScanners(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomText(random, 12))
	}
	f.Add("\xff\xc5\xe4\xb8\xf0\x9f\x98")
	all := subjects(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range all {
			if len(text) < 200 && utf8.ValidString(text) {
				s.compare(t, text)
			} else {
				pieces(t, s.scanner, text)
			}
		}
	})
}

// Text that is no UTF-8 has no meaning, but an end.
func TestBrokenText(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	all := subjects(t)
	for range 20000 {
		text := make([]byte, random.IntN(12))
		for i := range text {
			text[i] = byte(random.IntN(256))
		}
		for _, s := range all {
			if got := strings.Join(pieces(t, s.scanner, string(text)), ""); got != string(text) {
				t.Fatalf("%s: pieces of %q are %q", s.name, text, got)
			}
		}
	}
}

// A long run of anything is read a few times at most. If each piece read the
// rest of it again, this would take hours.
func TestLongRuns(t *testing.T) {
	const length = 1 << 18
	all := subjects(t)
	for _, run := range signs {
		for _, ends := range [][2]string{{"", ""}, {"\n", "a"}, {"\u4e2d", "1"}, {" ", "\n"}} {
			text := ends[0] + strings.Repeat(run, length/len(run)/len(signs)) + ends[1]
			for _, s := range all {
				pieces(t, s.scanner, text)
			}
		}
	}
	spaces := strings.Repeat(" ", length)
	for _, s := range all {
		for _, text := range []string{spaces, spaces + "a", "\n" + spaces + "1", strings.Repeat("\u4e2dA", length), strings.Repeat("\x00", length) + "a"} {
			pieces(t, s.scanner, text)
		}
	}
}

const (
	// gptLines is GPT-2 with whitespace as others have it.
	gptLines = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|` + linesText
	// o200kMixed has contractions in one kind of words only.
	o200kMixed = upperText + `*` + lowerText + `+%|` + upperText + `+` + lowerText + `*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + linesText
)

func TestUnknownPatterns(t *testing.T) {
	unknown := []string{
		"", "|", `\s+`, `\p{N}+`, anyCaseText,
		qwen2Pattern + " ", qwen2Pattern + "|", qwen2Pattern + "|a", strings.TrimSuffix(qwen2Pattern, `|\s+`),
		strings.Replace(qwen2Pattern, `\p{L}+`, `\p{L}*`, 1),
		strings.Replace(qwen2Pattern, `|\p{N}|`, `|`, 1),
		strings.Replace(qwen2Pattern, `\p{L}\p{N}]+[`, `\p{L}\p{M}\p{N}]+[`, 1), // matches no mark
		gptLines, strings.Replace(o200kMixed, "%", anyCaseText+"?", 1),
	}
	for _, pattern := range unknown {
		if s, ok := ByRegex(pattern); ok || s != nil {
			t.Errorf("ByRegex(%q) is known", pattern)
		}
		if _, ok := ByTiktoken(pattern); ok {
			t.Errorf("ByTiktoken(%q) is known", pattern)
		}
	}
	for _, sequence := range [][]string{
		nil,
		{qwen2Pattern, qwen2Pattern},
		{deepseekPattern, cjkPattern, threeDigits},
		deepseekSequence[:2],
	} {
		if s, ok := BySequence(sequence); ok || s != nil {
			t.Errorf("BySequence(%q) is known", sequence)
		}
	}
	if _, ok := ByTiktoken(deepseekPattern); ok {
		t.Error("tiktoken would drop what DeepSeek's pattern leaves")
	}
}

// A pattern with line ends as they are is the same as one with escapes.
func TestLineEndsInPatterns(t *testing.T) {
	raw := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(deepseekPattern)
	if raw == deepseekPattern {
		t.Fatal("nothing was replaced")
	}
	s, ok := ByRegex(raw)
	if want, _ := ByRegex(deepseekPattern); !ok || s != want {
		t.Error("the raw form is not known")
	}
	if _, ok = BySequence([]string{threeDigits, cjkPattern, raw}); !ok {
		t.Error("the sequence with the raw form is not known")
	}
	if s, ok = BySequence([]string{cjkPattern}); !ok || s != Scanner(&cjkRuns) {
		t.Error("a sequence of one is not that one")
	}
}

// Gapless is true of a scanner exactly when its pattern matches each character.
func TestGapless(t *testing.T) {
	for _, k := range known {
		s, _ := ByRegex(k.pattern)
		one := compile(k.pattern, false)
		want := true
		for kind := range kindClasses {
			r, ok := ofKind(uint8(kind))
			want = want && (!ok || one([]rune{r}, 0, func(int) bool { return true }))
		}
		want = want && one([]rune{'a'}, 0, func(int) bool { return true })
		if k.name == "lines" {
			continue // gapless too, but of no use to know
		}
		if got := Gapless(s); got != want {
			t.Errorf("%s: Gapless = %v, want %v", k.name, got, want)
		}
	}
}

// ofKind returns a code point of a kind.
func ofKind(kind uint8) (rune, bool) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if kindOf(r) == kind {
			return r, true
		}
	}
	return 0, false
}

// newDigits are the numbers that came with Unicode 17.
const newDigits = 13

// The table agrees with Go's for all code points that these know: no category
// has changed since their version of Unicode.
func TestTable(t *testing.T) {
	of := map[class][]*unicode.RangeTable{
		upper: {unicode.Lu, unicode.Lt}, lower: {unicode.Ll}, caseless: {unicode.Lm, unicode.Lo}, mark: {unicode.M},
		number: {unicode.N}, punct: {unicode.P}, symbol: {unicode.S}, space: {unicode.White_Space}, han: {unicode.Han},
	}
	assigned := []*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co}
	differ := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		got := kindClasses[kindOf(r)]
		want := class(0)
		for c, tables := range of {
			if unicode.IsOneOf(tables, r) {
				want |= c
			}
		}
		got &^= digit // of a newer Unicode than the others; see below
		if r == '\r' || r == '\n' {
			want |= newline
		}
		if 0x4e00 <= r && r <= 0x9fa5 || 0x3040 <= r && r <= 0x30ff {
			want |= cjk
		}
		if got != want && unicode.IsOneOf(assigned, r) {
			differ++
			t.Errorf("U+%04X: classes %b, Go has %b", r, got, want)
		}
		if differ > 20 {
			t.FailNow()
		}
	}
	digits := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch c := kindClasses[kindOf(r)]; {
		case c&number != 0 && c&digit == 0, c&^(digit|number|han) != 0 && c&digit != 0:
			t.Errorf("U+%04X: classes %b", r, c)
		case c == digit:
			digits++
		}
	}
	if digits != newDigits {
		t.Errorf("%d digits are not numbers, want %d", digits, newDigits)
	}
	if got := kindOf(unicode.MaxRune + 1); got != 0 {
		t.Errorf("beyond Unicode: kind %d", got)
	}
}

// combined returns a pattern of parts that are known, whoever combines them so,
// and whether it is to be known.
func combined(pick func(n int) int) (string, bool) {
	var parts []string
	add := func(part string) { parts = append(parts, part) }
	contractions := contractionOptions[pick(len(contractionOptions))].text
	others, marks := otherOptions[pick(len(otherOptions))], true
	blanks := blankOptions[pick(len(blankOptions))]
	switch pick(3) {
	case 0:
		add(contractions)
		add(spacedOptions[pick(len(spacedOptions))].text)
		add(blanks.text)
		return strings.Join(parts, "|"), !blanks.means.lineEnds
	case 1:
		words := wordOptions[pick(len(wordOptions))]
		marks = others.means.marks || words.means&mark != 0
		add(contractions)
		add(words.text)
	case 2:
		suffix := suffixOptions[pick(len(suffixOptions))].text
		marks = others.means.marks
		add(strings.ReplaceAll(casedOptions[pick(len(casedOptions))].text, "%", suffix))
	}
	add(numberOptions[pick(len(numberOptions))].text)
	add(others.text)
	add(blanks.text)
	return strings.Join(parts, "|"), marks
}

// Every combination of parts is cut as its pattern says.
func TestCombinations(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 13))
	refused := 0
	for range 2000 {
		pattern, want := combined(random.IntN)
		tiktoken := random.IntN(2) == 0
		s, ok := byFamily(pattern, tiktoken)
		if ok != want {
			t.Fatalf("known: %v, want %v: %s", ok, want, pattern)
		}
		if !ok {
			refused++
			continue
		}
		one := subject{pattern, s, []regex{compile(pattern, tiktoken)}}
		for range 10 {
			one.compare(t, randomText(random, 20))
		}
	}
	if refused == 0 || refused > 1000 {
		t.Errorf("%d of 2000 combinations were refused", refused)
	}
}
