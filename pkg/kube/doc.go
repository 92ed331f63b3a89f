// Package kube follows one pool of workers in a Kubernetes cluster: its
// InferencePool and pods become an immutable [fleet.Snapshot], its RoutingPolicy
// becomes the spec that requests are routed by, and what the picker found out goes
// back as the policy's status and as events on the pool.
//
// It is the only package that speaks Kubernetes. It never writes an InferencePool,
// and never takes a good snapshot away because the API server is gone. Start at
// [Watcher].
package kube
