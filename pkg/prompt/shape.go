package prompt

// Features are fields of a request that change how its prompt is rendered. They
// only sort requests: a field that is null, or of the wrong type, counts too.
type Features uint8

// Features of a request.
const (
	// HasTools is a chat with tools, or messages that call them or answer.
	HasTools Features = 1 << iota
	// HasReasoning is a chat with messages that hold earlier reasoning.
	HasReasoning
	// HasOptions is a request with fields for the template or the tokenizer.
	HasOptions
	// HasSpecial is a request that says whether the tokenizer adds its own tokens.
	HasSpecial
)

// topFeature returns what a key of the body says.
func topFeature(key []byte) Features {
	switch string(key) {
	case "tools", "functions":
		return HasTools
	case "chat_template", "chat_template_kwargs", "documents", "reasoning_effort", "add_generation_prompt",
		"continue_final_message", "truncate_prompt_tokens", "echo", "response_format":
		return HasOptions
	case "add_special_tokens":
		return HasOptions | HasSpecial
	default:
		return 0
	}
}

// messageFeature returns what a key of a message says.
func messageFeature(key []byte) Features {
	switch string(key) {
	case "tool_calls", "tool_call_id", "function_call":
		return HasTools
	case "reasoning_content", "reasoning", "thinking":
		return HasReasoning
	default:
		return 0
	}
}
