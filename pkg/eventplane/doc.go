// Package eventplane listens to the workers' KV-cache events on NATS and keeps
// the prefix index up to date.
//
// It hears every component of a namespace, in both generations of Dynamo's
// subjects, so neither a move from aggregated to disaggregated nor a rolling
// upgrade changes what arrives. What goes wrong on the way, it counts per
// worker: gaps, restarts, duplicates. A worker has started over when its event ids
// do, or when another publisher speaks for it. What workers and routers say about load, it
// hands on, on a queue of its own. The plane never publishes. Start at [Plane].
//
// Rules: reference dynamo.md sections 1.2 to 1.7 and 9; dynamo-live.md.
package eventplane
