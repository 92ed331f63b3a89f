package jinja

func (p *parser) ifBlock(line int) (stmt, *Error) {
	s := &ifStmt{line: line}
	soft := p.soft
	p.soft = true // in jinja2 the tests, too
	defer func() { p.soft = soft }()
	for end := "elif"; ; {
		if end == "elif" {
			test, err := p.whole(tokBlockEnd)
			if err != nil {
				return nil, err
			}
			s.tests = append(s.tests, test)
		} else if err := p.blockEnd(); err != nil || end == "endif" {
			return s, err
		}
		ends := []string{"elif", "else", "endif"}
		if end == "else" {
			ends = ends[2:]
		}
		body, next, err := p.body(ends...)
		if err != nil {
			return nil, err
		}
		s.bodies = append(s.bodies, body)
		end = next
	}
}

func (p *parser) forBlock(line int) (stmt, *Error) {
	s := &forStmt{line: line}
	var err *Error
	p.nodes = 0
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail("expected in")
	}
	if s.iter, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		restore := p.harden()
		s.test, err = p.expression()
		if restore(); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.fail("a recursive loop")
	}
	if err = p.blockEnd(); err != nil {
		return nil, err
	}
	p.loops++
	uses, attrs := p.loopUse, p.attrs
	body, end, err := p.hardBody("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	// jinja2 runs the test of an element when it is next. What "loop" knows of
	// elements to come then depends on how it is asked.
	s.body, s.lazy = body, p.loopUse == uses
	if s.test != nil && !s.lazy && p.attrs > attrs {
		return nil, unsupported(line, "a loop with a test that sets an attribute and uses loop")
	}
	if end == "else" {
		if err = p.blockEnd(); err != nil {
			return nil, err
		}
		if s.none, _, err = p.hardBody("endfor"); err != nil {
			return nil, err
		}
	}
	return s, p.blockEnd()
}

// target parses what is assigned to.
func (p *parser) target(attrs bool) (target, *Error) {
	if err := p.enter(); err != nil {
		return target{}, err
	}
	defer p.leave()
	first, err := p.oneTarget(attrs)
	if err != nil || !p.isOp(",") {
		return first, err
	}
	list := target{parts: []target{first}, tuple: true}
	for p.skipOp(",") {
		if p.isName("in") || p.isOp("=") || p.isOp(")") {
			break
		}
		one, err := p.oneTarget(attrs)
		if err != nil {
			return target{}, err
		}
		list.parts = append(list.parts, one)
	}
	return list, nil
}

func (p *parser) oneTarget(attrs bool) (target, *Error) {
	if p.skipOp("(") {
		t, err := p.target(attrs)
		if err != nil {
			return t, err
		}
		return t, p.expectOp(")")
	}
	name, err := p.expectName()
	if err != nil {
		return target{}, err
	}
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return target{}, p.fail("an assignment to " + name)
	}
	t := target{id: p.variable(name)}
	if attrs && p.skipOp(".") {
		t.attr, err = p.expectName()
		p.attrs++
	}
	return t, err
}

func (p *parser) set(line int) (stmt, *Error) {
	p.nodes = 0
	t, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		x, err := p.whole(tokBlockEnd)
		return &setStmt{t, x, line}, err
	}
	s := &setBlock{target: t, line: line}
	if p.isOp("|") {
		restore := p.harden()
		s.value, err = p.filters(nil)
		if restore(); err != nil {
			return nil, err
		}
	}
	if err = p.blockEnd(); err != nil {
		return nil, err
	}
	if s.body, err = p.closed("endset"); err != nil {
		return nil, err
	}
	return s, p.blockEnd()
}

func (p *parser) macroBlock() (stmt, *Error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	s := &macroStmt{name: name, id: p.variable(name), callerID: -1}
	if err = p.signature(s); err != nil {
		return nil, err
	}
	return s, p.macroBody(s, "endmacro")
}

// signature parses the parameters of a macro.
func (p *parser) signature(s *macroStmt) *Error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	defer p.harden()()
	for !p.isOp(")") {
		if len(s.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		one := param{name: name, id: p.variable(name)}
		switch {
		case p.skipOp("="):
			p.nodes = 0
			if one.def, err = p.expression(); err != nil {
				return err
			}
		case len(s.params) > 0 && s.params[len(s.params)-1].def != nil:
			return p.fail("a parameter without a default behind one with")
		}
		s.params = append(s.params, one)
	}
	return p.expectOp(")")
}

// macroBody parses the rest of the tag of a macro, its block and the end tag.
func (p *parser) macroBody(s *macroStmt, end string) *Error {
	if err := p.blockEnd(); err != nil {
		return err
	}
	macro, loops := p.macro, p.loops
	p.macro, p.loops = s, 0
	defer func() { p.macro, p.loops = macro, loops }()
	body, _, err := p.hardBody(end)
	if err != nil {
		return err
	}
	s.body = body
	return p.blockEnd()
}

func (p *parser) callBlock(line int) (stmt, *Error) {
	s := &callStmt{line: line, caller: &macroStmt{name: "caller", callerID: -1}}
	if p.isOp("(") {
		if err := p.signature(s.caller); err != nil {
			return nil, err
		}
	}
	p.nodes = 0
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail("expected a call")
	}
	s.call = call
	return s, p.macroBody(s.caller, "endcall")
}

func (p *parser) filterBlock(line int) (stmt, *Error) {
	s := &filterBlock{line: line}
	p.nodes = 0
	defer p.harden()()
	var err *Error
	if s.value, err = p.filter(nil); err != nil {
		return nil, err
	}
	if s.value, err = p.filters(s.value); err != nil {
		return nil, err
	}
	if err = p.blockEnd(); err != nil {
		return nil, err
	}
	if s.body, err = p.closed("endfilter"); err != nil {
		return nil, err
	}
	return s, p.blockEnd()
}

func (p *parser) with(line int) (stmt, *Error) {
	s := &withStmt{line: line}
	for p.peek().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		p.nodes = 0
		t, err := p.oneTarget(false)
		if err != nil {
			return nil, err
		}
		if err = p.expectOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, t), append(s.values, x)
	}
	if err := p.blockEnd(); err != nil {
		return nil, err
	}
	body, _, err := p.hardBody("endwith")
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.blockEnd()
}
