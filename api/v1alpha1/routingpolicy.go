package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoutingPolicy says how the requests of one InferencePool are routed. Where
// several target the same pool the oldest counts, and the others say so.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rp,categories=gateway-api
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Prefill",type=integer,JSONPath=`.status.workers.prefill`
// +kubebuilder:printcolumn:name="Decode",type=integer,JSONPath=`.status.workers.decode`
// +kubebuilder:printcolumn:name="Events",type=string,JSONPath=`.status.conditions[?(@.type=="EventPlaneHealthy")].reason`
// +kubebuilder:printcolumn:name="Hit",type=string,JSONPath=`.status.hitRate`
// +kubebuilder:printcolumn:name="Ceiling",type=string,JSONPath=`.status.ceiling`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Aggregated",type=integer,priority=1,JSONPath=`.status.workers.aggregated`
// +kubebuilder:printcolumn:name="Pool",type=string,priority=1,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type RoutingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how requests are routed.
	// +required
	Spec PoolRoutingSpec `json:"spec"`

	// Status is what a picker of the pool found. The replica that holds the lease
	// writes it.
	Status RoutingPolicyStatus `json:"status,omitzero"`
}

// RoutingPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type RoutingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RoutingPolicy `json:"items"`
}

// PoolRoutingSpec is how the requests of one pool are routed: what the spec of a
// configuration file holds, and the pool. Where it leaves out eventPlane.nats.url,
// the connection to NATS is the one of the picker's configuration file, TLS and
// files to sign in with included; where it names no tokenizer.inProcess.source, so
// is the source. Files are those of the picker's pod, below /etc/warmpath unless its
// configuration file says otherwise.
type PoolRoutingSpec struct {
	// TargetRef is the pool, in the namespace of the policy.
	// +required
	TargetRef PolicyTarget `json:"targetRef"`

	RoutingPolicySpec `json:",inline"`
}

// PolicyTarget names what a policy is for.
type PolicyTarget struct {
	// Group of the target.
	// +default="inference.networking.k8s.io"
	// +kubebuilder:validation:Enum=inference.networking.k8s.io
	Group string `json:"group,omitempty"`

	// Kind of the target.
	// +default="InferencePool"
	// +kubebuilder:validation:Enum=InferencePool
	Kind string `json:"kind,omitempty"`

	// Name of the target.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RoutingPolicyStatus is what a picker of the pool found.
type RoutingPolicyStatus struct {
	// Conditions are Accepted, ResolvedRefs, RolesResolved, EventPlaneHealthy,
	// PrefixAware and, over all of them, Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Workers are the ready workers of the pool, counted per data-parallel rank.
	Workers *WorkerCounts `json:"workers,omitempty"`

	// HitRate is the share of prompt blocks that the picked workers held, of the
	// prompts that this replica routed over the last five minutes, such as 83.4%.
	// Empty without traffic.
	// +kubebuilder:validation:MaxLength=8
	HitRate string `json:"hitRate,omitempty"`

	// Ceiling is the share that the best worker of the pool held for each prompt:
	// what a picker that ignores load would have reached.
	// +kubebuilder:validation:MaxLength=8
	Ceiling string `json:"ceiling,omitempty"`

	// Replica is the pod of the picker that wrote this.
	// +kubebuilder:validation:MaxLength=253
	Replica string `json:"replica,omitempty"`
}

// WorkerCounts are numbers of workers per role.
type WorkerCounts struct {
	// Aggregated is the number of workers that prefill and decode.
	Aggregated int32 `json:"aggregated"`

	// Prefill is the number of workers that only prefill.
	Prefill int32 `json:"prefill"`

	// Decode is the number of workers that decode for others.
	Decode int32 `json:"decode"`
}
