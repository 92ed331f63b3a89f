package v1alpha1

// WorkerList is the file that lists the workers of a pool, for file discovery.
type WorkerList struct {
	// APIVersion is the version of this file's format.
	// +required
	// +kubebuilder:validation:Enum=routing.warmpath.dev/v1alpha1
	APIVersion string `json:"apiVersion"`

	// Kind is the kind of this file.
	// +required
	// +kubebuilder:validation:Enum=WorkerList
	Kind string `json:"kind"`

	// Workers of the pool. Required, so that a half-written file does not empty a
	// pool; write [] for a pool with no worker.
	// +required
	Workers []WorkerSpec `json:"workers"`
}

// WorkerSpec is one engine process, with one or more data-parallel ranks.
type WorkerSpec struct {
	// Name of the worker, unique in the file: the pod's name where there are
	// pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Address is the IPv4 or IPv6 address that requests are sent to. Host names
	// are not resolved.
	// +required
	Address string `json:"address"`

	// Ports that the worker listens on, 1 to 65535. With several, data-parallel
	// rank i listens on the i-th.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Ports []int `json:"ports"`

	// Labels of the worker; spec.roles finds its role in them.
	Labels map[string]string `json:"labels,omitempty"`

	// Site is where the worker runs. What it leaves out spec.topology finds in the
	// labels.
	Site WorkerSite `json:"site,omitzero"`

	// Connector names the engine and the way its KV blocks move: workers with
	// different ones never make a pair. Left out: spec.topology.connectorLabels finds
	// it in the labels.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	Connector string `json:"connector,omitempty"`

	// DataParallelSize is the number of data-parallel ranks. With one port all of
	// them are behind it; with several it is the number of ports. Left out: the
	// number of ports.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	DataParallelSize int `json:"dataParallelSize,omitempty"`

	// KVBlocks is how many KV blocks one rank has room for, 1 to 1000000000: shares
	// such as spec.admission.activeDecodeBlocksThresholdFraction go by it. 0: not
	// known, but for what the engine's metrics say.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	KVBlocks int64 `json:"kvBlocks,omitempty"`

	// MaxBatchedTokens is how many tokens one rank computes in a step, 1 to 1000000000:
	// vLLM's --max-num-batched-tokens. Shares such as
	// spec.admission.activePrefillTokensThresholdFraction go by it. 0: not known.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	MaxBatchedTokens int64 `json:"maxBatchedTokens,omitempty"`

	// WorkerID is the id under which the worker publishes events, 0 to 2^64-1.
	// Left out: computed from the name, as Dynamo does for pods.
	WorkerID *WorkerID `json:"workerID,omitempty"`

	// RecoveryEndpoints are where the worker answers questions about what it
	// holds, one for each data-parallel rank, in the order of the ranks: what
	// Dynamo's discovery has under "tcp", host:port/path. Left out: the worker is
	// not asked.
	// +kubebuilder:validation:MaxItems=1024
	RecoveryEndpoints []string `json:"recoveryEndpoints,omitempty"`

	// Ready says whether the worker takes requests. One that is not is left out
	// of the pool.
	// +default=true
	Ready *bool `json:"ready,omitempty"`
}

// WorkerSite is where a worker runs. Workers with the same text are at the same
// place; what is left out is not known.
type WorkerSite struct {
	// Zone of the host.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	Zone string `json:"zone,omitempty"`

	// Rack of the host.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	Rack string `json:"rack,omitempty"`

	// Host is the machine that the worker runs on.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// Fabric is the domain of fast interconnects, such as an NVLink domain.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	Fabric string `json:"fabric,omitempty"`
}
