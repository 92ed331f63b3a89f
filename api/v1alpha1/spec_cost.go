package v1alpha1

// CostSpec says what a decision weighs. Where no field of it is set, workers are
// priced by congestion: the work that a request makes, and the work that waits as
// far as the pool is not busy anyway. That has nothing to tune. All other knobs are
// those of Dynamo's router, by its names; the unit of its costs is one KV block, and
// the lowest cost wins. Where a policy leaves a knob out, the environment of the
// picker may set it (DYN_ROUTER_*).
//
// +kubebuilder:validation:XValidation:rule="!has(self.model) || self.model != 'Congestion' || !(has(self.overlapScoreCredit) || has(self.overlapScoreCreditDecay) || has(self.hostCacheHitWeight) || has(self.diskCacheHitWeight) || has(self.sharedCacheType) || has(self.sharedCacheMultiplier) || has(self.prefillLoadScale) || has(self.decodeActiveRequestWeight) || has(self.temperature) || has(self.assumeKVReuse) || has(self.trackPrefillTokens) || has(self.trackActiveBlocks) || has(self.trackOutputBlocks) || has(self.classes) && self.classes.size() > 0)",message="model Congestion has no knobs; remove them, or set model to Dynamo"
type CostSpec struct {
	// Model is the way to price a worker. Left out: Dynamo when one of its knobs is
	// set, else Congestion. The knobs are all other fields but useKVEvents,
	// routerTTL and classHeader, which count in both models.
	// +warmpath:default="Congestion"
	Model CostModel `json:"model,omitempty"`

	// OverlapScoreCredit is how many blocks of prefill work a block in the worker's
	// device memory saves: Dynamo's --router-kv-overlap-score-credit. 0 routes by
	// load alone, whatever the workers hold; without a class that has a credit, no KV
	// events are read then.
	// +warmpath:counts=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	OverlapScoreCredit *float64 `json:"overlapScoreCredit,omitempty"`

	// OverlapScoreCreditDecay takes credit from workers with much more prefill work
	// than the least loaded one: the credit of device memory is divided by 1 plus
	// this, times the excess in lengths of the prompt. Dynamo's
	// --router-kv-overlap-score-credit-decay. 0: none is taken.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	OverlapScoreCreditDecay *float64 `json:"overlapScoreCreditDecay,omitempty"`

	// HostCacheHitWeight is what a block in the worker's host memory saves, in blocks:
	// Dynamo's --router-host-cache-hit-weight.
	// +warmpath:counts=0.75
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	HostCacheHitWeight *float64 `json:"hostCacheHitWeight,omitempty"`

	// DiskCacheHitWeight is the same for a block on disk or in a store outside the
	// worker: Dynamo's --router-disk-cache-hit-weight.
	// +warmpath:counts=0.25
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	DiskCacheHitWeight *float64 `json:"diskCacheHitWeight,omitempty"`

	// SharedCacheType says what blocks outside the workers are: External is a store
	// that all workers read, such as Dynamo's --shared-cache-type hicache. What is in
	// it then saves the same on every worker, and does not draw requests to one.
	// +warmpath:counts="None"
	SharedCacheType SharedCacheType `json:"sharedCacheType,omitempty"`

	// SharedCacheMultiplier is what a block in a store that all workers read saves, in
	// blocks: Dynamo's --shared-cache-multiplier. Counts with sharedCacheType
	// External.
	// +warmpath:counts=0.5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	SharedCacheMultiplier *float64 `json:"sharedCacheMultiplier,omitempty"`

	// PrefillLoadScale is how many blocks in use a block of prefill work counts:
	// Dynamo's --router-prefill-load-scale.
	// +warmpath:counts=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	PrefillLoadScale *float64 `json:"prefillLoadScale,omitempty"`

	// DecodeActiveRequestWeight is how many blocks in use a request counts that
	// decodes, besides those that it uses: Dynamo's
	// --router-decode-active-request-weight.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	DecodeActiveRequestWeight *float64 `json:"decodeActiveRequestWeight,omitempty"`

	// Temperature spreads decisions: 0 takes the lowest cost, above 0 every worker
	// is taken with a chance that falls with its cost, as with Dynamo's
	// --router-temperature.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Temperature *float64 `json:"temperature,omitempty"`

	// AssumeKVReuse counts a block that several requests on a worker use once:
	// Dynamo's --router-assume-kv-reuse. false is for decode workers that keep a copy
	// for each request.
	// +warmpath:counts=true
	AssumeKVReuse *bool `json:"assumeKVReuse,omitempty"`

	// TrackPrefillTokens counts the prefill work of a worker as load: Dynamo's
	// --router-track-prefill-tokens.
	// +warmpath:counts=true
	TrackPrefillTokens *bool `json:"trackPrefillTokens,omitempty"`

	// TrackActiveBlocks counts the blocks that the requests on a worker use as load:
	// Dynamo's --router-track-active-blocks.
	// +warmpath:counts=true
	TrackActiveBlocks *bool `json:"trackActiveBlocks,omitempty"`

	// TrackOutputBlocks counts the blocks of the output, too, as it grows: Dynamo's
	// --router-track-output-blocks.
	// +warmpath:counts=false
	TrackOutputBlocks *bool `json:"trackOutputBlocks,omitempty"`

	// UseKVEvents says whether KV events say what the workers hold: Dynamo's
	// --router-kv-events. false is the approximate mode: a worker is taken to hold
	// the prompts that were sent to it, for routerTTL.
	// +warmpath:counts=true
	UseKVEvents *bool `json:"useKVEvents,omitempty"`

	// RouterTTL is how long, in the approximate mode, a worker is taken to hold a
	// prompt after it was last sent to it: Dynamo's --router-ttl-secs. Range: 0s to
	// 24h.
	// +warmpath:counts="2m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be 0s to 24h"
	RouterTTL *Duration `json:"routerTTL,omitempty"`

	// ClassHeader is the request header that names the class of a request. It is the
	// client's own word. A request without it, or with the name of no class, is
	// routed as one of no class.
	// +default="x-dynamo-meta-policy-class"
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['host','content-length','content-type','transfer-encoding','connection','te','upgrade','authorization','x-tenant-id','x-gateway-destination-endpoint','x-gateway-destination-endpoint-subset','x-gateway-destination-endpoint-served'])",message="this header is used for something else; choose another"
	ClassHeader string `json:"classHeader,omitempty"`

	// Classes have some knobs of their own, such as requests that must not wait.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Classes []CostClass `json:"classes,omitempty"`
}

