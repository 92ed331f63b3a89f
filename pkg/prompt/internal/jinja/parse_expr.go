package jinja

// expression parses an expression with conditions: x if y else z.
func (p *parser) expression() (expr, *Error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	start, missing, soft := p.pos, p.missing, p.soft
	p.soft = true // what stands before an if, and all of the condition
	defer func() { p.soft = soft }()
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.isName("if") {
		if p.missing == missing || soft {
			return x, nil
		}
		// It is no condition: read it again, knowing so.
		p.pos, p.soft = start, false
		return p.or()
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
