package jinja

import "strconv"

// expression parses an expression with conditions: x if y else z.
func (p *parser) expression() (expr, *Error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	start := p.pos
	x, err := p.or()
	if err != nil || !p.isName("if") {
		return x, err
	}
	// What stands before the if may not run: read it again, knowing so.
	end := p.pos
	p.pos, p.maybe = start, p.maybe+1
	defer func() { p.maybe-- }()
	if x, err = p.or(); err != nil || p.pos != end {
		return nil, err
	}
	for p.skipName("if") {
		test, err := p.or()
		if err != nil {
			return nil, err
		}
		c := &condExpr{test: test, yes: x}
		if p.skipName("else") {
			if c.no, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = c
		if err := p.node(); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// tuple parses an expression, or several with commas between them.
func (p *parser) tuple(conditions bool) (expr, *Error) {
	one := p.expression
	if !conditions {
		one = p.or
	}
	first, err := one()
	if err != nil || !p.isOp(",") {
		return first, err
	}
	list := &listExpr{items: []expr{first}, tuple: true}
	for p.skipOp(",") {
		if p.tupleEnd() {
			break
		}
		x, err := one()
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, x)
	}
	return list, nil
}

func (p *parser) tupleEnd() bool {
	t := p.peek()
	return t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") || p.isName("recursive") || p.isName("if")
}

func (p *parser) or() (expr, *Error) {
	left, err := p.and()
	for err == nil && p.skipName("or") {
		var right expr
		if right, err = p.and(); err == nil {
			left, err = &orExpr{left, right}, p.node()
		}
	}
	return left, err
}

func (p *parser) and() (expr, *Error) {
	left, err := p.not()
	for err == nil && p.skipName("and") {
		var right expr
		if right, err = p.not(); err == nil {
			left, err = &andExpr{left, right}, p.node()
		}
	}
	return left, err
}

func (p *parser) not() (expr, *Error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.not()
	return &notExpr{x}, err
}

// comparison takes an operator of comparison, empty when there is none.
func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokOp:
		switch t.text {
		case "==", "!=", "<", "<=", ">", ">=":
			p.pos++
			return t.text
		}
	case p.skipName("in"):
		return "in"
	case p.isName("not"):
		if after := p.tokens[p.pos+1]; after.kind == tokName && after.text == "in" {
			p.pos += 2
			return "not in"
		}
	}
	return ""
}

func (p *parser) compare() (expr, *Error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var c *compareExpr
	for {
		op := p.comparison()
		if op == "" {
			break
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &compareExpr{first: first}
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, x)
	}
	if c == nil {
		return first, nil
	}
	return c, p.node()
}

// chain parses operands with operators between them, from left to right.
func (p *parser) chain(operand func() (expr, *Error), ops ...string) (expr, *Error) {
	left, err := operand()
	for err == nil {
		op := ""
		for _, o := range ops {
			if p.skipOp(o) {
				op = o
			}
		}
		if op == "" {
			return left, nil
		}
		var right expr
		if right, err = operand(); err == nil {
			left, err = binary(op, left, right), p.node()
		}
	}
	return nil, err
}

// binary returns the node of an operator. A sum of sums becomes one.
func binary(op string, left, right expr) expr {
	if op != "+" {
		return &binaryExpr{op, left, right}
	}
	if s, ok := left.(*sumExpr); ok {
		s.parts = append(s.parts, right)
		return s
	}
	return &sumExpr{[]expr{left, right}}
}

func (p *parser) sum() (expr, *Error)     { return p.chain(p.concat, "+", "-") }
func (p *parser) product() (expr, *Error) { return p.chain(p.power, "*", "/", "//", "%") }
func (p *parser) power() (expr, *Error) {
	return p.chain(func() (expr, *Error) { return p.unary(true) }, "**")
}

func (p *parser) concat() (expr, *Error) {
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	c := &concatExpr{parts: []expr{first}}
	for p.skipOp("~") {
		x, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, p.node()
}

func (p *parser) unary(filters bool) (x expr, err *Error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	switch {
	case p.skipOp("-"):
		x, err = p.unary(false)
		x = &unaryExpr{'-', x}
	case p.skipOp("+"):
		x, err = p.unary(false)
		x = &unaryExpr{'+', x}
	default:
		x, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filters {
		return x, err
	}
	return p.filters(x)
}

func (p *parser) primary() (expr, *Error) {
	if err := p.node(); err != nil {
		return nil, err
	}
	t := p.next()
	switch t.kind {
	case tokName:
		return p.name(t)
	case tokString:
		text := t.text
		for p.peek().kind == tokString {
			text += p.next().text
		}
		return &constExpr{String(text)}, nil
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
// makes the template useless; one that nobody has only does where it is reached.
func (p *parser) unknown(x expr, what, name string, foreign bool) (expr, *Error) {
	if foreign || p.maybe == 0 {
		return nil, p.fail("unknown " + what + " " + name)
	}
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
