package jinja

import (
	"sync"
	"time"
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	body    []stmt
	names   map[string]int
	globals []Value // by id: what the environment defines
	loopID  int     // of the variable "loop"
	pool    sync.Pool
}

// Compile reads a template. The error is an [*Error] with code [Unsupported].
func Compile(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, refused("it is too long")
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := parser{tokens: tokens, names: make(map[string]int)}
	body, err := p.template()
	if err != nil {
		return nil, err
	}
	loopID := p.variable("loop")
	t := &Template{body: body, names: p.names, globals: make([]Value, len(p.names)), loopID: loopID}
	for name, id := range p.names {
		if f, ok := globals[name]; ok {
			t.globals[id] = funcOf(f)
		}
	}
	return t, nil
}

// Uses reports whether a variable of this name occurs in the template.
func (t *Template) Uses(name string) bool {
	_, ok := t.names[name]
	return ok
}

// Env is what a rendering may know of the world.
type Env struct {
	// Now is the time for strftime_now, in the zone that it shall print.
	Now time.Time
	// Limits bound the rendering.
	Limits Limits
}

// Render renders t with variables and appends the text to dst. It does not change the
// variables, and the text shares nothing with them. The error is an [*Error];
// dst is then returned as it was.
func (t *Template) Render(dst []byte, vars *Dict, env Env) (_ []byte, err error) {
	m, _ := t.pool.Get().(*machine)
	if m == nil {
		m = &machine{t: t, root: make([]Value, len(t.names))}
	}
	m.start(dst, vars, env)
	defer func() {
		m.stop()
		t.pool.Put(m)
	}()
	if _, err := m.run(t.body); err != nil {
		return dst, err
	}
	return m.out, nil
}
