package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// dynamoResponses brings a request of the Responses API into the form of a chat
// completion, as Dynamo does: what the assistant said, called and thought between
// two messages of others becomes one message.
func (w *worker) dynamoResponses() *Error {
	r := &w.req
	if given(r.kwargs) { // read since 1.5
		if w.split = true; !w.newer {
			r.kwargs = jinja.Undefined
		}
	}
	var b dynamoChat
	if given(r.instructions) {
		if r.instructions.Kind() != jinja.KindString {
			return invalid("instructions are no text")
		}
		b.list = append(b.list, w.message("system", r.instructions))
	}
	switch {
	case r.input.Kind() == jinja.KindString:
		b.list = append(b.list, w.message("user", r.input))
	case r.input.List() != nil:
		for _, v := range r.input.List().Items {
			if err := w.part(); err != nil {
				return err
			}
			item := v.Dict()
			if item == nil {
				return invalid("an item of input is not an object")
			}
			if err := w.dynamoItem(&b, item); err != nil {
				return err
			}
		}
		w.endTurn(&b)
	default:
		return invalid("input is neither a text nor a list")
	}
	r.messages = w.listOf(w.leadingSystem(b.list))
	if d := r.reasoning.Dict(); d != nil {
		r.effort, _ = d.Get("effort")
	}
	return w.responsesTools()
}

// dynamoChat is a chat that is being put together.
type dynamoChat struct {
	list []*jinja.Dict

	// what the assistant did since the last message of another
	turn  bool
	text  strings.Builder
	calls []jinja.Value
	// thoughts before each call, and those after the last one. Up to 1.5, a
	// responses request had them as one text.
	thoughts []string
}

func (b *dynamoChat) think(text, join string) {
	b.turn = true
	for len(b.thoughts) <= len(b.calls) {
		b.thoughts = append(b.thoughts, "")
	}
	last := &b.thoughts[len(b.calls)]
	if *last != "" && text != "" {
		*last += join
	}
	*last += text
}

// endTurn appends the message of the assistant, if there is one.
func (w *worker) endTurn(b *dynamoChat) {
	if !b.turn {
		return
	}
	m := w.message("assistant", jinja.Undefined)
	if b.text.Len() > 0 || len(b.calls) == 0 {
		m.Set("content", jinja.String(b.text.String()))
	}
	if all := strings.Join(b.thoughts, ""); all != "" {
		thoughts := jinja.String(all)
		if len(b.calls) > 0 {
			if w.split = true; w.newer {
				thoughts = w.segments(b)
			}
		}
		m.Set("reasoning_content", thoughts)
	}
	w.finish(b, m)
}

// segments returns the thoughts around each call.
func (w *worker) segments(b *dynamoChat) jinja.Value {
	l := w.dec.slab.list(len(b.calls) + 1)
	for i := range l.Items {
		l.Items[i] = jinja.String("")
		if i < len(b.thoughts) {
			l.Items[i] = jinja.String(b.thoughts[i])
		}
	}
	return jinja.ListOf(l)
}

// finish appends a message of the assistant and starts over.
func (w *worker) finish(b *dynamoChat, m *jinja.Dict) {
	if len(b.calls) > 0 {
		m.Set("tool_calls", jinja.ListOf(&jinja.List{Items: b.calls}))
	}
	*b = dynamoChat{list: append(b.list, m)}
}

// dynamoItem reads one item of input.
func (w *worker) dynamoItem(b *dynamoChat, item *jinja.Dict) *Error {
	kind, _ := item.Get("type")
	id, _ := item.Get("call_id")
	switch kind.Text() {
	case "function_call":
		name, _ := item.Get("name")
		args, _ := item.Get("arguments")
		if space, _ := item.Get("namespace"); given(space) {
			return unknown("a call in a namespace")
		}
		b.turn = true
		b.calls = append(b.calls, w.call(id, name, args))
		return nil
	case "function_call_output":
		output, _ := item.Get("output")
		text, err := w.joined(output, "input_text")
		if err != nil {
			return err
		}
		w.endTurn(b)
		m := w.message("tool", text)
		m.Set("tool_call_id", id)
		b.list = append(b.list, m)
		return nil
	case "reasoning":
		return w.dynamoThought(b, item)
	case "item_reference": // skipped
		return nil
	case "message", "":
		return w.responseMessage(b, item, kind.Text() == "")
	}
	return unknown("an item of input of an unknown type")
}

// dynamoThought reads an item of reasoning: its summary, in 1.6 rather its content.
func (w *worker) dynamoThought(b *dynamoChat, item *jinja.Dict) *Error {
	text := func(key, kind string) (string, *Error) {
		v, _ := item.Get(key)
		if !given(v) {
			return "", nil
		}
		if v.List() == nil {
			return "", invalid("reasoning without a list")
		}
		joined, err := w.joined(v, kind)
		return joined.Text(), err
	}
	content, err := text("content", "reasoning_text")
	if err != nil {
		return err
	}
	summary, err := text("summary", "summary_text")
	if err != nil {
		return err
	}
	if content != "" {
		if w.split = true; w.newer {
			summary = content
		}
	}
	b.think(summary, "")
	return nil
}

