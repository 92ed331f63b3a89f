// Package parity decides whether prompts may be turned into token ids in this
// process: only while the engines compute the same ids.
//
// A [Gate] keeps a state for every [Shape] of request, because a template can
// agree on plain chats and differ where there are tools. It is fed with canned
// requests ([Canned], [Run]) and with a sample of live traffic, rendered both
// here and by an engine. A difference closes the gate of its shape until the
// request that showed it, and the canned ones, agree again.
//
// The package does no I/O, starts no goroutine and knows no clock: whoever asks
// engines is a function, and time is an argument. No prompt ends up in a result
// or an error. Start at [Gate].
package parity
