package pretok

import "strings"

// A pattern of words is a row of alternatives, and each alternative is written
// in a few ways. So patterns are recognised alternative by alternative, each by
// its exact text: what a new model combines anew is known if its parts are.
//
//	family   alternatives
//	spaced   contractions | words | numbers | punctuation | whitespace
//	worded   contractions | words | numbers | punctuation | whitespace
//	cased    Han? | words that may end in small letters | other words | numbers | punctuation | whitespace

// option is one way to write a part of a pattern.
type option[T any] struct {
	text  string
	means T
}

var contractionOptions = []option[fold]{
	{`'s|'t|'re|'ve|'m|'ll|'d`, lowerCase},
	{`(?:'s|'t|'re|'ve|'m|'ll|'d)`, lowerCase},
	{`'(?:[sdmt]|ll|ve|re)`, lowerCase},
	{`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`, asciiCase},
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)`, anyCase},
	{`'(?i:[sdmt]|ll|ve|re)`, anyCase},
}

// spacedOptions are all but the first and the last alternative of GPT-2.
var spacedOptions = []option[struct{}]{
	{text: ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+`},
	{text: ` ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++`},
}

var wordOptions = []option[class]{
	{`[^\r\n\p{L}\p{N}]?\p{L}+`, letter},
	{`[^\r\n\p{L}\p{N}]?+\p{L}+`, letter},
	{`[^\r\n\p{L}\p{N}]?+\p{L}++`, letter},
	{`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+`, letter | mark},
}

// casedOptions are the two kinds of words, and what is no part of them. A % is
// where contractions may be.
var casedOptions = []option[class]{
	{`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%`, 0},
	{`[\p{Han}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+%|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*%`, han},
}

// suffixOptions are the contractions at the end of a cased word.
var suffixOptions = []option[fold]{
	{``, noContractions},
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, anyCase},
	{`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?`, asciiCase},
}

const repeatOfRepeat = -1 // of up to three

var numberOptions = []option[int]{
	{`\p{N}`, 1},
	{`\p{N}{1}`, 1},
	{`\p{N}{1,3}`, 3},
	{`\p{N}{1,3}+`, repeatOfRepeat},
	{`\p{N}+`, 0},
	{`\p{N}++`, 0},
}

// others says what of punctuation: the characters that may follow a run, and
// whether marks are part of it.
type others struct {
	tail  string
	marks bool
}

var otherOptions = []option[others]{
	{` ?[^\s\p{L}\p{N}]+[\r\n]*`, others{"\r\n", true}},
	{` ?[^\s\p{L}\p{N}]++[\r\n]*`, others{"\r\n", true}},
	{` ?[^\s\p{L}\p{N}]++[\r\n]*+`, others{"\r\n", true}},
	{` ?[^\s\p{L}\p{N}]+[\r\n/]*`, others{"\r\n/", true}},
	{` ?[^\s\p{L}\p{N}]+`, others{"", true}},
	{` ?[^\s\p{L}\p{N}\r\n]+`, others{"", true}},
	{` ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*`, others{"\r\n", false}},
}

// blanks says how whitespace is cut.
type blanks struct {
	lineEnds bool // up to the last line end, if there is one
	// trailing says that whitespace at the end of the text is one piece, even
	// if it has line ends: \s++$ comes before \s*[\r\n].
	trailing bool
}

var blankOptions = []option[blanks]{
	{`\s+(?!\S)|\s+`, blanks{}},
	{`\s*[\r\n]+|\s+(?!\S)|\s+`, blanks{lineEnds: true}},
	{`\s*[\r\n]|\s+(?!\S)|\s+`, blanks{lineEnds: true}},
	{`\s++$|\s+(?!\S)|\s`, blanks{}},
	{`\s++$|\s*[\r\n]|\s+(?!\S)|\s`, blanks{lineEnds: true, trailing: true}},
}

// whole are the patterns that are of no family.
var whole = map[string]Scanner{
	threeDigits:     &threeNumbers,
	`\p{N}`:         &eachNumber,
	cjkPattern:      &cjkRuns,
	deepseekPattern: &deepseekLast,
	`[^\n]+|[\n]+`:  &lines,
}

const (
	threeDigits = `\p{N}{1,3}`
	cjkPattern  = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	// deepseekPattern is the last of DeepSeek V3's three.
	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// deepseekSequence is the sequence of Splits of DeepSeek V3 and R1 and of
// Hunyuan.
var deepseekSequence = [...]string{threeDigits, cjkPattern, deepseekPattern}

// reader reads a pattern, alternative by alternative.
type reader struct {
	rest     string
	tiktoken bool // as fancy-regex has it, not Oniguruma
}

// choose takes the option that the pattern goes on with, up to an alternative's
// end. Reports false, and takes nothing, if there is none.
func choose[T any](r *reader, options []option[T]) (means T, ok bool) {
	for _, o := range options {
		rest, found := strings.CutPrefix(r.rest, o.text)
		if !found || rest != "" && rest[0] != '|' || rest == "|" {
			continue
		}
		r.rest = strings.TrimPrefix(rest, "|")
		return o.means, true
	}
	return means, false
}

// family returns the scanner for a pattern of one of the families.
func (r *reader) family() (Scanner, bool) {
	if alone, contractions, ok := r.casedWords(); ok {
		m, o, ok := r.most(contractions)
		m.traits = newTraits(caseRoles(alone, o.marks)).withTail(o.tail)
		return &cased{m}, ok && o.marks
	}
	contractions, ok := choose(r, contractionOptions)
	if !ok {
		return nil, false
	}
	if _, ok = choose(r, spacedOptions); ok {
		b, ok := choose(r, blankOptions)
		return &spaced{newTraits(spacedRole), contractions}, ok && r.rest == "" && !b.lineEnds
	}
	word, ok := choose(r, wordOptions)
	if !ok {
		return nil, false
	}
	m, o, ok := r.most(contractions)
	m.traits = newTraits(wordRoles(word, o.marks)).withTail(o.tail)
	// If neither has the marks, nothing matches them.
	return &worded{m}, ok && (o.marks || word&mark != 0)
}

// casedWords takes the words of a cased pattern. Both kinds are to have the same
// contractions.
func (r *reader) casedWords() (alone class, contractions fold, ok bool) {
	for _, s := range suffixOptions {
		for _, o := range casedOptions {
			words := []option[class]{{strings.ReplaceAll(o.text, "%", s.text), o.means}}
			if alone, ok = choose(r, words); ok {
				return alone, s.means, true
			}
		}
	}
	return 0, 0, false
}

// most takes what comes after the words: numbers, punctuation and whitespace,
// and then nothing.
func (r *reader) most(contractions fold) (common, others, bool) {
	digits, okNumbers := choose(r, numberOptions)
	o, okOthers := choose(r, otherOptions)
	b, okBlanks := choose(r, blankOptions)
	if digits == repeatOfRepeat {
		digits = 0
		if r.tiktoken {
			digits = 3
		}
	}
	ok := okNumbers && okOthers && okBlanks && r.rest == ""
	return common{contractions: contractions, digits: digits, blanks: b}, o, ok
}
