package jinja

// parser builds the tree of a template. Its grammar is that of jinja2 3.1.
type parser struct {
	tokens  []token
	pos     int
	names   map[string]int // of variables, to their ids
	depth   int            // of nested syntax
	nodes   int            // of the expression at hand
	loops   int            // for blocks around the position, inside the macro
	maybe   int            // conditional code around the position
	loopUse int            // how often the variable "loop" was met
	attrs   int            // how often an attribute was set
	macro   *macroStmt     // around the position
}

// maxNodes is how many nodes an expression may have. With maxSyntax it bounds
// how deep evaluation goes.
const maxNodes = 2000

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	t := p.peek()
	return t.kind == tokOp && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.peek()
	return t.kind == tokName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) fail(msg string) *Error { return unsupported(p.peek().line, msg) }

func (p *parser) expectOp(op string) *Error {
	if !p.skipOp(op) {
		return p.fail("expected " + op)
	}
	return nil
}

func (p *parser) expectName() (string, *Error) {
	t := p.peek()
	if t.kind != tokName {
		return "", p.fail("expected a name")
	}
	p.pos++
	return t.text, nil
}

func (p *parser) blockEnd() *Error {
	if p.peek().kind != tokBlockEnd {
		return p.fail("expected the end of a tag")
	}
	p.pos++
	return nil
}

// enter counts one level of nested syntax; leave undoes it.
func (p *parser) enter() *Error {
	if p.depth++; p.depth > maxSyntax {
		return p.fail("nested too deep")
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// node counts one node of an expression.
func (p *parser) node() *Error {
	if p.nodes++; p.nodes > maxNodes {
		return p.fail("an expression is too long")
	}
	return nil
}

// variable returns the id of a name.
func (p *parser) variable(name string) int {
	id, ok := p.names[name]
	if !ok {
		id = len(p.names)
		p.names[name] = id
	}
	return id
}

// template parses the whole template.
func (p *parser) template() ([]stmt, *Error) {
	body, _, err := p.body()
	if err != nil {
		return nil, err
	}
	if p.peek().kind != tokEOF {
		return nil, p.fail("an end tag without a beginning")
	}
	return body, nil
}

// body parses statements up to a tag that starts with one of the names, whose
// beginning and name it takes, or up to the end of the template.
func (p *parser) body(ends ...string) (body []stmt, end string, err *Error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	for {
		t := p.peek()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, "", p.fail("a block has no " + ends[len(ends)-1])
			}
			return body, "", nil
		case tokData:
			p.pos++
			body = append(body, &dataStmt{t.text})
		case tokVarBegin:
			p.pos++
			x, err := p.whole(tokVarEnd)
			if err != nil {
				return nil, "", err
			}
			body = append(body, &outStmt{x, t.line})
		default:
			p.pos++
			name, err := p.expectName()
			if err != nil {
				return nil, "", err
			}
			for _, e := range ends {
				if e == name {
					return body, name, nil
				}
			}
			s, err := p.statement(name, t.line)
			if err != nil {
				return nil, "", err
			}
			body = append(body, s...)
		}
	}
}

// whole parses an expression, or a tuple without brackets, and the end of its
// tag.
func (p *parser) whole(end tokenKind) (expr, *Error) {
	p.nodes = 0
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	if p.peek().kind != end {
		return nil, p.fail("unexpected text in a tag")
	}
	p.pos++
	return x, nil
}

// maybeBody is a body that may not run.
func (p *parser) maybeBody(ends ...string) ([]stmt, string, *Error) {
	p.maybe++
	defer func() { p.maybe-- }()
	return p.body(ends...)
}

// closed parses a block that break and continue cannot leave.
func (p *parser) closed(end string) ([]stmt, *Error) {
	loops := p.loops
	p.loops = 0
	body, _, err := p.body(end)
	p.loops = loops
	return body, err
}

// statement parses a tag behind its name, and the block that belongs to it.
func (p *parser) statement(name string, line int) ([]stmt, *Error) {
	var s stmt
	var err *Error
	switch name {
	case "if":
		s, err = p.ifBlock(line)
	case "for":
		s, err = p.forBlock(line)
	case "set":
		s, err = p.set(line)
	case "macro":
		s, err = p.macroBlock()
	case "call":
		s, err = p.callBlock(line)
	case "filter":
		s, err = p.filterBlock(line)
	case "with":
		s, err = p.with(line)
	case "generation":
		if err = p.blockEnd(); err == nil {
			var body []stmt
			if body, err = p.closed("endgeneration"); err == nil {
				s, err = &withStmt{body: body, line: line}, p.blockEnd()
			}
		}
	case "print":
		var x expr
		if x, err = p.whole(tokBlockEnd); err == nil {
			s = &outStmt{x, line}
		}
	case "break", "continue":
		if p.loops == 0 {
			return nil, unsupported(line, name+" outside a loop")
		}
		s = &breakStmt{}
		if name == "continue" {
			s = &continueStmt{}
		}
		err = p.blockEnd()
	default:
		return nil, unsupported(line, "unknown tag "+name)
	}
	if err != nil {
		return nil, err
	}
	return []stmt{s}, nil
}

func (p *parser) ifBlock(line int) (stmt, *Error) {
	s := &ifStmt{line: line}
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
		body, next, err := p.maybeBody(ends...)
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
		if s.test, err = p.expression(); err != nil {
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
	body, end, err := p.maybeBody("else", "endfor")
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
		if s.none, _, err = p.maybeBody("endfor"); err != nil {
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
		if s.value, err = p.filters(nil); err != nil {
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
	p.maybe++ // it may never be called, but jinja2 compiles it
	defer func() { p.maybe-- }()
	body, _, err := p.body(end)
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
	body, _, err := p.body("endwith")
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.blockEnd()
}
