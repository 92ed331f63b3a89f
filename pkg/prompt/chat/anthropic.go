package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// fromAnthropic brings a request of Anthropic's Messages API into the form of a
// chat completion, as vLLM does.
func (w *worker) fromAnthropic() *Error {
	if given(w.req.kwargs) { // versions of vLLM ignore them
		return unknown("an Anthropic request with chat_template_kwargs")
	}
	in := w.req.messages.List()
	if in == nil {
		return invalid("there are no messages")
	}
	list := make([]*jinja.Dict, 0, len(in.Items)+1)
	system, err := w.systemText(w.req.system)
	if err != nil {
		return err
	}
	if system.Kind() != jinja.KindUndefined {
		list = append(list, w.message("system", system))
	}
	for _, v := range in.Items {
		m := v.Dict()
		if m == nil {
			return invalid("a message is not an object")
		}
		if list, err = w.anthropicMessage(list, m); err != nil {
			return err
		}
	}
	w.req.messages = w.listOf(list)
	return w.anthropicTools()
}

// systemText returns the text of "system", undefined when there is none.
func (w *worker) systemText(v jinja.Value) (jinja.Value, *Error) {
	switch {
	case !given(v), v.Kind() == jinja.KindString && v.Text() == "":
		return jinja.Undefined, nil
	case v.Kind() == jinja.KindString:
		return v, nil
	case v.List() == nil:
		return v, invalid("system is neither a text nor a list")
	case len(v.List().Items) == 0:
		return jinja.Undefined, nil
	}
	var all strings.Builder
	for _, item := range v.List().Items {
		block := item.Dict()
		if block == nil {
			return v, invalid("a block of system is not an object")
		}
		kind, _ := block.Get("type")
		text, _ := block.Get("text")
		if kind.Text() != "text" || text.Kind() != jinja.KindString {
			return v, unknown("a block of system that is no text")
		}
		if strings.HasPrefix(text.Text(), "x-anthropic-billing-header") { // vLLM drops it, since when is not known
			return v, unknown("a billing header in system")
		}
		all.WriteString(text.Text())
	}
	if all.Len() == 0 { // versions of vLLM differ in whether that is a message
		return v, unknown("a system of empty texts")
	}
	return jinja.String(all.String()), nil
}

// blocks are what a message of blocks consists of.
type blocks struct {
	parts, calls, results []jinja.Value
	thoughts              strings.Builder
	thought               bool
}

// anthropicMessage appends a message; results of tools come before it as messages
// of their own.
func (w *worker) anthropicMessage(list []*jinja.Dict, m *jinja.Dict) ([]*jinja.Dict, *Error) {
	role, _ := m.Get("role")
	content, _ := m.Get("content")
	if role.Kind() != jinja.KindString {
		return nil, invalid("a message has no role")
	}
	if role.Text() != "user" && role.Text() != "assistant" {
		// Versions of vLLM refuse a message of the system here, join it to the one
		// at the start, leave it or fold it into a neighbour. They map roles of no
		// standard, or refuse them.
		return nil, unknown("a message that is neither the user's nor the assistant's")
	}
	if content.Kind() == jinja.KindString {
		return append(list, w.message(role.Text(), content)), nil
	}
	l := content.List()
	if l == nil {
		return nil, invalid("content is neither a text nor a list")
	}
	var b blocks
	for _, item := range l.Items {
		if err := w.part(); err != nil {
			return nil, err
		}
		block := item.Dict()
		if block == nil {
			return nil, invalid("a block of content is not an object")
		}
		if err := w.block(&b, role.Text(), block); err != nil {
			return nil, err
		}
	}
	for _, r := range b.results {
		list = append(list, r.Dict())
	}
	out := w.message(role.Text(), jinja.Undefined)
	if b.thought {
		out.Set("reasoning", jinja.String(b.thoughts.String()))
	}
	if len(b.calls) > 0 {
		out.Set("tool_calls", jinja.ListOf(&jinja.List{Items: b.calls}))
	}
	switch {
	case len(b.parts) > 0:
		out.Set("content", jinja.ListOf(&jinja.List{Items: b.parts}))
	case role.Text() == "user":
		return list, nil
	case len(b.calls) == 0 && !b.thought: // versions of vLLM keep it, drop it or give it a content
		return nil, unknown("a message of the assistant with nothing in it")
	}
	return append(list, out), nil
}

