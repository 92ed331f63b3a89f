package jinja

// WalksContent reports whether the template has a loop over the content of a
// message: then engines give it content as a list of parts, else as text. The
// rule is vLLM's (its content format "auto"): a loop over messages, or over a
// variable set from it, and in it a loop over its variable's content.
func (t *Template) WalksContent() bool {
	w := walker{names: t.names}
	w.visit(t.body)
	messages, ok := w.named([]string{"messages"})
	if !ok {
		return false
	}
	var loops []int
	for _, f := range w.loops {
		if w.anyOf(f.iter, messages, "") {
			if f.target.tuple {
				return false
			}
			loops = append(loops, f.target.id)
		}
	}
	for _, f := range w.loops {
		if w.anyOf(f.iter, loops, "content") {
			return !f.target.tuple
		}
	}
	return false
}

// walker collects the loops and assignments of a template.
type walker struct {
	names map[string]int
	loops []*forStmt
	sets  []*setStmt
}

func (w *walker) visit(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *ifStmt:
			for _, b := range s.bodies {
				w.visit(b)
			}
		case *forStmt:
			w.loops = append(w.loops, s)
			w.visit(s.body)
			w.visit(s.none)
		case *setStmt:
			w.sets = append(w.sets, s)
		case *setBlock:
			w.visit(s.body)
		case *macroStmt:
			w.visit(s.body)
		case *callStmt:
			w.visit(s.caller.body)
		case *filterBlock:
			w.visit(s.body)
		case *withStmt:
			w.visit(s.body)
		}
	}
}

// named returns the ids of variables and of those that are set from them. It is
// not ok when one is set in a way that vLLM's rule gives up on.
func (w *walker) named(names []string) (ids []int, ok bool) {
	for _, n := range names {
		if id, found := w.names[n]; found {
			ids = append(ids, id)
		}
	}
	for i := 0; i < len(ids); i++ {
		for _, s := range w.sets {
			if !w.anyOf(s.value, ids[i:i+1], "") {
				continue
			}
			if s.target.tuple || s.target.attr != "" {
				return nil, false
			}
			known := false
			for _, id := range ids {
				known = known || id == s.target.id
			}
			if !known {
				ids = append(ids, s.target.id)
			}
		}
	}
	return ids, true
}

// anyOf reports whether x is one of the variables, or its attribute of that name;
// filters, tests and slices around it do not matter.
func (w *walker) anyOf(x expr, ids []int, attr string) bool {
	switch e := x.(type) {
	case *filterExpr:
		return e.x != nil && w.anyOf(e.x, ids, attr)
	case *testExpr:
		return w.anyOf(e.x, ids, attr)
	case *sliceExpr:
		return w.anyOf(e.obj, ids, attr)
	case *attrExpr:
		return attr != "" && e.name == attr && w.anyOf(e.obj, ids, "") && isVariable(e.obj)
	case *itemExpr:
		key, ok := e.key.(*constExpr)
		return attr != "" && ok && key.v.Text() == attr && isVariable(e.obj) && w.anyOf(e.obj, ids, "")
	case *nameExpr:
		for _, id := range ids {
			if attr == "" && e.id == id {
				return true
			}
		}
	}
	return false
}

func isVariable(x expr) bool {
	_, ok := x.(*nameExpr)
	return ok
}
