package v1alpha1

// Values of apiVersion and kind that this package reads.
const (
	APIVersion               = "routing.warmpath.dev/v1alpha1"
	KindEndpointPickerConfig = "EndpointPickerConfig"
	KindWorkerList           = "WorkerList"
)

// EndpointPickerConfig is the configuration file of one picker process.
//
// Spec says how requests are routed. Everything that belongs to the process,
// such as where it listens, stays outside Spec.
type EndpointPickerConfig struct {
	// APIVersion is the version of this file's format.
	// +required
	// +kubebuilder:validation:Enum=routing.warmpath.dev/v1alpha1
	APIVersion string `json:"apiVersion"`

	// Kind is the kind of this file.
	// +required
	// +kubebuilder:validation:Enum=EndpointPickerConfig
	Kind string `json:"kind"`

	// Server is about the process: where it listens, how it logs and stops.
	Server ServerConfig `json:"server,omitzero"`

	// Discovery says where the workers of the pool are found.
	// +required
	Discovery DiscoveryConfig `json:"discovery"`

	// Spec says how requests are routed.
	// +required
	Spec RoutingPolicySpec `json:"spec"`
}

// ServerConfig is about the process: where it listens, how it logs and stops.
type ServerConfig struct {
	// ExtProcAddress is where Envoy's external processing streams arrive: gRPC
	// without TLS, unless extProcTLS is set. Form host:port; no host means all
	// addresses, port 0 means any free port.
	// +default=":9002"
	ExtProcAddress string `json:"extProcAddress,omitempty"`

	// ExtProcTLS encrypts ext-proc.
	ExtProcTLS *TLSSpec `json:"extProcTLS,omitempty"`

	// HealthAddress serves the gRPC health protocol. Form host:port.
	// +default=":9003"
	HealthAddress string `json:"healthAddress,omitempty"`

	// MetricsAddress serves /metrics (Prometheus), /healthz, /readyz, /debug/index
	// and /debug/tokenizer over HTTP. Form host:port.
	// +default=":9090"
	MetricsAddress string `json:"metricsAddress,omitempty"`

	// DrainTimeout is the most time that a stop may take after SIGTERM. New
	// streams are served for a third of it, and on until none has come for a
	// second; open ones may finish; what is left after this time is cut. Range:
	// above 0, at most 1h.
	// +default="30s"
	DrainTimeout Duration `json:"drainTimeout,omitzero"`

	// MaxBodyBytes is the largest request body read, in bytes. A larger one is
	// answered with 413.
	// +default=67108864
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741824
	MaxBodyBytes int64 `json:"maxBodyBytes,omitempty"`

	// MaxIndexBytes is the most memory that the prefix index takes, in bytes.
	// Beyond it blocks are forgotten: the deepest ones of the worker that holds
	// most go first.
	// +default=2147483648
	// +kubebuilder:validation:Minimum=16777216
	MaxIndexBytes int64 `json:"maxIndexBytes,omitempty"`

	// RecoveryAddress is where workers connect to with answers to the picker's
	// questions (spec.eventPlane.recovery): TCP without TLS. Form host:port; no
	// host means all addresses, port 0 means any free port. Not opened when
	// events or recovery are disabled.
	// +default=":9004"
	RecoveryAddress string `json:"recoveryAddress,omitempty"`

	// RecoveryAdvertise is where workers are told to connect to: an IP, or
	// IP:port where the port differs from the one of recoveryAddress. Host names
	// are not allowed. Empty means the IP of recoveryAddress or, when that is all
	// addresses, the one from which the worker was reached.
	// +default=""
	RecoveryAdvertise string `json:"recoveryAdvertise,omitempty"`

	// EmbeddedNATS serves NATS from this process, for trials: workers publish to it,
	// and the picker hears it where spec.eventPlane.nats.url is left out. It keeps
	// nothing, has no passwords, and other replicas do not share it.
	EmbeddedNATS *EmbeddedNATS `json:"embeddedNATS,omitempty"`

	// LogLevel is the lowest level that is logged.
	// +default="info"
	LogLevel LogLevel `json:"logLevel,omitempty"`
}

// EmbeddedNATS is a NATS server in the picker's process.
type EmbeddedNATS struct {
	// Address is where it listens. Form host:port; no host means all addresses,
	// port 0 means any free port.
	// +default=":4222"
	Address string `json:"address,omitempty"`
}

// LogLevel is the lowest level that is logged.
type LogLevel string

// Log levels, from most to least.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// DiscoveryConfig says where the workers of the pool are found. Set one of its
// fields.
type DiscoveryConfig struct {
	// File reads the workers from a watched file.
	File *FileDiscovery `json:"file,omitempty"`

	// Kubernetes finds the workers in a cluster.
	Kubernetes *KubernetesDiscovery `json:"kubernetes,omitempty"`
}

// FileDiscovery reads the workers from a watched file of kind WorkerList.
type FileDiscovery struct {
	// Path of the file. A relative path starts at the folder of the
	// configuration file. The file is read again whenever it changes.
	// +required
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}
