package skeleton

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ardanlabs/jinja"
	"github.com/zeebo/xxh3"
)

// Render renders a compiled template. It must be safe for concurrent use, and
// its result a function of the variables and of what the functions in them say.
type Render func(vars map[string]jinja.Value) (string, error)

// Config is what makes a [Template].
type Config struct {
	// Source is the template, and Compile what turns it, or it with guards,
	// into something to render with.
	Source  string
	Compile func(source string) (Render, error)
	// Bytes bounds the memory of skeletons, in bytes, about. 0 means none are
	// kept: every request is rendered as usual.
	Bytes int64
	// Random seeds hashes. It should be known to nobody.
	Random uint64
}

// Template renders a template, by skeletons where that is possible. It is safe for
// concurrent use.
type Template struct {
	plain  Render
	atoms  Render // with guards; nil when the template is not understood
	split  *splitter
	cache  *cache
	random uint64
	forms  sync.Pool // of *form

	made, used, unfit atomic.Uint64
	wrong             atomic.Bool
}

// Every skeleton among the first firstChecks, and then every checkEvery-th, is
// compared with the usual way when it is made.
const (
	firstChecks = 64
	checkEvery  = 64
)

// New compiles a template. The error is Compile's, for the template as it is.
func New(c Config) (*Template, error) {
	plain, err := c.Compile(c.Source)
	if err != nil {
		return nil, err
	}
	t := &Template{plain: plain, random: c.Random}
	r, ok := rewrite(c.Source)
	if !ok || c.Bytes <= 0 {
		return t, nil
	}
	if t.atoms, err = c.Compile(r.source); err != nil {
		t.atoms = nil
		return t, nil //nolint:nilerr // the template is rendered as usual then
	}
	t.split = newSplitter(r.literals, r.strips)
	t.cache = newCache(c.Bytes)
	return t, nil
}

// Stats are counters of a template. They only grow.
type Stats struct {
	// Made are skeletons that were made, Used those that spared a rendering,
	// Unfit requests whose contents the template looked into.
	Made, Used, Unfit uint64
	// Wrong says that a skeleton differed from the usual rendering. That cannot
	// happen; if it does, none is used any more.
	Wrong bool
}

// Stats returns the counters.
func (t *Template) Stats() Stats {
	return Stats{Made: t.made.Load(), Used: t.used.Load(), Unfit: t.unfit.Load(), Wrong: t.wrong.Load()}
}

// Render returns what the template prints for vars: always what the compiled
// template prints. It does not change vars.
func (t *Template) Render(vars map[string]jinja.Value) (string, error) {
	if t.atoms == nil || t.wrong.Load() {
		return t.plain(vars)
	}
	f, _ := t.forms.Get().(*form)
	if f == nil {
		f = new(form)
	}
	defer func() {
		f.forget()
		t.forms.Put(f)
	}()
	f.reset(t.split, t.random, false)
	f.take(vars)
	if f.bad {
		return t.plain(vars)
	}
	k := xxh3.Hash128Seed(f.key, t.random)
	s := t.cache.get(k)
	if s == nil || !s.current(vars) {
		return t.make(k, vars, f)
	}
	if s.unfit || s.texts != len(f.texts) {
		t.unfit.Add(1)
		return t.plain(vars)
	}
	t.used.Add(1)
	return s.fill(f.texts), nil
}

// make renders with atoms, keeps the skeleton, and returns the text.
func (t *Template) make(k xxh3.Uint128, vars map[string]jinja.Value, f *form) (string, error) {
	f.reset(t.split, t.random, true)
	withAtoms := f.take(vars)
	guards(withAtoms, f.whole, f.split.literals)
	s := &skeleton{texts: len(f.texts)}
	s.record(withAtoms)
	out, err := t.atoms(withAtoms)
	if err != nil || !s.cut(out) {
		t.cache.put(k, &skeleton{unfit: true})
		t.unfit.Add(1)
		return t.plain(vars)
	}
	n := t.made.Add(1)
	text := s.fill(f.texts)
	if n <= firstChecks || n%checkEvery == 0 {
		plain, err := t.plain(vars)
		switch {
		case err != nil:
			return plain, err
		case plain != text:
			t.wrong.Store(true)
			return plain, nil
		}
	}
	t.cache.put(k, s)
	return text, nil
}

// record notes what the template is told about the time.
func (s *skeleton) record(vars map[string]jinja.Value) {
	clock, ok := vars[clockName]
	if !ok || !clock.IsCallable() {
		return
	}
	ask := clock.AsCallable().Fn
	vars[clockName] = jinja.NewCallable(clockName, func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
		v, err := ask(args, named)
		if err == nil && (len(args) != 1 || len(named) > 0 || !args[0].IsString() || !v.IsString()) {
			return v, errLooked
		}
		if err == nil {
			s.times = append(s.times, clockCall{args[0].AsString(), v.AsString()})
		}
		return v, err
	})
}

// current reports whether the template would be told the same about the time now.
func (s *skeleton) current(vars map[string]jinja.Value) bool {
	for _, t := range s.times {
		v, err := vars[clockName].AsCallable().Fn([]jinja.Value{jinja.NewString(t.format)}, nil)
		if err != nil || !v.IsString() || v.AsString() != t.said {
			return false
		}
	}
	return true
}

// cut takes apart what the template printed.
func (s *skeleton) cut(out string) bool {
	out = strings.Clone(out)
	for {
		text, rest, ok := strings.Cut(out, atomOpen)
		if !ok {
			s.pieces = append(s.pieces, outPiece{text, -1})
			return true
		}
		number, rest, ok := strings.Cut(rest, atomClose)
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 || n >= s.texts {
			return false
		}
		s.pieces = append(s.pieces, outPiece{text, n})
		out = rest
	}
}

// fill puts contents in.
func (s *skeleton) fill(texts []string) string {
	n := 0
	for _, p := range s.pieces {
		n += len(p.text)
		if p.content >= 0 {
			n += len(texts[p.content])
		}
	}
	var b strings.Builder
	b.Grow(n)
	for _, p := range s.pieces {
		b.WriteString(p.text)
		if p.content >= 0 {
			b.WriteString(texts[p.content])
		}
	}
	return b.String()
}
