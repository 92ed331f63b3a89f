// Package render asks an engine for the token ids of a prompt, over the
// engine's own HTTP endpoints, under a deadline and one circuit breaker per
// engine.
//
// It never logs, never puts a prompt, or what an engine wrote about one, in an
// error, and starts no goroutine of its own. A failed call is no reason to fail
// a request: the caller routes without token ids. Start at [Client].
package render
