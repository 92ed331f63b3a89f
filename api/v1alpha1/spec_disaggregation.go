package v1alpha1

// DisaggregationSpec says when the prompt is computed on a prefill worker of its
// own, and which. It has no effect on pools without prefill workers, but for
// Required.
//
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || !(self.condition in ['PrefillBusy', 'Either']) || has(self.prefillBusyThreshold) || has(self.prefillBusyThresholdFraction)",message="prefillBusyThreshold or prefillBusyThresholdFraction is required with condition PrefillBusy or Either"
type DisaggregationSpec struct {
	// Mode says when requests are split.
	// +warmpath:default="WhenReady"
	Mode DisaggregationMode `json:"mode,omitempty"`

	// Order is how the two workers of a pair are found.
	// +default="Joint"
	Order PairOrder `json:"order,omitempty"`

	// Condition is when a prompt is not sent to a prefill worker, because a split
	// would not pay: the decode worker computes it then. Counts with mode WhenReady.
	// +warmpath:default="Never"
	Condition SplitCondition `json:"condition,omitempty"`

	// EffISLThreshold is, with condition ShortPrompt or Either, the number of tokens
	// below which a prompt is short, of those that the decode worker would have to
	// compute: Dynamo's DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD.
	// +warmpath:counts=2048
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	EffISLThreshold *int64 `json:"effISLThreshold,omitempty"`

	// EffISLRatioThreshold is the share of the prompt that these tokens must be below
	// as well: Dynamo's DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_RATIO_THRESHOLD. 1: any
	// share that is not the whole prompt, so that a short prompt of which nothing is
	// cached is split. Above 1 the number of tokens decides alone.
	// +warmpath:counts=0.7
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	EffISLRatioThreshold *float64 `json:"effISLRatioThreshold,omitempty"`

	// PrefillBusyThreshold is, with condition PrefillBusy or Either, how many prompt
	// tokens may wait on the prefill worker before it is busy. This or
	// prefillBusyThresholdFraction is required with these. 0: no token may wait.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	PrefillBusyThreshold *int64 `json:"prefillBusyThreshold,omitempty"`

	// PrefillBusyThresholdFraction is the same as a share of the tokens that the
	// worker computes in one step: Dynamo's
	// DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD. Binds only workers that say
	// how many these are. A worker over either bound is busy. 0: no token may wait.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	PrefillBusyThresholdFraction *float64 `json:"prefillBusyThresholdFraction,omitempty"`

	// NeedsPair says whether the data plane serves a request only when both workers
	// are named. A condition then chooses aggregated workers where the pool has some,
	// and has no effect where not.
	// +default="Auto"
	NeedsPair PairNeed `json:"needsPair,omitempty"`

	// Transfer says what the transfer of KV blocks from the prefill to the decode
	// worker costs, as far as it is known.
	Transfer TransferSpec `json:"transfer,omitzero"`
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

// PairOrder is how the two workers of a pair are found.
//
// +kubebuilder:validation:Enum=Joint;DecodeFirst
type PairOrder string

// Orders.
const (
	OrderJoint       PairOrder = "Joint"       // the cheapest of all pairs
	OrderDecodeFirst PairOrder = "DecodeFirst" // the cheapest decode worker, then the cheapest prefill worker that goes with it
)

// SplitCondition is when a prompt stays on the decode worker.
//
// +kubebuilder:validation:Enum=Never;ShortPrompt;PrefillBusy;Either;EstimatedTime
type SplitCondition string

// Conditions.
const (
	ConditionNever         SplitCondition = "Never"         // every prompt is split
	ConditionShortPrompt   SplitCondition = "ShortPrompt"   // little of it is to be computed: Dynamo's isl_bounding
	ConditionPrefillBusy   SplitCondition = "PrefillBusy"   // the prefill worker has much to do: Dynamo's prefill_load
	ConditionEither        SplitCondition = "Either"        // one of the two: Dynamo's isl_or_load
	ConditionEstimatedTime SplitCondition = "EstimatedTime" // the first token is estimated to come sooner without a split
)

// PairNeed says whether a request is served only when both workers are named.
//
// +kubebuilder:validation:Enum=Auto;Always;Never
type PairNeed string

// Needs.
const (
	PairAuto   PairNeed = "Auto"   // with handoff.preset Dynamo, whose frontends refuse a decode worker alone
	PairAlways PairNeed = "Always" // a decode worker alone is an error while there are prefill workers
	PairNever  PairNeed = "Never"  // a decode worker serves requests alone, too
)

// TransferSpec says what the transfer of KV blocks between two workers costs.
type TransferSpec struct {
	// BytesPerToken is how many bytes move for a token of the prompt, while it is
	// computed. 0: not known.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	BytesPerToken int64 `json:"bytesPerToken,omitempty"`

	// BytesPerRequest is how many bytes move for a request at the end of its prompt,
	// whatever its length: the state of hybrid models.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	BytesPerRequest int64 `json:"bytesPerRequest,omitempty"`

	// SerialLatency is what a transfer takes besides. 0s: it is learned. Range: 0s to
	// 1m.
	// +default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1m')",message="must be 0s to 1m"
	SerialLatency Duration `json:"serialLatency,omitzero"`

	// Bandwidth is how fast blocks move, by the distance of the two workers.
	Bandwidth BandwidthSpec `json:"bandwidth,omitzero"`
}

// BandwidthSpec is how fast KV blocks move between two workers, in bytes per second,
// by the nearest place that they share (topology). Left out: not known, and then no
// time is counted. So all places that are further than one that is set must be set
// as well, and must not be faster than a nearer one: a pair would be taken for being
// far from each other.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.host) || has(self.fabric)) && (!has(self.fabric) || has(self.rack)) && (!has(self.rack) || has(self.zone)) && (!has(self.zone) || has(self.elsewhere))",message="where a place is set, all further ones must be set too, of host, fabric, rack, zone, elsewhere; one that is left out would cost nothing"
// +kubebuilder:validation:XValidation:rule="[[has(self.host) ? self.host : '0', has(self.fabric) ? self.fabric : '0', has(self.rack) ? self.rack : '0', has(self.zone) ? self.zone : '0', has(self.elsewhere) ? self.elsewhere : '0'].map(r, double(r.find('[0-9.]+')) * (r.endsWith('Ki') ? 1024.0 : r.endsWith('Mi') ? 1048576.0 : r.endsWith('Gi') ? 1073741824.0 : r.endsWith('Ti') ? 1099511627776.0 : r.endsWith('k') ? 1000.0 : r.endsWith('M') ? 1000000.0 : r.endsWith('G') ? 1000000000.0 : r.endsWith('T') ? 1000000000000.0 : 1.0))].all(l, (l[0] == 0.0 || l[0] >= l[1]) && (l[1] == 0.0 || l[1] >= l[2]) && (l[2] == 0.0 || l[2] >= l[3]) && (l[3] == 0.0 || l[3] >= l[4]))",message="a nearer place must not be slower than a further one, of host, fabric, rack, zone, elsewhere"
type BandwidthSpec struct {
	// Host is the bandwidth within a host, such as 200G or 150Gi.
	Host *ByteRate `json:"host,omitempty"`

	// Fabric is the one within a domain of fast interconnects, such as NVLink.
	Fabric *ByteRate `json:"fabric,omitempty"`

	// Rack is the one within a rack.
	Rack *ByteRate `json:"rack,omitempty"`

	// Zone is the one within a zone.
	Zone *ByteRate `json:"zone,omitempty"`

	// Elsewhere is the one between workers that share none of these, or of which that
	// is not known.
	Elsewhere *ByteRate `json:"elsewhere,omitempty"`
}
