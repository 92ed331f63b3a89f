package pretok

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// fataler is what tests, fuzz targets and property tests have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// pieces returns the pieces of a text.
func pieces(t fataler, s Scanner, text string) []string {
	t.Helper()
	var all []string
	for at := 0; at < len(text); {
		end := s.Next(text, at)
		if end <= at || end > len(text) {
			t.Fatalf("Next(%q, %d) = %d", text, at, end)
		}
		all = append(all, text[at:end])
		at = end
	}
	return all
}

// The parts that patterns in use are made of.
const (
	anyCaseText = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	gpt4Text    = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+`
	linesText   = `\s*[\r\n]+|\s+(?!\S)|\s+`
	upperText   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowerText   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	upperNotHan = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	lowerNotHan = `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`

	qwen2Pattern = anyCaseText + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + linesText
)

// known are the patterns in use, by whom they are known from.
var known = []struct {
	name, pattern string
	tiktoken      bool // there are tiktoken files with it
}{
	{"gpt2", `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, true},
	{"gpt2 short", `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, true},
	{"r50k", `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`, true},
	{"qwen2", qwen2Pattern, true}, // and Qwen 2.5, Qwen 3
	{"llama3", anyCaseText + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + linesText, true}, // and GLM 4
	{"qwen35", anyCaseText + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + linesText, true},
	{"seed", anyCaseText + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|` + linesText, false},
	{"cl100k", gpt4Text + `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`, true},
	{"cl100k possessive", gpt4Text + `+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`, true},
	{"bailing", gpt4Text + `|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`, false},
	{"o200k", upperText + `*` + lowerText + `+` + anyCaseText + `?|` + upperText + `+` + lowerText + `*` + anyCaseText +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + linesText, true}, // and gpt-oss, Llama 4, MiniMax M2
	{"tekken", upperText + `*` + lowerText + `+|` + upperText + `+` + lowerText + `*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + linesText, true},
	{"kimi", `[\p{Han}]+|` + upperNotHan + `*` + lowerNotHan + `+` + anyCaseText + `?|` + upperNotHan + `+` + lowerNotHan + `*` +
		anyCaseText + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + linesText, true},
	{"three digits", threeDigits, false},
	{"one digit", `\p{N}`, false},
	{"cjk", cjkPattern, false},
	{"deepseek", deepseekPattern, false},
	{"lines", `[^\n]+|[\n]+`, false},
}

// signs has characters of every kind and role: what alternatives turn on.
var signs = []string{
	"a", "A", "z", "Z", "e", "l", "L", "s", "S", "t", "r", "V", "d", "M", "'", "'", "'s", "'S", "'re", "'LL", "\u017f", "'\u017f", "\u212a",
	" ", " ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1f", "\u0085", "\u00a0", "\u2028", "\u3000", "\u180e", "\u200b", "\ufeff",
	"0", "1", "12", "1234", "\u00b2", "\u0663", "\u2167", "\u3007", "\u3021", "\uff11", "\U00011de8",
	".", ",", "/", "//", "-", "(", "$", "+", "_", "`", "\u2019", "\u3001", "\u00b4", "\u20ac", "\uff5c", "\u2581",
	"\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u00aa", "\u00df", "\ufb06", "\u0130", "\u0149", "\u1e9e",
	"\u0301", "\u0308", "\u20dd", "\u093e", "\ufe0f", "\u3099",
	"\u4e2d", "\u6f22\u5b57", "\u9fa5", "\u9fa6", "\u3400", "\U00020000", "\u3005", "\u2e80", "\U00016ff0", "\u303b",
	"\u3042", "\u30ab", "\u30fb", "\u30fc", "\u309b", "\u30a0", "\u3040", "\uff76", "\uac00", "\u1100",
	"\u0627", "\u0628\u064e", "\u0e01\u0e31", "\u0e40\u0e25\u0e48", "\u0915\u094d\u0937", "\u05d0", "\u10d0", "\u1c90", "\u13a0", "\uab70",
	"\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f3fd", "\u200d", "\u200c", "\u202e",
	"\x00", "\x01", "\x7f", "\u00ad", "\ue000", "\U000e0041", "\U0010ffff", "\ufffd", "\u0378", "\U0001e900", "\U0001d400", "\U0001d7ce",
}

// randomText returns a text of up to most parts: signs, runs of one of them,
// and code points from anywhere.
func randomText(random *rand.Rand, most int) string {
	var b strings.Builder
	few := signs
	if random.IntN(3) == 0 { // of few signs, so that more alternatives meet
		few = few[:0:0]
		for range 2 + random.IntN(5) {
			few = append(few, signs[random.IntN(len(signs))])
		}
	}
	for range random.IntN(most + 1) {
		switch random.IntN(12) {
		case 0:
			b.WriteString(strings.Repeat(few[random.IntN(len(few))], 1+random.IntN(9)))
		case 1:
			b.WriteRune(randomRune(random))
		case 2:
			fmt.Fprintf(&b, "%c%c", 'a'+rune(random.IntN(26)), 'A'+rune(random.IntN(26)))
		case 3:
			b.WriteByte(byte(random.IntN(128)))
		default:
			b.WriteString(few[random.IntN(len(few))])
		}
	}
	return b.String()
}

// randomRune returns a code point: of the first plane mostly, of any other else.
func randomRune(random *rand.Rand) rune {
	most := 0x10000
	switch random.IntN(8) {
	case 0:
		most = 0x110000
	case 1:
		most = 0x30000
	case 2:
		most = 0x3000
	case 3:
		most = 0x600
	}
	for {
		if r := rune(random.IntN(most)); r < 0xd800 || r > 0xdfff {
			return r
		}
	}
}
