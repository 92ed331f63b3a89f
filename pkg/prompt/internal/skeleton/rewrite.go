package skeleton

import (
	"slices"
	"strings"
)

// The guards are functions of the rewritten template. Each returns its first
// argument, or fails when an atom in it would be looked into.
const (
	guardNone   = "__atom_none"  // no atom anywhere in it
	guardText   = "__atom_text"  // it is no text with an atom
	guardPrint  = "__atom_print" // it is a text, or has no atom
	guardSeek   = "__atom_seek"  // no literal can be in it that is not seen with atoms, or it has no atom; a dict passes
	guardLeft   = "__atom_left"  // left side of a +, passes
	guardRight  = "__atom_right" // right side of a +: no text is joined to what has an atom and is no text
	guardKey    = "__atom_key"   // second argument: no atom under that key of a list's dicts
	guardJoin   = "__atom_join"  // it is a list of texts, or has no atom
	guardPrefix = "__atom_"
	clockName   = "strftime_now" // asked again when a skeleton is used
	raiseName   = "raise_exception"
)

// rewriter writes expressions anew, with guards where the value of a text would
// matter. Without a guard it leaves what works on atoms as on texts.
type rewriter struct {
	out    strings.Builder
	macros []string // functions of the template itself
	// literals are the texts that are looked for in contents, strips the
	// characters that are stripped from them.
	literals []string
	strips   string
	failed   bool
}

func (w *rewriter) fail() { w.failed = true }

func (w *rewriter) put(parts ...string) {
	for _, s := range parts {
		w.out.WriteString(s)
	}
}

// guard writes e as the argument of a guard, unless e is a literal.
func (w *rewriter) guard(name string, e *expr) {
	if e.op == opString || e.op == opConst {
		w.expr(e)
		return
	}
	w.put(name, "(")
	w.expr(e)
	w.put(")")
}

func (w *rewriter) expr(e *expr) {
	switch e.op {
	case opString, opConst, opName:
		w.put(e.text)
	case opUnary:
		w.unary(e)
	case opBinary:
		w.put("(")
		w.binary(e)
		w.put(")")
	case opCond:
		w.put("(")
		w.expr(e.args[0])
		w.put(" if ")
		w.expr(e.args[1])
		if len(e.args) > 2 {
			w.put(" else ")
			w.expr(e.args[2])
		}
		w.put(")")
	case opAttr:
		w.attr(e)
	case opItem:
		w.guard(guardText, e.args[0])
		w.put("[")
		w.guard(guardNone, e.args[1])
		w.put("]")
	case opSlice:
		w.slice(e)
	case opCall:
		w.call(e)
	case opMethod:
		w.method(e)
	case opFilter:
		w.filter(e)
	case opTest:
		w.test(e)
	case opList:
		w.put("[")
		for _, a := range e.args {
			w.expr(a)
			w.put(",")
		}
		w.put("]")
	case opDict:
		w.put("{")
		for i := 0; i < len(e.args); i += 2 {
			w.guard(guardNone, e.args[i])
			w.put(":")
			w.expr(e.args[i+1])
			w.put(",")
		}
		w.put("}")
	}
}

func (w *rewriter) unary(e *expr) {
	w.put("(", e.text, " ")
	if e.text == "not" { // asks only whether a text is empty, which an atom never is
		w.expr(e.args[0])
	} else {
		w.guard(guardNone, e.args[0])
	}
	w.put(")")
}

func (w *rewriter) binary(e *expr) {
	left, right := e.args[0], e.args[1]
	guards := [2]string{guardNone, guardNone}
	switch e.text {
	case "and", "or":
		guards = [2]string{}
	case "~":
		guards = [2]string{guardPrint, guardPrint}
	case "+":
		if w.isText(left) || w.isText(right) {
			guards = [2]string{guardPrint, guardPrint}
			break
		}
		w.put(guardLeft, "(")
		w.expr(left)
		w.put(") + ", guardRight, "(")
		w.expr(right)
		w.put(")")
		return
	case "in", "not in":
		if left.op == opString && left.lit != "" {
			w.look(left.lit)
			guards = [2]string{"", guardSeek}
		}
	case "==", "!=", ">", "<":
		if emptiness(left, right, e.text) {
			guards = [2]string{}
		}
	}
	for i, a := range e.args {
		if i == 1 {
			w.put(" ", e.text, " ")
		}
		if guards[i] == "" || guards[i] == guardPrint && w.isText(a) {
			w.expr(a)
		} else {
			w.guard(guards[i], a)
		}
	}
}

// emptiness reports whether a comparison cannot tell an atom from another text
// that is not empty: with none, a number, the empty text; or of a length with 0,
// which then needs no guard.
func emptiness(left, right *expr, op string) bool {
	if op == "==" || op == "!=" {
		if harmless(left) || harmless(right) {
			return true
		}
	}
	for _, pair := range [2][2]*expr{{left, right}, {right, left}} {
		size, zero := pair[0], pair[1]
		if size.op == opFilter && (size.text == "length" || size.text == "count") && len(size.args) == 1 && zero.op == opConst && zero.text == "0" {
			size.free = true
			return true
		}
	}
	return false
}

