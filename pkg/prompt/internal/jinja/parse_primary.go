package jinja

import (
	"strconv"
	"strings"
)

func (p *parser) primary() (expr, *Error) {
	if err := p.node(); err != nil {
		return nil, err
	}
	t := p.next()
	switch t.kind {
	case tokName:
		return p.name(t)
	case tokString:
		texts := []string{t.text}
		for p.peek().kind == tokString {
			texts = append(texts, p.next().text)
		}
		return &constExpr{String(strings.Join(texts, ""))}, nil
	case tokInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, unsupported(t.line, "a number is too large")
		}
		return &constExpr{Int(n)}, nil
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, unsupported(t.line, "a number is too large")
		}
		return &constExpr{Float(f)}, nil
	case tokOp:
		switch t.text {
		case "(":
			return p.parens()
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	default:
	}
	return nil, unsupported(t.line, "an expression is missing")
}

func (p *parser) name(t token) (expr, *Error) {
	switch t.text {
	case "true", "True":
		return &constExpr{Bool(true)}, nil
	case "false", "False":
		return &constExpr{Bool(false)}, nil
	case "none", "None":
		return &constExpr{None}, nil
	case "varargs", "kwargs":
		if p.macro != nil {
			return nil, unsupported(t.line, t.text+" in a macro")
		}
	case "lipsum", "self", "super":
		return nil, unsupported(t.line, "unknown function "+t.text)
	case "loop":
		p.loopUse++
	case "caller":
		if p.macro != nil {
			p.macro.callerID = p.variable(t.text)
		}
	}
	return &nameExpr{p.variable(t.text)}, nil
}

func (p *parser) parens() (expr, *Error) {
	if p.skipOp(")") {
		return &listExpr{tuple: true}, nil
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return x, p.expectOp(")")
}

func (p *parser) list() (expr, *Error) {
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp("]") {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, x)
	}
	return l, p.expectOp("]")
}

func (p *parser) dict() (expr, *Error) {
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err = p.expectOp(":"); err != nil {
			return nil, err
		}
		val, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, key), append(d.vals, val)
	}
	return d, p.expectOp("}")
}

// postfix parses attributes, subscripts and calls behind x.
func (p *parser) postfix(x expr) (expr, *Error) {
	for {
		if err := p.node(); err != nil {
			return nil, err
		}
		var err *Error
		switch {
		case p.skipOp("."):
			x, err = p.attribute(x)
		case p.skipOp("["):
			x, err = p.subscript(x)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(x expr) (expr, *Error) {
	t := p.next()
	switch t.kind {
	case tokName:
		return &attrExpr{x, t.text, membersOf(t.text)}, nil
	case tokInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err == nil {
			return &itemExpr{x, &constExpr{Int(n)}}, nil
		}
	default:
	}
	return nil, unsupported(t.line, "expected a name or a number behind a point")
}

func (p *parser) subscript(x expr) (expr, *Error) {
	parts := [3]expr{}
	n, colons := 0, 0
	for !p.isOp("]") {
		switch {
		case p.skipOp(":"):
			if colons++; colons > 2 {
				return nil, p.fail("too many colons in a subscript")
			}
			n = colons
		case parts[n] != nil:
			return nil, p.fail("an unknown subscript")
		default:
			part, err := p.expression()
			if err != nil {
				return nil, err
			}
			parts[n] = part
		}
	}
	p.pos++
	if colons > 0 {
		return &sliceExpr{x, parts[0], parts[1], parts[2]}, nil
	}
	if parts[0] == nil {
		return nil, p.fail("an empty subscript")
	}
	return &itemExpr{x, parts[0]}, nil
}

func (p *parser) call(x expr) (expr, *Error) {
	args, err := p.arguments()
	return &callExpr{x, args}, err
}

// arguments parses the arguments of a call, with their brackets.
func (p *parser) arguments() (callArgs, *Error) {
	var a callArgs
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for n := 0; !p.isOp(")"); n++ {
		if n > 0 {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.isOp(")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			return a, p.fail("arguments from a list or a dict")
		}
		name := ""
		if t, after := p.peek(), p.tokens[p.pos+1]; t.kind == tokName && after.kind == tokOp && after.text == "=" {
			name = t.text
			p.pos += 2
		} else if len(a.kw) > 0 {
			return a, p.fail("an argument behind a keyword")
		}
		x, err := p.expression()
		if err != nil {
			return a, err
		}
		if name == "" {
			a.pos = append(a.pos, x)
		} else {
			a.names, a.kw = append(a.names, name), append(a.kw, x)
		}
	}
	return a, p.expectOp(")")
}

// filters parses filters, tests and calls behind x. A nil x stands for the text
// of a block.
func (p *parser) filters(x expr) (expr, *Error) {
	for {
		if err := p.node(); err != nil {
			return nil, err
		}
		var err *Error
		switch {
		case p.skipOp("|"):
			x, err = p.filter(x)
		case x != nil && p.skipName("is"):
			x, err = p.test(x)
		case x != nil && p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// dotted parses the name of a filter or a test.
func (p *parser) dotted() (string, *Error) {
	name, err := p.expectName()
	for err == nil && p.skipOp(".") {
		var part string
		part, err = p.expectName()
		name += "." + part
	}
	return name, err
}

// filter parses a filter behind the bar.
func (p *parser) filter(x expr) (expr, *Error) {
	name, err := p.dotted()
	if err != nil {
		return nil, err
	}
	var args callArgs
	if p.isOp("(") {
		if args, err = p.arguments(); err != nil {
			return nil, err
		}
	}
	if f, ok := filters[name]; ok {
		return &filterExpr{x, f, args}, nil
	}
	return p.unknown(x, "filter", name, foreignFilters[name])
}

// unknown is a filter or a test that is not known here. One that jinja2 has
// makes the template useless. One that nobody has does too, but in an if and in a
// condition only where it is reached.
func (p *parser) unknown(x expr, what, name string, foreign bool) (expr, *Error) {
	if foreign || !p.soft {
		return nil, p.fail("unknown " + what + " " + name)
	}
	p.missing++
	return &failExpr{x, "unknown " + what + " " + name}, nil
}

// test parses a test behind "is".
func (p *parser) test(x expr) (expr, *Error) {
	negated := p.skipName("not")
	name, err := p.dotted()
	if err != nil {
		return nil, err
	}
	var args callArgs
	switch t := p.peek(); {
	case p.isOp("("):
		args, err = p.arguments()
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		return nil, p.fail("a test behind a test")
	case t.kind == tokName || t.kind == tokString || t.kind == tokInt || t.kind == tokFloat || p.isOp("[") || p.isOp("{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		args.pos = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	f, ok := tests[name]
	if !ok {
		return p.unknown(x, "test", name, false)
	}
	x = &testExpr{x, f, args}
	if negated {
		x = &notExpr{x}
	}
	return x, nil
}
