package chat

import (
	"errors"

	"github.com/warmpath/warmpath/pkg/prompt/internal/jinja"
	"github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"
)

// The codes of an [Error]. They are short enough for a metric label.
const (
	// CodeTemplate is a template that uses what is not known here.
	CodeTemplate = "unsupported_template"
	// CodeRaised is a request that the template refuses. The engine will, too.
	CodeRaised = "template_raised"
	// CodeRequest is a request of a shape, or with a field, of which it is not
	// known how engines render it.
	CodeRequest = "unsupported_request"
	// CodeInvalid is a body that the engine will refuse, too.
	CodeInvalid = "invalid_request"
	// CodeSteps, CodeOutput, CodeMemory, CodeDepth, CodeTime and CodeMessages are
	// the limits of [Limits].
	CodeSteps    = "limit_steps"
	CodeOutput   = "limit_output"
	CodeMemory   = "limit_memory"
	CodeDepth    = "limit_depth"
	CodeTime     = "limit_time"
	CodeMessages = "limit_messages"
)

// Error says why there is no prompt. It never holds text of a request.
type Error struct {
	// Code is one of the codes above.
	Code string
	// Msg is the reason in words.
	Msg string
}

// Error returns the reason.
func (e *Error) Error() string { return e.Code + ": " + e.Msg }

func unknown(msg string) *Error { return &Error{CodeRequest, msg} }
func invalid(msg string) *Error { return &Error{CodeInvalid, msg} }

// broken is a body that is not JSON.
func broken(err *jsonscan.Error) *Error {
	if err == nil {
		return nil
	}
	return &Error{CodeInvalid, err.Msg}
}

var templateCodes = map[jinja.Code]string{
	jinja.Unsupported: CodeTemplate,
	jinja.Raised:      CodeRaised,
	jinja.LimitSteps:  CodeSteps,
	jinja.LimitOutput: CodeOutput,
	jinja.LimitMemory: CodeMemory,
	jinja.LimitDepth:  CodeDepth,
	jinja.LimitTime:   CodeTime,
}

// templateError returns the error of a template.
func templateError(err error) *Error {
	if t, ok := errors.AsType[*jinja.Error](err); ok {
		return &Error{templateCodes[t.Code], t.Error()}
	}
	return &Error{CodeTemplate, "the template failed"}
}
