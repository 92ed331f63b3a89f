package jinja

// run runs statements until one jumps.
func (m *machine) run(body []stmt) (jump, *Error) {
	for _, s := range body {
		if err := m.step(); err != nil {
			return jumpNone, err
		}
		if j, err := s.exec(m); err != nil || j != jumpNone {
			return j, err
		}
	}
	return jumpNone, nil
}

// at gives an error the line where it happened, unless it has one.
func (e *Error) at(line int) *Error {
	if e != nil && e.Line == 0 {
		e.Line = line
	}
	return e
}

func (s *dataStmt) exec(m *machine) (jump, *Error) { return jumpNone, m.write(s.text) }

func (s *outStmt) exec(m *machine) (jump, *Error) {
	var err *Error
	switch x := s.x.(type) {
	case *sumExpr:
		err = x.print(m)
	case *concatExpr:
		err = x.print(m)
	default:
		var v Value
		if v, err = s.x.eval(m); err == nil {
			err = m.print(v)
		}
	}
	return jumpNone, err.at(s.line)
}

// print writes a value as text.
func (m *machine) print(v Value) *Error {
	if v.kind == KindString {
		return m.write(v.str())
	}
	if v.kind == KindUndefined {
		return nil
	}
	text, err := m.text(v)
	if err != nil {
		return err
	}
	return m.write(text)
}

func (s *ifStmt) exec(m *machine) (jump, *Error) {
	for i, test := range s.tests {
		v, err := test.eval(m)
		if err != nil {
			return jumpNone, err.at(s.line)
		}
		if v.truthy() {
			return m.run(s.bodies[i])
		}
	}
	if len(s.bodies) > len(s.tests) {
		return m.run(s.bodies[len(s.tests)])
	}
	return jumpNone, nil
}

// loop is the variable "loop".
type loop struct {
	items   []Value
	i       int
	depth   int
	outer   *loop
	last    []Value // what changed() saw
	changed bool    // changed() was called before
}

func (s *forStmt) exec(m *machine) (jump, *Error) {
	v, err := s.iter.eval(m)
	if err != nil {
		return jumpNone, err.at(s.line)
	}
	items, err := m.items(v)
	if err != nil {
		return jumpNone, err.at(s.line)
	}
	if s.test != nil && !s.lazy {
		if items, err = m.keep(s, items); err != nil {
			return jumpNone, err.at(s.line)
		}
	}
	if len(items) == 0 {
		return s.empty(m)
	}
	outer := m.scope
	sc := m.push(outer)
	l := &loop{items: items}
	ran, err := s.loop(m, sc, l)
	m.pop(sc, outer)
	if err == nil && !ran {
		return s.empty(m)
	}
	return jumpNone, err.at(s.line)
}

// empty runs the else block of a loop without elements.
func (s *forStmt) empty(m *machine) (jump, *Error) {
	if s.none == nil {
		return jumpNone, nil
	}
	outer := m.scope
	sc := m.push(outer)
	j, err := m.run(s.none)
	m.pop(sc, outer)
	return j, err
}

// loop runs the body for the elements, and reports whether it came to its end for
// one: jinja2 runs the else block of a loop that only broke off or skipped, too.
func (s *forStmt) loop(m *machine, sc *scope, l *loop) (ran bool, _ *Error) {
	outer := sc.parent
	for l.i = range l.items {
		if err := m.step(); err != nil {
			return false, err
		}
		if s.test != nil && s.lazy {
			m.scope = outer
			one, err := m.keep(s, l.items[l.i:l.i+1])
			if err != nil {
				return false, err
			}
			if m.scope = sc; len(one) == 0 {
				continue
			}
		}
		if sc.kept { // a macro of the last round may still look at its scope
			sc = m.push(outer)
		} else {
			sc.reset()
		}
		sc.set(m.t.loopID, loopOf(l))
		if err := m.assign(&s.target, l.items[l.i]); err != nil {
			return false, err
		}
		j, err := m.run(s.body)
		if err != nil {
			return false, err
		}
		if j == jumpBreak {
			break
		}
		ran = ran || j == jumpNone
	}
	return ran, nil
}

// keep returns the elements for which the test of a loop holds.
func (m *machine) keep(s *forStmt, items []Value) ([]Value, *Error) {
	if err := m.chargeList(len(items)); err != nil {
		return nil, err
	}
	outer := m.scope
	sc := m.push(outer)
	defer m.pop(sc, outer)
	var out []Value
	for _, v := range items {
		if err := m.step(); err != nil {
			return nil, err
		}
		sc.reset()
		if err := m.assign(&s.target, v); err != nil {
			return nil, err
		}
		ok, err := s.test.eval(m)
		if err != nil {
			return nil, err
		}
		if ok.truthy() {
			out = append(out, v)
		}
	}
	return out, nil
}

func (s *setStmt) exec(m *machine) (jump, *Error) {
	v, err := s.value.eval(m)
	if err == nil {
		err = m.assign(&s.target, v)
	}
	return jumpNone, err.at(s.line)
}

// inner runs a block in a scope of its own and takes back its text.
func (m *machine) inner(body []stmt) (Value, *Error) {
	outer, start := m.scope, len(m.out)
	sc := m.push(outer)
	_, err := m.run(body) // a jump cannot leave a block
	m.pop(sc, outer)
	if err != nil {
		return Undefined, err
	}
	return m.capture(start)
}

// filtered applies the filters of a block to its text.
func (m *machine) filtered(x expr, text Value) (Value, *Error) {
	if x == nil {
		return text, nil
	}
	old := m.block
	m.block = text
	v, err := x.eval(m)
	m.block = old
	return v, err
}

func (s *setBlock) exec(m *machine) (jump, *Error) {
	v, err := m.inner(s.body)
	if err == nil {
		if v, err = m.filtered(s.value, v); err == nil {
			err = m.assign(&s.target, v)
		}
	}
	return jumpNone, err.at(s.line)
}

func (s *filterBlock) exec(m *machine) (jump, *Error) {
	v, err := m.inner(s.body)
	if err == nil {
		if v, err = m.filtered(s.value, v); err == nil {
			err = m.print(v)
		}
	}
	return jumpNone, err.at(s.line)
}

func (s *withStmt) exec(m *machine) (jump, *Error) {
	outer := m.scope
	values := make([]Value, 0, 4)
	for _, x := range s.values {
		v, err := x.eval(m)
		if err != nil {
			return jumpNone, err.at(s.line)
		}
		values = append(values, v)
	}
	sc := m.push(outer)
	for i := range s.targets {
		if err := m.assign(&s.targets[i], values[i]); err != nil {
			return jumpNone, err.at(s.line)
		}
	}
	j, err := m.run(s.body)
	m.pop(sc, outer)
	return j, err
}

func (s *breakStmt) exec(*machine) (jump, *Error)    { return jumpBreak, nil }
func (s *continueStmt) exec(*machine) (jump, *Error) { return jumpContinue, nil }
