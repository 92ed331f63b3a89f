package jinja

// fn is something that can be called.
type fn struct {
	name string
	call func(m *machine, a *args) (Value, *Error)

	// of a macro, or of the block of a call
	macro *macroStmt
	scope *scope

	// of a method of a value
	self   Value
	method method
}

// args are the arguments of a call under way. Their values are only lent.
type args struct {
	pos   []Value
	names []string
	kw    []Value
}

// bound are arguments by the place of their parameters.
type bound struct {
	vals [4]Value
	set  [4]bool
}

// bind puts the arguments from the given position on in the places of the
// parameters with these names, at most four.
func (a *args) bind(names ...string) (b bound, err *Error) {
	if len(a.pos) > len(names) {
		return b, raised("a call has too many arguments")
	}
	for i, v := range a.pos {
		b.vals[i], b.set[i] = v, true
	}
next:
	for k, name := range a.names {
		for i, n := range names {
			if n == name && n != "" {
				if b.set[i] {
					return b, raised("a call has an argument twice")
				}
				b.vals[i], b.set[i] = a.kw[k], true
				continue next
			}
		}
		return b, raised("a call has an unknown argument " + name)
	}
	return b, nil
}

// need returns an error unless the first n parameters are set.
func (b *bound) need(n int) *Error {
	for _, ok := range b.set[:n] {
		if !ok {
			return raised("a call lacks an argument")
		}
	}
	return nil
}

// arguments evaluates arguments onto the stack. The caller calls m.drop with the
// length of the stack from before.
func (m *machine) arguments(a *callArgs, out *args) *Error {
	base := len(m.stack)
	for _, x := range a.pos {
		v, err := x.eval(m)
		if err != nil {
			return err
		}
		m.stack = append(m.stack, v)
	}
	n := len(m.stack)
	for _, x := range a.kw {
		v, err := x.eval(m)
		if err != nil {
			return err
		}
		m.stack = append(m.stack, v)
	}
	out.pos = m.stack[base:n:n]
	out.names, out.kw = a.names, m.stack[n:len(m.stack):len(m.stack)]
	return nil
}

func (m *machine) drop(to int) { m.stack = m.stack[:to] }

func (x *callExpr) eval(m *machine) (Value, *Error) { return x.with(m, nil) }

// with calls, with the block of a call tag when there is one.
func (x *callExpr) with(m *machine, caller *fn) (Value, *Error) {
	if err := m.step(); err != nil {
		return Undefined, err
	}
	base := len(m.stack)
	defer m.drop(base)
	if attr, ok := x.fn.(*attrExpr); ok && caller == nil {
		obj, err := attr.obj.eval(m)
		if err != nil {
			return Undefined, err
		}
		// A method that is called at once needs no value of its own.
		if f := attr.own.of(obj); f != nil {
			var a args
			if err := m.arguments(&x.args, &a); err != nil {
				return Undefined, err
			}
			return m.method(f, attr.name, obj, &a)
		}
		v, err := m.attr(obj, attr.name, attr.own)
		if err != nil {
			return Undefined, err
		}
		return m.callValue(v, &x.args, nil)
	}
	v, err := x.fn.eval(m)
	if err != nil {
		return Undefined, err
	}
	return m.callValue(v, &x.args, caller)
}

func (m *machine) callValue(v Value, exprs *callArgs, caller *fn) (Value, *Error) {
	if v.kind != KindFunc {
		return Undefined, raised("something is called that is no function")
	}
	var a args
	if err := m.arguments(exprs, &a); err != nil {
		return Undefined, err
	}
	f := v.fn()
	switch {
	case f.macro != nil:
		return m.callMacro(f, &a, caller)
	case caller != nil:
		return Undefined, raised("a call tag calls something that is no macro")
	case f.method != nil:
		return m.method(f.method, f.name, f.self, &a)
	default:
		return f.call(m, &a)
	}
}

// method calls a method of a value. Of text marked as safe only those are known
// that do not join it to other text; what they return is marked, too.
func (m *machine) method(f method, name string, self Value, a *args) (Value, *Error) {
	if self.markup {
		switch name {
		case "strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "startswith", "endswith", "count", "find":
		default:
			return Undefined, refused("method " + name + " of text marked as safe")
		}
	}
	v, err := f(m, self, a)
	v.markup = self.markup && v.kind == KindString
	return v, err
}

// callMacro runs a macro. The number of macros under way is bounded, and with it
// the stack of the process.
func (m *machine) callMacro(f *fn, a *args, caller *fn) (Value, *Error) {
	if m.calls >= maxCalls {
		return Undefined, &Error{Code: LimitDepth, Msg: "macros call each other too deep"}
	}
	s := f.macro
	if len(a.pos) > len(s.params) {
		return Undefined, raised("macro " + s.name + " gets too many arguments")
	}
	if caller != nil && s.callerID < 0 {
		return Undefined, raised("macro " + s.name + " takes no block")
	}
	m.calls++
	outer, start := m.scope, len(m.out)
	sc := m.push(f.scope)
	err := m.bindMacro(s, sc, a)
	if err == nil {
		if s.callerID >= 0 {
			sc.set(s.callerID, Undefined)
			if caller != nil {
				sc.set(s.callerID, funcOf(caller))
			}
		}
		_, err = m.run(s.body)
	}
	m.pop(sc, outer)
	m.calls--
	if err != nil {
		return Undefined, err
	}
	return m.capture(start)
}

// bindMacro sets the parameters of a macro in its scope.
func (m *machine) bindMacro(s *macroStmt, sc *scope, a *args) *Error {
	used := 0
	for i := range s.params {
		p := &s.params[i]
		if i < len(a.pos) {
			m.looked(sc.set(p.id, a.pos[i]))
			continue
		}
		found := false
		for k, name := range a.names {
			if name == p.name {
				m.looked(sc.set(p.id, a.kw[k]))
				used++
				found = true
			}
		}
		if found {
			continue
		}
		v := Undefined
		if p.def != nil {
			var err *Error
			if v, err = p.def.eval(m); err != nil {
				return err
			}
		}
		m.looked(sc.set(p.id, v))
	}
	if used < len(a.names) {
		return raised("macro " + s.name + " gets an unknown argument")
	}
	return nil
}

func (s *macroStmt) exec(m *machine) (jump, *Error) {
	if m.scope != nil {
		m.scope.keep()
	}
	m.set(s.id, funcOf(&fn{name: s.name, macro: s, scope: m.scope}))
	return jumpNone, nil
}

// keep says that a macro refers to a scope, and so to those around it.
func (s *scope) keep() {
	for ; s != nil && !s.kept; s = s.parent {
		s.kept = true
	}
}

func (s *callStmt) exec(m *machine) (jump, *Error) {
	if m.scope != nil {
		m.scope.keep()
	}
	caller := &fn{name: "caller", macro: s.caller, scope: m.scope}
	v, err := s.call.with(m, caller)
	if err == nil {
		err = m.print(v)
	}
	return jumpNone, err.at(s.line)
}
