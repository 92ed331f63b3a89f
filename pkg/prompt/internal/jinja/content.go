package jinja

import "slices"

// ContentRules tells how vLLM gives the content of messages to the template when
// it is left to find out: as a list of parts where the template has a loop over
// the content of a message, else as a text. Until 2025 the rule saw only loops
// over message.content itself; later versions also see loops over a variable
// named content, and over the parameter of a macro that content is passed to.
func (t *Template) ContentRules() (early, late bool) {
	w := walker{names: t.names}
	w.body(t.body)
	messages, ok := w.messages()
	if !ok {
		return false, false
	}
	var items []int // the variables of loops over messages
	for _, f := range w.loops {
		if w.isAny(f.iter, messages, "") {
			if f.target.tuple {
				return false, false
			}
			items = append(items, f.target.id)
		}
	}
	for _, f := range w.loops {
		own := w.isAny(f.iter, items, "content")
		if !own && !w.overContent(f, items) {
			continue
		}
		if f.target.tuple { // the rule gives up
			return early, late
		}
		late = true
		if own {
			return true, true
		}
	}
	return early, late
}

// overContent is the later part of the rule, for loops over a plain variable.
func (w *walker) overContent(f *forStmt, items []int) bool {
	name, ok := f.iter.(*nameExpr)
	if !ok {
		return false
	}
	macro := w.macroOf[f]
	if macro == nil {
		id, ok := w.names["content"]
		return ok && id == name.id
	}
	for i := range macro.params {
		if macro.params[i].id == name.id && w.gets(macro, i, items) {
			return true
		}
	}
	return false
}

// gets reports whether some call passes the content of a message to a parameter.
func (w *walker) gets(macro *macroStmt, param int, items []int) bool {
	for _, c := range w.calls {
		if fn, ok := c.fn.(*nameExpr); !ok || fn.id != macro.id {
			continue
		}
		if param < len(c.args.pos) && w.isAny(c.args.pos[param], items, "content") {
			return true
		}
		for k, name := range c.args.names {
			if name == macro.params[param].name && w.isAny(c.args.kw[k], items, "content") {
				return true
			}
		}
	}
	return false
}

// walker collects what the rules look at.
type walker struct {
	names   map[string]int
	macro   *macroStmt // around the position
	macroOf map[*forStmt]*macroStmt
	loops   []*forStmt
	sets    []*setStmt
	calls   []*callExpr
}

func (w *walker) body(body []stmt) {
	for _, s := range body {
		w.stmt(s)
	}
}

func (w *walker) stmt(s stmt) {
	switch s := s.(type) {
	case *outStmt:
		w.exprs(s.x)
	case *ifStmt:
		w.exprs(s.tests...)
		for _, b := range s.bodies {
			w.body(b)
		}
	case *forStmt:
		w.loops = append(w.loops, s)
		if w.macro != nil {
			if w.macroOf == nil {
				w.macroOf = make(map[*forStmt]*macroStmt)
			}
			w.macroOf[s] = w.macro
		}
		w.exprs(s.iter, s.test)
		w.body(s.body)
		w.body(s.none)
	case *setStmt:
		w.sets = append(w.sets, s)
		w.exprs(s.value)
	case *setBlock:
		w.exprs(s.value)
		w.body(s.body)
	case *macroStmt:
		w.inMacro(s)
	case *callStmt:
		w.exprs(s.call)
		w.body(s.caller.body)
	case *filterBlock:
		w.exprs(s.value)
		w.body(s.body)
	case *withStmt:
		w.exprs(s.values...)
		w.body(s.body)
	}
}

func (w *walker) inMacro(s *macroStmt) {
	outer := w.macro
	w.macro = s
	for _, p := range s.params {
		w.exprs(p.def)
	}
	w.body(s.body)
	w.macro = outer
}

// exprs collects the calls in expressions, some of which may be nil.
func (w *walker) exprs(list ...expr) {
	for _, x := range list {
		switch x := x.(type) {
		case *attrExpr:
			w.exprs(x.obj)
		case *itemExpr:
			w.exprs(x.obj, x.key)
		case *sliceExpr:
			w.exprs(x.obj, x.low, x.high, x.step)
		case *unaryExpr:
			w.exprs(x.x)
		case *binaryExpr:
			w.exprs(x.left, x.right)
		case *concatExpr:
			w.exprs(x.parts...)
		case *sumExpr:
			w.exprs(x.parts...)
		case *compareExpr:
			w.exprs(x.first)
			w.exprs(x.rest...)
		case *andExpr:
			w.exprs(x.left, x.right)
		case *orExpr:
			w.exprs(x.left, x.right)
		case *notExpr:
			w.exprs(x.x)
		case *condExpr:
			w.exprs(x.test, x.yes, x.no)
		case *callExpr:
			w.calls = append(w.calls, x)
			w.exprs(x.fn)
			w.args(x.args)
		case *filterExpr:
			w.exprs(x.x)
			w.args(x.args)
		case *testExpr:
			w.exprs(x.x)
			w.args(x.args)
		case *listExpr:
			w.exprs(x.items...)
		case *dictExpr:
			w.exprs(x.keys...)
			w.exprs(x.vals...)
		}
	}
}

func (w *walker) args(a callArgs) {
	w.exprs(a.pos...)
	w.exprs(a.kw...)
}

// messages returns the ids of the variable messages and of those that are set
// from it. It is not ok when one is set in a way that the rule gives up on.
func (w *walker) messages() (ids []int, ok bool) {
	if id, found := w.names["messages"]; found {
		ids = append(ids, id)
	}
	for i := 0; i < len(ids); i++ {
		for _, s := range w.sets {
			if !w.isAny(s.value, ids[i:i+1], "") {
				continue
			}
			if s.target.tuple || s.target.attr != "" {
				return nil, false
			}
			if !slices.Contains(ids, s.target.id) {
				ids = append(ids, s.target.id)
			}
		}
	}
	return ids, true
}

// isAny reports whether x is one of the variables, or their attribute of that
// name when there is one; filters, tests and slices around it do not matter.
func (w *walker) isAny(x expr, ids []int, attr string) bool {
	variable := func(x expr) bool {
		n, ok := x.(*nameExpr)
		return ok && slices.Contains(ids, n.id)
	}
	switch e := x.(type) {
	case *filterExpr:
		return e.x != nil && w.isAny(e.x, ids, attr)
	case *testExpr:
		return w.isAny(e.x, ids, attr)
	case *sliceExpr:
		return w.isAny(e.obj, ids, attr)
	case *attrExpr:
		return attr != "" && e.name == attr && variable(e.obj)
	case *itemExpr:
		key, ok := e.key.(*constExpr)
		return attr != "" && ok && key.v.Text() == attr && variable(e.obj)
	case *nameExpr:
		return attr == "" && variable(e)
	}
	return false
}
