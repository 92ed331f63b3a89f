package v1alpha1

// CostSpec weighs what a decision compares: the work that a prompt makes on a
// prefill worker against the blocks that its cache saves, and the blocks in use on
// a decode worker. The unit of all costs is one KV block; the lowest cost wins.
type CostSpec struct {
	// OverlapScoreCredit is how many blocks of prefill work a block in the worker's
	// device memory saves: Dynamo's --router-kv-overlap-score-credit. 0 routes by
	// load alone, whatever the workers hold.
	// +default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	OverlapScoreCredit *float64 `json:"overlapScoreCredit,omitempty"`

	// HostCacheHitWeight is the same for a block in the worker's host memory:
	// Dynamo's --router-host-cache-hit-weight.
	// +default=0.75
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	HostCacheHitWeight *float64 `json:"hostCacheHitWeight,omitempty"`

	// DiskCacheHitWeight is the same for a block on disk or in a store outside the
	// worker: Dynamo's --router-disk-cache-hit-weight.
	// +default=0.25
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	DiskCacheHitWeight *float64 `json:"diskCacheHitWeight,omitempty"`

	// PrefillLoadScale is how many blocks in use a block of prefill work counts:
	// Dynamo's --router-prefill-load-scale.
	// +default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	PrefillLoadScale *float64 `json:"prefillLoadScale,omitempty"`

	// Temperature spreads decisions: 0 takes the lowest cost, above 0 every worker
	// is taken with a chance that falls with its cost, as with Dynamo's
	// --router-temperature.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Temperature *float64 `json:"temperature,omitempty"`
}

// DisaggregationSpec says when the prompt is computed on a prefill worker of its
// own. It has no effect on pools without prefill workers, but for Required.
type DisaggregationSpec struct {
	// Mode says when requests are split.
	// +default="WhenReady"
	Mode DisaggregationMode `json:"mode,omitempty"`
}

// DisaggregationMode says when requests are split over two workers.
//
// +kubebuilder:validation:Enum=WhenReady;Required;Never
type DisaggregationMode string

// Modes of disaggregation.
const (
	DisaggregationWhenReady DisaggregationMode = "WhenReady" // split while a prefill worker is ready, else the decode worker computes the prompt
	DisaggregationRequired  DisaggregationMode = "Required"  // split always: without a ready prefill worker the request is refused with 503, also in pools of aggregated workers
	DisaggregationNever     DisaggregationMode = "Never"     // never split: the decode worker computes the prompt; not for workers that only decode what others computed
)

// AdmissionSpec says when a request is refused rather than put on a busy worker.
type AdmissionSpec struct {
	// ActivePrefillTokensThreshold is how many prompt tokens may wait on a worker
	// before it is busy: Dynamo's --active-prefill-tokens-threshold. A busy worker
	// gets no prompt; when all that could take it are busy, the request is refused
	// with 429. 0: no bound.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	ActivePrefillTokensThreshold int64 `json:"activePrefillTokensThreshold,omitempty"`

	// ActiveDecodeBlocksThreshold is how many KV blocks the requests on a worker may
	// use before it is busy. A busy worker gets no request to decode; when all are
	// busy, the request is refused with 429. 0: no bound.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	ActiveDecodeBlocksThreshold int64 `json:"activeDecodeBlocksThreshold,omitempty"`

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
