package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// vllmContent brings content into the form that the template wants.
func (w *worker) vllmContent(v jinja.Value) (jinja.Value, *Error) {
	switch v.Kind() {
	case jinja.KindNone, jinja.KindUndefined:
		if w.asParts {
			return jinja.ListOf(w.dec.slab.list(0)), nil
		}
		return jinja.String(""), nil
	case jinja.KindString:
		if w.asParts {
			l := w.dec.slab.list(1)
			l.Items[0] = w.textPart(v)
			return jinja.ListOf(l), nil
		}
		return v, nil
	case jinja.KindList:
		if w.asParts {
			return w.contentParts(v.List())
		}
		return w.contentText(v.List())
	default:
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
	var key string
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
