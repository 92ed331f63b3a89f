package app

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// model is one version of a model's files, made ready: what turns prompts into
// chains, and the gate that says when it may.
type model struct {
	source   string // where its files came from
	revision string // of the files, and of a template that takes the place of theirs
	files    string // of the files alone
	zone     *time.Location
	noChats  error // why there is no chat template that can be used
	maxText  int   // the longest text that is tokenized, in bytes; 0: any
	encoder  *encoder.Encoder
	gate     *parity.Gate
	results  sync.Pool // of *encoder.Result
}

// maxResult bounds what a pooled result keeps, in bytes.
const maxResult = 8 << 20

func (m *model) result() *encoder.Result {
	if r, ok := m.results.Get().(*encoder.Result); ok {
		return r
	}
	return &encoder.Result{}
}

func (m *model) done(r *encoder.Result) {
	if r.WantIDs = false; r.Room() <= maxResult {
		m.results.Put(r)
	}
}

// encode renders a body and puts into r what its prompt comes to. special is for
// completions that do not say themselves how they begin.
func (m *model) encode(r *encoder.Result, kind prompt.Kind, body []byte, scanned *prompt.Body, seed block.Seed, special bool, now time.Time) error {
	switch {
	case kind != prompt.Completion && m.noChats != nil:
		return m.noChats
	case kind == prompt.Completion && scanned.HasMedia:
		return errEmbeds
	}
	text, err := m.encoder.Text(r, kind, body, scanned, now.In(m.zone))
	if err != nil {
		return err
	}
	if m.maxText > 0 && len(text.Text) > m.maxText { // a template stops at the same limit
		return errTooLong
	}
	if kind == prompt.Completion && scanned.Features&prompt.HasSpecial == 0 { // the body does not say
		text.AddSpecial = special
	}
	return m.encoder.EncodeText(r, text, seed)
}

var (
	errNoTemplate = &chat.Error{Code: "no_template", Msg: "the model has no chat template"}
	errTooLong    = &chat.Error{Code: chat.CodeOutput, Msg: "the prompt is longer than is allowed"}
	errEmbeds     = &chat.Error{Code: chat.CodeRequest, Msg: "the prompt is more than text"}
)

// fill fills in a prompt.
func (m *model) fill(p *extproc.Prompt, now time.Time) error {
	r := m.result()
	defer m.done(r)
	if err := m.encode(r, p.Kind, p.Body, p.Scanned, p.Seed, m.gate.Special(), now); err != nil {
		return err
	}
	p.Source, p.Tokens, p.Partial = extproc.InProcess, r.Tokens, !r.Whole
	p.Chains, r.Chains = r.Chains, p.Chains
	return nil
}

// local renders cases as the gate wants it.
func (p *inProcess) local(m *model, now time.Time) parity.Local {
	return func(c *parity.Case, special bool) (ids []uint32, partial, ok bool) {
		r := &encoder.Result{WantIDs: true}
		err := guarded(p.cfg.Log, func() error { return m.encodeUnscanned(r, c.Kind, c.Body, special, now) })
		if err != nil {
			return nil, false, false
		}
		return r.IDs, !r.Whole, true
	}
}

// encodeUnscanned is encode of a body that nobody has looked into yet. One that
// names no model is fine: engines have theirs by many names.
func (m *model) encodeUnscanned(r *encoder.Result, kind prompt.Kind, body []byte, special bool, now time.Time) error {
	scanned := prompt.Body{Decode: true}
	err := scanned.Scan(kind, body)
	if e, ok := errors.AsType[*prompt.Error](err); ok && e.Code == prompt.CodeMissingModel {
		at := bytes.IndexByte(body, '{') + 1
		body = append([]byte(`{"model":"-",`), body[at:]...)
		err = scanned.Scan(kind, body)
	}
	if err != nil {
		return err
	}
	return m.encode(r, kind, body, &scanned, 0, special, now)
}

// reasonOf returns a metric label for an error of encode.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*chat.Error](err); ok {
		return e.Code
	}
	if errors.Is(err, errPanic) {
		return "panic"
	}
	return "tokenizer"
}

// codeOf returns a metric label for an error of getting the files.
func codeOf(err error) string {
	if code := modelfiles.CodeOf(err); code != "" {
		return string(code)
	}
	return "unsupported"
}
