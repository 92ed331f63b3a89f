// Package recovery asks a Dynamo worker what it holds: every worker rank keeps
// an index of its own and a ring of its last events, and answers queries about
// them over Dynamo's TCP request plane. That is how a gap in the events is
// closed, and how an index starts full.
//
// The way of a query is unusual. We dial the worker and send the request; the
// worker acknowledges it and then dials back to us, to the address and with the
// id that the request names, and sends the answer there. So workers must be able
// to reach the picker (a NetworkPolicy may stand in the way), and the package
// listens: it serves nobody but the answers that it waits for, each known by an
// id that cannot be guessed. Nothing on the way is encrypted or signed; that is
// Dynamo's protocol.
//
// The package judges no event ids, keeps nothing about workers, retries nothing
// and never speaks NATS: when to ask, and what to do with an answer, is the
// caller's. Start at [Client].
//
// Rules: reference dynamo.md section 1.9; dynamo-live.md section 3.
package recovery
