package prompt

import "strings"

// Kind is the API a request speaks, as far as routing cares.
type Kind uint8

const (
	// Other is any path but those below. A body of this kind must be JSON,
	// and nothing else is asked of it.
	Other Kind = iota
	// Chat is /v1/chat/completions: the prompt is in "messages".
	Chat
	// Completion is /v1/completions: the prompt is in "prompt".
	Completion
	// Responses is /v1/responses: the prompt is in "input" and "instructions".
	Responses
	// AnthropicMessages is /v1/messages: the prompt is in "system" and
	// "messages".
	AnthropicMessages
)

// The paths of the kinds. A path may have a prefix before them.
const (
	ChatPath       = "/v1/chat/completions"
	CompletionPath = "/v1/completions"
	ResponsesPath  = "/v1/responses"
	AnthropicPath  = "/v1/messages"
)

// strict reports whether a body of this kind is judged: a wrong type and a
// missing field are errors. The two younger APIs have many shapes, some without
// a prompt, so they are for the engine to judge.
func (k Kind) strict() bool { return k == Chat || k == Completion }

// String returns the kind as a short metric label.
func (k Kind) String() string {
	switch k {
	case Chat:
		return "chat"
	case Completion:
		return "completion"
	case Responses:
		return "responses"
	case AnthropicMessages:
		return "anthropic"
	default:
		return "other"
	}
}

// KindOf returns the kind of a request path. A query is ignored, and so is
// whatever stands before /v1.
func KindOf(path string) Kind {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	switch {
	case strings.HasSuffix(path, ChatPath):
		return Chat
	case strings.HasSuffix(path, CompletionPath):
		return Completion
	case strings.HasSuffix(path, ResponsesPath):
		return Responses
	case strings.HasSuffix(path, AnthropicPath):
		return AnthropicMessages
	default:
		return Other
	}
}

// Form is how a body gives its prompt.
type Form uint8

const (
	// NoPrompt is a body without a prompt that can be read.
	NoPrompt Form = iota
	// Text is one string.
	Text
	// Texts is a list of strings.
	Texts
	// Tokens is one list of token ids.
	Tokens
	// TokenLists is a list of lists of token ids.
	TokenLists
	// Messages is the list of a chat, or of the items of "input".
	Messages
)

// String returns the form as a short metric label.
func (f Form) String() string {
	switch f {
	case Text:
		return "text"
	case Texts:
		return "texts"
	case Tokens:
		return "tokens"
	case TokenLists:
		return "token_lists"
	case Messages:
		return "messages"
	default:
		return "none"
	}
}
