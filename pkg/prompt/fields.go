package prompt

import "github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"

// topLevel returns the field of a key of the body.
func topLevel(key []byte) field {
	switch string(key) {
	case "model":
		return fieldModel
	case "stream":
		return fieldStream
	case "prompt":
		return fieldPrompt
	case "messages":
		return fieldMessages
	case "prompt_embeds":
		return fieldEmbeds
	case "max_tokens":
		return fieldMaxTokens
	case "max_completion_tokens":
		return fieldMaxCompletion
	case "input":
		return fieldInput
	case "max_output_tokens":
		return fieldMaxOutput
	case "cache_salt":
		return fieldSalt
	case "nvext":
		return fieldExt
	default:
		return unknown
	}
}

// extension returns the field of a key of nvext (dynamo.md 5.2).
func extension(key []byte) field {
	switch string(key) {
	case "cache_salt":
		return fieldInnerSalt
	case "token_data":
		return fieldTokenData
	case "agent_hints":
		return fieldHints
	default:
		return unknown
	}
}

// hint returns the field of a key of nvext.agent_hints (dynamo.md 4.4).
func hint(key []byte) field {
	if string(key) == "osl" {
		return fieldExpected
	}
	return unknown
}

// value reads the value of a known key at its first byte. It first undoes an
// earlier value of the same key.
func (r *reader) value(f field) (err *jsonscan.Error) {
	const depth, inner = 1, 2
	r.faults[f] = fault{}
	switch f {
	case fieldModel:
		r.body.models, r.body.modelStart = r.body.models+1, r.Pos
		r.model, err = r.stringValue(f, depth)
		r.body.modelEnd = r.Pos
	case fieldStream:
		r.body.Stream, err = r.boolValue(f, depth)
	case fieldSalt:
		r.salt, err = r.stringValue(f, depth)
	case fieldMaxTokens:
		r.maxTokens, err = r.count(f, depth)
	case fieldMaxCompletion:
		r.maxCompletion, err = r.count(f, depth)
	case fieldMaxOutput:
		if r.kind != Responses {
			return r.Skip(depth)
		}
		r.maxOutput, err = r.count(f, depth)
	case fieldEmbeds:
		r.embeds = r.Data[r.Pos] != 'n'
		err = r.Skip(depth)
	case fieldExt:
		err = r.extensions()
	case fieldInnerSalt:
		r.innerSalt, err = r.stringValue(f, inner)
	case fieldTokenData:
		err = r.tokenData(inner)
	case fieldHints:
		err = r.hints(inner)
	case fieldExpected:
		err = r.hintedCount(inner + 1)
	case fieldPrompt:
		if r.kind != Completion {
			return r.Skip(depth)
		}
		err = r.prompt(r.promptValue)
	case fieldMessages:
		if r.kind != Chat && r.kind != AnthropicMessages {
			return r.Skip(depth)
		}
		err = r.prompt(func() *jsonscan.Error { return r.messages(fieldMessages) })
	case fieldInput:
		if r.kind != Responses {
			return r.Skip(depth)
		}
		err = r.prompt(r.inputValue)
	default: // object passes only fields that it knows
	}
	return err
}

// extensions reads nvext.
func (r *reader) extensions() *jsonscan.Error {
	const depth = 1
	r.innerSalt, r.body.given, r.expected = jsonscan.Span{}, r.body.given[:0], 0
	r.faults[fieldInnerSalt], r.faults[fieldTokenData] = fault{}, fault{}
	switch r.Data[r.Pos] {
	case '{':
		return r.object(depth+1, extension)
	case 'n':
		return r.Literal("null")
	default:
		return r.wrongValue(fieldExt, depth, msgObject)
	}
}

// hints reads nvext.agent_hints. Whatever they are, they are no fault.
func (r *reader) hints(depth int) *jsonscan.Error {
	r.expected = 0
	if r.Data[r.Pos] != '{' {
		return r.Skip(depth)
	}
	return r.object(depth+1, hint)
}

