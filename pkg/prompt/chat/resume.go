package chat

import (
	"slices"
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// lastText returns the text of the last message: the one that the engine shall
// continue. Of parts, that is the last one with a text.
func (w *worker) lastText() (string, *Error) {
	v, _ := w.list[len(w.list)-1].Dict().Get("content")
	text := v.Text()
	if part := lastPart(v); part != nil {
		t, _ := part.Get("text")
		text = t.Text()
	}
	if w.media || jinja.Strip(text) == "" {
		return "", unknown("the message to be continued has no text")
	}
	return text, nil
}

// lastPart returns the last part of content that has a text, nil for none.
func lastPart(content jinja.Value) *jinja.Dict {
	if l := content.List(); l != nil {
		for _, item := range slices.Backward(l.Items) {
			if part := item.Dict(); part != nil {
				if _, ok := part.Get("text"); ok {
					return part
				}
			}
		}
	}
	return nil
}

// continueTag is what newer versions of transformers (4.54 on) put at the end of
// the message to be continued, to find it again.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// tag puts continueTag at the end of the last message, which is a copy.
func (w *worker) tag() {
	last := w.list[len(w.list)-1].Dict()
	content, _ := last.Get("content")
	if part := lastPart(content); part != nil {
		text, _ := part.Get("text")
		part.Set("text", jinja.String(text.Text()+continueTag))
		return
	}
	last.Set("content", jinja.String(content.Text()+continueTag))
}

// resumedAtTag cuts a rendered chat at the tag, as newer versions of transformers
// do.
func resumedAtTag(chat string) (string, *Error) {
	at := strings.LastIndex(chat, strings.TrimSpace(continueTag))
	switch {
	case at < 0:
		return "", unknown("a message to be continued of which the template keeps no end")
	case strings.HasPrefix(chat[at:], continueTag):
		return chat[:at], nil
	}
	return jinja.RightStrip(chat[:at]), nil
}

// resumed cuts a rendered chat behind the text of its last message, as older
// versions of transformers do: behind its white space, too, where the template kept it.
func resumed(chat, last string) (string, *Error) {
	left := jinja.LeftStrip(last)
	core := jinja.Strip(last)
	at := strings.LastIndex(chat, core)
	if at < 0 {
		return "", invalid("the message to be continued is not in the prompt")
	}
	if strings.HasPrefix(chat[at:], left) && left == last {
		return chat[:at+len(left)], nil
	}
	return chat[:at+len(core)], nil
}
