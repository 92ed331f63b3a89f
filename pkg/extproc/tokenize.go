package extproc

import (
	"context"
	"errors"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// Tokenizer turns the prompt of a request body into the chains of its blocks,
// exactly as the engine will. It gives up when ctx ends. Its error is best a
// [*TokenizeError] and must not repeat the prompt.
type Tokenizer interface {
	Tokenize(ctx context.Context, p *Prompt) error
}

// Prompt is one prompt on its way to the chains of its blocks. The slices of an
// earlier prompt stay with it as room for the next; a tokenizer overwrites them,
// grown as needed, and keeps none of them.
type Prompt struct {
	Kind    prompt.Kind
	Body    []byte       // the request body; not to be changed
	Scanned *prompt.Body // what was read of it
	Seed    block.Seed   // of the block hashes: adapter and cache salt

	Source  Source        // where the ids came from
	Tokens  int           // length of the prompt in tokens, as far as Chains cover it
	Chains  []block.Chain // of the full blocks
	Partial bool          // the prompt goes on after Tokens, with what has no token ids, such as an image
	Lent    bool          // something may go on reading Body after Tokenize has returned, as HTTP transports do

	IDs    []uint32     // token ids, where there are any
	Hashes []block.Hash // of the full blocks

	text   []block.Chain // of the full runs of its text, where there are no ids
	pieces [][]byte      // of that text
}

// Hash sets tokens, hashes and chains of a prompt whose ids are known.
func (p *Prompt) Hash(layout block.Layout) {
	p.Tokens = len(p.IDs)
	p.Hashes = layout.AppendHashes(p.Hashes[:0], p.IDs, p.Seed)
	p.Chains = block.AppendChains(p.Chains[:0], p.Hashes)
}

// start makes p ready for the next prompt.
func (p *Prompt) start(kind prompt.Kind, body []byte, scanned *prompt.Body, seed block.Seed) {
	*p = Prompt{
		Kind: kind, Body: body, Scanned: scanned, Seed: seed,
		IDs: p.IDs[:0], Hashes: p.Hashes[:0], Chains: p.Chains[:0], text: p.text[:0], pieces: p.pieces[:0],
	}
}

// fail makes a prompt unknown, whatever a failed attempt left behind.
func (p *Prompt) fail() {
	p.Source, p.Tokens, p.Partial, p.Chains = Unknown, 0, false, p.Chains[:0]
}

// cut makes chains of the prompt's text, for want of token ids. A prompt that does
// not fill a run stays unknown.
func (p *Prompt) cut() {
	p.pieces = p.Scanned.AppendText(p.pieces, p.Body)
	p.Hashes = block.AppendTextHashes(p.Hashes[:0], block.NewTextSeed(p.Scanned.Model, p.Seed), p.pieces)
	if p.text = block.AppendChains(p.text, p.Hashes); len(p.text) > 0 {
		p.Source = Text
	}
}

// end lets go of the request.
func (p *Prompt) end() {
	p.Body, p.Scanned = nil, nil
	clear(p.pieces[:cap(p.pieces)])
}

// room is the memory that p keeps, in bytes.
func (p *Prompt) room() int {
	return 4*cap(p.IDs) + 8*cap(p.Hashes) + 8*cap(p.Chains) + 8*cap(p.text)
}

// Source is where the token ids of a prompt came from.
type Source uint8

// Sources of token ids.
const (
	Unknown   Source = iota // nowhere: the request is routed by load alone
	FromBody                // the request body
	InProcess               // a tokenizer in this process
	Engine                  // an engine, which was asked
	Text                    // nowhere: the request is matched by its text, approximately
	sources
)

// String returns the source as a metric label.
func (s Source) String() string {
	return [sources]string{"unknown", "token_ids", "in_process", "engine", "text"}[s]
}

// TokenizeError is why a prompt has no token ids.
type TokenizeError struct {
	Reason  string // short, for a metric's label
	Request bool   // the request is at fault, not the tokenizer
	Err     error
}

// Error returns the cause.
func (e *TokenizeError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TokenizeError) Unwrap() error { return e.Err }

// tokenize fills in the prompt's token ids or chains. Where they are not known,
// it has no chains: the request is then routed by its text, or by load alone.
func (s *Server) tokenize(ctx context.Context, r *routing, w *work) {
	p := &w.prompt
	var err error
	switch {
	case w.body.Exact:
		// The ids stay the body's own: they must not become room of the prompt.
		p.Source, p.Tokens = FromBody, len(w.body.Tokens)
		p.Hashes = r.Layout.AppendHashes(p.Hashes, w.body.Tokens, p.Seed)
		p.Chains = block.AppendChains(p.Chains, p.Hashes)
	case r.Tokenizer != nil:
		err = r.Tokenizer.Tokenize(ctx, p)
		if ctx.Err() != nil {
			return // a client that hung up says nothing about the tokenizer
		}
		switch {
		case err != nil:
			s.tokenizerFailed(err)
		case p.Source != InProcess: // which says nothing about engines
			s.tokenizerWorks()
		}
	}
	if err != nil {
		p.fail()
	}
	if p.Source == Unknown && r.TextBlocks {
		p.cut()
	}
	p.end()
	s.metrics.prompts[p.Source].Inc()
}

// tokenizerFailed logs the first of a run of failures; metrics count them all.
// What a client can cause by what it sends is only counted.
func (s *Server) tokenizerFailed(err error) {
	failure := TokenizeError{Reason: "other"}
	if f := (*TokenizeError)(nil); errors.As(err, &f) {
		failure = *f
	}
	s.metrics.tokenizerErrors.WithLabelValues(failure.Reason).Inc()
	if failure.Request {
		return
	}
	if !s.tokenizerBad.Swap(true) {
		s.cfg.Log.Warn("prompts cannot be turned into token ids; requests are routed by load until this ends", "error", err)
	}
}

func (s *Server) tokenizerWorks() {
	if s.tokenizerBad.Load() && s.tokenizerBad.Swap(false) {
		s.cfg.Log.Info("prompts are turned into token ids again")
	}
}
