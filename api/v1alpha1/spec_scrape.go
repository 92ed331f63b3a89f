package v1alpha1

import "time"

// EngineMetricsSpec says how the metrics of the workers' engines are read: what
// waits and runs in each, and how full its KV cache is. vLLM, SGLang, TensorRT-LLM
// and Dynamo workers are known by the names of their metrics.
//
// +kubebuilder:validation:XValidation:rule="!has(self.insecureSkipVerify) || !self.insecureSkipVerify || has(self.scheme) && self.scheme == 'https'",message="insecureSkipVerify needs scheme https; set it, or remove insecureSkipVerify"
type EngineMetricsSpec struct {
	// Enabled turns it on. Off, engines are judged by the picker's own bookings and
	// by what the event plane tells.
	// +default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Path of the page on each worker.
	// +default="/metrics"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._~/-]*$`
	Path string `json:"path,omitempty"`

	// Port of the page. 0 is the port that a worker takes requests on; a Dynamo
	// worker has its metrics on another, DYN_SYSTEM_PORT. Workers with the same
	// data-parallel rank must not share a page.
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`

	// Scheme of the page.
	// +default="http"
	Scheme MetricsScheme `json:"scheme,omitempty"`

	// InsecureSkipVerify accepts any certificate. Workers are asked by their
	// addresses, for which few certificates are. Only with scheme https.
	// +default=false
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`

	// MinInterval is the shortest time between two looks at a worker, while its
	// figures change. It is longer for a worker that is idle (2s), slow (so that it
	// takes 2 % of the time at most) or failing (10s to 1m), and in pools of more
	// workers than it has milliseconds. Range: 20ms to 1m.
	// +default="100ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('20ms') && duration(self) <= duration('1m')",message="must be 20ms to 1m"
	MinInterval Duration `json:"minInterval,omitzero"`
}

// MetricsScheme is the scheme of a page of metrics.
//
// +kubebuilder:validation:Enum=http;https
type MetricsScheme string

// Schemes.
const (
	MetricsHTTP  MetricsScheme = "http"
	MetricsHTTPS MetricsScheme = "https"
)

// Default fills every field that is left out with its default.
func (m *EngineMetricsSpec) Default() {
	setPointer(&m.Enabled, true)
	set(&m.Path, "/metrics")
	set(&m.Scheme, MetricsHTTP)
	set(&m.MinInterval, Duration{100 * time.Millisecond})
}
