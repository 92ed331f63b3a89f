package chat

import (
	"unsafe"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// decoder reads values from a body, in the order of its keys. Texts without
// escapes are not copied: what it returns is valid only as long as the body, and
// until the next start.
type decoder struct {
	jsonscan.Scanner
	slab slab
	text []byte // decoded texts, with room for all of the body
	// decoded are texts that the scan has decoded (see jsonscan.Scanner.Text).
	decoded []byte
	fields  []jinja.Entry // entries of objects that are being read
	values  []jinja.Value // elements of lists that are being read
	left    int           // values that may still come
}

// slab is memory for the parts of values, handed out piece by piece.
type slab struct {
	dicts   []jinja.Dict
	lists   []jinja.List
	entries []jinja.Entry
	values  []jinja.Value
}

// take returns n fresh elements of a slab, which it makes anew when it is used
// up.
func take[T any](slab *[]T, n, chunk int) []T {
	if cap(*slab)-len(*slab) < n {
		*slab = make([]T, 0, max(n, chunk, min(2*cap(*slab), 1<<12)))
	}
	used := len(*slab)
	*slab = (*slab)[:used+n]
	return (*slab)[used : used+n : used+n]
}

func (s *slab) dict(room int) *jinja.Dict {
	d := &take(&s.dicts, 1, 64)[0]
	d.Reset(take(&s.entries, room, 256))
	return d
}

func (s *slab) list(n int) *jinja.List {
	l := &take(&s.lists, 1, 64)[0]
	*l = jinja.List{Items: take(&s.values, n, 256)}
	return l
}

// reset makes the memory free again. Nothing may still use it.
func (s *slab) reset() {
	clear(s.dicts)
	clear(s.lists)
	clear(s.entries)
	clear(s.values)
	s.dicts, s.lists, s.entries, s.values = s.dicts[:0], s.lists[:0], s.entries[:0], s.values[:0]
}

func (d *decoder) start(body []byte, limit int) {
	d.slab.reset()
	d.Scanner = jsonscan.Scanner{Data: body}
	if cap(d.text) < len(body)+jsonscan.Room {
		d.text = make([]byte, 0, len(body)+jsonscan.Room)
	}
	d.text, d.left = d.text[:0], limit
	d.fields, d.values = d.fields[:0], d.values[:0]
}

// value reads any value inside depth containers.
func (d *decoder) value(depth int) (jinja.Value, *jsonscan.Error) {
	if d.left--; d.left < 0 {
		return jinja.Undefined, errTooMany
	}
	switch c := d.Peek(); c {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		span, err := d.Str()
		if err != nil {
			return jinja.Undefined, err
		}
		return jinja.String(d.str(span)), nil
	default:
		start := d.Pos
		if err := d.Scalar(c); err != nil {
			return jinja.Undefined, err
		}
		return jinja.Scalar(view(d.Data[start:d.Pos])), nil
	}
}

// errTooMany marks a body with more values than are allowed.
var errTooMany = &jsonscan.Error{Msg: "too many values"}

// str returns the text of a string.
func (d *decoder) str(s jsonscan.Span) string {
	raw := d.Data[s.Start:s.End]
	switch {
	case !s.Escaped:
		return view(raw)
	case s.TextEnd > s.TextStart:
		return view(d.decoded[s.TextStart:s.TextEnd])
	}
	start := len(d.text)
	if cap(d.text)-start < len(raw)+jsonscan.Room { // a text inside a text: it has no end of room
		return view(jsonscan.AppendText(nil, raw))
	}
	d.text = jsonscan.AppendText(d.text, raw)
	return view(d.text[start:])
}

// view returns bytes as a text without copying them. They must not change as
// long as it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (d *decoder) object(depth int) (jinja.Value, *jsonscan.Error) {
	base := len(d.fields)
	empty, err := d.Enter(depth, '}')
	for more := !empty; more && err == nil; {
		var name jsonscan.Span
		if name, err = d.Key(); err != nil {
			break
		}
		key := jinja.String(d.str(name))
		var v jinja.Value
		if v, err = d.value(depth + 1); err != nil {
			break
		}
		d.fields = append(d.fields, jinja.Entry{Key: key, Val: v})
		more, err = d.Next('}')
	}
	if err != nil {
		return jinja.Undefined, err
	}
	out := d.slab.dict(len(d.fields) - base)
	for _, f := range d.fields[base:] {
		out.Set(f.Key.Text(), f.Val)
	}
	d.fields = d.fields[:base]
	return jinja.DictOf(out), nil
}

func (d *decoder) array(depth int) (jinja.Value, *jsonscan.Error) {
	base := len(d.values)
	empty, err := d.Enter(depth, ']')
	for more := !empty; more && err == nil; {
		var v jinja.Value
		if v, err = d.value(depth + 1); err != nil {
			break
		}
		d.values = append(d.values, v)
		more, err = d.Next(']')
	}
	if err != nil {
		return jinja.Undefined, err
	}
	out := d.slab.list(len(d.values) - base)
	copy(out.Items, d.values[base:])
	d.values = d.values[:base]
	return jinja.ListOf(out), nil
}

// inner reads the JSON in a text: the arguments of a call.
func (d *decoder) inner(text string) (jinja.Value, *jsonscan.Error) {
	outer := d.Scanner
	defer func() { d.Scanner = outer }()
	d.Scanner = jsonscan.Scanner{Data: unsafe.Slice(unsafe.StringData(text), len(text))}
	v, err := d.value(0)
	if err == nil {
		if d.Peek(); d.Pos < len(d.Data) {
			err = d.Syntax(d.Pos, "more text after the end")
		}
	}
	return v, err
}
