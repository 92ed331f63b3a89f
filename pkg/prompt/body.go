package prompt

import "github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"

// Body is what routing needs from one request body. The zero value is ready.
// A Body is for one goroutine at a time; every [Body.Scan] starts it over and
// keeps its buffers, which are then as large as the largest prompt so far.
type Body struct {
	// Model is the model's name, decoded.
	Model string
	// Stream says that the client asked for a stream.
	Stream bool
	// Form is how the prompt is given.
	Form Form
	// Tokens are the token ids of the prompt, of the first prompt where there
	// are several. They are valid until the next Scan.
	Tokens []uint32
	// Exact says that Tokens is the whole (first) prompt as the engine will
	// see it. Without it, Tokens is empty and someone has to tokenize.
	Exact bool
	// Lists is the number of prompts: 1 for Text, Tokens and Messages.
	Lists int
	// Start and End frame the value of "prompt", "messages" or "input" in the body, in
	// bytes. Their distance is a measure of a prompt without token ids.
	Start, End int
	// Adapter is the LoRA adapter. No field of a body names one: adapters are
	// asked for by model name, so Scan leaves it empty for the caller to fill.
	Adapter string
	// Salt is the cache salt: nvext.cache_salt, else cache_salt. An empty one
	// counts as none, as in Dynamo.
	Salt string
	// MaxTokens is max_completion_tokens, else max_tokens; max_output_tokens for
	// the kind [Responses]. It is 0 when they
	// are absent, null, or a number that is not a plain count: such a number is
	// for the engine to judge.
	MaxTokens int
	// ExpectedOutput is nvext.agent_hints.osl, the length of the output in tokens as
	// the client expects it (dynamo.md 4.4). It is 0 when it is absent, or anything
	// but a plain count: a hint is no reason to refuse a request.
	ExpectedOutput int
	// HasMedia says that the prompt is more than text: a message has an image,
	// audio, video or file part, or a completion has prompt_embeds.
	HasMedia bool
	// Features are those fields of the body and its messages that change how a
	// prompt is rendered.
	Features Features

	// ModelOptional is set by the caller, who will put a model's name into a body
	// without one: that is no error then.
	ModelOptional bool
	// Decode is set by the caller, who will render the body: Scan then decodes the
	// long strings that it reads, which is cheaper than doing so later.
	Decode bool

	models     int // values of the key "model"
	modelStart int // of the last of them
	modelEnd   int
	nameStart  int // of the model's name, between its quotes
	nameEnd    int

	ahead    [numAhead]frame // fields that say how the prompt begins
	mediaAt  int             // where the first message with media begins; 0: there is none
	given    []uint32        // nvext.token_data
	text     []byte          // room to decode strings in
	strings  []jsonscan.Span
	decoded  []byte // long strings that have escapes, if Decode
	interned [2]string
}

// Room is the memory that b keeps for the next Scan, in bytes. Whoever pools
// bodies drops those that grew large.
func (b *Body) Room() int {
	const spanBytes = 40
	return 4*cap(b.Tokens) + 4*cap(b.given) + cap(b.text) + cap(b.decoded) + spanBytes*cap(b.strings) + len(b.interned[lastModel]) + len(b.interned[lastSalt])
}

// Strings are where the long strings of the body are, in order, and the decoded
// text of those that have escapes, if Decode is set. Whoever reads the same body
// again need not look for their ends. They are valid until the next Scan.
func (b *Body) Strings() (spans []jsonscan.Span, decoded []byte) { return b.strings, b.decoded }

// The slots of Body.interned: strings of the last request, kept because the next
// one most often has the same.
const (
	lastModel = iota
	lastSalt
)

// Scan reads a whole body of the given kind. It accepts what RFC 8259 allows,
// down to [MaxDepth], and bytes in strings that are no UTF-8. A key given twice
// counts the last time. A field that is null counts as absent.
//
// Every error is an [*Error]. After one, b holds nothing to rely on. A body that
// is broken in several ways is reported as invalid JSON first, then for its
// first wrong type, then for what is missing. Only for the kinds [Chat] and
// [Completion] are wrong types and missing fields errors.
func (b *Body) Scan(kind Kind, data []byte) error {
	*b = Body{
		Decode: b.Decode, ModelOptional: b.ModelOptional, Tokens: b.Tokens[:0],
		given: b.given[:0], text: b.text[:0], strings: b.strings[:0], decoded: b.decoded[:0], interned: b.interned,
	}
	r := reader{Scanner: jsonscan.Scanner{Data: data, Log: &b.strings}, body: b, kind: kind}
	if b.Decode {
		r.Text = &b.decoded
	}
	if err := r.document(); err != nil {
		return err
	}
	if err := r.finish(); err != nil {
		return err
	}
	return nil
}

// finish settles what depends on several fields, once all are known.
func (r *reader) finish() *Error {
	b := r.body
	if r.kind.strict() {
		if err := r.firstFault(); err != nil {
			return err
		}
	}
	b.Model = r.intern(lastModel, r.model)
	b.nameStart, b.nameEnd = r.model.Start, r.model.End
	salt := r.innerSalt
	if salt.Start == salt.End {
		salt = r.salt
	}
	b.Salt = r.intern(lastSalt, salt)
	b.MaxTokens = r.maxCompletion // the newer name of the two
	if b.MaxTokens == 0 {
		b.MaxTokens = r.maxTokens
	}
	if r.kind == Responses {
		b.MaxTokens = r.maxOutput
	}
	b.ExpectedOutput = r.expected
	b.HasMedia = r.media || r.embeds && b.Form == NoPrompt
	if len(b.given) > 0 && (b.Form == Messages || b.Form == Text) {
		b.Tokens, b.given = b.given, b.Tokens
		b.Exact = true
	}
	return r.missing()
}

func (r *reader) missing() *Error {
	b := r.body
	switch {
	case !r.kind.strict():
		return nil
	case b.Model == "" && !b.ModelOptional:
		return &Error{CodeMissingModel, "model", r.Pos, "the body names no model"}
	case b.Form != NoPrompt:
		return nil
	case r.kind == Chat:
		return &Error{CodeMissingPrompt, "messages", r.Pos, "messages is missing or empty"}
	case b.HasMedia:
		return nil
	default:
		return &Error{CodeMissingPrompt, "prompt", r.Pos, "prompt is missing or empty"}
	}
}

// intern decodes a string. When it equals the one of the last request, that is
// used again.
func (r *reader) intern(slot int, s jsonscan.Span) string {
	text := r.decode(s)
	if len(text) == 0 {
		return ""
	}
	if last := &r.body.interned[slot]; *last != string(text) {
		*last = string(text)
	}
	return r.body.interned[slot]
}

// MaxDepth is how deep a body may nest, the body's own object included.
const MaxDepth = jsonscan.MaxDepth
