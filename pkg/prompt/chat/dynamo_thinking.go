package chat

import (
	"slices"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// thinking is what an Anthropic request says of it.
type thinking uint8

const (
	thinkingAsIs thinking = iota // not an Anthropic request, or it says off
	thinkingOpen                 // says nothing: on, where the pool has a parser of thoughts
	thinkingOn
)

// switches are the variables by which templates switch thinking. Releases of
// Dynamo differ in which of them they set by which others.
var switches = []string{"reasoning_effort", "enable_thinking", "thinking", "thinking_mode"}

// dynamoThinking sets the switches that follow from another: none in 1.2, all in
// 1.6.
func (w *worker) dynamoThinking() *Error {
	if w.switchy != thinkingAsIs {
		w.openThinking()
		return nil
	}
	n, from := 0, ""
	for _, name := range switches {
		if v, ok := w.vars.Get(name); ok && given(v) {
			n, from = n+1, name
		}
	}
	if given(w.req.effort) {
		n, from = n+1, "reasoning_effort"
	}
	switch {
	case n == 0 || !w.usesSwitch():
		return nil
	case n > 1:
		return unknown("several switches of thinking")
	}
	v, ok := w.vars.Get(from)
	if !ok {
		v = w.req.effort
		w.switchTo(from, v)
	}
	var on bool
	switch {
	case from == "reasoning_effort" && v.Kind() == jinja.KindString:
		on = v.Text() != "none"
	case from == "thinking_mode" && (v.Text() == "enabled" || v.Text() == "disabled"):
		on = v.Text() == "enabled"
	case v.Kind() == jinja.KindBool && from != "thinking_mode":
		on = v == jinja.Bool(true)
	default:
		return unknown("a switch of thinking of an unknown kind")
	}
	w.switchAll(on)
	return nil
}

func (w *worker) usesSwitch() bool { return slices.ContainsFunc(switches, w.t.jinja.Uses) }

// switchTo sets a variable as only newer releases do.
func (w *worker) switchTo(name string, v jinja.Value) {
	if _, ok := w.vars.Get(name); ok {
		return
	}
	if w.newer {
		w.set(name, v)
	}
	w.split = w.split || w.t.jinja.Uses(name)
}

func (w *worker) switchAll(on bool) {
	mode := "disabled"
	if on {
		mode = "enabled"
	}
	w.switchTo("enable_thinking", jinja.Bool(on))
	w.switchTo("thinking", jinja.Bool(on))
	w.switchTo("thinking_mode", jinja.String(mode))
}

// openThinking sets the switches for an Anthropic request. A frontend whose workers
// have a parser of thoughts switches thinking on, and keeps older thoughts.
func (w *worker) openThinking() {
	if w.switchy == thinkingOn {
		w.set("enable_thinking", jinja.Bool(true))
	}
	w.switchAll(true)
	w.switchTo("truncate_history_thinking", jinja.Bool(false))
}
