package prompt

import "strconv"

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
	fieldSalt
	fieldExt
	fieldInnerSalt
	fieldTokenData
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
	fieldSalt:          "cache_salt",
	fieldExt:           "nvext",
	fieldInnerSalt:     "nvext.cache_salt",
	fieldTokenData:     "nvext.token_data",
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
	scanner
	body   *Body
	kind   Kind
	faults [fields]fault

	model, salt, innerSalt   span
	maxTokens, maxCompletion int
	media, embeds            bool
}

// document reads the whole body.
func (r *reader) document() *Error {
	c := r.peek()
	if r.pos == len(r.data) {
		return &Error{Code: CodeEmptyBody, Offset: r.pos, Msg: "the body is empty"}
	}
	if c != '{' {
		start := r.pos
		if err := r.skip(0); err != nil {
			return err
		}
		if err := r.end(); err != nil || r.kind == Other {
			return err
		}
		return &Error{Code: CodeInvalidType, Offset: start, Msg: "the body must be a JSON object"}
	}
	if err := r.object(1, topLevel); err != nil {
		return err
	}
	return r.end()
}

func (r *reader) end() *Error {
	r.peek()
	if r.pos < len(r.data) {
		return r.syntax(r.pos, "invalid JSON: more text after the body's end")
	}
	return nil
}

// object reads an object that is the depth-th container, at its opening brace.
// Values of known keys are read, others are skipped.
func (r *reader) object(depth int, known func([]byte) field) *Error {
	empty, err := r.enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.key()
		if keyErr != nil {
			return keyErr
		}
		r.peek()
		if f := known(r.decode(name)); f == unknown || r.pos == len(r.data) {
			if depth == 1 {
				r.body.Features |= topFeature(r.decode(name))
			}
			err = r.skip(depth)
		} else {
			err = r.value(f)
		}
		if err == nil {
			more, err = r.next('}')
		}
	}
	return err
}

// decode returns the text of a string, valid until the next call.
func (r *reader) decode(s span) []byte {
	raw := r.data[s.start:s.end]
	if !s.escaped {
		return raw
	}
	r.body.text = appendText(r.body.text[:0], raw)
	return r.body.text
}

// wrong records a wrong type, unless the field has one already.
func (r *reader) wrong(f field, offset int, msg string) {
	if r.faults[f].msg == "" {
		r.faults[f] = fault{offset: offset, msg: msg}
	}
}

// wrongValue records a wrong type and reads on after the value.
func (r *reader) wrongValue(f field, depth int, msg string) *Error {
	r.wrong(f, r.pos, msg)
	return r.skip(depth)
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
func (r *reader) stringValue(f field, depth int) (span, *Error) {
	switch r.data[r.pos] {
	case '"':
		return r.str()
	case 'n':
		return span{}, r.literal("null")
	default:
		return span{}, r.wrongValue(f, depth, msgString)
	}
}

func (r *reader) boolValue(f field, depth int) (bool, *Error) {
	switch r.data[r.pos] {
	case 't':
		return true, r.literal("true")
	case 'f', 'n':
		return false, r.skip(depth)
	default:
		return false, r.wrongValue(f, depth, msgBool)
	}
}

// count reads a number or null. What is not a plain count that fits gives 0.
func (r *reader) count(f field, depth int) (int, *Error) {
	c := r.data[r.pos]
	if c == 'n' {
		return 0, r.skip(depth)
	}
	if c != '-' && !isDigit(c) {
		return 0, r.wrongValue(f, depth, msgNumber)
	}
	start := r.pos
	if err := r.number(); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(r.data[start:min(r.pos, start+20)]))
	if err != nil || n < 0 {
		n = 0
	}
	return n, nil
}
