package skeleton

import "strings"

// expr is a node of an expression.
type expr struct {
	op   op
	text string // name, operator, attribute, method, filter, test, or literal as written
	lit  string // value of a string literal
	not  bool   // a negated test
	free bool   // a length that is only compared with 0
	args []*expr
	keys []string // names of the last len(keys) args
}

type op uint8

const (
	opString op = iota
	opConst     // number, none, true, false
	opName
	opUnary  // text args[0]
	opBinary // args[0] text args[1]
	opCond   // args[0] if args[1] else args[2], which may be missing
	opAttr   // args[0].text
	opItem   // args[0][args[1]]
	opSlice  // args[0][args[1]:args[2]:args[3]], each may be nil
	opCall   // args[0](args[1:])
	opMethod // args[0].text(args[1:])
	opFilter // args[0]|text(args[1:])
	opTest   // args[0] is text(args[1:])
	opList   // [args]
	opDict   // {args in pairs}
)

// maxDepth bounds the nesting of an expression.
const maxDepth = 100

// parser reads an expression with the grammar of the library. After the first
// thing that it does not know, failed is set and nothing else counts.
type parser struct {
	tokens []token
	depth  int
	failed bool
}

func parse(s string) (*expr, bool) {
	tokens, ok := lex(s)
	if !ok {
		return nil, false
	}
	p := parser{tokens: tokens}
	e := p.expression()
	return e, !p.failed && p.tokens[0].kind == tokEnd
}

func (p *parser) fail() *expr {
	p.failed = true
	p.tokens = []token{{}}
	return &expr{op: opConst, text: "none"}
}

func (p *parser) advance() token {
	t := p.tokens[0]
	if t.kind != tokEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

// is reports whether the next token is written so, as a name or an operator.
func (p *parser) is(text string) bool {
	t := p.tokens[0]
	return t.text == text && (t.kind == tokName || t.kind == tokOp)
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail()
	}
}

func (p *parser) expression() *expr {
	if p.depth++; p.depth > maxDepth {
		return p.fail()
	}
	defer func() { p.depth-- }()
	e := p.binary(0)
	if !p.accept("if") {
		return e
	}
	e = &expr{op: opCond, args: []*expr{e, p.binary(0)}}
	if p.accept("else") {
		e.args = append(e.args, p.expression())
	}
	return e
}

// levels are the binary operators from the loosest to the tightest. "not" stands
// between the second and the third.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<", ">", "<=", ">=", "in", "not", "is"}, {"~"}, {"+", "-"}, {"*", "/", "%", "//"}}

const comparisons = 2

func (p *parser) binary(level int) *expr {
	if level == len(levels) {
		return p.power()
	}
	if level == comparisons && p.is("not") {
		if p.depth++; p.depth > maxDepth {
			return p.fail()
		}
		defer func() { p.depth-- }()
		p.advance()
		return &expr{op: opUnary, text: "not", args: []*expr{p.binary(level)}}
	}
	left := p.binary(level + 1)
	for {
		found := ""
		for _, o := range levels[level] {
			if p.is(o) {
				found = o
			}
		}
		switch found {
		case "":
			return left
		case "is":
			p.advance()
			left = p.test(left)
			continue
		case "not":
			if p.tokens[1].kind != tokName || p.tokens[1].text != "in" {
				return left
			}
			p.advance()
			found = "not in"
		}
		p.advance()
		left = &expr{op: opBinary, text: found, args: []*expr{left, p.binary(level + 1)}}
	}
}

func (p *parser) test(left *expr) *expr {
	e := &expr{op: opTest, not: p.accept("not"), args: []*expr{left}}
	name := p.advance()
	if name.kind != tokName {
		return p.fail()
	}
	e.text = name.text
	if p.is("(") {
		p.arguments(e)
	}
	return e
}

func (p *parser) power() *expr {
	base := p.unary()
	if p.accept("**") {
		return &expr{op: opBinary, text: "**", args: []*expr{base, p.unary()}}
	}
	return base
}

