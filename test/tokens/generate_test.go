package tokens

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// generator makes strings that tokenizers get wrong. The same seed makes the same
// strings.
type generator struct {
	*rand.Rand
	added  []string // the added tokens
	sample [][]byte // some of the vocabulary
	seeds  []string // texts to cut pieces out of
	b      []byte
}

func newGenerator(seed uint64, r *reference, seeds []string) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 5)), added: r.added(), sample: r.Sample, seeds: seeds}
}

// pieces are the ways to make a part of a string, the likely ones several times.
var pieces = []func(*generator){
	(*generator).anyRunes, (*generator).anyRunes, (*generator).tableRunes, (*generator).tableRunes, (*generator).tableRunes,
	(*generator).words, (*generator).words, (*generator).words, (*generator).words,
	(*generator).code, (*generator).code, (*generator).code,
	(*generator).script, (*generator).script, (*generator).script, (*generator).script,
	(*generator).space, (*generator).space, (*generator).space, (*generator).space,
	(*generator).marks, (*generator).marks, (*generator).jamo, (*generator).emoji,
	(*generator).digits, (*generator).digits, (*generator).controls,
	(*generator).vocabulary, (*generator).vocabulary, (*generator).vocabulary,
	(*generator).addedToken, (*generator).addedToken, (*generator).cut, (*generator).cut, (*generator).cut,
	(*generator).punctuation, (*generator).folded, (*generator).invalid,
}

// next makes one string.
func (g *generator) next() string {
	g.b = g.b[:0]
	switch g.IntN(400) {
	case 0:
		g.longWord()
	case 1:
		g.longSpace()
	}
	for range 1 + int(g.ExpFloat64()*4) {
		pieces[g.IntN(len(pieces))](g)
	}
	if g.IntN(30) == 0 {
		g.damage()
	}
	return string(g.b)
}

// few is a small number, at least 1.
func (g *generator) few(mean float64) int { return 1 + int(g.ExpFloat64()*mean) }

func (g *generator) rune(r rune)   { g.b = utf8.AppendRune(g.b, r) }
func (g *generator) text(s string) { g.b = append(g.b, s...) }

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// between is a rune of a range.
func (g *generator) between(lo, hi rune) rune { return lo + rune(g.IntN(int(hi-lo)+1)) }

// anyRunes are from all planes, assigned or not.
func (g *generator) anyRunes() {
	for range g.few(2) {
		r := g.between(0, unicode.MaxRune)
		if g.IntN(2) == 0 {
			r = g.between(0, 0xFFFF)
		}
		g.rune(r) // surrogates become U+FFFD
	}
}

// tables are the categories, scripts and properties of Unicode, in a fixed order.
var tables = func() []*unicode.RangeTable {
	var list []*unicode.RangeTable
	for _, m := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			list = append(list, m[name])
		}
	}
	return list
}()

// tableRunes are of one category, script or property, or just beside it.
func (g *generator) tableRunes() {
	t := pick(g, tables)
	for range g.few(3) {
		if n := g.IntN(len(t.R16) + len(t.R32)); n < len(t.R16) {
			g.rune(g.near(rune(t.R16[n].Lo), rune(t.R16[n].Hi)))
		} else {
			r := t.R32[n-len(t.R16)]
			g.rune(g.near(rune(r.Lo), rune(r.Hi)))
		}
		if g.IntN(6) == 0 {
			g.text(" ")
		}
	}
}

// near is a rune of a range, often one of its ends, or one step outside.
func (g *generator) near(lo, hi rune) rune {
	switch g.IntN(8) {
	case 0:
		return max(0, lo-1)
	case 1:
		return min(unicode.MaxRune, hi+1)
	case 2:
		return lo
	case 3:
		return hi
	}
	return g.between(lo, hi)
}

var wordList = strings.Fields(`the of and a to in is that it was for on are as with his they at be this from I have or
	don't I'm you're they'll we've he'd it's O'Brien DON'T WE'RE They'Ll rock'n'roll international Hello World HTTPServer
	iPhone snake_case camelCase SCREAMING_CASE kebab-case 3rd 42nd U.S.A. e.g. naïve café Übergrößen Москва Ελλάδα
	antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis x y z A B C aB Ab 's 't 'Re 'LL ' '' "`)

