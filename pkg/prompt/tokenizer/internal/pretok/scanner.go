package pretok

import "strings"

// Scanner cuts text into pieces. It is safe for concurrent use.
type Scanner interface {
	// Next returns the end of the piece of text that starts at at, always more
	// than at and at most len(text): a match of the scanner's pattern, or the
	// gap up to the next match. text is all that the pattern sees, in valid
	// UTF-8; at is less than len(text) and is 0 or an end that Next returned for
	// this text. Text that is not valid UTF-8 gives pieces without meaning.
	Next(text string, at int) (end int)
}

// ByRegex returns the scanner for a Split pre-tokenizer of tokenizer.json with
// this regex, behavior Isolated and invert false, as Oniguruma understands the
// regex. Reports false for a regex that is not known.
func ByRegex(pattern string) (Scanner, bool) {
	pattern = canonical(pattern)
	if s, ok := whole[pattern]; ok {
		return s, true
	}
	return byFamily(pattern, false)
}

// ByTiktoken returns the scanner for the pattern of a tiktoken encoding, as
// fancy-regex understands it: there {1,3}+ is possessive, for Oniguruma it is a
// repeat of a repeat. Reports false for a pattern that is not known, or that
// leaves gaps, which tiktoken would drop.
func ByTiktoken(pattern string) (Scanner, bool) {
	return byFamily(canonical(pattern), true)
}

func byFamily(pattern string, tiktoken bool) (Scanner, bool) {
	r := reader{pattern, tiktoken}
	s, ok := r.family()
	if !ok {
		return nil, false
	}
	return s, true
}

// BySequence returns one scanner for several Split pre-tokenizers of
// tokenizer.json in sequence, each as ByRegex has them: the pieces of one are
// cut by the next. Reports false for a sequence that is not known as a whole;
// it can still be run one by one.
func BySequence(patterns []string) (Scanner, bool) {
	if len(patterns) == 1 {
		return ByRegex(patterns[0])
	}
	if len(patterns) != len(deepseekSequence) {
		return nil, false
	}
	for i, p := range patterns {
		if canonical(p) != deepseekSequence[i] {
			return nil, false
		}
	}
	return &deepseekFused, true
}

// ByteLevel returns the scanner for a ByteLevel pre-tokenizer with use_regex:
// the pattern of GPT-2.
func ByteLevel() Scanner { return &gpt2 }

// Digits returns the scanner for a Digits pre-tokenizer: each digit on its own,
// or runs of them.
func Digits(individual bool) Scanner {
	if individual {
		return &eachDigit
	}
	return &allDigits
}

// Gapless reports whether every piece of a scanner is a match, whatever the
// text. Then a Split that removes what does not match (behavior Removed, invert
// true) is the same as Isolated.
func Gapless(s Scanner) bool {
	switch s.(type) {
	case *spaced, *worded, *cased:
		return true
	}
	return false
}

// canonical writes line ends in a pattern as escapes: both forms are in use and
// mean the same.
func canonical(pattern string) string {
	return lineEnds.Replace(pattern)
}

var lineEnds = strings.NewReplacer("\r", `\r`, "\n", `\n`)
