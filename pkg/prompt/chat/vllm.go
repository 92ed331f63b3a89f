package chat

import "github.com/warmpath/warmpath/pkg/prompt/internal/jinja"

// vllm sets the variables of the template as vLLM and transformers do.
func (w *worker) vllm() *Error {
	list, err := w.messages()
	if err != nil {
		return err
	}
	for _, m := range list {
		msg, err := w.vllmMessage(m)
		if err != nil {
			return err
		}
		w.list = append(w.list, msg)
	}
	generate, err := flag(w.req.generate, true)
	if err != nil {
		return err
	}
	resume, err := flag(w.req.resume, false)
	if err != nil {
		return err
	}
	if resume && generate {
		return invalid("continue_final_message and add_generation_prompt are both set")
	}
	if resume {
		if w.resume, err = w.lastText(); err != nil {
			return err
		}
		if w.tagged {
			w.tag()
		}
	}
	tools := jinja.None
	if given(w.req.tools) && !w.dropTools() {
		if tools, err = w.vllmTools(); err != nil {
			return err
		}
	}
	if err := w.settled(generate); err != nil {
		return err
	}
	w.base()
	w.set("messages", jinja.ListOf(&jinja.List{Items: w.list}))
	w.set("tools", tools)
	w.set("add_generation_prompt", jinja.Bool(generate))
	if given(w.req.documents) {
		w.set("documents", w.req.documents)
	} else if _, ok := w.vars.Get("documents"); !ok {
		w.set("documents", jinja.None)
	}
	if v := w.req.effort; given(v) && v.Text() != "auto" {
		w.set("reasoning_effort", v)
		if w.newer {
			w.set("enable_thinking", jinja.Bool(v.Text() != "none"))
		}
	}
	return nil
}

// settled refuses kwargs that contradict fields of the request. Which of the two
// wins depends on the version of vLLM.
func (w *worker) settled(generate bool) *Error {
	for _, f := range []struct {
		name string
		val  jinja.Value
	}{
		{"add_generation_prompt", jinja.Bool(generate)},
		{"documents", w.req.documents},
		{"reasoning_effort", w.req.effort},
	} {
		v, ok := w.kwarg(f.name)
		if ok && given(f.val) && v != f.val && (v.Kind() != jinja.KindString || v.Text() != f.val.Text()) {
			return unknown("chat_template_kwargs and the request disagree on " + f.name)
		}
	}
	return nil
}

// kwarg returns a value of the request's kwargs.
func (w *worker) kwarg(name string) (jinja.Value, bool) {
	if d := w.req.kwargs.Dict(); d != nil {
		return d.Get(name)
	}
	return jinja.Undefined, false
}

// thinks reports whether an effort may switch thinking on or off: newer versions
// of vLLM set enable_thinking by it, unless the request does.
func (w *worker) thinks() bool {
	_, ok := w.kwarg("enable_thinking")
	return !ok && given(w.req.effort) && w.req.effort.Text() != "auto" && w.t.jinja.Uses("enable_thinking")
}

func (w *worker) set(name string, v jinja.Value) { w.vars.Set(name, v) }

// base sets the special tokens and the kwargs.
func (w *worker) base() {
	for _, e := range w.t.tokens {
		w.set(e.Key.Text(), e.Val)
	}
	if d := w.req.kwargs.Dict(); d != nil {
		for _, e := range d.Entries() {
			w.set(e.Key.Text(), e.Val)
		}
	}
}

