package chat

import (
	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// CompletionText returns the text of a completion's prompt, of the first where
// there are several. Start and end frame the value of "prompt" in the body, as
// prompt.Body has them. The text may share the memory of the body. The error is
// an [*Error]: also when the prompt is token ids.
func CompletionText(body []byte, start, end int) (string, error) {
	if start < 0 || end < start || end > len(body) {
		return "", invalid("the prompt is outside the body")
	}
	s := jsonscan.Scanner{Data: body[:end], Pos: start}
	if s.Peek() == '[' {
		s.Pos++
	}
	if s.Peek() != '"' {
		return "", unknown("the prompt is no text")
	}
	span, err := s.Str()
	if err != nil {
		return "", broken(err)
	}
	raw := body[span.Start:span.End]
	if !span.Escaped {
		return view(raw), nil
	}
	return view(jsonscan.AppendText(make([]byte, 0, len(raw)), raw)), nil
}

// Completion returns the prompt of a body of /v1/completions, with the framing of
// [CompletionText]. Engines add special tokens to it unless the body says
// otherwise.
func Completion(body []byte, start, end int) (Prompt, error) {
	text, err := CompletionText(body, start, end)
	if err != nil {
		return Prompt{}, err
	}
	special, bad := completionFields(body)
	if bad != nil {
		return Prompt{}, bad
	}
	return Prompt{Text: text, AddSpecial: special, Usable: len(text)}, nil
}

// completionFields reads the fields that change how a completion is tokenized.
func completionFields(body []byte) (special bool, _ *Error) {
	d := decoder{Scanner: jsonscan.Scanner{Data: body}, left: DefaultParts}
	add, cut := jinja.Undefined, jinja.Undefined
	if d.Peek() != '{' {
		return false, invalid("the body is not a JSON object")
	}
	empty, err := d.Enter(0, '}')
	for more := !empty; more && err == nil; {
		var name jsonscan.Span
		if name, err = d.Key(); err != nil {
			break
		}
		switch d.str(name) {
		case "add_special_tokens":
			add, err = d.value(1)
		case "truncate_prompt_tokens":
			cut, err = d.value(1)
		default:
			err = d.Skip(1)
		}
		if err == nil {
			more, err = d.Next('}')
		}
	}
	switch {
	case err != nil:
		return false, broken(err)
	case given(cut):
		return false, unknown("the request asks for a prompt that is cut")
	}
	return flag(add, true)
}
