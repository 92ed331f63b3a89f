package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

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
	}
	tools := jinja.None
	if given(w.req.tools) && !w.dropTools() {
		if tools, err = w.vllmTools(); err != nil {
			return err
		}
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
	}
	return nil
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
	given0, _ := m.Get("content")
	content, err := w.vllmContent(given0)
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
	case w.t.opts.ReasoningOnly:
		return v, nil
	case v.Kind() == jinja.KindString && v.Text() == "" && (old.Kind() != jinja.KindString || old.Text() != ""):
		return v, unknown("an empty reasoning")
	case given(v):
		return v, nil
	}
	return old, nil
}

// toolCalls copies calls, with their arguments read: clients send them as a text
// of JSON, and templates want the object.
func (w *worker) toolCalls(l *jinja.List) (jinja.Value, *Error) {
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

// vllmContent brings content into the form that the template wants.
func (w *worker) vllmContent(v jinja.Value) (jinja.Value, *Error) {
	switch v.Kind() {
	case jinja.KindNone, jinja.KindUndefined:
		if w.t.parts {
			return jinja.ListOf(w.dec.slab.list(0)), nil
		}
		return jinja.String(""), nil
	case jinja.KindString:
		if w.t.parts {
			l := w.dec.slab.list(1)
			l.Items[0] = w.textPart(v)
			return jinja.ListOf(l), nil
		}
		return v, nil
	case jinja.KindList:
		if w.t.parts {
			return w.contentParts(v.List())
		}
		return w.contentText(v.List())
	}
	return v, invalid("content is neither a text nor a list")
}

func (w *worker) textPart(text jinja.Value) jinja.Value {
	part := w.dec.slab.dict(2)
	part.Set("type", jinja.String("text"))
	part.Set("text", text)
	return jinja.DictOf(part)
}

// contentParts returns the parts as templates know them: texts, and media without
// their data.
func (w *worker) contentParts(l *jinja.List) (jinja.Value, *Error) {
	out := w.dec.slab.list(len(l.Items))
	n := 0
	for _, item := range l.Items {
		text, media, skip, err := w.contentPart(item)
		switch {
		case err != nil:
			return item, err
		case skip:
			continue
		case media == "" && item.Kind() == jinja.KindString:
			if text.Text() == "" {
				continue
			}
			out.Items[n] = text // vLLM leaves a bare text as it is
		case media == "":
			out.Items[n] = w.textPart(text)
		case w.variant:
			out.Items[n] = w.textPart(jinja.String("\x02"))
		default:
			part := w.dec.slab.dict(1)
			part.Set("type", jinja.String(media))
			out.Items[n] = jinja.DictOf(part)
		}
		n++
	}
	out.Items = out.Items[:n]
	return jinja.ListOf(out), nil
}

// contentText returns the texts of the parts, joined by line breaks. vLLM puts a
// text of the model for each medium before them; what it is is not known here,
// so a mark stands for it.
func (w *worker) contentText(l *jinja.List) (jinja.Value, *Error) {
	var texts []string
	marked := false
	for _, item := range l.Items {
		text, media, skip, err := w.contentPart(item)
		switch {
		case err != nil:
			return item, err
		case media != "":
			marked = true
		case !skip && text.Text() != "":
			texts = append(texts, text.Text())
		}
	}
	if marked {
		mark := "\x01"
		if w.variant {
			mark = "\x02"
		}
		texts = append([]string{mark}, texts...)
	}
	return jinja.String(strings.Join(texts, "\n")), nil
}

// contentPart reads one part: its text, or what kind of medium it is.
func (w *worker) contentPart(v jinja.Value) (text jinja.Value, media string, skip bool, err *Error) {
	if err := w.part(); err != nil {
		return v, "", false, err
	}
	if v.Kind() == jinja.KindString {
		return v, "", false, nil
	}
	part := v.Dict()
	if part == nil {
		return v, "", false, invalid("a part of content is not an object")
	}
	kind, _ := part.Get("type")
	key := ""
	switch kind.Text() {
	case "text", "input_text", "output_text":
		key = "text"
	case "refusal", "thinking":
		key = kind.Text()
	default:
		media, err = mediaOf(kind, part)
		w.media = true
		return v, media, false, err
	}
	text, _ = part.Get(key)
	switch {
	case text.Kind() == jinja.KindString:
		return text, "", false, nil
	case !given(text) && (kind.Text() == "text" || key == "refusal"):
		return text, "", true, nil
	}
	return v, "", false, invalid("a part of content has no text")
}

// mediaOf returns what a part is for templates: image, audio or video. A part
// without a type is known by its keys.
func mediaOf(kind jinja.Value, part *jinja.Dict) (string, *Error) {
	names := []string{kind.Text()}
	if !given(kind) {
		names = []string{"image_url", "image_pil", "image_embeds", "audio_embeds", "audio_url", "input_audio", "video_url"}
	}
	for _, name := range names {
		if _, ok := part.Get(name); !ok && !given(kind) {
			continue
		}
		switch name {
		case "image_url", "input_image", "image_pil", "image_embeds":
			return "image", nil
		case "audio_url", "input_audio", "audio_embeds":
			return "audio", nil
		case "video_url":
			return "video", nil
		}
	}
	return "", unknown("a part of content of an unknown type")
}

// vllmTools returns the tools as vLLM's types print them: what is missing is
// null, and what is unknown comes last.
func (w *worker) vllmTools() (jinja.Value, *Error) {
	l := w.req.tools.List()
	out := w.dec.slab.list(len(l.Items))
	for i, item := range l.Items {
		tool := item.Dict()
		if tool == nil {
			return item, invalid("a tool is not an object")
		}
		fv, _ := tool.Get("function")
		function := fv.Dict()
		kind, ok := tool.Get("type")
		switch {
		case ok && kind.Text() != "function":
			return item, unknown("a tool that is no function")
		case function == nil:
			return item, invalid("a tool has no function")
		}
		if name, _ := function.Get("name"); name.Kind() != jinja.KindString {
			return item, invalid("a tool has no name")
		}
		t := w.ordered(tool, "type", "function")
		t.Set("type", jinja.String("function"))
		t.Set("function", jinja.DictOf(w.ordered(function, "name", "description", "parameters")))
		out.Items[i] = jinja.DictOf(t)
	}
	return jinja.ListOf(out), nil
}

// ordered returns a copy of d that starts with the given keys, null where d has
// none.
func (w *worker) ordered(d *jinja.Dict, keys ...string) *jinja.Dict {
	out := w.dec.slab.dict(d.Len() + len(keys))
	for _, key := range keys {
		v, ok := d.Get(key)
		if !ok {
			v = jinja.None
		}
		out.Set(key, v)
	}
	for _, e := range d.Entries() {
		out.Set(e.Key.Text(), e.Val)
	}
	return out
}
