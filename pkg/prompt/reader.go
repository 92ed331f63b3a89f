package prompt

import (
	"strconv"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// field is a key that Scan knows.
type field uint8

const (
	unknown field = iota
	fieldModel
	fieldStream
	fieldPrompt
	fieldMessages
	fieldEmbeds
	fieldMaxTokens
	fieldMaxCompletion
	fieldInput
	fieldMaxOutput
	fieldSalt
	fieldExt
	fieldInnerSalt
	fieldTokenData
	fieldHints
	fieldExpected
	fields
)

// names are the keys as the client knows them.
var names = [fields]string{
	fieldModel:         "model",
	fieldStream:        "stream",
	fieldPrompt:        "prompt",
	fieldMessages:      "messages",
	fieldEmbeds:        "prompt_embeds",
	fieldMaxTokens:     "max_tokens",
	fieldMaxCompletion: "max_completion_tokens",
	fieldInput:         "input",
	fieldMaxOutput:     "max_output_tokens",
	fieldSalt:          "cache_salt",
	fieldExt:           "nvext",
	fieldInnerSalt:     "nvext.cache_salt",
	fieldTokenData:     "nvext.token_data",
	fieldHints:         "nvext.agent_hints",
	fieldExpected:      "nvext.agent_hints.osl",
}

const (
	msgString   = "must be a string"
	msgObject   = "must be an object"
	msgBool     = "must be true or false"
	msgNumber   = "must be a number"
	msgPrompt   = "must be a string, a list of strings, a list of token ids or a list of such lists"
	msgMessages = "must be a list of objects"
	msgTokens   = "token ids must be integers from 0 to 4294967295"
)

// fault is a wrong type. It is kept until the whole body is read: a later
// duplicate of the key makes it void.
type fault struct {
	offset int
	msg    string
}

// reader reads one body: the scanner, and what it has met so far.
type reader struct {
	jsonscan.Scanner
	body   *Body
	kind   Kind
	faults [fields]fault

	model, salt, innerSalt   jsonscan.Span
	maxTokens, maxCompletion int
	maxOutput, expected      int
	media, embeds            bool
}

// document reads the whole body.
func (r *reader) document() *Error {
	c := r.Peek()
	if r.Pos == len(r.Data) {
		return &Error{Code: CodeEmptyBody, Offset: r.Pos, Msg: "the body is empty"}
	}
	if c != '{' {
		start := r.Pos
		if err := r.Skip(0); err != nil {
			return invalid(err)
		}
		if err := r.end(); err != nil {
			return invalid(err)
		}
		if !r.kind.strict() {
			return nil
		}
		return &Error{Code: CodeInvalidType, Offset: start, Msg: "the body must be a JSON object"}
	}
	err := r.object(1, topLevel)
	if err == nil {
		err = r.end()
	}
	return invalid(err)
}

// invalid returns the error of a body that is not JSON, nil for nil.
func invalid(err *jsonscan.Error) *Error {
	if err == nil {
		return nil
	}
	return &Error{Code: CodeInvalidJSON, Offset: err.Offset, Msg: err.Msg}
}

func (r *reader) end() *jsonscan.Error {
	r.Peek()
	if r.Pos < len(r.Data) {
		return r.Syntax(r.Pos, "invalid JSON: more text after the body's end")
	}
	return nil
}

// object reads an object that is the depth-th container, at its opening brace.
// Values of known keys are read, others are skipped.
func (r *reader) object(depth int, known func([]byte) field) *jsonscan.Error {
	empty, err := r.Enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.Key()
		if keyErr != nil {
			return keyErr
		}
		r.Peek()
		if f := known(r.decode(name)); f == unknown || r.Pos == len(r.Data) {
			ahead := numAhead
			if depth == 1 {
				key := r.decode(name)
				r.body.Features |= topFeature(key)
				ahead = aheadOf(key)
			}
			if err = r.Skip(depth); ahead < numAhead {
				r.body.ahead[ahead] = frame{name.Start, r.Pos}
			}
		} else {
			err = r.value(f)
		}
		if err == nil {
			more, err = r.Next('}')
		}
	}
	return err
}

// decode returns the text of a string, valid until the next call.
func (r *reader) decode(s jsonscan.Span) []byte {
	raw := r.Data[s.Start:s.End]
	if !s.Escaped {
		return raw
	}
	r.body.text = jsonscan.AppendText(r.body.text[:0], raw)
	return r.body.text
}

// wrong records a wrong type, unless the field has one already.
func (r *reader) wrong(f field, offset int, msg string) {
	if r.faults[f].msg == "" {
		r.faults[f] = fault{offset: offset, msg: msg}
	}
}

// wrongValue records a wrong type and reads on after the value.
func (r *reader) wrongValue(f field, depth int, msg string) *jsonscan.Error {
	r.wrong(f, r.Pos, msg)
	return r.Skip(depth)
}

// firstFault returns the wrong type that comes first in the body, nil when there
// is none.
func (r *reader) firstFault() *Error {
	first := unknown
	for f := unknown + 1; f < fields; f++ {
		if r.faults[f].msg != "" && (first == unknown || r.faults[f].offset < r.faults[first].offset) {
			first = f
		}
	}
	if first == unknown {
		return nil
	}
	found := r.faults[first]
	return &Error{CodeInvalidType, names[first], found.offset, names[first] + ": " + found.msg}
}

// stringValue reads a string or null. Null gives the empty span.
func (r *reader) stringValue(f field, depth int) (jsonscan.Span, *jsonscan.Error) {
	switch r.Data[r.Pos] {
	case '"':
		return r.Str()
	case 'n':
		return jsonscan.Span{}, r.Literal("null")
	default:
		return jsonscan.Span{}, r.wrongValue(f, depth, msgString)
	}
}

func (r *reader) boolValue(f field, depth int) (bool, *jsonscan.Error) {
	switch r.Data[r.Pos] {
	case 't':
		return true, r.Literal("true")
	case 'f', 'n':
		return false, r.Skip(depth)
	default:
		return false, r.wrongValue(f, depth, msgBool)
	}
}

// count reads a number or null. What is not a plain count that fits gives 0.
func (r *reader) count(f field, depth int) (int, *jsonscan.Error) {
	c := r.Data[r.Pos]
	if c == 'n' {
		return 0, r.Skip(depth)
	}
	if c != '-' && !jsonscan.IsDigit(c) {
		return 0, r.wrongValue(f, depth, msgNumber)
	}
	start := r.Pos
	if err := r.Number(); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(r.Data[start:min(r.Pos, start+20)]))
	if err != nil || n < 0 {
		n = 0
	}
	return n, nil
}
