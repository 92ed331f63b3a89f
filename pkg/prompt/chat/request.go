package chat

import (
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// request is what matters of a body, in the form of a chat completion.
type request struct {
	messages, tools, toolChoice jinja.Value
	kwargs, args                jinja.Value // chat_template_kwargs, chat_template_args
	documents, effort           jinja.Value
	generate, resume            jinja.Value // add_generation_prompt, continue_final_message
	special                     jinja.Value // add_special_tokens
	template                    jinja.Value // chat_template
	truncate                    jinja.Value // truncate_prompt_tokens

	// of the other two APIs
	system, input, instructions jinja.Value
	reasoning, previous, stored jinja.Value
	truncation                  jinja.Value
	output, thinking            jinja.Value // output_config, thinking
}

// field returns the place for a key of the body, nil for a key that does not
// matter.
func (r *request) field(kind prompt.Kind, key string) *jinja.Value {
	switch key {
	case "tools":
		return &r.tools
	case "tool_choice":
		return &r.toolChoice
	case "chat_template_kwargs":
		return &r.kwargs
	case "chat_template_args": // Dynamo's other name
		return &r.args
	}
	switch kind {
	case prompt.Chat:
		return r.chatField(key)
	case prompt.Responses:
		return r.responsesField(key)
	case prompt.AnthropicMessages:
		switch key {
		case "messages":
			return &r.messages
		case "system":
			return &r.system
		case "output_config":
			return &r.output
		case "thinking":
			return &r.thinking
		}
	default:
	}
	return nil
}

func (r *request) chatField(key string) *jinja.Value {
	switch key {
	case "messages":
		return &r.messages
	case "documents":
		return &r.documents
	case "reasoning_effort":
		return &r.effort
	case "add_generation_prompt":
		return &r.generate
	case "continue_final_message":
		return &r.resume
	case "add_special_tokens":
		return &r.special
	case "chat_template":
		return &r.template
	case "truncate_prompt_tokens":
		return &r.truncate
	}
	return nil
}

func (r *request) responsesField(key string) *jinja.Value {
	switch key {
	case "input":
		return &r.input
	case "instructions":
		return &r.instructions
	case "reasoning":
		return &r.reasoning
	case "previous_response_id", "previous_response", "previous_input_messages":
		if !given(r.previous) {
			return &r.previous
		}
	case "truncation":
		return &r.truncation
	case "prompt":
		return &r.stored
	}
	return nil
}

// read reads the fields of a body that matter.
func (d *decoder) read(kind prompt.Kind, r *request) *Error {
	if d.Peek() != '{' {
		return invalid("the body is not a JSON object")
	}
	empty, err := d.Enter(0, '}')
	for more := !empty; more && err == nil; {
		var name jsonscan.Span
		if name, err = d.Key(); err != nil {
			break
		}
		if place := r.field(kind, d.str(name)); place != nil {
			*place, err = d.value(1)
		} else {
			err = d.Skip(1)
		}
		if err == nil {
			more, err = d.Next('}')
		}
	}
	if err == nil {
		if d.Peek(); d.Pos < len(d.Data) {
			err = d.Syntax(d.Pos, "invalid JSON: more text after the body's end")
		}
	}
	if err == errTooMany {
		return &Error{CodeMessages, "the request has too many parts"}
	}
	return broken(err)
}

// given reports whether a field is there and not null.
func given(v jinja.Value) bool {
	return v.Kind() != jinja.KindUndefined && v.Kind() != jinja.KindNone
}

// flag returns a field that is true or false.
func flag(v jinja.Value, def bool) (bool, *Error) {
	switch {
	case !given(v):
		return def, nil
	case v.Kind() != jinja.KindBool:
		return def, unknown("a switch is neither true nor false")
	}
	return v == jinja.Bool(true), nil
}

// check refuses what changes the prompt in ways that are not known here.
func (r *request) check() *Error {
	switch {
	case given(r.template):
		return unknown("the request brings its own chat template")
	case given(r.truncate):
		return unknown("the request asks for a prompt that is cut")
	case given(r.previous):
		return unknown("the request goes on from a stored response")
	case given(r.stored):
		return unknown("the request uses a stored prompt")
	case given(r.args): // vLLM ignores it, and which of two counts in Dynamo is not known
		return unknown("the request has chat_template_args")
	case given(r.truncation) && r.truncation.Text() != "disabled":
		return unknown("the request allows a prompt that is cut")
	case given(r.kwargs) && r.kwargs.Dict() == nil:
		return unknown("chat_template_kwargs is not an object")
	case given(r.tools) && r.tools.List() == nil:
		return invalid("tools is not a list")
	case given(r.kwargs):
		return checkKwargs(r.kwargs.Dict())
	}
	return nil
}

// checkKwargs refuses kwargs that are arguments of the function that renders.
func checkKwargs(d *jinja.Dict) *Error {
	for _, name := range []string{
		"chat_template", "tokenize", "messages", "conversation", "tools", "continue_final_message", "return_dict",
		"return_tensors", "return_assistant_tokens_mask", "padding", "truncation", "max_length", "tokenizer_kwargs",
	} {
		if _, ok := d.Get(name); ok {
			return unknown("chat_template_kwargs has " + name)
		}
	}
	return nil
}
