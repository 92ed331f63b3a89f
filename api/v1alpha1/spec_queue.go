package v1alpha1

import "time"

// QueueSpec says how requests wait while all workers that could take them are busy.
// It has no effect without a bound that makes a worker busy.
type QueueSpec struct {
	// MaxWait is how long a request waits before it is refused with 429. 0s lets none
	// wait. A gateway must be patient for as long: in body modes other than
	// FULL_DUPLEX_STREAMED its message_timeout bounds the wait. Range: 0s to 5m.
	// +default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('5m')",message="must be 0s to 5m"
	MaxWait *Duration `json:"maxWait,omitempty"`

	// MaxRequests is how many requests may wait, in each replica of the picker. When
	// that many do, a request takes the place of the newest one of the lowest
	// priority, if its own is higher, or that of a fairness id that has more waiting
	// than its own; else it is refused with 429. So it is when their bodies take more
	// than 256 MiB.
	// +default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxRequests int `json:"maxRequests,omitempty"`

	// Policy is the order among requests of the same priority and fairness id. Higher
	// priorities always come first, and fairness ids take turns.
	// +warmpath:default="FCFS"
	Policy QueuePolicy `json:"policy,omitempty"`
}

// QueuePolicy is the order among requests of the same priority and fairness id, by
// Dynamo's names.
//
// +kubebuilder:validation:Enum=FCFS;WSPT
type QueuePolicy string

// Policies.
const (
	QueueFCFS QueuePolicy = "FCFS" // first come, first served
	QueueWSPT QueuePolicy = "WSPT" // the fewest tokens to compute first, but for requests that have waited for half of maxWait
)

// ObjectiveSpec is what requests that name an objective get.
type ObjectiveSpec struct {
	// Name is what requests name in the header x-llm-d-inference-objective, or
	// x-gateway-inference-objective.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Priority of the requests: higher ones first. Those below 0 do not wait: they
	// are refused with 429 while all workers are busy. Requests without an objective
	// have 0.
	// +default=0
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Priority int `json:"priority,omitempty"`
}

// Default fills every field that is zero with its default.
func (q *QueueSpec) Default() {
	setPointer(&q.MaxWait, Duration{5 * time.Second})
	set(&q.MaxRequests, 1000)
}
