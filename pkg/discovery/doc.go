// Package discovery finds the workers of a pool without Kubernetes: it reads a
// file of kind WorkerList, watches it, and publishes every good version as an
// immutable fleet.Snapshot.
//
// It never talks to a worker, and never replaces a good snapshot with nothing
// because a file is broken or gone. Start at [File].
package discovery
