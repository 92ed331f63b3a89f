// Package chat turns a request body into the text of its prompt, as the engine
// that answers it does: it decodes the body in the order of its keys, brings it
// into the form that the engine hands to a chat template, and renders the
// template.
//
// A prompt is exact or refused. Whatever this package does not know how an
// engine would treat is an [*Error], whose code says why; nothing here guesses.
//
// It does no I/O and knows no clock. Start at [Compile].
package chat
