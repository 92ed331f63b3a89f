package chat

import (
	"strings"
	"time"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// dynamo sets the variables of the template as Dynamo's frontend does: releases
// 1.2.1 to 1.6.1, by what their workers were given. Its template engine is another
// one (minijinja), so only templates on which both agree can be right.
func (w *worker) dynamo() *Error {
	list, err := w.messages()
	if err != nil {
		return err
	}
	for _, m := range list {
		msg, err := w.dynamoMessage(m)
		if err != nil {
			return err
		}
		w.list = append(w.list, msg)
	}
	resume, err := flag(w.req.resume, false)
	if err != nil {
		return err
	}
	generate, err := flag(w.req.generate, true)
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
	w.base()
	if err := w.dynamoThinking(); err != nil {
		return err
	}
	w.set("messages", jinja.ListOf(&jinja.List{Items: w.list}))
	w.set("tools", tools)
	w.set("add_generation_prompt", jinja.Bool(generate)) // kwargs do not count
	return nil
}

// confirmDynamo refuses a request for which releases of Dynamo give different
// prompts: where they differ on something, it is rendered in the newest one's way,
// too. What is between the oldest and the newest differs from neither in more.
func (w *worker) confirmDynamo(text string, kind prompt.Kind, before request, size int, now time.Time) *Error {
	if !w.split {
		return nil
	}
	after, media := w.req, w.media
	w.req, w.newer = before, true
	w.parts = w.t.opts.Limits.Parts
	err := w.asChat(kind)
	if err == nil {
		err = w.same(text, size, now, "a request for which releases of Dynamo make different prompts")
	}
	w.req, w.newer, w.media = after, false, media
	return err
}

// latest reports whether releases from 1.3 on are followed.
func (w *worker) latest() bool { return w.newer || w.t.opts.Since13 }

// differs marks that release 1.2 makes something else of the request.
func (w *worker) differs() {
	w.split = w.split || !w.t.opts.Since13
}

// fieldsOf are the fields of messages that templates see, by role. Others are
// dropped.
var fieldsOf = map[string][]string{
	"system":    {"content", "name"},
	"developer": {"content", "name"},
	"user":      {"content", "name"},
	"assistant": {"content", "reasoning_content", "refusal", "name", "tool_calls"},
	"tool":      {"content", "tool_call_id"},
}

// dynamoMessage builds the message that a template sees: the fields that Dynamo
// knows, null ones left out. A content of nothing but texts becomes one.
func (w *worker) dynamoMessage(v jinja.Value) (jinja.Value, *Error) {
	m := v.Dict()
	if m == nil {
		return v, invalid("a message is not an object")
	}
	role, _ := m.Get("role")
	if role.Kind() != jinja.KindString {
		return v, invalid("a message has no role")
	}
	fields := fieldsOf[role.Text()]
	if fields == nil {
		return v, unknown("a message of an unknown role")
	}
	out := w.dec.slab.dict(1 + len(fields))
	out.Set("role", role)
	for _, key := range fields {
		val, _ := m.Get(key)
		if !given(val) {
			continue
		}
		var err *Error
		switch {
		case key == "content" && val.List() != nil:
			val, err = w.dynamoContent(val.List())
		case key == "content" && val.Kind() != jinja.KindString:
			err = invalid("content is neither a text nor a list")
		case key == "content" && w.t.parts:
			val = jinja.ListOf(&jinja.List{Items: []jinja.Value{w.textPart(val)}})
		case key == "tool_calls":
			val, err = w.dynamoCalls(val)
		}
		if err != nil {
			return v, err
		}
		out.Set(key, val)
	}
	if role.Text() == "assistant" {
		if err := w.dynamoThoughts(m, out); err != nil {
			return v, err
		}
	}
	return jinja.DictOf(out), nil
}

// dynamoThoughts brings the thoughts of a message to where the template looks for
// them: for one that does not read reasoning_content, they come before the content.
func (w *worker) dynamoThoughts(m, out *jinja.Dict) *Error {
	for _, key := range []string{"audio", "function_call"} {
		if v, _ := m.Get(key); given(v) {
			return unknown("a message of the assistant with " + key)
		}
	}
	thoughts, _ := out.Get("reasoning_content")
	if other, _ := m.Get("reasoning"); given(other) { // read since 1.5
		if given(thoughts) || other.Kind() != jinja.KindString {
			return unknown("a message with two fields of thoughts")
		}
		if w.split = true; w.newer {
			thoughts = other
			out.Set("reasoning_content", other)
		}
	}
	if w.t.thoughts || !given(thoughts) {
		return nil
	}
	parts := []jinja.Value{thoughts}
	if l := thoughts.List(); l != nil {
		parts = l.Items
	}
	var all strings.Builder
	for _, p := range parts {
		if p.Kind() != jinja.KindString {
			return invalid("thoughts are no text")
		}
		if p.Text() != "" {
			all.WriteString("<think>" + p.Text() + "</think>")
		}
	}
	if all.Len() == 0 {
		return nil
	}
	content, _ := out.Get("content")
	switch {
	case !given(content) && !w.t.parts:
		content = jinja.String(all.String())
	case content.Kind() == jinja.KindString:
		content = jinja.String(all.String() + content.Text())
	case content.List() != nil && w.t.parts && !w.media:
		parts := append([]jinja.Value{w.textPart(jinja.String(all.String()))}, content.List().Items...)
		content = jinja.ListOf(&jinja.List{Items: parts})
	default:
		return unknown("thoughts beside a content that is no text")
	}
	kept := w.dec.slab.dict(out.Len() + 1)
	for _, e := range out.Entries() {
		switch e.Key.Text() {
		case "role":
			kept.Set("role", e.Val)
			kept.Set("content", content)
		case "content", "reasoning_content":
		default:
			kept.Set(e.Key.Text(), e.Val)
		}
	}
	*out = *kept
	return nil
}

// wantsParts reports whether a template shows a content of parts, and does not show
// one that is a text: such a template is given parts.
func wantsParts(t *jinja.Template, limits Limits) bool {
	shown := func(content string) bool {
		messages, err := jinja.ParseJSON([]byte(`[{"role":"user","content":` + content + `}]`))
		if err != nil {
			return false
		}
		var vars jinja.Dict
		vars.Set("messages", messages)
		vars.Set("add_generation_prompt", jinja.Bool(false))
		bounds := jinja.Limits{Steps: limits.Steps, Output: limits.Output, Memory: limits.Memory}
		out, _ := t.Render(nil, &vars, jinja.Env{Limits: bounds})
		return strings.Contains(string(out), "template_test")
	}
	return shown(`[{"type":"text","text":"template_test"}]`) && !shown(`"template_test"`)
}

func (w *worker) dynamoContent(l *jinja.List) (jinja.Value, *Error) {
	texts := make([]string, 0, len(l.Items))
	media := make([]string, len(l.Items))
	for i, item := range l.Items {
		if err := w.part(); err != nil {
			return item, err
		}
		part := item.Dict()
		if part == nil {
			return item, invalid("a part of content is not an object")
		}
		kind, _ := part.Get("type")
		if kind.Text() != "text" {
			var err *Error
			if media[i], err = mediaOf(kind, part); err != nil {
				return item, err
			}
			w.media = true
			continue
		}
		text, _ := part.Get("text")
		if text.Kind() != jinja.KindString {
			return item, invalid("a part of content has no text")
		}
		texts = append(texts, text.Text())
	}
	if len(texts) == len(l.Items) && len(texts) > 0 && !w.t.parts {
		return jinja.String(strings.Join(texts, "\n")), nil
	}
	out := w.dec.slab.list(len(l.Items))
	for i := range l.Items {
		switch {
		case media[i] == "":
			out.Items[i] = w.textPart(jinja.String(texts[0]))
			texts = texts[1:]
		case w.variant:
			out.Items[i] = w.textPart(jinja.String("\x02"))
		default:
			part := w.dec.slab.dict(1)
			part.Set("type", jinja.String(media[i]))
			out.Items[i] = jinja.DictOf(part)
		}
	}
	return jinja.ListOf(out), nil
}