func (g *generator) words() {
	for range g.few(4) {
		if g.IntN(8) != 0 {
			g.text(" ")
		}
		w := pick(g, wordList)
		switch g.IntN(8) {
		case 0:
			w = strings.ToUpper(w)
		case 1:
			w = strings.ToLower(w)
		}
		g.text(w)
		if g.IntN(5) == 0 {
			g.text(pick(g, []string{".", ",", "!", "?", ";", ":", "...", ").", "\"", "'s", "'S"}))
		}
	}
}

var codeList = []string{
	"func", "return", " if ", "else {", "}\n", "})\n", "\n\t", "\n\t\t", "\n    ", "\n        ", "();\n", "->", "::", "==", "!=", ":=", "+=", "&&", "||",
	"<<=", "/*", "*/", "//", " # ", "/**\n", "\"\"\"", "'''", "```go\n", "{{", "}}", "{%- ", " -%}", "<div>", "</div>\n", "\\n", "\\u00e9", "\\\\",
	"x", "i++", "a[i]", "foo_bar", "fooBar", "_private", "__init__", "0x1F", "1e-9", "3.14f", "100_000", ";\n\n\n", "\r\n", "\r\n\r\n", " \\\n",
	"/\n", "//\r\n", "./../", "https://a.b/c?d=e&f=%20", "@media", "#define", "$HOME", "${x}", "`a`", "[^\\s]+", "\t\t\t", "    ", "  ", ";", ",", ".", "(", ")", "[", "]",
}

func (g *generator) code() {
	for range g.few(5) {
		g.text(pick(g, codeList))
	}
}

// scripts are ranges of letters that the tokenizers treat in their own ways.
var scripts = [][2]rune{
	{0x4E00, 0x9FFF},
	{0x4E00, 0x9FFF},
	{0x3400, 0x4DBF},
	{0x20000, 0x2A6DF},
	{0xF900, 0xFAFF},
	{0x2E80, 0x2FDF},
	{0x3000, 0x303F},
	{0x3040, 0x309F},
	{0x30A0, 0x30FF},
	{0x31F0, 0x31FF},
	{0xFF00, 0xFFEF},
	{0x1B000, 0x1B16F},
	{0x9FA0, 0x9FB0}, // where 龥 is
	{0xAC00, 0xD7A3},
	{0x3130, 0x318F},
	{0x0600, 0x06FF},
	{0xFB50, 0xFDFF},
	{0xFE70, 0xFEFF},
	{0x0590, 0x05FF},
	{0x0E00, 0x0E7F},
	{0x0E80, 0x0EFF},
	{0x0900, 0x097F},
	{0x0980, 0x09FF},
	{0x0B80, 0x0BFF},
	{0x0F00, 0x0FFF},
	{0x1000, 0x109F},
	{0x1780, 0x17FF},
	{0x0400, 0x04FF},
	{0x0370, 0x03FF},
	{0x1F00, 0x1FFF},
	{0x0530, 0x058F},
	{0x10A0, 0x10FF},
	{0x1C90, 0x1CBF},
	{0x13A0, 0x13FF},
	{0xAB70, 0xABBF},
	{0x00C0, 0x024F},
	{0x1E00, 0x1EFF},
	{0x0250, 0x02FF},
	{0xA720, 0xA7FF},
	{0x2C60, 0x2C7F},
	{0x1D400, 0x1D7FF},
	{0x10400, 0x1044F},
	{0x2100, 0x214F},
}

func (g *generator) script() {
	s := pick(g, scripts)
	for range g.few(6) {
		g.rune(g.between(s[0], s[1]))
		switch g.IntN(24) {
		case 0:
			g.text(pick(g, []string{" ", "\n", "，", "。", "、", "！", "・", "،", "।", "1", "a"}))
		case 1:
			s = pick(g, scripts)
		}
	}
}

var spaces = []rune(" \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u2060\ufeff\u180e\x1c\x1d\x1e\x1f")

