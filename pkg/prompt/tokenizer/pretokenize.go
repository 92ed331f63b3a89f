package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/pretok"
)

// pretokenizer cuts normalized text into words.
type pretokenizer struct {
	cuts []cut
	// byteLevel says that words are bytes for the model, not characters.
	byteLevel bool
	// firstOnly says that the start of the whole text is treated in its own way.
	firstOnly bool
}

// cut is one pre-tokenizer. Each piece of one is cut by the next.
type cut struct {
	rewrite rewrite
	scanner pretok.Scanner  // nil for none
	literal *pretok.Literal // scanner, when it may drop pieces
	regex   string          // of scanner, until neighbours are fused
}

// rewrite is what happens to a piece before it is cut.
type rewrite struct {
	space  bool   // a blank is put before it, unless it starts with one
	meta   string // stands for each blank and, by always and first, before the piece
	always bool
	first  bool // as always, at the start of the whole text
}

func (w *rewrite) none() bool { return !w.space && w.meta == "" }

// apply returns the rewritten piece, which may be in buf. first says that the
// piece starts the whole text.
func (w *rewrite) apply(piece string, first bool, buf []byte) (string, []byte) {
	if w.space {
		if piece[0] == ' ' {
			return piece, buf
		}
		buf = append(append(buf, ' '), piece...)
		return view(buf), buf
	}
	if (w.always || w.first && first) && piece[0] != ' ' && !strings.HasPrefix(piece, w.meta) {
		buf = append(buf, w.meta...)
	} else if strings.IndexByte(piece, ' ') < 0 {
		return piece, buf
	}
	for {
		i := strings.IndexByte(piece, ' ')
		if i < 0 {
			break
		}
		buf = append(append(buf, piece[:i]...), w.meta...)
		piece = piece[i+1:]
	}
	buf = append(buf, piece...)
	return view(buf), buf
}

// pretokenizer reads the pre-tokenizer of a file.
func (r *reader) pretokenizer(n *node) pretokenizer {
	var out pretokenizer
	if !absent(n) {
		r.addPretokenizer(&out, n)
	}
	out.fuse()
	return out
}

func (r *reader) addPretokenizer(out *pretokenizer, n *node) {
	if out.byteLevel {
		r.fail(n, "nothing is supported after ByteLevel")
		return
	}
	switch typ := r.typ(n); typ {
	case "":
	case "Sequence":
		r.only(n, "type", "pretokenizers")
		for i := range r.list(n, "pretokenizers") {
			r.addPretokenizer(out, &n.get("pretokenizers").items[i])
		}
	case "Split":
		r.only(n, "type", "pattern", "behavior", "invert")
		out.cuts = append(out.cuts, r.split(n))
	case "ByteLevel":
		r.only(n, "type", "add_prefix_space", "trim_offsets", "use_regex")
		r.mustFlag(n, "trim_offsets") // has no say in ids
		c := cut{rewrite: rewrite{space: r.mustFlag(n, "add_prefix_space")}}
		if r.flag(n, "use_regex", true) {
			c.scanner = pretok.ByteLevel()
		}
		if c.scanner != nil || c.rewrite.space {
			out.cuts = append(out.cuts, c)
		}
		out.byteLevel = true
	case "Digits":
		r.only(n, "type", "individual_digits")
		out.cuts = append(out.cuts, cut{scanner: pretok.Digits(r.mustFlag(n, "individual_digits"))})
	case "Metaspace":
		r.only(n, "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep")
		r.metaspace(out, n)
	default:
		r.unsupported(n, "the pre-tokenizer", typ)
	}
}

// split reads a Split.
func (r *reader) split(n *node) cut {
	behavior, ok := pretok.ParseBehavior(r.text(n, "behavior"))
	if !ok {
		r.fail(n, "the behavior is not known")
		return cut{}
	}
	invert := r.mustFlag(n, "invert")
	pattern := r.need(n, "pattern", kindObject, "an object")
	regex := pattern.get("Regex")
	if regex == nil {
		text := r.literal(n, "Split")
		literal, err := pretok.NewLiteral(text, behavior, invert)
		if err != nil && r.err == nil {
			r.fail(n, "%s", err.Error())
		}
		return cut{scanner: literal, literal: literal}
	}
	r.only(pattern, "Regex")
	text := r.text(pattern, "Regex")
	scanner, ok := pretok.ByRegex(text)
	if !ok {
		r.unsupported(n, "Split with the regex", text)
		return cut{}
	}
	pieces := behavior == pretok.Removed && invert && pretok.Gapless(scanner)
	if isolated := behavior == pretok.Isolated && !invert; !isolated && !pieces {
		r.fail(n, "Split of a regex is supported with behavior Isolated, and with Removed and invert where the regex matches everything")
	}
	return cut{scanner: scanner, regex: text}
}

// metaspace reads a Metaspace.
func (r *reader) metaspace(out *pretokenizer, n *node) {
	w := rewrite{meta: r.text(n, "replacement")}
	if utf8.RuneCountInString(w.meta) != 1 {
		r.fail(n, "the replacement is not one character")
		return
	}
	scheme := "always"
	if !absent(n.get("prepend_scheme")) {
		scheme = r.text(n, "prepend_scheme")
	}
	if v := n.get("add_prefix_space"); !absent(v) && !r.flag(n, "add_prefix_space", true) && scheme != "never" {
		r.fail(v, "add_prefix_space says otherwise than prepend_scheme")
	}
	switch scheme {
	case "always":
		w.always = true
	case "first":
		w.first, out.firstOnly = true, true
		for i := range out.cuts {
			if !out.cuts[i].rewrite.none() {
				r.fail(n, "prepend_scheme first is not supported after a pre-tokenizer that adds text")
			}
		}
	case "never":
	default:
		r.fail(n, "the prepend_scheme is not known")
	}
	c := cut{rewrite: w}
	if r.flag(n, "split", true) {
		c.scanner, _ = pretok.NewLiteral(w.meta, pretok.MergedWithNext, false) // the text is not empty
	}
	out.cuts = append(out.cuts, c)
}

// fuse puts one scanner in place of Splits in sequence, where there is one.
func (p *pretokenizer) fuse() {
	for from := 0; from < len(p.cuts); from++ {
		var patterns []string
		for _, c := range p.cuts[from:] {
			if c.regex == "" {
				break
			}
			patterns = append(patterns, c.regex)
		}
		for n := len(patterns); n > 1; n-- {
			if scanner, ok := pretok.BySequence(patterns[:n]); ok {
				p.cuts[from] = cut{scanner: scanner}
				p.cuts = append(p.cuts[:from+1], p.cuts[from+n:]...)
				break
			}
		}
	}
}
