package skeleton

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
	"github.com/zeebo/xxh3"
)

// form is what a request has besides its contents, written down so that equal
// forms are equal bytes, and the contents apart.
type form struct {
	split  *splitter
	random uint64
	key    []byte   // the form
	texts  []string // the contents, by the number of their atom
	names  []string // of the variables, in order
	work   []piece
	bad    bool // it cannot be taken apart

	// whole are the contents as the template sees them, by the number of each
	// atom in them. It is only filled when values are made.
	whole []string
	atoms bool // make values
}

// contents are the keys of messages whose text becomes atoms.
var contents = []string{"content", "text", "reasoning_content", "reasoning", "thinking"}

// kept are keys of messages under which nothing becomes an atom: it is printed
// as JSON, where every character counts.
var kept = []string{"tool_calls", "function_call", "arguments"}

const (
	maxNesting = 100
	longText   = 256 // longer ones go into the key as a hash
)

func (f *form) reset(s *splitter, random uint64, atoms bool) {
	*f = form{split: s, random: random, atoms: atoms, key: f.key[:0], texts: f.texts[:0], names: f.names[:0], work: f.work[:0]}
}

// forget drops what f holds of a request, but for its room.
func (f *form) forget() {
	clear(f.texts[:cap(f.texts)])
	clear(f.work[:cap(f.work)])
	f.whole = nil
}

// take writes down all variables and returns them with atoms, when asked to make
// values.
func (f *form) take(vars map[string]jinja.Value) map[string]jinja.Value {
	var out map[string]jinja.Value
	if f.atoms {
		out = make(map[string]jinja.Value, len(vars)+8)
	}
	for name := range vars {
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	for _, name := range f.names {
		f.plain(name)
		v := f.value(vars[name], name == "messages", 0)
		if f.atoms {
			out[name] = v
		}
	}
	return out
}

// plain writes down a text that stays as it is.
func (f *form) plain(s string) {
	if strings.Contains(s, atomOpen) {
		f.bad = true
	}
	if len(s) > longText {
		h := xxh3.HashString128Seed(s, f.random)
		f.key = append(f.key, 'h')
		f.key = binary.LittleEndian.AppendUint64(f.key, h.Hi)
		f.key = binary.LittleEndian.AppendUint64(f.key, h.Lo)
		return
	}
	f.key = append(f.key, 's')
	f.key = binary.AppendUvarint(f.key, uint64(len(s)))
	f.key = append(f.key, s...)
}

// content writes down a text of which parts become atoms.
func (f *form) content(v jinja.Value) jinja.Value {
	f.work = f.split.split(f.work[:0], v.AsString())
	f.key = append(f.key, 'c')
	f.key = binary.AppendUvarint(f.key, uint64(len(f.work)))
	first := len(f.texts)
	for _, p := range f.work {
		if p.atom {
			f.key = append(f.key, 'a')
			f.texts = append(f.texts, p.text)
		} else {
			f.plain(p.text)
		}
	}
	if !f.atoms || len(f.texts) == first {
		return v
	}
	var b strings.Builder
	n := first
	for _, p := range f.work {
		if p.atom {
			b.WriteString(atomOpen + strconv.Itoa(n) + atomClose)
			n++
		} else {
			b.WriteString(p.text)
		}
	}
	for range n - first {
		f.whole = append(f.whole, b.String())
	}
	return jinja.NewString(b.String())
}

// value writes down any value. message says that it is in a message.
func (f *form) value(v jinja.Value, message bool, depth int) jinja.Value {
	if depth > maxNesting {
		f.bad = true
	}
	switch {
	case f.bad:
	case v.IsString():
		f.plain(v.AsString())
	case v.IsDict():
		return f.dict(v, message, depth)
	case v.IsList():
		return f.list(v, message, depth)
	case v.IsNone():
		f.key = append(f.key, 'n')
	case v.IsUndefined():
		f.key = append(f.key, 'u')
	case v.IsBool():
		f.key = append(f.key, 'f')
		if v.AsBool() {
			f.key[len(f.key)-1] = 't'
		}
	case v.IsInt():
		f.key = binary.LittleEndian.AppendUint64(append(f.key, 'i'), uint64(v.AsInt()))
	case v.IsFloat():
		f.key = binary.LittleEndian.AppendUint64(append(f.key, 'd'), math.Float64bits(v.AsFloat()))
	case v.IsCallable():
		f.key = append(f.key, 'x') // functions belong to the template
	default:
		f.bad = true
	}
	return v
}

func (f *form) dict(v jinja.Value, message bool, depth int) jinja.Value {
	d := v.AsDict()
	f.key = append(f.key, '{')
	f.key = binary.AppendUvarint(f.key, uint64(len(d.Keys)))
	var made *jinja.Dict
	if f.atoms && message {
		made = &jinja.Dict{Keys: slices.Clone(d.Keys), Data: make(map[string]jinja.Value, len(d.Keys))}
	}
	for _, key := range d.Keys {
		f.plain(key)
		in := d.Data[key]
		if message && in.IsString() && slices.Contains(contents, key) {
			in = f.content(in)
		} else {
			in = f.value(in, message && !slices.Contains(kept, key), depth+1)
		}
		if made != nil {
			made.Data[key] = in
		}
	}
	if made == nil {
		return v
	}
	out := jinja.NewDict()
	*out.AsDict() = *made
	return out
}

func (f *form) list(v jinja.Value, message bool, depth int) jinja.Value {
	l := v.AsList()
	f.key = append(f.key, '[')
	f.key = binary.AppendUvarint(f.key, uint64(len(l.Items)))
	var made []jinja.Value
	if f.atoms && message {
		made = make([]jinja.Value, 0, len(l.Items))
	}
	for _, item := range l.Items {
		in := f.value(item, message, depth+1)
		if made != nil {
			made = append(made, in)
		}
	}
	if made == nil {
		return v
	}
	return jinja.NewList(made)
}