func (g *generator) space() {
	switch g.IntN(4) {
	case 0: // one kind
		g.text(strings.Repeat(pick(g, []string{" ", "\n", "\t", "\r\n", "\u3000", "\u00a0"}), g.few(4)))
	case 1: // the common ones
		for range g.few(4) {
			g.rune(spaces[g.IntN(4)])
		}
	case 2:
		for range g.few(3) {
			g.rune(pick(g, spaces))
		}
	default:
		g.text(pick(g, []string{" ", "  ", "\n", "\n\n", " \n", "\n ", "\t", "   ", "\r\n"}))
	}
}

func (g *generator) longSpace() {
	g.text(strings.Repeat(pick(g, []string{" ", "\n", "\t", " \n", "\r\n", "\u3000"}), 50+g.IntN(1500)))
}

var markRanges = [][2]rune{
	{0x0300, 0x036F},
	{0x0300, 0x0345},
	{0x0483, 0x0489},
	{0x0591, 0x05BD},
	{0x064B, 0x065F},
	{0x093C, 0x094D},
	{0x09BE, 0x09CD},
	{0x0BBE, 0x0BCD},
	{0x0E31, 0x0E4E},
	{0x0F71, 0x0F84},
	{0x1AB0, 0x1ACE},
	{0x1DC0, 0x1DFF},
	{0x20D0, 0x20F0},
	{0x302A, 0x302F},
	{0x3099, 0x309A},
	{0xFE00, 0xFE0F},
	{0xFE20, 0xFE2F},
	{0x110BA, 0x110BA},
	{0x11127, 0x11130},
	{0x1D165, 0x1D172},
	{0xE0100, 0xE01EF},
	{0x1133E, 0x11357},
	{0x114B0, 0x114C3},
}

var bases = []rune("aeiouAEIOUncsyzqoươẞβωΩאבלاويकনெ\u09c7\u0b47\u1025\u1b05かはカハㄱ가각\u00c5\u212b\u1e9b\ufb1d\u2adc=<>≠ \n1'")

// marks are letters with what NFC joins, reorders or leaves.
func (g *generator) marks() {
	for range g.few(2) {
		g.rune(pick(g, bases))
		m := pick(g, markRanges)
		for range g.IntN(4) {
			if g.IntN(4) == 0 {
				m = pick(g, markRanges)
			}
			g.rune(g.between(m[0], m[1]))
		}
	}
	if g.IntN(60) == 0 {
		for range 20 + g.IntN(60) { // more marks than normalizers keep in a small buffer
			g.rune(g.between(0x0300, 0x0345))
		}
	}
}

// jamo are parts of Hangul syllables, which NFC joins.
func (g *generator) jamo() {
	for range g.few(3) {
		switch g.IntN(6) {
		case 0:
			g.rune(g.between(0x1100, 0x11FF))
		case 1:
			g.rune(g.between(0xAC00, 0xD7A3))
			g.rune(g.between(0x11A7, 0x11C3))
		case 2:
			g.rune(g.between(0x1100, 0x1113))
			g.rune(g.between(0x1160, 0x1176))
		default:
			g.rune(g.between(0x1100, 0x1112))
			g.rune(g.between(0x1161, 0x1175))
			g.rune(g.between(0x11A8, 0x11C2))
		}
	}
}

var emojiParts = []string{
	"😀", "👍", "🏽", "\u200d", "\ufe0f", "❤", "👨", "👩", "👧", "💻", "🏳", "🌈", "🇩", "🇪", "🇯", "🇵", "🏴", "\U000e0067", "\U000e007f", "1\ufe0f\u20e3", "🪿", "☀", "⌚", "🀄", "🅰", "㊗", "©",
}

func (g *generator) emoji() {
	for range g.few(3) {
		g.text(pick(g, emojiParts))
	}
}

func (g *generator) digits() {
	for range g.few(5) {
		switch g.IntN(12) {
		case 0:
			g.rune(pick(g, []rune("٠٣۵९๗０９𝟎𝟗½¼²³¹₀Ⅳⅷ①㊿〇一三௰𐄇੧ꘪ𑁦𖩠")))
		case 1:
			g.text(pick(g, []string{".", ",", "-", "_", " ", ":", "/"}))
		default:
			g.rune(g.between('0', '9'))
		}
	}
}

