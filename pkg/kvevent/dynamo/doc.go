// Package dynamo is the codec of Dynamo's KV-cache events as they travel on its
// NATS event plane: subjects to names, message bytes to [kvevent.Event] values,
// and both back again.
//
// It reads every form that releases 1.2 to 1.6 publish, and ties no form to
// another: subjects in component or endpoint scope, payloads as one map, as an
// array of maps or in the old positional form. One bad event never costs a good
// one: it is skipped and counted.
//
// The package never talks to NATS, keeps no per-worker state and judges no event
// ids: order, loss and identity are the caller's. Start at [Decoder].
package dynamo
