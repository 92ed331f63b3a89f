package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// dynamo sets the variables of the template as Dynamo's frontend does. Its
// template engine is another one (minijinja), so only templates on which both
// agree can be right: whoever uses this style must compare.
func (w *worker) dynamo() *Error {
	list, err := w.messages()
	if err != nil {
		return err
	}
	last := ""
	for _, m := range list {
		msg, role, err := w.dynamoMessage(m)
		if err != nil {
			return err
		}
		w.list = append(w.list, msg)
		last = role
	}
	resume, err := flag(w.req.resume, false)
	if err != nil {
		return err
	}
	generate, err := flag(w.req.generate, last != "assistant")
	if err != nil {
		return err
	}
	if resume {
		return unknown("continue_final_message")
	}
	tools := jinja.None
	if given(w.req.tools) && !w.dropTools() {
		if tools, err = w.dynamoTools(); err != nil {
			return err
		}
	}
	for _, e := range w.t.tokens {
		w.set(e.Key.Text(), e.Val)
	}
	w.set("messages", jinja.ListOf(&jinja.List{Items: w.list}))
	w.set("tools", tools)
	w.set("add_generation_prompt", jinja.Bool(generate))
	if v := w.req.effort; given(v) {
		w.set("reasoning_effort", v)
	}
	if d := w.req.kwargs.Dict(); d != nil {
		for _, e := range d.Entries() {
			w.set(e.Key.Text(), e.Val)
		}
	}
	return nil
}

// dynamoMessage builds the message that a template sees: the fields as given, the
// role first, null ones left out. A content of nothing but texts becomes one.
func (w *worker) dynamoMessage(v jinja.Value) (jinja.Value, string, *Error) {
	m := v.Dict()
	if m == nil {
		return v, "", invalid("a message is not an object")
	}
	role, _ := m.Get("role")
	if role.Kind() != jinja.KindString {
		return v, "", invalid("a message has no role")
	}
	out := w.dec.slab.dict(m.Len())
	out.Set("role", role)
	for _, e := range m.Entries() {
		val, err := e.Val, (*Error)(nil)
		switch key := e.Key.Text(); {
		case !given(val):
			continue
		case key == "content" && val.List() != nil:
			val, err = w.dynamoContent(val.List())
		case key == "tool_calls" && val.List() != nil && role.Text() == "assistant":
			val, err = w.toolCalls(val.List())
		}
		if err != nil {
			return v, "", err
		}
		out.Set(e.Key.Text(), val)
	}
	return jinja.DictOf(out), role.Text(), nil
}

func (w *worker) dynamoContent(l *jinja.List) (jinja.Value, *Error) {
	texts := make([]string, 0, len(l.Items))
	media := false
	for _, item := range l.Items {
		if err := w.part(); err != nil {
			return item, err
		}
		part := item.Dict()
		if part == nil {
			return item, invalid("a part of content is not an object")
		}
		kind, _ := part.Get("type")
		text, _ := part.Get("text")
		if kind.Text() != "text" {
			if _, err := mediaOf(kind, part); err != nil {
				return item, err
			}
			media, w.media = true, true
			continue
		}
		texts = append(texts, text.Text())
	}
	if !media && len(texts) > 0 {
		return jinja.String(strings.Join(texts, "\n")), nil
	}
	if !w.variant {
		return jinja.ListOf(l), nil
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		out.Items[i] = item
		if kind, _ := item.Dict().Get("type"); kind.Text() != "text" {
			out.Items[i] = w.textPart(jinja.String("\x02"))
		}
	}
	return jinja.ListOf(out), nil
}

// dynamoTools returns the tools as Dynamo's types print them: fields in their
// order, null ones left out, and parameters with a type and properties.
func (w *worker) dynamoTools() (jinja.Value, *Error) {
	l := w.req.tools.List()
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
