package chat

import (
	"time"
	"unicode/utf8"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// worker is what one rendering needs.
type worker struct {
	t    *Template
	dec  decoder
	req  request
	vars jinja.Dict
	room []jinja.Entry // of vars
	out  []byte

	list    []jinja.Value // messages in their final form
	media   bool          // a message has more than text
	variant bool          // media are told apart: see usable
	asParts bool          // content is given as parts
	newer   bool          // as newer versions do it: see thinks, confirmDynamo
	split   bool          // releases of Dynamo differ on something: see confirmDynamo
	switchy thinking      // of an Anthropic request in Dynamo's way
	tagged  bool          // the last message has a mark at its end: see confirmResumed
	resume  string        // the end of the last message, which is to be continued
	parts   int           // parts of content that may still come
}

// Render returns the prompt of a body of the given kind, which must not change
// meanwhile. The date that a template may print is that of now, in its zone. The
// error is an [*Error].
func (t *Template) Render(kind prompt.Kind, body []byte, now time.Time) (Prompt, error) {
	p, _, err := t.RenderTo(nil, kind, body, now)
	return p, err
}

// RenderTo is like [Template.Render], but writes the text to buf, from its start,
// and returns buf, grown as needed. The text is valid until buf is used again.
func (t *Template) RenderTo(buf []byte, kind prompt.Kind, body []byte, now time.Time) (Prompt, []byte, error) {
	return t.RenderScanned(buf, kind, body, nil, now)
}

// RenderScanned is like [Template.RenderTo] for a body that was scanned before:
// scanned is what [prompt.Body.Scan] found in it, which spares a part of reading
// it again. It may be nil.
func (t *Template) RenderScanned(buf []byte, kind prompt.Kind, body []byte, scanned *prompt.Body, now time.Time) (Prompt, []byte, error) {
	w, _ := t.pool.Get().(*worker)
	if w == nil {
		w = &worker{t: t}
	}
	w.out = buf[:0]
	p, err := w.render(kind, body, scanned, now)
	buf = w.out
	w.release()
	t.pool.Put(w)
	if err != nil {
		return Prompt{}, buf, err
	}
	return p, buf, nil
}

// maxKept is how much memory a worker keeps for the next request.
const maxKept = 1 << 20

// release drops what belongs to a request.
func (w *worker) release() {
	w.dec.slab.reset()
	w.dec.Scanner, w.dec.decoded = jsonscan.Scanner{}, nil
	if cap(w.dec.text) > maxKept || cap(w.dec.slab.values)+cap(w.dec.slab.entries) > maxKept/64 {
		w.dec = decoder{}
	}
	clear(w.list)
	clear(w.room)
	clear(w.dec.fields[:cap(w.dec.fields)])
	clear(w.dec.values[:cap(w.dec.values)])
	w.req, w.list, w.out, w.resume = request{}, w.list[:0], nil, ""
	w.vars = jinja.Dict{}
	w.media, w.variant, w.newer, w.tagged, w.split = false, false, false, false, false
	w.switchy = thinkingAsIs
}

func (w *worker) render(kind prompt.Kind, body []byte, scanned *prompt.Body, now time.Time) (Prompt, *Error) {
	limits := w.t.opts.Limits
	w.dec.start(body, 10*limits.Parts)
	if scanned != nil {
		w.dec.Known, w.dec.decoded = scanned.Strings()
	}
	w.parts = limits.Parts
	if err := w.dec.read(kind, &w.req); err != nil {
		return Prompt{}, err
	}
	if err := w.req.check(); err != nil {
		return Prompt{}, err
	}
	given := w.req
	if err := w.asChat(kind); err != nil {
		return Prompt{}, err
	}
	special, err := flag(w.req.special, false)
	if err != nil {
		return Prompt{}, err
	}
	w.asParts = w.t.parts
	text, err := w.text(len(body), now)
	if err != nil {
		return Prompt{}, err
	}
	if w.t.opts.Style == VLLM {
		err = w.confirm(text, len(body), now)
	} else {
		err = w.confirmDynamo(text, kind, given, len(body), now)
	}
	if err != nil {
		return Prompt{}, err
	}
	p := Prompt{Text: text, Usable: len(text), AddSpecial: special}
	p.AnySpecial = kind == prompt.Responses && w.t.opts.Style == VLLM
	if w.media {
		p.Usable, err = w.usable(text, len(body), now)
	}
	return p, err
}

// asChat brings the request into the form of a chat completion.
func (w *worker) asChat(kind prompt.Kind) *Error {
	dynamo := w.t.opts.Style == Dynamo
	switch {
	case kind == prompt.Chat:
		return nil
	case kind == prompt.Responses && dynamo:
		return w.dynamoResponses()
	case kind == prompt.Responses:
		return w.fromResponses()
	case kind == prompt.AnthropicMessages && dynamo:
		return w.dynamoAnthropic()
	case kind == prompt.AnthropicMessages:
		return w.fromAnthropic()
	}
	return unknown("a " + kindName(kind) + " is no chat")
}

// again renders the request once more, after a change, beside the text that there
// is.
func (w *worker) again(size int, now time.Time) (string, *Error) {
	out, resume := w.out, w.resume
	w.out = nil // the text is in it
	text, err := w.text(size, now)
	w.out, w.resume = out, resume
	return text, err
}

// confirm refuses a request for which versions of vLLM and transformers may give
// different prompts: where they differ, it is rendered the other way, too.
func (w *worker) confirm(text string, size int, now time.Time) *Error {
	if w.t.unsure {
		const msg = "a template for which versions of vLLM differ in the form of content"
		if w.media { // what media stand for is not known in one of the forms
			return unknown(msg)
		}
		w.asParts = !w.t.parts
		err := w.same(text, size, now, msg)
		w.asParts = w.t.parts
		if err != nil {
			return err
		}
	}
	if w.thinks() {
		w.newer = true
		err := w.same(text, size, now, "an effort, by which only some versions of vLLM switch thinking")
		w.newer = false
		if err != nil {
			return err
		}
	}
	if w.resume != "" {
		w.tagged = true
		err := w.same(text, size, now, "a message to be continued that versions of transformers cut in different places")
		w.tagged = false
		return err
	}
	return nil
}

// same renders the request once more and refuses it when the text differs.
func (w *worker) same(text string, size int, now time.Time, msg string) *Error {
	other, err := w.again(size, now)
	if err == nil && other != text || err != nil && (err.Code == CodeRaised || err.Code == CodeInvalid) {
		err = unknown(msg)
	}
	return err
}

// usable returns how many bytes of a text come before its first image, audio or
// video. The request is rendered again with something else in their place: what
// both texts begin with does not depend on them.
func (w *worker) usable(text string, size int, now time.Time) (int, *Error) {
	w.variant = true
	other, err := w.again(size, now)
	if err != nil {
		if err.Code == CodeRaised { // the template wants media, and only them
			return 0, nil
		}
		return 0, err
	}
	n := 0
	for n < len(text) && n < len(other) && text[n] == other[n] {
		n++
	}
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n, nil
}

// text renders the request.
func (w *worker) text(size int, now time.Time) (string, *Error) {
	var err *Error
	w.vars.Reset(w.room)
	w.list = w.list[:0]
	if w.t.opts.Style == Dynamo {
		err = w.dynamo()
	} else {
		err = w.vllm()
	}
	w.room = w.vars.Entries()
	if err != nil {
		return "", err
	}
	limits := w.t.opts.Limits
	env := jinja.Env{Now: now, Limits: jinja.Limits{Steps: limits.Steps, Output: limits.Output, Memory: limits.Memory}}
	if limits.Watch != nil {
		env.Limits.Check = limits.Watch()
	}
	if room := size + size/8 + 512; cap(w.out) < room {
		w.out = make([]byte, 0, room)
	}
	out, renderErr := w.t.jinja.Render(w.out[:0], &w.vars, env)
	w.out = out
	if renderErr != nil {
		return "", templateError(renderErr)
	}
	switch {
	case w.resume == "":
		return view(out), nil
	case w.tagged:
		return resumedAtTag(view(out))
	}
	return resumed(view(out), w.resume)
}

// messages checks the list of messages and its length.
func (w *worker) messages() ([]jinja.Value, *Error) {
	l := w.req.messages.List()
	switch {
	case l == nil || len(l.Items) == 0:
		return nil, invalid("there are no messages")
	case len(l.Items) > w.t.opts.Limits.Messages:
		return nil, &Error{CodeMessages, "the request has too many messages"}
	}
	w.parts = w.t.opts.Limits.Parts
	w.media = false
	return l.Items, nil
}

// part counts a part of content.
func (w *worker) part() *Error {
	if w.parts--; w.parts < 0 {
		return &Error{CodeMessages, "the request has too many parts"}
	}
	return nil
}

// dropTools reports whether tools are left out of the prompt.
func (w *worker) dropTools() bool {
	return w.t.opts.DropTools && w.req.toolChoice.Text() == "none"
}