// vllmMessage builds the message that a template sees: only fields that vLLM
// knows, in its order.
func (w *worker) vllmMessage(v jinja.Value) (jinja.Value, *Error) {
	m := v.Dict()
	if m == nil {
		return v, invalid("a message is not an object")
	}
	role, _ := m.Get("role")
	if role.Kind() != jinja.KindString {
		return v, invalid("a message has no role")
	}
	if role.Text() == "developer" && !w.t.developer {
		return v, unknown("a developer's message, which the template does not know")
	}
	raw, _ := m.Get("content")
	content, err := w.vllmContent(raw)
	if err != nil {
		return v, err
	}
	out := w.dec.slab.dict(8)
	out.Set("role", role)
	out.Set("content", content)
	switch role.Text() {
	case "assistant":
		if err := w.vllmAssistant(m, out); err != nil {
			return v, err
		}
	case "tool":
		if id, ok := m.Get("tool_call_id"); ok {
			out.Set("tool_call_id", id)
		}
	}
	if name, _ := m.Get("name"); name.Kind() == jinja.KindString {
		out.Set("name", name)
	}
	if role.Text() == "developer" {
		tools, ok := m.Get("tools")
		if !ok {
			tools = jinja.None
		}
		out.Set("tools", tools)
	}
	return jinja.DictOf(out), nil
}

// vllmAssistant adds what only a message of the assistant has.
func (w *worker) vllmAssistant(m, out *jinja.Dict) *Error {
	if calls, _ := m.Get("tool_calls"); given(calls) {
		l := calls.List()
		if l == nil {
			return invalid("tool_calls is not a list")
		}
		if len(l.Items) > 0 {
			v, err := w.toolCalls(l)
			if err != nil {
				return err
			}
			out.Set("tool_calls", v)
		}
	}
	reasoning, err := w.reasoning(m)
	if err != nil {
		return err
	}
	if given(reasoning) {
		out.Set("reasoning", reasoning)
		out.Set("reasoning_content", reasoning)
	}
	return nil
}

// reasoning returns the thoughts of a message. Versions of vLLM differ in what
// they make of an empty text beside or without the field's older name.
func (w *worker) reasoning(m *jinja.Dict) (jinja.Value, *Error) {
	v, _ := m.Get("reasoning")
	old, _ := m.Get("reasoning_content")
	switch {
	case v.Kind() == jinja.KindString && v.Text() == "" && (old.Kind() != jinja.KindString || old.Text() != ""):
		return v, unknown("an empty reasoning")
	case given(v):
		return v, nil
	}
	return old, nil
}

// called returns a call of a tool and its function.
func called(item jinja.Value) (call, function *jinja.Dict, err *Error) {
	if call = item.Dict(); call == nil {
		return nil, nil, invalid("a tool call is not an object")
	}
	v, _ := call.Get("function")
	if function = v.Dict(); function == nil {
		return nil, nil, invalid("a tool call has no function")
	}
	return call, function, nil
}

// toolCalls copies calls, with their arguments read: clients send them as a text
// of JSON, and templates want the object.
func (w *worker) toolCalls(l *jinja.List) (jinja.Value, *Error) {
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		call, function, err := called(item)
		if err != nil {
			return item, err
		}
		args, _ := function.Get("arguments")
		parsed, err := w.arguments(args)
		if err != nil {
			return item, err
		}
		f := w.copied(function, 1)
		f.Set("arguments", parsed)
		c := w.copied(call, 0)
		c.Set("function", jinja.DictOf(f))
		out.Items[i] = jinja.DictOf(c)
	}
	return jinja.ListOf(out), nil
}

func (w *worker) arguments(v jinja.Value) (jinja.Value, *Error) {
	switch v.Kind() {
	case jinja.KindString:
		if v.Text() == "" {
			break
		}
		parsed, err := w.dec.inner(v.Text())
		if err != nil {
			return v, invalid("the arguments of a tool call are not JSON")
		}
		return parsed, nil
	case jinja.KindDict:
		if v.Dict().Len() > 0 {
			return v, nil
		}
	case jinja.KindList:
		if len(v.List().Items) > 0 {
			return v, nil
		}
	case jinja.KindNone, jinja.KindUndefined:
	default:
		return v, invalid("the arguments of a tool call are no text")
	}
	return jinja.DictOf(w.dec.slab.dict(0)), nil
}

// copied returns a copy of d with room for more entries.
func (w *worker) copied(d *jinja.Dict, more int) *jinja.Dict {
	out := w.dec.slab.dict(d.Len() + more)
	for _, e := range d.Entries() {
		out.Set(e.Key.Text(), e.Val)
	}
	return out
}
