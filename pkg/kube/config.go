package kube

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// Config is what a Watcher needs. All fields are required but those with a default.
type Config struct {
	// Discovery says which pool. Its defaults are filled in and it is valid.
	Discovery v1alpha1.KubernetesDiscovery
	// File is the spec of the configuration file: in use while no policy is, and
	// what a policy inherits from (v1alpha1.RoutingPolicySpec.Inherit).
	File *v1alpha1.RoutingPolicySpec
	// Environment sets what a policy leaves out (v1alpha1.RoutingPolicySpec.FillFrom);
	// File has it already. Default: nothing.
	Environment *v1alpha1.RoutingPolicySpec
	// Rest says how to reach the API server. Default: Discovery.Kubeconfig, else
	// the service account of the pod.
	Rest *rest.Config

	// Publish takes a new pool into use. Called by Run, one call at a time.
	Publish func(*fleet.Snapshot)
	// Restarted says that the process of a worker began anew: what it held is gone.
	// Called by Run, whether the pod is ready or not.
	Restarted func(fleet.Key)
	// Apply takes a spec into use, which may take as long as a new event plane takes
	// to warm up. It returns an error when it could not; then the one before stays
	// in use. Called by Run before the first Publish and after changes of the policy
	// only, one call at a time. The spec has its defaults and is valid.
	Apply func(context.Context, *v1alpha1.RoutingPolicySpec) error
	// Objectives takes the priorities of the pool's InferenceObjectives by name into
	// use. Called by Run, one call at a time. Default: nobody is told.
	Objectives func(map[string]int)
	// Rewrites takes the rules of the pool's InferenceModelRewrites into use, the one
	// that counts first. Called by Run, one call at a time. Default: nobody is told.
	Rewrites func([]rewrite.Rule)
	// Observe says how routing goes. Safe for concurrent use, and quick.
	Observe func() Observation

	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Observation is how routing goes at one moment, as far as one replica knows.
// Counters only ever grow while the process runs.
type Observation struct {
	// MissingFiles is what is wrong with files that the spec in use names: nil, or
	// one error per file, whose text names file and field.
	MissingFiles []error

	// Events is the state of the event plane.
	Events EventState

	// Counters.
	Decisions       uint64 // requests that were routed
	Prompts         uint64 // of them, those with a prompt
	KnownPrompts    uint64 // of them, those whose token ids were known
	TotalBlocks     uint64 // blocks of those
	MatchedBlocks   uint64 // held by the worker picked to prefill
	BestBlocks      uint64 // held by the best worker of the pool, or about to be
	FoundPrompts    uint64 // prompts of which a worker held something by its events
	ServedElsewhere uint64 // responses from an endpoint other than the picked one

	// IndexedBlocks are the blocks in the prefix index, by role of the worker that
	// holds them, indexed by fleet.Role.
	IndexedBlocks [3]int
	// StrangerEvents counts events of workers that are not in the pool.
	StrangerEvents uint64
	// TokenizerWaits says what the tokenizer waits for, empty for nothing.
	TokenizerWaits string
}

// EventState is the state of the event plane.
type EventState struct {
	Disabled  bool   // by the spec
	NoServer  bool   // neither policy nor file names a NATS server
	Connected bool   // to NATS
	LastError string // why not
	Warming   string // what a new picker waits for, empty when warm
	Received  uint64 // KV events since the start, those of StrangerEvents among them
}
