package jinja

import "strconv"

// Code says what kind of trouble a template met.
type Code uint8

const (
	// Unsupported is a template that uses something this package does not know,
	// or that is no template at all.
	Unsupported Code = iota
	// Raised is what Python would refuse, too: raise_exception, a missing
	// attribute, an operation on wrong types.
	Raised
	// LimitSteps is Limits.Steps.
	LimitSteps
	// LimitOutput is Limits.Output.
	LimitOutput
	// LimitMemory is Limits.Memory.
	LimitMemory
	// LimitDepth is how deep macros may call each other, and values may nest.
	LimitDepth
	// LimitTime is Limits.Check.
	LimitTime
)

// Error says why a template cannot be used, or did not render. Its text has
// names from the template, never a value.
type Error struct {
	Code Code
	// Line is the line in the template, 0 when unknown.
	Line int
	Msg  string
}

// Error returns the reason and the line.
func (e *Error) Error() string {
	if e.Line == 0 {
		return "template: " + e.Msg
	}
	return "template, line " + strconv.Itoa(e.Line) + ": " + e.Msg
}

func unsupported(line int, msg string) *Error { return &Error{Unsupported, line, msg} }
func raised(msg string) *Error                { return &Error{Code: Raised, Msg: msg} }
func refused(msg string) *Error               { return &Error{Code: Unsupported, Msg: msg} }