func (g *generator) controls() {
	for range g.few(2) {
		g.rune(pick(g, []rune("\x00\x01\x02\x07\x08\x0b\x0e\x1b\x1f\x7f\x80\x9f\u00ad\u061c\u200e\u202e\u2066\u2069\ufff9\ufffc\ufffd\ufffe\uffff\ufdd0\U0001fffe\U0010ffff\ue000\U000f0000\U000e0001")))
	}
}

// vocabulary is tokens beside each other: merges meet in every way.
func (g *generator) vocabulary() {
	for range g.few(3) {
		g.b = append(g.b, pick(g, g.sample)...)
	}
}

// addedToken is an added token, whole or nearly.
func (g *generator) addedToken() {
	for range g.few(0.7) {
		t := pick(g, g.added)
		if g.IntN(3) == 0 { // the first and the last ones are what templates use
			n := min(8, len(g.added))
			t = pick(g, append(slices.Clone(g.added[:n]), g.added[len(g.added)-n:]...))
		}
		switch g.IntN(10) {
		case 0:
			t = t[:g.IntN(len(t)+1)]
		case 1:
			t = t[g.IntN(len(t)):]
		case 2:
			t = strings.ToUpper(t)
		case 3:
			t = strings.ReplaceAll(t, "|", pick(g, []string{"｜", "||", " |", ""}))
		}
		g.text(t)
		g.text(pick(g, []string{"", "", "", " ", "\n", "  ", "a", "1", "'s", "\u0301", "中"}))
	}
}

// cut is a piece of a real text.
func (g *generator) cut() {
	s := pick(g, g.seeds)
	if s == "" {
		return
	}
	from := g.IntN(len(s))
	g.text(s[from:min(len(s), from+g.few(40))])
}

func (g *generator) punctuation() {
	const list = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	c := list[g.IntN(len(list))]
	for range g.few(5) {
		g.b = append(g.b, c)
		if g.IntN(3) == 0 {
			c = list[g.IntN(len(list))]
		}
	}
	g.text(pick(g, []string{"", "", "\n", "\r\n", " ", "a", "/", "\n/\n"}))
}

// folded is what equals ASCII only when case is ignored, around contractions.
func (g *generator) folded() {
	for range g.few(2) {
		g.text(pick(g, []string{"a", "A", "é", "中", "1", " ", "", "ǅ", "ʰ", "ſ", "K"}))
		g.text(pick(g, []string{"'", "'", "'", "’", "ʼ"}))
		g.text(pick(g, []string{"s", "ſ", "S", "t", "T", "re", "Re", "rE", "ve", "VE", "m", "ll", "lL", "d", "D", "K", "st", "sſ", "l", "r", "v"}))
	}
}

// invalid is bytes that are not UTF-8.
func (g *generator) invalid() {
	switch g.IntN(3) {
	case 0:
		for range g.few(2) {
			g.b = append(g.b, byte(128+g.IntN(128)))
		}
	case 1: // a rune without its end
		var buf [4]byte
		n := utf8.EncodeRune(buf[:], g.between(0x80, unicode.MaxRune))
		g.b = append(g.b, buf[:1+g.IntN(n)]...)
	default:
		g.text(pick(g, []string{"\xc0\x80", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe\xff", "\xe4\xb8", "\xf0\x9f\x98"}))
	}
}

// longWord is a run that no pattern splits.
func (g *generator) longWord() {
	unit := pick(g, []string{"a", "ab", "the", "x", "é", "中", "哈哈", "あ", "ก", "😀", "=", "-", "ー", "\u0301", "A", "aB", "0", "ñu", "е", "▁", "/", "AaBb"})
	if g.IntN(3) == 0 {
		unit = string(pick(g, g.sample))
	}
	g.text(strings.Repeat(unit, 20+g.IntN(400)))
}

// damage changes a byte somewhere.
func (g *generator) damage() {
	if len(g.b) == 0 {
		return
	}
	i := g.IntN(len(g.b))
	switch g.IntN(3) {
	case 0:
		g.b[i] = byte(g.IntN(256))
	case 1:
		g.b = slices.Delete(g.b, i, i+1)
	default:
		g.b = slices.Insert(g.b, i, g.b[g.IntN(len(g.b))])
	}
}
