package kube

import (
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Problem is one thing that is wrong, and what to do about it.
type Problem struct {
	Reason  string // CamelCase, as in conditions and events
	Message string // a sentence that says what is wrong and how to mend it
}

// View is what the watcher knows of the pool at one moment. It is immutable.
type View struct {
	Synced bool // pool and pods were read at least once

	// Pool is the InferencePool; nil in selector mode, or when there is none.
	Pool *inferencev1.InferencePool
	// Refs are problems with what the pool refers to, and with the pool itself:
	// missing, in the old API group, not readable. Also those of its
	// InferenceModelRewrites that cannot be followed.
	Refs []Problem
	// Roles are problems with the roles of pods.
	Roles []Problem
	// Advertised are differences between what workers say of themselves
	// (DynamoWorkerMetadata) and the spec in use, such as the block size.
	Advertised []Problem

	Snapshot *fleet.Snapshot // what was published last; nil before the first
}
