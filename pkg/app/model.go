package app

import (
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
	revision string
	template encoder.Template
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
func (m *model) encode(r *encoder.Result, kind prompt.Kind, body []byte, seed block.Seed, special bool, now time.Time) error {
	text, err := m.template.Render(kind, body, now)
	if err != nil {
		return err
	}
	if kind == prompt.Completion {
		text.AddSpecial = special
	}
	return m.encoder.EncodeText(r, text, seed)
}

// fill fills in a prompt.
func (m *model) fill(p *extproc.Prompt, now time.Time) error {
	r := m.result()
	defer m.done(r)
	if err := m.encode(r, p.Kind, p.Body, p.Seed, m.gate.Special(), now); err != nil {
		return err
	}
	p.Source, p.Tokens, p.Partial = extproc.InProcess, r.Tokens, !r.Whole
	p.Chains, r.Chains = r.Chains, p.Chains
	return nil
}

// local renders cases as the gate wants it.
func (m *model) local(now time.Time) parity.Local {
	return func(c *parity.Case, special bool) (ids []uint32, partial, ok bool) {
		r := &encoder.Result{WantIDs: true}
		if err := m.encode(r, c.Kind, c.Body, 0, special, now); err != nil {
			return nil, false, false
		}
		return r.IDs, !r.Whole, true
	}
}

// reasonOf returns a metric label for an error of encode.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*chat.Error](err); ok {
		return e.Code
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
