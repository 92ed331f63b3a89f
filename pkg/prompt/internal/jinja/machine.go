package jinja

// machine runs one template.
type machine struct {
	t     *Template
	env   Env
	out   []byte
	base  int     // length of out before the rendering
	root  []Value // by id: variables of the outermost scope
	scope *scope  // the innermost scope, nil for the outermost
	stack []Value // arguments of calls under way
	calls int     // macros under way
	block Value   // the text that filters without an operand apply to

	left   int64 // steps until the next look at the limits
	steps  int64 // steps after that
	memory int64

	free []*scope
}

// scope holds the variables of a block. There are few, so they are searched. What
// the search costs counts, should there be many.
type scope struct {
	parent *scope
	vars   []binding
	kept   bool // a macro refers to it
}

type binding struct {
	id  int
	val Value
}

func (m *machine) start(dst []byte, vars *Dict, env Env) {
	env.Limits = env.Limits.withDefaults()
	m.env, m.out, m.base = env, dst, len(dst)
	m.left, m.steps, m.memory = 0, env.Limits.Steps, env.Limits.Memory
	copy(m.root, m.t.globals)
	for _, e := range vars.Entries() {
		if id, ok := m.t.names[e.Key.Text()]; ok {
			m.root[id] = e.Val
		}
	}
}

// stop drops whatever belongs to the request.
func (m *machine) stop() {
	clear(m.root)
	clear(m.stack[:cap(m.stack)])
	m.env, m.out, m.scope, m.stack, m.block, m.calls = Env{}, nil, nil, m.stack[:0], Undefined, 0
}

// step counts one step.
func (m *machine) step() *Error {
	if m.left--; m.left >= 0 {
		return nil
	}
	return m.refill()
}

// refill looks at the limits and allows the next steps. It is called with left
// below zero: what is owed is paid first.
func (m *machine) refill() *Error {
	if m.steps += m.left; m.steps < 0 {
		m.left = 0
		return &Error{Code: LimitSteps, Msg: "it takes too many steps"}
	}
	if check := m.env.Limits.Check; check != nil && !check() {
		return &Error{Code: LimitTime, Msg: "it takes too long"}
	}
	m.left = min(checkEvery, m.steps)
	m.steps -= m.left
	return nil
}

// work counts what looking at n bytes costs.
func (m *machine) work(n int) *Error {
	m.left -= int64(n / bytesPerStep)
	if m.left >= 0 {
		return nil
	}
	return m.refill()
}

// charge counts n bytes of memory, before they are taken.
func (m *machine) charge(n int) *Error {
	if m.memory -= int64(n); m.memory < 0 || n < 0 {
		return &Error{Code: LimitMemory, Msg: "it takes too much memory"}
	}
	return m.work(n)
}

const valueSize = 32 // bytes of a Value

// chargeList counts a list of n values.
func (m *machine) chargeList(n int) *Error {
	if n > 1<<30 {
		n = 1 << 30
	}
	return m.charge(n * valueSize)
}

// write appends text to the output.
func (m *machine) write(s string) *Error {
	if len(m.out)-m.base+len(s) > m.env.Limits.Output {
		return &Error{Code: LimitOutput, Msg: "its text is too long"}
	}
	m.out = append(m.out, s...)
	return m.work(len(s))
}

// capture takes back what was written since start, as a text.
func (m *machine) capture(start int) (Value, *Error) {
	if err := m.charge(len(m.out) - start); err != nil {
		return Undefined, err
	}
	text := string(m.out[start:])
	m.out = m.out[:start]
	return String(text), nil
}

// push opens a scope inside parent.
func (m *machine) push(parent *scope) *scope {
	var s *scope
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = new(scope)
	}
	s.parent = parent
	m.scope = s
	return s
}

// pop closes the scope s and goes back to the scope outer.
func (m *machine) pop(s, outer *scope) {
	m.scope = outer
	if s.kept {
		return
	}
	s.reset()
	s.parent = nil
	m.free = append(m.free, s)
}

func (s *scope) reset() {
	clear(s.vars)
	s.vars = s.vars[:0]
}

// set sets a variable and returns how many it looked at.
func (s *scope) set(id int, v Value) (seen int) {
	for i := range s.vars {
		if s.vars[i].id == id {
			s.vars[i].val = v
			return i
		}
	}
	s.vars = append(s.vars, binding{id, v})
	return len(s.vars)
}

// looked counts what it costs to look at n variables. The next step pays.
func (m *machine) looked(n int) { m.left -= int64(n / varsPerStep) }

// set sets a variable of the innermost scope.
func (m *machine) set(id int, v Value) {
	if m.scope == nil {
		m.root[id] = v
		return
	}
	m.looked(m.scope.set(id, v))
}

// get returns the value of a variable.
func (m *machine) get(id int) Value {
	seen := 0
	for s := m.scope; s != nil; s = s.parent {
		for i := range s.vars {
			if s.vars[i].id == id {
				m.looked(seen + i)
				return s.vars[i].val
			}
		}
		seen += len(s.vars)
	}
	m.looked(seen)
	return m.root[id]
}

// assign sets a target.
func (m *machine) assign(t *target, v Value) *Error {
	switch {
	case t.tuple:
		return m.unpack(t, v)
	case t.attr == "":
		m.set(t.id, v)
		return nil
	}
	ns := m.get(t.id)
	if ns.kind != KindNamespace {
		return raised("an attribute is set of something that is no namespace")
	}
	if err := m.charge(2 * valueSize); err != nil {
		return err
	}
	ns.dict().Set(t.attr, v)
	return nil
}

func (m *machine) unpack(t *target, v Value) *Error {
	items, err := m.items(v)
	if err != nil {
		return err
	}
	if len(items) != len(t.parts) {
		return raised("a value has another number of elements than there are names")
	}
	for i := range t.parts {
		if err := m.assign(&t.parts[i], items[i]); err != nil {
			return err
		}
	}
	return nil
}
