package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// dynamoAnthropic brings a request of Anthropic's Messages API into the form of a
// chat completion, as Dynamo does.
func (w *worker) dynamoAnthropic() *Error {
	r := &w.req
	r.kwargs = jinja.Undefined // not read
	w.switchy = thinkingOpen
	if d := r.thinking.Dict(); d != nil {
		switch kind, _ := d.Get("type"); kind.Text() {
		case "enabled":
			w.switchy = thinkingOn
		case "disabled":
			w.switchy = thinkingAsIs
		case "adaptive":
		default:
			return unknown("thinking of an unknown type")
		}
	}
	in := r.messages.List()
	if in == nil || len(in.Items) == 0 {
		return invalid("there are no messages")
	}
	var b dynamoChat
	if given(r.system) {
		system, err := w.lines(r.system)
		if err != nil {
			return err
		}
		if strings.Contains(system.Text(), "x-anthropic-billing-header") { // some frontends cut it off
			return unknown("a billing header in system")
		}
		b.list = append(b.list, w.message("system", system))
	}
	for _, v := range in.Items {
		m := v.Dict()
		if m == nil {
			return invalid("a message is not an object")
		}
		if err := w.dynamoTurn(&b, m); err != nil {
			return err
		}
	}
	r.messages = w.listOf(b.list)
	return w.dynamoAnthropicTools()
}

// lines returns a text, or texts as lines of one.
func (w *worker) lines(v jinja.Value) (jinja.Value, *Error) {
	if v.Kind() == jinja.KindString {
		return v, nil
	}
	if v.List() == nil {
		return v, invalid("content is neither a text nor a list")
	}
	texts := make([]string, len(v.List().Items))
	for i, item := range v.List().Items {
		if err := w.part(); err != nil {
			return v, err
		}
		block := item.Dict()
		if block == nil {
			return v, invalid("a block is not an object")
		}
		kind, _ := block.Get("type")
		text, _ := block.Get("text")
		if kind.Text() != "text" || text.Kind() != jinja.KindString {
			return v, unknown("a block that is no text")
		}
		texts[i] = text.Text()
	}
	return jinja.String(strings.Join(texts, "\n")), nil
}

// dynamoTurn appends the messages of one.
func (w *worker) dynamoTurn(b *dynamoChat, m *jinja.Dict) *Error {
	role, _ := m.Get("role")
	content, _ := m.Get("content")
	l := content.List()
	switch {
	case role.Text() != "user" && role.Text() != "assistant" && role.Text() != "system":
		return unknown("a message of an unknown role")
	case content.Kind() == jinja.KindString:
		b.list = append(b.list, w.message(role.Text(), content))
		return nil
	case l == nil:
		return invalid("content is neither a text nor a list")
	case len(l.Items) == 0: // refused since 1.4
		return unknown("a message with nothing in it")
	}
	switch role.Text() {
	case "user":
		return w.userBlocks(b, l)
	case "assistant":
		return w.assistantBlocks(b, l)
	}
	text, err := w.lines(content)
	b.list = append(b.list, w.message("system", text))
	return err
}

// userBlocks appends the texts and images of a user's message, and results of tools
// as messages of their own, all in their order.
func (w *worker) userBlocks(b *dynamoChat, l *jinja.List) *Error {
	var parts []jinja.Value
	flush := func() {
		if len(parts) > 0 {
			b.list = append(b.list, w.message("user", userParts(parts)))
		}
		parts = nil
	}
	for _, item := range l.Items {
		if err := w.part(); err != nil {
			return err
		}
		block := item.Dict()
		if block == nil {
			return invalid("a block of content is not an object")
		}
		kind, _ := block.Get("type")
		text, _ := block.Get("text")
		switch {
		case kind.Text() == "text" && text.Kind() == jinja.KindString:
			parts = append(parts, w.textPart(text))
		case kind.Text() == "image":
			image := w.dec.slab.dict(1)
			image.Set("type", jinja.String("image_url"))
			parts = append(parts, jinja.DictOf(image))
		case kind.Text() == "tool_result":
			flush()
			m, err := w.dynamoResult(block)
			if err != nil {
				return err
			}
			b.list = append(b.list, m)
		default:
			return unknown("a block of content of an unknown type")
		}
	}
	flush()
	return nil
}

