package v1alpha1

// KubernetesDiscovery finds the workers in the cluster that the picker runs in:
// the ready pods of an InferencePool or, where its CRD is not installed, of a label
// selector. Set pool or selector.
type KubernetesDiscovery struct {
	// Pool is the InferencePool (inference.networking.k8s.io/v1) whose pods are the
	// workers. A RoutingPolicy that targets it takes the place of spec.
	Pool *PoolReference `json:"pool,omitempty"`

	// Selector finds the pods by their labels, without an InferencePool. There is
	// no RoutingPolicy then: spec is all there is.
	Selector *PodSelector `json:"selector,omitempty"`

	// Kubeconfig is a file that says how to reach the API server. Empty: the
	// service account of the pod that the picker runs in. A relative path starts at
	// the folder of the configuration file.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// WorkerIdentity says what a Dynamo worker's id is made of:
	// DYN_KUBE_DISCOVERY_MODE of the workers.
	// +default="Pod"
	WorkerIdentity WorkerIdentity `json:"workerIdentity,omitempty"`

	// ActivePortsAnnotations are the annotations of a pod that list, separated by
	// commas, those of the pool's target ports that it serves; the first that is
	// there counts. Without one it serves all.
	// +default=["llm-d.ai/active-ports","inference.networking.k8s.io/active-ports"]
	ActivePortsAnnotations []string `json:"activePortsAnnotations,omitzero"`

	// PolicyFileFolders are the folders of the picker's pod in which the files of
	// policies must lie: Secrets and models that are mounted for them.
	// +default=["/etc/warmpath"]
	PolicyFileFolders []string `json:"policyFileFolders,omitzero"`

	// PublishStatus writes the status of the RoutingPolicy, and events on the pool.
	// One of several replicas does, the one that holds the Lease <pool>-warmpath.
	// +default=true
	PublishStatus *bool `json:"publishStatus,omitempty"`
}

// PoolReference names an InferencePool.
type PoolReference struct {
	// Name of the InferencePool.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Namespace of the InferencePool, and of its pods. Empty: the namespace that
	// the picker runs in (POD_NAMESPACE, or the one of its service account).
	// +default=""
	Namespace string `json:"namespace,omitempty"`
}

// PodSelector finds pods by their labels.
type PodSelector struct {
	// LabelSelector is written as for kubectl -l, such as app=llm or
	// app in (a,b),tier!=test.
	// +required
	// +kubebuilder:validation:MinLength=1
	LabelSelector string `json:"labelSelector"`

	// TargetPorts are the ports that a pod serves, 1 to 65535. With several,
	// data-parallel rank i is behind the i-th.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	TargetPorts []int `json:"targetPorts"`

	// Namespace of the pods. Empty: the namespace that the picker runs in.
	// +default=""
	Namespace string `json:"namespace,omitempty"`
}

// WorkerIdentity says what a Dynamo worker's id is made of.
type WorkerIdentity string

// Kinds of identity (dynamo.md 3.1).
const (
	IdentityPod       WorkerIdentity = "Pod"       // the name of the pod: one worker per pod
	IdentityContainer WorkerIdentity = "Container" // the names of pod and container: one worker for each container that declares a target port
)

// TLSSpec encrypts ext-proc. Left out, it is gRPC without TLS.
type TLSSpec struct {
	// SelfSigned makes a certificate at every start, for gateways that encrypt
	// but check nothing, such as Istio with insecureSkipVerify. Not allowed
	// together with certFile.
	// +default=false
	SelfSigned bool `json:"selfSigned,omitempty"`

	// CertFile is a PEM file with the certificate and those between it and its
	// authority. It is read again when it changes; a relative path starts at the
	// folder of the configuration file. Goes with keyFile.
	CertFile string `json:"certFile,omitempty"`

	// KeyFile is a PEM file with the private key of the certificate.
	KeyFile string `json:"keyFile,omitempty"`
}
