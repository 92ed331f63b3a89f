package chat

import "github.com/warmpath/warmpath/pkg/prompt/internal/jinja"

// fromResponses brings a request of the Responses API into the form of a chat
// completion, as vLLM does: instructions first, then the items, where calls and
// thoughts join the message of the assistant that they belong to.
func (w *worker) fromResponses() *Error {
	r := &w.req
	switch {
	case w.t.harmony:
		return unknown("a responses request to a model of the harmony format")
	case given(r.kwargs): // versions of vLLM ignore them
		return unknown("a responses request with chat_template_kwargs")
	}
	var list []*jinja.Dict
	if text := r.instructions; given(text) && text.Text() != "" {
		list = append(list, w.message("system", text))
	}
	var err *Error
	unfinished := false
	switch {
	case r.input.Kind() == jinja.KindString:
		list = append(list, w.message("user", r.input))
	case r.input.List() != nil:
		if list, unfinished, err = w.responseItems(list, r.input.List()); err != nil {
			return err
		}
	default:
		return invalid("input is neither a text nor a list")
	}
	r.messages = w.listOf(list)
	r.generate, r.resume = jinja.Bool(!unfinished), jinja.Bool(unfinished)
	if d := r.reasoning.Dict(); d != nil {
		r.effort, _ = d.Get("effort")
	}
	return w.noTools()
}

func (w *worker) message(role string, content jinja.Value) *jinja.Dict {
	m := w.dec.slab.dict(4)
	m.Set("role", jinja.String(role))
	if content.Kind() != jinja.KindUndefined {
		m.Set("content", content)
	}
	return m
}

func (w *worker) listOf(list []*jinja.Dict) jinja.Value {
	out := w.dec.slab.list(len(list))
	for i, m := range list {
		out.Items[i] = jinja.DictOf(m)
	}
	return jinja.ListOf(out)
}

// responseItems appends the messages of items. The last one may be unfinished:
// then the engine goes on with it.
func (w *worker) responseItems(list []*jinja.Dict, items *jinja.List) (_ []*jinja.Dict, unfinished bool, _ *Error) {
	for i, v := range items.Items {
		if err := w.part(); err != nil {
			return nil, false, err
		}
		item := v.Dict()
		if item == nil {
			return nil, false, invalid("an item of input is not an object")
		}
		var last *jinja.Dict // the message of the assistant before, if that is the last
		if n := len(list); n > 0 {
			if role, _ := list[n-1].Get("role"); role.Text() == "assistant" {
				last = list[n-1]
			}
		}
		m, err := w.responseItem(item, last)
		if err != nil {
			return nil, false, err
		}
		if m != nil {
			list = append(list, m)
		}
		if i == len(items.Items)-1 {
			kind, _ := item.Get("type")
			status, _ := item.Get("status")
			unfinished = (status.Text() == "in_progress" || status.Text() == "incomplete") &&
				(!given(kind) || kind.Text() == "message" || kind.Text() == "reasoning")
		}
	}
	return list, unfinished, nil
}

// responseItem returns the message of an item, nil when it joined the last one.
func (w *worker) responseItem(item, last *jinja.Dict) (*jinja.Dict, *Error) {
	kind, _ := item.Get("type")
	role, _ := item.Get("role")
	switch kind.Text() {
	case "function_call":
		return w.responseCall(item, last)
	case "reasoning":
		return w.responseThought(item, last)
	case "function_call_output":
		output, _ := item.Get("output")
		id, _ := item.Get("call_id")
		m := w.message("tool", output)
		m.Set("tool_call_id", id)
		return m, nil
	case "message", "":
	default:
		return nil, unknown("an item of input of an unknown type")
	}
	if role.Kind() != jinja.KindString {
		return nil, invalid("an item of input has no role")
	}
	if role.Text() != "assistant" {
		return item, nil
	}
	content, _ := item.Get("content")
	if l := content.List(); l != nil {
		if len(l.Items) != 1 || l.Items[0].Dict() == nil {
			return nil, unknown("a message of the assistant with several parts")
		}
		content, _ = l.Items[0].Dict().Get("text")
	}
	if content.Kind() != jinja.KindString {
		return nil, unknown("a message of the assistant without text")
	}
	if last != nil {
		if old, _ := last.Get("content"); !given(old) {
			last.Set("content", content)
			return nil, nil
		}
	}
	return w.message("assistant", content), nil
}

// responseCall adds a call to the message of the assistant before it.
func (w *worker) responseCall(item, last *jinja.Dict) (*jinja.Dict, *Error) {
	id, _ := item.Get("call_id")
	name, _ := item.Get("name")
	args, _ := item.Get("arguments")
	if space, _ := item.Get("namespace"); given(space) {
		return nil, unknown("a call in a namespace")
	}
	f := w.dec.slab.dict(2)
	f.Set("name", name)
	f.Set("arguments", args)
	call := w.dec.slab.dict(3)
	call.Set("id", id)
	call.Set("function", jinja.DictOf(f))
	call.Set("type", jinja.String("function"))
	m := last
	if m == nil {
		m = w.message("assistant", jinja.Undefined)
	}
	calls, _ := m.Get("tool_calls")
	if calls.List() == nil {
		calls = jinja.ListOf(&jinja.List{})
	}
	l := calls.List()
	l.Items = append(l.Items, jinja.DictOf(call))
	m.Set("tool_calls", calls)
	if last != nil {
		return nil, nil
	}
	return m, nil
}

// responseThought adds a reasoning item to the message of the assistant before
// it.
func (w *worker) responseThought(item, last *jinja.Dict) (*jinja.Dict, *Error) {
	if secret, _ := item.Get("encrypted_content"); given(secret) && secret.Text() != "" {
		return nil, unknown("encrypted reasoning")
	}
	text := jinja.String("")
	for _, key := range []string{"content", "summary"} {
		v, _ := item.Get(key)
		l := v.List()
		if l == nil || len(l.Items) == 0 {
			continue
		}
		first := l.Items[0].Dict()
		if first == nil {
			return nil, invalid("reasoning without text")
		}
		if text, _ = first.Get("text"); text.Kind() != jinja.KindString {
			return nil, invalid("reasoning without text")
		}
		break
	}
	if last != nil {
		if old, _ := last.Get("reasoning"); !given(old) {
			last.Set("reasoning", text)
			return nil, nil
		}
	}
	m := w.message("assistant", jinja.Undefined)
	m.Set("reasoning", text)
	return m, nil
}

// noTools refuses tools, unless the template does not show any. Versions of vLLM
// fill in different fields (strict, defer_loading), in different orders, and drop
// tools for a tool choice of none or do not; no endpoint says what it makes of
// them.
func (w *worker) noTools() *Error {
	if l := w.req.tools.List(); l != nil && len(l.Items) > 0 && w.t.jinja.Uses("tools") {
		return unknown("tools of a responses request, which versions of vLLM show in different ways")
	}
	w.req.tools = jinja.None
	return nil
}