// hintedCount reads nvext.agent_hints.osl.
func (r *reader) hintedCount(depth int) (err *jsonscan.Error) {
	r.expected = 0
	if !jsonscan.IsDigit(r.Data[r.Pos]) {
		return r.Skip(depth)
	}
	r.expected, err = r.count(fieldExpected, depth)
	return err
}

// tokenData reads nvext.token_data.
func (r *reader) tokenData(depth int) *jsonscan.Error {
	r.body.given = r.body.given[:0]
	start, ok := r.Pos, false
	switch r.Data[start] {
	case 'n':
		return r.Literal("null")
	case '[':
		r.body.given, ok = tokenList(&r.Scanner, r.body.given)
	}
	if ok {
		return nil
	}
	r.body.given = r.body.given[:0]
	r.wrong(fieldTokenData, r.Pos, msgTokens)
	r.Pos = start
	return r.Skip(depth)
}

// prompt reads the value that holds the prompt, with the given method, and
// notes where it lies.
func (r *reader) prompt(read func() *jsonscan.Error) *jsonscan.Error {
	b := r.body
	b.Form, b.Lists, b.Exact, b.Tokens, r.media, b.mediaAt = NoPrompt, 0, false, b.Tokens[:0], false, 0
	b.Start = r.Pos
	err := read()
	b.End = r.Pos
	return err
}

// promptValue reads the value of "prompt".
func (r *reader) promptValue() *jsonscan.Error {
	const depth = 1
	switch r.Data[r.Pos] {
	case '"':
		r.body.Form, r.body.Lists = Text, 1
		_, err := r.Str()
		return err
	case 'n':
		return r.Literal("null")
	case '[':
		return r.promptList(depth)
	default:
		return r.wrongValue(fieldPrompt, depth, msgPrompt)
	}
}

// inputValue reads the value of "input": a text, or a list of items.
func (r *reader) inputValue() *jsonscan.Error {
	if r.Data[r.Pos] == '"' {
		r.body.Form, r.body.Lists = Text, 1
		_, err := r.Str()
		return err
	}
	return r.messages(fieldInput)
}

// promptList reads a "prompt" that is a list. What the first element is, all
// must be. On trouble it reads the list a second time, as any value: that finds
// broken JSON, and else the trouble was a wrong type.
func (r *reader) promptList(depth int) *jsonscan.Error {
	start, msg, ok := r.Pos, msgPrompt, true
	r.Pos++
	switch c := r.Peek(); {
	case c == ']':
		r.Pos++
	case c == '"':
		ok = r.texts()
	case c == '[':
		ok = r.tokenLists()
	case c == '-' || jsonscan.IsDigit(c):
		r.Pos, msg = start, msgTokens
		r.body.Tokens, ok = tokenList(&r.Scanner, r.body.Tokens)
		r.body.Form, r.body.Lists, r.body.Exact = Tokens, 1, true
	default:
		ok = false
	}
	if ok {
		return nil
	}
	r.body.Form, r.body.Lists, r.body.Exact, r.body.Tokens = NoPrompt, 0, false, r.body.Tokens[:0]
	r.wrong(fieldPrompt, r.Pos, msg)
	r.Pos = start
	return r.Skip(depth)
}

// texts reads a list of strings, at the first.
func (r *reader) texts() bool {
	r.body.Form = Texts
	for more := true; more; {
		if r.Peek() != '"' {
			return false
		}
		if _, err := r.Str(); err != nil {
			return false
		}
		r.body.Lists++
		var err *jsonscan.Error
		if more, err = r.Next(']'); err != nil {
			return false
		}
	}
	return true
}

// tokenLists reads a list of lists of token ids, at the first. It keeps the
// first list and checks the others in the room behind it.
func (r *reader) tokenLists() bool {
	b := r.body
	b.Form, b.Exact = TokenLists, true
	for more := true; more; {
		if r.Peek() != '[' {
			return false
		}
		keep := len(b.Tokens)
		var ok bool
		if b.Tokens, ok = tokenList(&r.Scanner, b.Tokens); !ok {
			return false
		}
		if b.Lists++; b.Lists > 1 {
			b.Tokens = b.Tokens[:keep]
		}
		var err *jsonscan.Error
		if more, err = r.Next(']'); err != nil {
			return false
		}
	}
	return true
}