// responseMessage reads a message of the input. The easy form is one without a
// type.
func (w *worker) responseMessage(b *dynamoChat, item *jinja.Dict, easy bool) *Error {
	role, _ := item.Get("role")
	content, _ := item.Get("content")
	switch role.Text() {
	case "assistant":
		text, err := w.joined(content, "output_text", "input_text", "refusal")
		if err != nil {
			return err
		}
		b.turn = true
		b.text.WriteString(text.Text())
		return nil
	case "system", "developer":
		text, err := w.joined(content, "input_text")
		if err != nil {
			return err
		}
		w.endTurn(b)
		b.list = append(b.list, w.message("system", text))
		return nil
	case "user":
		parts, err := w.userContent(content, easy)
		if err != nil {
			return err
		}
		w.endTurn(b)
		b.list = append(b.list, w.message("user", parts))
		return nil
	}
	return unknown("an item of input of an unknown role")
}

// joined returns a content that is a text, or texts of the given types one after
// another.
func (w *worker) joined(v jinja.Value, types ...string) (jinja.Value, *Error) {
	if v.Kind() == jinja.KindString {
		return v, nil
	}
	if v.List() == nil {
		return v, invalid("content is neither a text nor a list")
	}
	var all strings.Builder
	for _, item := range v.List().Items {
		if err := w.part(); err != nil {
			return v, err
		}
		part := item.Dict()
		if part == nil {
			return v, invalid("a part of content is not an object")
		}
		kind, _ := part.Get("type")
		text := jinja.Undefined
		for _, t := range types {
			if kind.Text() != t {
				continue
			}
			if t != "refusal" {
				t = "text"
			}
			text, _ = part.Get(t)
		}
		if text.Kind() != jinja.KindString {
			return v, unknown("a part of content that is no text")
		}
		all.WriteString(text.Text())
	}
	return jinja.String(all.String()), nil
}

// userContent brings the content of a user's message into the form of a chat.
func (w *worker) userContent(v jinja.Value, easy bool) (jinja.Value, *Error) {
	l := v.List()
	if l == nil {
		return w.joined(v)
	}
	if len(l.Items) == 0 {
		return v, unknown("a message with nothing in it")
	}
	if easy && len(l.Items) > 1 { // one text in 1.2
		if w.differs(); !w.latest() {
			return w.joined(v, "input_text")
		}
	}
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		part := item.Dict()
		if part == nil {
			return v, invalid("a part of content is not an object")
		}
		kind, _ := part.Get("type")
		text, _ := part.Get("text")
		switch {
		case kind.Text() == "input_text" && text.Kind() == jinja.KindString:
			out.Items[i] = w.textPart(text)
		case kind.Text() == "input_image" && w.t.opts.Since13: // 1.2 drops some
			image := w.dec.slab.dict(1)
			image.Set("type", jinja.String("image_url"))
			out.Items[i] = jinja.DictOf(image)
		default:
			return v, unknown("a part of content that is no text")
		}
	}
	return jinja.ListOf(out), nil
}

// leadingSystem makes the messages of the system at the start one, as releases
// from 1.3 on do.
func (w *worker) leadingSystem(list []*jinja.Dict) []*jinja.Dict {
	n := 0
	for ; n < len(list); n++ {
		if role, _ := list[n].Get("role"); role.Text() != "system" {
			break
		}
	}
	if n < 2 {
		return list
	}
	if w.differs(); !w.latest() {
		return list
	}
	texts := make([]string, n)
	for i, m := range list[:n] {
		content, _ := m.Get("content")
		texts[i] = content.Text()
	}
	list[n-1] = w.message("system", jinja.String(strings.Join(texts, "\n\n")))
	return list[n-1:]
}

// responsesTools brings tools into the form of a chat completion. Releases up to
// 1.5 drop a search of the web, later ones refuse the request.
func (w *worker) responsesTools() *Error {
	r := &w.req
	if choice := r.toolChoice.Dict(); choice != nil {
		if kind, _ := choice.Get("type"); kind.Text() != "function" {
			return unknown("a choice of tools of an unknown type")
		}
	}
	if !given(r.tools) {
		return nil
	}
	var out []jinja.Value
	for _, item := range r.tools.List().Items {
		tool := item.Dict()
		if tool == nil {
			return invalid("a tool is not an object")
		}
		kind, _ := tool.Get("type")
		switch kind.Text() {
		case "function":
			t := w.dec.slab.dict(2)
			t.Set("type", kind)
			t.Set("function", item)
			out = append(out, jinja.DictOf(t))
		case "web_search":
		default:
			return unknown("a tool that is no function")
		}
	}
	r.tools = jinja.None
	if len(out) > 0 {
		r.tools = jinja.ListOf(&jinja.List{Items: out})
	}
	return nil
}
