package chat

import (
	"regexp"
	"slices"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// dynamoCalls copies the calls of a message: the fields that Dynamo knows, with
// their arguments read.
func (w *worker) dynamoCalls(v jinja.Value) (jinja.Value, *Error) {
	l := v.List()
	if l == nil {
		return v, invalid("tool_calls is not a list")
	}
	switch {
	case len(l.Items) == 0 || !w.t.calls:
	case !w.t.opts.Since13:
		return v, unknown("a call of a tool, which Dynamo 1.2 prints in another way")
	case w.t.oddCalls: // 1.6 tries out what it wants
		return v, unknown("a call of a tool, to a template that does not print it as JSON")
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		call, function, err := called(item)
		if err != nil {
			return item, err
		}
		id, _ := call.Get("id")
		name, _ := function.Get("name")
		args, _ := function.Get("arguments")
		if id.Kind() != jinja.KindString || name.Kind() != jinja.KindString {
			return item, invalid("a tool call without an id or a name")
		}
		args, err = w.dynamoArguments(args)
		if err != nil {
			return item, err
		}
		out.Items[i] = w.call(id, name, args)
	}
	return jinja.ListOf(out), nil
}

// dynamoArguments brings arguments into the form that the template wants: a text as
// it came, or what is in it. Those of an Anthropic request are no text.
func (w *worker) dynamoArguments(v jinja.Value) (jinja.Value, *Error) {
	if v.Kind() == jinja.KindString {
		if v.Text() == "" { // stays as it is
			return v, nil
		}
		parsed, bad := w.dec.inner(v.Text())
		switch {
		case bad != nil:
			return v, invalid("the arguments of a tool call are not JSON")
		case w.t.rawCalls:
			return v, nil
		}
		return parsed, nil
	}
	switch {
	case v.Dict() == nil:
		return v, invalid("a tool call without arguments")
	case !w.t.rawCalls:
		return v, nil
	}
	return w.compact(v)
}

// compactJSON prints a value without blanks.
const compactJSON = "{{ v|tojson(separators=(',', ':')) }}"

// exponent is what a power of ten looks like. A text may look like it.
var exponent = regexp.MustCompile(`[0-9]e[-+]?[0-9]`)

// compact returns a value as a text, as Dynamo writes it.
func (w *worker) compact(v jinja.Value) (jinja.Value, *Error) {
	var vars jinja.Dict
	vars.Set("v", v)
	out, err := w.t.compact.Render(nil, &vars, jinja.Env{})
	switch {
	case err != nil:
		return v, templateError(err)
	case hasFraction(v) && exponent.Match(out): // which is written in more than one way
		return v, unknown("arguments with a power of ten")
	}
	return jinja.String(string(out)), nil
}

// hasFraction reports whether there is a number in a value that is no integer of 64
// bits.
func hasFraction(v jinja.Value) bool {
	switch v.Kind() {
	case jinja.KindFloat, jinja.KindBig:
		return true
	case jinja.KindList:
		return slices.ContainsFunc(v.List().Items, hasFraction)
	case jinja.KindDict:
		return slices.ContainsFunc(v.Dict().Entries(), func(e jinja.Entry) bool { return hasFraction(e.Val) })
	default:
		return false
	}
}

func (w *worker) call(id, name, args jinja.Value) jinja.Value {
	f := w.dec.slab.dict(2)
	f.Set("name", name)
	f.Set("arguments", args)
	c := w.dec.slab.dict(3)
	c.Set("id", id)
	c.Set("type", jinja.String("function"))
	c.Set("function", jinja.DictOf(f))
	return jinja.DictOf(c)
}

// dynamoTools returns the tools as Dynamo's types print them: fields in their
// order, null ones left out, parameters with a type and properties, and an empty
// description, at the end, for a tool without one.
func (w *worker) dynamoTools() (jinja.Value, *Error) {
	l := w.req.tools.List()
	if len(l.Items) > 0 && w.t.jinja.Uses("tools") && !w.t.opts.Since13 {
		return jinja.None, unknown("tools, which Dynamo 1.2 prints in another way")
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		tool := item.Dict()
		if tool == nil {
			return item, invalid("a tool is not an object")
		}
		fv, _ := tool.Get("function")
		function := fv.Dict()
		if function == nil {
			return item, invalid("a tool has no function")
		}
		f := w.dec.slab.dict(4)
		for _, key := range []string{"name", "description", "parameters", "strict"} {
			v, _ := function.Get(key)
			if !given(v) {
				continue
			}
			if d := v.Dict(); d != nil && key == "parameters" {
				v = jinja.DictOf(w.schema(d))
			}
			f.Set(key, v)
		}
		if _, ok := f.Get("description"); !ok {
			f.Set("description", jinja.String(""))
		}
		t := w.dec.slab.dict(2)
		t.Set("type", jinja.String("function"))
		t.Set("function", jinja.DictOf(f))
		out.Items[i] = jinja.DictOf(t)
	}
	return jinja.ListOf(out), nil
}

func (w *worker) schema(d *jinja.Dict) *jinja.Dict {
	out := w.copied(d, 2)
	if _, ok := out.Get("type"); !ok {
		out.Set("type", jinja.String("object"))
	}
	if _, ok := out.Get("properties"); !ok {
		out.Set("properties", jinja.DictOf(w.dec.slab.dict(0)))
	}
	return out
}
