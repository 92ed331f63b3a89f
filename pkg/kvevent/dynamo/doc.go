// Package dynamo is the codec of Dynamo's KV-cache and load events as they
// travel on its NATS event plane: subjects to names, message bytes to
// [kvevent.Event] and [Load] values, and all of them back again.
//
// It reads every form that releases 1.2 to 1.6 publish, and ties no form to
// another: subjects in namespace, component or endpoint scope, payloads as one
// map, as an array of maps or in the old positional form. The bare JSON events of
// the JetStream mode are read by the same rules. One bad event never costs a good
// one: it is skipped and counted.
//
// One field is read over on purpose: state_source, which newer senders add last to
// say how they came to know. Nothing here depends on it.
//
// The package never talks to NATS, keeps no per-worker state and judges no event
// ids: order, loss and identity are the caller's. Start at [Decoder] for the
// cache and at [LoadDecoder] for the load.
package dynamo
