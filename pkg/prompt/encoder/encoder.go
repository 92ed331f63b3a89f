package encoder

import (
	"errors"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
)

// Tokenizer is what an encoder needs of a model's tokenizer. Prefix, all
// segments and Suffix together are the token ids of a text. A segment is the
// text from an end returned before, or from 0, to the next place where the text
// can be cut: what is before never changes the ids behind it, and what is
// behind never those before. It must be safe for concurrent use.
type Tokenizer interface {
	AppendSegment(dst []uint32, text string, from int) (ids []uint32, end int)
	Prefix(special bool) []uint32
	Suffix(special bool) []uint32
}

// Template turns the body of a chat, of any API, into the text of its prompt. It
// must be safe for concurrent use.
type Template interface {
	Render(kind prompt.Kind, body []byte, now time.Time) (chat.Prompt, error)
}

// bufferTemplate is a Template that can write its text to memory of the caller,
// and need not look for what the scan has found.
type bufferTemplate interface {
	RenderScanned(buf []byte, kind prompt.Kind, body []byte, scanned *prompt.Body, now time.Time) (chat.Prompt, []byte, error)
}

// Config is what makes an encoder.
type Config struct {
	Tokenizer Tokenizer
	// Template may be nil: a model without a chat template has only completions.
	Template Template
	// Layout is how the engine cuts prompts into blocks. Size is at least 1.
	Layout block.Layout
	// MemoBytes bounds the memory of the memo, in bytes. Too little for
	// anything, about 4 KB, means no memo.
	MemoBytes int64
	// Random seeds the memo's hashes. It should differ from process to process
	// and be known to nobody.
	Random uint64
}

// Encoder turns the prompts of one model into block hashes. It is safe for
// concurrent use.
type Encoder struct {
	tokenizer Tokenizer
	template  Template
	buffered  bufferTemplate // template, when it is one
	layout    block.Layout
	memo      *memo // nil: none
}

// New returns an encoder.
func New(c Config) (*Encoder, error) {
	switch {
	case c.Tokenizer == nil:
		return nil, errors.New("encoder: no tokenizer")
	case c.Layout.Size < 1:
		return nil, errors.New("encoder: the size of a block must be at least 1")
	}
	buffered, _ := c.Template.(bufferTemplate)
	return &Encoder{
		tokenizer: c.Tokenizer,
		template:  c.Template,
		buffered:  buffered,
		layout:    c.Layout,
		memo:      newMemo(c.Layout, c.MemoBytes, c.Random),
	}, nil
}

// Stats returns the counters of the memo. Without one they stay 0.
func (e *Encoder) Stats() Stats {
	if e.memo == nil {
		return Stats{}
	}
	return e.memo.stats()
}

// Encode puts into r what the prompt of a body comes to. scanned is the body as
// [prompt.Body.Scan] found it; token ids in it are taken as they are. seed is
// that of the block hashes, now the time a template may print. body must not
// change meanwhile. An error is a [*chat.Error], or whatever else the template
// gives, or [ErrTokenizer]; r is then empty.
func (e *Encoder) Encode(r *Result, kind prompt.Kind, body []byte, scanned *prompt.Body, seed block.Seed, now time.Time) error {
	r.reset()
	if scanned.Exact {
		e.encodeIDs(r, scanned.Tokens, seed)
		return nil
	}
	text, err := e.Text(r, kind, body, scanned, now)
	if err != nil {
		return err
	}
	return e.EncodeText(r, text, seed)
}

// Text returns the text of the prompt of a body, for [Encoder.EncodeText]. It may
// lie in r or in body: it is valid until either is used for something else. The
// rest is as with [Encoder.Encode].
func (e *Encoder) Text(r *Result, kind prompt.Kind, body []byte, scanned *prompt.Body, now time.Time) (p chat.Prompt, err error) {
	switch {
	case kind == prompt.Completion:
		return chat.Completion(body, scanned.Start, scanned.End)
	case e.template == nil:
		return chat.Prompt{}, &chat.Error{Code: chat.CodeTemplate, Msg: "the model has no chat template"}
	case e.buffered == nil:
		return e.template.Render(kind, body, now)
	}
	p, r.text, err = e.buffered.RenderScanned(r.text, kind, body, scanned, now)
	return p, err
}

// encodeIDs is for a prompt that comes as token ids.
func (e *Encoder) encodeIDs(r *Result, ids []uint32, seed block.Seed) {
	r.hashes = e.layout.AppendHashes(r.hashes, ids, seed)
	r.Chains = block.AppendChains(r.Chains, r.hashes)
	r.Tokens, r.Whole = len(ids), true
	if r.WantIDs {
		r.IDs = append(r.IDs, ids...)
		r.Hashes = append(r.Hashes, r.hashes...)
	}
}
