// Package eventplane listens to the workers' KV-cache events on NATS and keeps
// the prefix index up to date.
//
// It hears every component of a namespace, in both generations of Dynamo's
// subjects, so neither a move from aggregated to disaggregated nor a rolling
// upgrade changes what arrives. What goes wrong on the way, it counts per worker.
// A worker of which events were lost is asked what it holds, and is credited with
// nothing until it has told; see [State]. With [JetStream] events come from a stream
// that keeps them. A plane that starts learns from others what came before; see
// [WarmUp].
//
// What workers and routers say about load, it hands on, on a queue of its own. It
// publishes nothing about requests unless asked to, with Config.ReplicaSync. Start
// at [Plane]; docs/adr 0010 and 0011 say why it is as it is.
//
// Rules: reference dynamo.md sections 1.2 to 1.9; dynamo-live.md.
package eventplane