// isText reports whether the value of e can be nothing but a text.
func (w *rewriter) isText(e *expr) bool {
	switch e.op {
	case opString:
		return true
	case opBinary:
		return (e.text == "+" || e.text == "~") && (w.isText(e.args[0]) || w.isText(e.args[1]))
	case opMethod:
		return e.text == "strip" || e.text == "lstrip" || e.text == "rstrip"
	case opFilter:
		return e.text == "trim" || e.text == "string"
	case opCall:
		return e.args[0].op == opName && slices.Contains(w.macros, e.args[0].text)
	default:
		return false
	}
}

func harmless(e *expr) bool { return e.op == opConst || e.op == opString && e.lit == "" }

// look notes that a literal is looked for in texts.
func (w *rewriter) look(literal string) {
	if !slices.Contains(w.literals, literal) {
		w.literals = append(w.literals, literal)
	}
}

// methods are those of texts, lists and dicts in the library.
var methods = strings.Fields(`strip lstrip rstrip split startswith endswith replace upper lower title capitalize
	count find format append pop insert items keys values get update`)

func (w *rewriter) attr(e *expr) {
	if slices.Contains(methods, e.text) {
		w.guard(guardText, e.args[0])
	} else {
		w.expr(e.args[0])
	}
	w.put(".", e.text)
}

func (w *rewriter) slice(e *expr) {
	w.guard(guardText, e.args[0])
	w.put("[")
	for i, a := range e.args[1:] {
		if i > 0 && (i == 1 || a != nil) {
			w.put(":")
		}
		if a != nil {
			w.guard(guardNone, a)
		}
	}
	w.put("]")
}

// pass writes arguments; with a guard when it is not empty.
func (w *rewriter) pass(e *expr, args []*expr, guard string) {
	w.put("(")
	named := len(args) - len(e.keys)
	for i, a := range args {
		if i > 0 {
			w.put(", ")
		}
		if i >= named {
			w.put(e.keys[i-named], "=")
		}
		if guard == "" {
			w.expr(a)
		} else {
			w.guard(guard, a)
		}
	}
	w.put(")")
}

func (w *rewriter) call(e *expr) {
	f := e.args[0]
	if f.op != opName {
		w.fail()
		return
	}
	w.put(f.text)
	if f.text == "namespace" || slices.Contains(w.macros, f.text) {
		w.pass(e, e.args[1:], "")
	} else {
		w.pass(e, e.args[1:], guardNone)
	}
}

// literalArg returns the only argument when it is a literal text.
func literalArg(e *expr) (string, bool) {
	if len(e.args) != 2 || len(e.keys) > 0 || e.args[1].op != opString {
		return "", false
	}
	return e.args[1].lit, true
}

func (w *rewriter) method(e *expr) {
	lit, isLit := literalArg(e)
	receiver, args := guardText, guardNone
	switch e.text {
	case "strip", "lstrip", "rstrip":
		if isLit || len(e.args) == 1 {
			w.strips += lit
			receiver = ""
		}
	case "startswith", "endswith", "split":
		if isLit && lit != "" {
			w.look(lit)
			receiver = guardSeek
		}
	case "append", "pop", "insert", "update":
		w.fail() // would change what the request gave
	case "get":
		if len(e.args) == 3 && len(e.keys) == 0 {
			w.guard(guardText, e.args[0])
			w.put(".get(")
			w.guard(guardNone, e.args[1])
			w.put(", ")
			w.expr(e.args[2])
			w.put(")")
			return
		}
	}
	if receiver == "" {
		w.expr(e.args[0])
	} else {
		w.guard(receiver, e.args[0])
	}
	w.put(".", e.text)
	w.pass(e, e.args[1:], args)
}

func (w *rewriter) filter(e *expr) {
	lit, isLit := literalArg(e)
	input, args := guardNone, guardNone
	switch e.text {
	case "trim":
		if isLit || len(e.args) == 1 {
			w.strips += lit
			input = guardPrint
		}
	case "string":
		input = guardPrint
	case "length", "count", "first", "last", "list", "items", "reverse":
		input = guardText
	case "default", "d":
		input, args = "", ""
	case "join":
		if isLit {
			input = guardJoin
		}
	case "selectattr", "rejectattr":
		if e.keys == nil && len(e.args) > 1 && e.args[1].op == opString {
			w.put(guardKey, "(")
			w.expr(e.args[0])
			w.put(", ", e.args[1].text, ")|", e.text)
			w.pass(e, e.args[1:], args)
			return
		}
	}
	if e.free {
		input = ""
	}
	if input == "" {
		w.put("(")
		w.expr(e.args[0])
		w.put(")")
	} else {
		w.guard(input, e.args[0])
	}
	w.put("|", e.text)
	if len(e.args) > 1 {
		w.pass(e, e.args[1:], args)
	}
}

// typeTests ask what a value is, never what is in a text.
var typeTests = strings.Fields("defined undefined none boolean integer float number string mapping iterable sequence callable true false odd even")

func (w *rewriter) test(e *expr) {
	w.put("(")
	if len(e.args) == 1 && slices.Contains(typeTests, e.text) {
		w.expr(e.args[0])
	} else {
		w.guard(guardNone, e.args[0])
	}
	w.put(" is ")
	if e.not {
		w.put("not ")
	}
	w.put(e.text)
	if len(e.args) > 1 {
		w.pass(e, e.args[1:], guardNone)
	}
	w.put(")")
}
