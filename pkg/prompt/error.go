package prompt

import "strconv"

// The codes of an [Error].
const (
	// CodeInvalidJSON is a body that is not JSON (RFC 8259), or one nested
	// deeper than [MaxDepth].
	CodeInvalidJSON = "invalid_json"
	// CodeInvalidType is a field of the wrong type, or a body that is not an
	// object.
	CodeInvalidType = "invalid_type"
	// CodeMissingModel is a body that names no model.
	CodeMissingModel = "missing_model"
	// CodeMissingPrompt is a body without the prompt that its kind needs.
	CodeMissingPrompt = "missing_prompt"
	// CodeEmptyBody is a body of no bytes, or of white space.
	CodeEmptyBody = "empty_body"
)

// Error says why a body cannot be used. It is the client's fault, and nothing
// in it repeats the prompt.
type Error struct {
	// Code is one of the codes above.
	Code string
	// Param is the field at fault, dotted when nested, empty when it is the
	// whole body.
	Param string
	// Offset is the byte in the body where the fault is.
	Offset int
	// Msg is the reason in words.
	Msg string
}

// Error returns the reason and the place.
func (e *Error) Error() string {
	return e.Msg + " (at byte " + strconv.Itoa(e.Offset) + ")"
}
