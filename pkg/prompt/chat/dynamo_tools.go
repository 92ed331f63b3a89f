package chat

import "github.com/warmpath/warmpath/pkg/prompt/internal/jinja"

// dynamoCalls copies the calls of a message: the fields that Dynamo knows, with
// their arguments read.
func (w *worker) dynamoCalls(v jinja.Value) (jinja.Value, *Error) {
	l := v.List()
	if l == nil {
		return v, invalid("tool_calls is not a list")
	}
	if len(l.Items) > 0 && w.t.calls && !w.t.opts.Since13 {
		return v, unknown("a call of a tool, which Dynamo 1.2 prints in another way")
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		call := item.Dict()
		if call == nil {
			return item, invalid("a tool call is not an object")
		}
		fv, _ := call.Get("function")
		function := fv.Dict()
		if function == nil {
			return item, invalid("a tool call has no function")
		}
		id, _ := call.Get("id")
		name, _ := function.Get("name")
		args, _ := function.Get("arguments")
		text := args.Kind() == jinja.KindString
		if id.Kind() != jinja.KindString || name.Kind() != jinja.KindString || !text && args.Dict() == nil {
			return item, invalid("a tool call without an id, a name or arguments")
		}
		if text && args.Text() != "" { // an empty text stays one
			parsed, bad := w.dec.inner(args.Text())
			if bad != nil {
				return item, invalid("the arguments of a tool call are not JSON")
			}
			args = parsed
		}
		out.Items[i] = w.call(id, name, args)
	}
	return jinja.ListOf(out), nil
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
