// Package simengine is a simulated inference worker that looks on the wire like
// vLLM under Dynamo: OpenAI endpoints with server-sent events, render and
// tokenize endpoints, a block-level KV cache whose changes go out as Dynamo
// events on NATS, vLLM-named metrics, and the prefill/decode handshake. A decode
// worker also plays the sidecar that calls the prefill worker named in a header.
//
// It computes no language model: tokens are bytes, answers are deterministic
// letters, and time passes as [Timing] says. It never guesses what a picker
// wants: it does what the request's headers and body say and counts what it did.
//
// What is simpler than the real thing: one choice per request (n must be 1, one
// prompt per request); stop strings and sampling parameters are accepted and
// have no effect; no LoRA and no media; a prefill worker lets go of its blocks
// when its answer is ready instead of keeping them under a lease until the decode
// worker has fetched them; an output block that finds no room is not cached
// instead of pre-empting another request.
//
// Facts it follows: reference engines.md sections 1.1, 2.1, 3.1, 3.2 and 6.1,
// dynamo.md sections 1 to 3, dynamo-live.md. Start at [Engine].
package simengine
