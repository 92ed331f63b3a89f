package chat

import (
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// lastText returns the text of the last message: the one that the engine shall
// continue.
func (w *worker) lastText() (string, *Error) {
	v, _ := w.list[len(w.list)-1].Dict().Get("content")
	text := v.Text()
	if l := v.List(); l != nil {
		for i := len(l.Items) - 1; i >= 0 && text == ""; i-- {
			if part := l.Items[i].Dict(); part != nil {
				t, _ := part.Get("text")
				text = t.Text()
			}
		}
	}
	if w.media || jinja.Strip(text) == "" {
		return "", unknown("the message to be continued has no text")
	}
	return text, nil
}

// resumed cuts a rendered chat behind the text of its last message, as
// transformers does: behind its white space, too, where the template kept it.
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
