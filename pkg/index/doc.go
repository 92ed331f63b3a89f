// Package index is the prefix index: which workers hold which prompt prefixes,
// per storage tier.
//
// It is fed with kvevent.Events and answers, for one prompt, how many blocks
// every worker holds consecutively from its start. It knows nothing of
// transports, requests or load, and never does I/O. Start at [Index.Apply] and
// [Index.Match]; [Speculation] holds what decisions expect before events
// confirm it.
//
// Rules: reference dynamo.md sections 1.4 and 2.4.
package index