// userParts returns parts as a content: one text where there are only texts.
func userParts(parts []jinja.Value) jinja.Value {
	var all strings.Builder
	for _, p := range parts {
		kind, _ := p.Dict().Get("type")
		text, _ := p.Dict().Get("text")
		if kind.Text() != "text" {
			return jinja.ListOf(&jinja.List{Items: parts})
		}
		all.WriteString(text.Text())
	}
	return jinja.String(all.String())
}

// dynamoResult returns the message of a tool's result.
func (w *worker) dynamoResult(block *jinja.Dict) (*jinja.Dict, *Error) {
	content, _ := block.Get("content")
	id, _ := block.Get("tool_use_id")
	if !given(content) {
		content = jinja.String("")
	}
	content, err := w.joined(content, "text")
	if err != nil {
		return nil, err
	}
	m := w.message("tool", content)
	m.Set("tool_call_id", id)
	return m, nil
}

// assistantBlocks appends a message of the assistant.
func (w *worker) assistantBlocks(b *dynamoChat, l *jinja.List) *Error {
	for _, item := range l.Items {
		if err := w.part(); err != nil {
			return err
		}
		block := item.Dict()
		if block == nil {
			return invalid("a block of content is not an object")
		}
		kind, _ := block.Get("type")
		switch kind.Text() {
		case "text":
			text, _ := block.Get("text")
			b.text.WriteString(text.Text())
		case "thinking":
			text, _ := block.Get("thinking")
			b.think(text.Text(), "\n")
		case "redacted_thinking": // left out
		case "tool_use":
			call, err := w.dynamoUse(block)
			if err != nil {
				return err
			}
			b.calls = append(b.calls, call)
		default:
			return unknown("a block of content of an unknown type")
		}
	}
	m := w.message("assistant", jinja.Undefined)
	if b.text.Len() > 0 {
		m.Set("content", jinja.String(b.text.String()))
	}
	if all := strings.Join(b.thoughts, ""); all != "" {
		thoughts := jinja.String(all)
		if len(b.calls) > 0 {
			thoughts = w.segments(b)
		}
		m.Set("reasoning_content", thoughts)
	}
	w.finish(b, m)
	return nil
}

// dynamoUse returns the call of a block. What Dynamo writes and reads again comes
// out as it was.
func (w *worker) dynamoUse(block *jinja.Dict) (jinja.Value, *Error) {
	id, _ := block.Get("id")
	name, _ := block.Get("name")
	input, ok := block.Get("input")
	if !ok {
		input = jinja.DictOf(w.dec.slab.dict(0))
	}
	if input.Dict() == nil {
		return input, unknown("a call with arguments that are no object")
	}
	return w.call(id, name, input), nil
}

// dynamoAnthropicTools brings tools into the form of a chat completion.
func (w *worker) dynamoAnthropicTools() *Error {
	r := &w.req
	if choice := r.toolChoice.Dict(); choice != nil {
		r.toolChoice, _ = choice.Get("type")
	}
	if !given(r.tools) {
		return nil
	}
	l := r.tools.List()
	if len(l.Items) == 0 { // an empty list before 1.6
		if w.split = true; w.newer {
			r.tools = jinja.None
		}
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
		if later, _ := tool.Get("defer_loading"); given(later) {
			return unknown("a tool that is loaded later")
		}
		f := w.dec.slab.dict(4)
		for _, key := range [][2]string{{"name", "name"}, {"description", "description"}, {"parameters", "input_schema"}, {"strict", "strict"}} {
			v, _ := tool.Get(key[1])
			if key[0] == "strict" && given(v) { // read since 1.6
				if w.split = true; !w.newer {
					continue
				}
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
