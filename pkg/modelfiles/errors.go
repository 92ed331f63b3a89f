package modelfiles

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Code is a short word for what went wrong, fit for a metric's label.
type Code string

// What can go wrong.
const (
	BadConfig    Code = "bad_config"   // the source is configured wrong
	NotFound     Code = "not_found"    // no such folder, repository, revision or tokenizer
	Unauthorized Code = "unauthorized" // the hub wants a token, or another one
	Forbidden    Code = "forbidden"    // the token may not read this: a gated repository
	TooLarge     Code = "too_large"    // a file is larger than is allowed
	BadChecksum  Code = "bad_checksum" // a file is not the one that the checksum is of
	BadContent   Code = "bad_content"  // a file cannot be what its name says
	BadAnswer    Code = "bad_answer"   // the other side answers what it should not
	NotServed    Code = "not_served"   // the worker does not serve its files
	Conflict     Code = "conflict"     // workers of one pool have different files
	Offline      Code = "offline"      // the cache lacks it, and nobody may be asked
	Unavailable  Code = "unavailable"  // the other side is down, slow or overloaded
	Unreadable   Code = "unreadable"   // the disk does not give the file
	Changing     Code = "changing"     // the files changed while they were read
	Canceled     Code = "canceled"     // the caller gave up
)

// Error is why there are no files.
type Error struct {
	Code   Code
	Source string // which directory, repository or worker
	File   string // which file; empty when it concerns all
	Msg    string // what is wrong
	Fix    string // what to do; may be empty
	Err    error  // what is behind it; may be nil

	retry bool          // the same request may succeed later
	after time.Duration // the other side says when; 0: it does not
}

// Error tells all but the code in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model files")
	if e.Source != "" {
		b.WriteString(" of " + e.Source)
	}
	if e.File != "" {
		b.WriteString(": " + e.File)
	}
	b.WriteString(": " + e.Msg)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Fix != "" {
		b.WriteString(" (" + e.Fix + ")")
	}
	return b.String()
}

// Unwrap returns what is behind the error.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of an error of this package, "" for nil and for any
// other error.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// asError returns err as one of ours, a copy that may be changed.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		return &c
	}
	return &Error{Code: Unreadable, Msg: "failed", Err: err}
}

// inFile adds the name of the file, if none is named.
func inFile(err error, name string) error {
	e := asError(err)
	if e.File == "" {
		e.File = name
	}
	return e
}

// from adds the source, if none is named.
func from(err error, source string) error {
	e := asError(err)
	if e.Source == "" {
		e.Source = source
	}
	return e
}

// canceled is the error after the caller gave up.
func canceled(ctx context.Context) *Error {
	return &Error{Code: Canceled, Msg: "given up", Err: context.Cause(ctx)}
}

// bare takes the address off an error of net/http: it may hold a signature.
func bare(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func tooLarge(limit int64) *Error {
	return &Error{
		Code: TooLarge, Msg: fmt.Sprintf("is larger than %d bytes", limit),
		Fix: "raise the limit if this is really a tokenizer's file",
	}
}
