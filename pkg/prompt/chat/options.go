package chat

import (
	"strings"
	"sync"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
)

// Style is whose way of preparing a request for the template is followed.
type Style uint8

const (
	// VLLM is vLLM's OpenAI server (engines.md 6.1).
	VLLM Style = iota
	// Dynamo is Dynamo's frontend, releases 1.2.1 to 1.6.1 (dynamo-live.md). A
	// request of which they make different prompts is refused.
	Dynamo
)

// Format is how the content of messages is given to the template.
type Format uint8

const (
	// FormatAuto is FormatParts for a template that loops over the content of
	// messages, else FormatText: vLLM's rule. Where versions of vLLM disagree on
	// a template, a request is refused unless both give the same prompt.
	FormatAuto Format = iota
	// FormatText gives content as one text.
	FormatText
	// FormatParts gives content as a list of parts.
	FormatParts
)

// Options are the settings of one model. The zero value is a model without
// special tokens, served by vLLM as it comes.
type Options struct {
	// Tokens are the texts of special tokens by the names under which templates
	// know them: bos_token, eos_token and so on, of tokenizer_config.json.
	Tokens map[string]string
	// Kwargs are chat_template_kwargs for requests that do not set them, as a JSON
	// object; empty for none.
	Kwargs []byte
	// Style is the way of the engine.
	Style Style
	// Format is vLLM's --chat-template-content-format. Dynamo's way has its own.
	Format Format
	// DropTools leaves tools out of the prompt when tool_choice is "none": vLLM's
	// --exclude-tools-when-tool-choice-none. Dynamo's default is true.
	DropTools bool
	// Since13 says that no part of a Dynamo pool is older than release 1.3. Dynamo
	// 1.2 prints JSON in another way, and joins texts and messages in another:
	// requests with such parts are refused unless it is set.
	Since13 bool
	// Limits bound what one request may cost.
	Limits Limits
}

// Limits bound one rendering. A zero field means its default.
type Limits struct {
	// Steps, Output (bytes) and Memory (bytes) bound the template.
	Steps  int64
	Output int
	Memory int64
	// Messages is how many messages a request may have, and Parts how many parts
	// of content and items in all. 10,000 and 50,000 by default.
	Messages, Parts int
	// Watch, when set, is called at the start of each rendering. It returns a
	// function that is asked now and then whether there is still time.
	Watch func() func() bool
}

// Defaults of [Limits].
const (
	DefaultMessages = 10_000
	DefaultParts    = 50_000
)

// Template is the chat template of one model, ready to render requests. It is
// safe for concurrent use.
type Template struct {
	opts    Options
	jinja   *jinja.Template
	tokens  []jinja.Entry // special tokens and kwargs
	parts   bool          // content is given as parts
	unsure  bool          // versions of vLLM disagree on parts
	harmony bool
	// developer says that the template knows the role of that name. For others,
	// later versions of vLLM make it a message of the system.
	developer bool
	// thoughts says that the template reads reasoning_content. For others, Dynamo
	// puts thoughts into the content.
	thoughts bool
	calls    bool // it reads tool_calls
	rawCalls bool // it tells arguments that are a text: Dynamo leaves them one
	oddCalls bool // it neither does so nor prints arguments as JSON
	compact  *jinja.Template
	pool     sync.Pool // of *worker
}

// Compile reads a chat template (Jinja2). The error is an [*Error] with the code
// [CodeTemplate]: it names what is unknown in the template.
func Compile(source string, opts Options) (*Template, error) {
	j, err := jinja.Compile(source)
	if err != nil {
		return nil, templateError(err)
	}
	if opts.Limits.Messages <= 0 {
		opts.Limits.Messages = DefaultMessages
	}
	if opts.Limits.Parts <= 0 {
		opts.Limits.Parts = DefaultParts
	}
	t := &Template{opts: opts, jinja: j}
	t.parts = opts.Format == FormatParts
	if opts.Format == FormatAuto {
		early, late := j.ContentRules()
		t.parts, t.unsure = late, early != late
	}
	if opts.Style == Dynamo {
		t.parts, t.unsure = wantsParts(j, opts.Limits), false
		if t.compact, err = jinja.Compile(compactJSON); err != nil {
			return nil, templateError(err)
		}
	}
	t.developer = strings.Contains(source, `"developer"`) || strings.Contains(source, "'developer'")
	t.thoughts = strings.Contains(source, "reasoning_content")
	t.calls = strings.Contains(source, "tool_calls")
	t.rawCalls = strings.Contains(source, "arguments is string")
	t.oddCalls = !t.rawCalls && !strings.Contains(source, "tojson") && !strings.Contains(source, "items")
	t.harmony = strings.Contains(source, "<|channel|>") && strings.Contains(source, "<|start|>")
	for name, text := range opts.Tokens {
		t.tokens = append(t.tokens, jinja.Entry{Key: jinja.String(name), Val: jinja.String(text)})
	}
	if len(opts.Kwargs) > 0 {
		v, err := jinja.ParseJSON(opts.Kwargs)
		if err != nil || v.Dict() == nil {
			return nil, &Error{CodeTemplate, "the default chat_template_kwargs are not a JSON object"}
		}
		if bad := checkKwargs(v.Dict()); bad != nil {
			return nil, &Error{CodeTemplate, bad.Msg}
		}
		t.tokens = append(t.tokens, v.Dict().Entries()...)
	}
	return t, nil
}

// Harmony reports whether the template writes OpenAI's harmony format. vLLM does
// not use templates for such models but a library, whose prompts differ in
// places: whoever routes by this template must compare.
func (t *Template) Harmony() bool { return t.harmony }

// Prompt is the text of a prompt.
type Prompt struct {
	// Text is the rendered chat, or the text as given.
	Text string
	// AddSpecial says that the tokenizer adds its special tokens (BOS and the
	// like). A chat has them in its text.
	AddSpecial bool
	// AnySpecial says that versions of the engine differ in AddSpecial. Such a
	// prompt is only sure with a tokenizer that adds nothing. vLLM (2026) adds
	// special tokens to the prompt of a responses request, once more, where it
	// did not before.
	AnySpecial bool
	// Usable is how many bytes of Text a prefix may rely on: all, or those before
	// the first image, audio or video.
	Usable int
}

// kindName is how messages call a kind.
func kindName(k prompt.Kind) string { return k.String() }
