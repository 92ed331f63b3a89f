package v1alpha1

// TopologySpec says how a worker's labels become the place where it runs. Of each
// list the first label that the worker has counts. In a cluster these are the labels
// of the pod and, where labelsFrom says so, those of its node; the node's name is the
// host where no label says so.
type TopologySpec struct {
	// LabelsFrom says whose labels name the place, in a cluster.
	// +default="Pods"
	LabelsFrom TopologyLabels `json:"labelsFrom,omitempty"`

	// ZoneLabels name the zone.
	// +default=["topology.kubernetes.io/zone","dynamo.topology/zone"]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	ZoneLabels []string `json:"zoneLabels,omitzero"`

	// RackLabels name the rack.
	// +default=["topology.kubernetes.io/rack","dynamo.topology/rack"]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	RackLabels []string `json:"rackLabels,omitzero"`

	// HostLabels name the host.
	// +default=["kubernetes.io/hostname","dynamo.topology/host"]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	HostLabels []string `json:"hostLabels,omitzero"`

	// FabricLabels name the domain of fast interconnects, such as an NVLink domain.
	// +default=["nvidia.com/gpu.clique","dynamo.topology/fabric"]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	FabricLabels []string `json:"fabricLabels,omitzero"`

	// ConnectorLabels name the engine and the way its KV blocks move. Workers with
	// different ones never make a pair; one that has none goes with any.
	// +default=["llm-d.ai/engine-type","inference.networking.k8s.io/engine-type"]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	ConnectorLabels []string `json:"connectorLabels,omitzero"`
}

// TopologyLabels says whose labels name the place where a worker runs.
//
// +kubebuilder:validation:Enum=Pods;PodsAndNodes
type TopologyLabels string

// Whose labels are read.
const (
	LabelsFromPods         TopologyLabels = "Pods"         // those of the pod
	LabelsFromPodsAndNodes TopologyLabels = "PodsAndNodes" // those of the pod and, for a zone, rack, host or fabric that it does not name, those of its node; the picker needs the right to list and watch nodes, which the chart gives with rbac.nodes
)
