package jinja

import (
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// fromJSON is a filter that engines add to jinja2: json.loads, in the order of
// the text.
func fromJSON(m *machine, v Value, a *args) (Value, *Error) {
	if v.kind != KindString {
		return Undefined, raised("fromjson of something that is no text")
	}
	s := v.str()
	if err := m.charge(10 * len(s)); err != nil {
		return Undefined, err
	}
	out, err := ParseJSON([]byte(s))
	if err != nil {
		return Undefined, raised("fromjson of something that is not JSON")
	}
	return out, none(a)
}

// ParseJSON reads one JSON value. It shares no memory with the text.
func ParseJSON(data []byte) (Value, error) {
	r := jsonReader{jsonscan.Scanner{Data: data}}
	v, err := r.value(0)
	if err == nil {
		if r.Peek(); r.Pos < len(r.Data) {
			err = r.Syntax(r.Pos, "invalid JSON: more text after the end")
		}
	}
	if err != nil {
		return Undefined, raised(err.Msg)
	}
	return v, nil
}

type jsonReader struct{ jsonscan.Scanner }

func (r *jsonReader) value(depth int) (Value, *jsonscan.Error) {
	switch r.Peek() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		span, err := r.Str()
		if err != nil {
			return Undefined, err
		}
		return String(r.text(span)), nil
	default:
		start := r.Pos
		err := r.Scalar(r.Peek())
		if err != nil {
			return Undefined, err
		}
		return Scalar(string(r.Data[start:r.Pos])), nil
	}
}

func (r *jsonReader) text(s jsonscan.Span) string {
	return string(jsonscan.AppendText(nil, r.Data[s.Start:s.End]))
}

func (r *jsonReader) object(depth int) (Value, *jsonscan.Error) {
	d := NewDict(nil)
	empty, err := r.Enter(depth, '}')
	for more := !empty; more && err == nil; {
		var name jsonscan.Span
		if name, err = r.Key(); err != nil {
			break
		}
		var v Value
		if v, err = r.value(depth + 1); err != nil {
			break
		}
		d.Set(r.text(name), v)
		more, err = r.Next('}')
	}
	return DictOf(d), err
}

func (r *jsonReader) array(depth int) (Value, *jsonscan.Error) {
	l := &List{}
	empty, err := r.Enter(depth, ']')
	for more := !empty; more && err == nil; {
		var v Value
		if v, err = r.value(depth + 1); err != nil {
			break
		}
		l.Items = append(l.Items, v)
		more, err = r.Next(']')
	}
	return ListOf(l), err
}

// Scalar returns the value of a JSON number or word that the scanner accepted,
// as Python's json reads it. The text is kept for integers beyond 64 bits.
func Scalar(text string) Value {
	switch text {
	case "null":
		return None
	case "true":
		return Bool(true)
	case "false":
		return Bool(false)
	}
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return Int(n)
		}
		return Big(text)
	}
	f, _ := strconv.ParseFloat(text, 64) // infinite when it is too large, as in Python
	return Float(f)
}