// CostModel is a way to price a worker.
//
// +kubebuilder:validation:Enum=Congestion;Dynamo
type CostModel string

// Cost models.
const (
	ModelCongestion CostModel = "Congestion" // by how busy the pool is; no knobs
	ModelDynamo     CostModel = "Dynamo"     // as Dynamo's router
)

// SharedCacheType says what blocks outside the workers are.
//
// +kubebuilder:validation:Enum=None;External
type SharedCacheType string

// Kinds of shared caches.
const (
	SharedCacheNone     SharedCacheType = "None"     // each worker reads only what it stored
	SharedCacheExternal SharedCacheType = "External" // a store that all workers read
)

// CostClass has the knobs of one class of requests. What it leaves out is as for all
// requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.overlapScoreCredit) || has(self.prefillLoadScale) || has(self.temperature)",message="a class must set overlapScoreCredit, prefillLoadScale or temperature"
type CostClass struct {
	// Name of the class: the value of classHeader.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// OverlapScoreCredit is the one of this class.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	OverlapScoreCredit *float64 `json:"overlapScoreCredit,omitempty"`

	// PrefillLoadScale is the one of this class.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	PrefillLoadScale *float64 `json:"prefillLoadScale,omitempty"`

	// Temperature is the one of this class.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Temperature *float64 `json:"temperature,omitempty"`
}

// SessionAffinitySpec keeps the requests of a session together, all else being
// equal: it decides between workers that cost the same, and is no pin.
type SessionAffinitySpec struct {
	// Header is the request header that names the session, such as
	// x-dynamo-session-id. Empty: there are no sessions.
	// +default=""
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['host','content-length','content-type','transfer-encoding','connection','te','upgrade','authorization','x-tenant-id','x-gateway-destination-endpoint','x-gateway-destination-endpoint-subset','x-gateway-destination-endpoint-served'])",message="this header is used for something else; choose another"
	Header string `json:"header,omitempty"`
}

// AdmissionSpec says when a request is refused rather than put on a busy worker.
type AdmissionSpec struct {
	// ActivePrefillTokensThreshold is how many prompt tokens may wait on a worker
	// before it is busy: Dynamo's --active-prefill-tokens-threshold. A busy worker
	// gets no prompt; when all that could take it are busy, the request is refused
	// with 429. 0: no bound.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	ActivePrefillTokensThreshold *int64 `json:"activePrefillTokensThreshold,omitempty"`

	// ActivePrefillTokensThresholdFraction is the same as a share of the tokens that
	// the worker computes in one step: Dynamo's
	// --active-prefill-tokens-threshold-frac. Binds only workers that say how many
	// these are. A worker over either bound is busy. 0: no bound.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ActivePrefillTokensThresholdFraction *float64 `json:"activePrefillTokensThresholdFraction,omitempty"`

	// ActiveDecodeBlocksThreshold is how many KV blocks the requests on a worker may
	// use before it is busy. A busy worker gets no request to decode; when all are
	// busy, the request is refused with 429. 0: no bound.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	ActiveDecodeBlocksThreshold *int64 `json:"activeDecodeBlocksThreshold,omitempty"`

	// ActiveDecodeBlocksThresholdFraction is the same as a share of the KV blocks that
	// the worker has: Dynamo's --active-decode-blocks-threshold. Binds only workers
	// that say how many these are. 0: no bound.
	// +warmpath:counts=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	ActiveDecodeBlocksThresholdFraction *float64 `json:"activeDecodeBlocksThresholdFraction,omitempty"`

	// Queue lets requests wait while all workers are busy, rather than refuse them at
	// once.
	Queue QueueSpec `json:"queue,omitzero"`

	// Objectives are priorities by the name of an objective. They come before those
	// of InferenceObjectives in the cluster.
	// +default=[]
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Objectives []ObjectiveSpec `json:"objectives,omitempty"`

	// FallbackEndpoints is how many further endpoints the destination names, for the
	// gateway to try in that order when the picked worker cannot be reached. Set it
	// only where the gateway takes a list in x-gateway-destination-endpoint.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4
	FallbackEndpoints int `json:"fallbackEndpoints,omitempty"`
}
