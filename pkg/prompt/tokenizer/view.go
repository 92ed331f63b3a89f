package tokenizer

import "unsafe"

// view returns buf as a string without a copy. The string is valid until buf is
// written to again: it must not outlive the call it is made in.
func view(buf []byte) string {
	return unsafe.String(unsafe.SliceData(buf), len(buf))
}
