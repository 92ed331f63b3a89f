// Package kvevent is the normalised form of a worker's KV-cache event: what the
// prefix index understands, whatever wire format it came in.
//
// The codecs live below it, one package per wire format: kvevent/dynamo for what
// Dynamo's workers publish, kvevent/vllm for what engines publish themselves. The
// package holds values only. Start at [Event].
package kvevent
