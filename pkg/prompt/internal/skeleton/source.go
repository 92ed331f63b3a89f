package skeleton

import (
	"slices"
	"strings"
)

// rewritten is a template with guards.
type rewritten struct {
	source   string
	literals []string // that are looked for in texts
	strips   string   // characters that are stripped from texts
}

// builtins are the functions of the library and of chat templates in general. A
// template that gives one of these names to something else is left alone.
var builtins = []string{"namespace", raiseName, "range", "joiner", "dict", clockName, "cycler", "caller", "loop"}

// rewrite puts guards into a template. ok is false when it holds anything that
// is not understood in full.
func rewrite(source string) (r rewritten, ok bool) {
	if strings.Contains(source, atomOpen) || strings.Contains(source, guardPrefix) {
		return rewritten{}, false
	}
	w := &rewriter{}
	tags, ok := scan(source)
	if !ok || !w.names(tags) {
		return rewritten{}, false
	}
	raw := false
	for _, t := range tags {
		switch {
		case t.kind == tagText || t.kind == tagComment:
			w.put(t.all())
		case t.kind == tagPrint && !raw:
			w.put(t.open)
			if e, ok := parse(t.body); ok {
				w.put(" ")
				w.print(e)
				w.put(" ")
			} else {
				w.fail()
			}
			w.put(t.close)
		case t.kind == tagBlock:
			word := keyword(t.body)
			raw = raw && word != "endraw" || word == "raw"
			if raw || word == "raw" || word == "endraw" {
				w.put(t.all())
				continue
			}
			w.put(t.open, " ")
			w.block(word, strings.TrimSpace(t.body)[len(word):])
			w.put(" ", t.close)
		default:
			w.put(t.all())
		}
	}
	return rewritten{w.out.String(), w.literals, w.strips}, !w.failed
}

// print writes an expression whose value is printed.
func (w *rewriter) print(e *expr) {
	if w.isText(e) {
		w.expr(e)
	} else {
		w.guard(guardPrint, e)
	}
}

// names collects the names of macros, and refuses templates that give a name two
// meanings.
func (w *rewriter) names(tags []tag) bool {
	var given []string
	for _, t := range tags {
		if t.kind != tagBlock {
			continue
		}
		rest := strings.TrimSpace(t.body)
		word := keyword(rest)
		rest = strings.TrimSpace(rest[len(word):])
		switch word {
		case "macro":
			name, _, _ := strings.Cut(rest, "(")
			w.macros = append(w.macros, strings.TrimSpace(name))
		case "set":
			name, _, _ := strings.Cut(rest, "=")
			given = append(given, strings.TrimSpace(name))
		case "for":
			name, _, _ := strings.Cut(rest, " in ")
			for v := range strings.SplitSeq(name, ",") {
				given = append(given, strings.TrimSpace(v))
			}
		}
	}
	for _, name := range w.macros {
		if slices.Contains(builtins, name) || slices.Contains(given, name) {
			return false
		}
	}
	for _, name := range given {
		if slices.Contains(builtins, name) {
			return false
		}
	}
	return true
}

// block writes what is in a block tag, behind its first word.
func (w *rewriter) block(word, rest string) {
	w.put(word, " ")
	switch word {
	case "if", "elif":
		w.whole(rest)
	case "for":
		w.loop(rest)
	case "set":
		target, value, ok := strings.Cut(rest, "=")
		w.put(target)
		if ok {
			w.put("= ")
			w.whole(value)
		}
	case "macro":
		w.macro(rest)
	case "else", "endif", "endfor", "endset", "endmacro", "break", "continue", "generation", "endgeneration":
		if strings.TrimSpace(rest) != "" {
			w.fail()
		}
	default:
		w.fail()
	}
}

func (w *rewriter) whole(s string) {
	if e, ok := parse(s); ok {
		w.expr(e)
	} else {
		w.fail()
	}
}

func (w *rewriter) loop(s string) {
	names, rest, ok := strings.Cut(s, " in ")
	if !ok || strings.ContainsAny(names, `'"([{`) {
		w.fail()
		return
	}
	tokens, ok := lex(rest)
	if !ok {
		w.fail()
		return
	}
	p := parser{tokens: tokens}
	over := p.binary(0)
	var only *expr
	if p.accept("if") {
		only = p.binary(0)
	}
	if p.failed || p.tokens[0].kind != tokEnd {
		w.fail()
		return
	}
	w.put(names, " in ")
	w.guard(guardText, over)
	if only != nil {
		w.put(" if ")
		w.expr(only)
	}
}

// macro writes the head of a macro. The library cuts it at commas, so defaults
// must be plain.
func (w *rewriter) macro(s string) {
	_, params, ok := strings.Cut(s, "(")
	params, closed := strings.CutSuffix(strings.TrimSpace(params), ")")
	if !ok || !closed {
		w.fail()
		return
	}
	for param := range strings.SplitSeq(params, ",") {
		if _, value, ok := strings.Cut(param, "="); ok {
			e, ok := parse(value)
			if !ok || e.op != opString && e.op != opConst && (e.op != opList || len(e.args) > 0) {
				w.fail()
			}
		}
	}
	w.put(s)
}
