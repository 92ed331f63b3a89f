// Package vllm is the codec of the KV events that an engine publishes itself, as
// vLLM, SGLang and TensorRT-LLM do: the payload of one message to
// [kvevent.Event] values, and back again (engines.md 1.1, dynamo.md 2.7).
//
// Engines say which tokens a block holds and not Dynamo's hash of them, so the
// decoder hashes, by the rules of Dynamo 1.5 and newer: what it makes of an
// engine's bytes is what a Dynamo worker beside that engine publishes. It reads
// the batch and each event as a map or as an array, whatever the other is. One
// bad event never costs a good one: it is skipped and counted.
//
// The package knows no sockets and no frames, and keeps nothing about a worker
// but what its cache groups are. Order, loss and identity are the caller's: a
// batch has one sequence number, in a frame of its own, and events have no ids.
// Start at [Decoder].
package vllm
