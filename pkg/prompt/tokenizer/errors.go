package tokenizer

import (
	"bytes"
	"fmt"
)

// LoadError says which part of a tokenizer file cannot be used, and why.
type LoadError struct {
	// Part is the path of the part, as in pre_tokenizer.pretokenizers[0]. It is
	// empty for the file as a whole.
	Part string
	// Offset is where the part starts, or where the text stops to make sense, in
	// bytes; -1 when there is no such place. Line and Column are the same place,
	// counted from 1, Column in bytes; both are 0 when Offset is -1.
	Offset       int64
	Line, Column int
	// Msg is what is wrong.
	Msg string
}

// Error implements error.
func (e *LoadError) Error() string {
	text := e.Msg
	if e.Part != "" {
		text = e.Part + ": " + text
	}
	if e.Offset >= 0 {
		text = fmt.Sprintf("%s (byte %d, line %d, column %d)", text, e.Offset, e.Line, e.Column)
	}
	return "tokenizer: " + text
}

// loadError returns the error for a place in data; offset -1 is none.
func loadError(data []byte, part string, offset int, format string, args ...any) *LoadError {
	e := &LoadError{Part: part, Offset: int64(offset), Msg: fmt.Sprintf(format, args...)}
	if offset >= 0 {
		before := data[:min(offset, len(data))]
		e.Line = bytes.Count(before, []byte{'\n'}) + 1
		e.Column = len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	}
	return e
}
