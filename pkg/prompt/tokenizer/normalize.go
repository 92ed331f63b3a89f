package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites text before it is cut into words.
type normalizer struct {
	steps []step
	// growth is how many times longer a text can become at most.
	growth float64
}

// maxGrowth is the most that a normalizer may make of a text. Those in use have
// 12: a prefix of three bytes, and as many for each blank.
const maxGrowth = 64

// addStep adds a step that makes a text at most growth times as long.
func (r *reader) addStep(out *normalizer, n *node, s step, growth float64) {
	out.steps = append(out.steps, s)
	if out.growth *= max(growth, 1); out.growth > maxGrowth {
		r.fail(n, "the normalizer can make a text more than %d times as long", maxGrowth)
	}
}

// step is one rewrite. It returns text itself when there is nothing to do, else
// a text in buf, which it extends. When it leaves buf empty, the text is not in
// it.
type step interface {
	apply(text string, buf []byte) (string, []byte)
}

func (n *normalizer) identity() bool { return len(n.steps) == 0 }

// apply returns the normalized text. It is valid until s is used again.
func (n *normalizer) apply(text string, s *scratch) string {
	free := 0 // the buffer that text is not in
	for _, step := range n.steps {
		buf := &s.normalized[free]
		if text, *buf = step.apply(text, (*buf)[:0]); len(*buf) > 0 {
			free = 1 - free
		}
	}
	return text
}

// normalizer reads the normalizer of a file.
func (r *reader) normalizer(n *node) normalizer {
	out := normalizer{growth: 1}
	r.addNormalizer(&out, n, false)
	return out
}

func (r *reader) addNormalizer(out *normalizer, n *node, inner bool) {
	if !inner && absent(n) {
		return
	}
	switch typ := r.typ(n); typ {
	case "":
	case "Sequence":
		r.only(n, "type", "normalizers")
		for i := range r.list(n, "normalizers") {
			r.addNormalizer(out, &n.get("normalizers").items[i], true)
		}
	case "NFC":
		r.only(n, "type")
		r.addStep(out, n, newNFC(), 3) // U+1D160 is the worst
	case "Lowercase":
		r.only(n, "type")
		r.addStep(out, n, lowercase{}, 1.5) // İ, and two bytes that become three
	case "Prepend":
		r.only(n, "type", "prepend")
		text := r.text(n, "prepend")
		if text == "" {
			r.fail(n, "Prepend of nothing is not supported") // it doubles a character there
		}
		r.addStep(out, n, prepend{text}, 1+float64(len(text))) // to a text of one byte
	case "Replace":
		r.only(n, "type", "pattern", "content")
		old, with := r.literal(n, "Replace"), r.text(n, "content")
		if r.err == nil {
			r.addStep(out, n, replace{old, with}, float64(len(with))/float64(len(old)))
		}
	default:
		r.unsupported(n, "the normalizer", typ)
	}
}

// literal reads a pattern that is plain text.
func (r *reader) literal(n *node, what string) string {
	pattern := r.need(n, "pattern", kindObject, "an object")
	if regex := pattern.get("Regex"); regex != nil {
		r.unsupported(regex, what+" with the regex", regex.text)
		return ""
	}
	r.only(pattern, "String")
	text := r.text(pattern, "String")
	if text == "" {
		r.fail(pattern, "an empty pattern is not supported")
	}
	return text
}

// prepend puts text before text that is not empty.
type prepend struct{ text string }

func (p prepend) apply(text string, buf []byte) (string, []byte) {
	if text == "" {
		return text, buf
	}
	buf = append(append(buf, p.text...), text...)
	return view(buf), buf
}

// replace puts one text for each other, leftmost first.
type replace struct{ old, with string }

func (p replace) apply(text string, buf []byte) (string, []byte) {
	done := 0
	for {
		i := strings.Index(text[done:], p.old)
		if i < 0 {
			break
		}
		buf = append(append(buf, text[done:done+i]...), p.with...)
		done += i + len(p.old)
	}
	if done == 0 {
		return text, buf
	}
	buf = append(buf, text[done:]...)
	return view(buf), buf
}

// lowercase puts the lower case of each character, on its own: the capital sigma
// is σ at the end of words too.
type lowercase struct{}

func (lowercase) apply(text string, buf []byte) (string, []byte) {
	start := strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' })
	if start < 0 {
		return text, buf
	}
	buf = append(buf, text[:start]...)
	for _, r := range text[start:] {
		switch {
		case 'A' <= r && r <= 'Z':
			buf = append(buf, byte(r)+'a'-'A')
		case r < utf8.RuneSelf:
			buf = append(buf, byte(r))
		case r == 'İ': // the only character whose lower case is two
			buf = append(buf, "i\u0307"...)
		default:
			buf = utf8.AppendRune(buf, lower(r))
		}
	}
	return view(buf), buf
}

// lower is the lower case of a character in Hugging Face's Unicode version.
func lower(r rune) rune {
	for _, c := range newerLower {
		if c.first <= r && r <= c.last {
			return r + c.delta
		}
	}
	return unicode.ToLower(r)
}

// newerLower are capitals that are newer than Go's tables (Unicode 15), as the
// Rust of tokenizers 0.22 has them.
var newerLower = []struct{ first, last, delta rune }{
	{0x1C89, 0x1C89, 1},
	{0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
	{0xA7CC, 0xA7CC, 1},
	{0xA7CE, 0xA7CE, 1},
	{0xA7D2, 0xA7D2, 1},
	{0xA7D4, 0xA7D4, 1},
	{0xA7DA, 0xA7DA, 1},
	{0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
	{0x10D50, 0x10D65, 0x20},
	{0x16EA0, 0x16EB8, 0x1B},
}
