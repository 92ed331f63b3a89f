package jinja

import "slices"

// parser builds the tree of a template. Its grammar is that of jinja2 3.1.
type parser struct {
	tokens  []token
	pos     int
	names   map[string]int // of variables, to their ids
	depth   int            // of nested syntax
	nodes   int            // of the expression at hand
	loops   int            // for blocks around the position, inside the macro
	soft    bool           // an unknown filter or test fails where it is reached
	missing int            // how many such were met
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
			if slices.Contains(ends, name) {
				return body, name, nil
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

// hardBody is the body of a block that jinja2 compiles in a frame of its own: an
// unknown filter there is an error at once, whatever is around the block.
func (p *parser) hardBody(ends ...string) ([]stmt, string, *Error) {
	defer p.harden()()
	return p.body(ends...)
}

// harden makes unknown filters an error at once, until what it returns is called.
func (p *parser) harden() func() {
	soft := p.soft
	p.soft = false
	return func() { p.soft = soft }
}

// closed parses a block that break and continue cannot leave.
func (p *parser) closed(end string) ([]stmt, *Error) {
	loops := p.loops
	p.loops = 0
	body, _, err := p.hardBody(end)
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