// block reads one block of content.
func (w *worker) block(b *blocks, role string, block *jinja.Dict) *Error {
	kind, _ := block.Get("type")
	switch kind.Text() {
	case "text":
		text, _ := block.Get("text")
		if text.Kind() != jinja.KindString {
			return invalid("a block of text has no text")
		}
		if text.Text() != "" {
			b.parts = append(b.parts, w.textPart(text))
		}
	case "image":
		part := w.dec.slab.dict(2)
		part.Set("type", jinja.String("image_url"))
		b.parts = append(b.parts, jinja.DictOf(part))
	case "thinking":
		text, _ := block.Get("thinking")
		if text.Kind() != jinja.KindString {
			return invalid("a block of thinking has no text")
		}
		b.thoughts.WriteString(text.Text())
		b.thought = true
	case "tool_use":
		b.calls = append(b.calls, w.toolUse(block))
	case "tool_result":
		content, _ := block.Get("content")
		id, _ := block.Get("tool_use_id")
		switch {
		case role != "user":
			return unknown("a result of a tool in a message that is not the user's")
		case given(content) && content.Kind() != jinja.KindString:
			// Versions of vLLM write such a list in different ways.
			return unknown("a result of a tool that is no text")
		case !given(content):
			content = jinja.String("")
		}
		m := w.message("tool", content)
		m.Set("tool_call_id", id)
		b.results = append(b.results, jinja.DictOf(m))
	default:
		return unknown("a block of content of an unknown type")
	}
	return nil
}

func (w *worker) toolUse(block *jinja.Dict) jinja.Value {
	id, _ := block.Get("id")
	name, _ := block.Get("name")
	input, _ := block.Get("input")
	f := w.dec.slab.dict(2)
	f.Set("name", name)
	f.Set("arguments", input)
	call := w.dec.slab.dict(3)
	call.Set("id", id)
	call.Set("type", jinja.String("function"))
	call.Set("function", jinja.DictOf(f))
	return jinja.DictOf(call)
}

// typed returns a schema with a type: one without is that of an object.
func (w *worker) typed(schema *jinja.Dict) *jinja.Dict {
	if _, ok := schema.Get("type"); ok {
		return schema
	}
	out := w.copied(schema, 1)
	out.Set("type", jinja.String("object"))
	return out
}

// effortCounts reports whether output_config has an effort that the template
// could show: newer versions of vLLM take it for the chat's reasoning_effort.
func (w *worker) effortCounts(output *jinja.Dict) bool {
	effort, _ := output.Get("effort")
	return given(effort) && (w.t.jinja.Uses("reasoning_effort") || w.t.jinja.Uses("enable_thinking"))
}

// anthropicTools brings tools into the form of a chat completion.
func (w *worker) anthropicTools() *Error {
	r := &w.req
	if out := r.output.Dict(); out != nil && w.effortCounts(out) {
		return unknown("an effort, which versions of vLLM ignore")
	}
	if choice := r.toolChoice.Dict(); choice != nil {
		if r.toolChoice, _ = choice.Get("type"); r.toolChoice.Text() == "none" {
			return unknown("a tool choice of none")
		}
	}
	l := r.tools.List()
	if l == nil {
		return nil
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		tool := item.Dict()
		if tool == nil {
			return invalid("a tool is not an object")
		}
		if kind, _ := tool.Get("type"); given(kind) && kind.Text() != "custom" {
			return unknown("a tool of the server")
		}
		if later, _ := tool.Get("defer_loading"); given(later) { // some versions of vLLM show it to the template
			return unknown("a tool that is loaded later")
		}
		f := w.dec.slab.dict(3)
		for _, key := range [][2]string{{"name", "name"}, {"description", "description"}, {"parameters", "input_schema"}} {
			v, _ := tool.Get(key[1])
			switch {
			case v.Kind() == jinja.KindUndefined:
				v = jinja.None
			case v.Dict() != nil && key[1] == "input_schema":
				v = jinja.DictOf(w.typed(v.Dict()))
			}
			f.Set(key[0], v)
		}
		t := w.dec.slab.dict(2)
		t.Set("type", jinja.String("function"))
		t.Set("function", jinja.DictOf(f))
		out.Items[i] = jinja.DictOf(t)
	}
	r.tools = jinja.ListOf(out)
	return nil
}