func (p *parser) unary() *expr {
	if p.is("-") || p.is("+") {
		if p.depth++; p.depth > maxDepth {
			return p.fail()
		}
		defer func() { p.depth-- }()
		return &expr{op: opUnary, text: p.advance().text, args: []*expr{p.unary()}}
	}
	return p.postfix()
}

func (p *parser) postfix() *expr {
	e := p.atom()
	for !p.failed {
		switch {
		case p.accept("."):
			name := p.advance()
			if name.kind != tokName && (name.kind != tokNumber || strings.Contains(name.text, ".")) {
				return p.fail()
			}
			if e = (&expr{op: opAttr, text: name.text, args: []*expr{e}}); p.is("(") {
				e.op = opMethod
				p.arguments(e)
			}
		case p.is("("):
			e = &expr{op: opCall, args: []*expr{e}}
			p.arguments(e)
		case p.accept("["):
			e = p.subscript(e)
		case p.accept("|"):
			name := p.advance()
			if name.kind != tokName {
				return p.fail()
			}
			if e = (&expr{op: opFilter, text: name.text, args: []*expr{e}}); p.is("(") {
				p.arguments(e)
			}
		default:
			return e
		}
	}
	return e
}

func (p *parser) subscript(of *expr) *expr {
	var parts [3]*expr
	n := 0
	slice := false
	for !p.failed && !p.accept("]") {
		if p.accept(":") {
			slice = true
			if n++; n == len(parts) {
				return p.fail()
			}
			continue
		}
		if parts[n] != nil {
			return p.fail()
		}
		parts[n] = p.expression()
	}
	if slice {
		return &expr{op: opSlice, args: []*expr{of, parts[0], parts[1], parts[2]}}
	}
	if parts[0] == nil {
		return p.fail()
	}
	return &expr{op: opItem, args: []*expr{of, parts[0]}}
}

// arguments reads the arguments of a call, at the opening bracket.
func (p *parser) arguments(e *expr) {
	p.expect("(")
	for !p.failed && !p.accept(")") {
		if p.tokens[0].kind == tokName && p.tokens[1].kind == tokOp && p.tokens[1].text == "=" {
			e.keys = append(e.keys, p.advance().text)
			p.advance()
		} else if len(e.keys) > 0 {
			p.fail()
		}
		e.args = append(e.args, p.expression())
		if !p.accept(",") && !p.is(")") {
			p.fail()
		}
	}
}

func (p *parser) atom() *expr {
	t := p.advance()
	switch t.kind {
	case tokString:
		return &expr{op: opString, text: t.text, lit: t.value()}
	case tokNumber:
		return &expr{op: opConst, text: t.text}
	case tokName:
		switch t.text {
		case "None", "none", "null", "True", "true", "False", "false":
			return &expr{op: opConst, text: t.text}
		case "and", "or", "not", "in", "is", "if", "else":
			return p.fail()
		}
		return &expr{op: opName, text: t.text}
	}
	switch {
	case t.kind != tokOp:
	case t.text == "(":
		return p.tuple()
	case t.text == "[":
		return p.items(&expr{op: opList}, "]", false)
	case t.text == "{":
		return p.items(&expr{op: opDict}, "}", true)
	}
	return p.fail()
}

// tuple reads what is in round brackets: an expression, or a tuple, which the
// library takes for a list.
func (p *parser) tuple() *expr {
	if p.accept(")") {
		return &expr{op: opList}
	}
	e := p.expression()
	if p.accept(")") {
		return e
	}
	p.expect(",")
	return p.items(&expr{op: opList, args: []*expr{e}}, ")", false)
}

func (p *parser) items(e *expr, closing string, pairs bool) *expr {
	for !p.failed && !p.accept(closing) {
		e.args = append(e.args, p.expression())
		if pairs {
			p.expect(":")
			e.args = append(e.args, p.expression())
		}
		if !p.accept(",") && !p.is(closing) {
			p.fail()
		}
	}
	return e
}
